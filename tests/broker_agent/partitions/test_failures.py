"""Errors of disks: what stops is as little as possible: nothing, the replica, its log directory, the broker, in this order."""

from broker_agent.partitions.effects import (
    AssignDirectory,
    BrokerFailed,
    DirectoryFailed,
    Flush,
    OpenLog,
    ReplicaFailed,
    StrayLogs,
)
from broker_agent.publishing.assignments import TopicIdPartition, WholeSet
from broker_agent.replica.purgatory import Acks
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import LOST_DIRECTORY
from tests.broker_agent.partitions.brokers import A, B, Broker, assigned, place
from tests.broker_agent.replica.partition_logs import records
from tests.sim.world.disk import MemoryDirectory

HERE, THERE = place(0), place(1)
"""A partition in directory A, and one in directory B."""


def two_disks() -> Broker:
    """Broker 101, which leads `HERE` in directory A and `THERE` in directory B, each with one record."""
    it = Broker(disks={A: MemoryDirectory("/a"), B: MemoryDirectory("/b")})
    for at, directory in ((HERE, A), (THERE, B)):
        it.assign(assigned(101, 101, at=at, isr=(101,)))
        it.run()
        assert it.replica(at).directory_id == directory
        it.append(at=at)
    it.run()
    assert {each.code for each in it.produced.values()} == {ErrorCode.NONE}
    it.said.clear()
    return it


def test_a_full_disk_refuses_a_write_and_stops_nothing() -> None:
    """Nothing was appended. With room again the same write succeeds, at the same offset."""
    it = two_disks()
    disk = it.disks[A]
    disk.limit_space(disk.used_bytes)
    large = records(1, size=300_000)
    refused = it.append(at=HERE, sent=large, acks=Acks.LEADER)
    elsewhere = it.append(at=THERE)
    it.run()
    assert (
        it.produced[refused].code is ErrorCode.STORAGE_ERROR and "nothing was appended" in it.produced[refused].message
    )
    assert it.code(elsewhere) is ErrorCode.NONE
    assert it.said == []
    disk.limit_space(None)
    done = it.append(at=HERE, sent=records(1, size=50_000))
    it.run()
    assert (it.produced[done].code, it.produced[done].base_offset) == (ErrorCode.NONE, 1)


def test_a_damaged_log_stops_its_own_partition() -> None:
    """A bit of `HERE` has rotted while the broker was down. The controllers hear that this replica is lost; `THERE` goes on."""
    before = two_disks()
    before.take(before.manager.stop(0))
    before.run()
    before.manager.close()
    logs = before.disks[A].subdirectory(HERE.name)
    (segment,) = [name for name in logs.names() if name.endswith(".log")]
    logs.flip_bit(segment, 150)

    it = Broker(disks=before.disks, seed=2)
    for at, directory in ((HERE, A), (THERE, B)):
        it.assign(assigned(101, 101, 2, at=at, isr=(101,), directory=directory))
    it.run()
    (failed,) = [each for each in it.said if isinstance(each, ReplicaFailed)]
    assert failed.place == HERE
    assert AssignDirectory(HERE, LOST_DIRECTORY) in it.said
    assert not any(isinstance(each, DirectoryFailed | BrokerFailed) for each in it.said)
    token = it.append(at=THERE)
    it.run()
    assert it.code(token) is ErrorCode.NONE
    assert it.code(it.append(at=HERE)) in (ErrorCode.STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_failed_flush_stops_the_directory_and_then_the_broker() -> None:
    """1. The flush of `HERE` fails: all of directory A stops, its waiting write is not acknowledged, and directory B goes on.
    2. The flush of `THERE` fails, too: that was the last directory."""
    it = two_disks()
    token = it.append(at=HERE)
    it.disks[A].fail_next_flush()
    it.run(kinds=(Flush,))
    (failed,) = [each for each in it.said if isinstance(each, DirectoryFailed)]
    assert failed.directory == A
    assert not any(isinstance(each, BrokerFailed) for each in it.said)
    assert it.code(token) not in (None, ErrorCode.NONE)
    token = it.append(at=THERE)
    it.run()
    assert it.code(token) is ErrorCode.NONE

    it.append(at=THERE)
    it.disks[B].fail_next_flush()
    it.run(kinds=(Flush,))
    assert [each.directory for each in it.said if isinstance(each, DirectoryFailed)] == [A, B]
    assert [type(each) for each in it.said][-1] is BrokerFailed


def test_new_replicas_go_to_the_directories_that_work() -> None:
    """Directory A is offline. A new partition is made in directory B, and no log of A is opened again by this process."""
    it = two_disks()
    it.append(at=HERE)
    it.disks[A].fail_next_flush()
    it.run(kinds=(Flush,))
    new = [place(number) for number in range(2, 6)]
    it.assign(*[assigned(101, 101, at=at, isr=(101,)) for at in new])
    assert {each.directory for each in it.work if isinstance(each, OpenLog)} == {B}
    it.run()
    it.assign(assigned(101, 101, 2, at=HERE, isr=(101,)))
    assert not any(isinstance(each, OpenLog) for each in it.work)


def test_a_log_that_belongs_to_no_replica_is_reported_and_kept() -> None:
    """A recovered cluster may lack a topic by accident. An operator decides; the log is served again once its topic is back."""
    before = two_disks()
    before.take(before.manager.stop(0))
    before.run()
    before.manager.close()
    it = Broker(disks=before.disks, seed=2)
    it.assign(
        WholeSet(frozenset({TopicIdPartition(*HERE)}), 0), assigned(101, 101, 2, at=HERE, directory=A, isr=(101,))
    )
    it.run()
    assert StrayLogs(((B, THERE),)) in it.said
    assert THERE.name in it.disks[B].names()
    it.assign(assigned(101, 101, 2, at=THERE, directory=B, isr=(101,)))
    it.run()
    assert StrayLogs(()) in it.said
    assert len(it.values(THERE)) == 1
