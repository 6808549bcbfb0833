"""Read the batches of a metadata log of Kafka, and go on after damage: a damaged place becomes a `Scanned` with an error.

    | batch | batch | ~~~~~~~ | batch | batc          a torn tail: the last segment ends inside a batch, or in zeros
                      ^ damage: an intact batch follows, or the place is not the end of the log

Kafka's checksum leaves out a batch's offset, length and epoch, so the scan compares them with the batch before. Offsets have no
gap, and a new epoch begins with a control batch whose first record is the LeaderChange. Example:
  1. The batch of 40..49 is damaged: one error, at 40. The scan searches the next intact batch, and finds the one of 50..59.
  2. A bit of the epoch of 60..69 flips: 60..69 is at epoch 19, and no leader began epoch 19. An error, and the records are shown.
  3. The file ends in the middle of 70..79, the last batch of the log: a torn tail, which Kafka itself cuts at its next start.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from metadata_log.disk.files import Directory, File
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Offset
from snapshots.offline.kafka.batches import (
    BATCH_BYTES_MAX,
    HEADER_BYTES,
    RECORD_BYTES_MIN,
    Batch,
    batch_length,
    crc_fits,
    decode,
    raw_records,
)
from snapshots.offline.kafka.errors import KafkaFormatError
from snapshots.offline.kafka.log_files import KafkaLog, segment_base, snapshot_end
from snapshots.offline.kafka.records import LEADER_CHANGE, SNAPSHOT_FOOTER, Placed, records
from snapshots.offline.scan import Window

_SEARCH_BYTES: Final = 4 << 20
_BATCH_BEGINS: Final = re.compile(rb"(?=\x00\x00.{6}\x00.{7}\x02)", re.DOTALL)
"""Pattern for the beginning of a batch: an offset below 2^48, a length below 2^24, the magic byte."""
_PATTERN_BYTES: Final = 17


class Scanned(NamedTuple):
    """A batch, or a place where a batch should be."""

    file: str
    position: int
    length: int
    batch: Batch | None
    """None if no intact batch is here."""
    expected_offset: Offset | None
    """The end of the batch before; None if that is damaged."""
    error: str | None
    """None for a batch that is intact, and continues the batch before."""
    is_torn: bool = False
    """True for the end of a log whose last append was cut short. That is no damage."""


class _Place(NamedTuple):
    """The end of the batches so far. None: not known, after damage."""

    offset: Offset | None
    epoch: int | None
    sound_position: int
    sound_offset: Offset
    """The end of the last batch that was sound, as position and offset."""


def scan_log(log: KafkaLog, since: Offset = 0, until: Offset | None = None) -> Iterator[Scanned]:
    """Scan the batches of a log that have a part of [since, until), in order, each with what is wrong with it."""
    needed = log.segments_needed(since, until)
    offset, epoch = None, None
    for segment in needed:
        if offset is not None and segment.base_offset != offset:
            error = f"a segment is missing: offset {offset} should follow, and the file begins at {segment.base_offset}"
            yield Scanned(segment.name, 0, 0, None, offset, error)
            epoch = None
        start = _Place(segment.base_offset, epoch, 0, segment.base_offset)
        offset = segment.base_offset
        for scanned in _scan_file(log.directory, segment.name, start, None, segment == log.segments[-1]):
            batch = scanned.batch
            if batch is not None:
                offset, epoch = batch.end_offset, batch.epoch
            if scanned.error is not None:
                offset, epoch = None, None
            if until is not None and (scanned.expected_offset or (0 if batch is None else batch.base_offset)) >= until:
                return
            if batch is None or batch.end_offset > since:
                yield scanned


def scan_snapshot(directory: Directory, name: str) -> Iterator[Scanned]:
    """Scan the batches of a snapshot. A last error says so if the snapshot has no end."""
    end = snapshot_end(name)
    start = _Place(0, None, 0, 0)
    last: Scanned | None = None
    for scanned in _scan_file(directory, name, start, None if end is None else end.epoch, False):
        last = scanned
        yield scanned
    if last is None or (last.error is None and not _has_footer(last.batch)):
        position, offset = (0, 0) if last is None else (last.position + last.length, last.expected_offset)
        yield Scanned(name, position, 0, None, offset, "the snapshot has no footer: it is not complete")


def scan_file(directory: Directory, name: str) -> Iterator[Scanned]:
    """Scan one file alone, a segment or a snapshot by its name."""
    base = segment_base(name)
    if base is None:
        yield from scan_snapshot(directory, name)
    else:
        yield from _scan_file(directory, name, _Place(base, None, 0, base), None, True)


def read_log(log: KafkaLog, since: Offset = 0, until: Offset | None = None) -> Iterator[Placed]:
    """Read the records in [since, until), without damage. A torn tail ends the log.

    Raises:
        CorruptLog: the log is damaged; the error names file, position and offset.
    """
    for record in _sound_records(scan_log(log, since, until), log.directory):
        if record.offset >= since and (until is None or record.offset < until):
            yield record


def read_snapshot(directory: Directory, name: str) -> Iterator[Placed]:
    """Read the records of a snapshot, header and footer included. Raises as `read_log`."""
    yield from _sound_records(scan_snapshot(directory, name), directory)


def _sound_records(found: Iterator[Scanned], directory: Directory) -> Iterator[Placed]:
    for scanned in found:
        file = f"{directory.path_text}/{scanned.file}"
        if scanned.is_torn:
            return
        if scanned.error is not None or scanned.batch is None:
            raise CorruptLog.at(file, scanned.position, scanned.expected_offset, scanned.error or "")
        try:
            yield from records(scanned.batch)
        except KafkaFormatError as e:
            raise CorruptLog.at(file, scanned.position, scanned.batch.base_offset, str(e)) from e


def _scan_file(directory: Directory, name: str, place: _Place, epoch: int | None, is_end: bool) -> Iterator[Scanned]:
    """Scan one file. `epoch`: the one epoch of all its batches, for a snapshot. `is_end`: the log ends with this file."""
    file: File = directory.open(name)
    try:
        size, window, position = file.size(), Window(file), 0
        while position < size:
            try:
                data, at = window.at(position, HEADER_BYTES)
                data, at = window.at(position, batch_length(data, at))
                batch = decode(data, at)
            except KafkaFormatError as e:
                scanned = _damaged(file, name, position, size, place, is_end, str(e))
                yield scanned
                position += scanned.length
                place = place._replace(offset=None, epoch=None)
                continue
            error = _does_not_follow(batch, place, epoch)
            yield Scanned(name, position, len(batch.data), batch, place.offset, error)
            position += len(batch.data)
            if error is None:
                place = _Place(batch.end_offset, batch.epoch, position, batch.end_offset)
            else:
                place = place._replace(offset=None, epoch=None)
    finally:
        file.close()


def _does_not_follow(batch: Batch, place: _Place, epoch: int | None) -> str | None:
    """Return why an intact batch cannot be here; None if it can."""
    if place.offset is not None and batch.base_offset != place.offset:
        return f"the batch names offset {batch.base_offset}, and offset {place.offset} should follow"
    if epoch is not None:
        return (
            None if batch.epoch == epoch else f"the batch names epoch {batch.epoch}; the snapshot is of epoch {epoch}"
        )
    if place.epoch is None or batch.epoch == place.epoch:
        return None
    if batch.epoch < place.epoch:
        return f"the batch names epoch {batch.epoch}, after epoch {place.epoch}: one of the two batches is damaged"
    if _first_control_type(batch) != LEADER_CHANGE:
        return f"the batch names epoch {batch.epoch}, which no leader began: the epoch before is {place.epoch}"
    return None


def _first_control_type(batch: Batch) -> int | None:
    """Return the type of the first record of a control batch; None if there is no such type."""
    if not batch.is_control:
        return None
    try:
        key = next(iter(raw_records(batch))).key
    except KafkaFormatError:
        return None
    return int.from_bytes(key[2:4], "big") if key is not None and len(key) == 4 else None


def _has_footer(batch: Batch | None) -> bool:
    return batch is not None and _first_control_type(batch) == SNAPSHOT_FOOTER


def _damaged(file: File, name: str, position: int, size: int, place: _Place, is_end: bool, reason: str) -> Scanned:
    """Return the damaged place from `position` up to the next intact batch, or to the end of the file."""
    stop = _next_intact(file, position + 1, size, place)
    if stop is None and is_end and _is_torn(file, position, size):
        return Scanned(name, position, size - position, None, place.offset, reason, is_torn=True)
    if stop is None:
        stop = size
    return Scanned(name, position, stop - position, None, place.offset, reason)


def _is_torn(file: File, position: int, size: int) -> bool:
    """Return True if the file ends inside a batch, or in zeros from `position` on.

    A whole batch whose checksum is right, and whose length is wrong, is damage: its length was overwritten.
    """
    rest = file.read_at(position, BATCH_BYTES_MAX)
    if not rest.strip(b"\x00"):
        return size - position <= len(rest) or _is_torn(file, position + len(rest), size)
    try:
        is_cut = batch_length(rest, 0) > size - position
    except KafkaFormatError:
        is_cut = len(rest) < HEADER_BYTES
    return is_cut and not crc_fits(rest)


def _next_intact(file: File, position: int, size: int, place: _Place) -> int | None:
    """Return the nearest position from `position` on where an intact batch with a later offset begins; None: there is none.

    The damaged batch's own length is not used: one wrong bit in it could skip intact batches.
    """
    while position < size:
        data = file.read_at(position, _SEARCH_BYTES + _PATTERN_BYTES)
        for match in _BATCH_BEGINS.finditer(data, 0, min(len(data), _SEARCH_BYTES + _PATTERN_BYTES - 1)):
            if _intact(file, position + match.start(), place):
                return position + match.start()
        position += _SEARCH_BYTES
    return None


def _intact(file: File, position: int, place: _Place) -> bool:
    """Return True if an intact batch begins here. Its offset has to fit: a record has `RECORD_BYTES_MIN` bytes at least."""
    head = file.read_at(position, HEADER_BYTES)
    records_max = (position - place.sound_position) // RECORD_BYTES_MIN
    if not 0 <= int.from_bytes(head[:8], "big") - place.sound_offset <= records_max:
        return False
    try:
        decode(file.read_at(position, batch_length(head, 0)), 0)
    except KafkaFormatError:
        return False
    return True
