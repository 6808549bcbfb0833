"""Errors of disks: nothing stops, or the replica, its log directory, or the broker, in this order."""

import errno

import pytest

from broker_agent.partitions.effects import (
    AssignDirectory,
    BrokerFailed,
    DirectoryFailed,
    Flush,
    OpenLog,
    ReplicaFailed,
    Stopped,
)
from broker_agent.partitions.manager_config import TopicConfig
from broker_agent.replica.fetch_sessions import SessionAnswer
from broker_agent.replica.follower import BatchesRefused, PartitionAnswer
from broker_agent.replica.high_watermarks import read_high_watermarks
from broker_agent.replica.partition_log import PartitionLog
from metadata_log.disk.flush_ticket import FlushTicket
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import LOST_DIRECTORY
from tests.broker_agent.partitions.brokers import LOG, WALL_MS, A, B, Broker, assigned, place, replicate
from tests.broker_agent.replica.logs import batch
from tests.sim.world.disk import MemoryDirectory

TWO = (101, 102)


def two_disks() -> dict[bytes, MemoryDirectory]:
    return {A: MemoryDirectory("/a"), B: MemoryDirectory("/b")}


def pair(count: int = 1) -> tuple[Broker, Broker]:
    """Broker 101 leads `count` partitions, and broker 102 follows."""
    leader, follower = Broker(101, two_disks()), Broker(102, two_disks())
    for number in range(count):
        leader.assign(assigned(101, 101, at=place(number), replicas=TWO))
        follower.assign(assigned(102, 101, at=place(number), replicas=TWO))
    leader.run()
    replicate(leader, follower)
    return leader, follower


def test_a_full_disk_of_a_leader_refuses_the_write_and_stops_nothing() -> None:
    it = Broker()
    it.lead()
    it.disks[A].limit_space(it.disks[A]._volume.used_bytes)
    refused = it.append(100)
    assert it.code(refused) is ErrorCode.STORAGE_ERROR
    assert not [each for each in it.said if isinstance(each, ReplicaFailed | DirectoryFailed)]
    it.disks[A].limit_space(None)
    token = it.append()
    it.run()
    assert it.code(token) is ErrorCode.NONE


def test_a_follower_on_a_full_disk_fetches_again_when_there_is_room() -> None:
    leader, follower = pair()
    disk = follower.disks[follower.replica().directory_id]
    disk.limit_space(disk._volume.used_bytes)
    token = leader.append(100)
    leader.run()
    replicate(leader, follower)
    assert (follower.values(), leader.code(token)) == ([], None)
    disk.limit_space(None)
    follower.pass_ms(2_000)
    replicate(leader, follower)
    assert len(follower.values()) == 100
    assert leader.code(token) is ErrorCode.NONE


def test_a_full_disk_does_not_hold_up_the_end() -> None:
    """The file of high watermarks is not written; the old one stays, and is true."""
    it = Broker()
    it.lead()
    it.append()
    it.run()
    it.disks[A].limit_space(it.disks[A]._volume.used_bytes)
    it.take(it.manager.stop(0))
    it.run()
    assert it.said[-1] == Stopped()


def test_a_full_disk_delays_the_high_watermarks() -> None:
    it = Broker()
    it.lead()
    it.append()
    it.run()
    it.disks[A].limit_space(it.disks[A]._volume.used_bytes)
    it.pass_ms(5_000)
    it.run()
    assert read_high_watermarks(it.disks[A]) == {}
    it.disks[A].limit_space(None)
    it.pass_ms(5_000)
    it.run()
    assert read_high_watermarks(it.disks[A]) == {place(): 1}


def test_a_full_disk_delays_the_opening_of_a_log() -> None:
    it = Broker()
    it.disks[A].limit_space(it.disks[A]._volume.used_bytes)
    it.lead()
    assert it.code(it.append()) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    it.disks[A].limit_space(None)
    it.pass_ms(1_000)
    it.run()
    token = it.append()
    it.run()
    assert it.code(token) is ErrorCode.NONE


def test_damage_stops_its_own_replica_which_is_told_to_be_lost() -> None:
    """The next process of the broker finds damage in the log of orders-0: another broker leads, and orders-1 goes on."""
    it = Broker()
    it.lead()
    it.lead(at=place(1))
    for at in (place(0), place(0), place(1)):
        it.append(3, at=at)
        it.run()
    it.manager.close()
    log = it.disks[A].subdirectory(place().name)
    (segment,) = [each for each in log.names() if each.endswith(".log")]
    log.open(segment).write_at(200, b"?")
    again = Broker(101, {A: it.disks[A].kill()})
    for number in range(2):
        again.lead(2, at=place(number))
    (failed,) = [each for each in again.said if isinstance(each, ReplicaFailed)]
    assert failed.place == place()
    assert AssignDirectory(place(), LOST_DIRECTORY) in again.said
    assert again.code(again.append()) is ErrorCode.STORAGE_ERROR
    token = again.append(at=place(1))
    again.run()
    assert again.code(token) is ErrorCode.NONE


