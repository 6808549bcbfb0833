"""Simulated producers: idempotent ones with acks=all, whose writes must never be lost, and plain ones with acks=1.

1  Producer p0 sends the values p0-1 and p0-2 as sequences 0 and 1 of orders-0 to broker 101. The answer is lost.
2  p0 sends the batch again, to broker 102, which leads now. It is in the log already, and the answer has its old offset.
3  p0 sends the next batch. Up to `IN_FLIGHT` batches of one partition are under way, counted from the oldest one without an
   answer: a leader remembers the last five batches of a producer, and refuses the repetition of an older one.
"""

import random
from typing import TYPE_CHECKING

from broker_agent.partitions.effects import Produced
from broker_agent.replica.purgatory import Acks
from metadata_log.format.data_batch import NO_STAMP, DataRecord, ProducerStamp, RecordSet, pack_records
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, Epoch, NodeId
from metadata_log.format.partition_state import LEADER, LEADER_EPOCH
from tests.sim.data.serving import Write
from tests.sim.laws.partitions.committed import Place
from tests.sim.world.clock import WALL_CLOCK_BEGINS_MS

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

IN_FLIGHT = 3
PATIENCE_MS = 700.0
TIMEOUT_MS = 1_500


class Sent:
    """A batch that is not acknowledged yet."""

    def __init__(self, number: int, records: RecordSet, stamp: ProducerStamp) -> None:
        self.number = number
        self.records = records
        self.stamp = stamp
        self.attempt = 0
        self.again_ms = 0.0


class Stream:
    """What one producer writes to one partition, in order."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.sequence = 0
        self.batches = 0
        """How many batches were begun."""
        self.unacknowledged: list[Sent] = []

    @property
    def has_room(self) -> bool:
        """True if another batch may follow the oldest one without an answer."""
        return not self.unacknowledged or self.batches - self.unacknowledged[0].number < IN_FLIGHT


class Router:
    """Where a client believes that a partition is led: what some broker's image says, which may be old."""

    def __init__(self, cluster: "Cluster", rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng

    def leader_of(self, place: Place) -> tuple[NodeId, Epoch] | None:
        """The leader and its epoch; None if the asked broker knows none."""
        asked = self._rng.choice(list(self._cluster.brokers.values()))
        if not asked.is_up or asked.paused:
            return None
        topic = asked.store.image.topic_by_id(place[0])
        state = None if topic is None else topic.state(place[1])
        if state is None or state[LEADER] == NO_LEADER:
            return None
        return state[LEADER], state[LEADER_EPOCH]


class SimProducer:
    """Writes to a few partitions."""

    def __init__(self, cluster: "Cluster", name: str, number: int, acks: Acks) -> None:
        self.cluster = cluster
        self.name = name
        self.acks = acks
        self.producer_id = number
        self._rng = random.Random(f"{cluster.seed} {name}")
        self._router = Router(cluster, self._rng)
        self._streams: dict[Place, Stream] = {}
        self._count = 0

    def waiting(self) -> list[Place]:
        """The partitions for which something is not acknowledged yet."""
        return [place for place, stream in self._streams.items() if stream.unacknowledged]

    def act(self, place: Place, *, more: bool) -> None:
        """Sends what is due; with `more`, another batch to this partition first."""
        if more:
            stream = self._streams.setdefault(place, Stream(place))
            if stream.has_room:
                self._write(stream)
        for stream in [*self._streams.values()]:
            if not self.cluster.laws.partitions.exists(stream.place):
                del self._streams[stream.place]
                continue
            self._send_due(stream)

    def _write(self, stream: Stream) -> None:
        count = self._rng.randint(1, 3)
        wall_ms = WALL_CLOCK_BEGINS_MS + int(self.cluster.now_ms)
        values = [f"{self.name}-{self._count + each}".encode() for each in range(count)]
        self._count += count
        records = pack_records([DataRecord(wall_ms, None, value) for value in values])
        stamp = ProducerStamp(self.producer_id, 0, stream.sequence) if self.acks is Acks.ALL else NO_STAMP
        stream.sequence += count
        stream.unacknowledged.append(Sent(stream.batches, records, stamp))
        stream.batches += 1

    def _send_due(self, stream: Stream) -> None:
        """In order: a batch is sent again together with all that follow it."""
        now_ms = self.cluster.now_ms
        if not any(sent.again_ms <= now_ms for sent in stream.unacknowledged):
            return
        leader = self._router.leader_of(stream.place)
        if leader is None:
            return
        for sent in stream.unacknowledged:
            if sent.again_ms <= now_ms:
                self._send(stream, sent, *leader)

    def _send(self, stream: Stream, sent: Sent, leader_id: NodeId, leader_epoch: Epoch) -> None:
        cluster, broker = self.cluster, self.cluster.brokers.get(leader_id)
        if broker is None or broker.data is None:
            return
        sent.attempt += 1
        sent.again_ms = cluster.now_ms + PATIENCE_MS
        cluster.coverage["data: batch sent again"] += sent.attempt > 1
        named = leader_epoch if self._rng.random() < 0.8 else None
        write = Write(stream.place, named, sent.records, sent.stamp, self.acks, TIMEOUT_MS)
        attempt, serving = sent.attempt, broker.data.serving

        def answered(done: Produced) -> None:
            if sent not in stream.unacknowledged:
                return
            if done.code is ErrorCode.NONE:
                stream.unacknowledged.remove(sent)
            elif sent.attempt == attempt:
                sent.again_ms = cluster.now_ms + self._rng.uniform(10.0, 100.0)

        cluster.network.carry(
            self.name,
            broker.name,
            lambda: serving.append(
                write, lambda done: cluster.network.carry(broker.name, self.name, lambda: answered(done))
            ),
        )
