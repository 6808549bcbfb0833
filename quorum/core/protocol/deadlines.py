"""The earliest of several optional deadlines. Every turn ends with several calls, so the function is written for speed."""


def soonest(*deadlines_ms: int | None) -> int | None:
    """The earliest deadline other than None; None if all are None."""
    first_ms: int | None = None
    for deadline_ms in deadlines_ms:
        if deadline_ms is not None and (first_ms is None or deadline_ms < first_ms):
            first_ms = deadline_ms
    return first_ms
