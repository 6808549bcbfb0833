"""Compacts a log to the very snapshot that the controllers write at the same offset, byte for byte.

    batches     judged first: a log with damage below the offset is refused, not compacted
    entities    folded in parallel, sorted into canonical order
    one task    writes the file, as `snapshots.writer` does; it is read again and verified

So it is an independent proof of the controllers' state: other code paths, another machine, the same bytes. It reads a
directory, live or copied, and writes elsewhere, always; to install the file is somebody's deliberate act.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import pyarrow as pa

from metadata_log.disk.files import RealDirectory
from metadata_log.format.codec import decode_records
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.records import KRaftVersion, MetadataRecord, Voters
from snapshots.format import BOOTSTRAP_END, SnapshotMeta, snapshot_name
from snapshots.offline.fold import fold_records, read_entities
from snapshots.offline.inputs import NodeLog, find_log
from snapshots.offline.schema import Column, arrow_schema, spark_schema
from snapshots.offline.survey import NO_PUNCTUATION, Punctuation, read_punctuation, read_table
from snapshots.reader import read_meta, read_snapshot
from snapshots.writer import write_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITTEN: Final = (Column("name", "string"), Column("size", "long"), Column("records", "long"))


class CannotCompact(Exception):
    """The log cannot be compacted to that offset; the text says why, and where the damage is if it is damage."""


class Compacted(NamedTuple):
    """What came out."""

    path: Path
    end: OffsetAndEpoch
    size: int
    record_count: int
    digest: bytes
    chain: bytes
    same_as_source: bool | None
    """Whether it equals the source's own snapshot at this offset, byte for byte; None where the source has none."""


class _Place(NamedTuple):
    """What the log says of the offset that is compacted to."""

    end: OffsetAndEpoch
    timestamp_ms: int
    chain: bytes


def compact(spark: "SparkSession", source_dir: str, end_offset: Offset | None, out_dir: str) -> Compacted:
    """Folds the log in `source_dir` up to `end_offset` (None: the last snapshot mark) into a checkpoint in `out_dir`.

    `out_dir` is written by one task and verified by the driver: on a cluster of machines, a volume that they share.

    Raises:
        CannotCompact: no such offset or mark, damage below it, or no snapshot under a log that starts above 0.
        LogFormatError: the directory holds no log, or its snapshot is damaged.
    """
    log = find_log(source_dir)
    if Path(out_dir).resolve() == Path(log.path).resolve():
        raise CannotCompact("the output directory is the log's own; a job writes elsewhere")
    limit: Offset | str = "flushed" if end_offset is None else end_offset
    found = read_punctuation(spark, [log.path], limit).get(log.node, NO_PUNCTUATION)
    wanted = end_offset if end_offset is not None else _last_mark(found, log)
    if log.durable_end is not None and wanted > log.durable_end:
        raise CannotCompact(f"offset {wanted} lies above {log.durable_end}, up to which the log is durable")
    base = _base(log, wanted)
    place = _judge(spark, log, wanted)
    invisible = found.invisible(wanted)
    if invisible and invisible[-1][1] == wanted and not _is_aborted(found, wanted):
        raise CannotCompact(f"offset {wanted} lies inside a metadata transaction")
    entities = read_entities(
        spark,
        log.path,
        until=wanted,
        since=0 if base is None else base.end.offset,
        base=None if base is None else snapshot_name(base.end),
        invisible=invisible,
    )
    every_topic = [each for each in found.every_topic if each.offset < wanted]
    meta = _meta(log, found, place, base)
    return _write(log, fold_records(entities, every_topic), meta, out_dir)


def _last_mark(found: Punctuation, log: NodeLog) -> Offset:
    marks = [mark for mark in found.marks() if log.durable_end is None or mark <= log.durable_end]
    if not marks:
        raise CannotCompact(
            f"{log.path}: no snapshot mark in what is left of the log; say with --offset where to compact"
        )
    return marks[-1]


def _is_aborted(found: Punctuation, end: Offset) -> bool:
    """Whether the range that ends at `end` ends with an abort rather than with the log."""
    from metadata_log.format.records import AbortTransaction

    return any(p.offset + 1 == end and isinstance(p.record, AbortTransaction) for p in found.markers)


def base_of(log: NodeLog) -> OffsetAndEpoch | None:
    """The snapshot that the log stands on: the oldest at or above its start; None where the log starts at 0.

    Raises:
        CannotCompact: the log starts above 0 and there is none.
    """
    if log.start_offset == 0:
        return None
    for end in log.snapshots:
        if end.offset >= log.start_offset:
            return end
    raise CannotCompact(f"{log.path}: the log starts at {log.start_offset}, and there is no snapshot at or above that")


