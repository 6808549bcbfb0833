"""Three brokers with the real `ReplicaManager` on fake disks, toy controllers and a lossy network, driven by one seed.

Each partition has a toy controller, and all toy controllers know the same brokers. The faults: fetches and answers are lost or
late, disks are full for a while, disk work is done in any order, processes are killed or lose their power, brokers are fenced
without reason, leaderships move, and metadata and answers of AlterPartition arrive late or never.

A producer sends numbered batches to each partition, one at a time, and repeats each until it is acknowledged. Laws are checked
after each event. Faults end with `heal`: then all replicas must soon agree and be in the ISR, and every write must be answered.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from broker_agent.partitions.effects import (
    AssignDirectory,
    BrokerFailed,
    DirectoryFailed,
    Flush,
    Produced,
    ReplicaFailed,
    SendFetch,
    SendProposal,
    StrayLogs,
)
from broker_agent.partitions.manager_config import ManagerConfig, TopicConfig
from broker_agent.partitions.open_fetch import FetchSource, OpenFetch
from broker_agent.publishing.assignments import TopicIdPartition, WholeSet
from broker_agent.replica.fetch_sessions import FINAL_EPOCH, SessionAnswer, SessionRequest
from broker_agent.replica.fetchers import Fetcher, FetcherConfig
from broker_agent.replica.follower import PartitionFetch
from broker_agent.replica.isr import NO_ANSWER
from broker_agent.replica.leader import PartitionLeader
from broker_agent.replica.log_directory import ReplicaPlace
from broker_agent.replica.partition_log import PartitionLog
from broker_agent.replica.purgatory import Acks
from metadata_log.format.data_batch import (
    NO_STAMP,
    DataRecord,
    ProducerStamp,
    RecordSet,
    decode_data,
    pack_records,
    stamp_of,
)
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, Uuid
from tests.broker_agent.partitions.brokers import LOG, WALL_MS, A, B, Broker, assigned, place
from tests.broker_agent.partitions.model.log_views import LogView
from tests.broker_agent.replica.model.laws import LawBroken, Laws
from tests.broker_agent.replica.model.toy_controller import ToyController
from tests.broker_agent.replica.partition_logs import KEPT_FOR_EVER
from tests.sim.world.disk import MemoryDirectory

IDS = (101, 102, 103)
PLACES = tuple(place(number) for number in range(3))
MIN_ISR = 2
LAG_MS = 1_000
CONFIG = ManagerConfig(
    lag_time_max_ms=LAG_MS,
    fetchers=FetcherConfig(backoff_ms=50, backoff_max_ms=200),
    high_watermark_interval_ms=300,
    disk_retry_ms=50,
    slice_max=2,
)
TOPIC = TopicConfig(LOG._replace(segment_bytes=1_000, retention=KEPT_FOR_EVER), MIN_ISR)


@dataclass(eq=False)
class Asked:
    """A fetch on its way from a follower to its source, or waiting there."""

    follower: "Node"
    process: int
    sent: SendFetch
    fetch: OpenFetch | None = None
    source_process: int = 0
    answer: SessionAnswer | None = None


@dataclass(eq=False)
class Node:
    """One broker: its disks, and its process."""

    broker_id: int
    disks: dict[Uuid, MemoryDirectory]
    process: int = 0
    broker: Broker | None = None
    seen: dict[ReplicaPlace, int] = field(default_factory=dict)
    registered_at: dict[ReplicaPlace, int] = field(default_factory=dict)
    leaders: dict[ReplicaPlace, PartitionLeader] = field(default_factory=dict)
    views: dict[ReplicaPlace, LogView] = field(default_factory=dict)
    chains: dict[ReplicaPlace, tuple[object, ...]] = field(default_factory=dict)
    in_flight: set[Fetcher] = field(default_factory=set)

    @property
    def is_up(self) -> bool:
        return self.broker is not None

    @property
    def live(self) -> Broker:
        assert self.broker is not None
        return self.broker

    def leader(self, at: ReplicaPlace) -> PartitionLeader | None:
        replica = None if self.broker is None else self.broker.manager._hosting.replicas.get(at)
        return None if replica is None else replica.leader


@dataclass
class Producer:
    """The producer of one partition: one batch at a time, repeated until a leader acknowledges it."""

    sequence: int = 0
    waits: tuple[Node, int, int] | None = None
    """Broker, process and token of the write without an answer."""

    def records(self, at: ReplicaPlace) -> RecordSet:
        return pack_records(
            [DataRecord(WALL_MS, None, f"{at.partition}:{self.sequence + i}".encode()) for i in range(2)]
        )


class ToyCluster:
    """The cluster. `run` is a storm of events, and `heal` ends it."""

    def __init__(self, seed: int, acks: Acks = Acks.ALL) -> None:
        self.acks = acks
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.controllers = {at: ToyController(IDS) for at in PLACES}
        self.laws = {at: Laws(MIN_ISR) for at in PLACES}
        self.producers = {at: Producer() for at in PLACES}
        self.recorded: dict[tuple[int, ReplicaPlace], Uuid] = {}
        self.nodes = {
            each: Node(each, {A: MemoryDirectory(f"/{each}a"), B: MemoryDirectory(f"/{each}b")}) for each in IDS
        }
        self.network: list[Asked] = []
        self.calls: list[tuple[Node, int, SendProposal]] = []
        self.acknowledged = 0
        for controller in self.controllers.values():
            controller.next_broker_epoch = 200  # above those of the first processes
        for node in self.nodes.values():
            self._boot(node, 10 + node.broker_id)
        for _ in range(20):
            for node in self.nodes.values():
                node.live.run()

    # --- processes ---------------------------------------------------------------------------------------------------

    def _boot(self, node: Node, broker_epoch: int) -> None:
        node.process += 1
        for disk in node.disks.values():
            disk.stop_reserving()  # so that a full disk is met by appends, too
        node.seen.clear()
        node.leaders.clear()
        node.in_flight.clear()
        node.broker = Broker(
            node.broker_id,
            node.disks,
            CONFIG,
            TOPIC,
            seed=self.rng.randrange(1 << 30),
            now_ms=self.now_ms,
            broker_epoch=broker_epoch,
        )
        whole = WholeSet(frozenset(TopicIdPartition(*at) for at in PLACES), 0)
        node.live.assign(whole)
        for at in PLACES:
            node.registered_at[at] = len(self.controllers[at].states) - 1
            self.tell(node, at)

    def crash(self) -> None:
        node = self.rng.choice(list(self.nodes.values()))
        if node.is_up and sum(each.is_up for each in self.nodes.values()) > 1:
            self._end(node, lost_power=self.rng.random() < 0.5)

    def _end(self, node: Node, *, lost_power: bool) -> None:
        node.broker = None
        node.disks = {key: disk.crash(self.rng) if lost_power else disk.kill() for key, disk in node.disks.items()}
        for asked in self.network:
            if asked.source_process == node.process and asked.sent.source_id == node.broker_id:
                asked.fetch = None

    def restart(self) -> None:
        down = [node for node in self.nodes.values() if not node.is_up]
        if not down:
            return
        node = self.rng.choice(down)
        epochs = {controller.register(node.broker_id) for controller in self.controllers.values()}
        (epoch,) = epochs
        self._boot(node, epoch)

    def fill_disk(self) -> None:
        disk = self.rng.choice(list(self.rng.choice(list(self.nodes.values())).disks.values()))
        disk.limit_space(disk._volume.used_bytes)

    def fail_flush(self) -> None:
        """The next flush of a disk fails; see `_collect`."""
        node = self.rng.choice(list(self.nodes.values()))
        if node.is_up and sum(each.is_up for each in self.nodes.values()) > 1:
            self.rng.choice(list(node.disks.values())).fail_next_flush()

    def make_room(self) -> None:
        for node in self.nodes.values():
            for disk in node.disks.values():
                disk.limit_space(None)

    # --- metadata ----------------------------------------------------------------------------------------------------

    def tell_somebody(self) -> None:
        self.tell(self.rng.choice(list(self.nodes.values())), self.rng.choice(PLACES))

    def tell(self, node: Node, at: ReplicaPlace, *, newest: bool = False) -> None:
        """The broker reads a later state of the partition, perhaps not the newest."""
        states = self.controllers[at].states
        first = max(node.seen.get(at, -1) + 1, node.registered_at.get(at, 0))
        if not node.is_up or first >= len(states):
            return
        version = len(states) - 1 if newest else self.rng.randrange(first, len(states))
        node.seen[at] = version
        state = states[version]
        known = state.partition
        leader = None if known.leader_id == NO_LEADER else known.leader_id
        node.live.take(node.live.manager.brokers_changed(state.candidates, self.now_ms))
        node.live.assign(
            assigned(
                node.broker_id,
                leader,
                known.leader_epoch,
                at=at,
                version=known.partition_epoch,
                replicas=known.replicas,
                isr=known.isr,
                directory=self.recorded.get((node.broker_id, at)),
            )
        )

    def fence(self) -> None:
        broker_id = self.rng.choice(IDS)
        for controller in self.controllers.values():
            controller.fence(broker_id)

    def unfence(self) -> None:
        for node in self.nodes.values():
            if node.is_up:
                for controller in self.controllers.values():
                    if node.broker_id not in controller.now.active:
                        controller.unfence(node.broker_id)

    def prefer(self) -> None:
        self.controllers[self.rng.choice(PLACES)].prefer(self.rng.choice(IDS))

    # --- writes ------------------------------------------------------------------------------------------------------

    def write(self) -> None:
        self.write_to(self.rng.choice(PLACES))

    def write_to(self, at: ReplicaPlace) -> None:
        """Send the next batch to a broker that thinks that it leads."""
        producer = self.producers[at]
        if producer.waits is not None:
            node, process, _ = producer.waits
            if node.is_up and node.process == process:
                return
            producer.waits = None
        leaders = [node for node in self.nodes.values() if node.leader(at) is not None]
        if not leaders:
            return
        node = self.rng.choice(leaders)
        stamp = ProducerStamp(at.partition, 0, producer.sequence) if self.acks is Acks.ALL else NO_STAMP
        deadline_ms = self.now_ms + self.rng.choice((100, 2_000))
        token = node.live.token + 1
        producer.waits = (node, node.process, token)
        node.live.append(acks=self.acks, at=at, stamp=stamp, deadline_ms=deadline_ms, sent=producer.records(at))

    def write_more(self) -> None:
        """Another client writes with acks=1, also while a flush is under way, and never repeats a write."""
        at = self.rng.choice(PLACES)
        leaders = [node for node in self.nodes.values() if node.leader(at) is not None]
        if leaders:
            live = self.rng.choice(leaders).live
            live.append(acks=Acks.LEADER, at=at, deadline_ms=self.now_ms + 2_000)

    def _answers(self, node: Node) -> None:
        """The answers to writes arrive; a producer that is refused tries again."""
        for at, producer in self.producers.items():
            if producer.waits is None:
                continue
            asked, process, token = producer.waits
            if asked is not node or process != node.process or token not in node.live.produced:
                continue
            producer.waits = None
            done = node.live.produced[token]
            if done.code is ErrorCode.NONE:
                self._acknowledged(node, at, done)
                producer.sequence += 2
            elif done.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._is_newest(node, at):
                raise LawBroken(f"no gap: {done}")

    def _is_newest(self, node: Node, at: ReplicaPlace) -> bool:
        """False for a leader that has not heard of its successor. In a real cluster such a leader has lost its lease."""
        leader = node.leader(at)
        return leader is not None and leader.leader_epoch == self.controllers[at].now.partition.leader_epoch

    # --- the network -------------------------------------------------------------------------------------------------

    def _collect(self, node: Node) -> None:
        """Take the effects of a broker to the network and the controllers."""
        live = node.live
        for sent in live.fetches:
            if sent.fetcher in node.in_flight:
                raise LawBroken(f"one request: fetcher {sent.key} of {node.broker_id} has two in flight")
            node.in_flight.add(sent.fetcher)
            self.network.append(Asked(node, node.process, sent))
        live.fetches = []
        self.calls += [(node, node.process, each) for each in live.proposals]
        live.proposals = []
        has_failed = False
        for effect in live.said:
            match effect:
                case AssignDirectory(at, directory):
                    self.recorded[node.broker_id, at] = directory
                case StrayLogs():
                    pass
                case DirectoryFailed() | BrokerFailed():
                    has_failed = True
                case ReplicaFailed():
                    raise LawBroken(f"no stop: {effect}")
                case _:
                    raise LawBroken(f"unexpected: {effect}")
        live.said = []
        if has_failed:  # an operator replaces the machine, and the disk has what was flushed
            self._end(node, lost_power=True)
            return
        for fetch in live.woken:
            for asked in self.network:
                if asked.fetch is fetch:
                    self._poll(asked)
        live.woken = []

    def deliver(self) -> None:
        """One fetch arrives at its source, or one answer at its follower; or either is lost."""
        movable = [each for each in self.network if each.fetch is None or each.answer is not None]
        if movable:
            self._move(self.rng.choice(movable), is_lost=self.rng.random() < 0.1)

    def _move(self, asked: Asked, *, is_lost: bool) -> None:
        source = self.nodes[asked.sent.source_id]
        if asked.process != asked.follower.process or not asked.follower.is_up:
            self.network.remove(asked)
        elif asked.answer is not None or is_lost or not source.is_up:
            self.network.remove(asked)
            asked.follower.in_flight.discard(asked.sent.fetcher)
            live = asked.follower.live
            if asked.answer is None or is_lost:
                live.take(live.manager.fetch_failed(asked.sent, self.now_ms))
            else:
                live.take(live.manager.fetch_answered(asked.sent, asked.answer, self.now_ms, WALL_MS))
        else:
            origin = FetchSource(asked.follower.broker_id, asked.follower.live.broker_epoch)
            asked.source_process = source.process
            wait_ms, max_bytes = self.rng.choice((50, 300)), self.rng.choice((1, 300, 1 << 20))
            asked.fetch = source.live.open_fetch(
                asked.sent.request.session, origin, max_wait_ms=wait_ms, max_bytes=max_bytes
            )
            self._poll(asked)

    def _poll(self, asked: Asked) -> None:
        source = self.nodes[asked.sent.source_id]
        if asked.answer is None and asked.fetch is not None and source.process == asked.source_process:
            asked.answer = source.live.poll(asked.fetch)

    def call(self) -> None:
        """A call of AlterPartition arrives; its answer may be lost."""
        if not self.calls:
            return
        node, process, sent = self.calls.pop(self.rng.randrange(len(self.calls)))
        answer = self.controllers[sent.place].alter(node.broker_id, sent.proposal)
        if node.is_up and node.process == process:
            if self.rng.random() < 0.1:
                answer = NO_ANSWER
            node.live.take(node.live.manager.proposal_answered(sent, answer, self.now_ms))

    # --- consumers ---------------------------------------------------------------------------------------------------

    def consume(self) -> None:
        """A consumer reads a place of a log: it sees committed records only, the same as all other consumers."""
        at = self.rng.choice(PLACES)
        for node in self.nodes.values():
            leader = node.leader(at)
            if leader is None:
                continue
            offset = self.rng.randint(0, leader.high_watermark)
            wanted = PartitionFetch(offset, -1, -1, 200)
            request = SessionRequest(0, FINAL_EPOCH, ((at, wanted),))
            fetch = node.live.open_fetch(request, max_wait_ms=0)
            answer = node.live.poll(fetch)
            assert answer is not None
            ((_, found),) = answer.answers
            for batch in found.batches:
                if batch.end_offset > leader.high_watermark:
                    raise LawBroken(f"committed: a consumer reads {batch} above {leader.high_watermark}")
                for number, record in enumerate(decode_data(batch), batch.base_offset):
                    read = (batch.epoch, (record.value or b"").decode())
                    if self.laws[at].committed.setdefault(number, read) != read:
                        raise LawBroken(f"committed: a consumer reads {read} at {number}")

    # --- events ------------------------------------------------------------------------------------------------------

    def work(self) -> None:
        """One piece of disk work ends, in any order."""
        busy = [node for node in self.nodes.values() if node.is_up and node.live.work]
        if not busy:
            return
        live = self.rng.choice(busy).live
        flushed = [each.place for each in live.work if isinstance(each, Flush)]
        if len(set(flushed)) != len(flushed):
            raise LawBroken("one flush: a log has two flushes under way")
        live.finish(live.work.pop(self.rng.randrange(len(live.work))))

    def pass_time(self) -> None:
        self.now_ms += self.rng.choice((1, 5, 20, 100, 400))
        for node in self.nodes.values():
            if node.is_up:
                node.live.pass_ms(self.now_ms - node.live.now_ms)

    def step(self) -> None:
        events: dict[Callable[[], None], float] = {
            self.write: 10,
            self.work: 16,
            self.deliver: 25,
            self.call: 4,
            self.tell_somebody: 8,
            self.consume: 3,
            self.pass_time: 6,
            self.unfence: 1,
            self.fence: 0.3,
            self.prefer: 0.4,
            self.crash: 0.25,
            self.restart: 1,
            self.write_more: 3,
            self.fill_disk: 0.3,
            self.make_room: 0.6,
            self.fail_flush: 0.1,
        }
        self._event(self.rng.choices(list(events), list(events.values()))[0])

    def _event(self, event: Callable[[], None]) -> None:
        event()
        for node in self.nodes.values():
            if node.is_up:
                self._answers_before_the_end(node)
        for at, controller in self.controllers.items():
            logs = {each: self.nodes[each].views.get(at) or LogView(None) for each in IDS}
            self.laws[at].in_sync(controller.now.partition.isr, logs)  # type: ignore[arg-type]

    def _answers_before_the_end(self, node: Node) -> None:
        self.check(node)
        self._answers(node)
        self._collect(node)
        if node.is_up:
            self.check(node)
            self._answers(node)

    def run(self, steps: int) -> "ToyCluster":
        for _ in range(steps):
            self.step()
        return self

    # --- laws --------------------------------------------------------------------------------------------------------

    def view(self, node: Node, at: ReplicaPlace, log: PartitionLog) -> LogView:
        shape = log.shape
        chain = (node.process, shape.start, shape.end, shape.chain, shape.flushed_end)
        if node.chains.get(at) != chain:
            node.chains[at], node.views[at] = chain, LogView(log)
            self.laws[at].flushed(node.broker_id, node.views[at])  # type: ignore[arg-type]
        return node.views[at]

    def check(self, node: Node) -> None:
        for at, replica in node.live.manager._hosting.replicas.items():
            if replica.log is None:
                continue
            where = ReplicaPlace(*at)
            laws, view = self.laws[where], self.view(node, where, replica.log)
            role = replica.leader or replica.follower
            if role is not None:
                laws.replica(node.broker_id, view, role.high_watermark)  # type: ignore[arg-type]
            if replica.leader is not None:
                if node.leaders.get(where) is not replica.leader:
                    node.leaders[where] = replica.leader
                    self._elected(node, where, replica.leader.leader_epoch, view)
                laws.leader(replica.leader)

    def _elected(self, node: Node, at: ReplicaPlace, leader_epoch: int, view: LogView) -> None:
        """A broker that reads its election late may lack what later leaders have acknowledged: it commits nothing any more."""
        laws, leader = self.laws[at], (node.broker_id, node.live.broker_epoch)
        if self._is_newest(node, at):
            laws.elected(*leader, leader_epoch, view)  # type: ignore[arg-type]
        elif laws.leads.setdefault(leader_epoch, leader) != leader:
            raise LawBroken(f"one leader: {laws.leads[leader_epoch]} and {leader} lead epoch {leader_epoch}")

    def _acknowledged(self, node: Node, at: ReplicaPlace, done: Produced) -> None:
        self.acknowledged += 1
        view = node.views[at]
        records = {offset: view.records().get(offset) for offset in (done.base_offset, done.base_offset + 1)}
        expected = [f"{at.partition}:{self.producers[at].sequence + i}" for i in range(2)]
        if [None if each is None else each[1] for each in records.values()] != expected:
            raise LawBroken(f"the answer names {done.base_offset}: {records}, and not {expected}")
        if done.base_offset + 2 > view.flushed_end:
            raise LawBroken(f"acks={self.acks.value}: {done} is above the flushed end {view.flushed_end}")
        if self.acks is Acks.ALL:
            self.laws[at].acknowledge({offset: each for offset, each in records.items() if each is not None})

    # --- the end of all faults ---------------------------------------------------------------------------------------

    def heal(self) -> None:
        """All brokers run and are heard: soon all replicas are in sync, and all writes are answered."""
        for node in self.nodes.values():
            for disk in node.disks.values():
                disk.heal()
        while any(not node.is_up for node in self.nodes.values()):
            self._event(self.restart)
        for _ in range(120):
            self._round()
            if self._is_whole():
                return
        replicas = [each for node in self.nodes.values() for each in node.live.manager._hosting.replicas.values()]
        raise LawBroken(f"heals: {[str(each) for each in replicas]}")

    def _round(self) -> None:
        self._event(self.unfence)
        for node in self.nodes.values():
            for at in PLACES:
                self._event(partial(self.tell, node, at, newest=True))
        for _ in range(6):
            for asked in list(self.network):
                if asked in self.network and (asked.fetch is None or asked.answer is not None):
                    self._event(partial(self._move, asked, is_lost=False))
            while any(node.live.work for node in self.nodes.values()):
                self._event(self.work)
            while self.calls:
                self._event(self.call)
        self._event(self.pass_time)

    def _is_whole(self) -> bool:
        for at, controller in self.controllers.items():
            producer = self.producers[at]
            if producer.waits is not None and producer.waits[0].process == producer.waits[1]:
                return False
            if any(node.live.token > len(node.live.produced) for node in self.nodes.values()):
                return False
            if set(controller.now.partition.isr) != set(IDS):
                return False
            logs = [node.live.replica(at).log for node in self.nodes.values()]
            if len({None if log is None else log.shape.chain for log in logs}) != 1:
                return False
            roles = [node.live.replica(at).leader or node.live.replica(at).follower for node in self.nodes.values()]
            ends = {log.shape.end for log in logs if log is not None}
            if {None if role is None else role.high_watermark for role in roles} != ends:
                return False
        return True

    def check_sequences(self) -> None:
        """Every acknowledged batch is in the log once, in order."""
        for at in PLACES:
            log = self.nodes[101].live.replica(at).log
            assert log is not None
            found, offset = [], 0
            while batches := log.read(offset, 1 << 20, log.shape.end):
                found += [stamp_of(batch).base_sequence for batch in batches if stamp_of(batch).is_idempotent]
                offset = batches[-1].end_offset
            if found != list(range(0, 2 * len(found), 2)) or len(found) * 2 < self.producers[at].sequence:
                raise LawBroken(f"sequences of {at}: {found}, and {self.producers[at].sequence} were acknowledged")
