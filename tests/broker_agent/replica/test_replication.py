"""Forty partitions between two brokers: leaders, session cache, fetchers and followers, over a link that loses messages."""

import random

from broker_agent.replica.divergence import Diverged, Refused, Valid
from broker_agent.replica.fetch_sessions import SessionAnswer, SessionRequest
from broker_agent.replica.fetchers import Fetcher, FetcherConfig, Fetchers, Request
from broker_agent.replica.follower import AppendBatches, PartitionAnswer, PartitionFetch, PartitionFollower
from broker_agent.replica.isr import IsrAnswer, PartitionMetadata, ProposeIsr
from broker_agent.replica.leader import LeaderConfig, LeaderEffects, PartitionLeader, ReplicaFetch
from broker_agent.replica.purgatory import Acks
from broker_agent.replica.session_cache import SessionCache, SessionLimits
from broker_agent.session.isr_proposals import Place
from metadata_log.format.errors import ErrorCode
from tests.broker_agent.replica.logs import MemoryLog, batch

PLACES = [(bytes([topic]) * 16, partition) for topic in range(4) for partition in range(10)]
BATCHES_MAX = 3
"""How many batches an answer has at most: far fewer than there are partitions with news."""


class Source:
    """Broker 1 leads all partitions in leader epoch 1. It grants each ISR proposal by itself."""

    def __init__(self) -> None:
        self.logs = {place: MemoryLog() for place in PLACES}
        candidates = {1: 11, 2: 12}
        self.leaders = {
            place: PartitionLeader(
                1, 11, PartitionMetadata(1, 1, 0, (1, 2), (1,)), log.shape, 0, LeaderConfig(), candidates, 0
            )
            for place, log in self.logs.items()
        }
        self.cache = SessionCache(SessionLimits(), random.Random(1))

    def write(self, place: Place, value: str) -> None:
        log, leader = self.logs[place], self.leaders[place]
        log.append(batch(log.end, 1, value))
        log.flush()
        self.carry_out(place, leader.appended(log.shape, log.end, 0, Acks.NONE, 0, 0))

    def carry_out(self, place: Place, effects: LeaderEffects) -> None:
        leader = self.leaders[place]
        for effect in effects:
            if isinstance(effect, ProposeIsr):
                answer = IsrAnswer(ErrorCode.NONE, 1, effect.partition_epoch + 1, effect.members)
                self.carry_out(place, leader.answered(effect, answer, 0))

    def serve(self, request: SessionRequest, now_ms: int) -> SessionAnswer:
        context, room = self.cache.open(request, now_ms, privileged=True), BATCHES_MAX
        answers = {}
        for place, fetch in context.fetches:
            answers[place] = self._read(place, fetch, room, now_ms)
            room -= len(answers[place].batches)
        return context.answer(answers)

    def _read(self, place: Place, fetch: PartitionFetch, room: int, now_ms: int) -> PartitionAnswer:
        leader = self.leaders[place]
        asked = ReplicaFetch(2, 12, fetch.leader_epoch, fetch.offset, fetch.last_fetched_epoch)
        verdict, effects = leader.fetched(asked, now_ms)
        self.carry_out(place, effects)
        match verdict:
            case Valid():
                batches = self.logs[place].read(fetch.offset, room)
                return PartitionAnswer(high_watermark=leader.high_watermark, batches=batches)
            case Diverged(end):
                return PartitionAnswer(diverged=end)
            case Refused(code):
                return PartitionAnswer(code)


class Follower:
    """Broker 2 follows in all partitions, with two fetchers."""

    def __init__(self) -> None:
        self.logs = {place: MemoryLog() for place in PLACES}
        self.followers = {place: PartitionFollower(1, 1, log.shape, 0) for place, log in self.logs.items()}
        self.fetchers = Fetchers(FetcherConfig(num_fetchers=2), random.Random(2))
        for place, follower in self.followers.items():
            self.fetchers.follow(place, follower)
        self.full = self.incremental = 0

    def round(self, source: Source, now_ms: int, lost: bool) -> None:
        """One request of each fetcher, if it is due."""
        for key in self.fetchers:
            fetcher = self.fetchers.fetcher(key)
            assert fetcher is not None
            request = fetcher.next(now_ms)
            if isinstance(request, Request):
                self._exchange(fetcher, request, source, now_ms, lost)

    def _exchange(self, fetcher: Fetcher, request: Request, source: Source, now_ms: int, lost: bool) -> None:
        self.full += request.session.is_full
        self.incremental += not request.session.is_full
        answer = source.serve(request.session, now_ms)
        if lost:
            fetcher.failed(request.number, now_ms)
            return
        for place, effect in fetcher.answered(request.number, answer, now_ms):
            if isinstance(effect, AppendBatches):
                for each in effect.batches:
                    self.logs[place].append(each)
                self.logs[place].flush()
                self.followers[place].log_changed(self.logs[place].shape)


def behind(source: Source, follower: Follower) -> list[Place]:
    return [each for each in PLACES if source.logs[each].records() != follower.logs[each].records()]


def test_all_partitions_catch_up_whatever_is_lost() -> None:
    """Requests, answers and the source's sessions are lost; in the end all logs and high watermarks are equal."""
    rng = random.Random(5)
    source, follower = Source(), Follower()
    now_ms = 0
    for step in range(300):
        now_ms += 200
        for place in rng.sample(PLACES, 2):
            source.write(place, f"{step}")
        if rng.random() < 0.02:
            source.cache = SessionCache(SessionLimits(), random.Random(step))
        follower.round(source, now_ms, lost=rng.random() < 0.1)
    for _ in range(300):
        now_ms += 200
        follower.round(source, now_ms, lost=False)
    assert behind(source, follower) == []
    for place in PLACES:
        leader = source.leaders[place]
        assert leader.isr.committed == {1, 2}
        assert leader.high_watermark == follower.followers[place].high_watermark == source.logs[place].end
    assert follower.incremental > 3 * follower.full


def test_no_partition_starves_while_answers_are_full() -> None:
    """Each answer has room for three batches, and each fetcher has twenty partitions: each gets its turn once."""
    source, follower = Source(), Follower()
    for place in PLACES:
        for value in range(20):
            source.write(place, f"{value}")
    for step in range(20):
        follower.round(source, step, lost=False)
    assert {log.end for log in follower.logs.values()} == {3}
