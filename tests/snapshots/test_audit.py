"""The audit finds every seeded damage with node, file and offset, and finds nothing in healthy logs."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metadata_log.disk.files import RealDirectory
from metadata_log.format.batch import Batch, encode
from metadata_log.format.codec import decode_batch, encode_records
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import (
    BeginTransaction,
    BrokerRegistrationChange,
    ClientSession,
    EndClientSession,
    Entity,
    LeaderChange,
    Owner,
    Topic,
)
from metadata_log.store.log import Log
from snapshots.offline.audit.findings import Severity
from snapshots.offline.audit.result import AuditResult
from snapshots.offline.audit.run import audit
from snapshots.offline.inputs import find_log
from snapshots.reader import read_snapshot
from snapshots.writer import write_records
from tests.metadata_log.image.histories import broker
from tests.snapshots.nodes import Node, batches_of, copies, edit, flip, segments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One history; tests work on copies."""
    root = tmp_path_factory.mktemp("healthy")
    Node(root / "node", 8).live(30)
    return root / "node"


@pytest.fixture
def quorum(healthy: Path, tmp_path: Path) -> list[Path]:
    """Three nodes with that history."""
    node = Node.__new__(Node)
    node.path = healthy
    return copies(node, tmp_path)


def run(spark: "SparkSession", paths: list[Path]) -> AuditResult:
    return audit(spark, [str(path) for path in paths])


def resealed(batch: Batch, *, previous_chain: bytes, **changes: object) -> Batch:
    """Seal the batch again, with correct CRC and chain."""
    fields: dict[str, object] = {
        "base_offset": batch.base_offset, "epoch": batch.epoch, "record_count": batch.record_count,
        "first_timestamp_ms": batch.first_timestamp_ms, "last_timestamp_ms": batch.last_timestamp_ms,
        "is_control": batch.is_control,
    }  # fmt: skip
    payload = changes.pop("payload", batch.payload)
    return encode(payload, previous_chain=previous_chain, **{**fields, **changes})  # type: ignore[arg-type]


def test_healthy_logs_are_clean(spark: "SparkSession", quorum: list[Path]) -> None:
    """The audit finds nothing, and the fold gives the state of every snapshot."""
    result = run(spark, quorum)
    assert result.findings == ()
    assert result.is_clean
    assert result.fold is not None
    assert {s.end for s in result.snapshots} <= set(result.fold.digests)
    assert len(result.snapshots) == 6
    assert [leader.leader_id for leader in result.leaders] == [1, 2, 1]
    assert result.activity is not None
    assert result.activity.total("type:Topic") > 0


def test_a_log_that_ends_inside_of_a_transaction_is_healthy(spark: "SparkSession", tmp_path: Path) -> None:
    """Its leader may have died there. The records of the open transaction are part of no image."""
    node = Node(tmp_path / "node", 14).live(10)
    node.write_out()
    node.log_records(BeginTransaction("t"))
    node.log_records(Topic("half", b"h" * 16))
    node.journal.flush()
    result = run(spark, copies(node, tmp_path))
    assert result.findings == ()
    assert result.fold is not None
    assert result.fold.digests[max(result.fold.digests)][0] == node.image.digest_bytes


def test_a_lagging_node_and_one_with_an_uncommitted_tail_are_healthy(spark: "SparkSession", tmp_path: Path) -> None:
    """A follower that lags, and a deposed leader with a tail of an older epoch, are normal in a running cluster."""
    node = Node(tmp_path / "node", 12).live(10)
    behind, ahead, deposed = copies(node, tmp_path)
    log = Log.open(RealDirectory(ahead / "@metadata"))
    log.append([LeaderChange(2, (1, 2, 3), (2, 3))], node.epoch + 5, node.wall_ms + 1)
    log.flush()
    log.close()
    log = Log.open(RealDirectory(deposed / "@metadata"))
    log.append([Topic("never-committed", b"n" * 16)], node.epoch, node.wall_ms + 1)
    log.flush()
    log.close()
    result = run(spark, [behind, ahead, deposed])
    assert {finding.rule for finding in result.findings} == {"divergent-tail"}
    assert result.is_clean
    (tail,) = result.findings
    assert (tail.node, tail.severity) == ("controller 3", Severity.INFO)


