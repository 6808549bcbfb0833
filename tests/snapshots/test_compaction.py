"""Spark compacts a log to the same file that the controllers write, or says why not."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metadata_log.disk.files import RealDirectory
from metadata_log.format.ids import EPOCH_MAX
from metadata_log.format.records import ClearElr, Partition, PartitionChange, Topic
from snapshots.format import snapshot_name
from snapshots.offline.audit.findings import Severity
from snapshots.offline.audit.run import audit
from snapshots.offline.compaction import CannotCompact, compact
from snapshots.offline.dump import record_lines
from snapshots.offline.kafka.dump import Range, Tally
from tests.snapshots.nodes import Node, copies, flip, segments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("seed", [2, 3])
def test_the_compacted_file_is_the_controllers_file(spark: "SparkSession", tmp_path: Path, seed: int) -> None:
    """Byte for byte, at the last mark and at any other one. A second run replaces the first result and verifies its own
    bytes.
    """
    node = Node(tmp_path / "node", seed).live()
    assert node.image.entities and node.image.owned
    for offset, end in ((None, node.marks[-1]), (node.marks[0].offset, node.marks[0])):
        result = compact(spark, str(node.path), offset, str(tmp_path / "out"))
        assert result.end == end
        assert result.same_as_source is True
        assert Path(result.path).read_bytes() == (node.path / "@metadata" / snapshot_name(end)).read_bytes()


def test_an_epoch_may_have_sixty_four_bits(spark: "SparkSession", tmp_path: Path) -> None:
    """Spark's long holds every epoch: the log is compacted to the controllers' bytes, audited clean, and dumped."""
    node = Node(tmp_path / "node", 6)
    node.epoch = EPOCH_MAX - 10
    node.live(10)
    assert node.epoch > EPOCH_MAX - 10
    assert compact(spark, str(node.path), None, str(tmp_path / "out")).same_as_source is True
    result = audit(spark, [str(node.path)])
    assert result.count(Severity.ERROR) == 0, result.findings
    assert [led.epoch for led in result.leaders][-1] == node.epoch
    assert f'"epoch": {node.epoch},' in list(record_lines(str(node.path), Range(), False, True, Tally()))[-1]


def test_a_log_that_stands_on_a_snapshot_is_folded_onto_it(spark: "SparkSession", tmp_path: Path) -> None:
    """The log below the first snapshot is deleted. The fold begins with the snapshot's records and gives the same
    bytes.
    """
    node = Node(tmp_path / "node", 5).live()
    assert node.image.entities and node.image.owned and node.image.client_sessions
    node.journal.drop_prefix(node.marks[0])
    assert node.journal.shape.start == node.marks[0]
    result = compact(spark, str(node.path), None, str(tmp_path / "out"))
    assert result.same_as_source is True


def test_a_clearing_below_the_snapshot_clears_nothing_above_it(spark: "SparkSession", tmp_path: Path) -> None:
    """The segment still has the record that cleared every topic. The log begins above it, with a snapshot that has an ELR."""
    node = Node(tmp_path / "node", 1)
    node.elect(1)
    node.run(5)
    topic_id = node.fresh_id()
    for record in (
        Topic("cleared", topic_id),
        Partition(topic_id, 0, (0, 1), (0, 1), (), (), 0, 0, 0, 0),
        ClearElr(None, None),
        PartitionChange(topic_id, 0, isr=(0,), elr=(1,)),
    ):
        node.append(record)
    node.mark()
    node.append(PartitionChange(topic_id, 0, leader=0))
    node.mark()
    node.journal.drop_prefix(node.marks[0])
    assert compact(spark, str(node.path), None, str(tmp_path / "out")).same_as_source is True


def test_any_batch_boundary_will_do_and_a_place_inside_one_will_not(spark: "SparkSession", tmp_path: Path) -> None:
    node = Node(tmp_path / "node", 3).live(10)
    image = node.image
    result = compact(spark, str(node.path), node.journal.shape.end, str(tmp_path / "out"), uncommitted=True)
    assert (result.digest, result.record_count) == (image.digest_bytes, image.record_count)
    assert result.same_as_source is None
    inside = next(b for b in node.journal.read(0, 1 << 20) if b.record_count > 1).base_offset + 1
    with pytest.raises(CannotCompact, match="not the end of a batch"):
        compact(spark, str(node.path), inside, str(tmp_path / "out"), uncommitted=True)
    with pytest.raises(CannotCompact, match="durable"):
        compact(spark, str(node.path), node.journal.shape.end + 1, str(tmp_path / "out"))
    (tmp_path / "busy").mkdir()
    busy = RealDirectory(tmp_path / "busy")
    busy.lock()
    with pytest.raises(CannotCompact, match="another job writes into"):
        compact(spark, str(node.path), None, str(tmp_path / "busy"))
    busy.unlock()


def test_no_directory_of_a_node_is_written(spark: "SparkSession", tmp_path: Path) -> None:
    """By any name. A file of an earlier run is replaced, and here it would be the node's own snapshot."""
    node = Node(tmp_path / "node", 3).live(10)
    first, second, _ = copies(node, tmp_path)
    for path in (first / "@metadata", f"file://{first}/@metadata", second / "@metadata", first / "new"):
        with pytest.raises(CannotCompact, match=r"choose another directory\. Nothing was written"):
            compact(spark, str(first), None, str(path), beside=[str(second)])


def test_what_may_not_be_committed_is_not_compacted(spark: "SparkSession", tmp_path: Path) -> None:
    """A controller's log alone proves what its snapshots do. With the log of another voter, two of three hold the records."""
    node = Node(tmp_path / "node", 7).live(10)
    end = node.journal.shape.end
    first, second, _ = copies(node, tmp_path)
    told = rf"offset {end} may not be committed: .* up to {node.marks[-1].offset} only \(controller 1 has written .*--uncommitted"
    with pytest.raises(CannotCompact, match=told):
        compact(spark, str(first), end, str(tmp_path / "out"))
    proven = compact(spark, str(first), end, str(tmp_path / "out"), beside=[str(second)])
    assert proven.digest == node.image.digest_bytes
    for checkpoint in (first / "@metadata").glob("*.checkpoint"):
        if not checkpoint.name.startswith("0" * 20):
            checkpoint.unlink()
    with pytest.raises(CannotCompact, match=r"each snapshot mark, the first one at \d+, may not be committed"):
        compact(spark, str(first), None, str(tmp_path / "out"))


def test_damage_is_refused_with_its_place(spark: "SparkSession", tmp_path: Path) -> None:
    node = Node(tmp_path / "node", 4).live(20)
    flip(segments(node.path)[0], 300)
    with pytest.raises(CannotCompact, match=r"00000000000000000000\.log, position \d+: CRC"):
        compact(spark, str(node.path), None, str(tmp_path / "out"))
