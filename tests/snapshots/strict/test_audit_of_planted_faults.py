"""Each fault of a leader with a bug is found with its exact place on every node, and nothing else is reported."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metadata_log.format.codec import decode_batch
from metadata_log.format.ids import Offset
from metadata_log.image.replay import Replay, ReplayStopped
from snapshots.offline.audit.findings import RULES, Finding, Severity
from snapshots.offline.audit.run import audit
from tests.snapshots.nodes import NODES, batches_of, copies, segments
from tests.snapshots.strict.byte_faults import BYTE_FAULTS, long_log, with_lower_epoch
from tests.snapshots.strict.faults import FAULTS, Fault, Small
from tests.snapshots.strict.in_process import findings_in_process
from tests.snapshots.strict.shares import replay_shares

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEYOND_REPLAY = {"leader-fenced", "voters-changed-by-many"}
OF_THE_QUORUM = {"voters-changed-by-many", "skip-of-another-batch"}
"""Found in the control records, before the log is replayed."""
names = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


@names
def test_the_replay_in_shares_finds_the_fault_alone(tmp_path: Path, fault: Fault) -> None:
    """Without Spark: rule and offset. A node's replay stops at the same record, unless the law is beyond replay."""
    node = Small(tmp_path / "node", 1).beginning()
    offset = fault.plant(node)
    node.end()
    batches = node.journal.read(0, 1 << 30)
    for shares in (1, 4):
        found = replay_shares(batches, [batches[-1].end_offset], shares=shares)
        expected = [] if fault.rule in OF_THE_QUORUM else [(fault.rule, offset, 0)]
        assert [(each.rule, each.offset, each.followers) for each in found.misfits] == expected
        assert found.digests[batches[-1].end_offset] == (node.image.digest_bytes, node.image.record_count)
    stopped = None
    try:
        Replay().apply(batches)
    except ReplayStopped as e:
        stopped = e.offset
    assert stopped == (None if fault.rule in BEYOND_REPLAY or fault.name == "id of a removed topic" else offset)


Place = tuple[str | None, str, str | None, int | None, int | None]
"""Node, rule, file, byte, offset."""


def planted(root: Path, fault: Fault) -> tuple[list[Path], Offset, set[Place]]:
    """Return the directories of three controllers with the fault, its offset, and the places that the audit has to name."""
    node = Small(root / "node", 1).beginning()
    offset = fault.plant(node)
    node.end()
    paths = copies(node, root)
    expected: set[Place] = set()
    for node_id, path in zip(NODES, paths, strict=True):
        for segment in segments(path):
            for position, batch in batches_of(segment):
                if batch.base_offset <= offset < batch.end_offset:
                    expected.add((f"controller {node_id}", fault.rule, segment.name, position, offset))
    assert len(expected) == len(NODES)
    return paths, offset, expected


def judge(findings: Iterable[Finding], fault: Fault, offset: Offset, expected: set[Place]) -> None:
    found = [*findings]
    assert {(each.node, each.rule, each.file, each.position, each.offset) for each in found} == expected
    assert all(each.severity is Severity.ERROR for each in found)
    if fault.rule not in OF_THE_QUORUM:
        for each in found:
            assert offset in [near.offset for near in each.records], each


@names
def test_the_checks_name_the_place_on_every_node(tmp_path: Path, fault: Fault) -> None:
    """Node, file, byte and offset, and the records around it; and nothing else. The checks of the audit, without Spark."""
    paths, offset, expected = planted(tmp_path, fault)
    judge(findings_in_process(paths), fault, offset, expected)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["unknown type", "leader outside the ISR", "leader fenced", "skip of another batch"])
def test_the_audit_names_the_place_on_every_node(spark: "SparkSession", tmp_path: Path, name: str) -> None:
    """The same with the real audit, for some of the faults: in bytes, in records, beyond replay, and in control records."""
    fault = next(each for each in FAULTS if each.name == name)
    paths, offset, expected = planted(tmp_path, fault)
    judge(audit(spark, [str(path) for path in paths]).findings, fault, offset, expected)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_each_fault_of_bytes_is_found_alone(spark: "SparkSession", tmp_path: Path) -> None:
    """Three healthy copies, and one more copy for each fault: one audit finds each fault at its place, and nothing else."""
    node = long_log(tmp_path / "node")
    paths = copies(node, tmp_path / "healthy")
    expected: set[Place] = set()
    for number, fault in enumerate(BYTE_FAULTS, 11):
        (path,) = copies(node, tmp_path / "faulty", (number,))
        paths.append(path)
        expected |= {(f"controller {number}", *place) for place in fault.plant(path)}
    found = audit(spark, [str(path) for path in paths]).findings
    assert {(each.node, each.rule, each.file, each.position, each.offset) for each in found} == expected
    assert len(found) == len(BYTE_FAULTS)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_epoch_that_goes_back_on_all_nodes_is_found_alone(spark: "SparkSession", tmp_path: Path) -> None:
    paths = copies(Small(tmp_path / "node", 1).beginning().end(), tmp_path)
    expected = {
        (f"controller {each}", *place)
        for each, path in zip(NODES, paths, strict=True)
        for place in with_lower_epoch(path)
    }
    found = audit(spark, [str(path) for path in paths]).findings
    assert {(each.node, each.rule, each.file, each.position, each.offset) for each in found} == expected
    assert len(found) == len(NODES)


def test_every_law_of_replay_has_a_fault_here() -> None:
    from metadata_log.image.image_editor import Law

    assert {law.value for law in Law} <= {fault.rule for fault in FAULTS} <= set(RULES)


def test_a_healthy_small_cluster_is_one(tmp_path: Path) -> None:
    """The stage of the faults has none itself, and has the records that the faults need."""
    node = Small(tmp_path / "node", 1).beginning().end()
    batches = node.journal.read(0, 1 << 30)
    assert replay_shares(batches, [batches[-1].end_offset]).misfits == ()
    assert len({type(record) for batch in batches for record in decode_batch(batch)}) > 12
