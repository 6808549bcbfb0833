"""The *punctuation* of a log: the records that concern all entities, and few of them.

These are control records (leaders, voters, snapshot marks, skips), the markers of transactions, and each `ClearElr` that concerns
every topic. They come to the driver, because a fold by entity needs them first. Example:
  1. A transaction begins at 40, changes topic A at 41 and broker 7 at 42, and is aborted at 43.
  2. One task folds topic A, and another task folds broker 7. Neither task has the markers at 40 and 43.
  3. The driver finds in the punctuation that [40, 44) has no effect, and tells both tasks to leave it out.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from metadata_log.format.codec import UnknownRecord, decode_records
from metadata_log.format.ids import Epoch, Offset
from metadata_log.format.records import (
    TYPE_NUMBERS,
    AbortTransaction,
    BeginTransaction,
    ClearElr,
    ControlRecord,
    EndTransaction,
    KRaftVersion,
    LeaderChange,
    Record,
    SkippedBatch,
    SnapshotMark,
    Voters,
)
from metadata_log.image.entities import TRANSACTION_MARKERS, entity_keys, invisible_ranges
from metadata_log.image.entity_key import EVERY_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONTROL: Final = (LeaderChange, KRaftVersion, Voters, SnapshotMark, SkippedBatch)
Control = TypeVar("Control", bound=ControlRecord)
PUNCTUATION: Final = frozenset(TYPE_NUMBERS[cls] for cls in (*_CONTROL, *TRANSACTION_MARKERS, ClearElr))


class Placed(NamedTuple):
    """A record with its place in the log."""

    offset: Offset
    epoch: Epoch
    timestamp_ms: int
    record: Record | UnknownRecord
    payload: bytes


class Punctuation(NamedTuple):
    """The records of one node's log that concern all entities, by offset."""

    control: tuple[Placed, ...]
    markers: tuple[Placed, ...]
    every_topic: tuple[Placed, ...]

    def invisible(self, since: Offset, until: Offset) -> list[tuple[Offset, Offset]]:
        """Return the offset ranges in [since, until) that had no effect: skipped batches, and transactions without an end.

        `since` is the end of the snapshot below the log, or 0. The first segment may begin before it, inside of a transaction.
        The node has deleted the beginning of this transaction, and the snapshot has its effect.

        Raises:
            LogFormatError: the markers do not pair.
        """
        dropped = [(skip.dropped_start, skip.dropped_end) for at, skip in self.skipped() if at < until]
        markers = [
            (placed.offset, placed.record)
            for placed in self.markers
            if isinstance(placed.record, BeginTransaction | EndTransaction | AbortTransaction)
            and since <= placed.offset < until
            and not _is_within(placed.offset, dropped)
        ]
        return sorted([*dropped, *invisible_ranges(markers, until)])

    def skipped(self) -> list[tuple[Offset, SkippedBatch]]:
        """Return the skips of batches, each with the offset of its record."""
        return [(placed.offset, placed.record) for placed in self.control if isinstance(placed.record, SkippedBatch)]

    def visible_for_every_topic(self, since: Offset, until: Offset) -> list[Placed]:
        """Return the records in [since, until) that concern every topic and had an effect."""
        invisible = self.invisible(since, until)
        return [
            each for each in self.every_topic if since <= each.offset < until and not _is_within(each.offset, invisible)
        ]

    def marks(self) -> list[Offset]:
        """Return the possible ends of snapshots: just after each mark."""
        return [placed.offset + 1 for placed in self.control if isinstance(placed.record, SnapshotMark)]

    def last_before(self, kind: type[Control], until: Offset) -> Control | None:
        """Return the newest control record of this type below `until`; None if there is none."""
        found = [p.record for p in self.control if isinstance(p.record, kind) and p.offset < until]
        return found[-1] if found else None


def _is_within(offset: Offset, ranges: Iterable[tuple[Offset, Offset]]) -> bool:
    return any(begin <= offset < end for begin, end in ranges)


def read_table(spark: "SparkSession", paths: list[str], mode: str, **options: object) -> "DataFrame":
    """Return one of the tables in `schema` over these directories. The jobs read what is durable, and judge it themselves."""
    reader = spark.read.format("metadata_log").option("path", json.dumps(paths)).option("mode", mode)
    for key, value in {"until": "flushed", "archive": "false", **options}.items():
        reader = reader.option(key, str(value))
    return reader.load()


def read_punctuation(
    spark: "SparkSession", paths: list[str], until: Offset | str, standing: str = "{}"
) -> dict[str, Punctuation]:
    """Return the punctuation of each node's log, by the node's name. Records that cannot be decoded are left out."""
    types = ",".join(map(str, sorted(PUNCTUATION)))
    table = read_table(spark, paths, "records", until=until, standing=standing, types=types)
    columns = ("node", "offset", "epoch", "timestamp", "payload")
    found: dict[str, list[Placed]] = {}
    for row in table.where("error IS NULL").select(*columns).toArrow().to_pylist():
        record = decode_records(row["payload"], 1)[0]
        placed = Placed(row["offset"], row["epoch"], millis_of(row["timestamp"]), record, row["payload"])
        found.setdefault(row["node"], []).append(placed)
    return {node: punctuation_of(placed) for node, placed in found.items()}


def millis_of(time: datetime) -> int:
    """Return a time of a table in milliseconds since 1970. The time has no fraction of a millisecond, but its float may."""
    return round(time.timestamp() * 1_000)


def punctuation_of(placed: list[Placed]) -> Punctuation:
    """Sort the records of one node."""
    placed.sort(key=lambda each: each.offset)
    return Punctuation(
        tuple(each for each in placed if isinstance(each.record, _CONTROL)),
        tuple(each for each in placed if type(each.record) in TRANSACTION_MARKERS),
        tuple(each for each in placed if isinstance(each.record, ClearElr) and EVERY_TOPIC in entity_keys(each.record)),
    )


NO_PUNCTUATION: Final = Punctuation((), (), ())
