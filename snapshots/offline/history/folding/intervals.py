"""Intervals: rows with a begin and an end. An open interval outlives its run."""

import datetime as dt
import json
from functools import lru_cache
from typing import Any, Final

from metadata_log.format.errors import LogFormatError
from snapshots.offline.history.folding.steps import Step
from snapshots.offline.history.tables import BROKER_STATES, LEADERSHIP, PARTITION_CONDITIONS, TABLES, Row
from snapshots.offline.rows import time_us

_US: Final = 1_000
_DAY_US: Final = 86_400_000_000
_FIRST_DAY: Final = dt.date(1970, 1, 1)
KEYS: Final = {LEADERSHIP: "partition", PARTITION_CONDITIONS: "partition", BROKER_STATES: "broker_id"}
"""The column that tells the intervals of a topic, or of the brokers, apart."""


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


def unpack_row(payload: bytes, entity: str) -> tuple[str, Row]:
    """Return the table and the interval of `pack_row`.

    Raises:
        LogFormatError: the bytes are no open interval.
    """
    try:
        table, row = json.loads(payload)
        check_open_row(table, row, KEYS[table])
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise LogFormatError(
            f"an open interval of {entity} in `_state` of the tables is damaged ({e!r:.80}); make the tables anew in another "
            "directory"
        ) from None
    return table, row


def check_open_row(table: str, row: Any, key: str) -> None:
    """Check an open interval of `table`, of which nobody knows who has written it. `key` is the column that names its place.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(row, dict) or not row.keys() <= TABLES[table].keys():
        raise ValueError(f"no row of {table}: {row!r:.40}")
    if (
        any(type(row.get(name)) is not int for name in ("from_offset", "from_time", key))
        or row.get("to_offset") is not None
    ):
        raise ValueError(f"no open interval of {table}: {row!r:.40}")
