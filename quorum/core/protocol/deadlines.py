"""The first of several deadlines, each of which there may or may not be. The end of every turn asks for it, several times."""


def soonest(*deadlines_ms: int | None) -> int | None:
    """The earliest of those that are not None; None if all are."""
    first_ms: int | None = None
    for deadline_ms in deadlines_ms:
        if deadline_ms is not None and (first_ms is None or deadline_ms < first_ms):
            first_ms = deadline_ms
    return first_ms
