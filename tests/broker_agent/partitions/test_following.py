"""Replication between managers: who is asked for what, which answers count, and who is in sync."""

import pytest

from broker_agent.partitions.effects import SendFetch
from broker_agent.partitions.offset_questions import OffsetWanted
from broker_agent.partitions.open_fetch import FetchSource
from broker_agent.replica.fetch_sessions import FINAL_EPOCH, SessionAnswer, SessionRequest
from broker_agent.replica.follower import PartitionAnswer, PartitionFetch
from broker_agent.replica.isr import IsrAnswer
from broker_agent.replica.purgatory import Acks
from metadata_log.format.errors import ErrorCode
from tests.broker_agent.partitions.brokers import EPOCHS, WALL_MS, Broker, assigned, deleted, place, replicate
from tests.broker_agent.replica.partition_logs import records

NEW_TOPIC = b"n" * 16


def following(*leaders: int) -> Broker:
    """Broker 102, which follows in partition n the n-th of `leaders`."""
    it = Broker(102)
    it.assign(*[assigned(102, leader, at=place(number)) for number, leader in enumerate(leaders)])
    it.run()
    return it


def answer(it: Broker, sent: SendFetch, **answers: PartitionAnswer) -> None:
    """Answer a request in flight; `p1=...` for partition 1, and nothing new for the others."""
    asked = sent.fetcher.session.partitions
    told = tuple((each, answers.get(f"p{each[1]}", PartitionAnswer())) for each in asked)
    it.fetches.remove(sent)
    it.take(it.manager.fetch_answered(sent, SessionAnswer(answers=told), it.now_ms, WALL_MS))


def in_flight(it: Broker) -> dict[int, list[int]]:
    """For each source the partitions of the request in flight."""
    found = {each.source_id: sorted(at[1] for at in each.fetcher.session.partitions) for each in it.fetches}
    assert len(found) == len(it.fetches), "one request to each source"
    return found


def of(it: Broker, source_id: int) -> SendFetch:
    (sent,) = [each for each in it.fetches if each.source_id == source_id]
    return sent


def leading(isr: tuple[int, ...] = (101, 102, 103)) -> Broker:
    """Broker 101, which leads with this ISR."""
    it = Broker(101)
    it.lead(isr=isr)
    return it


# --- who is asked ----------------------------------------------------------------------------------------------------


def test_the_partitions_of_one_source_share_one_request() -> None:
    """One fetcher for each (source broker, fetcher id): partitions 0, 1 and 3 are asked of broker 101 together."""
    it = following(101, 101, 103, 101)
    for source_id in (101, 103):
        answer(it, of(it, source_id))
    assert in_flight(it) == {101: [0, 1, 3], 103: [2]}


def test_a_partition_goes_to_the_fetcher_of_its_new_leader() -> None:
    """The fetcher of the old leader goes on for its other partitions, and ends with the last of them."""
    it = following(101, 101)
    answer(it, of(it, 101))
    it.assign(assigned(102, 103, 2, at=place(0)))
    answer(it, of(it, 101))
    assert in_flight(it) == {101: [1], 103: [0]}
    it.assign(assigned(102, 103, 2, at=place(1)))
    answer(it, of(it, 101))
    answer(it, of(it, 103))
    assert in_flight(it) == {103: [0, 1]}


