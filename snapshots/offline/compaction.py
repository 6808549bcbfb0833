"""Compaction: fold a log into the same snapshot, byte for byte, that the controllers write at that offset.

    1  judge     check all batches: a log with damage below the offset is refused
    2  fold      fold the entities in parallel, and sort the results into canonical order
    3  write     one task writes the file as `snapshots.writer` does, then reads and verifies it

So compaction proves the controllers' state independently: other code, another machine, the same bytes. The job only
reads the node's directory, live or copied, and always writes elsewhere. An operator may install the file, but no job
does.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import pyarrow as pa

from metadata_log.disk.failures import DirectoryInUse
from metadata_log.disk.files import Directory, File, RealDirectory
from metadata_log.format.codec import decode_records
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.records import AbortTransaction, KRaftVersion, MetadataRecord, Voters
from snapshots.format import BOOTSTRAP_END, SnapshotMeta, snapshot_name
from snapshots.offline.committed import Committed, committed_end
from snapshots.offline.inputs import NodeLog, find_logs, lies_in
from snapshots.offline.look import WholeLog, look
from snapshots.offline.packed.fold import fold_records, read_packed
from snapshots.offline.punctuation import NO_PUNCTUATION, Punctuation, millis_of, read_punctuation, read_table
from snapshots.offline.schema import Column, arrow_schema, spark_schema
from snapshots.offline.typed.arrow_schema import record_batch
from snapshots.offline.writable import writable
from snapshots.reader import read_meta, read_snapshot
from snapshots.writer import WRITE_BYTES, exclusive, write_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITTEN: Final = (Column("name", "string"), Column("size", "long"), Column("records", "long"))


class CannotCompact(Exception):
    """The log cannot be compacted to that offset. The text says why, names the place of damage, and says what to do."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}. Nothing was written")


class Compacted(NamedTuple):
    """The result of a compaction."""

    path: str
    """The path or URL of the snapshot."""
    end: OffsetAndEpoch
    size: int
    record_count: int
    digest: bytes
    chain: bytes
    same_as_source: bool | None
    """True if the file equals the source's own snapshot at this offset, byte for byte; None if the source has none."""


class _Place(NamedTuple):
    """The end of the compacted log: its offset and epoch, the time and the chain there."""

    end: OffsetAndEpoch
    timestamp_ms: int
    chain: bytes


def compact(
    spark: "SparkSession",
    source_dir: str,
    end_offset: Offset | None,
    out_dir: str,
    *,
    beside: Sequence[str] = (),
    uncommitted: bool = False,
) -> Compacted:
    """Fold the log in `source_dir` up to `end_offset` (None: the last snapshot mark) into a checkpoint in `out_dir`.

    The log is read as far as its files, and those of the other controllers in `beside`, prove that it is committed;
    with `uncommitted` as far as it is durable. One task writes `out_dir`, and the driver verifies the file. In a cluster of
    machines `out_dir` must be a shared volume, or the URL of an object store.

    Raises:
        CannotCompact: the offset or mark does not exist, or may not be committed, the log is damaged below it, it lies
            between a skipped batch and the record of the skip, or a log that starts above 0 has no snapshot.
        LogFormatError: the directory has no log, or its snapshot is damaged.
    """
    logs = find_logs([source_dir, *beside])
    log = logs[0]
    if any(lies_in(out_dir, each) for each in logs):
        raise CannotCompact(f"{out_dir} lies in the directory of a node, where no job writes; choose another directory")
    whole = (look(spark, [log], "flushed", () if end_offset is None else (end_offset,)) or {}).get(log.node)
    if whole is None:
        found = read_punctuation(spark, [log.path], "flushed").get(log.node, NO_PUNCTUATION)
    else:
        found = whole.punctuation
    committed = None if uncommitted else committed_end(logs)
    wanted = end_offset if end_offset is not None else _last_mark(found, log, committed)
    if log.durable_end is not None and wanted > log.durable_end:
        raise CannotCompact(
            f"offset {wanted} is above the durable end of the log; choose an offset up to {log.durable_end}"
        )
    if committed is not None and wanted > committed.end:
        raise CannotCompact(f"offset {wanted} {_unproven(committed)}")
    _refuse_before_skip(found, wanted)
    base = _base(log, wanted)
    place = _place_in(whole, log, wanted) or _judge(spark, log, wanted)
    since = 0 if base is None else base.end.offset
    invisible = found.invisible(since, wanted)
    if invisible and invisible[-1][1] == wanted and not _is_aborted(found, wanted):
        raise CannotCompact(f"offset {wanted} is inside a metadata transaction; choose another one")
    packed = read_packed(
        spark,
        log.path,
        until=wanted,
        since=since,
        base=None if base is None else snapshot_name(base.end),
        invisible=invisible,
    )
    every_topic = found.visible_for_every_topic(since, wanted)
    meta = _meta(log, found, place, base)
    return _write(log, fold_records(packed, every_topic), meta, out_dir)


