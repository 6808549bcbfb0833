"""Incremental fetch sessions, both halves (KIP-227): full first, then only changes; a doubt begins anew; the cache is bounded."""

import random

from broker_agent.replica.fetch_sessions import (
    EPOCH_MAX,
    FINAL_EPOCH,
    FetchSession,
    SessionAnswer,
    SessionRequest,
    next_epoch,
)
from broker_agent.replica.follower import PartitionAnswer, PartitionFetch
from broker_agent.replica.session_cache import SessionCache, SessionLimits
from broker_agent.session.isr_proposals import Place
from metadata_log.format.errors import ErrorCode as E
from metadata_log.format.ids import OffsetAndEpoch
from tests.broker_agent.replica.logs import batch

TOPIC = b"t" * 16


def place(partition: int) -> Place:
    return (TOPIC, partition)


def wanted(*offsets: int) -> dict[Place, PartitionFetch]:
    return {place(partition): PartitionFetch(offset, 5, 5) for partition, offset in enumerate(offsets)}


class Link:
    """A fetcher's session and its source. Each source answers with the high watermarks in `marks`, and `data`."""

    def __init__(self, limits: SessionLimits | None = None) -> None:
        self.cache = SessionCache(limits or SessionLimits(), random.Random(1))
        self.session = FetchSession()
        self.marks: dict[Place, int] = {}
        self.data: dict[Place, PartitionAnswer] = {}
        self.read: list[int] = []
        self.sent: SessionRequest | None = None

    def fetch(self, want: dict[Place, PartitionFetch], now_ms: int = 0, *, lose: bool = False) -> list[int] | None:
        """The partitions of the answer; None if the fetcher does not accept the answer, or has not got it."""
        self.sent = self.session.request(want)
        context = self.cache.open(self.sent, now_ms, privileged=True)
        self.read = [partition for (_, partition), _ in context.fetches]
        answers = {
            each: self.data.get(each, PartitionAnswer(high_watermark=self.marks.get(each, 0)))
            for each, _ in context.fetches
        }
        answer = context.answer(answers)
        self.data = {}
        if lose:
            self.session.begin_anew()
            return None
        return [partition for (_, partition), _ in answer.answers] if self.session.accepts(answer) else None


def test_a_full_request_first_then_only_changes() -> None:
    """The source still reads all partitions: each of them counts as fetched at its known offset."""
    it = Link()
    assert it.fetch(wanted(3, 4, 5)) == [0, 1, 2]
    assert it.fetch(wanted(3, 4, 5)) == []
    assert (it.read, it.sent and it.sent.fetches) == ([0, 1, 2], ())
    it.fetch(wanted(3, 9, 5))
    assert it.sent is not None
    assert [each[1] for each, _ in it.sent.fetches] == [1]


def test_a_high_watermark_that_the_fetcher_has_not_taken_is_told_again() -> None:
    """A follower takes no high watermark if its log diverges, or if it has begun another leader epoch meanwhile."""
    it = Link()
    it.fetch(wanted(4, 4))
    it.marks[place(0)] = it.marks[place(1)] = 2
    it.data = {place(0): PartitionAnswer(high_watermark=2, diverged=OffsetAndEpoch(2, 5))}
    assert it.fetch(wanted(4, 4)) == [0, 1]
    later = {place(0): PartitionFetch(2, 5, 5), place(1): PartitionFetch(4, 6, 5)}
    assert it.fetch(later) == [0, 1]
    assert it.fetch(later) == []


def test_a_request_without_a_session_ends_the_session_that_it_names() -> None:
    it = Link()
    it.fetch(wanted(3))
    request = SessionRequest(it.session.session_id, FINAL_EPOCH, tuple(wanted(3).items()))
    answer = it.cache.open(request, 0, privileged=False).answer({place(0): PartitionAnswer()})
    assert (answer.session_id, len(answer.answers), len(it.cache)) == (0, 1, 0)


