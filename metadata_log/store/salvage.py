"""What can still be read behind damage in a file: where a batch begins again, and whether what begins there is believed.

A batch's chain cannot be checked without the chain before it, which the damage has taken. So batches behind damage are believed
only where they lead, one by one, to a chain that is known from elsewhere. Whatever bytes look like a batch and are none (the
bytes of one may stand inside a record) lead nowhere.
"""

from collections.abc import Iterator
from typing import Final

from metadata_log.disk.bad_sectors import read_around
from metadata_log.disk.files import File
from metadata_log.format.batch import BATCH_BYTES_MAX, HEADER_BYTES, HEADER_PATTERN, Batch, decode, verify_chain
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Epoch, Offset
from metadata_log.store.log_notes import Flushed

_WINDOW_BYTES: Final = 256 << 10


def intact_batches(file: File, position: int, lowest: Offset) -> Iterator[tuple[int, Batch]]:
    """What looks like an intact batch of an offset from `lowest` on, wherever it begins from `position` on.

    Damage may have taken the length of a batch with it, so the next one is looked for at every byte; behind one that is found,
    only from its end on. What the disk cannot read is damage like any other.
    """
    size = file.size()
    data = b""
    while position < size:
        # Each byte is read once: a disk takes its time, seconds perhaps, before it says that it cannot read.
        wanted = BATCH_BYTES_MAX + _WINDOW_BYTES - len(data)
        data += read_around(file, position + len(data), wanted, lambda _: None)
        if not data:
            return  # cut shorter meanwhile
        passed = 0
        while header := HEADER_PATTERN.search(data, passed, _WINDOW_BYTES + HEADER_BYTES - 1):
            batch = _intact_at(data, header.start(), lowest)
            if batch is not None:
                yield position + header.start(), batch
            passed = header.start() + (len(batch.data) if batch else 1)
        passed = max(passed, min(len(data), _WINDOW_BYTES))
        position, data = position + passed, data[passed:]


def _intact_at(data: bytes, position: int, lowest: Offset) -> Batch | None:
    try:
        batch = decode(data, position)
    except LogFormatError:
        return None
    return batch if batch.base_offset >= lowest else None


def first_that_leads_to(known: Flushed, batches: Iterator[tuple[int, Batch]], epoch: Epoch) -> tuple[int, Batch] | None:
    """The first of the batches that, without a gap, lead to what is known; none of an earlier epoch than `epoch`."""
    first: tuple[int, Batch] | None = None
    before: tuple[int, Batch] | None = None
    for position, batch in batches:
        if batch.epoch < epoch:
            before = None
            continue
        if before is None or not _follows(before, position, batch):
            first = (position, batch)
        before = (position, batch)
        if (batch.end_offset, batch.chain) == known:
            return first
    return None


def _follows(before: tuple[int, Batch], position: int, batch: Batch) -> bool:
    place, last = before
    return (
        position == place + len(last.data)
        and batch.base_offset == last.end_offset
        and batch.epoch >= last.epoch
        and verify_chain(batch, last.chain)
    )