def test_what_is_above_the_durable_end_does_not_count(spark: "SparkSession", quorum: list[Path]) -> None:
    """The log is live: behind the noted end is half a batch, written and not flushed."""
    last = segments(quorum[0])[-1]
    end = batches_of(last)[-1]
    position = end[0] + len(end[1].data)

    def tear(data: bytearray) -> None:
        data[position : position + 60] = end[1].data[:60]

    edit(last, tear)
    assert run(spark, quorum).findings == ()


def test_flipped_bits_are_found_where_they_are(spark: "SparkSession", quorum: list[Path]) -> None:
    """One bit in a batch, one in a segment's header and one in a snapshot, on three nodes: three findings, each with
    its place.
    """
    first, second = segments(quorum[0])[0], segments(quorum[1])[1]
    position, batch = batches_of(first)[2]
    flip(first, position + 81, 3)
    flip(second, 20)
    snapshot = max((quorum[2] / "@metadata").glob("*.checkpoint"))
    flip(snapshot, 500)
    result = run(spark, quorum)
    found = {(f.node, f.rule): f for f in result.findings}
    assert set(found) == {
        ("controller 1", "damaged-batch"), ("controller 2", "damaged-batch"), ("controller 3", "snapshot-damaged"),
    }  # fmt: skip
    damaged = found["controller 1", "damaged-batch"]
    assert (damaged.file, damaged.position, damaged.offset) == (first.name, position, batch.base_offset)
    header = found["controller 2", "damaged-batch"]
    assert (header.file, header.position) == (second.name, 0)
    assert found["controller 3", "snapshot-damaged"].file == snapshot.name


def test_damage_of_the_last_batch_is_one_finding(spark: "SparkSession", quorum: list[Path]) -> None:
    """The log has no intact batch behind the damage, and yet the log is not too short: the damaged bytes are there."""
    last = segments(quorum[1])[-1]
    position, batch = batches_of(last)[-1]
    flip(last, position + 81)
    (finding,) = run(spark, quorum).findings
    assert (finding.rule, finding.node, finding.offset) == ("damaged-batch", "controller 2", batch.base_offset)


def test_a_cut_log_is_shorter_than_what_was_durable(spark: "SparkSession", quorum: list[Path]) -> None:
    last = segments(quorum[1])[-1]
    position, batch = batches_of(last)[-1]
    edit(last, lambda data: data.__delitem__(slice(position, None)))
    (finding,) = run(spark, quorum).findings
    assert (finding.rule, finding.node, finding.offset) == ("log-too-short", "controller 2", batch.base_offset)


def rewrite(path: Path, index: int, **changes: object) -> Batch:
    """Forge batch `index` of the first segment, with correct CRCs and chains up to the segment's end. Return the old
    bytes.
    """
    segment = segments(path)[0]
    found = batches_of(segment)
    original = found[index][1]
    chain = found[index - 1][1].chain
    data = b""
    for at, (_, batch) in enumerate(found[index:]):
        forged = resealed(batch, previous_chain=chain, **(changes if at == 0 else {}))
        chain = forged.chain
        data += forged.data
    edit(segment, lambda content: content.__setitem__(slice(found[index][0], None), data))
    return original


def test_a_rewritten_history_is_found_and_the_odd_one_out_named(spark: "SparkSession", quorum: list[Path]) -> None:
    """One record is forged on one node, with correct CRCs and chains behind it. The other nodes have the other
    history.
    """
    found = batches_of(segments(quorum[1])[0])
    index, batch = next((i, b) for i, (_, b) in enumerate(found) if i > 2 and not b.is_control)
    records = decode_batch(batch)
    forged = encode_records([*records[:-1], Topic("forged", b"f" * 16)])  # type: ignore[list-item]
    rewrite(quorum[1], index, payload=forged)
    result = run(spark, quorum)
    rules = {(f.rule, f.node) for f in result.findings}
    assert ("history-differs", "controller 2") in rules
    assert not any(node in ("controller 1", "controller 3") for _, node in rules)
    differs = next(f for f in result.findings if f.rule == "history-differs")
    assert (differs.offset, differs.file) == (batch.base_offset, segments(quorum[1])[0].name)
    assert "most nodes have the other chain" in differs.detail