def test_the_answer_has_only_partitions_with_news() -> None:
    """Records, a divergence, an error, another high watermark or log start. An error is told each time, and its end too."""
    it = Link()
    it.fetch(wanted(0, 0, 0, 0))
    it.data = {place(0): PartitionAnswer(batches=(batch(0, 5, "a"),))}
    assert it.fetch(wanted(0, 0, 0, 0)) == [0]
    it.marks[place(1)] = 1
    assert it.fetch(wanted(0, 0, 0, 0)) == [1]
    assert it.fetch(wanted(0, 0, 0, 0)) == []
    for _ in range(2):
        it.data = {place(2): PartitionAnswer(E.NOT_LEADER_OR_FOLLOWER)}
        assert it.fetch(wanted(0, 0, 0, 0)) == [2]
    assert it.fetch(wanted(0, 0, 0, 0)) == [2]
    it.data = {place(3): PartitionAnswer(diverged=OffsetAndEpoch(0, 1))}
    assert it.fetch(wanted(0, 0, 0, 0)) == [3]
    it.data = {place(3): PartitionAnswer(log_start_offset=7)}
    assert it.fetch(wanted(0, 0, 0, 0)) == [3]


def test_partitions_that_leave_are_forgotten_and_may_return() -> None:
    """A partition that is left out for a pause leaves the session, so that the source does not read for it."""
    it = Link()
    it.fetch(wanted(0, 0, 0))
    without = wanted(0, 0, 0)
    del without[place(1)]
    it.fetch(without)
    assert it.sent is not None
    assert (it.sent.forgotten, it.read) == ((place(1),), [0, 2])
    assert it.fetch(wanted(0, 0, 0)) == [1]


def test_a_partition_with_records_moves_to_the_end_at_the_source() -> None:
    """The source reads in the session's order until the answer is full, so each partition gets its turn."""
    it = Link()
    it.fetch(wanted(0, 0, 0))
    it.data = {place(0): PartitionAnswer(batches=(batch(0, 5, "a"),))}
    it.fetch(wanted(0, 0, 0))
    it.fetch(wanted(1, 0, 0))
    assert it.read == [1, 2, 0]


def test_a_lost_answer_begins_a_new_session() -> None:
    """The source has already noted the news as said. The full request ends the old session, and takes its slot."""
    it = Link()
    it.fetch(wanted(0, 0))
    it.marks[place(0)] = 5
    assert it.fetch(wanted(0, 0), lose=True) is None
    before = it.session.session_id
    assert it.fetch(wanted(0, 0)) == [0, 1]
    assert it.session.session_id != before
    assert len(it.cache) == 1


def test_a_restarted_source_refuses_the_session() -> None:
    """The next request is full, and begins a new session."""
    it = Link()
    it.fetch(wanted(0, 0))
    it.cache = SessionCache(SessionLimits(), random.Random(2))
    assert it.fetch(wanted(0, 0)) is None
    assert it.fetch(wanted(0, 0)) == [0, 1]
    assert it.fetch(wanted(0, 0)) == []


def test_a_repeated_request_is_refused_by_its_epoch() -> None:
    """The epochs count the requests: a late or repeated request must not change the session."""
    it = Link()
    it.fetch(wanted(0, 0))
    it.fetch(wanted(1, 0))
    assert it.sent is not None
    context = it.cache.open(it.sent, 0, privileged=True)
    assert context.answer({}) == SessionAnswer(E.INVALID_FETCH_SESSION_EPOCH)
    assert it.fetch(wanted(2, 0)) == []


def test_the_epoch_begins_at_1_again_after_the_largest() -> None:
    """Epoch 0 would mean a full request."""
    assert (next_epoch(EPOCH_MAX - 1), next_epoch(EPOCH_MAX)) == (EPOCH_MAX, 1)


