"""The high watermark and the ISR proposals, compared with a dumb twin that keeps the whole history and computes all from it."""

import random
from dataclasses import dataclass, field

from broker_agent.replica.isr import IsrAnswer, PartitionMetadata
from broker_agent.replica.leader import LeaderConfig, LeaderEffects, PartitionLeader, ReplicaFetch
from metadata_log.format.errors import ErrorCode
from tests.broker_agent.replica.logs import run

REPLICAS = (1, 2, 3, 4)
LAG_MS = 100


@dataclass
class Twin:
    """Broker 1 leads epoch 5; the log had two records of epoch 4, and the high watermark 1."""

    min_isr: int
    isr: set[int]
    proposed: set[int] | None = None
    candidates: dict[int, int] = field(default_factory=dict)
    end: int = 2
    flushed: int = 2
    high_watermark: int = 1
    fetches: dict[int, list[tuple[int, int, int, int]]] = field(default_factory=lambda: {2: [], 3: [], 4: []})
    """Follower -> (time, offset, broker epoch, end of the leader's log)."""
    had_all: list[tuple[int, int]] = field(default_factory=list)
    """(time, follower) of the members that had the whole log when it grew."""
    first: set[int] = field(default_factory=set)
    """The ISR when the leader epoch began."""

    def caught_up(self, broker_id: int, now_ms: int) -> bool:
        times = [0] if broker_id in self.first else []
        times += [at_ms for at_ms, member in self.had_all if member == broker_id]
        previous: tuple[int, int, int, int] | None = None
        for fetch in self.fetches[broker_id]:
            at_ms, offset, _, leader_end = fetch
            if offset >= leader_end:
                times.append(at_ms)
            elif previous is not None and offset >= previous[3]:
                times.append(previous[0])
            previous = fetch
        if previous is not None and previous[1] == self.end:
            return True
        return bool(times) and now_ms - max(times) <= LAG_MS

    def eligible(self, broker_id: int) -> bool:
        fetches = self.fetches[broker_id]
        return bool(fetches) and self.candidates.get(broker_id) == fetches[-1][2]

    def advance(self, now_ms: int) -> None:
        if len(self.isr) < self.min_isr:
            return
        counted = {each for each in self.fetches if self.caught_up(each, now_ms) and self.eligible(each)}
        counted |= (self.isr | (self.proposed or set())) - {1}
        ends = [self.fetches[each][-1][1] if self.fetches[each] else 0 for each in counted]
        self.high_watermark = max(self.high_watermark, min([self.flushed, *ends]))

    def grow(self, broker_id: int) -> None:
        offset = self.fetches[broker_id][-1][1]
        if self.proposed is None and broker_id not in self.isr and self.eligible(broker_id):  # noqa: SIM102
            if offset >= self.high_watermark and offset >= 2:
                self.proposed = self.isr | {broker_id}

    def shrink(self, now_ms: int) -> None:
        late = {each for each in self.isr - {1} if not self.caught_up(each, now_ms)}
        if self.proposed is None and late:
            self.proposed = self.isr - late


class Pair:
    """The leader and its twin; each operation goes to both."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.partition_epoch = 0
        isr = {1, *self.rng.sample((2, 3, 4), self.rng.randint(0, 3))}
        self.twin = Twin(self.rng.randint(1, 3), set(isr), first=set(isr))
        self.twin.candidates = {1: 11, 2: 12, 3: 13, 4: 14}
        metadata = PartitionMetadata(1, 5, 0, REPLICAS, tuple(sorted(isr)))
        config = LeaderConfig(LAG_MS, self.twin.min_isr)
        self.leader = PartitionLeader(1, 11, metadata, run(4, 4), 1, config, self.twin.candidates, 0)
        self.twin.advance(0)
        self.met: list[str] = []

    def step(self) -> None:
        self.now_ms += self.rng.randint(0, 15)
        operation = self.rng.choice(
            (self.append, self.flush, self.fetch, self.fetch, self.fetch, self.tick, self.answer, self.brokers)
        )
        before = self.leader.high_watermark
        operation()
        self.twin.advance(self.now_ms)
        proposed = None if self.leader.isr.proposal is None else set(self.leader.isr.proposal.members)
        assert (self.leader.high_watermark, proposed) == (self.twin.high_watermark, self.twin.proposed)
        assert self.leader.isr.committed == self.twin.isr
        self.met += ["moved"] * (self.leader.high_watermark > before)

    def _shape(self) -> LeaderEffects:
        epochs = [4, 4] + [5] * (self.twin.end - 2)
        return self.leader.log_changed(run(*epochs, flushed=self.twin.flushed), self.now_ms)

    def append(self) -> LeaderEffects:
        twin = self.twin
        had_all = [each for each in twin.isr - {1} if twin.fetches[each] and twin.fetches[each][-1][1] == twin.end]
        twin.had_all += [(self.now_ms, each) for each in had_all]
        twin.end += self.rng.randint(1, 2)
        return self._shape()

    def flush(self) -> LeaderEffects:
        self.twin.flushed = self.twin.end
        return self._shape()

    def fetch(self) -> LeaderEffects:
        twin, broker_id = self.twin, self.rng.choice((2, 3, 4))
        offset = max(0, twin.end - self.rng.choice((0, 0, 0, 1, 1, 2, 5)))
        broker_epoch = 10 + broker_id
        twin.fetches[broker_id].append((self.now_ms, offset, broker_epoch, twin.end))
        twin.grow(broker_id)
        last = 0 if offset == 0 else 4 if offset <= 2 else 5
        return self.leader.fetched(ReplicaFetch(broker_id, broker_epoch, 5, offset, last), self.now_ms)[1]

    def tick(self) -> LeaderEffects:
        self.twin.shrink(self.now_ms)
        return self.leader.tick(self.now_ms)

    def answer(self) -> LeaderEffects:
        proposal, twin = self.leader.isr.proposal, self.twin
        if proposal is None or twin.proposed is None:
            return self.tick()
        if self.rng.random() < 0.7:
            self.met.append("grown" if len(twin.proposed) > len(twin.isr) else "shrunk")
            twin.isr, twin.proposed = twin.proposed, None
            self.partition_epoch += 1
            granted = IsrAnswer(ErrorCode.NONE, 5, self.partition_epoch, proposal.members)
            return self.leader.answered(proposal, granted, self.now_ms)
        twin.proposed = None
        return self.leader.answered(proposal, IsrAnswer(ErrorCode.INELIGIBLE_REPLICA), self.now_ms)

    def brokers(self) -> LeaderEffects:
        active = {1, *self.rng.sample((2, 3, 4), 3 if self.rng.random() < 0.7 else 2)}
        self.twin.candidates = {each: 10 + each for each in active}
        return self.leader.brokers_changed(self.twin.candidates, self.now_ms)


def test_the_leader_agrees_with_its_dumb_twin() -> None:
    """Appends, flushes, fetches, ticks, answers and changes of brokers in random order, with 1 to 3 as min.insync.replicas."""
    met: list[str] = []
    for seed in range(60):
        pair = Pair(seed)
        for _ in range(60):
            pair.step()
        met += pair.met
    assert min(met.count(each) for each in ("moved", "grown", "shrunk")) > 60