def _last_mark(found: Punctuation, log: NodeLog, committed: Committed | None) -> Offset:
    marks = [mark for mark in found.marks() if log.durable_end is None or mark <= log.durable_end]
    if not marks:
        raise CannotCompact(f"{log.path}: the log has no snapshot mark; give the offset with --offset")
    proven = [mark for mark in marks if committed is None or mark <= committed.end]
    if not proven:
        assert committed is not None
        raise CannotCompact(f"{log.path}: each snapshot mark, the first one at {marks[0]}, {_unproven(committed)}")
    return proven[-1]


def _unproven(committed: Committed) -> str:
    """Return the rest of a sentence about an offset above the proven end."""
    return (
        f"may not be committed: the files prove it up to {committed.end} only ({committed.proof}); name the directories of "
        "other controllers with --beside, or accept the risk with --uncommitted"
    )


def _refuse_before_skip(found: Punctuation, wanted: Offset) -> None:
    """Refuse an offset between a batch and the record that skips it: below the record, some nodes have the effect of the
    batch, and others cannot apply it.

    Raises:
        CannotCompact: `wanted` is such an offset.
    """
    for at, skip in found.skipped():
        if skip.dropped_start < wanted <= at:
            raise CannotCompact(
                f"offset {wanted} lies between the batch at offset {skip.offset}, which no snapshot may contain, and the record "
                f"at offset {at} that skips the batch; choose an offset up to {skip.dropped_start}, or above {at}"
            )


def _is_aborted(found: Punctuation, end: Offset) -> bool:
    """Return True if the range that ends at `end` ends with an abort, not with the end of the log."""
    return any(p.offset + 1 == end and isinstance(p.record, AbortTransaction) for p in found.markers)


def base_of(log: NodeLog) -> OffsetAndEpoch | None:
    """Return the snapshot below the log: the oldest at or above the log's start; None if the log starts at 0.

    Raises:
        CannotCompact: the log starts above 0 and has no such snapshot.
    """
    if log.start_offset == 0:
        return None
    for end in log.snapshots:
        if end.offset >= log.start_offset:
            return end
    raise CannotCompact(
        f"{log.path}: the log starts at {log.start_offset}, and no snapshot in the directory ends there or above; "
        f"compact the directory of another node"
    )


def _base(log: NodeLog, wanted: Offset) -> SnapshotMeta | None:
    end = base_of(log)
    if end is None:
        return None
    if wanted <= end.offset:
        raise CannotCompact(
            f"offset {wanted} is not above the snapshot {end} at which the log starts; copy this snapshot, or name a higher end "
            f"with --offset"
        )
    return read_snapshot(log.directory, end).meta


def _place_in(whole: WholeLog | None, log: NodeLog, wanted: Offset) -> _Place | None:
    """Return epoch, time and chain just below `wanted`; None if the look at the log does not tell, or shows that something is
    wrong.
    """
    end = None if whole is None or whole.first_offset > log.start_offset else whole.ends.get(wanted)
    return None if end is None else _Place(OffsetAndEpoch(wanted, end.epoch), end.timestamp_ms, end.chain)


