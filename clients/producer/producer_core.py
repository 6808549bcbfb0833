"""The decisions of a producer. Inputs go in, effects come out: no clock, no dice of its own, no socket. The owner steps it.

| the owner has | calls |
|---|---|
| a record | `partition_for`, `enqueue` |
| a new record, a new view of the cluster, or the time `next_ms` | `step` |
| the answer to a request, or its failure | `answered`, `failed` |
| a producer id, or none | `id_allocated`, `id_refused` |

Each method of the table but the first row's returns effects (see `effects`). Example:

    1. `enqueue` puts 100 records for orders-0 into a batch. Nothing is sent yet: the batch lingers for 5 ms.
    2. `step` at 5 ms returns `AskProducerId`, and, once the id is there, `SendAppend` number 1 to broker 101.
    3. Broker 101 answers NOT_LEADER_OR_FOLLOWER and names broker 102: `answered` returns `NoteStale` and `NoteLeaderEpoch`.
    4. `step` returns `SendAppend` number 2 to broker 102, with the same stamp. Its answer ends in `Delivered` with 100 tokens.

One request has at most one batch of each partition, and `max_request_size` bytes of records. `partition_queue` has the rules that
keep each record once and in order.
"""

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from clients.metadata.backoff import ExponentialBackoff
from clients.metadata.client_metadata import STALE
from clients.metadata.cluster import Cluster, TopicPartition
from clients.partition_values import (
    APPEND_BATCHES_MAX,
    AppendBatch,
    Appended,
    AppendRequest,
    CallFailure,
    FailureKind,
    TopicIdPartition,
)
from clients.producer.accumulator import Accumulator
from clients.producer.batch import Batch
from clients.producer.config import ProducerConfig
from clients.producer.effects import (
    AskProducerId,
    Delivered,
    NotDelivered,
    NoteStale,
    ProducerEffects,
    SendAppend,
)
from clients.producer.errors import MayHaveBeenWritten, NotWritten, ProducerClosed, SendError
from clients.producer.leaders import Leader, doubt_hint, leader_of, meet_hint
from clients.producer.nodes import Nodes
from clients.producer.outcomes import Outcome, outcome_of_failure, outcome_of_result
from clients.producer.partition_queue import PartitionQueue
from clients.producer.partitioner import StickyPartitions, partition_of_key
from clients.producer.schedule import Schedule
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId

NO_PRODUCER_ID: Final = -1
TURN_PARTITIONS_MAX: Final = 300
"""Maximum number of partitions that one `step` looks at: the owner's other work goes on between two steps."""
_BROKER_TIMEOUT_MAX_MS: Final = 600_000
_UNREACHED: Final = (FailureKind.NOT_CONNECTED, FailureKind.DISCONNECTED, FailureKind.TIMED_OUT)


class _Asked(NamedTuple):
    """A request in flight. The batches are in the order of the request."""

    node_id: NodeId
    batches: tuple[tuple[PartitionQueue, Batch, Epoch | None], ...]


