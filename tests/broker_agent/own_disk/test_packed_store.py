"""A broker starts with the partitions of its snapshot packed, and looks at each of them later."""

from collections.abc import Callable
from pathlib import Path

from broker_agent.session.lifecycle import BrokerState
from metadata_log.format.partition_runs import PartitionRun
from metadata_log.format.records import METADATA_VERSION, FeatureLevel, Partition, SnapshotMark, Topic
from metadata_log.image.packed_chunk import PackedChunk
from snapshots.format import SnapshotMeta
from snapshots.writer import SnapshotWriter
from tests.broker_agent.controllers import VOTERS, FakeController, registration
from tests.broker_agent.test_agent import Process, controller, start

__all__ = ["controller", "start"]
Start = Callable[..., Process]
TOPIC = b"a" * 16
PARTITIONS = 40


def write_partitions(controller: FakeController) -> None:
    controller.write(FeatureLevel(METADATA_VERSION, 2), registration(7, b"7" * 16), Topic("a", TOPIC))
    controller.write(*(Partition(TOPIC, n, (7,), (7,), (), (), 7, 0, 0, 0) for n in range(PARTITIONS)))


def is_packed(process: Process) -> bool:
    topic = process.agent.image.topic("a")
    return topic is not None and all(isinstance(chunk, PackedChunk) for chunk in topic.chunks)


async def test_a_restart_serves_from_packed_partitions(
    controller: FakeController, start: Start, tmp_path: Path
) -> None:
    """Answers, the image and the snapshot of the next mark are those of a broker that never restarted."""
    write_partitions(controller)
    process = start()
    await process.reaches(BrokerState.ONLINE)
    end = controller.history.mark()
    controller.write(Topic("b", b"b" * 16))
    await controller.pulse.until(lambda: bool(process.log.said("snapshot written")))
    await process.stop()

    second = start(seed=2)
    await second.reaches(BrokerState.ONLINE)
    assert is_packed(second)
    assert second.agent.image == controller.history.image
    infos = [*second.agent.cache.current.partition_infos("a", 0, "PLAINTEXT")]
    assert [info.partition for info in infos] == [*range(PARTITIONS)]
    assert infos[7] == second.agent.cache.current.partition_info("a", 7, "PLAINTEXT")
    later = controller.history.mark()
    controller.write(Topic("c", b"c" * 16))
    await controller.pulse.until(lambda: len(second.log.said("snapshot written")) > 0)
    name = f"{later.offset:020d}-{later.epoch:010d}.checkpoint"
    assert end != later
    ours = (tmp_path / "broker" / "@metadata" / name).read_bytes()
    assert ours == controller.history.snapshot_bytes(later)


async def test_a_packed_partition_that_cannot_be_drops_the_store(controller: FakeController, start: Start) -> None:
    """A controller with a bug has written a leader outside of the ISR. The bytes and sums are whole, so the broker loads the
    snapshot. Some time later it looks at that partition, drops the store, and fetches the snapshot that is right by now."""
    write_partitions(controller)
    history = controller.history
    history.write(SnapshotMark("test"))
    end, image = history.log.shape.end_and_epoch, history.image
    meta = SnapshotMeta(end, history.image.provenance.timestamp_ms, history.log.shape.chain, VOTERS, 1)
    pieces = [
        piece._replace(states=[(*state[:4], 9, *state[5:]) for state in piece.states])
        if isinstance(piece, PartitionRun)
        else piece
        for piece in history.image.canonical_pieces()
    ]
    SnapshotWriter(history.directory, meta, pieces, history.image.digest_bytes).run()
    history.snapshot = end
    process = start()
    await controller.pulse.until(lambda: process.agent.stores_dropped > 0)
    assert "topic 'a': partition 0: leader 9 is not in isr" in str(process.log.said("store dropped")[0]["reason"])

    history.snapshots.drop([end])
    history.snapshots.write(meta, image)
    await controller.pulse.until(lambda: process.agent.image == history.image and is_packed(process))
    await process.reaches(BrokerState.ONLINE)
    info = process.agent.cache.current.partition_info("a", 0, "PLAINTEXT")
    assert info is not None and info.leader_id == 7
