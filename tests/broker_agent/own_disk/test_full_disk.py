"""A broker whose disk is full: it follows and serves from memory, says so, and goes on by itself when there is room."""

from collections.abc import Callable
from pathlib import Path

import pytest
from quorum_rpc.v1 import client_pb2

from broker_agent.own_disk.broker_log import BrokerLog
from broker_agent.own_disk.process_notes import INCARNATIONS_NAME, read_incarnations
from broker_agent.session.lifecycle import BrokerState
from broker_agent.store import ROOM_BYTES, BrokerStore
from broker_agent.wire import ClusterMetadata
from metadata_log.disk.failures import FlushFailed
from metadata_log.format.batch import decode_all
from metadata_log.format.errors import LogFormatError
from metadata_log.format.records import Endpoint, Topic, Voter, Voters
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from tests.broker_agent.controllers import FakeController, History
from tests.broker_agent.test_agent import Process, controller, start
from tests.broker_agent.test_store import follow, topic
from tests.sim.world.disk import MemoryDirectory

__all__ = ["controller", "start"]
Start = Callable[..., Process]
LARGE = 70_000
"""More than the room that the file of a log has in advance."""
PLENTY = 64 << 20
MOVED = Voters((Voter(2, b"e" * 16, (Endpoint("CONTROLLER", "elsewhere", 9093),)),))


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "controllers")


def large_topic(number: int) -> Topic:
    return Topic(f"{number:04}" + "x" * LARGE, (number + 1).to_bytes(16, "big"))


def fill(disk: MemoryDirectory) -> None:
    """Leaves no room."""
    leave(disk, 0)


def leave(disk: MemoryDirectory, room_bytes: int) -> None:
    """Leaves this much room."""
    disk.limit_space(PLENTY)
    disk.limit_space(PLENTY - disk.free_bytes() + room_bytes)


def store_on(disk: MemoryDirectory) -> BrokerStore:
    store = BrokerStore(disk)
    recovered = store.recover()
    assert recovered.dropped is None
    return store


# --- the store ---------------------------------------------------------------------------------------------------------


def test_a_full_disk_keeps_nothing_from_the_image(history: History) -> None:
    """Position, chain and image follow the controllers. A restart meanwhile begins where the disk ends; with room again
    the disk has everything, as if it had never been full."""
    disk = MemoryDirectory("/broker")
    store = store_on(disk)
    history.write(topic("a"))
    follow(store, history)
    on_disk = store.position
    fill(disk)
    for number in range(5):
        history.write(large_topic(number))
    follow(store, history)
    assert store.image == history.image and store.why_full
    assert store.position.chain == history.chain_at(history.end)
    store.look_for_room()
    assert store.why_full, "there is no room"
    assert on_disk.offset <= store_on(disk.kill()).position.offset < history.end

    disk.limit_space(PLENTY)
    store.look_for_room()
    assert not store.why_full
    history.write(topic("b"))
    follow(store, history)
    store.close()
    again = store_on(disk.kill())
    assert again.position.offset == history.end and again.image == history.image


def test_a_little_room_is_not_enough(history: History) -> None:
    """Counter-example: with room for one batch the problem would end and begin with each batch."""
    disk = MemoryDirectory("/broker")
    store = store_on(disk)
    history.write(topic("a"))
    follow(store, history)
    fill(disk)
    history.write(large_topic(1))
    follow(store, history)
    leave(disk, ROOM_BYTES - 1)
    store.look_for_room()
    assert store.why_full
    leave(disk, ROOM_BYTES)
    store.look_for_room()
    assert not store.why_full


def test_voters_that_only_the_memory_has_are_known(history: History) -> None:
    """A broker that lost all configured addresses finds the controllers by the voter set in its log, also by the newest."""
    disk = MemoryDirectory("/broker")
    store = store_on(disk)
    history.write(topic("a"))
    follow(store, history)
    fill(disk)
    history.write(large_topic(1))
    history.write(MOVED)
    follow(store, history)
    assert store.voters == MOVED


def test_marks_on_a_full_disk_are_left_out_and_the_next_one_counts(history: History) -> None:
    disk = MemoryDirectory("/broker")
    store = store_on(disk)
    history.write(topic("a"))
    follow(store, history)
    fill(disk)
    history.write(large_topic(1))
    history.mark()
    follow(store, history)
    assert store.take_snapshot_job() is None
    disk.limit_space(PLENTY)
    store.look_for_room()
    end = history.mark()
    follow(store, history)
    job = store.take_snapshot_job()
    assert job is not None and job.meta.end == end
    job.run()
    store.snapshot_written(job)
    assert store_on(disk.kill()).image == history.image