def test_an_answer_that_does_not_fit_the_request_is_refused() -> None:
    """A full answer lacks a partition; an answer in a session names a foreign one, or another session."""
    session = FetchSession()
    session.request(wanted(0, 0))
    good = PartitionAnswer()
    assert not session.accepts(SessionAnswer(session_id=7, answers=((place(0), good),)))
    session.request(wanted(0, 0))
    assert session.accepts(SessionAnswer(session_id=7, answers=((place(0), good), (place(1), good))))
    assert session.request(wanted(0, 0)) == SessionRequest(7, 1, ())
    assert not session.accepts(SessionAnswer(session_id=7, answers=((place(9), good),)))
    assert session.request(wanted(0)).is_full


def full(partitions: int) -> SessionRequest:
    return SessionRequest(0, 0, tuple(wanted(*range(partitions)).items()))


def granted(cache: SessionCache, partitions: int, now_ms: int, *, privileged: bool = True) -> int:
    """The id of the new session; 0 if none was granted."""
    context = cache.open(full(partitions), now_ms, privileged=privileged)
    return context.answer(dict.fromkeys(wanted(*range(partitions)), PartitionAnswer())).session_id


def test_a_full_cache_grants_no_session_and_still_answers() -> None:
    """The fetcher goes on with full requests. A session that was idle for two minutes gives way."""
    cache = SessionCache(SessionLimits(slots_max=2), random.Random(1))
    assert granted(cache, 3, 0)
    assert granted(cache, 3, 1)
    assert granted(cache, 3, 2) == 0
    assert len(cache) == 2
    assert granted(cache, 3, 120_001)
    assert len(cache) == 2


def test_a_follower_ranks_above_a_client_and_a_large_session_above_a_small_one() -> None:
    """Only a session that is old enough gives way, so that two fetchers do not take the slot from each other in turn."""
    cache = SessionCache(SessionLimits(slots_max=1), random.Random(1))
    client = granted(cache, 9, 0, privileged=False)
    assert cache.open(SessionRequest(client, 1, ()), 119_000, privileged=False).error is E.NONE
    assert granted(cache, 2, 120_000) == 0, "too young"
    small = granted(cache, 2, 120_001)
    assert small
    assert cache.open(SessionRequest(small, 1, ()), 230_000, privileged=True).error is E.NONE
    assert granted(cache, 9, 240_100, privileged=False) == 0
    assert granted(cache, 2, 240_200) == 0, "not larger"
    assert granted(cache, 3, 240_200)


def test_the_cache_bounds_its_partitions() -> None:
    """A session that would exceed the limit ends, or is not granted: its fetcher goes on with full requests."""
    cache = SessionCache(SessionLimits(partitions_max=5), random.Random(1))
    session_id = granted(cache, 3, 0)
    assert granted(cache, 3, 0) == 0
    assert cache.open(SessionRequest(0, 0, ()), 0, privileged=True).answer({}).session_id == 0
    more = tuple((place(each), PartitionFetch(0, 5, 5)) for each in range(3, 6))
    context = cache.open(SessionRequest(session_id, 1, more), 0, privileged=True)
    assert context.error is E.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.partition_count) == (0, 0)


def test_both_halves_agree_after_every_accepted_answer() -> None:
    """Dumb twin: after each request the source reads exactly what the fetcher wants, whatever was lost or restarted."""
    rng = random.Random(3)
    it = Link(SessionLimits(slots_max=1))
    accepted = incremental = 0
    for _ in range(3_000):
        want = {
            place(each): PartitionFetch(rng.randint(0, 2), 5, 5) for each in rng.sample(range(6), rng.randint(1, 6))
        }
        if rng.random() < 0.05:
            it.cache = SessionCache(SessionLimits(), random.Random(rng.random()))
        if it.fetch(want, lose=rng.random() < 0.1) is None:
            continue
        accepted += 1
        assert it.sent is not None
        incremental += not it.sent.is_full
        assert sorted(it.read) == sorted(partition for _, partition in want)
    assert incremental > accepted * 0.7