def _base(log: NodeLog, wanted: Offset) -> SnapshotMeta | None:
    end = base_of(log)
    if end is None:
        return None
    if wanted <= end.offset:
        raise CannotCompact(f"offset {wanted} is not above the snapshot {end} that the log stands on")
    return read_snapshot(log.directory, end).meta


def _judge(spark: "SparkSession", log: NodeLog, wanted: Offset) -> _Place:
    """Damage below `wanted` is refused; what stands just below it is told.

    Raises:
        CannotCompact: see there.
    """
    from pyspark.sql import functions as f

    batches = read_table(spark, [log.path], "batches", until=wanted).cache()
    try:
        is_bad = (
            f.col("error").isNotNull()
            | (f.col("chain_ok") == f.lit(False))
            | (f.col("base_offset") != f.col("expected_offset"))
        )
        bad = batches.where(is_bad).orderBy("file", "position").limit(1).collect()
        if bad:
            reason = bad[0]["error"] or "the batch does not continue the log"
            raise CannotCompact(f"{bad[0]['file']}, position {bad[0]['position']}: {reason}; audit the log first")
        total = batches.agg(f.sum("record_count").alias("n"), f.min("base_offset").alias("low")).collect()[0]
        last = batches.where(f.col("end_offset") == wanted).select("epoch", "last_timestamp", "chain").collect()
        if not last:
            raise CannotCompact(f"offset {wanted} is not the end of a batch in {log.path}")
        if total["low"] + total["n"] != wanted or total["low"] > log.start_offset:
            raise CannotCompact(f"{log.path}: the log below {wanted} has gaps; audit it first")
    finally:
        batches.unpersist()
    row = last[0]
    timestamp_ms = int(row["last_timestamp"].timestamp() * 1_000 + 0.5)
    return _Place(OffsetAndEpoch(wanted, row["epoch"]), timestamp_ms, bytes(row["chain"]))


def _meta(log: NodeLog, found: Punctuation, place: _Place, base: SnapshotMeta | None) -> SnapshotMeta:
    """As a controller would fill it in: the quorum in force at the end, by the log, the base or the bootstrap checkpoint."""
    if base is None and log.has_bootstrap:
        base = read_meta(log.directory, BOOTSTRAP_END)
    until = place.end.offset
    voters: Voters | None = found.last_before(Voters, until) or (base.voters if base else None)
    version: KRaftVersion | None = found.last_before(KRaftVersion, until)
    if voters is None:
        raise CannotCompact(f"{log.path}: nothing tells the voter set: neither log, snapshot nor bootstrap checkpoint")
    kraft_version = version.level if version else base.kraft_version if base else 1
    return SnapshotMeta(place.end, place.timestamp_ms, place.chain, voters, kraft_version)


def _write(log: NodeLog, canonical: "DataFrame", meta: SnapshotMeta, out_dir: str) -> Compacted:
    name = snapshot_name(meta.end)
    with contextlib.suppress(FileNotFoundError):
        (Path(out_dir) / name).unlink()  # of an earlier run: this one is to prove itself
    written = RealDirectory(out_dir)
    if not canonical.mapInArrow(_Writer(out_dir, meta), spark_schema(WRITTEN)).collect():
        write_records(written, meta, ())  # nothing to fold: Spark then runs no task at all
    contents = read_snapshot(written, meta.end)
    path = Path(out_dir) / name
    same = _same(log, meta.end, path) if meta.end in log.snapshots else None
    return Compacted(
        path, meta.end, path.stat().st_size, contents.record_count, contents.digest, contents.meta.chain, same
    )


def _same(log: NodeLog, end: OffsetAndEpoch, path: Path) -> bool:
    theirs = log.directory.open(snapshot_name(end))
    try:
        with path.open("rb") as ours:
            position = 0
            while data := ours.read(1 << 20):
                if theirs.read_at(position, len(data)) != data:
                    return False
                position += len(data)
        return theirs.size() == position
    finally:
        theirs.close()


class _Writer:
    """The one task that writes the file."""

    def __init__(self, out_dir: str, meta: SnapshotMeta) -> None:
        self._out_dir = out_dir
        self._meta = meta

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = 0

        def records() -> Iterator[MetadataRecord]:
            nonlocal count
            for batch in batches:
                for payload in batch.column(1).to_pylist():
                    count += 1
                    yield cast(MetadataRecord, decode_records(payload, 1)[0])

        info = write_records(RealDirectory(self._out_dir), self._meta, records())
        values: list[Any] = [[snapshot_name(info.end)], [info.size], [count]]
        schema = arrow_schema(WRITTEN)
        arrays = [pa.array(value, type=field.type) for value, field in zip(values, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