def test_the_memory_for_a_full_disk_is_bounded(history: History) -> None:
    """What was dropped is in no file. The log goes on from its end, and the next process fetches everything."""
    disk = MemoryDirectory("/broker")
    log = BrokerLog(Log.open(disk, chain=history.chain_at(0), config=LogConfig(archive=False)), 3 * LARGE)
    log.append(tuple(decode_all(history.batches(0))))
    fill(disk)
    start = history.end
    history.write(MOVED)
    for number in range(6):
        history.write(large_topic(number))
    voters = [*log.control_records(), (start, MOVED)]
    log.append(tuple(decode_all(history.batches(start, 1 << 24))))
    assert (log.end, log.chain) == (history.end, history.chain_at(history.end))
    assert not log.write_tail()
    disk.limit_space(PLENTY)
    assert log.write_tail() and not log.why_full
    assert log.disk.shape.start.offset == log.end == history.end
    later = history.write(topic("b"))
    log.append(tuple(decode_all(history.batches(later))))
    assert log.disk.shape.end == history.end
    assert [*log.control_records()] == voters, "a way back to the controllers"


def test_batches_in_memory_are_held_to_the_same_rules(history: History) -> None:
    """A batch that does not continue the log is refused with or without room."""
    disk = MemoryDirectory("/broker")
    log = BrokerLog(Log.open(disk, chain=history.chain_at(0), config=LogConfig(archive=False)))
    log.append(tuple(decode_all(history.batches(0))))
    fill(disk)
    first, second = history.write(large_topic(1)), history.write(large_topic(2))
    log.append(tuple(decode_all(history.batches(first, 1))))
    end = log.end
    history.write(large_topic(3))
    with pytest.raises(LogFormatError, match="does not continue the log"):
        log.append(tuple(decode_all(history.batches(second + 1, 1))))
    assert log.end == end


def test_the_note_about_a_process_waits_for_room(history: History) -> None:
    """A broker starts on a full disk. Until the note is there, a later process cannot name this one as its predecessor."""
    disk = MemoryDirectory("/broker")
    store = store_on(disk)
    fill(disk)
    store.note_attempt(b"1" * 16)
    store.note_registered(b"1" * 16)
    assert store.why_full and not disk.exists(INCARNATIONS_NAME)
    disk.limit_space(PLENTY)
    store.look_for_room()
    assert not store.why_full and read_incarnations(disk) == (b"1" * 16,)


# --- the broker --------------------------------------------------------------------------------------------------------


async def status_of(process: Process) -> client_pb2.BrokerStatusResponse:
    service = ClusterMetadata(process.agent, "PLAINTEXT")
    status: client_pb2.BrokerStatusResponse = await service.BrokerStatus(client_pb2.BrokerStatusRequest(), None)
    return status


async def test_a_broker_with_a_full_disk_serves_and_says_so(controller: FakeController, start: Start) -> None:
    """Its lease goes on, clients get the newest topics, and everybody who asks learns what to do. With room the problem ends."""
    disk = MemoryDirectory("/broker")
    process = start(disk=disk)
    await process.reaches(BrokerState.ONLINE)
    fill(disk)
    for number in range(3):
        offset = controller.write(large_topic(number))
        await process.applies(offset + 1)
    assert process.agent.may_serve() and process.agent.image == controller.history.image
    (problem,) = (await status_of(process)).problems
    assert problem.code == "disk_full" and "Make room, at least 4 MiB" in problem.text
    assert [each.text for each in process.agent.problems] == [problem.text]
    assert [fields["code"] for fields in process.log.said("problem")] == ["disk_full"]

    asked = len(controller.fetches)
    await controller.pulse.until(lambda: len(controller.fetches) > asked + 2)
    assert process.agent.state is BrokerState.ONLINE and not process.agent.lease_lapsed

    disk.limit_space(PLENTY)
    await controller.pulse.until(lambda: bool(process.log.said("problem solved")))
    assert process.agent.problems == () and not (await status_of(process)).problems
    offset = controller.write(Topic("after", b"a" * 16))
    await process.applies(offset + 1)
    await process.stop()
    again = store_on(disk.kill())
    assert again.image == process.agent.image and again.image.topic("after") is not None


async def test_a_snapshot_that_does_not_fit_is_fetched_again(controller: FakeController, start: Start) -> None:
    """A new broker on a disk without room: it waits, keeps asking, and loads the snapshot when there is room."""
    controller.write(*(large_topic(number) for number in range(4)))
    controller.history.mark()
    disk = MemoryDirectory("/broker")
    store_on(disk).close()
    leave(disk, LARGE)
    process = start(disk=disk)
    await controller.pulse.until(lambda: bool(process.log.said("problem")))
    assert process.agent.snapshots_loaded == 0 and process.agent.state is BrokerState.FENCED
    assert not [name for name in disk.subdirectory("@metadata").names() if name.endswith(".part")]

    disk.limit_space(PLENTY)
    await process.reaches(BrokerState.ONLINE)
    assert process.agent.snapshots_loaded == 1 and process.agent.image == controller.history.image
    await controller.pulse.until(lambda: process.agent.problems == ())


async def test_a_failed_fsync_ends_the_process(controller: FakeController, start: Start) -> None:
    """That is no lack of room: nobody knows what the disk has, and a second fsync would prove nothing."""
    disk = MemoryDirectory("/broker")
    process = start(disk=disk)
    await process.reaches(BrokerState.ONLINE)
    disk.fail_next_flush()
    controller.write(Topic("a", b"a" * 16))
    with pytest.raises(FlushFailed):
        await process.running
