"""What is committed in each partition: kept by an observer that no fault can reach (P1, P3, P7).

A record is committed once a replica knows a high watermark above it. From then on all replicas have the same bytes there (P3),
each later leader has them (P1), and the sequences of each producer follow each other without gap or duplicate (P7). The chain of
a log at one offset proves all bytes below it.
"""

from bisect import bisect_left
from typing import NamedTuple, TypeAlias

from broker_agent.replica.partition_log import PartitionLog
from metadata_log.format.batch import Batch
from metadata_log.format.data_batch import SEQUENCE_MAX, stamp_of
from metadata_log.format.ids import Epoch, Offset, Uuid
from tests.sim.laws.broken import LawBroken, hold

Place: TypeAlias = tuple[Uuid, int]
READ_BYTES = 1 << 20


class Commit(NamedTuple):
    """All below `end` was committed by a leader of `leader_epoch`, or an earlier one."""

    leader_epoch: Epoch
    end: Offset


class CommittedRecords:
    """The committed history of one partition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: list[Batch] = []
        self.ends: list[Offset] = []
        self.start: Offset = 0
        """The first offset that the observer has seen."""
        self.start_by_retention: Offset = 0
        """The largest start of any replica's log."""
        self._chains: dict[Offset, bytes] = {}
        self._commits: list[Commit] = []
        self._sequences: dict[tuple[int, int], int] = {}
        """The next sequence of each producer and producer epoch."""

    @property
    def end(self) -> Offset:
        return self.ends[-1] if self.ends else self.start

    def end_before(self, leader_epoch: Epoch) -> Offset:
        """The end of all that was committed in the leader epochs before this one."""
        at = bisect_left(self._commits, leader_epoch, key=lambda commit: commit.leader_epoch)
        return self._commits[at - 1].end if at else self.start

    def has(self, log: PartitionLog, offset: Offset) -> bool:
        """True if `log` has the committed records below `offset`, a boundary of the history, and no others."""
        shape = log.shape
        if shape.start.offset >= offset:
            return True  # retention has deleted them
        return shape.end >= offset and (offset == self.start or log._log.chain_at(offset) == self._chains[offset])

    def moved(self, who: str, log: PartitionLog, leader_epoch: Epoch, high_watermark: Offset) -> None:
        """A replica knows `high_watermark` now: P3, and what is new becomes history (P7)."""
        law = "P3 SameBelowHW"
        if high_watermark <= self.end:
            known = high_watermark == self.start or high_watermark in self._chains
            hold(known, law, f"{who}: {high_watermark} is inside of a batch of {self.name}")
            hold(self.has(log, high_watermark), law, f"{who}: {self.name} has other records below {high_watermark}")
            return
        if not self.ends and log.shape.start.offset > self.start:
            self.start = log.shape.start.offset
        hold(self.has(log, self.end), law, f"{who}: {self.name} has other records below {self.end}")
        place = max(self.end, log.shape.start.offset)
        while place < high_watermark:
            for batch in log._log.read(place, READ_BYTES, high_watermark):
                self._take(batch, who)
                place = batch.end_offset
        if self._commits and self._commits[-1].leader_epoch >= leader_epoch:
            at = bisect_left(self._commits, leader_epoch, key=lambda commit: commit.leader_epoch)
            self._commits[at:] = [Commit(leader_epoch, max(high_watermark, self._commits[-1].end))]
        else:
            self._commits.append(Commit(leader_epoch, high_watermark))

    def _take(self, batch: Batch, who: str) -> None:
        self.batches.append(batch)
        self.ends.append(batch.end_offset)
        self._chains[batch.end_offset] = batch.chain
        stamp = stamp_of(batch)
        if not stamp.is_idempotent:
            return
        key = stamp.producer_id, stamp.epoch
        expected = self._sequences.get(key, 0)
        if (
            stamp.base_sequence != expected and self.start_by_retention == 0
        ):  # a log forgets with its records, as Kafka does
            law = "P7 NoGap" if stamp.base_sequence > expected else "P7 NoDuplicate"
            text = f"{who}: producer {stamp.producer_id} has {stamp.base_sequence} at {batch.base_offset}"
            raise LawBroken(law, f"{text} of {self.name}; {expected} is expected")
        self._sequences[key] = (stamp.last_sequence(batch.record_count) + 1) & SEQUENCE_MAX

    def batch_with(self, offset: Offset) -> Batch | None:
        """The committed batch that holds the record at `offset`; None if nothing is committed there."""
        at = bisect_left(self.ends, offset + 1)
        return self.batches[at] if at < len(self.batches) and self.batches[at].base_offset <= offset else None
