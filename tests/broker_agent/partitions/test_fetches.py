"""Fetches at a leader: what followers and consumers may read, when a fetch waits, and what an idle partition costs."""

import pytest

from broker_agent.partitions.effects import DeleteLog, FindTime, Flush, FoundOffset, OffsetFound, ReplicaFailed
from broker_agent.partitions.manager_config import ManagerConfig
from broker_agent.partitions.offset_questions import EpochEnd, OffsetWanted
from broker_agent.partitions.open_fetch import FetchSource, OpenFetch
from broker_agent.replica.fetch_sessions import FetchSession, SessionAnswer, SessionRequest
from broker_agent.replica.follower import PartitionFetch
from broker_agent.session.isr_proposals import Place
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch
from tests.broker_agent.partitions.brokers import WALL_MS, A, Broker, assigned, deleted, place
from tests.broker_agent.replica.partition_logs import records

FOLLOWER = FetchSource(102, 12)


def leading(isr: tuple[int, ...] = (101,), epoch: int = 1) -> Broker:
    it = Broker()
    it.lead(epoch, isr=isr)
    return it


def only(answer: SessionAnswer | None) -> tuple[ErrorCode, list[int]]:
    """The error and the base offsets of the batches of an answer for one partition."""
    assert answer is not None
    ((_, found),) = answer.answers
    return found.error, [each.base_offset for each in found.batches]


def test_a_consumer_reads_up_to_the_high_watermark_and_a_follower_to_the_end() -> None:
    it = leading((101, 102, 103))
    it.append(2)
    it.run()
    assert it.fetch(0) is None
    assert only(it.fetch(0, FOLLOWER, epoch=1, last=0)) == (ErrorCode.NONE, [0])


@pytest.mark.parametrize("role", ["opening", "following", "resting", "unknown"])
def test_only_the_leader_answers_clients(role: str) -> None:
    it = Broker()
    if role == "opening":
        it.assign(assigned(101, 101))
    elif role != "unknown":
        it.assign(assigned(101, 102 if role == "following" else None))
        it.run()
    assert it.code(it.append()) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only(it.fetch(0)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
    found = it.manager.list_offset(place(), None, OffsetWanted.EARLIEST)
    assert found.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert it.manager.end_of_epoch(place(), None, 1).code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_waits_for_records_and_is_woken_once() -> None:
    """The follower's fetch is woken by the append, before the flush; the consumer's fetch by the high watermark."""
    it = leading()
    it.take(
        it.manager.brokers_changed({101: 11}, 0)
    )  # the follower may not join, so it does not hold the high watermark back
    it.pass_ms(1)
    wanted = PartitionFetch(0, 1, 0)
    follower = it.open_fetch(SessionRequest(0, -1, ((place(), wanted),)), FOLLOWER)
    consumer = it.open_fetch(SessionRequest(0, -1, ((place(), wanted),)))
    assert [it.poll(follower), it.poll(consumer)] == [None, None]
    it.append()
    it.append()
    assert it.woken == [follower]
    assert only(it.poll(follower)) == (ErrorCode.NONE, [0, 1])
    it.run()
    assert it.woken == [follower, consumer]
    assert only(it.poll(consumer)) == (ErrorCode.NONE, [0, 1])


def test_a_fetch_without_records_is_answered_at_its_deadline() -> None:
    it = leading()
    fetch = it.open_fetch(SessionRequest(0, -1, ((place(), PartitionFetch(0, -1, -1)),)), max_wait_ms=500)
    assert it.poll(fetch) is None
    it.pass_ms(499)
    assert it.woken == []
    it.pass_ms(1)
    assert it.woken == [fetch]
    assert only(it.poll(fetch)) == (ErrorCode.NONE, [])


def test_a_consumer_waits_for_the_bytes_that_it_wants() -> None:
    it = leading()
    fetch = it.open_fetch(SessionRequest(0, -1, ((place(), PartitionFetch(0, -1, -1)),)), min_bytes=400)
    for expected in (False, False, True):
        assert it.poll(fetch) is None
        it.append()
        it.run()
        assert it.woken.pop() is fetch
        it.woken.clear()
        if expected:
            assert only(it.poll(fetch)) == (ErrorCode.NONE, [0, 1, 2])


def test_a_leader_that_resigns_answers_the_fetches_that_wait() -> None:
    it = leading()
    fetch = it.open_fetch(SessionRequest(0, -1, ((place(), PartitionFetch(0, 1, -1)),)))
    assert it.poll(fetch) is None
    it.assign(assigned(101, 102, 2))
    assert it.woken == [fetch]
    assert only(it.poll(fetch)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])


