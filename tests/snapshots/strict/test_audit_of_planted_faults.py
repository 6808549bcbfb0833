"""Each fault of a leader with a bug is found with its exact place on every node, and nothing else is reported."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metadata_log.format.codec import decode_batch
from metadata_log.image.replay import Replay, ReplayStopped
from snapshots.offline.audit.findings import RULES, Severity
from snapshots.offline.audit.run import audit
from tests.snapshots.nodes import NODES, batches_of, copies, segments
from tests.snapshots.strict.faults import FAULTS, Fault, Small
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


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@names
def test_the_audit_names_the_place_on_every_node(spark: "SparkSession", tmp_path: Path, fault: Fault) -> None:
    """Node, file, byte and offset, and the records around it."""
    node = Small(tmp_path / "node", 1).beginning()
    offset = fault.plant(node)
    node.end()
    paths = copies(node, tmp_path)
    result = audit(spark, [str(path) for path in paths])
    expected = set()
    for node_id, path in zip(NODES, paths, strict=True):
        for segment in segments(path):
            for position, batch in batches_of(segment):
                if batch.base_offset <= offset < batch.end_offset:
                    expected.add((f"controller {node_id}", fault.rule, segment.name, position, offset))
    assert len(expected) == len(NODES)
    assert {(each.node, each.rule, each.file, each.position, each.offset) for each in result.findings} == expected
    assert all(each.severity is Severity.ERROR for each in result.findings)
    if fault.rule not in OF_THE_QUORUM:
        for each in result.findings:
            assert offset in [near.offset for near in each.records], each


def test_every_law_of_replay_has_a_fault_here() -> None:
    from metadata_log.image.image_editor import Law

    assert {law.value for law in Law} <= {fault.rule for fault in FAULTS} <= set(RULES)


def test_a_healthy_small_cluster_is_one(tmp_path: Path) -> None:
    """The stage of the faults has none itself, and has the records that the faults need."""
    node = Small(tmp_path / "node", 1).beginning().end()
    batches = node.journal.read(0, 1 << 30)
    assert replay_shares(batches, [batches[-1].end_offset]).misfits == ()
    assert len({type(record) for batch in batches for record in decode_batch(batch)}) > 12
