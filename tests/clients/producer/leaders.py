"""Leaders for a producer's tests: a log for each partition, with the real memory of producers (`ProducerStates`).

A log is a list of batches. The committed prefix survives a change of the leader, and the rest may be lost, as after a crash. An
append is acknowledged only when it is committed.
"""

import random
from collections.abc import Iterable
from typing import NamedTuple

from broker_agent.replica.producers import PartitionRefused, ProducerStates
from clients.metadata.cluster import Cluster, ClusterNode, PartitionView, TopicPartition
from clients.partition_values import AppendBatch, Appended, CurrentLeader, TopicIdPartition
from metadata_log.format.data_batch import ProducerStamp, unpack_records
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Uuid

BROKERS = (1, 2, 3)


class Kept(NamedTuple):
    """A batch of a log."""

    base_offset: int
    stamp: ProducerStamp
    values: tuple[bytes, ...]


class FakeLog:
    """One partition of one topic id."""

    def __init__(self, key: TopicPartition, topic_id: Uuid, leader_id: NodeId, *, is_complete: bool) -> None:
        self.key = key
        self.topic_id = topic_id
        self.leader_id: NodeId | None = leader_id
        self.leader_epoch = 1
        self.batches: list[Kept] = []
        self.committed = 0
        self.is_complete = is_complete
        """False: the log has lost its first records, so a leader accepts any first sequence of an unknown producer."""
        self.states = self._read_states()
        self.below_min_isr = False
        self.max_records = 1_000

    @property
    def values(self) -> list[bytes]:
        return [value for batch in self.batches for value in batch.values]

    def _read_states(self) -> ProducerStates:
        states = ProducerStates()
        states.is_complete = self.is_complete
        for batch in self.batches:
            states.note(batch.stamp, batch.base_offset, len(batch.values), 0)
        return states

    def elect(self, leader_id: NodeId | None, dice: random.Random | None = None) -> None:
        """Begins a leader epoch. Of the records that are not committed a part may be lost."""
        if dice is not None:
            del self.batches[dice.randint(self.committed, len(self.batches)) :]
        self.leader_id, self.leader_epoch = leader_id, self.leader_epoch + 1
        self.committed = len(self.batches)
        self.states = self._read_states()

    def append(self, broker_id: NodeId, batch: AppendBatch, *, commits: bool) -> Appended:
        """Answers one batch as `broker_id`."""
        code = self._refusal(broker_id, batch)
        if code is not ErrorCode.NONE:
            has_hint = code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
            hint = CurrentLeader(self.leader_id, self.leader_epoch) if has_hint else None
            return Appended(batch.place, code, current_leader=hint)
        try:
            known = self.states.check(batch.stamp, batch.record_count)
        except PartitionRefused as e:
            return Appended(batch.place, e.code, str(e))
        if known is None:
            values = tuple(record.value or b"" for record in unpack_records(batch.records, batch.record_count))
            kept = Kept(len(self.values), batch.stamp, values)
            self.batches.append(kept)
            self.states.note(batch.stamp, kept.base_offset, len(values), 0)
        base_offset = self.batches[-1].base_offset if known is None else known.base_offset
        if commits:
            self.committed = len(self.batches)
        if any(each.base_offset == base_offset for each in self.batches[: self.committed]):
            return Appended(batch.place, base_offset=base_offset)
        return Appended(batch.place, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def _refusal(self, broker_id: NodeId, batch: AppendBatch) -> ErrorCode:
        if batch.place.topic_id != self.topic_id:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if broker_id != self.leader_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if batch.leader_epoch is not None and batch.leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if batch.leader_epoch is not None and batch.leader_epoch > self.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if batch.record_count > self.max_records:
            return ErrorCode.RECORD_BATCH_TOO_LARGE
        if self.below_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE


class FakeCluster:
    """The partitions of a few topics, and what metadata say about them."""

    def __init__(self, topics: Iterable[tuple[str, int]], *, is_complete: bool = True) -> None:
        self.is_complete = is_complete
        self.logs: dict[TopicPartition, FakeLog] = {}
        self._by_place: dict[TopicIdPartition, FakeLog] = {}
        self.old_logs: list[FakeLog] = []
        """The logs of deleted topics."""
        self._ids = 0
        for name, count in topics:
            self.create(name, count)

    def create(self, name: str, count: int) -> None:
        """Creates a topic; deletes the topic that has this name."""
        self._ids += 1
        topic_id = self._ids.to_bytes(16, "big")
        for number in range(count):
            key = TopicPartition(name, number)
            old = self.logs.pop(key, None)
            if old is not None:
                self.old_logs.append(old)
                del self._by_place[TopicIdPartition(old.topic_id, number)]
            leader_id = BROKERS[number % len(BROKERS)]
            log = FakeLog(key, topic_id, leader_id, is_complete=self.is_complete)
            self.logs[key] = self._by_place[TopicIdPartition(topic_id, number)] = log

    def add_partition(self, name: str, number: int) -> None:
        """Adds a partition to a topic."""
        topic_id = self.logs[TopicPartition(name, 0)].topic_id
        key = TopicPartition(name, number)
        log = FakeLog(key, topic_id, BROKERS[number % len(BROKERS)], is_complete=self.is_complete)
        self.logs[key] = self._by_place[TopicIdPartition(topic_id, number)] = log

    def all_logs(self) -> list[FakeLog]:
        return [*self.old_logs, *self.logs.values()]

    def append(self, broker_id: NodeId, batch: AppendBatch, *, commits: bool = True) -> Appended:
        place = batch.place
        log = self._by_place.get(place)
        return (
            Appended(place, ErrorCode.UNKNOWN_TOPIC_ID)
            if log is None
            else log.append(broker_id, batch, commits=commits)
        )

    def view(self) -> Cluster:
        """The cluster as fresh metadata show it."""
        return Cluster(
            cluster_id="fake",
            nodes={number: ClusterNode(number, f"b{number}", 9092) for number in BROKERS},
            partitions={
                key: PartitionView(key.topic, key.partition, log.leader_id, log.leader_epoch)
                for key, log in self.logs.items()
            },
            topic_ids={key.topic: log.topic_id for key, log in self.logs.items()},
        )