def test_a_flushed_end_that_cannot_be_noted_stops_its_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records are durable, and the file that says so cannot be written: the other directory goes on."""

    def read_only(self: PartitionLog, ticket: FlushTicket) -> bool:
        raise OSError(errno.EROFS, "the file system is read-only")

    it = Broker(101, two_disks())
    it.lead()
    it.lead(at=place(1))
    token = it.append()
    with monkeypatch.context() as broken:
        broken.setattr(PartitionLog, "complete_flush", read_only)
        it.run()
    assert it.code(token) is not ErrorCode.NONE
    assert [each.directory for each in it.said if isinstance(each, DirectoryFailed)] == [it.replica().directory_id]
    other = it.append(at=place(1))
    it.run()
    assert it.code(other) is ErrorCode.NONE


def test_a_broker_that_stops_has_nothing_due() -> None:
    """Its followers have requests that might be sent: they are dropped, and no timer spins."""
    _, follower = pair()
    follower.take(follower.manager.stop(follower.now_ms))
    follower.run()
    assert follower.said[-1] == Stopped()
    due_ms = follower.manager.next_deadline_ms(follower.now_ms)
    assert due_ms is None or due_ms > follower.now_ms


def test_a_failed_flush_stops_all_replicas_of_its_directory() -> None:
    """The write is not acknowledged, and the other directory goes on."""
    it = Broker(101, two_disks())
    for number in range(4):
        it.lead(at=place(number))
    homes = {number: it.replica(place(number)).directory_id for number in range(4)}
    assert sorted(homes.values()) == [A, A, B, B], "the directory with the fewest replicas takes the next one"
    failing = place(next(number for number, home in homes.items() if home == A))
    it.disks[A].fail_next_flush()
    tokens = [it.append(at=failing), it.append(at=failing)]
    it.run()
    assert [it.code(each) for each in tokens] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert [each.directory for each in it.said if isinstance(each, DirectoryFailed)] == [A]
    for number, home in homes.items():
        token = it.append(at=place(number))
        it.run()
        assert it.code(token) is (ErrorCode.NONE if home == B else ErrorCode.STORAGE_ERROR)
    assert not [each for each in it.said if isinstance(each, BrokerFailed)]


def test_a_failed_flush_of_a_replica_that_has_stopped_stops_the_directory_too() -> None:
    """The replica stopped for its batches, with a flush under way. Its disk lies: no later leader epoch may use the log again."""
    it = Broker(101, two_disks())
    it.lead()
    home = it.replica().directory_id
    it.append()
    it.manager._failures.stop_replica(it.replica(), BatchesRefused("an epoch goes back"))
    it.disks[home].fail_next_flush()
    it.run()
    assert [each.directory for each in it.said if isinstance(each, DirectoryFailed)] == [home]
    it.lead(2)
    assert (it.replica().is_lost, it.replica().leader) == (True, None)


def test_two_errors_of_one_disk_in_one_answer_stop_the_directory_once() -> None:
    """An answer has batches for two logs of directory A. The first log begins a segment, and the flush of the full segment fails.
    The second log finds no room: its replica has stopped already, so it has no fetcher that could try again later."""
    small = TopicConfig(LOG._replace(segment_bytes=1_000))
    leader, follower = Broker(101, two_disks()), Broker(102, two_disks(), topic=small)
    for number in range(4):
        leader.assign(assigned(101, 101, at=place(number), replicas=TWO))
        follower.assign(assigned(102, 101, at=place(number), replicas=TWO))
    leader.run()
    replicate(leader, follower)
    first, second = [at for at in map(place, range(4)) if follower.replica(at).directory_id == A]
    disk = follower.disks[A]
    disk.stop_reserving()
    leader.append(30, at=first)
    leader.run()
    replicate(leader, follower)

    leader.append(30, at=first)
    leader.append(30, at=second)
    leader.run()
    disk.limit_space(disk.used_bytes)
    disk.fail_next_flush()
    replicate(leader, follower)
    assert [each.directory for each in follower.said if isinstance(each, DirectoryFailed)] == [A]
    assert follower.replica(first).is_lost and follower.replica(second).is_lost


def test_the_last_directory_stops_the_broker() -> None:
    it = Broker(101, two_disks())
    for number in range(2):
        it.lead(at=place(number))
    for number in range(2):
        it.disks[it.replica(place(number)).directory_id].fail_next_flush()
        it.append(at=place(number))
        it.run()
    assert [type(each) for each in it.said[-3:]] == [DirectoryFailed, DirectoryFailed, BrokerFailed]


def test_an_offset_mismatch_stops_its_own_partition() -> None:
    """A leader's answer begins behind the end of the follower's log. The other partitions of the same fetcher go on."""
    leader, follower = pair(2)
    (sent,) = follower.fetches
    mismatch = PartitionAnswer(batches=(batch(7, 1, "a"),))
    answer = SessionAnswer(ErrorCode.NONE, sent.fetcher.session.session_id, ((place(0), mismatch),))
    follower.fetches = []
    follower.take(follower.manager.fetch_answered(sent, answer, 0, WALL_MS))
    (failed,) = [each for each in follower.said if isinstance(each, ReplicaFailed)]
    assert failed.place == place(0)
    assert AssignDirectory(place(0), LOST_DIRECTORY) not in follower.said, (
        "its disk is good: the leader takes it out of the ISR"
    )
    for number in range(2):
        leader.append(2, at=place(number))
    leader.run()
    replicate(leader, follower)
    follower.pass_ms(2_000)  # the source did not send the answer, so the session begins anew
    replicate(leader, follower)
    assert (follower.values(place(0)), follower.values(place(1))) == ([], [20, 20])


def test_a_replica_that_stopped_begins_again_in_the_next_leader_epoch() -> None:
    leader, follower = pair()
    (sent,) = follower.fetches
    mismatch = PartitionAnswer(batches=(batch(7, 1, "a"),))
    follower.fetches = []
    answer = SessionAnswer(ErrorCode.NONE, sent.fetcher.session.session_id, ((place(0), mismatch),))
    follower.take(follower.manager.fetch_answered(sent, answer, 0, WALL_MS))
    leader.assign(assigned(101, 101, 2, replicas=TWO))
    follower.assign(assigned(102, 101, 2, replicas=TWO))
    leader.append(2)
    leader.run()
    replicate(leader, follower)
    assert follower.values() == [20, 20]


def test_a_log_that_is_gone_is_not_made_anew_for_a_member_of_the_isr() -> None:
    """An empty log in its place could be elected, without the committed records."""
    it = Broker()
    it.assign(assigned(101, 101, isr=(101,), directory=A))
    assert it.work == []
    assert [type(each) for each in it.said] == [ReplicaFailed, AssignDirectory]
    assert it.code(it.append()) is ErrorCode.STORAGE_ERROR


@pytest.mark.parametrize("recorded", [B, LOST_DIRECTORY])
def test_a_member_of_the_isr_whose_directory_is_away_does_not_begin_empty(recorded: bytes) -> None:
    """The last member of an ISR stays in it. Told to be in directory A, it would lead at once, without a record."""
    it = Broker()
    it.assign(assigned(101, None, 2, isr=(101,), directory=recorded))
    assert it.work == []
    assert AssignDirectory(place(), A) not in it.said


def test_a_log_that_is_gone_is_made_anew_outside_of_the_isr() -> None:
    it = Broker(102)
    it.assign(assigned(102, 101, isr=(101,), directory=A))
    assert [type(each) for each in it.work] == [OpenLog]


def test_a_mistake_of_the_program_is_no_failure_of_a_disk() -> None:
    it = Broker()
    it.lead()
    it.append()
    (flush,) = it.work
    assert isinstance(flush, Flush)
    with pytest.raises(KeyError):
        it.manager.disk_failed(flush, KeyError("x"), 0, WALL_MS)


def test_a_log_whose_notes_are_damaged_is_lost_too() -> None:
    """Whatever does not let the log open: another broker must lead."""
    it = Broker()
    it.lead()
    it.append(3)
    it.run()
    it.manager.close()
    it.disks[A].subdirectory(place().name).write_atomic("log-start", b"junk\n")
    again = Broker(101, {A: it.disks[A].kill()})
    again.lead(2)
    assert again.said[-1] == AssignDirectory(place(), LOST_DIRECTORY)
    again.assign(assigned(101, 101, 3, isr=(101,)))
    assert again.work == [], "this process does not open it again"
