"""Three replicas of one partition, a toy controller and a lossy network, driven by one seed. Laws are checked after each event.

The replicas run the real `PartitionLeader` and `PartitionFollower` over logs in memory. The faults: messages are lost, repeated
and late; links are slow; processes die and lose all bytes above the last flush, or return with an empty disk; brokers are fenced
without reason; leaderships move; metadata arrives late. Calls of AlterPartition are lost too, but a leader has one call in flight
at a time.

Faults end with `heal`: then all replicas must soon agree, be in the ISR, and commit another record.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from broker_agent.replica.divergence import Diverged, Refused, Valid
from broker_agent.replica.follower import (
    AppendBatches,
    BeginAt,
    FollowerEffects,
    FollowerHighWatermarkMoved,
    PartitionAnswer,
    PartitionFetch,
    PartitionFollower,
    RaiseLogStart,
    StopReplica,
    TruncateLog,
)
from broker_agent.replica.isr import NO_ANSWER, IsrAnswer, ProposeIsr
from broker_agent.replica.leader import (
    FollowerMoved,
    LeaderConfig,
    LeaderEffects,
    LeaderHighWatermarkMoved,
    PartitionLeader,
    ReplicaFetch,
)
from broker_agent.replica.purgatory import Acks, ProduceDone
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, NodeId
from tests.broker_agent.replica.logs import MemoryLog, batch
from tests.broker_agent.replica.model.laws import LagWatch, LawBroken, Laws, Record
from tests.broker_agent.replica.model.toy_controller import State, ToyController

REPLICAS = (1, 2, 3)


@dataclass(frozen=True)
class FetchMessage:
    source: NodeId
    fetch: ReplicaFetch
    asked: PartitionFetch


@dataclass(frozen=True)
class AnswerMessage:
    source: NodeId
    to: NodeId
    process: int
    asked: PartitionFetch
    answer: PartitionAnswer


@dataclass(frozen=True, eq=False)
class Call:
    """A call of AlterPartition. It may arrive after its sender's leadership has ended."""

    sender: NodeId
    leader: PartitionLeader
    proposal: ProposeIsr