def test_a_batch_larger_than_the_fetch_comes_whole() -> None:
    it = leading()
    it.append(sent=records(1, 5_000))
    it.append(sent=records(1, 5_000))
    it.run()
    small = PartitionFetch(0, -1, -1, 100)
    fetch = it.open_fetch(SessionRequest(0, -1, ((place(), small),)), max_bytes=10)
    assert only(it.poll(fetch)) == (ErrorCode.NONE, [0])


def test_a_consumer_with_a_stale_or_a_future_epoch_is_fenced() -> None:
    it = leading(epoch=5)
    assert only(it.fetch(0, epoch=4)) == (ErrorCode.FENCED_LEADER_EPOCH, [])
    assert only(it.fetch(0, epoch=6)) == (ErrorCode.UNKNOWN_LEADER_EPOCH, [])


def test_a_consumer_outside_of_the_log_is_told_so() -> None:
    it = leading()
    it.append(3)
    it.run()
    assert only(it.fetch(4)) == (ErrorCode.OFFSET_OUT_OF_RANGE, [])
    log = it.replica().log
    assert log is not None
    log.delete_below(3)
    it.take(it.manager.tick(0, WALL_MS))
    it.append(1)
    it.run()
    assert only(it.fetch(0)) == (ErrorCode.OFFSET_OUT_OF_RANGE, [])


def test_a_consumer_of_records_that_were_lost_is_told_where_the_logs_part() -> None:
    """It has read up to 9 in epoch 5; in this log epoch 5 ends at 3, and epoch 6 follows (KIP-320)."""
    it = leading(epoch=5)
    it.append(3)
    it.run()
    it.lead(6)
    it.append(10)
    it.run()
    answer = it.fetch(9, last=5)
    assert answer is not None
    ((_, found),) = answer.answers
    assert (found.error, found.diverged, found.batches) == (ErrorCode.NONE, OffsetAndEpoch(3, 5), ())
    assert it.manager.end_of_epoch(place(), 6, 5) == EpochEnd(ErrorCode.NONE, 5, 3)
    assert it.manager.end_of_epoch(place(), 6, 7) == EpochEnd(ErrorCode.NONE)


def test_offsets_by_name_and_by_time() -> None:
    it = leading()
    it.append(sent=records(2, at_ms=1_000))
    it.append(sent=records(2, at_ms=2_000))
    it.run()

    def found(wanted: OffsetWanted | int) -> FoundOffset:
        if isinstance(wanted, OffsetWanted):
            return it.manager.list_offset(place(), 1, wanted)
        ask(it, wanted)
        it.run()
        return answer_of(it)

    assert found(OffsetWanted.EARLIEST) == FoundOffset(ErrorCode.NONE, 0, 0, 1)
    assert found(OffsetWanted.LATEST) == FoundOffset(ErrorCode.NONE, 4, 0, 1)
    assert found(1_500) == FoundOffset(ErrorCode.NONE, 2, 2_000, 1)
    assert found(3_000) == FoundOffset(ErrorCode.NONE, None, 0, 1)


def ask(it: Broker, timestamp_ms: int) -> None:
    it.take(it.manager.find_time(place(), None, timestamp_ms, 7, it.now_ms))


