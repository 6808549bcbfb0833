"""The twin of `RecoveryProbe.java`: sends to every partition, and notes when each acknowledges again after a kill."""

import asyncio
import time
from collections.abc import Iterable

from benchmarks.sessions import batched
from clients.metadata.cluster import ClusterNode
from clients.metadata_client import MetadataClient
from clients.partition_calls import CallFailed, GrpcPartitionCalls
from clients.partition_values import AppendBatch, AppendRequest, TopicIdPartition
from metadata_log.format.data_batch import NO_STAMP, DataRecord, pack_records
from metadata_log.format.errors import ErrorCode

ROUND_S = 0.02
BATCHES = 100
"""Maximum number of partitions in one request."""
ACKS_ALL = -1
TIMEOUT_MS = 5_000
_RECORDS = pack_records([DataRecord(0, None, bytes(100))])


class OurRecoveryProbe:
    """One record at a time in each partition."""

    def __init__(self, client: MetadataClient, calls: GrpcPartitionCalls, topic: str, partitions: int) -> None:
        self._client = client
        self._calls = calls
        self._topic = topic
        self._partitions = partitions
        self._in_flight: set[int] = set()
        self._since_s = 0.0
        self._took: dict[int, float] = {}
        self.refusals: dict[str, int] = {}

    async def until_all(self, timeout_s: float) -> dict[int, float]:
        """Sends until every partition has acknowledged a record that was sent after this call; by partition, the seconds."""
        self._since_s, self._took = time.perf_counter(), {}
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as tasks:
            while len(self._took) < self._partitions:
                for node, partitions in self._waiting().items():
                    for several in batched(partitions, BATCHES):
                        self._in_flight.update(several)
                        tasks.create_task(self._send(node, several))
                await asyncio.sleep(ROUND_S)
        return self._took

    def _waiting(self) -> dict[ClusterNode, list[int]]:
        """The partitions without an acknowledgement and without a request under way, by leader."""
        view = self._client.cluster
        found: dict[ClusterNode, list[int]] = {}
        for each in view.partitions_by_topic.get(self._topic, ()):
            if each.partition in self._took or each.partition in self._in_flight:
                continue
            if each.leader_id is None:
                self._client.note_stale(ErrorCode.LEADER_NOT_AVAILABLE, -1)
            else:
                found.setdefault(view.node(each.leader_id), []).append(each.partition)
        return found

    async def _send(self, node: ClusterNode, partitions: list[int]) -> None:
        sent_s = time.perf_counter()
        topic_id = self._client.cluster.topic_ids[self._topic]
        batches = (
            AppendBatch(TopicIdPartition(topic_id, each), None, NO_STAMP, _RECORDS.record_count, _RECORDS.packed)
            for each in partitions
        )
        try:
            request = AppendRequest(ACKS_ALL, TIMEOUT_MS, tuple(batches))
            results = await self._calls.append(node, request, TIMEOUT_MS / 1_000 + 1)
        except CallFailed as e:
            self._refused([e.failure.code], node)
        else:
            now_s = time.perf_counter()
            good = {each.place.partition for each in results if each.code is ErrorCode.NONE}
            if sent_s >= self._since_s:
                self._took |= {each: now_s - self._since_s for each in good if each not in self._took}
            self._refused((each.code for each in results if each.code is not ErrorCode.NONE), node)
        finally:
            self._in_flight.difference_update(partitions)

    def _refused(self, codes: Iterable[ErrorCode], node: ClusterNode) -> None:
        for code in codes:
            self.refusals[code.name] = self.refusals.get(code.name, 0) + 1
            self._client.note_stale(code, node.node_id)
