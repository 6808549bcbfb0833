"""The first looks at a log, on the driver: is it whole, where does it end, which of its records took effect?

Spark answers from the rows of `log_rows`; few rows come to the driver: control records, markers, and one for each day.
"""

import datetime as dt
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from metadata_log.format.codec import decode_record
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.format.records import SkippedBatch
from metadata_log.image.entity_key import EVERY_TOPIC
from snapshots.offline.history.folding.intervals import day_of
from snapshots.offline.history.folding.steps import Marker, Range, Step, dropped_by, is_within
from snapshots.offline.history.log_rows import BATCH, CONTROL, MARKER, UNDECODABLE
from snapshots.offline.history.output import HistoryRefused
from snapshots.offline.history.place import Place
from snapshots.offline.history.tables import Row
from snapshots.offline.history.topic_packs import EntityRow
from snapshots.offline.rows import entity_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SMALL: Final = (CONTROL, MARKER, UNDECODABLE, entity_text(EVERY_TOPIC))
_COLUMNS: Final = (*EntityRow._fields, "error")


class End(NamedTuple):
    """The end of a batch, and the chain there."""

    step: Step
    chain: bytes


class SmallRows(NamedTuple):
    """The rows that concern the whole log, by offset."""

    control: tuple[tuple[Step, Any], ...]
    """Control records, each with the step of its batch."""
    control_offsets: tuple[Offset, ...]
    markers: tuple[Marker, ...]
    undecodable: tuple[tuple[Offset, str], ...]
    every_topic: tuple[EntityRow, ...]

    def skips(self) -> tuple[SkippedBatch, ...]:
        return tuple(record for _, record in self.control if isinstance(record, SkippedBatch))

    def dropped(self) -> tuple[Range, ...]:
        """Return the ranges that skips drop."""
        return dropped_by(self.skips())


def check_whole(rows: "DataFrame", path: str, begin: Offset, start: Offset) -> None:
    """Refuse a log that is damaged, or has gaps above `begin`. `start` is the start of the log.

    Raises:
        HistoryRefused: the log is not whole; the text names the place.
    """
    from pyspark.sql import functions as f

    batches = rows.where(f.col("entity") == BATCH)
    bad = batches.where("error IS NOT NULL").orderBy("offset").limit(1).collect()
    if bad:
        raise HistoryRefused(f"{path}: {bad[0]['error']}; audit the log first")
    found = batches.agg(
        f.min("offset").alias("low"), f.max("step").alias("high"), f.sum(f.expr("step - offset")).alias("count")
    ).collect()[0]
    if found["low"] is None:
        return
    if found["low"] > max(begin, start) or found["low"] + found["count"] != found["high"]:
        raise HistoryRefused(f"{path}: the log above {begin} has gaps; audit it first")


def end_below(rows: "DataFrame", place: Place) -> End | None:
    """Return the end of the last batch at or below `place`; None if no batch is."""
    found = (
        rows.where((rows["entity"] == BATCH) & (rows["step"] <= place.offset) & (rows["time_ms"] <= place.time_ms))
        .orderBy(rows["step"].desc())
        .limit(1)
        .collect()
    )
    if not found:
        return None
    row = found[0]
    return End(Step(row["step"], row["time_ms"], row["epoch"]), bytes(row["payload"]))


def chain_at(rows: "DataFrame", offset: Offset) -> bytes | None:
    """Return the chain of the log at `offset`; None if the log does not reach the offset."""
    batches = rows.where(rows["entity"] == BATCH)
    near = batches.where((batches["step"] == offset) | (batches["offset"] == offset)).collect()
    for row in near:
        chain = row["payload"] if row["step"] == offset else row["previous_chain"]
        if chain is not None:
            return bytes(chain)
    return None


def small_rows(rows: "DataFrame") -> SmallRows:
    """Return the rows that concern the whole log."""
    found = rows.where(rows["entity"].isin(*_SMALL)).select(*_COLUMNS).orderBy("offset").collect()
    control: list[tuple[Step, Any]] = []
    control_offsets: list[Offset] = []
    markers: list[Marker] = []
    undecodable: list[tuple[Offset, str]] = []
    every_topic: list[EntityRow] = []
    for row in found:
        step = Step(row["step"], row["time_ms"], row["epoch"], row["principal"], row["request_id"])
        if row["entity"] == UNDECODABLE:
            undecodable.append((row["offset"], row["error"]))
        elif row["entity"] == CONTROL:
            control.append((step, decode_record(bytes(row["payload"]))))
            control_offsets.append(row["offset"])
        elif row["entity"] == MARKER:
            markers.append(Marker(row["offset"], step, cast(Any, decode_record(bytes(row["payload"])))))
        else:
            every_topic.append(EntityRow(*row[:-1])._replace(payload=bytes(row["payload"])))
    return SmallRows(tuple(control), tuple(control_offsets), tuple(markers), tuple(undecodable), tuple(every_topic))


def check_readable(small: SmallRows, end: Offset) -> None:
    """Refuse a log with a batch below `end` that this release cannot decode, unless the batch was skipped.

    Raises:
        LogFormatError: there is such a batch.
    """
    dropped = small.dropped()
    for offset, error in small.undecodable:
        if offset < end and not is_within(offset, dropped):
            raise LogFormatError(error)


def batches_by_day(rows: "DataFrame", begin: Offset, end: Offset) -> dict[dt.date, Row]:
    """Return the batches, records and bytes of each day in [begin, end)."""
    from pyspark.sql import functions as f

    day = f.floor(f.col("time_ms") / 86_400_000).cast("long").alias("day")
    found = (
        rows.where((f.col("entity") == BATCH) & (f.col("step") > begin) & (f.col("step") <= end))
        .groupBy(day)
        .agg(
            f.count("*").alias("batches"), f.sum(f.expr("step - offset")).alias("records"), f.sum("size").alias("bytes")
        )
        .collect()
    )
    return {
        day_of(row["day"] * 86_400_000): {name: row[name] for name in ("batches", "records", "bytes")} for row in found
    }
