"""Three small files beside the segments: `flushed` (how far the log was durable), `log-start` and `lost`.

`flushed` says how far the log was durable. The log overwrites the note after every completed flush, *without an fsync
of the note*, which costs one write into the page cache. So a power cut may bring back an older note, and every older
note was true when it was written. An older note stays true because every operation that would make the note false
(truncation, reset) first lowers the note, and then with an fsync. Example:
  1. the log flushes 0..49 and writes "50", then flushes 50..59 and writes "60"; neither note is fsynced;
  2. power cut: the note says 50 or 60, and both are true. Recovery treats at least 0..49 as durable;
  3. the log is truncated to 30: first "30" is written and fsynced, then the bytes above are cut. No power cut can leave
     a note of 50 beside a log that ends at 30.
The note has 52 bytes at the start of one sector, and a disk writes a sector as a whole.

`log-start` is replaced atomically. It names the record at which the log starts, which may lie inside a segment. It also
makes a reset one step: as soon as `log-start` says `resetting`, the old segments do not count.

`lost` exists while this node lacks records that it had made durable, and says how far the log had been durable. `lost`
is written before anything is cut, and deleted by `Log.forget_loss`.
"""

import json
import struct
from typing import Final, NamedTuple

import google_crc32c

from metadata_log.disk.failures import FileTooLarge, is_unreadable
from metadata_log.disk.files import Directory, File
from metadata_log.format.batch import CHAIN_BYTES
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.store.segment import base_offset_of, segment_names

FLUSHED_NAME: Final = "flushed"
START_NAME: Final = "log-start"
LOST_NAME: Final = "lost"

_FLUSHED: Final = struct.Struct(">8sQ32sI")
_FLUSHED_MAGIC: Final = b"metaqfl1"
_START_BYTES_MAX: Final = 4096
_NUMBER_MAX: Final = (1 << 63) - 1


class Flushed(NamedTuple):
    """A durable end: all records below `end` were durable once, and the chain there was `chain`."""

    end: Offset
    chain: bytes


def _pack(flushed: Flushed) -> bytes:
    summed = _FLUSHED.pack(_FLUSHED_MAGIC, *flushed, 0)[:-4]
    crc: int = google_crc32c.value(summed)
    return summed + crc.to_bytes(4, "big")


def _unpack(data: bytes) -> Flushed | None:
    if len(data) < _FLUSHED.size:
        return None
    magic, end, chain, crc = _FLUSHED.unpack(data[: _FLUSHED.size])
    if magic != _FLUSHED_MAGIC or google_crc32c.value(data[: _FLUSHED.size - 4]) != crc:
        return None
    return Flushed(end, chain)


def read_flushed(directory: Directory) -> Flushed | None:
    """Return the note `flushed` of a directory that another process may use; None if the note is missing or damaged."""
    try:
        return _unpack(directory.read(FLUSHED_NAME, _START_BYTES_MAX))
    except (FileNotFoundError, FileTooLarge):
        return None


def write_lost(directory: Directory, lost: Flushed) -> None:
    """Record, durably, that this node lacks records below `lost.end` that it had made durable."""
    directory.write_atomic(LOST_NAME, _pack(lost))


def read_lost(directory: Directory) -> Flushed | None:
    """Return what `write_lost` wrote; None if nothing was lost.

    Raises:
        CorruptLog: the file is damaged. The file is written atomically, so a crash does not explain the damage.
    """
    try:
        data = directory.read(LOST_NAME, _START_BYTES_MAX)
    except FileNotFoundError:
        return None
    except FileTooLarge:
        data = b""
    lost = _unpack(data)
    if lost is None or len(data) != _FLUSHED.size:
        raise CorruptLog.at(f"{directory.path_text}/{LOST_NAME}", 0, 0, "unreadable")
    return lost


def remove_lost(directory: Directory) -> None:
    """Delete the file `lost`, durably."""
    if directory.exists(LOST_NAME):
        directory.remove(LOST_NAME)
        directory.flush()


