"""The assigned partitions of one consumer, with three indexes, so that no step looks at all partitions.

    by_leader   the partitions with a known position, by leader; the partition with the latest records is the last one
    unsettled   the partitions that need a leader, an offset or a check first
    ready       the partitions with records in the buffer, in the order of their turns

`touch` puts a partition where it belongs, and is called after each change of a partition.

    1. orders-0 is assigned: it is unsettled. Its leader and position become known: it moves to `by_leader[1]`.
    2. An answer brings records: it is ready, too, and goes behind the other partitions of leader 1.
    3. `take` returns the records of its first batch. Then it is the turn of the next ready partition.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from clients.consumer.assigned import AssignedPartition, Need
from clients.consumer.errors import CorruptRecords
from clients.consumer.records import ConsumerRecord
from clients.metadata.cluster import Cluster, TopicPartition
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import NodeId

Begin: TypeAlias = Callable[[AssignedPartition, bool], None]
"""Gives a partition its first position. True: the topic was created anew."""


class Assignment:
    """The partitions that a consumer reads."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, AssignedPartition] = {}
        self.by_leader: dict[NodeId, dict[TopicPartition, AssignedPartition]] = {}
        self.unsettled: dict[TopicPartition, AssignedPartition] = {}
        self._ready: dict[TopicPartition, AssignedPartition] = {}
        self._failed: dict[TopicPartition, AssignedPartition] = {}
        self._places: dict[TopicPartition, NodeId] = {}
        """The key of each partition in `by_leader`."""
        self._sizes: dict[TopicPartition, int] = {}
        self.queued_bytes = 0
        """How many bytes all buffers have."""

    # --- which partitions --------------------------------------------------------------------------------------------

    def assign(self, keys: Iterable[TopicPartition], cluster: Cluster, begin: Begin) -> None:
        """Read exactly these partitions. Those that stay go on; `begin` gives a new one its first position."""
        wanted = dict.fromkeys(keys)
        for key in self.partitions.keys() - wanted.keys():
            self._forget(self.partitions.pop(key))
        for key in wanted:
            if key not in self.partitions:
                part = self.partitions[key] = AssignedPartition(key)
                begin(part, False)
                self.meet(part, cluster, begin)
                self.touch(part)

    def follow(self, cluster: Cluster, begin: Begin) -> None:
        """Take a new view of the cluster."""
        for part in self.partitions.values():
            self.meet(part, cluster, begin)

    def meet(self, part: AssignedPartition, cluster: Cluster, begin: Begin) -> None:
        """Take the topic id and the leader of one partition. A position in an earlier topic of the same name is void."""
        topic_id = cluster.topic_ids.get(part.key.topic)
        is_new_topic = topic_id is not None and topic_id != part.topic_id
        if is_new_topic:
            is_another = part.topic_id is not None
            part.topic_id = topic_id
            if is_another:
                part.hint = None
                begin(part, True)
        if part.follow(part.leader_in(cluster)) or is_new_topic:
            self.touch(part)

    def touch(self, part: AssignedPartition) -> None:
        """Put a changed partition where it belongs."""
        key, need = part.key, part.need
        place = part.leader.node.node_id if need is Need.RECORDS and part.leader is not None else None
        before = self._places.get(key)
        if before != place:
            if before is not None:
                del self.by_leader[before][key]
                del self._places[key]
            if place is not None:
                self.by_leader.setdefault(place, {})[key] = part
                self._places[key] = place
        _put(self.unsettled, part, need in (Need.LEADER, Need.OFFSET, Need.EPOCH))
        _put(self._ready, part, bool(part.buffer) and not part.is_paused and part.error is None)
        _put(self._failed, part, part.error is not None)
        self._measure(part)

    def _measure(self, part: AssignedPartition) -> None:
        size = part.buffer.size_bytes
        self.queued_bytes += size - self._sizes.get(part.key, 0)
        self._sizes[part.key] = size

    def _forget(self, part: AssignedPartition) -> None:
        part.version += 1
        part.asked = None
        place = self._places.pop(part.key, None)
        if place is not None:
            del self.by_leader[place][part.key]
        for index in (self.unsettled, self._ready, self._failed):
            index.pop(part.key, None)
        self.queued_bytes -= self._sizes.pop(part.key, 0)

    # --- records -----------------------------------------------------------------------------------------------------

    def put_behind(self, part: AssignedPartition) -> None:
        """Move a partition that had its turn behind the other partitions of its leader."""
        place = self._places.get(part.key)
        if place is not None:
            self.by_leader[place][part.key] = self.by_leader[place].pop(part.key)

    def failed(self, is_told: bool) -> AssignedPartition | None:
        """Return the next partition that waits for the program. A paused partition may wait in silence."""
        waiting = (part for part in self._failed.values() if not part.is_paused and part.is_told is is_told)
        return next(waiting, None)

    def put_error_behind(self, part: AssignedPartition) -> None:
        """Note that the program has heard of the error. The next reminder is the turn of another partition."""
        part.is_told = True
        self._failed[part.key] = self._failed.pop(part.key)

    def take(self, limit: int) -> tuple[list[ConsumerRecord], dict[TopicPartition, AssignedPartition]]:
        """Take at most `limit` records, and return them with their partitions, whose positions have moved.

        A partition whose records cannot be unpacked stops with an error.
        """
        taken: list[ConsumerRecord] = []
        moved: dict[TopicPartition, AssignedPartition] = {}
        while self._ready and len(taken) < limit:
            part = next(iter(self._ready.values()))
            assert part.position is not None
            try:
                records, is_used_up = part.buffer.take(part.position.offset, limit - len(taken))
            except LogFormatError as e:
                part.stop_with(CorruptRecords(part.key, part.position.offset, str(e)))
                self.touch(part)
                break
            last = records[-1]
            part.advance(records[0].offset, last.offset + 1, last.leader_epoch)
            taken += records
            moved[part.key] = part
            if is_used_up:
                self._measure(part)
                del self._ready[part.key]
                if part.buffer:
                    self._ready[part.key] = part
        return taken, moved


def _put(index: dict[TopicPartition, AssignedPartition], part: AssignedPartition, belongs: bool) -> None:
    if not belongs:
        index.pop(part.key, None)
    elif part.key not in index:
        index[part.key] = part