class Broker:
    """One broker: a disk with a log and a checkpoint of the high watermark, and the memory of its process."""

    def __init__(self, broker_id: NodeId, cluster: "ModelCluster") -> None:
        self.broker_id = broker_id
        self.cluster = cluster
        self.log = MemoryLog()
        self.checkpoint = 0
        self.up = True
        self.broker_epoch = 10 + broker_id
        self.seen = -1
        """The version of the metadata that this process has read."""
        self.registered_at = 0
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        self.watch: LagWatch | None = None
        self.waiting: dict[int, dict[int, Record]] = {}

    @property
    def high_watermark(self) -> int:
        role = self.leader or self.follower
        return self.checkpoint if role is None else role.high_watermark

    # --- the life of the process -------------------------------------------------------------------------------------

    def crash(self) -> None:
        self.up = False
        self.log.lose_unflushed()
        self.checkpoint = min(self.checkpoint, self.log.end)
        self.leader = self.follower = self.watch = None
        self.waiting.clear()

    def restart(self, *, wiped: bool) -> None:
        controller = self.cluster.controller
        if wiped:
            self.log, self.checkpoint = MemoryLog(), 0
        self.broker_epoch = controller.register(self.broker_id)
        self.up, self.seen, self.registered_at = True, -1, len(controller.states) - 1

    # --- metadata ----------------------------------------------------------------------------------------------------

    def read_metadata(self, version: int) -> None:
        """A process acts only on metadata that has its own registration. Versions may be skipped."""
        assert version > self.seen
        self.seen = version
        if version < self.registered_at:
            return
        state, now_ms = self.cluster.controller.states[version], self.cluster.now_ms
        if self.leader is not None and self.leader.leader_epoch == state.partition.leader_epoch:
            self.lead(self.leader.brokers_changed(state.candidates, now_ms))
            self.lead(self.leader.metadata(state.partition, now_ms))
            return
        role = self.leader or self.follower
        if role is not None and role.leader_epoch == state.partition.leader_epoch:
            return
        self._take_role(state)

    def _take_role(self, state: State) -> None:
        partition, known = state.partition, self.high_watermark
        if self.leader is not None:
            self.lead(self.leader.resign())
        self.leader = self.watch = None
        self.log.flush()
        self.cluster.laws.flushed(self.broker_id, self.log)
        self.checkpoint = known
        if partition.leader_id == NO_LEADER:
            self.follower = None
        elif partition.leader_id != self.broker_id:
            self._follow(partition.leader_id, partition.leader_epoch, known)
        else:
            self.follower = None
            self.cluster.laws.elected(self.broker_id, self.broker_epoch, partition.leader_epoch, self.log)
            self.leader = PartitionLeader(
                self.broker_id, self.broker_epoch, partition, self.log.shape, known, self.cluster.config, state.candidates,
                self.cluster.now_ms,
            )  # fmt: skip
            self.watch = LagWatch(self.leader, self.cluster.now_ms)

    def _follow(self, leader_id: NodeId, leader_epoch: int, known: int) -> None:
        if self.follower is None:
            self.follower = PartitionFollower(leader_id, leader_epoch, self.log.shape, known)
        else:
            self.follower.log_changed(self.log.shape)
            self.follower.follow(leader_id, leader_epoch)

    # --- leading -----------------------------------------------------------------------------------------------------

    def write(self, token: int, values: tuple[str, ...], acks: Acks) -> None:
        leader = self.leader
        if leader is None or leader.refusal_of_write(acks) is not ErrorCode.NONE:
            return
        new = batch(self.log.end, leader.leader_epoch, *values)
        self.log.append(new)
        if acks is Acks.ALL:
            records = {new.base_offset + at: (new.epoch, value) for at, value in enumerate(values)}
            self.waiting[token] = records
        now_ms = self.cluster.now_ms
        self.lead(leader.appended(self.log.shape, self.log.end, token, acks, now_ms + 2_000, now_ms))
        assert self.watch is not None
        self.watch.appended(now_ms)

    def lead(self, effects: LeaderEffects) -> None:
        for effect in effects:
            match effect:
                case ProposeIsr():
                    assert self.leader is not None
                    self.cluster.call(Call(self.broker_id, self.leader, effect))
                case ProduceDone(token, code):
                    records = self.waiting.pop(token, None)
                    if records is not None and code is ErrorCode.NONE:
                        self.cluster.laws.acknowledge(records)
                        self.cluster.acknowledged += 1
                case LeaderHighWatermarkMoved() | FollowerMoved():
                    pass
                case _:
                    assert_never(effect)

    def serve(self, message: FetchMessage) -> AnswerMessage | None:
        """Answer a fetch, as far as this broker leads."""
        answer = PartitionAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        leader, fetch = self.leader, message.fetch
        if leader is not None:
            verdict, effects = leader.fetched(fetch, self.cluster.now_ms)
            self.lead(effects)
            match verdict:
                case Valid():
                    assert self.watch is not None
                    self.watch.fetched(fetch.broker_id, fetch.offset)
                    batches = self.log.read(fetch.offset, 2 if self.cluster.faulty else 1_000)
                    answer = PartitionAnswer(high_watermark=leader.high_watermark, batches=batches)
                case Diverged(end):
                    answer = PartitionAnswer(diverged=end)
                case Refused(code):
                    answer = PartitionAnswer(code)
                case _:
                    assert_never(verdict)
        return AnswerMessage(self.broker_id, fetch.broker_id, fetch.broker_epoch, message.asked, answer)

    def flush(self) -> None:
        self.log.flush()
        self.cluster.laws.flushed(self.broker_id, self.log)
        if self.leader is not None:
            self.lead(self.leader.log_changed(self.log.shape, self.cluster.now_ms))
        elif self.follower is not None:
            self.follow(self.follower.log_changed(self.log.shape))

    # --- following ---------------------------------------------------------------------------------------------------

    def next_fetch(self) -> FetchMessage | None:
        follower = self.follower
        if follower is None or not follower.is_active:
            return None
        asked = follower.next_fetch()
        fetch = ReplicaFetch(
            self.broker_id, self.broker_epoch, asked.leader_epoch, asked.offset, asked.last_fetched_epoch
        )
        return FetchMessage(follower.leader_id, fetch, asked)

    def take(self, message: AnswerMessage) -> None:
        if self.follower is None or message.process != self.broker_epoch:
            return
        _, effects = self.follower.answered(message.asked, message.answer)
        self.follow(effects)

    def follow(self, effects: FollowerEffects) -> None:
        for effect in effects:
            match effect:
                case AppendBatches(batches):
                    for each in batches:
                        self.log.append(each)
                    assert self.follower is not None
                    self.follow(self.follower.log_changed(self.log.shape))
                    if self.cluster.rng.random() < 0.7:
                        self.flush()
                case TruncateLog(end, below):
                    if below:
                        raise LawBroken(f"no cut: broker {self.broker_id} truncates to {end}")
                    self.log.truncate(end)
                    self.flush()
                case StopReplica(reason):
                    raise LawBroken(f"no stop: broker {self.broker_id} stops: {reason}")
                case BeginAt() | RaiseLogStart():
                    raise LawBroken(f"no cut: broker {self.broker_id} drops records: {effect}")
                case FollowerHighWatermarkMoved():
                    pass
                case _:
                    assert_never(effect)


