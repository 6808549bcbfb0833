"""Replicas come and go by assignments only; no log is deleted by accident."""

from broker_agent.partitions.effects import AssignDirectory, DeleteLog, OpenLog, Stopped, StrayLogs, WriteHighWatermarks
from broker_agent.partitions.offset_questions import OffsetWanted
from broker_agent.publishing.assignments import TopicIdPartition, WholeSet
from broker_agent.replica.high_watermarks import read_high_watermarks
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER
from tests.broker_agent.partitions.brokers import A, B, Broker, assigned, deleted, place
from tests.sim.world.disk import MemoryDirectory

NEW_TOPIC = b"new topic's id.."


def whole(*numbers: int) -> WholeSet:
    return WholeSet(frozenset(TopicIdPartition(*place(number)) for number in numbers), 0)


def test_a_stray_log_is_reported_and_kept() -> None:
    it = Broker()
    it.lead(at=place(0))
    it.lead(at=place(9))
    it.append(at=place(9))
    it.run()
    it.said.clear()
    it.assign(whole(0), assigned(101, 101, isr=(101,)))
    assert it.said == [StrayLogs(((A, place(9)),))]
    assert it.work == []
    assert it.code(it.append(at=place(9))) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    it.assign(assigned(101, 101, 2, at=place(9), isr=(101,), directory=A))
    it.run()
    assert it.said[1:] == [StrayLogs(())]
    assert it.values(place(9)) == [20]


def test_a_stray_log_of_an_earlier_process_is_reported() -> None:
    first = Broker()
    first.lead(at=place(9))
    again = Broker(101, {A: first.disks[A].kill()})
    again.assign(whole())
    assert again.said == [StrayLogs(((A, place(9)),))]


def test_a_deleted_topics_replica_is_deleted_and_a_new_topic_of_the_same_name_is_empty() -> None:
    it = Broker()
    it.lead()
    token = it.append(3)
    it.assign(deleted(assigned(101, 101, isr=(101,))))
    assert it.code(token) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    it.run()
    assert it.disks[A].names() == []
    it.lead(at=place(0, NEW_TOPIC))
    assert it.values(place(0, NEW_TOPIC)) == []


def test_a_replica_that_comes_back_during_its_deletion_is_made_anew() -> None:
    it = Broker()
    it.lead()
    it.append(3)
    it.run()
    it.assign(deleted(assigned(101, 101, isr=(101,))))
    it.assign(assigned(101, 102, 7))
    assert [type(each) for each in it.work] == [DeleteLog]
    it.run()
    assert it.values() == []
    assert it.replica().follower is not None


def test_a_deletion_waits_for_the_opening() -> None:
    it = Broker()
    it.assign(assigned(101, 101, isr=(101,)))
    it.assign(deleted(assigned(101, 101, isr=(101,))))
    assert [type(each) for each in it.work] == [OpenLog]
    it.run()
    assert it.disks[A].names() == []


def test_a_log_that_exists_decides_the_directory_and_is_told() -> None:
    """The record of the directory was lost in a crash."""
    disks = {A: MemoryDirectory("/a"), B: MemoryDirectory("/b")}
    first = Broker(101, {B: disks[B]})
    first.lead()
    first.append()
    first.run()
    again = Broker(101, {A: disks[A], B: disks[B].kill()})
    again.lead(2)
    assert again.said == [AssignDirectory(place(), B)]
    assert again.values() == [20]


def test_a_log_that_was_moved_is_used_where_it_is() -> None:
    disks = {A: MemoryDirectory("/a"), B: MemoryDirectory("/b")}
    first = Broker(101, {B: disks[B]})
    first.lead()
    first.append()
    first.run()
    again = Broker(101, {A: disks[A], B: disks[B].kill()})
    again.assign(assigned(101, 101, 2, isr=(101,), directory=A))
    again.run()
    assert again.said == [AssignDirectory(place(), B)]
    assert again.values() == [20]


def test_a_recorded_directory_is_not_told_again() -> None:
    first = Broker()
    first.lead()
    again = Broker(101, {A: first.disks[A].kill()})
    again.assign(assigned(101, 101, 2, isr=(101,), directory=A))
    again.run()
    assert again.said == []


def test_a_resting_replica_serves_nothing_and_keeps_its_log() -> None:
    it = Broker()
    it.lead()
    it.append(2)
    it.run()
    it.assign(assigned(101, None, 2))
    assert it.code(it.append()) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    found = it.manager.list_offset(place(), None, OffsetWanted.LATEST)
    assert found.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert it.values() == [20, 20]
    leader = it.manager.leader_of(place())
    assert leader is not None
    assert leader == (NO_LEADER, 2)


def test_a_clean_stop_makes_everything_durable() -> None:
    it = Broker()
    it.lead()
    token = it.append(4)
    it.take(it.manager.stop(0))
    assert it.code(token) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert Stopped() not in it.said
    it.run()
    assert it.said[-1] == Stopped()
    it.manager.close()
    again = Broker(101, {A: it.disks[A].crash(it.manager._hosting.rng)})
    again.lead(2)
    assert again.values() == [20] * 4


def test_a_new_process_begins_with_the_high_watermarks_of_the_file() -> None:
    """Consumers read on below it at once, before the followers have fetched."""
    it = Broker()
    it.lead()
    it.append(4)
    it.run()
    it.pass_ms(5_000)
    assert [type(each) for each in it.work] == [WriteHighWatermarks]
    it.run()
    assert read_high_watermarks(it.disks[A]) == {place(): 4}
    again = Broker(101, {A: it.disks[A].kill()})
    again.lead(2, isr=(101, 102, 103))
    leader = again.replica().leader
    assert leader is not None
    assert leader.high_watermark == 4


def test_an_idle_broker_writes_no_high_watermarks() -> None:
    it = Broker()
    it.lead()
    it.pass_ms(5_000)
    it.run()
    it.pass_ms(60_000)
    assert it.work == []
