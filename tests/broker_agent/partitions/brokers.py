"""A broker for tests: a `ReplicaManager` on a disk in memory, whose effects wait until the test carries them out."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from broker_agent.partitions.effects import (
    DeleteLog,
    DiskWork,
    Effect,
    Effects,
    FindTime,
    Flush,
    OpenLog,
    Produced,
    SendFetch,
    SendProposal,
    TrimLog,
    Wake,
    WriteHighWatermarks,
)
from broker_agent.partitions.hosted_replica import HostedReplica
from broker_agent.partitions.manager_config import ManagerConfig, TopicConfig
from broker_agent.partitions.open_fetch import FetchSource, OpenFetch
from broker_agent.partitions.replica_manager import ReplicaManager
from broker_agent.publishing.assignments import Assignment, AssignmentNews, Delete, Follow, Lead, Stop
from broker_agent.replica.fetch_sessions import FULL_EPOCH, SessionAnswer, SessionRequest
from broker_agent.replica.follower import PartitionFetch
from broker_agent.replica.isr import IsrAnswer
from broker_agent.replica.log_directory import ReplicaPlace
from broker_agent.replica.partition_log_config import PartitionLogConfig
from broker_agent.replica.purgatory import Acks
from metadata_log.format.data_batch import NO_STAMP, ProducerStamp, RecordSet, decode_data
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Uuid
from tests.broker_agent.replica.partition_logs import NOW_MS, TOPIC_ID, records
from tests.sim.world.disk import MemoryDirectory

A: Uuid = b"A" * 16
B: Uuid = b"B" * 16
WALL_MS = NOW_MS
EPOCHS = {101: 11, 102: 12, 103: 13}
"""Broker -> broker epoch."""
REPLICAS = (101, 102, 103)
LOG = PartitionLogConfig(segment_bytes=100_000)


def place(partition: int = 0, topic_id: Uuid = TOPIC_ID) -> ReplicaPlace:
    return ReplicaPlace(topic_id, partition)


def assigned(
    me: int,
    leader: int | None,
    epoch: int = 1,
    *,
    at: ReplicaPlace | None = None,
    version: int | None = None,
    replicas: tuple[int, ...] = REPLICAS,
    isr: tuple[int, ...] | None = None,
    directory: Uuid | None = None,
) -> Lead | Follow | Stop:
    """The assignment of broker `me`."""
    role = Stop if leader is None else Lead if leader == me else Follow
    where = at or place()
    partition_epoch = epoch if version is None else version
    members = replicas if isr is None else isr
    return role(
        where.topic_id,
        "orders",
        where.partition,
        leader,
        epoch,
        partition_epoch,
        replicas,
        members,
        directory,
        False,
        0,
    )


def deleted(assignment: Assignment) -> Delete:
    names = Assignment.__dataclass_fields__
    return Delete(**{name: getattr(assignment, name) for name in names})


@dataclass
class Broker:
    """One broker. `work`, `fetches` and `proposals` are the effects that nobody has carried out yet."""

    broker_id: int = 101
    disks: Mapping[Uuid, MemoryDirectory] = field(default_factory=lambda: {A: MemoryDirectory("/a")})
    config: ManagerConfig = field(default_factory=ManagerConfig)
    topic: TopicConfig = field(default_factory=lambda: TopicConfig(LOG))
    seed: int = 1
    now_ms: int = 0
    broker_epoch: int = 0
    """0: the one in `EPOCHS`."""

    def __post_init__(self) -> None:
        self.manager = ReplicaManager(self.broker_id, self.disks, self.config, random.Random(self.seed))
        self.work: list[DiskWork] = []
        self.fetches: list[SendFetch] = []
        self.proposals: list[SendProposal] = []
        self.produced: dict[int, Produced] = {}
        self.woken: list[OpenFetch] = []
        self.said: list[Effect] = []
        """All other effects."""
        self.token = 0
        self.take(self.manager.start(self.now_ms))
        self.broker_epoch = self.broker_epoch or EPOCHS[self.broker_id]
        self.manager.registered(self.broker_epoch)
        self.take(self.manager.topic_configured(TOPIC_ID, self.topic, self.now_ms))
        self.take(self.manager.brokers_changed(EPOCHS, self.now_ms))

    def take(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case OpenLog() | DeleteLog() | TrimLog() | Flush() | WriteHighWatermarks() | FindTime():
                    self.work.append(effect)
                case SendFetch():
                    self.fetches.append(effect)
                case SendProposal():
                    self.proposals.append(effect)
                case Produced(token):
                    assert token not in self.produced, "one answer for each write"
                    self.produced[token] = effect
                case Wake(fetch):
                    self.woken.append(fetch)
                case _:
                    self.said.append(effect)

    # --- inputs ------------------------------------------------------------------------------------------------------

    def assign(self, *news: AssignmentNews) -> None:
        self.take(self.manager.assign(news, self.now_ms))

    def run(
        self, *, kinds: tuple[type, ...] = (OpenLog, DeleteLog, TrimLog, Flush, WriteHighWatermarks, FindTime)
    ) -> None:
        """Carry out disk work until there is none of these kinds."""
        while todo := [each for each in self.work if isinstance(each, kinds)]:
            self.work = [each for each in self.work if not isinstance(each, kinds)]
            for each in todo:
                self.finish(each)

    def finish(self, work: DiskWork) -> None:
        """Carry out one piece of disk work."""
        try:
            result = work.run(WALL_MS)
        except Exception as e:
            self.take(self.manager.disk_failed(work, e, self.now_ms, WALL_MS))
        else:
            self.take(self.manager.disk_done(work, result, self.now_ms, WALL_MS))

    def lead(self, epoch: int = 1, *, at: ReplicaPlace | None = None, isr: tuple[int, ...] = (101,)) -> None:
        """Lead with the log open."""
        self.assign(assigned(self.broker_id, self.broker_id, epoch, at=at, isr=isr))
        self.run()

    def append(
        self,
        count: int = 1,
        acks: Acks = Acks.ALL,
        *,
        at: ReplicaPlace | None = None,
        stamp: ProducerStamp = NO_STAMP,
        epoch: int | None = None,
        deadline_ms: int | None = None,
        sent: RecordSet | None = None,
    ) -> int:
        """Append records; return the token."""
        self.token += 1
        until_ms = self.now_ms + 30_000 if deadline_ms is None else deadline_ms
        data = sent or records(count)
        effects = self.manager.append(
            at or place(), epoch, data, stamp, acks, until_ms, self.token, self.now_ms, WALL_MS
        )
        self.take(effects)
        return self.token

    def code(self, token: int) -> ErrorCode | None:
        found = self.produced.get(token)
        return None if found is None else found.code

    def open_fetch(
        self,
        request: SessionRequest,
        source: FetchSource | None = None,
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
    ) -> OpenFetch:
        fetch, effects = self.manager.open_fetch(
            source, request, self.now_ms, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes
        )
        self.take(effects)
        return fetch

    def poll(self, fetch: OpenFetch) -> SessionAnswer | None:
        answer, effects = self.manager.poll(fetch, self.now_ms)
        self.take(effects)
        return answer

    def fetch(self, offset: int, source: FetchSource | None = None, **asked: int) -> SessionAnswer | None:
        """Open a full fetch of one partition, and poll it once. A consumer names no epochs."""
        wanted = PartitionFetch(offset, asked.get("epoch", -1), asked.get("last", -1))
        request = SessionRequest(0, FULL_EPOCH, ((place(), wanted),))
        return self.poll(self.open_fetch(request, source))

    def answered(self, answer: IsrAnswer) -> None:
        self.take(self.manager.proposal_answered(self.proposals.pop(0), answer, self.now_ms))

    def pass_ms(self, ms: int) -> None:
        """Let time pass, with the ticks that are due on the way."""
        end_ms = self.now_ms + ms
        while (due_ms := self.manager.next_deadline_ms(self.now_ms)) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.take(self.manager.tick(self.now_ms, WALL_MS))
        self.now_ms = end_ms

    # --- state -------------------------------------------------------------------------------------------------------

    def replica(self, at: ReplicaPlace | None = None) -> HostedReplica:
        return self.manager._hosting.replicas[at or place()]

    def values(self, at: ReplicaPlace | None = None) -> list[int]:
        """The sizes of the values in a log: what a test has appended."""
        log = self.replica(at).log
        assert log is not None
        found: list[int] = []
        offset = log.shape.start.offset
        while batches := log.read(offset, 1 << 20, log.shape.end):
            found += [len(each.value or b"") for batch in batches for each in decode_data(batch)]
            offset = batches[-1].end_offset
        return found


def replicate(source: Broker, follower: Broker) -> None:
    """Let `follower` fetch from `source` until nothing is left to do, without waiting fetches."""
    for _ in range(100):
        follower.run()
        sent = [each for each in follower.fetches if each.source_id == source.broker_id]
        if not sent:
            return
        follower.fetches = [each for each in follower.fetches if each not in sent]
        for each in sent:
            origin = FetchSource(follower.broker_id, follower.broker_epoch)
            fetch = source.open_fetch(each.request.session, origin, max_wait_ms=0)
            answer = None
            while answer is None:
                answer = source.poll(fetch)
            is_idle = not answer.answers
            follower.take(follower.manager.fetch_answered(each, answer, follower.now_ms, WALL_MS))
        if is_idle and not follower.work:
            return
    raise AssertionError("the replication does not come to an end")
