"""Find the batches behind damage in a file, and decide which of them to believe.

The chain of a batch can be checked only with the chain before it, and the damage has destroyed that chain. So a batch
behind damage is believed only if it leads, batch by batch, to a chain that is known from elsewhere. Example:
  1. a file holds batches at 10, 20, 30 and 40; the bytes of the batch at 20 are damaged;
  2. one record of the batch at 30 contains the bytes of another, valid batch at 35;
  3. the next file's header says: the chain at 50 is C. The batches at 30 and 40 lead from one to the next, and to C at
     50: the log believes them. The batch "35" leads to nothing and is ignored.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from metadata_log.disk.bad_sectors import read_around
from metadata_log.disk.files import Directory, File
from metadata_log.format.batch import BATCH_BYTES_MAX, HEADER_BYTES, HEADER_PATTERN, Batch, decode, verify_chain
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Epoch, Offset
from metadata_log.store.log_notes import Flushed
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, segment_names

_WINDOW_BYTES: Final = 256 << 10


def intact_batches(file: File, position: int, lowest: Offset) -> Iterator[tuple[int, Batch]]:
    """Find what looks like an intact batch with an offset of `lowest` or higher, anywhere from `position` on.

    The damage may have destroyed the length of a batch, so the search tries every byte. After a batch is found, the
    search continues at the end of that batch. A sector that the disk cannot read is treated as damage.
    """
    size = file.size()
    data = b""
    while position < size:
        # Read each byte once: a disk may take seconds before it reports that it cannot read.
        wanted = BATCH_BYTES_MAX + _WINDOW_BYTES - len(data)
        data += read_around(file, position + len(data), wanted)
        if not data:
            return  # the file was cut meanwhile
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


def following(directory: Directory, place: Flushed) -> Iterator[Batch]:
    """Find the intact batches that continue `place`, one after the other. Damage elsewhere does not matter."""
    end, chain = place
    for name in segment_names(directory):
        with closing(directory.open(name)) as file:
            for _, batch in intact_batches(file, SEGMENT_HEADER_BYTES, end):
                if batch.base_offset == end and verify_chain(batch, chain):
                    end, chain = batch.end_offset, batch.chain
                    yield batch


def first_that_leads_to(known: Flushed, batches: Iterator[tuple[int, Batch]], epoch: Epoch) -> tuple[int, Batch] | None:
    """Return the first of the batches that lead, without a gap, to the place `known`. Batches below `epoch` are
    ignored.
    """
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