def answer_of(it: Broker) -> FoundOffset:
    (answer,) = [each for each in it.said if isinstance(each, OffsetFound)]
    it.said.remove(answer)
    assert answer.token == 7
    return answer.found


def test_a_search_for_a_time_is_disk_work_while_the_log_goes_on() -> None:
    """It reads up to a segment, 64 MiB. The records that come meanwhile are no part of it."""
    it = leading()
    it.append(sent=records(2, at_ms=1_000))
    it.run()
    ask(it, 1_500)
    it.append(sent=records(2, at_ms=2_000))
    it.run(kinds=(Flush,))
    assert [type(each) for each in it.work] == [FindTime]
    it.run()
    assert answer_of(it) == FoundOffset(ErrorCode.NONE, None, 0, 1)
    ask(it, 1_500)
    it.run()
    assert answer_of(it) == FoundOffset(ErrorCode.NONE, 2, 2_000, 1)


def test_a_search_ends_with_its_leadership() -> None:
    """Another leader may have other records at these offsets."""
    it = leading()
    it.append(sent=records(2, at_ms=1_000))
    it.run()
    ask(it, 1_000)
    it.assign(assigned(101, 101, 2, isr=(101,)))
    it.run()
    assert answer_of(it) == FoundOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    ask(it, 1_000)
    it.assign(deleted(assigned(101, 101, 2)))
    it.run(kinds=(DeleteLog,))
    it.run()
    assert answer_of(it) == FoundOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_search_begins_again_when_retention_has_deleted_its_segment() -> None:
    it = leading()
    for at_ms in (1_000, 2_000, 3_000):
        it.append(sent=records(1, 60_000, at_ms=at_ms))
    it.run()
    ask(it, 500)
    log = it.replica().log
    assert log is not None
    log.delete_below(2)
    it.run()
    assert answer_of(it) == FoundOffset(ErrorCode.NONE, 2, 3_000, 1)
    assert it.replica().failure is None


def test_a_search_that_meets_damage_stops_its_replica() -> None:
    it = leading()
    it.append(sent=records(1, 20_000, at_ms=1_000))
    it.run()
    ask(it, 500)
    it.disks[A].subdirectory(place().name).flip_bit("00000000000000000000.log", 5_000)
    it.run()
    assert answer_of(it) == FoundOffset(ErrorCode.STORAGE_ERROR)
    assert [each.place for each in it.said if isinstance(each, ReplicaFailed)] == [place()]


def test_a_new_leader_does_not_tell_an_end_below_its_predecessors() -> None:
    """Its high watermark is not known before the followers have fetched (KIP-207)."""
    it = leading()
    it.append(2)
    it.run()
    it.lead(2, isr=(101, 102, 103))
    leader = it.replica().leader
    assert leader is not None
    leader.high_watermark = 1
    found = it.manager.list_offset(place(), 2, OffsetWanted.LATEST)
    assert found.code is ErrorCode.NOT_READY


def test_a_sector_that_cannot_be_read_stops_its_replica() -> None:
    it = leading()
    for _ in range(20):
        it.append(sent=records(1, 20_000))
    it.run()
    log = it.disks[A].subdirectory(place().name)
    log.break_sector("00000000000000000000.log", 5_000)
    assert only(it.fetch(0)) == (ErrorCode.STORAGE_ERROR, [])
    assert only(it.fetch(0)) == (ErrorCode.STORAGE_ERROR, [])
    assert [each.place for each in it.said if isinstance(each, ReplicaFailed)] == [place()]