def test_a_fetcher_whose_source_refuses_does_not_ask_in_a_busy_loop() -> None:
    """`replica.fetch.backoff.ms` is 1 s, with jitter: at most 20 requests in 10 s, and never none."""
    it = following(101)
    asked = 0
    while it.now_ms < 10_000:
        for sent in list(it.fetches):
            asked += 1
            answer(it, sent, p0=PartitionAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        it.pass_ms(50)
    assert 8 <= asked <= 21


def test_an_error_of_one_partition_holds_no_other_one_up() -> None:
    """Partition 0 is left out for a while; partition 1 is asked for at once."""
    it = following(101, 101)
    answer(it, of(it, 101))
    answer(it, of(it, 101), p0=PartitionAnswer(ErrorCode.STORAGE_ERROR))
    assert in_flight(it) == {101: [1]}
    it.pass_ms(1_000)
    answer(it, of(it, 101))
    assert in_flight(it) == {101: [0, 1]}


# --- which answers count ---------------------------------------------------------------------------------------------


def test_an_answer_that_comes_twice_is_appended_once() -> None:
    """The second one is not the answer to the request in flight."""
    source, it = leading(), following(101)
    source.append(3)
    batches = source.replica().log.read(0, 1 << 20, 3)  # type: ignore[union-attr]
    told = SessionAnswer(answers=((place(), PartitionAnswer(high_watermark=3, batches=batches)),))
    sent = of(it, 101)
    it.fetches.remove(sent)
    for _ in range(2):
        it.take(it.manager.fetch_answered(sent, told, it.now_ms, WALL_MS))
        it.run()
    assert len(it.values()) == 3


def test_a_late_answer_of_an_earlier_leader_epoch_has_no_effect() -> None:
    """The request is in flight when broker 101 is elected again. Its answer may have records that the new epoch has not."""
    source, it = leading(), following(101)
    source.append(3)
    batches = source.replica().log.read(0, 1 << 20, 3)  # type: ignore[union-attr]
    sent = of(it, 101)
    it.assign(assigned(102, 101, 2))
    answer(it, sent, p0=PartitionAnswer(high_watermark=3, batches=batches))
    it.run()
    assert it.values() == []
    assert dict(of(it, 101).request.session.fetches)[place()].leader_epoch == 2


def test_a_follower_knows_no_high_watermark_above_its_own_disk() -> None:
    """The leader has committed 3 records. The follower appends them, and knows them as committed after its flush."""
    source, it = leading(), following(101)
    source.append(3)
    batches = source.replica().log.read(0, 1 << 20, 3)  # type: ignore[union-attr]
    answer(it, of(it, 101), p0=PartitionAnswer(high_watermark=3, batches=batches))
    follower = it.replica().follower
    assert follower is not None and len(it.values()) == 3
    assert follower.high_watermark == 0
    assert not it.fetches, "a fetch would acknowledge the records"
    it.run()
    assert follower.high_watermark == 3
    assert dict(of(it, 101).request.session.fetches)[place()].offset == 3


def test_an_answer_that_begins_elsewhere_stops_its_partition_only() -> None:
    """An offset mismatch. Partition 1 of the same request goes on."""
    source, it = Broker(101), following(101, 101)
    for number in (0, 1):
        source.lead(at=place(number))
        source.append(1, at=place(number))
        source.append(1, at=place(number))
    logs = [source.replica(place(number)).log for number in (0, 1)]
    answer(it, of(it, 101))
    beyond, first = (log.read(at, 1 << 20, 2) for log, at in zip(logs, (1, 0), strict=True) if log is not None)
    answer(it, of(it, 101), p0=PartitionAnswer(batches=beyond), p1=PartitionAnswer(batches=first))
    it.run()
    assert (len(it.values(place(0))), len(it.values(place(1)))) == (0, 2)
    assert in_flight(it) == {101: [1]}
    assert "the answer for offset 0 begins at offset 1" in str(it.replica(place(0)).failure)


def test_a_batch_that_is_larger_than_the_fetch_arrives_whole() -> None:
    """KIP-74: a record of 50 KB and a fetch of 100 bytes. Otherwise the replication, and each consumer, would stand still."""
    source, it = leading((101, 102)), following(101)
    source.append(sent=records(1, size=50_000))
    source.run()
    origin = FetchSource(102, EPOCHS[102])
    fetch = source.open_fetch(of(it, 101).request.session, origin, max_bytes=100)
    told = source.poll(fetch)
    assert told is not None and [len(each.batches) for _, each in told.answers] == [1]
    replicate(source, it)
    assert it.values() == [50_000]

    small = PartitionFetch(0, -1, -1, 10)
    consumer = source.open_fetch(SessionRequest(0, FINAL_EPOCH, ((place(), small),)), max_bytes=100)
    told = source.poll(consumer)
    assert told is not None and [len(each.batches) for _, each in told.answers] == [1]


# --- the high watermark and the ISR ----------------------------------------------------------------------------------


def test_a_consumer_reads_to_the_high_watermark_and_a_follower_to_the_end() -> None:
    """The ISR is 101 and 102, and 102 has not fetched the last record."""
    source, it = leading((101, 102)), following(101)
    source.append(1)
    source.run()
    replicate(source, it)
    source.append(1)
    source.run()

    told = source.fetch(0)
    assert told is not None
    ((_, read),) = told.answers
    assert (read.high_watermark, [batch.end_offset for batch in read.batches]) == (1, [1])
    found, _ = source.manager.list_offset(place(), None, OffsetWanted.LATEST, source.now_ms)
    assert (found.code, found.offset) == (ErrorCode.NONE, 1)

    told = source.fetch(1, FetchSource(103, EPOCHS[103]), epoch=1, last=1)
    assert told is not None
    ((_, copied),) = told.answers
    assert [batch.end_offset for batch in copied.batches] == [2]


def test_the_high_watermark_is_the_least_end_of_the_isr() -> None:
    """Broker 102 has everything, broker 103 nothing. A write with acks=all waits for 103."""
    source, second, third = leading(), following(101), Broker(103)
    third.assign(assigned(103, 101))
    third.run()
    token = source.append(2)
    source.run()
    replicate(source, second)
    leader = source.replica().leader
    assert leader is not None and leader.high_watermark == 0 and source.code(token) is None
    replicate(source, third)
    assert leader.high_watermark == 2 and source.code(token) is ErrorCode.NONE


def test_a_member_that_lags_leaves_the_isr_and_returns_when_it_has_caught_up() -> None:
    """1. Broker 103 is silent. Within one and a half of `replica.lag.time.max.ms` (30 s) the leader proposes the ISR 101, 102.
    2. Until the controllers have granted that, the high watermark waits for 103.  3. Broker 103 fetches, and has everything: the
    leader proposes it again at once."""
    source, second = leading(), following(101)
    replicate(source, second)
    token = source.append(2, deadline_ms=10**9)
    source.run()
    while not source.proposals and source.now_ms < 60_000:
        replicate(source, second)
        source.pass_ms(500)
        second.pass_ms(500)
    assert 30_000 <= source.now_ms <= 45_500
    (sent,) = source.proposals
    assert sent.proposal.members == (101, 102)
    assert source.code(token) is None
    source.answered(IsrAnswer(ErrorCode.NONE, 1, 2, (101, 102)))
    assert source.code(token) is ErrorCode.NONE

    third = Broker(103)
    third.assign(assigned(103, 101))
    third.run()
    replicate(source, third)
    (sent,) = source.proposals
    assert sent.proposal.members == (101, 102, 103)


# --- who answers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["follower", "resting", "not open", "unknown"])
def test_only_the_leader_answers_clients(role: str) -> None:
    """Each call of a client at any other replica: NOT_LEADER_OR_FOLLOWER, and nothing was done."""
    it = Broker(102)
    if role != "unknown":
        it.assign(assigned(102, {"follower": 101, "resting": None, "not open": 102}[role]))
    if role != "not open":
        it.run()
    token = it.append(acks=Acks.LEADER)
    codes = [it.code(token)]
    for wanted in (OffsetWanted.EARLIEST, OffsetWanted.LATEST, WALL_MS):
        found, _ = it.manager.list_offset(place(), None, wanted, it.now_ms)
        codes.append(found.code)
    codes.append(it.manager.end_of_epoch(place(), None, 1).code)
    told = it.fetch(0)
    assert told is not None
    codes += [each.error for _, each in told.answers]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 6


def test_a_later_topic_of_the_same_name_begins_empty() -> None:
    """The log of the deleted topic is gone from the disk, and the new one has another id."""
    it = Broker(101)
    it.lead()
    it.append(5)
    it.run()

    def logs() -> list[str]:
        return [name for disk in it.disks.values() for name in disk.names() if name == place().name]

    assert logs() == [place().name]
    it.assign(deleted(assigned(101, 101)))
    it.run()
    new = place(0, NEW_TOPIC)
    it.lead(at=new)
    assert it.values(new) == []
    token = it.append(1, at=new)
    it.run()
    assert it.produced[token].base_offset == 0
    assert it.code(it.append(1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert logs() == []
