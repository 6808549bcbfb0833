"""Two small files beside the segments: how far the log was once durable, and where it starts.

`flushed` is rewritten in place after every completed flush, *without an fsync of its own*: it costs one write into the page
cache. What survives a power cut is therefore some earlier note, and each of those was true when it was written. It stays
true because whatever would make it false (truncation, reset) first lowers it, and that time with an fsync. So at every
moment: any note that a crash can leave says at most what is durable. It is 56 bytes at the start of one sector, and a disk
writes sectors whole.

`log-start` is replaced atomically. It says at which record the log starts where that is not the start of a segment, and it
makes a reset one step: from the moment at which it says `resetting` the old segments do not count.

`lost` is there while this node has lost what it had once made durable: it says how far that had reached. It is written before
anything is cut, and goes when whoever may judge that says so (`Log.forget_loss`).
"""

import json
import struct
from typing import Final, NamedTuple

import google_crc32c

from metadata_log.disk.bad_sectors import read_twice
from metadata_log.disk.files import Directory, FileTooLarge, is_unreadable
from metadata_log.format.batch import CHAIN_BYTES
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Offset, OffsetAndEpoch

FLUSHED_NAME: Final = "flushed"
START_NAME: Final = "log-start"
LOST_NAME: Final = "lost"

_FLUSHED: Final = struct.Struct(">8sQ32sI")
_FLUSHED_MAGIC: Final = b"metaqfl1"
_START_BYTES_MAX: Final = 4096
_NUMBER_MAX: Final = (1 << 63) - 1


class Flushed(NamedTuple):
    """All below `end` was durable once, and the chain there was `chain`."""

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


def write_lost(directory: Directory, lost: Flushed) -> None:
    """Makes durable that all below `lost.end` had been durable here, and is not any more."""
    directory.write_atomic(LOST_NAME, _pack(lost))


def read_lost(directory: Directory) -> Flushed | None:
    """What `write_lost` wrote; None where nothing was lost.

    Raises:
        CorruptLog: the file is damaged. It is written atomically, so no crash explains that.
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
    """Nothing is missing any more."""
    if directory.exists(LOST_NAME):
        directory.remove(LOST_NAME)
        directory.flush()


class FlushedNote:
    """The open file `flushed`."""

    def __init__(self, directory: Directory) -> None:
        is_new = not directory.exists(FLUSHED_NAME)
        self._directory = directory
        self._file = directory.open(FLUSHED_NAME, create=True)
        self.unread: OSError | None = None
        """Why the disk could not give the note; None if it could."""
        if is_new:
            directory.flush()

    def read(self) -> Flushed | None:
        """The note; None if there is none that can be read, by the disk too (then `unread` says so)."""
        self.unread = None
        try:
            return _unpack(read_twice(lambda: self._file.read_at(0, _FLUSHED.size)))
        except OSError as e:
            if not is_unreadable(e):
                raise
            self.unread = e
            return None

    def write(self, end: Offset, chain: bytes) -> None:
        """Notes that all below `end` is durable, which it must be."""
        note = _pack(Flushed(end, chain))
        try:
            self._file.write_at(0, note)
        except OSError as e:
            if self.unread is None or not is_unreadable(e):
                raise
            # It is less than the block that the bad sector is in, and the kernel would have to read the rest of that.
            self._directory.write_atomic(FLUSHED_NAME, note)
            self._file.close()
            self._file, self.unread = self._directory.open(FLUSHED_NAME), None

    def flush(self) -> None:
        """Makes the note durable: needed before what it says ceases to be true."""
        self._file.flush()

    def check_in_place(self) -> None:
        """Raises Removed where the file has no name any more."""
        self._file.check_in_place()

    def close(self) -> None:
        self._file.close()


class LogStart(NamedTuple):
    """Where the log starts, and what lies below that."""

    start: OffsetAndEpoch
    chain: bytes
    timestamp_ms: int
    """The timestamp of the last batch below the start; 0 where there is none."""
    resetting: bool = False
    """A reset to this start has begun: no segment that is there counts."""


def write_start(directory: Directory, start: LogStart) -> None:
    """Makes `start` the durable truth, in one step."""
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
    """What `write_start` wrote last; None where nothing was.

    Raises:
        CorruptLog: the file is damaged. It is written atomically, so no crash explains that.
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