def test_a_new_leader_answers_the_fetches_of_its_followers_at_once() -> None:
    """Otherwise a follower could name its new partition only after the wait of its last fetch, up to half a second later."""
    it = Broker()
    it.assign(assigned(101, 101, at=place(0), replicas=(101, 102)))
    it.assign(assigned(101, 101, at=place(1), replicas=(101, 102)))
    it.run()
    session = FetchSession()
    wanted: dict[Place, PartitionFetch] = {place(0): PartitionFetch(0, 1, 0), place(1): PartitionFetch(0, 1, 0)}

    def fetch() -> OpenFetch:
        return it.open_fetch(session.request(wanted), FOLLOWER, max_wait_ms=500)

    def answer(of: OpenFetch) -> SessionAnswer | None:
        found = it.poll(of)
        assert found is None or session.accepts(found)
        return found

    assert answer(fetch()) is not None
    it.pass_ms(2_000)
    waiting = fetch()
    assert answer(waiting) is None
    it.lead(1, at=place(2), isr=(101, 102))
    assert it.woken == [waiting]
    found = answer(waiting)
    assert found is not None and found.answers == ()

    late = fetch()  # the follower has not read the metadata yet: its next fetch waits for a moment
    assert answer(late) is None
    it.pass_ms(20)
    assert it.woken[1:] == [late]
    assert answer(late) is not None
    wanted[place(2)] = PartitionFetch(0, 1, 0)
    named = fetch()
    assert answer(named) is not None
    idle = fetch()
    assert answer(idle) is None
    it.pass_ms(499)
    assert idle not in it.woken


class Sessions:
    """A follower with one fetch session for many partitions, which counts the partitions that the leader looks at."""

    def __init__(self, count: int, slice_max: int = 10) -> None:
        self.it = Broker(config=ManagerConfig(slice_max=slice_max))
        for number in range(count):
            self.it.assign(assigned(101, 101, at=place(number), replicas=(101, 102)))
        self.it.run()
        self.session = FetchSession()
        self.wanted: dict[Place, PartitionFetch] = {place(number): PartitionFetch(0, 1, 0) for number in range(count)}
        self.polls = 0

    def fetch(self, *, max_bytes: int = 1 << 20) -> list[int] | None:
        """The partitions of the answer; None if the fetch waits."""
        fetch = self.it.open_fetch(self.session.request(self.wanted), FOLLOWER, max_bytes=max_bytes)
        self.waiting = fetch
        return self.poll()

    def poll(self) -> list[int] | None:
        while True:
            self.polls += 1
            self.it.woken.clear()
            answer = self.it.poll(self.waiting)
            if answer is None and self.waiting in self.it.woken:
                continue
            if answer is None:
                return None
            assert self.session.accepts(answer)
            return [at[1] for at, _ in answer.answers]


def test_a_large_request_is_served_in_slices() -> None:
    it = Sessions(35)
    assert it.fetch() == list(range(35))
    assert it.polls == 4


def test_an_idle_partition_costs_a_session_nothing() -> None:
    """One append among 60 partitions: one partition is looked at, and is the answer."""
    it = Sessions(60, slice_max=2)
    it.fetch()
    it.polls = 0
    assert it.fetch() is None
    assert it.polls == 1
    it.it.append(at=place(7))
    assert it.it.woken == [it.waiting]
    assert it.poll() == [7]
    assert it.polls == 2


def test_a_partition_without_room_in_the_answer_comes_first_in_the_next() -> None:
    it = Sessions(3)
    it.fetch()
    for number in range(3):
        it.it.append(5, at=place(number))
    assert it.fetch(max_bytes=1) == [0]
    assert it.fetch(max_bytes=1) == [1]
    assert it.fetch(max_bytes=1) == [2]


def test_records_that_the_fetcher_dropped_are_sent_again() -> None:
    """The request after the answer names nothing: the follower still wants the same offset."""
    it = Sessions(2)
    it.fetch()
    it.it.append(5, at=place(1))
    assert it.fetch() == [1]
    assert it.fetch() == [1]