class ProducerCore:
    """One producer. Not thread-safe: the owner steps it."""

    def __init__(self, config: ProducerConfig, dice: random.Random) -> None:
        self.config = config
        self.records = Accumulator(config)
        self.is_crowded = False
        """True while callers wait for room in the buffer: no batch lingers."""
        self.producer_id: int | None = None if config.is_idempotent else NO_PRODUCER_ID
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, dice)
        reconnect = ExponentialBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, dice)
        self._nodes = Nodes(config.max_in_flight_requests_per_connection, reconnect)
        self._sticky = StickyPartitions(dice)
        self._schedule = Schedule()
        self._cluster = Cluster()
        self._asked: dict[int, _Asked] = {}
        self._number = 0
        self._id_is_asked = False
        self._id_retry_ms = 0
        self._id_attempts = 0
        self._id_problem = ""
        self._without_leader: set[PartitionQueue] = set()

    # --- records -----------------------------------------------------------------------------------------------------

    def partition_for(self, topic: str, key: bytes | None, size: int, cluster: Cluster) -> int:
        """Returns the partition of a record of `size` packed bytes. The topic is in `cluster`."""
        count = cluster.partition_count(topic)
        assert count, f"topic {topic} has no partitions in the view"
        if key is not None:
            return partition_of_key(key, count)
        available = cluster.available_numbers.get(topic, ())
        partition = self._sticky.present(topic, count, available)
        if self.records.has_open_batch(TopicPartition(topic, partition), size):
            return partition
        return self._sticky.move(topic, count, available)

    def enqueue(self, key: TopicPartition, packed: bytes, timestamp_ms: int, token: object, now_ms: int) -> bool:
        """Puts a packed record into the batch of its partition. Returns True if the owner should step soon.

        The caller has checked the size (`record_bytes_max`) and that there is room.
        """
        queue = self.records.append(key, packed, timestamp_ms, token, now_ms)
        if queue is None:
            return False
        self._schedule.look_at((queue,))
        return True

    def flush(self) -> int:
        """Ends the lingering of all present batches. Returns the number for `is_flushed`."""
        self._look_at_all()
        return self.records.flush()

    def is_flushed(self, number: int) -> bool:
        """True if every record that was there at the `flush` with this number has ended."""
        return self.records.is_flushed(number)

    def note_crowded(self, is_crowded: bool) -> None:
        """Takes whether callers wait for room in the buffer. Then no batch lingers."""
        if is_crowded and not self.is_crowded:
            self._look_at_all()
        self.is_crowded = is_crowded

    def close(self) -> ProducerEffects:
        """Ends all records that have not ended. The requests in flight may still arrive."""
        effects: ProducerEffects = []
        for queue in self.records.queues.values():
            for batch in list(queue.batches()):
                if not batch.is_told:
                    queue.give_up(batch)
                    effects.append(self._failed(batch, ErrorCode.NOT_READY, "the producer was closed", ProducerClosed))
        return effects

    def _look_at_all(self) -> None:
        self._schedule.look_at(queue for queue in self.records.queues.values() if not queue.is_empty)

    # --- the turn ----------------------------------------------------------------------------------------------------

    def step(self, cluster: Cluster, now_ms: int) -> ProducerEffects:
        """Takes the present view of the cluster, and returns what is to do now."""
        if cluster is not self._cluster:
            self._cluster = cluster
            self._look_at_all()
        self._schedule.look_at(self._nodes.after_pauses(now_ms))
        effects: ProducerEffects = []
        if self.producer_id is None and self.records.used_bytes:
            effects += self._ask_for_id(now_ms)
        ready: dict[NodeId, dict[PartitionQueue, None]] = {}
        for queue in self._schedule.due(now_ms, TURN_PARTITIONS_MAX):
            effects += self._expire(queue, now_ms)
            node_id = self._node_to_send_to(queue, now_ms)
            if node_id is not None:
                ready.setdefault(node_id, {})[queue] = None
        if self._without_leader:
            effects.append(NoteStale(ErrorCode.LEADER_NOT_AVAILABLE, None))
            self._without_leader.clear()
        for node_id, queues in ready.items():
            effects += self._send(node_id, queues, now_ms)
        return effects

    def next_ms(self, now_ms: int) -> int | None:
        """The time at which the owner calls `step` again, if nothing happens before. None: never."""
        waits_for_id = self.producer_id is None and self.records.used_bytes and not self._id_is_asked
        times = (self._schedule.next_ms(now_ms), self._nodes.next_ms(), self._id_retry_ms if waits_for_id else None)
        return min((each for each in times if each is not None), default=None)

    def _expire(self, queue: PartitionQueue, now_ms: int) -> ProducerEffects:
        why = f"not delivered within delivery_timeout_ms={self.config.delivery_timeout_ms}"
        return [self._failed(each, ErrorCode.REQUEST_TIMED_OUT, why) for each in queue.expired(now_ms)]

    def _node_to_send_to(self, queue: PartitionQueue, now_ms: int) -> NodeId | None:
        """Returns the leader if a batch of the partition is ready for it. Otherwise notes when to look again."""
        deadline_ms = queue.deadline_ms
        if deadline_ms is None:
            return None
        self._schedule.watch(queue, deadline_ms)
        leader = leader_of(queue, self._cluster)
        if self.producer_id is None:
            return None
        if leader is None:
            self._without_leader.add(queue)
            self._schedule.look_at_ms(queue, now_ms + self.config.retry_backoff_ms)
            return None
        linger_ms = self.records.linger_ms(queue, is_crowded=self.is_crowded)
        next_ms = queue.next_ms(leader.leader_epoch, now_ms, linger_ms)
        if next_ms is None:
            return None
        if next_ms > now_ms:
            self._schedule.look_at_ms(queue, next_ms)
            return None
        return leader.node_id

    # --- requests ----------------------------------------------------------------------------------------------------

    def _send(self, node_id: NodeId, queues: dict[PartitionQueue, None], now_ms: int) -> ProducerEffects:
        """Sends ready batches to one broker, in as few requests as possible, while the broker may have more in flight."""
        effects: ProducerEffects = []
        while queues and self._nodes.is_open(node_id, now_ms):
            effects += self._send_one(node_id, queues, now_ms)
        self._nodes.get(node_id).waiting.update(queues)
        return effects

    def _send_one(self, node_id: NodeId, queues: dict[PartitionQueue, None], now_ms: int) -> ProducerEffects:
        """Makes one request with the first batch of each partition, as far as they fit. Leaves in `queues` the partitions that
        have further batches for this broker."""
        chosen: list[tuple[PartitionQueue, Batch, Epoch | None]] = []
        size = 0
        for queue in list(queues):
            leader = leader_of(queue, self._cluster)
            linger_ms = self.records.linger_ms(queue, is_crowded=self.is_crowded)
            batch = None if leader is None else queue.next_batch(leader.leader_epoch, now_ms, linger_ms)
            if leader is None or batch is None:
                del queues[queue]
                self._schedule.look_at((queue,))
                continue
            if chosen and (size + batch.size > self.config.max_request_size or len(chosen) == APPEND_BATCHES_MAX):
                break
            size += batch.size
            del queues[queue]
            queues[queue] = None  # behind the others: a busy partition must not keep them waiting
            assert self.producer_id is not None
            queue.begin_attempt(batch, self.producer_id, leader.leader_epoch)
            chosen.append((queue, batch, leader.leader_epoch))
        if not chosen:
            return []
        self._number += 1
        self._asked[self._number] = _Asked(node_id, tuple(chosen))
        self._nodes.sent(node_id)
        timeout_ms = self.config.request_timeout_ms
        request = AppendRequest(
            self.config.acks_number,
            min(
                max(1, timeout_ms * 9 // 10), _BROKER_TIMEOUT_MAX_MS
            ),  # the broker's word shall come before the timeout
            tuple(_append_batch(queue, batch, epoch) for queue, batch, epoch in chosen),
        )
        effects: ProducerEffects = [SendAppend(self._number, node_id, request, timeout_ms)]
        if self.config.acks == 0:
            effects += [self._delivered(batch, None) for _, batch, _ in chosen]
        return effects

    def answered(self, number: int, results: Sequence[Appended], now_ms: int) -> ProducerEffects:
        """Takes the answer to a request: one result for each batch, in the order of the request."""
        asked = self._asked.pop(number)
        assert len(results) == len(asked.batches), "the calls check the answer"
        self._schedule.look_at(self._nodes.ended(asked.node_id, now_ms, reached=True))
        effects: ProducerEffects = []
        stale: dict[ErrorCode, None] = {}
        for (queue, batch, leader_epoch), result in zip(asked.batches, results, strict=True):
            self._schedule.look_at((queue,))
            if result.code is ErrorCode.NONE:
                queue.acked(batch, leader_epoch, now_ms)
                if not batch.is_told:
                    effects.append(self._delivered(batch, result.base_offset))
                continue
            outcome = outcome_of_result(result)
            if result.code in STALE:
                stale[result.code] = None
                doubt_hint(queue, leader_epoch)
            effects += meet_hint(queue, result, leader_epoch)
            effects += self._not_acked(queue, batch, outcome, Leader(asked.node_id, leader_epoch), now_ms)
        return effects + [NoteStale(code, asked.node_id) for code in stale]

    def failed(self, number: int, failure: CallFailure, now_ms: int) -> ProducerEffects:
        """Takes the end of a request without an answer."""
        asked = self._asked.pop(number)
        is_unreached = failure.kind in _UNREACHED
        self._schedule.look_at(self._nodes.ended(asked.node_id, now_ms, reached=not is_unreached))
        effects: ProducerEffects = []
        if is_unreached or failure.code in STALE:
            is_broken = failure.kind in (FailureKind.NOT_CONNECTED, FailureKind.DISCONNECTED)
            code = ErrorCode.BROKER_NOT_AVAILABLE if is_broken else failure.code
            effects.append(NoteStale(code, asked.node_id))
        outcome = outcome_of_failure(failure)
        for queue, batch, leader_epoch in asked.batches:
            self._schedule.look_at((queue,))
            doubt_hint(queue, leader_epoch)
            effects += self._not_acked(queue, batch, outcome, Leader(asked.node_id, leader_epoch), now_ms)
        return effects

    def _not_acked(
        self, queue: PartitionQueue, batch: Batch, outcome: Outcome, tried: Leader, now_ms: int
    ) -> ProducerEffects:
        """Takes a failed attempt. The pause is left out only if the answer leads to another leader than `tried`."""
        is_hinted = outcome.leader is not None and queue.hint == outcome.leader
        knows_newer = is_hinted and leader_of(queue, self._cluster) not in (None, tried)
        retry_ms = now_ms if knows_newer else now_ms + self._backoff.pause_ms(max(0, batch.attempts - 1))
        was_told = batch.is_told
        failed = queue.not_acked(batch, outcome, retry_ms)
        if failed is None or was_told:
            return []
        return [self._failed(failed, outcome.code, "the broker has refused it")]

    # --- the producer's id -------------------------------------------------------------------------------------------

    def _ask_for_id(self, now_ms: int) -> ProducerEffects:
        if self._id_is_asked or now_ms < self._id_retry_ms:
            return []
        self._id_is_asked = True
        return [AskProducerId(self.config.request_timeout_ms)]

    def id_allocated(self, producer_id: int) -> ProducerEffects:
        """Takes the producer's id. The owner steps afterwards."""
        self.producer_id, self._id_is_asked = producer_id, False
        self._look_at_all()
        return []

    def id_refused(self, message: str, now_ms: int) -> ProducerEffects:
        """Notes that no broker has given an id. The producer asks again after a pause."""
        self._id_is_asked = False
        self._id_retry_ms = now_ms + self._backoff.pause_ms(self._id_attempts)
        self._id_attempts += 1
        self._id_problem = message
        return []

    # --- ends of records ---------------------------------------------------------------------------------------------

    def _delivered(self, batch: Batch, base_offset: int | None) -> Delivered:
        batch.is_told = True
        self.records.finished(batch)
        return Delivered(batch.key, base_offset, batch.tokens, batch.timestamps)

    def _failed(self, batch: Batch, code: ErrorCode, why: str, kind: type[NotWritten] = NotWritten) -> NotDelivered:
        batch.is_told = True
        self.records.finished(batch)
        last = batch.last_problem or (self._id_problem if self.producer_id is None else "")
        last = f"; the last answer: {last}" if last else ""
        name = f"{batch.key.topic}-{batch.key.partition}"
        may_be = batch.may_be_written and not batch.is_void
        known = "it may have been written, so look before you send it again" if may_be else "it was not written"
        error: SendError = (MayHaveBeenWritten if may_be else kind)(
            code, f"a record for {name}: {why}; {known}{last}", *batch.key
        )
        return NotDelivered(batch.key, error, batch.tokens)


def _append_batch(queue: PartitionQueue, batch: Batch, leader_epoch: Epoch | None) -> AppendBatch:
    assert queue.topic_id is not None
    place = TopicIdPartition(queue.topic_id, queue.key.partition)
    return AppendBatch(place, leader_epoch, batch.stamp, len(batch.parts), b"".join(batch.parts))
