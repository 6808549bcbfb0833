"""Spark drops what an operator has had skipped: the compacted file is the controllers' file, and the audit says so."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metadata_log.format.records import BeginTransaction, EndTransaction, PartitionChange, SkippedBatch, Topic
from metadata_log.image.skips import dropped_range, open_transaction
from snapshots.offline.audit.findings import Severity
from snapshots.offline.audit.run import audit
from snapshots.offline.compaction import CannotCompact, compact
from tests.snapshots.nodes import Node, copies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def skip(node: Node, offset: int) -> None:
    """Skips the batch at `offset`. The node's image has no effect of the batch."""
    before, later = node.journal.read(0, 1 << 30, offset), node.journal.read(offset, 1 << 30)
    batch = later[0]
    dropped = dropped_range(batch, open_transaction(before), later[1:])
    node.log_records(SkippedBatch(batch.base_offset, batch.epoch, batch.chain, *dropped))


def test_skipped_batches_are_dropped_and_reported(spark: "SparkSession", tmp_path: Path) -> None:
    """A record that does not fit, one of a type that nobody knows, and one in a transaction with an end."""
    node = Node(tmp_path / "node", 21).live(5)
    misfit = node.journal.shape.end
    node.log_records(Topic("stray", b"s" * 16), PartitionChange(b"nobody".ljust(16), 0, leader=1))
    skip(node, misfit)
    skip(node, node.log_unknown_record())
    node.log_records(BeginTransaction("t"), Topic("half", b"h" * 16))
    inside = node.journal.shape.end
    node.log_records(Topic("another half", b"i" * 16), EndTransaction())
    skip(node, inside)
    node.work(5)
    node.elect(3)
    node.mark()

    compacted = compact(spark, str(node.path), None, str(tmp_path / "out"))
    assert (compacted.end, compacted.same_as_source) == (node.marks[-1], True)
    result = audit(spark, [str(path) for path in copies(node, tmp_path)])
    assert result.count(Severity.ERROR) == 0, result.findings
    told = [finding for finding in result.findings if finding.rule == "batch-skipped"]
    assert [finding.severity for finding in told] == [Severity.INFO] * 3
    assert f"the batch at offset {misfit} " in told[0].detail


def test_an_offset_between_a_batch_and_its_skip_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    """At such an offset some nodes have the effect of the batch. The offset in front of the batch is sound, and so is the offset
    behind the skip.
    """
    node = Node(tmp_path / "node", 22).live(5)
    misfit = node.journal.shape.end
    node.log_records(Topic("stray", b"s" * 16), PartitionChange(b"nobody".ljust(16), 0, leader=1))
    behind = node.journal.shape.end
    node.work(1)
    at = node.journal.shape.end
    skip(node, misfit)
    node.journal.flush()

    for offset in (behind, at):
        told = f"offset {offset} lies between .* offset {misfit}, .* choose an offset up to {misfit}, or above {at}"
        with pytest.raises(CannotCompact, match=told):
            compact(spark, str(node.path), offset, str(tmp_path / "out"), uncommitted=True)
    for offset in (misfit, at + 1):
        assert compact(spark, str(node.path), offset, str(tmp_path / "out"), uncommitted=True).end.offset == offset
