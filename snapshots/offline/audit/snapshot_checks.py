"""Checks of snapshots: intact and in order, equal on all nodes, on the log's chain, and with the state of the log."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.records import MetadataRecord
from metadata_log.image.entities import with_order_keys
from metadata_log.store.log_notes import read_flushed, read_start
from snapshots.format import SnapshotCorrupt, snapshot_name
from snapshots.offline.audit.findings import Finding, error
from snapshots.offline.inputs import NodeLog
from snapshots.offline.readonly import ReadOnlyDirectory
from snapshots.offline.schema import Column, arrow_schema, spark_schema
from snapshots.reader import read_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WANTED: Final = (Column("node", "string"), Column("path", "string"), Column("end", "long"), Column("epoch", "long"))
VERIFIED: Final = (
    Column("node", "string"),
    Column("end", "long"),
    Column("epoch", "long"),
    Column("size", "long"),
    Column("sha256", "binary"),
    Column("timestamp_ms", "long"),
    Column("chain", "binary"),
    Column("digest", "binary"),
    Column("records", "long"),
    Column("rule", "string", True),
    Column("error", "string", True),
    Column("position", "long", True),
)


class CheckedSnapshot(NamedTuple):
    """The check of one node's snapshot."""

    node: str
    end: Offset
    epoch: int
    size: int
    sha256: bytes
    timestamp_ms: int
    chain: bytes
    digest: bytes
    records: int
    rule: str | None
    error: str | None
    position: int | None

    @property
    def place(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end, self.epoch)

    @property
    def name(self) -> str:
        return snapshot_name(self.place)


def verify_snapshots(spark: "SparkSession", logs: Iterable[NodeLog]) -> list[CheckedSnapshot]:
    """Read every snapshot of every node. One task reads all copies of a snapshot: copies with the same bytes are decoded once."""
    wanted = [(log.node, log.path, end.offset, end.epoch) for log in logs for end in log.snapshots]
    if not wanted:
        return []
    table = spark.createDataFrame(wanted, spark_schema(WANTED)).repartition(len({row[2:] for row in wanted}), "end")
    rows = table.mapInArrow(_verify, spark_schema(VERIFIED)).toArrow().to_pylist()
    return sorted((CheckedSnapshot(**row) for row in rows), key=lambda each: (each.end, each.epoch, each.node))