class FlushedNote:
    """The file `flushed`, open unless the log rests."""

    def __init__(self, directory: Directory) -> None:
        """Create the file if there is none. Its name is durable after the next flush of the directory, which each opening of a
        log does before it counts anything as durable.
        """
        self._directory = directory
        self._opened: File | None = directory.open(FLUSHED_NAME, create=True)

    def read(self) -> Flushed | None:
        """Read the note; None if the note is missing or damaged.

        Raises:
            OSError: the disk cannot read the note. A start fails then, because the note may name a higher end than the
                readable batches.
        """
        try:
            return _unpack(self._file.read_at(0, _FLUSHED.size))
        except OSError as e:
            if not is_unreadable(e):
                raise
            text = f"{self._directory.path_text}/{FLUSHED_NAME}: the disk cannot read how far this log was durable"
            raise OSError(
                e.errno,
                f"{text} ({e.strerror}). Nothing was changed; the next start reads the note again. If the disk never can, give "
                "the node a new directory",
            ) from e

    def write(self, end: Offset, chain: bytes) -> None:
        """Note that all records below `end` are durable. The caller has flushed them."""
        self._file.write_at(0, _pack(Flushed(end, chain)))

    def flush(self) -> None:
        """Make the note durable. Call this before the old note becomes false."""
        self._file.flush()

    def check_in_place(self) -> None:
        """Raise Removed if the file was deleted."""
        self._file.check_in_place()

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def _file(self) -> File:
        if self._opened is None:
            self._opened = self._directory.open(FLUSHED_NAME)
        return self._opened


class LogStart(NamedTuple):
    """The start of the log, with the chain and the time of the records below."""

    start: OffsetAndEpoch
    chain: bytes
    timestamp_ms: int
    """The timestamp of the last batch below the start; 0 if no batch is below."""
    resetting: bool = False
    """A reset to this start has begun, so no segment in the directory counts."""


def write_start(directory: Directory, start: LogStart) -> None:
    """Replace `log-start` by `start`, durably and in one step."""
    text = json.dumps(
        {
            "version": 1,
            "offset": start.start.offset,
            "epoch": start.start.epoch,
            "chain": start.chain.hex(),
            "timestamp_ms": start.timestamp_ms,
            "resetting": start.resetting,
        }
    ).encode()
    directory.write_atomic(START_NAME, b"%s\n%08x\n" % (text, google_crc32c.value(text)))


def read_start(directory: Directory) -> LogStart | None:
    """Return what `write_start` wrote last; None if `log-start` does not exist.

    Raises:
        CorruptLog: the file is damaged. The file is written atomically, so a crash does not explain the damage.
    """
    try:
        data = directory.read(START_NAME, _START_BYTES_MAX)
    except FileNotFoundError:
        return None
    except FileTooLarge as e:
        raise CorruptLog.at(f"{directory.path_text}/{START_NAME}", 0, 0, str(e)) from e
    try:
        text, crc, _ = data.split(b"\n")
        if google_crc32c.value(text) != int(crc, 16):
            raise ValueError("CRC-32C mismatch")
        fields = json.loads(text)
        if fields["version"] != 1:
            raise ValueError(f"version {fields['version']}; this code reads 1")
        offset, epoch, timestamp_ms = (_whole(fields, name) for name in ("offset", "epoch", "timestamp_ms"))
        chain = bytes.fromhex(fields["chain"])
        if len(chain) != CHAIN_BYTES:
            raise ValueError(f"a chain of {len(chain)} bytes")
        return LogStart(OffsetAndEpoch(offset, epoch), chain, timestamp_ms, bool(fields["resetting"]))
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise CorruptLog.at(f"{directory.path_text}/{START_NAME}", 0, 0, f"{e!r:.100}") from e


def _whole(fields: dict[str, object], name: str) -> int:
    value = fields[name]
    if type(value) is not int or not 0 <= value <= _NUMBER_MAX:
        raise ValueError(f"{name} is {value!r:.40}; 0 to {_NUMBER_MAX} are possible")
    return value


class Trim(NamedTuple):
    """The disk's part of a new log start, for any thread. `Log.begin_trim` makes it."""

    directory: Directory
    start: LogStart
    first_base: Offset
    """The base offset of the segment with the start. All segments below it go, also those that an earlier trim has left."""

    def run(self) -> None:
        """Write the start, durably, then delete the segments below it. May be repeated after an error.

        Raises:
            OSError: the disk is full or broken.
            FlushFailed: the content of the disk is unknown.
        """
        write_start(self.directory, self.start)
        gone = [name for name in segment_names(self.directory) if (base_offset_of(name) or 0) < self.first_base]
        for name in gone:
            self.directory.remove(name)
        if gone:
            self.directory.flush()