def test_the_later_request_of_a_session_ends_the_earlier_one() -> None:
    """A connection has broken, and the fetch that waits does not know it."""
    it = Sessions(2)
    it.fetch()
    it.fetch()
    earlier = it.waiting
    it.session.epoch = 2
    it.fetch()
    it.it.append(at=place(0))
    answer = it.it.poll(earlier)
    assert answer is not None
    assert answer.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_fetch_whose_caller_went_away_is_never_woken() -> None:
    it = Sessions(1)
    it.fetch()
    it.fetch()
    it.it.manager.drop_fetch(it.waiting)
    it.it.woken.clear()
    it.it.append(at=place(0))
    it.it.pass_ms(1_000)
    assert it.it.woken == []


def test_an_answered_fetch_keeps_no_records_in_memory() -> None:
    """Its caller keeps the object as a token, for as long as a client may wait."""
    it = Broker()
    it.lead()
    it.append(3)
    it.run()
    fetch = it.open_fetch(SessionRequest(0, -1, ((place(), PartitionFetch(0, -1, -1)),)))
    answer = it.poll(fetch)
    assert answer is not None and answer.answers[0][1].batches
    assert not fetch.answers


def test_a_fetch_that_waits_keeps_no_records_in_memory() -> None:
    """Thousands of consumers may wait for a mebibyte each. The records are read again for the answer, all of them."""
    it = leading()
    it.assign(assigned(101, 101, at=place(1), isr=(101,)))
    it.run()
    for number in (0, 1):
        it.append(sent=records(1, 1_000), at=place(number))
    it.run()
    wanted = tuple((place(number), PartitionFetch(0, -1, -1)) for number in (0, 1))
    fetch = it.open_fetch(SessionRequest(0, -1, wanted), min_bytes=10_000)
    assert it.poll(fetch) is None
    assert [each.batches for each in fetch.answers.values()] == [(), ()]
    assert fetch.size_bytes > 2_000
    it.append(sent=records(1, 1_000))
    it.run()
    assert it.poll(fetch) is None
    assert [each.batches for each in fetch.answers.values()] == [(), ()]
    it.pass_ms(500)
    assert read_by(it, fetch) == {0: [0, 1], 1: [0]}


def test_a_fetch_that_has_waited_is_answered_by_what_the_partitions_have_now() -> None:
    """Partition 0 has another leader when partition 1 brings the bytes that the fetch waits for."""
    it = leading()
    it.assign(assigned(101, 101, at=place(1), isr=(101,)))
    it.run()
    it.append(sent=records(1, 1_000))
    it.run()
    wanted = tuple((place(number), PartitionFetch(0, -1, -1)) for number in (0, 1))
    fetch = it.open_fetch(SessionRequest(0, -1, wanted), min_bytes=2_000)
    assert it.poll(fetch) is None
    it.append(sent=records(1, 2_000), at=place(1))
    it.run()
    it.assign(assigned(101, 102, 2))
    assert read_by(it, fetch) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER, 1: [0]}


def read_by(it: Broker, fetch: OpenFetch) -> dict[int, list[int] | ErrorCode]:
    """Poll until the answer is there. Partition -> its error, or the base offsets of its batches."""
    answer = None
    while answer is None:
        it.woken.clear()
        answer = it.poll(fetch)
        assert answer is not None or fetch in it.woken, "the fetch waits"
    return {
        at[1]: [batch.base_offset for batch in each.batches] if each.error is ErrorCode.NONE else each.error
        for at, each in answer.answers
    }


def test_a_fetch_waits_for_no_more_bytes_than_it_takes() -> None:
    """It may have 300 bytes at most, so it does not wait for 4,000 of them (as in Kafka)."""
    it = leading()
    it.append(sent=records(1, 1_000))
    it.run()
    asked = SessionRequest(0, -1, ((place(), PartitionFetch(0, -1, -1)),))
    fetch = it.open_fetch(asked, min_bytes=4_000, max_bytes=300)
    assert only(it.poll(fetch)) == (ErrorCode.NONE, [0])