def _verify(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(VERIFIED)
    known: dict[tuple[OffsetAndEpoch, bytes], CheckedSnapshot] = {}
    for batch in batches:
        rows = []
        for wanted in batch.to_pylist():
            end = OffsetAndEpoch(wanted["end"], wanted["epoch"])
            checked = _verify_one(wanted["node"], ReadOnlyDirectory(wanted["path"]), end, known)
            rows += [] if checked is None else [checked]
        yield pa.RecordBatch.from_pylist([row._asdict() for row in rows], schema=schema)


def _verify_one(
    node: str,
    directory: ReadOnlyDirectory,
    end: OffsetAndEpoch,
    known: dict[tuple[OffsetAndEpoch, bytes], CheckedSnapshot],
) -> CheckedSnapshot | None:
    """Verify one snapshot; return None if it was deleted meanwhile. `known` has the sound ones by end and hash."""
    name = snapshot_name(end)
    try:
        size, sha256 = _hash(directory, name)
        if (end, sha256) in known:
            return known[end, sha256]._replace(node=node)
        contents = read_snapshot(directory, end)
        disorder = _first_disorder(contents.records)
    except FileNotFoundError:
        return None
    except LogFormatError as e:
        position = e.position if isinstance(e, SnapshotCorrupt) else None
        return CheckedSnapshot(
            node, *end, size, sha256, 0, b"", b"", 0, "snapshot-damaged", str(e), position
        )  # fmt: skip
    meta = contents.meta
    checked = CheckedSnapshot(
        node, *end, size, sha256, meta.timestamp_ms, meta.chain, contents.digest, contents.record_count,
        None if disorder is None else "snapshot-order", disorder, None,
    )  # fmt: skip
    return known.setdefault((end, sha256), checked)


def _hash(directory: ReadOnlyDirectory, name: str) -> tuple[int, bytes]:
    file, digest, position = directory.open(name), hashlib.sha256(), 0
    try:
        while data := file.read_at(position, 4 << 20):
            digest.update(data)
            position += len(data)
    finally:
        file.close()
    return position, digest.digest()


def _first_disorder(records: Iterable[MetadataRecord]) -> str | None:
    before = b""
    for key, record in with_order_keys(records):
        if key <= before:
            return f"{record!r:.120} does not come after the record before it"
        before = key
    return None


def check_snapshots(
    snapshots: list[CheckedSnapshot],
    logs: dict[str, NodeLog],
    chains: dict[tuple[str, Offset], bytes],
    ends: dict[str, Offset],
) -> list[Finding]:
    """Check each snapshot, except its state. `chains` has the logs' chains at the snapshots' ends, `ends` how far each log
    was read.
    """
    found: list[Finding] = []
    for snapshot in snapshots:
        if snapshot.rule is not None:
            found.append(_at(snapshot, snapshot.rule, snapshot.error or ""))
            continue
        log = logs[snapshot.node]
        chain = chains.get((snapshot.node, snapshot.end))
        lowest = log.segments[0].base_offset if log.segments else None
        if chain is not None and chain != snapshot.chain:
            detail = f"the footer says {snapshot.chain.hex()[:16]}, the log {chain.hex()[:16]}"
            found.append(_at(snapshot, "snapshot-chain", detail))
        elif chain is None and lowest is not None and lowest < snapshot.end <= ends.get(snapshot.node, 0):
            found.append(_at(snapshot, "snapshot-boundary", "no batch of the log ends there"))
    found += _above(snapshots, logs, chains, ends)
    found += _starts(snapshots, logs)
    return found


def _at(snapshot: CheckedSnapshot, rule: str, detail: str) -> Finding:
    """Return a finding about a snapshot; for damage at its position."""
    return error(rule, detail, node=snapshot.node, file=snapshot.name, position=snapshot.position, offset=snapshot.end)


def _above(
    snapshots: list[CheckedSnapshot],
    logs: dict[str, NodeLog],
    chains: dict[tuple[str, Offset], bytes],
    ends: dict[str, Offset],
) -> Iterator[Finding]:
    """Find snapshots above their node's log. At its next start the node would begin with such a file. Example:
    1. Node 3 was killed between the download of a snapshot at 300 and the reset of its log, which ends at 120. The log
       of node 1 has the chain of the snapshot at 300: all is well.
    2. Somebody has put a snapshot at 900 into the directory. No log leads there, so nothing proves the state in it.
    """
    known = {(offset, chain) for (_, offset), chain in chains.items()}
    known |= {(log.start.start.offset, log.start.chain) for log in logs.values() if log.start is not None}
    for each in snapshots:
        log = logs[each.node]
        if each.rule is not None or each.end <= max(ends.get(each.node, 0), log.start_offset):
            continue
        flushed, start = read_flushed(log.directory), read_start(log.directory)  # the node may have gone on
        now = max(0 if flushed is None else flushed.end, 0 if start is None else start.start.offset)
        if each.end > now and (each.end, each.chain) not in known:
            detail = f"the log ends at {now}. At its next start the node would begin with the snapshot: find out where it is from"
            yield _at(each, "snapshot-above-log", detail)


def compare_snapshots(snapshots: Iterable[CheckedSnapshot], findings: Iterable[Finding]) -> Iterator[Finding]:
    """Find nodes that have another file for a snapshot than the others have. Files with a finding are known to be wrong, and are
    not compared.
    """
    known = {(each.node, each.file) for each in findings}
    by_name: dict[str, list[CheckedSnapshot]] = defaultdict(list)
    for snapshot in snapshots:
        if snapshot.rule is None and (snapshot.node, snapshot.name) not in known:
            by_name[snapshot.name].append(snapshot)
    for name, copies in by_name.items():
        votes = Counter(copy.sha256 for copy in copies).most_common()
        if len(votes) < 2:
            continue
        is_clear = votes[0][1] > votes[1][1]
        for copy in copies:
            if is_clear and copy.sha256 == votes[0][0]:
                continue
            others = ", ".join(other.node for other in copies if other.sha256 != copy.sha256)
            detail = f"SHA-256 {copy.sha256.hex()[:16]} is not that of {others}"
            yield error("snapshot-differs", detail, node=copy.node, file=name, offset=copy.end)


def _starts(snapshots: list[CheckedSnapshot], logs: dict[str, NodeLog]) -> Iterator[Finding]:
    for log in logs.values():
        whole = [s.end for s in snapshots if s.node == log.node and s.rule is None]
        if log.start_offset > 0 and not any(end >= log.start_offset for end in whole):
            detail = f"the log starts at {log.start_offset}, and no whole snapshot has the state below"
            yield error("no-snapshot", detail, node=log.node, offset=log.start_offset)
