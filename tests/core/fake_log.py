"""A log in memory. A crash leaves the flushed records and nothing else."""

from metadata_log.format.batch import Batch, encode, verify_chain
from metadata_log.format.codec import UnknownRecord, decode_batch, encode_record
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.format.log_shape import EpochStart, LogShape
from metadata_log.format.records import ControlRecord, LeaderChange, NoOp, Record, Voters

GENESIS = bytes(32)
BEGINNING = OffsetAndEpoch(0, 0)


class FakeLog:
    """Batches from `start` to `end`; `flushed_end` survives `crash`."""

    def __init__(self, start: OffsetAndEpoch = BEGINNING, chain: bytes = GENESIS) -> None:
        self.start = start
        self.start_chain = chain
        self.batches: list[Batch] = []
        self.flushed_end: Offset = start.offset
        self.snapshot: OffsetAndEpoch | None = start if start.offset else None

    @property
    def end(self) -> Offset:
        return self.batches[-1].end_offset if self.batches else self.start.offset

    @property
    def chain(self) -> bytes:
        return self.batches[-1].chain if self.batches else self.start_chain

    def chain_at(self, offset: Offset) -> bytes | None:
        """The chain at a batch boundary; None elsewhere."""
        if offset == self.start.offset:
            return self.start_chain
        return next((batch.chain for batch in self.batches if batch.end_offset == offset), None)

    def shape(self) -> LogShape:
        epochs: list[EpochStart] = []
        for batch in self.batches:
            if not epochs or epochs[-1].epoch != batch.epoch:
                epochs.append(EpochStart(batch.epoch, batch.base_offset))
        flushed_chain = self.chain_at(self.flushed_end)
        assert flushed_chain is not None
        return LogShape(self.start, self.end, self.flushed_end, tuple(epochs), self.chain, flushed_chain, self.snapshot)

    def append(self, epoch: Epoch, record: Record | None = None) -> Batch:
        record = NoOp() if record is None else record
        batch = encode(
            encode_record(record),
            base_offset=self.end,
            epoch=epoch,
            record_count=1,
            first_timestamp_ms=0,
            last_timestamp_ms=0,
            is_control=isinstance(record, ControlRecord),
            previous_chain=self.chain,
        )
        self.batches.append(batch)
        return batch

    def is_continued_by(self, batches: tuple[Batch, ...]) -> bool:
        """True if the batches continue the chain, as the real log checks."""
        chains = (self.chain, *(batch.chain for batch in batches))
        return all(verify_chain(batch, chain) for batch, chain in zip(batches, chains, strict=False))

    def append_batches(self, batches: tuple[Batch, ...]) -> None:
        for batch in batches:
            assert batch.base_offset == self.end, f"{batch} after {self.end}"
            self.batches.append(batch)

    def truncate(self, end: Offset) -> None:
        self.batches = [batch for batch in self.batches if batch.end_offset <= end]
        assert self.end == end, f"{end} is inside a batch"
        self.flushed_end = min(self.flushed_end, end)

    def flush(self) -> None:
        self.flushed_end = self.end

    def crash(self) -> None:
        self.batches = [batch for batch in self.batches if batch.end_offset <= self.flushed_end]

    def batch_at(self, offset: Offset) -> Batch:
        return next(batch for batch in self.batches if batch.base_offset == offset)

    def read(self, offset: Offset, max_bytes: int) -> tuple[Batch, ...]:
        """Returns at least one batch, like the real log, so that a large batch never blocks its reader."""
        found: list[Batch] = []
        size = 0
        for batch in self.batches:
            if batch.base_offset >= offset and (not found or size + len(batch.data) <= max_bytes):
                found.append(batch)
                size += len(batch.data)
        return tuple(found)

    def epoch_below(self, offset: Offset) -> Epoch:
        epoch = self.shape().epoch_below(offset)
        assert epoch is not None
        return epoch

    def rewrite(self, offset: Offset) -> None:
        """Replaces the record at `offset`, and chains all later records to the new one."""
        old, self.batches = self.batches, [batch for batch in self.batches if batch.base_offset < offset]
        flushed_end = self.flushed_end
        for batch in old[len(self.batches) :]:
            record = LeaderChange(99, (), ()) if batch.base_offset == offset else decode_batch(batch)[0]
            assert not isinstance(record, UnknownRecord)
            self.append(batch.epoch, record)
        self.flushed_end = flushed_end

    def take_snapshot(self, end: Offset) -> OffsetAndEpoch:
        """Takes a snapshot ending at `end`, and drops the log below."""
        chain = self.chain_at(end)
        assert chain is not None
        self.snapshot = OffsetAndEpoch(end, self.epoch_below(end))
        self.start, self.start_chain = self.snapshot, chain
        self.batches = [batch for batch in self.batches if batch.base_offset >= end]
        return self.snapshot

    def install(self, snapshot: OffsetAndEpoch, chain: bytes) -> None:
        self.start, self.start_chain, self.snapshot = snapshot, chain, snapshot
        self.batches = []
        self.flushed_end = snapshot.offset

    def voter_records(self, since: Offset = 0) -> tuple[tuple[Offset, Voters], ...]:
        return tuple(
            (batch.base_offset + index, record)
            for batch in self.batches
            if batch.is_control and batch.base_offset >= since
            for index, record in enumerate(decode_batch(batch))
            if isinstance(record, Voters)
        )

    def __str__(self) -> str:
        """The epoch of each record, which shows divergence."""
        body = " ".join(str(batch.epoch) for batch in self.batches)
        return f"[{self.start.offset}) {body}" if self.start.offset else body
