"""The schedule of fetches: grouping, one request in flight, order, pauses and rest."""

import random

import pytest

from broker_agent.replica.fetch_sessions import SessionAnswer
from broker_agent.replica.fetchers import Fetcher, FetcherConfig, FetcherKey, Fetchers, Request, Rest
from broker_agent.replica.follower import AppendBatches, PartitionAnswer, PartitionFetch, PartitionFollower
from broker_agent.session.isr_proposals import Place
from metadata_log.format.errors import ErrorCode as E
from tests.broker_agent.replica.logs import batch, run

TOPIC = b"t" * 16
CONFIG = FetcherConfig()


def place(partition: int) -> Place:
    return (TOPIC, partition)


class Fetching:
    """One fetcher with some partitions of leader 1, without sessions, so that each request names all of them."""

    def __init__(self, partitions: int = 3) -> None:
        self.fetcher = Fetcher(CONFIG, random.Random(1))
        self.followers = {place(each): PartitionFollower(1, 5, run(5), 0) for each in range(partitions)}
        for each, follower in self.followers.items():
            self.fetcher.add(each, follower)
        self.number = 0

    def ask(self, now_ms: int = 0) -> list[int]:
        """The partitions of the next request, in its order."""
        request = self.fetcher.next(now_ms)
        assert isinstance(request, Request)
        self.number = request.number
        assert request.session.is_full
        return [partition for (_, partition), _ in request.session.fetches]

    def answer(self, now_ms: int = 0, **special: PartitionAnswer) -> list[object]:
        """Answers the request in flight: nothing new, but for `p1=...`. Returns the effects."""
        asked = self.fetcher.session.partitions
        answers = tuple((each, special.get(f"p{each[1]}", PartitionAnswer())) for each in asked)
        return [*self.fetcher.answered(self.number, SessionAnswer(answers=answers), now_ms)]


def test_partitions_are_grouped_by_source_and_fetcher_id() -> None:
    """Kafka: one fetcher for all partitions of one source broker and fetcher id, the same in each process."""
    fetchers = Fetchers(FetcherConfig(num_fetchers=2), random.Random(1))
    keys = [fetchers.follow(place(each), PartitionFollower(1 + each % 2, 5, run(), 0)) for each in range(8)]
    assert set(keys) == {FetcherKey(1, 0), FetcherKey(2, 1)} or set(keys) == {FetcherKey(1, 1), FetcherKey(2, 0)}
    assert sorted(len(fetchers.fetcher(key) or ()) for key in fetchers) == [4, 4]
    ids = {fetchers.key(place(each), 1).fetcher_id for each in range(8)}
    assert ids == {0, 1}


def test_a_partition_moves_to_the_fetcher_of_its_new_leader() -> None:
    """A fetcher without partitions ends."""
    fetchers = Fetchers(CONFIG, random.Random(1))
    follower = PartitionFollower(1, 5, run(), 0)
    assert fetchers.follow(place(0), follower) == FetcherKey(1, 0)
    follower.follow(2, 6)
    assert fetchers.follow(place(0), follower) == FetcherKey(2, 0)
    assert list(fetchers) == [FetcherKey(2, 0)]
    fetchers.stop(place(0))
    fetchers.stop(place(0))
    assert list(fetchers) == []


def test_one_request_asks_for_all_partitions_and_one_is_in_flight() -> None:
    """Kafka: one request for all partitions of the source. The next leaves after the answer."""
    it = Fetching()
    assert it.ask() == [0, 1, 2]
    assert it.fetcher.next(0) == Rest(None)
    assert it.answer() == []
    assert it.ask() == [0, 1, 2]


def test_a_partition_with_data_moves_to_the_end() -> None:
    """Kafka: the bytes of the next answer go to the others first. The effects name their partition."""
    it = Fetching()
    it.ask()
    new = batch(1, 5, "a")
    assert it.answer(p0=PartitionAnswer(batches=(new,))) == [(place(0), AppendBatches((new,)))]
    assert it.ask() == [1, 2], "partition 0 is left out while its log works"
    it.followers[place(0)].log_changed(run(5, 5))
    it.answer()
    assert it.ask() == [1, 2, 0]


def test_a_partition_with_an_error_is_left_out_for_a_while() -> None:
    """Kafka: an error costs its own partition a pause, and moves it to the end; the others go on."""
    it = Fetching()
    it.ask()
    it.answer(1_000, p0=PartitionAnswer(E.NOT_LEADER_OR_FOLLOWER))
    assert it.ask(1_499) == [1, 2]
    it.answer(1_499)
    assert it.ask(2_000) == [1, 2, 0]


