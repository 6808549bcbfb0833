"""Which requests to send now: the fetches from the leaders, and the questions about offsets and epochs.

1. Broker 1 leads orders-0 and orders-1, and has no fetch in flight: one fetch names both.
2. The buffer of orders-0 is full, because the program is slow: the next fetch names orders-1, and waits 50 ms at most.
3. orders-2 has an error, and a pause until 900 ms. The others go on, and `wake_ms` is at most 900.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias, TypeVar

from clients.consumer.assigned import Asker, AssignedPartition, Need
from clients.consumer.assignment import Assignment
from clients.consumer.config import ConsumerConfig
from clients.consumer.effects import AskEpochs, AskOffsets, Effect, Fetch
from clients.consumer.in_flight import Entry, InFlight
from clients.consumer.offset_query import AskedOffset, OffsetQuery
from clients.metadata.cluster import Cluster, ClusterNode
from clients.partition_values import EpochQuestion, FetchRequest, OffsetQuestion, PartitionFetch, TopicIdPartition
from metadata_log.format.ids import NodeId

BEHIND_WAIT_MS: Final = 50
"""How long a leader may park a fetch that leaves out a partition."""
REQUEST_PARTITIONS_MAX: Final = 3_000
"""Maximum number of partitions in one request, so that neither side works on it for long. The others come with the next one."""

Q = TypeVar("Q", OffsetQuestion, EpochQuestion)
_Questions: TypeAlias = dict[NodeId, list[tuple[Asker, Q]]]
"""The questions for each node, with those who ask."""


class Planner:
    """Makes the requests of one consumer."""

    def __init__(self, config: ConsumerConfig, in_flight: InFlight) -> None:
        self._config = config
        self._in_flight = in_flight
        self.wake_ms = 0
        """The earliest end of a pause that a step has met."""

    def wake_at(self, at_ms: int) -> None:
        self.wake_ms = min(self.wake_ms, at_ms)

    def _may_ask(self, node_id: NodeId, kind: type, now_ms: int) -> bool:
        if self._in_flight.is_busy(kind, node_id):
            return False
        paused_ms = self._in_flight.paused_until_ms(node_id)
        if now_ms < paused_ms:
            self.wake_at(paused_ms)
        return now_ms >= paused_ms

    # --- fetches -----------------------------------------------------------------------------------------------------

    def fetches(self, assignment: Assignment, now_ms: int) -> list[Effect]:
        """Return the fetches to send now, and note them as in flight."""
        if assignment.queued_bytes >= self._config.queued_max_bytes:
            return []
        found = (
            self._fetch(assignment, node_id, now_ms)
            for node_id, parts in assignment.by_leader.items()
            if parts and self._may_ask(node_id, Fetch, now_ms)
        )
        return [fetch for fetch in found if fetch is not None]

    def _fetch(self, assignment: Assignment, node_id: NodeId, now_ms: int) -> Fetch | None:
        parts = assignment.by_leader[node_id]
        config = self._config
        wait_ms = config.fetch_max_wait_ms
        chosen: list[AssignedPartition] = []
        for part in parts.values():
            if part.is_paused:
                continue
            if now_ms < part.retry_ms:
                self.wake_at(part.retry_ms)
                wait_ms = min(wait_ms, max(BEHIND_WAIT_MS, part.retry_ms - now_ms))
            elif part.buffer.size_bytes >= config.max_partition_fetch_bytes:
                wait_ms = min(wait_ms, BEHIND_WAIT_MS)
            else:
                chosen.append(part)
                if len(chosen) == REQUEST_PARTITIONS_MAX:
                    break
        if not chosen or chosen[0].leader is None:
            return None
        if len(chosen) == REQUEST_PARTITIONS_MAX < len(parts):
            wait_ms = min(wait_ms, BEHIND_WAIT_MS)
            for part in chosen:
                assignment.put_behind(part)
        entries = [Entry(part, part.version, _place(part)) for part in chosen]
        request = FetchRequest(
            tuple(self._partition_fetch(part) for part in chosen),
            max_wait_ms=wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
        )
        fetch = Fetch(self._in_flight.next_number(), chosen[0].leader.node, request)
        self._in_flight.add(fetch, entries, now_ms + config.request_timeout_ms + wait_ms)
        return fetch

    def _partition_fetch(self, part: AssignedPartition) -> PartitionFetch:
        epoch = None if part.leader is None else part.leader.epoch
        max_bytes = self._config.max_partition_fetch_bytes
        return PartitionFetch(_place(part), part.fetch_offset, epoch, max_bytes=max_bytes)

    # --- questions ---------------------------------------------------------------------------------------------------

    def questions(
        self, assignment: Assignment, queries: Iterable[OffsetQuery], cluster: Cluster, now_ms: int
    ) -> tuple[list[Effect], list[Asker]]:
        """Return the questions to send now, and the partitions that have no leader to ask."""
        offsets: _Questions[OffsetQuestion] = {}
        epochs: _Questions[EpochQuestion] = {}
        leaderless: list[Asker] = []
        for part in assignment.unsettled.values():
            if not self._is_due(part, now_ms):
                continue
            if part.need is Need.LEADER or part.leader is None:
                leaderless.append(part)
            elif part.wanted is not None:
                asked = OffsetQuestion(_place(part), part.wanted, part.leader.epoch)
                offsets.setdefault(part.leader.node.node_id, []).append((part, asked))
            else:
                assert part.position is not None and part.position.epoch is not None
                question = EpochQuestion(_place(part), part.position.epoch, part.leader.epoch)
                epochs.setdefault(part.leader.node.node_id, []).append((part, question))
        for each in (each for query in queries for each in query.asked if not each.is_found):
            if self._is_due(each, now_ms):
                self._add(each, cluster, offsets, leaderless)
        sent = self._ask(AskOffsets, offsets, now_ms)
        return sent + self._ask(AskEpochs, epochs, now_ms), leaderless

    def _add(
        self, each: AskedOffset, cluster: Cluster, offsets: _Questions[OffsetQuestion], leaderless: list[Asker]
    ) -> None:
        each.leader, each.topic_id = each.leader_in(cluster), cluster.topic_ids.get(each.key.topic)
        if each.leader is None or each.topic_id is None:
            leaderless.append(each)
        else:
            question = OffsetQuestion(_place(each), each.wanted, each.leader.epoch)
            offsets.setdefault(each.leader.node.node_id, []).append((each, question))

    def _is_due(self, asker: Asker, now_ms: int) -> bool:
        if asker.asked is None and now_ms < asker.retry_ms:
            self.wake_at(asker.retry_ms)
        return asker.asked is None and now_ms >= asker.retry_ms

    def _ask(self, kind: type[AskOffsets] | type[AskEpochs], by_node: _Questions[Q], now_ms: int) -> list[Effect]:
        sent: list[Effect] = []
        for node_id, questions in by_node.items():
            if not self._may_ask(node_id, kind, now_ms):
                continue
            questions = questions[:REQUEST_PARTITIONS_MAX]
            entries = [Entry(asker, asker.version, question.place) for asker, question in questions]
            node = _node(questions[0][0])
            asked: tuple[Q, ...] = tuple(question for _, question in questions)
            request = kind(self._in_flight.next_number(), node, asked)  # type: ignore[arg-type]
            self._in_flight.add(request, entries, now_ms + self._config.request_timeout_ms)
            sent.append(request)
        return sent


def _place(asker: Asker) -> TopicIdPartition:
    assert asker.topic_id is not None
    return TopicIdPartition(asker.topic_id, asker.key.partition)


def _node(asker: Asker) -> ClusterNode:
    assert asker.leader is not None
    return asker.leader.node
