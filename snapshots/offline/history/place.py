"""A place in a log as operators name it: an offset, or a time."""

import datetime as dt
from typing import Final, NamedTuple

from metadata_log.format.ids import OFFSET_MAX, Offset

TIME_MAX: Final = (1 << 53) - 1
"""A time later than all times of batches, in ms since 1970."""


class Place(NamedTuple):
    """An offset, or a time. The last batch that ends at or below both counts."""

    offset: Offset = OFFSET_MAX
    time_ms: int = TIME_MAX


EVERYWHERE: Final = Place()


def parse_place(text: str) -> Place:
    """Parse an offset such as `1244`, or a time such as `2026-11-24` or `2026-11-24T09:30:00Z`. Times are UTC.

    Raises:
        ValueError: the text is neither.
    """
    if text.isdigit() and len(text) < 20:
        return Place(offset=min(int(text), OFFSET_MAX))
    try:
        time = dt.datetime.fromisoformat(text if text[4:5] == "-" else "")
    except ValueError:
        raise ValueError(f"{text!r} is neither an offset nor a time such as 2026-11-24T09:30:00Z") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=dt.UTC)
    return Place(time_ms=int(time.timestamp() * 1_000))