def test_a_late_answer_has_no_effect() -> None:
    """The request had failed, and the next one is in flight."""
    it = Fetching()
    it.ask()
    first = it.number
    it.fetcher.failed(first, 0)
    it.ask(1_000)
    assert it.fetcher.answered(first, SessionAnswer(), 1_000) == []
    it.fetcher.failed(first, 1_000)
    assert it.fetcher.next(1_000) == Rest(None), "the second request is still in flight"


def test_a_dead_source_is_asked_after_pauses_that_double() -> None:
    """The pauses have jitter, half to all, and end at their maximum. The first good answer ends them."""
    it = Fetching()
    now_ms, pauses = 0, []
    for _ in range(6):
        it.ask(now_ms)
        it.fetcher.failed(it.number, now_ms)
        rest = it.fetcher.next(now_ms)
        assert isinstance(rest, Rest)
        assert rest.until_ms is not None
        pauses.append(rest.until_ms - now_ms)
        now_ms = rest.until_ms
    for pause_ms, most_ms in zip(pauses, (1_000, 2_000, 4_000, 8_000, 10_000, 10_000), strict=True):
        assert most_ms / 2 <= pause_ms <= most_ms
    assert len({pause / most for pause, most in zip(pauses[-2:], (10_000, 10_000), strict=True)}) == 2
    it.ask(now_ms)
    it.answer(now_ms)
    it.ask(now_ms)
    it.fetcher.failed(it.number, now_ms)
    assert it.ask(now_ms + 1_000)


def test_a_fetcher_without_active_partitions_rests() -> None:
    """Kafka: nothing to fetch, so the fetcher waits: until the first pause ends, or for another partition."""
    it = Fetching(2)
    it.ask()
    it.answer(0, p0=PartitionAnswer(E.STORAGE_ERROR), p1=PartitionAnswer(E.FENCED_LEADER_EPOCH))
    rest = it.fetcher.next(0)
    assert isinstance(rest, Rest)
    assert rest.until_ms is not None
    assert 500 <= rest.until_ms <= 1_000
    it.fetcher.remove(place(0))
    assert it.fetcher.next(1_000) == Rest(None), "partition 1 waits for metadata"
    it.followers[place(1)].follow(1, 6)
    it.fetcher.add(place(1), it.followers[place(1)])
    assert it.ask(0) == [1], "newer metadata ends the pause"


def test_an_answer_to_a_removed_partition_has_no_effect() -> None:
    """The partition was removed while its request was in flight."""
    it = Fetching()
    it.ask()
    it.fetcher.remove(place(1))
    assert it.answer(p1=PartitionAnswer(batches=(batch(1, 5, "a"),))) == []
    assert len(it.fetcher) == 2
    assert list(it.fetcher) == [place(0), place(2)]


@pytest.mark.parametrize("error", [E.FETCH_SESSION_ID_NOT_FOUND, E.INVALID_FETCH_SESSION_EPOCH])
def test_a_refused_session_costs_the_fetcher_a_pause(error: E) -> None:
    """The next request is full."""
    it = Fetching()
    it.ask()
    assert it.fetcher.answered(it.number, SessionAnswer(error), 0) == []
    assert isinstance(it.fetcher.next(0), Rest)
    assert it.ask(1_000) == [0, 1, 2]


def test_a_request_in_a_session_costs_only_what_has_changed() -> None:
    """A thousand idle partitions and one busy one: the next fetch of the busy one alone is computed again."""
    asked: list[int] = []

    class Counted(PartitionFollower):
        def next_fetch(self) -> PartitionFetch:
            asked.append(1)
            return super().next_fetch()

    it = Fetcher(CONFIG, random.Random(1))
    followers = [Counted(1, 5, run(5, 5), 0) for _ in range(1_000)]
    for number, each in enumerate(followers):
        it.add((TOPIC, number), each)
    first = it.next(0)
    assert isinstance(first, Request)
    answers = tuple((at, PartitionAnswer()) for at, _ in first.session.fetches)
    it.answered(first.number, SessionAnswer(E.NONE, 77, answers), 0)
    followers[7].log_changed(run(5, 5, 5))
    it.next(0)  # the answers have told that each partition may have changed
    it.answered(2, SessionAnswer(E.NONE, 77), 0)
    asked.clear()
    followers[7].log_changed(run(5, 5, 5, 5))
    again = it.next(0)
    assert isinstance(again, Request)
    assert [at[1] for at, _ in again.session.fetches] == [7]
    assert len(asked) == 1
