"""One assigned partition: position, leader, buffer, and the next need.

    needs OFFSET    a place without an offset is wanted, for example the end: the leader is asked (ListOffsets)
    needs EPOCH     the leader is another one than at the last check: does it have the record below the position? (KIP-320)
    needs RECORDS   the partition can be fetched
    needs LEADER    the metadata names no leader with an address

*An answer counts only for the version of its question.* The version grows with each seek, each reset and each new leader:

    1. The consumer fetches orders-0 from offset 10. The program seeks to offset 500; the version becomes 2.
    2. The answer with the records from offset 10 on belongs to version 1, and is dropped.
    3. The next fetch, of version 2, asks for offset 500.

A new leader also empties the buffer, as in Kafka's consumer: the records that the new leader does not have must not be delivered,
and the others come again.
"""

from enum import Enum
from typing import Final

from clients.consumer.errors import ConsumerError, LogTruncated
from clients.consumer.positions import Leader, Position, StoredPosition
from clients.consumer.records import RecordBuffer
from clients.metadata.backoff import ExponentialBackoff
from clients.metadata.cluster import Cluster, TopicPartition
from clients.partition_values import CurrentLeader, WantedOffset
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch, Uuid
from metadata_log.format.log_shape import EpochStart

EPOCHS_MAX: Final = 100
"""Maximum number of leader epochs that a partition remembers."""


class Need(Enum):
    """The next thing that a partition needs."""

    LEADER = "a leader with an address"
    OFFSET = "the offset of a place"
    EPOCH = "the end of an epoch in the leader's log"
    RECORDS = "records"
    NOTHING = "the program must decide first"


class Asker:
    """A partition with a question: at most one request is in flight, and an error makes a pause."""

    def __init__(self, key: TopicPartition) -> None:
        self.key = key
        self.topic_id: Uuid | None = None
        self.leader: Leader | None = None
        self.hint: CurrentLeader | None = None
        """A later leader than that of the metadata, from a refusal."""
        self.version = 0
        self.asked: int | None = None
        """The number of the request in flight."""
        self.retry_ms = 0
        self.failures = 0

    def back_off(self, backoff: ExponentialBackoff, now_ms: int) -> None:
        """Begin the pause after an error."""
        self.retry_ms = now_ms + backoff.pause_ms(self.failures)
        self.failures += 1

    def leader_in(self, cluster: Cluster) -> Leader | None:
        """Return the leader with the later epoch: that of the metadata, or that of the hint."""
        view = cluster.partitions.get(self.key)
        hint = self.hint
        if view is None:
            return None
        if hint is not None and (view.leader_epoch is None or hint.leader_epoch <= view.leader_epoch):
            hint = self.hint = None
        leader_id, epoch = (view.leader_id, view.leader_epoch) if hint is None else (hint.leader_id, hint.leader_epoch)
        node = None if leader_id is None else cluster.nodes.get(leader_id)
        return None if node is None or not node.has_address else Leader(node, epoch)


class AssignedPartition(Asker):
    """A partition that the consumer reads."""

    def __init__(self, key: TopicPartition) -> None:
        super().__init__(key)
        self.position: Position | None = None
        self.wanted: WantedOffset | None = None
        self.error: ConsumerError | None = None
        self.is_told = False
        """True if the program has heard of the error."""
        self.is_checked = False
        """True if the present leader has the record below the position."""
        self.is_paused = False
        self._epochs: list[EpochStart] = []
        """The leader epochs of the records that the program got since the last move, each with its first offset."""
        self.high_watermark: Offset | None = None
        self.buffer = RecordBuffer(key)

    @property
    def need(self) -> Need:
        if self.error is not None:
            return Need.NOTHING
        if self.leader is None or self.topic_id is None:
            return Need.LEADER
        if self.wanted is not None:
            return Need.OFFSET
        if self.position is None:
            return Need.NOTHING
        return Need.RECORDS if self.is_checked else Need.EPOCH

    @property
    def fetch_offset(self) -> Offset:
        """The offset behind the buffer."""
        assert self.position is not None
        end = self.buffer.end_offset
        return self.position.offset if end is None else end

    @property
    def stored(self) -> StoredPosition | None:
        """The position as a store keeps it."""
        return None if self.position is None else StoredPosition(*self.position, self.topic_id)

    def _renew(self) -> None:
        """Drop what was fetched, and what is in flight."""
        self.version += 1
        self.asked = None
        self.buffer.clear()
        self._check()

    def _check(self) -> None:
        """The leader must be asked only if both epochs are known."""
        leader_epoch = None if self.leader is None else self.leader.epoch
        self.is_checked = self.position is not None and None in (self.position.epoch, leader_epoch)

    def move_to(self, position: Position) -> None:
        """Continue at `position`: a seek, or the answer to `want`."""
        self.position, self.wanted, self.error = position, None, None
        self.retry_ms = self.failures = 0
        self._epochs.clear()
        self._renew()

    def cut_to(self, position: Position) -> None:
        """Continue at `position`, up to which the leader has what the program has read."""
        kept = [each for each in self._epochs if each.start_offset < position.offset]
        self.move_to(position)
        self._epochs = kept

    def advance(self, first: Offset, end: Offset, epoch: Epoch) -> None:
        """Note that the program got the records [first, end), which have this leader epoch."""
        if not self._epochs or self._epochs[-1].epoch != epoch:
            self._epochs.append(EpochStart(epoch, first))
            del self._epochs[:-EPOCHS_MAX]
        self.position = Position(end, epoch)

    def want(self, wanted: WantedOffset) -> None:
        """Continue at a place that the leader must tell. There is no position until then."""
        self.position, self.wanted, self.error = None, wanted, None
        self.retry_ms = self.failures = 0
        self._epochs.clear()
        self._renew()

    def stop_with(self, error: ConsumerError) -> None:
        """Wait for a decision of the program."""
        self.error, self.is_told = error, False
        self.version += 1
        self.asked = None

    def follow(self, leader: Leader | None) -> bool:
        """Take the leader of the metadata or of a hint; return False if it is the present one."""
        if leader == self.leader:
            return False
        before, self.leader = self.leader, leader
        is_same_log = before is not None and leader is not None and before.epoch == leader.epoch is not None
        was_checked = self.is_checked
        self._renew()
        self.is_checked = self.is_checked or (is_same_log and was_checked)
        self.retry_ms = self.failures = 0
        return True

    def compare(self, end: OffsetAndEpoch | None) -> LogTruncated | None:
        """Take the end of the position's epoch in the leader's log; return None if the leader has the record below. None: no end.

        Kafka compares offsets only. The epoch must be the same, too: say record 9 was read with epoch 5, and the leader has a
        record 9 of epoch 3. Then the leader answers "epoch 3 ends at 12", and 12 is not below the position 10.

        The records that the program got with later epochs than that of the answer were replaced, too.

        A later epoch than the asked one is that below the start of the leader's log. A position below the start is left to the
        fetch, which is refused with OFFSET_OUT_OF_RANGE.
        """
        assert self.position is not None
        offset, epoch = self.position
        assert epoch is not None
        if end is None:
            return LogTruncated(self.key, offset, None)
        has_record = end.epoch == epoch and end.offset >= offset
        is_below_start = end.epoch > epoch and end.offset > offset
        if has_record or is_below_start:
            self.is_checked = True
            return None
        replaced = (each.start_offset for each in self._epochs if each.epoch > end.epoch)
        return LogTruncated(self.key, offset, min(end.offset, offset, *replaced))
