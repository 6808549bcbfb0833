"""Put lost batches back: write each affected file again as a whole, and replace the old file in one step.

    file 1: [header|intact|~~~~]   file 2: [~~~~~~~~]   file 3: [~~|intact]        ~ is one damaged range
    file 1: [header|intact|++++]   file 2: [header|++++++]   file 3: [header|++|intact]

A new file consists of whole batches, in offset order: the intact ones of the old file, and the fetched ones (+). Its
header follows from the batch before. The base offsets in the file names say which batches belong into which file.
Example, for the picture above, where the files are named 0, 100 and 200 and the range [60, 220) is damaged:
  1. write `0.repair` (intact 0..59, fetched 60..99), `100.repair` (fetched 100..199) and `200.repair` (fetched
     200..219, the intact rest), fsync all three, and read each one back: it must lead to the chain that was written. If
     the disk has no room, delete them; the log is unchanged;
  2. rename `0.repair` to `0` and fsync the directory: now only [100, 220) is damaged;
  3. rename the second file, then the third, in the same way.
A crash between two renames leaves a log with a smaller damaged range. A crash before the first rename leaves the log
unchanged, and the next start deletes the `*.repair` files.
"""

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch, verify_chain
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.store.damage import DamagedRange
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, BadBatch, SegmentHeader, pack_header, segment_name, walk
from metadata_log.store.segment_file import Segment

REPAIR_SUFFIX: Final = ".repair"


def check_filling(damaged: DamagedRange, batches: Sequence[Batch]) -> None:
    """Raise LogFormatError unless `batches` are exactly the lost batches."""
    end, chain = damaged.start, damaged.chain_before
    for batch in batches:
        if batch.base_offset != end or not verify_chain(batch, chain):
            raise LogFormatError(
                f"the batch at offset {batch.base_offset} does not continue the intact log before {end}; nothing was changed"
            )
        end, chain = batch.end_offset, batch.chain
    if (end, chain) != (damaged.end, damaged.chain_after):
        raise LogFormatError(
            f"the batches end at {end} with another chain than the log has at {damaged.end}; nothing was changed"
        )


def discard_unfinished(directory: Directory) -> None:
    """Delete the `*.repair` files that a crash has left."""
    for name in directory.names():
        if name.endswith(REPAIR_SUFFIX):
            directory.remove(name)


def repaired(
    directory: Directory, old: Sequence[Segment], damaged: DamagedRange, batches: Sequence[Batch], header: SegmentHeader
) -> list[Segment]:
    """Put `batches` in the place of `damaged`, durably. Return the segments that take the place of `old`, the segments with
    records of that range. `check_filling` has accepted the batches; `header` is that of a file that begins with them.

    Raises:
        OSError: usually the disk is full; the log is unchanged.
        CorruptLog: intact batches cannot be read any more, which is more damage; the log is unchanged.
        LogFormatError: no batch begins where a segment begins; the log is unchanged.
    """
    # The first file begins anew at the log's start if it has lost records below: no other node is asked for those.
    begins_anew = bool(old) and old[0].gap_start != max(damaged.start, old[0].base_offset)
    bases = [each.base_offset for each in old]
    if not old or begins_anew or damaged.start < bases[0]:
        bases[: int(begins_anew)] = [damaged.start]
    segments = dict(zip(reversed(bases), reversed(old), strict=False))
    new: list[Segment] = []
    try:
        for base, end in zip(bases, [*bases[1:], damaged.end], strict=True):
            segment = segments.get(base)
            if segment is not None and segment.header is not None and not begins_anew and not new:
                header = segment.header
            if header.start.offset != base:
                raise LogFormatError(f"no batch begins at {base}, where a segment begins; nothing was changed")
            share = [each for each in batches if base <= each.base_offset < end]
            content = share if segment is None else _content(segment, base, damaged, share)
            made, header = _write(directory, header, content)
            new.append(made)
    except (OSError, LogFormatError):
        discard_unfinished(directory)
        raise
    for each in old:
        each.release()
    for each in new:
        directory.rename(each.name + REPAIR_SUFFIX, each.name)
        directory.flush()
    if begins_anew:
        directory.remove(old[0].name)
        directory.flush()
    return new


def _content(segment: Segment, base: Offset, damaged: DamagedRange, share: Sequence[Batch]) -> Iterator[Batch]:
    """Return the batches of one new file, which begins at `base`: the intact ones of `segment`, and the fetched `share`."""
    for stretch in segment.stretches:
        first = segment.entry_at(stretch.position)
        if first.base_offset >= damaged.start:
            yield from share
            share = ()
        if first.base_offset >= base:
            yield from segment.proven(first)
    yield from share


def _write(directory: Directory, header: SegmentHeader, batches: Iterable[Batch]) -> tuple[Segment, SegmentHeader]:
    """Write a segment's file, durably, with the suffix `.repair`, and read it back. Return the segment, and the header of a
    segment that would follow.
    """
    name = segment_name(header.start.offset)
    end, chain, timestamp_ms = header
    with closing(directory.open(name + REPAIR_SUFFIX, create=True)) as file:
        file.truncate(0)
        file.write_at(0, pack_header(header))
        position = SEGMENT_HEADER_BYTES
        for batch in batches:
            assert batch.base_offset == end.offset, f"{batch.base_offset} behind {end} in {name}"
            file.write_at(position, batch.data)
            position += len(batch.data)
            end, chain, timestamp_ms = batch.end, batch.chain, max(timestamp_ms, batch.last_timestamp_ms)
        file.flush()
    segment = Segment(directory, name, header, file=directory.open(name + REPAIR_SUFFIX))
    chain_read = header.previous_chain
    try:
        for at, batch in walk(segment.file, SEGMENT_HEADER_BYTES, position):
            if not verify_chain(batch, chain_read):
                raise BadBatch(at, "the batch does not continue the chain")
            segment.extend(batch, chain_read)
            chain_read = batch.chain
        if (segment.end_offset, chain_read) != (end.offset, chain):
            raise BadBatch(segment.end_position, "the file ends")
    except BadBatch as e:
        text = f"{directory.path_text}/{name}: the disk does not return at byte {e.position} what a repair has written: {e}"
        raise OSError(errno.EIO, f"{text}. The log is unchanged") from e
    finally:
        segment.release()
    return segment, SegmentHeader(end, chain, timestamp_ms)