class ModelCluster:
    """One run. `step` does one event of the seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.next_tick_ms = 0
        self.token = 0
        self.acknowledged = 0
        lag_ms = self.rng.choice((100, 200, 600))
        self.config = LeaderConfig(lag_ms, min_insync_replicas=self.rng.choice((1, 2, 2)), retry_backoff_ms=20)
        self.laws = Laws(self.config.min_insync_replicas)
        self.controller = ToyController(REPLICAS)
        self.network: list[FetchMessage | AnswerMessage] = []
        self.calls: list[Call] = []
        self.answers: list[tuple[Call, IsrAnswer]] = []
        self.slow: set[NodeId] = set()
        """The brokers whose answers are lost."""
        self.brokers = {broker_id: Broker(broker_id, self) for broker_id in REPLICAS}
        self.faulty = True
        for each in self.brokers.values():
            each.read_metadata(0)
        self._events: list[tuple[float, Callable[[], None]]] = [
            (90, self.fetch),
            (150, self.deliver),
            (20, self.pass_time),
            (20, self.unfence),
            (10, self.restart),
            # Each run weighs these differently, so that rare mixtures come up: slow metadata, or many writes.
            *self._weighed((10, self.write), (40, self.flush), (30, self.tell_metadata)),
            *self._weighed((20, self.alter), (20, self.alter_answered)),
            *self._weighed((1, self.crash), (1, self.fence), (1, self.disaster), (1, self.prefer), (1, self.slow_link)),
        ]

    def _weighed(self, *events: tuple[int, Callable[[], None]]) -> list[tuple[float, Callable[[], None]]]:
        return [(weight * self.rng.choice((0.1, 0.3, 1, 1, 2)), event) for weight, event in events]

    def run(self, steps: int) -> "ModelCluster":
        weights, events = [weight for weight, _ in self._events], [event for _, event in self._events]
        for event in self.rng.choices(events, weights, k=steps):
            event()
            self.check()
        return self

    def check(self) -> None:
        self.laws.in_sync(self.controller.now.partition.isr, {each: of.log for each, of in self.brokers.items()})
        for broker in self.brokers.values():
            if broker.up:
                self.laws.replica(broker.broker_id, broker.log, broker.high_watermark)
                if broker.leader is not None:
                    self.laws.leader(broker.leader)

    def _some(self, wanted: Callable[[Broker], bool]) -> Broker | None:
        found = [broker for broker in self.brokers.values() if wanted(broker)]
        return self.rng.choice(found) if found else None

    # --- events ------------------------------------------------------------------------------------------------------

    def write(self) -> None:
        broker = self._some(lambda each: each.leader is not None)
        if broker is not None and (broker.log.end < 120 or not self.faulty):
            self.token += 1
            values = tuple(f"{self.token}.{at}" for at in range(self.rng.randint(1, 2)))
            broker.write(self.token, values, self.rng.choice((Acks.ALL, Acks.ALL, Acks.LEADER)))

    def flush(self) -> None:
        broker = self._some(lambda each: each.log.flushed_end < each.log.end)
        if broker is not None:
            broker.flush()

    def fetch(self) -> None:
        broker = self._some(lambda each: each.follower is not None)
        message = None if broker is None else broker.next_fetch()
        if message is not None:
            self.network.append(message)

    def deliver(self) -> None:
        """Any message, in any order, often the latest; it may stay, and arrive again."""
        if not self.network:
            return
        index = self.rng.choice((-1, self.rng.randrange(len(self.network))))
        message = self.network[index]
        if not self.faulty or self.rng.random() > 0.15 or len(self.network) > 30:
            self.network.pop(index)
        if self.faulty and self.rng.random() < 0.05:
            return
        if isinstance(message, FetchMessage):
            source = self.brokers[message.source]
            answer = source.serve(message) if source.up else None
            if answer is not None:
                self.network.append(answer)
        elif self.brokers[message.to].up and message.to not in self.slow:
            self.brokers[message.to].take(message)

    def tell_metadata(self) -> None:
        last = len(self.controller.states) - 1
        broker = self._some(lambda each: each.up and each.seen < last)
        if broker is not None:
            broker.read_metadata(self.rng.randint(broker.seen + 1, last))

    def call(self, call: Call) -> None:
        """A leader sends AlterPartition."""
        same = [each for each in self.calls if each.proposal == call.proposal]
        assert not same, "one call at a time for one state of the partition"
        self.calls.append(call)

    def alter(self) -> None:
        """The controller decides on a call in flight; the call or its answer may be lost."""
        if not self.calls:
            return
        call = self.calls.pop(self.rng.randrange(len(self.calls)))
        answer = NO_ANSWER
        if not self.faulty or self.rng.random() > 0.1:
            answer = self.controller.alter(call.sender, call.proposal)
        if self.faulty and self.rng.random() < 0.2:
            answer = NO_ANSWER
        self.answers.append((call, answer))

    def alter_answered(self) -> None:
        if not self.answers:
            return
        call, answer = self.answers.pop(self.rng.randrange(len(self.answers)))
        sender = self.brokers[call.sender]
        if sender.leader is call.leader:
            sender.lead(call.leader.answered(call.proposal, answer, self.now_ms))

    def pass_time(self) -> None:
        """Every half of the lag time each leader ticks; a due retry comes earlier."""
        self.now_ms += self.rng.randint(1, 40)
        regular = self.now_ms >= self.next_tick_ms
        if regular:
            self.next_tick_ms += self.config.lag_time_max_ms // 2
        for broker in self.brokers.values():
            if broker.leader is None or broker.watch is None:
                continue
            due_ms = broker.leader.next_deadline_ms()
            if regular or (due_ms is not None and due_ms <= self.now_ms):
                broker.lead(broker.leader.tick(self.now_ms))
                broker.watch.ticked(self.now_ms)

    def unfence(self) -> None:
        broker = self._some(lambda each: each.up and each.broker_id not in self.controller.now.active)
        if broker is not None and broker.seen >= broker.registered_at:
            self.controller.unfence(broker.broker_id)

    def crash(self) -> None:
        broker = self._some(lambda each: each.up)
        if broker is not None:
            broker.crash()

    def restart(self) -> None:
        """A disk is lost only if the ISR has another member: the loss of the last disk is a loss of data."""
        broker = self._some(lambda each: not each.up)
        if broker is not None:
            others = set(self.controller.now.partition.isr) - {broker.broker_id}
            broker.restart(wiped=bool(others) and self.rng.random() < 0.5)

    def fence(self) -> None:
        self.controller.fence(self.rng.choice(REPLICAS))

    def disaster(self) -> None:
        """All brokers but one leave at the same time, by a crash or by fencing."""
        left = self.rng.choice(REPLICAS)
        for broker in self.brokers.values():
            if broker.broker_id != left:
                if broker.up and self.rng.random() < 0.5:
                    broker.crash()
                self.controller.fence(broker.broker_id)

    def prefer(self) -> None:
        self.controller.prefer(self.rng.choice(REPLICAS))

    def slow_link(self) -> None:
        self.slow = {self.rng.choice(REPLICAS)} if self.rng.random() < 0.5 else set()

    # --- the end of the faults ---------------------------------------------------------------------------------------

    def heal(self) -> None:
        """All brokers are up, and messages arrive: the replicas agree, all are in sync, and a record is committed."""
        self.faulty, self.slow = False, set()
        for broker in self.brokers.values():
            if not broker.up:
                broker.restart(wiped=False)
        before = self.acknowledged
        for _ in range(100):
            self._round()
            if self.acknowledged > before and self._all_in_sync():
                return
        raise LawBroken(f"heals: {'; '.join(str(each.leader or each.follower) for each in self.brokers.values())}")

    def _round(self) -> None:
        """Each broker reads the metadata, fetches and gets the answer; all calls are answered."""
        self.unfence()
        for _ in REPLICAS:
            self.tell_metadata()
            self.fetch()
        while self.network:
            self.deliver()
            self.check()
        if self._all_in_sync():
            self.write()
        for _ in REPLICAS:
            self.flush()
            self.alter()
            self.alter_answered()
        self.pass_time()
        self.check()

    def _all_in_sync(self) -> bool:
        return set(self.controller.now.partition.isr) == set(REPLICAS)