def _judge(spark: "SparkSession", log: NodeLog, wanted: Offset) -> _Place:
    """Refuse damage below `wanted`; return epoch, time and chain just below `wanted`.

    Raises:
        CannotCompact: the log is damaged, has gaps, or no batch ends at `wanted`.
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
            raise CannotCompact(
                f"offset {wanted} is not the end of a batch in {log.path}; `dump --batches` shows the ends"
            )
        if total["low"] + total["n"] != wanted or total["low"] > log.start_offset:
            raise CannotCompact(f"{log.path}: the log below {wanted} has gaps; audit it first")
    finally:
        batches.unpersist()
    row = last[0]
    return _Place(OffsetAndEpoch(wanted, row["epoch"]), millis_of(row["last_timestamp"]), bytes(row["chain"]))


def _meta(log: NodeLog, found: Punctuation, place: _Place, base: SnapshotMeta | None) -> SnapshotMeta:
    """Return the snapshot's metadata as a controller would write it: the quorum from the log, the base or the bootstrap
    checkpoint.
    """
    if base is None and log.has_bootstrap:
        base = read_meta(log.directory, BOOTSTRAP_END)
    until = place.end.offset
    voters = found.last_before(Voters, until) or (base.voters if base else None)
    version = found.last_before(KRaftVersion, until)
    if voters is None:
        raise CannotCompact(
            f"{log.path}: the voter set is unknown: log, snapshot and bootstrap checkpoint have none; "
            f"compact the directory of another node"
        )
    kraft_version = version.level if version else base.kraft_version if base else 1
    return SnapshotMeta(place.end, place.timestamp_ms, place.chain, voters, kraft_version)


def _write(log: NodeLog, canonical: "DataFrame", meta: SnapshotMeta, out_dir: str) -> Compacted:
    try:
        written = writable(out_dir)
    except OSError as e:
        raise CannotCompact(f"{out_dir} cannot be used: {e}; choose another directory, or repair this one") from None
    if not isinstance(written, RealDirectory):  # an object store takes each file as a whole
        return _write_into(written, log, canonical, meta, out_dir)
    try:
        with exclusive(written):
            return _write_into(written, log, canonical, meta, out_dir)
    except DirectoryInUse:
        raise CannotCompact(f"another job writes into {out_dir}; wait for its end, and run this again") from None


def _write_into(
    written: Directory, log: NodeLog, canonical: "DataFrame", meta: SnapshotMeta, out_dir: str
) -> Compacted:
    name = snapshot_name(meta.end)
    if not canonical.mapInArrow(_Writer(out_dir, meta), spark_schema(WRITTEN)).collect():
        write_records(written, meta, (), replaces=True)  # without records to fold Spark runs no task
    contents = read_snapshot(written, meta.end)
    size, is_same = _compare(written.open(name), log, meta.end)
    return Compacted(
        f"{out_dir.rstrip('/')}/{name}",
        meta.end,
        size,
        contents.record_count,
        contents.digest,
        contents.meta.chain,
        is_same,
    )


def _compare(ours: File, log: NodeLog, end: OffsetAndEpoch) -> tuple[int, bool | None]:
    """Return the size of our file, and whether the node's own snapshot is equal; None if the node has none."""
    theirs = _opened(log, end)
    try:
        size = ours.size()
        if theirs is None:
            return size, None
        chunks = range(0, size, WRITE_BYTES)
        is_same = theirs.size() == size and all(
            theirs.read_at(at, WRITE_BYTES) == ours.read_at(at, min(WRITE_BYTES, size - at)) for at in chunks
        )
        return size, is_same
    finally:
        ours.close()
        if theirs is not None:
            theirs.close()


def _opened(log: NodeLog, end: OffsetAndEpoch) -> File | None:
    """Open the node's own snapshot; None if it has none, or has deleted it meanwhile."""
    if end not in log.snapshots:
        return None
    try:
        return log.directory.open(snapshot_name(end))
    except FileNotFoundError:
        return None


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

        # Each run proves its own bytes, so it writes them anew. The file of an earlier run stays until the new file is whole.
        info = write_records(writable(self._out_dir), self._meta, records(), replaces=True)
        yield record_batch(arrow_schema(WRITTEN), [(snapshot_name(info.end), info.size, count)])
