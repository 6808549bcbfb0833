"""The tables of a history. Each table is defined once, in Arrow.

All offsets are offsets of images, as in `quorumctl ... --at-offset N`: a state holds in each image with `from_offset <= N <
to_offset`. A batch takes effect as a whole, and a transaction at its end. Example: the batch [40, 43) makes broker 2 the leader.
The row of broker 1 ends with `to_offset` 43, and the row of broker 2 begins with `from_offset` 43.

The column `day` is the day (UTC) on which an interval ended, or an event happened; the files are partitioned by it. A row that
later records can still change has no day: an interval that is open, and the newest day of `growth`.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa

from metadata_log.format.ids import Offset
from snapshots.offline.typed.arrow_schema import TIMESTAMP, list_of

Row: TypeAlias = dict[str, Any]
"""A row of a table, by column; columns that are missing are null. Times are microseconds since 1970."""
Values: TypeAlias = tuple[Any, ...]
"""The values of a row, for all columns in the order of the table."""

_NUMBERS: Final = list_of(pa.int64())
_INTERVAL: Final[Mapping[str, pa.DataType]] = {
    "from_offset": pa.int64(),
    "from_time": TIMESTAMP,
    "to_offset": pa.int64(),
    "to_time": TIMESTAMP,
    "duration_ms": pa.int64(),
    "began_before": pa.bool_(),
    "day": pa.date32(),
}
_PARTITION: Final[Mapping[str, pa.DataType]] = {
    "topic": pa.string(),
    "topic_id": pa.string(),
    "partition": pa.int64(),
}
_EVENT: Final[Mapping[str, pa.DataType]] = {"offset": pa.int64(), "time": TIMESTAMP}
_ABSENT: Final = list_of(
    pa.struct([("broker_id", pa.int64()), ("state", pa.string()), ("reason", pa.string())])  # as in `broker_states`
)

LEADERSHIP: Final = "leadership"
BROKER_STATES: Final = "broker_states"
PARTITION_CONDITIONS: Final = "partition_conditions"
ISR_CHANGES: Final = "isr_changes"
CHANGES: Final = "changes"
ELECTIONS: Final = "elections"
GROWTH: Final = "growth"

TABLES: Final[Mapping[str, Mapping[str, pa.DataType]]] = {
    LEADERSHIP: {
        **_PARTITION,
        "leader": pa.int64(),
        "leader_epoch": pa.int64(),
        "end_reason": pa.string(),
        "next_leader": pa.int64(),
        "principal": pa.string(),
        **_INTERVAL,
    },
    BROKER_STATES: {
        "broker_id": pa.int64(),
        "broker_epoch": pa.int64(),
        "incarnation_id": pa.string(),
        "state": pa.string(),
        "reason": pa.string(),
        "mode": pa.string(),
        "principal": pa.string(),
        **_INTERVAL,
    },
    PARTITION_CONDITIONS: {
        **_PARTITION,
        "condition": pa.string(),
        "replicas": _NUMBERS,
        "isr": _NUMBERS,
        "min_isr": pa.int64(),
        "last_leader": pa.int64(),
        "absent": _ABSENT,
        **_INTERVAL,
    },
    ISR_CHANGES: {
        **_EVENT,
        **_PARTITION,
        "leader": pa.int64(),
        "leader_epoch": pa.int64(),
        "before": _NUMBERS,
        "after": _NUMBERS,
        "left": _NUMBERS,
        "joined": _NUMBERS,
        "day": pa.date32(),
    },
    CHANGES: {
        **_EVENT,
        "action": pa.string(),
        "kind": pa.string(),
        "name": pa.string(),
        "field": pa.string(),
        "old": pa.string(),
        "new": pa.string(),
        "principal": pa.string(),
        "request_id": pa.string(),
        "day": pa.date32(),
    },
    ELECTIONS: {
        **_EVENT,
        "epoch": pa.int64(),
        "leader_id": pa.int64(),
        "voters": _NUMBERS,
        "granting_voters": _NUMBERS,
        "previous_epoch": pa.int64(),
        "previous_leader": pa.int64(),
        "why": pa.string(),
        "gap_ms": pa.int64(),
        "day": pa.date32(),
    },
    GROWTH: {
        "date": pa.date32(),
        "topics": pa.int64(),
        "partitions": pa.int64(),
        "brokers": pa.int64(),
        "topics_created": pa.int64(),
        "topics_removed": pa.int64(),
        "partitions_created": pa.int64(),
        "partitions_removed": pa.int64(),
        "batches": pa.int64(),
        "records": pa.int64(),
        "bytes": pa.int64(),
        "day": pa.date32(),
    },
}
"""Name -> columns. `docs/history.md` explains each of them."""

STATE: Final = "_state"
"""The rows from which the next run goes on: canonical records, and open intervals. Not a table for users."""
COUNTS: Final = "_counts"
"""A day, and how many topics and partitions of one task were created and removed on it, in the order of COUNTED."""
COUNTED: Final = ("topics_created", "topics_removed", "partitions_created", "partitions_removed")

DAY_AT: Final = -1
"""The place of `day`, which is the last column of each table."""
_END_AT: Final = {
    name: [*columns].index("to_offset" if "to_offset" in columns else "offset")
    for name, columns in TABLES.items()
    if name != GROWTH
}
"""The place of the offset at which an interval ended, or an event happened."""


def schema_of_table(name: str) -> pa.Schema:
    """Return the columns of one table."""
    return pa.schema([pa.field(column, kind) for column, kind in TABLES[name].items()])


def values_of(table: str, row: Row) -> Values:
    """Return the values of a row."""
    return tuple(map(row.get, TABLES[table]))


def end_of_row(table: str, values: Values) -> Offset | None:
    """Return the offset at which an interval ended, or an event happened; None: the interval is open."""
    end: Offset | None = values[_END_AT[table]]
    return end
