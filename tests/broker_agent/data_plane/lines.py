"""A log for tests: it keeps the events of its lines."""


class Lines:
    """A `broker_agent.metadata_loader.Log`."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.fields: list[dict[str, object]] = []

    def _line(self, event: str, **fields: object) -> None:
        self.events.append(event)
        self.fields.append(fields)

    debug = info = warning = error = _line
