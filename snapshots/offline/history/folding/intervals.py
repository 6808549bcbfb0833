"""Intervals: rows with a begin and an end. An open interval outlives its run."""

import datetime as dt
import json
from functools import lru_cache
from typing import Any, Final

from snapshots.offline.history.folding.steps import Step
from snapshots.offline.history.tables import Row
from snapshots.offline.rows import time_us

_US: Final = 1_000
_DAY_US: Final = 86_400_000_000
_FIRST_DAY: Final = dt.date(1970, 1, 1)


def day_of(time_ms: int) -> dt.date:
    """Return the day (UTC) of a time."""
    return moment(time_ms)[1]


@lru_cache(1_000)
def moment(time_ms: int) -> tuple[int, dt.date]:
    """Return a time in microseconds, and its day. Remembered, because a step has many rows."""
    time = time_us(time_ms)
    return time, _FIRST_DAY + dt.timedelta(days=time // _DAY_US)


def moment_text(time_ms: int) -> str:
    """Return a time as people read it."""
    seconds, ms = divmod(time_us(time_ms) // _US, 1_000)
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%dT%H:%M:%S}.{ms:03d}Z"


def opened(step: Step, *, began_before: bool, **columns: Any) -> Row:
    """Return an interval that begins at `step`. `began_before`: the state is older, and `step` is the begin of the log."""
    return {
        **columns,
        "from_offset": step.offset,
        "from_time": moment(step.time_ms)[0],
        "began_before": began_before,
    }


def closed(row: Row, step: Step, **columns: Any) -> Row:
    """Return the interval with its end."""
    to_time, day = moment(step.time_ms)
    return {
        **row,
        **columns,
        "to_offset": step.offset,
        "to_time": to_time,
        "duration_ms": (to_time - row["from_time"]) // _US,
        "day": day,
    }


def event(step: Step, **columns: Any) -> Row:
    """Return an event at `step`."""
    time, day = moment(step.time_ms)
    return {**columns, "offset": step.offset, "time": time, "day": day}


def pack_row(table: str, row: Row) -> bytes:
    """Return an open interval as the next run reads it."""
    return json.dumps([table, row], ensure_ascii=False, separators=(",", ":")).encode()


def unpack_row(payload: bytes) -> tuple[str, Row]:
    """Return the table and the interval of `pack_row`."""
    table, row = json.loads(payload)
    return table, row
