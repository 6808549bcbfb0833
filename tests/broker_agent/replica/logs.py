"""A log in memory, of whole batches: it loses what is not flushed, and refuses batches that do not continue it."""

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.format.log_shape import EpochStart, LogShape

ORIGIN = OffsetAndEpoch(0, 0)


def batch(base: Offset, epoch: Epoch, *values: str) -> Batch:
    """The payload is the values; the chain stays empty."""
    return Batch(base, epoch, len(values), 0, 0, False, b"", "\n".join(values).encode())


def shape_of(*batches: Batch, flushed: Offset | None = None, start: OffsetAndEpoch = ORIGIN) -> LogShape:
    epochs: list[EpochStart] = []
    for each in batches:
        if not epochs or epochs[-1].epoch != each.epoch:
            epochs.append(EpochStart(each.epoch, each.base_offset))
    end = batches[-1].end_offset if batches else start.offset
    shape = LogShape(start, end, end if flushed is None else flushed, tuple(epochs), b"", b"")
    shape.check_invariants()
    return shape


def run(*epochs: Epoch, flushed: Offset | None = None) -> LogShape:
    """The shape of a log with one record for each epoch: `run(1, 1, 4)` ends at 3."""
    return shape_of(*(batch(offset, epoch, "x") for offset, epoch in enumerate(epochs)), flushed=flushed)


class MemoryLog:
    """The log of one replica."""

    def __init__(self) -> None:
        self.start = ORIGIN
        self.batches: list[Batch] = []
        self.flushed_end: Offset = 0

    @property
    def shape(self) -> LogShape:
        return shape_of(*self.batches, flushed=self.flushed_end, start=self.start)

    @property
    def end(self) -> Offset:
        return self.batches[-1].end_offset if self.batches else self.start.offset

    def records(self, below: Offset | None = None) -> dict[Offset, tuple[Epoch, str]]:
        """Offset -> epoch and value."""
        found = {}
        for each in self.batches:
            for index, value in enumerate(each.data.decode().split("\n")):
                offset = each.base_offset + index
                if below is None or offset < below:
                    found[offset] = (each.epoch, value)
        return found

    def append(self, new: Batch) -> None:
        assert new.base_offset == self.end, f"batch {new} does not continue a log that ends at {self.end}"
        last = self.batches[-1].epoch if self.batches else self.start.epoch
        assert new.epoch >= last, f"batch {new} after epoch {last}"
        self.batches.append(new)

    def flush(self) -> None:
        self.flushed_end = self.end

    def truncate(self, end: Offset) -> None:
        kept = [each for each in self.batches if each.end_offset <= end]
        assert (kept[-1].end_offset if kept else self.start.offset) == end, f"{end} is no boundary"
        self.batches = kept
        self.flushed_end = min(self.flushed_end, end)

    def lose_unflushed(self) -> None:
        """A power failure. Batches are flushed as a whole."""
        self.truncate(self.flushed_end)

    def begin_at(self, start: OffsetAndEpoch) -> None:
        self.start, self.batches, self.flushed_end = start, [], start.offset

    def read(self, offset: Offset, count: int) -> tuple[Batch, ...]:
        """At most `count` batches from `offset` on."""
        found = [each for each in self.batches if each.base_offset >= offset]
        assert not found or found[0].base_offset == offset, f"{offset} is no boundary"
        return tuple(found[:count])
