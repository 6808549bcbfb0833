"""The snapshots of one node: which there are, which is whole, and how one arrives in pieces.

Chosen by number, believed by checksum: `newest_valid` goes down from the newest until one verifies, and a bad one never
leads to the removal of a good one. Names that are not snapshots' are none of its business.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final, TypeAlias

from metadata_log.disk.bad_sectors import read_twice
from metadata_log.disk.files import Directory, File, is_unreadable
from metadata_log.format.batch import BATCH_BYTES_MAX, CHAIN_BYTES, decode
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.records import Voters
from metadata_log.image.metadata_image import MetadataImage
from snapshots.format import (
    BOOTSTRAP_END,
    SnapshotCorrupt,
    SnapshotMeta,
    genesis,
    parse_name,
    part_name,
    snapshot_name,
)
from snapshots.policy import RetentionPolicy, SnapshotSize
from snapshots.reader import read_meta, read_snapshot, unreadable_is_damaged
from snapshots.writer import SnapshotInfo, write_image, write_records

__all__ = [
    "PositionOutOfRange",
    "SnapshotInfo",
    "SnapshotNotFound",
    "SnapshotStore",
    "genesis",
]

Names: TypeAlias = list[str]

PART_BYTES_MAX: Final = 8 << 30
"""No download is believed beyond this size."""
COPY_BYTES: Final = 1 << 20
BOOTSTRAP_KRAFT_VERSION: Final = 1


class SnapshotNotFound(LookupError):
    """There is no such snapshot here (any more)."""


class PositionOutOfRange(ValueError):
    """The snapshot does not reach to that position, or the chunk does not continue what is here."""


class SnapshotStore:
    """The snapshots in one `@metadata` directory."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self._sizes: dict[OffsetAndEpoch, SnapshotInfo] = {}
        self._part: tuple[OffsetAndEpoch, File, int] | None = None
        """The download under way: whose, into what, and how far."""
        self._writing: set[OffsetAndEpoch] = set()
        """Those that `write` is busy with, perhaps on another thread: their parts are not to be discarded."""
        self._rotten: set[OffsetAndEpoch] = set()
        """Those that were found damaged since this process started."""
        self._verified: set[OffsetAndEpoch] = set()
        """Those that this process has written itself, or has found whole."""

    # --- which there are -------------------------------------------------------------------------------------------

    def list(self) -> tuple[SnapshotInfo, ...]:
        """All but the bootstrap one, by end offset and epoch. Unverified."""
        ends = sorted(
            parsed[0]
            for parsed in map(parse_name, self.directory.names())
            if parsed is not None and not parsed[1] and parsed[0] != BOOTSTRAP_END
        )
        return tuple(self._info(end) for end in ends)

    def files(self) -> tuple[tuple[str, int], ...]:
        """The file names and sizes of those that are believed to be whole, oldest first; not the bootstrap one's."""
        return tuple((snapshot_name(info.end), info.size) for info in self.list() if info.end not in self._rotten)

    def withdraw(self, end: OffsetAndEpoch) -> None:
        """It is damaged: nobody is given it any more."""
        self._verified.discard(end)
        self._rotten.add(end)

    def is_damaged(self, end: OffsetAndEpoch) -> bool:
        return end in self._rotten

    def _info(self, end: OffsetAndEpoch) -> SnapshotInfo:
        known = self._sizes.get(end)
        if known is None:
            file = self.directory.open(snapshot_name(end))
            try:
                known = SnapshotInfo(end, file.size(), _timestamp_ms(file))
                self._sizes[end] = known
            except OSError as e:
                if not is_unreadable(e):
                    raise
                return SnapshotInfo(end, file.size(), 0)  # not kept: the next read may tell
            finally:
                file.close()
        return known

    def newest_valid(self) -> SnapshotInfo | None:
        """The newest snapshot that verifies as a whole; None if none does."""
        for info in reversed(self.list()):
            if self._is_whole(info.end):
                return info
        return None

    def newest_at_start(self, log_start: Offset) -> SnapshotInfo | None:
        """As `newest_valid`; but one that the disk cannot read, asked twice, is passed over like a damaged one.

        Provided that it can be done without: an older one, or nothing, reaches up to `log_start`, where the log goes on.

        Raises:
            OSError: it cannot. A start that fails with that is tried again, and the next read may succeed.
        """
        unreadable: OSError | None = None
        found: SnapshotInfo | None = None
        for info in reversed(self.list()):
            try:
                if read_twice(partial(self._is_whole, info.end)):
                    found = info
                    break
            except OSError as e:
                if not is_unreadable(e):
                    raise
                unreadable = unreadable or e
        if unreadable is not None and (found.end.offset if found else 0) < log_start:
            raise unreadable
        return found

    def _is_whole(self, end: OffsetAndEpoch) -> bool:
        if end not in self._verified:
            try:
                read_snapshot(self.directory, end)
            except LogFormatError:
                return False
            self._verified.add(end)
        return True

    def read_meta(self, end: OffsetAndEpoch) -> SnapshotMeta:
        """What the snapshot says besides its records. Verifies the whole of it, once in the life of this store.

        Raises:
            SnapshotCorrupt: if it does not verify.
        """
        if end in self._verified:
            return read_meta(self.directory, end)
        meta = read_snapshot(self.directory, end).meta
        self._verified.add(end)
        return meta

    # --- the first voter set ---------------------------------------------------------------------------------------

    def write_bootstrap(self, voters: Voters) -> None:
        """The `0-0` checkpoint, written when a directory is formatted: who votes before the log says so."""
        chain = bytes(CHAIN_BYTES)
        meta = SnapshotMeta(BOOTSTRAP_END, 0, chain, voters, BOOTSTRAP_KRAFT_VERSION)
        write_records(self.directory, meta, ())

    def bootstrap(self) -> SnapshotMeta | None:
        """The `0-0` checkpoint; None where the directory was not formatted.

        Raises:
            SnapshotCorrupt: if it does not verify.
        """
        if not self.directory.exists(snapshot_name(BOOTSTRAP_END)):
            return None
        return self.read_meta(BOOTSTRAP_END)

    # --- serving ---------------------------------------------------------------------------------------------------

    def read_chunk(self, end: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes]:
        """(size of the whole file, bytes from `position`, at most `max_bytes`).

        Raises:
            SnapshotNotFound: also for the bootstrap one, which is nobody else's, and where the disk cannot read it.
            PositionOutOfRange: if `position` is negative or beyond the end; at the end there are no bytes.
        """
        if end == BOOTSTRAP_END or end in self._rotten:
            raise SnapshotNotFound(f"there is no snapshot {end} here")
        try:
            file = self.directory.open(snapshot_name(end))
        except FileNotFoundError as e:
            raise SnapshotNotFound(f"there is no snapshot {end} here") from e
        try:
            size = file.size()
            if not 0 <= position <= size:
                raise PositionOutOfRange(f"position {position} of snapshot {end}, which has {size} bytes")
            return size, file.read_at(position, max_bytes)
        except OSError as e:
            if not is_unreadable(e):
                raise
            raise SnapshotNotFound(f"the snapshot {end} cannot be read here: {e}") from e
        finally:
            file.close()

    # --- writing and receiving -------------------------------------------------------------------------------------

    def write(self, meta: SnapshotMeta, image: MetadataImage) -> SnapshotInfo:
        """Writes the snapshot of `image`; may run on another thread. See `writer`."""
        self._writing.add(meta.end)
        try:
            was_there = self.directory.exists(snapshot_name(meta.end))
            info = write_image(self.directory, meta, image)
        finally:
            self._writing.discard(meta.end)
        if not was_there:
            self._verified.add(meta.end)
        return info

    def write_part(self, end: OffsetAndEpoch, position: int, data: bytes) -> None:
        """A chunk of a download. Position 0 begins it anew, and drops any other that was under way.

        Raises:
            PositionOutOfRange: if the chunk does not continue what is here, or the download grows beyond all bounds.
        """
        if position == 0:
            self._drop_part()
            file = self.directory.open(part_name(end), create=True)
            file.truncate(0)
            self._part = (end, file, 0)
        if self._part is None or self._part[0] != end or self._part[2] != position:
            raise PositionOutOfRange(f"a chunk of snapshot {end} at {position}, which continues nothing here")
        if position + len(data) > PART_BYTES_MAX:
            raise PositionOutOfRange(f"snapshot {end} is said to be larger than {PART_BYTES_MAX} bytes")
        file = self._part[1]
        file.write_at(position, data)
        self._part = (end, file, position + len(data))

    def resume_part(self, above: Offset) -> tuple[OffsetAndEpoch, int] | None:
        """The newest download, or snapshot of one's own, that was broken off by the end of a process: whose, and how far.

        It goes on from there: all nodes write the same bytes, and the whole is verified in the end. What ends at or below
        `above` is of no use any more, and goes, as do all others.
        """
        found = [parsed[0] for parsed in map(parse_name, self.directory.names()) if parsed is not None and parsed[1]]
        newest = max((end for end in found if end.offset > above), default=None)
        for end in found:
            if end != newest:
                self.directory.remove(part_name(end))
        if newest is None:
            return None
        file = self.directory.open(part_name(newest))
        try:
            _write_again(file)
        except OSError as e:
            file.close()
            if not is_unreadable(e):
                raise
            self.directory.remove(part_name(newest))
            return None
        self._part = (newest, file, file.size())
        return newest, file.size()

    def drop_part(self, upto: Offset) -> None:
        """A download that ends at or below `upto` is of no use any more."""
        if self._part is not None and self._part[0].offset <= upto:
            self._drop_part()

    def part_bytes(self, end: OffsetAndEpoch) -> int:
        """How much is here of the download of `end`; 0 if another one is under way, or none."""
        return self._part[2] if self._part is not None and self._part[0] == end else 0

    def complete_part(self, end: OffsetAndEpoch, chain: bytes | None = None) -> SnapshotMeta:
        """The download is whole: verified, made durable, and renamed into place. Its records are for `read_records` to read.

        With `chain` it must also be of the history that has this chain at `end`. May run on another thread: from its beginning on
        the part is nobody else's.

        Raises:
            SnapshotCorrupt: if it does not verify; the part is gone.
            SnapshotNotFound: if nothing of it is here.
        """
        part = self._part
        if part is None or part[0] != end:
            raise SnapshotNotFound(f"no download of snapshot {end} is under way")
        self._part = None
        self._writing.add(end)
        file = part[1]
        try:
            with unreadable_is_damaged():
                meta = read_snapshot(self.directory, end, part=True).meta
            if chain not in (None, meta.chain):
                raise SnapshotCorrupt(f"snapshot {end} is of another history than this log, by its chain")
            file.flush()
            self.directory.rename(part_name(end), snapshot_name(end))
            self.directory.flush()
        except LogFormatError:
            self.directory.remove(part_name(end))
            raise
        finally:
            file.close()
            self._writing.discard(end)
        self._sizes.pop(end, None)
        self._verified.add(end)
        return meta

    def _drop_part(self) -> None:
        if self._part is not None:
            end, file, _ = self._part
            self._part = None
            file.close()
            self.directory.remove(part_name(end))

    def discard_parts(self) -> None:
        """Forgets downloads and snapshots that were being written when the process died."""
        self._drop_part()
        for name in self.directory.names():
            parsed = parse_name(name)
            if parsed is not None and parsed[1] and parsed[0] not in self._writing:
                self.directory.remove(name)

    def drop_unfinished(self, end: OffsetAndEpoch) -> None:
        """What `write` has left of a snapshot that there was no room for; a download that is under way stays."""
        is_download = self._part is not None and self._part[0] == end
        if not is_download and self.directory.exists(part_name(end)):
            self.directory.remove(part_name(end))

    # --- retention -------------------------------------------------------------------------------------------------

    def retain(self, policy: RetentionPolicy, *, log_bytes: int) -> Names:
        """Drops what is over the limits, oldest first; never the newest that verifies. Returns the names.

        Those above the newest whole one are damaged: they neither count nor go, for a person to look at.
        """
        try:
            with unreadable_is_damaged():
                newest = self.newest_valid()
        except SnapshotCorrupt:
            return []  # nobody knows which is the newest whole one: the scrub finds out
        if newest is None:
            return []
        sizes = [SnapshotSize(info.end, info.size, info.timestamp_ms) for info in self.list() if info.end <= newest.end]
        return self.drop(policy.expired(sizes, log_bytes))

    def drop(self, ends: Iterable[OffsetAndEpoch]) -> Names:
        """Removes these snapshots and returns their names."""
        names = []
        for end in ends:
            name = snapshot_name(end)
            if self.directory.exists(name):
                self.directory.remove(name)
                names.append(name)
            self._sizes.pop(end, None)
            self._verified.discard(end)
            self._rotten.discard(end)
        if names:
            self.directory.flush()
        return names


def _timestamp_ms(file: File) -> int:
    """The log time that the file's first batch carries; 0 where it is unreadable (verification will say so)."""
    try:
        return decode(file.read_at(0, BATCH_BYTES_MAX)).last_timestamp_ms
    except LogFormatError:
        return 0


def _write_again(file: File) -> None:
    """Makes all of it dirty: an fsync that failed before has left it in the page cache, marked clean and not on the disk, and
    the fsync that completes the download would report success and prove nothing.
    """
    position, size = 0, file.size()
    while position < size:
        data = file.read_at(position, COPY_BYTES)
        file.write_at(position, data)
        position += len(data)