def test_a_doctored_snapshot_is_found_by_the_fold(spark: "SparkSession", quorum: list[Path]) -> None:
    """One record is removed, and digest and chains of the file are corrected. Only the fold of the log shows the
    forgery.
    """
    metadata = RealDirectory(quorum[2] / "@metadata")
    end = run(spark, quorum[:1]).snapshots[-1]
    name = end.name
    contents = read_snapshot(metadata, OffsetAndEpoch(end.end, end.epoch))
    records = list(contents.records)
    metadata.remove(name)
    write_records(metadata, contents.meta, records[:-1])
    found = {(f.rule, f.node, f.file, f.offset) for f in run(spark, quorum).findings}
    assert found == {("snapshot-state", "controller 3", name, end.end)}


def test_an_ephemeral_entity_that_outlives_its_session_is_found(spark: "SparkSession", tmp_path: Path) -> None:
    """A leader with a bug ends two sessions, and removes nothing. Both records are refused, and the sessions stay."""
    node = Node(tmp_path / "node", 15).live(10)
    node.write_out()
    at = node.journal.shape.end
    client, online = ClientSession(b"z" * 16, "worker", "anonymous", 9_000), broker(9)._replace(fenced=False)
    for record in (client, online, Entity("lock", "a", b"", Owner(b"z" * 16, None, at))):
        node.append(record)
    node.append(Entity("lock", "b", b"", Owner(None, 9, at + 1)))
    node.write_out()
    node.journal.flush()
    assert run(spark, [node.path]).findings == ()
    node.log_records(EndClientSession(b"z" * 16, at, "expired"), BrokerRegistrationChange(9, at + 1, fenced=True))
    node.journal.flush()
    found = run(spark, [node.path]).findings
    assert {(each.rule, each.offset, each.detail) for each in found} == {
        ("orphaned-entity", at + 4, f"session enp6enp6enp6enp6enp6eg of epoch {at} ends and owns 1 entities"),
        ("orphaned-entity", at + 5, f"broker 9 of epoch {at + 1} ends and owns 1 entities"),
    }


def forged_above(path: Path) -> int:
    """Put a whole snapshot into a directory, far above the log. Return its end."""
    metadata = RealDirectory(path / "@metadata")
    last = find_log(str(path)).snapshots[-1]
    contents, end = read_snapshot(metadata, last), OffsetAndEpoch(last.offset + 1_000_000, last.epoch)
    write_records(metadata, contents.meta._replace(end=end, chain=b"x" * 32), [*contents.records][:-1])
    return end.offset


def test_a_snapshot_above_the_log_that_no_log_leads_to_is_found(spark: "SparkSession", quorum: list[Path]) -> None:
    """The node would begin with it at its next start. A directory that has lost its note may have lost the end of its log."""
    end = forged_above(quorum[1])
    (quorum[2] / "@metadata" / "flushed").unlink()
    result = run(spark, quorum)
    assert {(each.rule, each.node) for each in result.findings} == {
        ("snapshot-above-log", "controller 2"), ("note-missing", "controller 3"),
    }  # fmt: skip
    assert end in {each.offset for each in result.findings}
    assert not result.is_clean


def test_a_download_that_was_cut_short_is_healthy(spark: "SparkSession", tmp_path: Path) -> None:
    """Controller 3 was killed behind the download of a snapshot and before the reset of its log: others' logs lead there."""
    node = Node(tmp_path / "node", 8).live(10)
    node.journal.flush()
    (behind,) = copies(node, tmp_path / "behind", (3,))
    node.live(10)
    node.journal.flush()
    paths = copies(node, tmp_path, (1, 2))
    newest = max((paths[0] / "@metadata").glob("*.checkpoint"))
    assert newest.name not in {each.name for each in (behind / "@metadata").iterdir()}
    (behind / "@metadata" / newest.name).write_bytes(newest.read_bytes())
    result = run(spark, [*paths, behind])
    assert result.findings == ()
