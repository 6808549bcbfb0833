"""Writes at a leader: what is refused, when an answer comes, and what it says."""

import pytest

from broker_agent.partitions.effects import AssignDirectory, Flush, OpenLog, Produced
from broker_agent.replica.purgatory import Acks
from metadata_log.format.data_batch import ProducerStamp
from metadata_log.format.errors import ErrorCode
from tests.broker_agent.partitions.brokers import A, Broker, assigned, place, replicate


def test_nothing_is_served_before_the_log_is_open() -> None:
    it = Broker()
    it.assign(assigned(101, 101, isr=(101,)))
    token = it.append()
    assert it.code(token) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [type(each) for each in it.work] == [OpenLog]
    it.run()
    assert it.said == [AssignDirectory(place(), A)]
    token = it.append()
    it.run()
    assert it.code(token) is ErrorCode.NONE


@pytest.mark.parametrize("acks", [Acks.LEADER, Acks.ALL])
def test_a_write_is_answered_when_the_leaders_disk_has_it(acks: Acks) -> None:
    """The ISR is the leader alone. The answer names the offset of the first record."""
    it = Broker()
    it.lead()
    first, second = it.append(2, acks), it.append(3, acks)
    assert it.produced == {}
    it.run()
    assert [it.produced[each] for each in (first, second)] == [
        Produced(first, ErrorCode.NONE, 0, 0),
        Produced(second, ErrorCode.NONE, 2, 0),
    ]


def test_a_write_without_acks_is_answered_at_once() -> None:
    it = Broker()
    it.lead()
    token = it.append(1, Acks.NONE)
    assert it.produced[token] == Produced(token, ErrorCode.NONE, 0, 0)


def test_one_flush_takes_all_records_that_came_meanwhile() -> None:
    it = Broker()
    it.lead()
    tokens = [it.append() for _ in range(5)]
    (flush,) = it.work
    assert isinstance(flush, Flush)
    it.work = []
    it.finish(flush)
    assert list(it.produced) == tokens[:1]
    (flush,) = it.work
    it.work = []
    it.finish(flush)
    assert list(it.produced) == tokens
    assert it.work == []


def test_a_write_with_all_acks_waits_for_the_followers() -> None:
    leader, follower = Broker(101), Broker(102)
    leader.assign(assigned(101, 101, replicas=(101, 102)))
    follower.assign(assigned(102, 101, replicas=(101, 102)))
    leader.run()
    token = leader.append(3)
    leader.run()
    assert leader.produced == {}
    replicate(leader, follower)
    assert leader.produced[token] == Produced(token, ErrorCode.NONE, 0, 0)
    assert follower.values() == leader.values() == [20, 20, 20]


def test_stale_and_unknown_leader_epochs_are_fenced() -> None:
    it = Broker()
    it.lead(5)
    assert it.code(it.append(epoch=4)) is ErrorCode.FENCED_LEADER_EPOCH
    assert it.code(it.append(epoch=6)) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert it.code(it.append(at=place(7))) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_repeated_batch_gets_its_old_offset() -> None:
    it = Broker()
    it.lead()
    first = it.append(2, stamp=ProducerStamp(7, 0, 0))
    again = it.append(2, stamp=ProducerStamp(7, 0, 0))
    gap = it.append(2, stamp=ProducerStamp(7, 0, 9))
    it.run()
    assert it.produced[again].base_offset == it.produced[first].base_offset == 0
    assert it.code(gap) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert it.values() == [20, 20]


def test_an_impossible_producer_is_refused() -> None:
    it = Broker()
    it.lead()
    token = it.append(2, stamp=ProducerStamp(7, -1, 0))
    assert it.code(token) is ErrorCode.INVALID_REQUEST
    assert it.values() == []


def test_a_leader_that_resigns_answers_all_writes() -> None:
    it = Broker()
    it.lead(5, isr=(101, 102, 103))
    token = it.append()
    it.assign(assigned(101, 102, 6))
    assert it.code(token) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert it.code(it.append()) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_write_that_waits_too_long_is_answered_at_its_deadline() -> None:
    it = Broker()
    it.lead(5, isr=(101, 102, 103))
    token = it.append(deadline_ms=700)
    it.run()
    it.pass_ms(699)
    assert it.code(token) is None
    it.pass_ms(1)
    assert it.code(token) is ErrorCode.REQUEST_TIMED_OUT
    assert it.produced[token].base_offset == 0


def test_a_log_of_a_later_epoch_than_the_metadata_takes_no_records() -> None:
    """`quorum recover` lost the election of epoch 7, and the log has its records: the write is refused with words, and once."""
    it = Broker()
    it.lead(7)
    it.append()
    it.run()
    it.lead(6)
    refused = it.append()
    assert it.code(refused) is ErrorCode.STORAGE_ERROR
    it.lead(8)
    token = it.append()
    it.run()
    assert it.code(token) is ErrorCode.NONE
