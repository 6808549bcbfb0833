"""No false alarms: the audit of disks that simulated clusters leave after every kind of crash, and of logs during
writes.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metadata_log.format.codec import decode_batch
from metadata_log.format.records import BeginTransaction, ClearElr, PartitionChange
from snapshots.offline.audit.run import audit
from snapshots.offline.compaction import compact
from tests.sim.cluster import Cluster
from tests.snapshots.healthy_logs.rounds import being_written, errors, export
from tests.snapshots.nodes import Node, copies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("seed", [8, 24])
def test_what_simulated_clusters_leave_is_clean(spark: "SparkSession", tmp_path: Path, seed: int) -> None:
    """After power cuts, truncations, installed snapshots and retention the audit finds nothing, and Spark compacts each
    log to that controller's own file.
    """
    cluster = Cluster(seed)
    cluster.run(1_500)
    paths = [export(c.disk, tmp_path / c.name) for c in cluster.controllers]
    result = audit(spark, [str(path) for path in paths])
    assert errors(result) == []
    assert result.fold is not None
    assert max(result.fold.digests.values())
    if not result.snapshots:
        return
    newest = max(s.end for s in result.snapshots)
    holder = next(s.node for s in result.snapshots if s.end == newest)
    log = next(each for each in result.logs if each.node == holder)
    if log.start_offset < newest:
        assert compact(spark, log.path, newest, str(tmp_path / "out")).same_as_source is True


def test_fold_audit_and_controllers_agree_about_cleared_elrs(spark: "SparkSession", tmp_path: Path) -> None:
    """`min.insync.replicas` changes, in batches and in transactions, while partitions have eligible leaders. The audit is clean,
    and the fold by entity, which knows no levels, has the digest of the controllers' image. No controller writes `ClearElr`.
    """
    cluster = Cluster(92)
    cluster.run(1_500)
    log = cluster.controllers[0].log
    records = [each for batch in log.read(0, 1 << 20) for each in decode_batch(batch)]
    assert any(isinstance(each, PartitionChange) and each.elr == () for each in records)
    assert any(isinstance(each, BeginTransaction) and each.name == "AlterConfigs" for each in records)
    assert not any(isinstance(each, ClearElr) for each in records)

    path = export(cluster.controllers[0].disk, tmp_path / "c1")
    assert errors(audit(spark, [str(path)])) == []
    end = log.shape.flushed_end
    digest = cluster.laws.history.digest_at(end)
    assert (
        digest is not None and compact(spark, str(path), end, str(tmp_path / "out"), uncommitted=True).digest == digest
    )


def test_a_log_that_is_written_to_meanwhile_is_clean(spark: "SparkSession", tmp_path: Path) -> None:
    """One thread appends, flushes, cuts its unflushed tail and seals segments while the audit reads. The audit finds
    nothing.
    """
    node = Node(tmp_path / "node", 61).live(10)
    one, other = copies(node, tmp_path, (1, 2))
    with being_written(one, node):
        result = audit(spark, [str(one), str(other)])
    assert errors(result) == []
    assert result.nodes["controller 1"].end_offset > result.nodes["controller 2"].end_offset
