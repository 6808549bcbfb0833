"""A broker with several log directories, one of which is offline."""

from broker_agent.partitions.effects import (
    Flush,
    OpenLog,
)
from metadata_log.format.errors import ErrorCode
from tests.broker_agent.partitions.brokers import A, B, Broker, assigned, place
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
