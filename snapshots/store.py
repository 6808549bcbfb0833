"""The snapshots of one node: which exist, which are intact, and how one is downloaded in chunks.

*A snapshot is chosen by its number and trusted by its checksums.* `newest_valid` verifies from the newest snapshot down
until one is intact. A damaged snapshot never causes the deletion of an intact one. Example: a node has snapshots at
100, 200 and 300, and 300 is damaged. `newest_valid` returns 200, and retention deletes at most 100: 300 does not count
as the newest, and stays for inspection.

Files with other names are ignored.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

from metadata_log.disk.failures import is_unreadable
from metadata_log.disk.files import Directory, File
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
from snapshots.reader import read_meta, unreadable_is_damaged, verify_snapshot
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
"""Maximum size of a download."""
COPY_BYTES: Final = 1 << 20
BOOTSTRAP_KRAFT_VERSION: Final = 1


class SnapshotNotFound(LookupError):
    """This node does not have the snapshot (any more)."""


class PositionOutOfRange(ValueError):
    """The position is beyond the snapshot's end, or the chunk does not continue the download."""


class SnapshotStore:
    """The snapshots in one `@metadata` directory."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self._sizes: dict[OffsetAndEpoch, SnapshotInfo] = {}
        self._part: tuple[OffsetAndEpoch, File, int] | None = None
        """The running download: its snapshot, its file, and how many bytes have arrived."""
        self._writing: set[OffsetAndEpoch] = set()
        """Snapshots that `write` is writing, perhaps on another thread. Their `.part` files must not be deleted."""
        self._damaged: set[OffsetAndEpoch] = set()
        """Snapshots that were found damaged since this process started."""
        self._verified: set[OffsetAndEpoch] = set()
        """Snapshots that this process has written or verified."""

    # --- which there are -------------------------------------------------------------------------------------------

    def list(self) -> tuple[SnapshotInfo, ...]:
        """Return all snapshots except the bootstrap one, by end offset and epoch. They are not verified."""
        ends = sorted(
            parsed[0]
            for parsed in map(parse_name, self.directory.names())
            if parsed is not None and not parsed[1] and parsed[0] != BOOTSTRAP_END
        )
        return tuple(self._info(end) for end in ends)

    def files(self) -> tuple[tuple[str, int], ...]:
        """Return names and sizes of the snapshots not known to be damaged, oldest first, without the bootstrap one."""
        return tuple((snapshot_name(info.end), info.size) for info in self.list() if info.end not in self._damaged)

    def withdraw(self, end: OffsetAndEpoch) -> None:
        """Mark a snapshot as damaged: this node does not send it any more."""
        self._verified.discard(end)
        self._damaged.add(end)

    def is_damaged(self, end: OffsetAndEpoch) -> bool:
        return end in self._damaged

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
                return SnapshotInfo(end, file.size(), 0)  # not cached: the next read may succeed
            finally:
                file.close()
        return known

    def newest_valid(self) -> SnapshotInfo | None:
        """Return the newest snapshot that verifies as a whole; None if none does."""
        for info in reversed(self.list()):
            if self._is_whole(info.end):
                return info
        return None

    def newest_at_start(self, log_start: Offset) -> SnapshotInfo | None:
        """Return the newest snapshot that verifies. Skip a snapshot that the disk cannot read, like a
        damaged one.

        The older snapshot that is used instead (or offset 0, if none is left) must reach up to `log_start`, where the log
        begins.

        Raises:
            OSError: the unreadable snapshot is needed. A process that ends with this error is restarted, and the next
                read may succeed.
        """
        unreadable: OSError | None = None
        found: SnapshotInfo | None = None
        for info in reversed(self.list()):
            try:
                if self._is_whole(info.end):
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
                verify_snapshot(self.directory, end)
            except LogFormatError:
                return False
            self._verified.add(end)
        return True

    def read_meta(self, end: OffsetAndEpoch) -> SnapshotMeta:
        """Return the content of a snapshot apart from its records. The first call for a snapshot verifies the whole
        file.

        Raises:
            SnapshotCorrupt: the snapshot does not verify.
        """
        if end in self._verified:
            return read_meta(self.directory, end)
        meta = verify_snapshot(self.directory, end)
        self._verified.add(end)
        return meta

    # --- the first voter set ---------------------------------------------------------------------------------------

    def write_bootstrap(self, voters: Voters) -> None:
        """Write the `0-0` checkpoint when a directory is formatted: the voters until the log has a voter set."""
        chain = bytes(CHAIN_BYTES)
        meta = SnapshotMeta(BOOTSTRAP_END, 0, chain, voters, BOOTSTRAP_KRAFT_VERSION)
        write_records(self.directory, meta, ())

    def bootstrap(self) -> SnapshotMeta | None:
        """Return the content of the `0-0` checkpoint; None if the directory was not formatted.

        Raises:
            SnapshotCorrupt: the checkpoint does not verify.
        """
        if not self.directory.exists(snapshot_name(BOOTSTRAP_END)):
            return None
        return self.read_meta(BOOTSTRAP_END)

    # --- serving ---------------------------------------------------------------------------------------------------

    def read_chunk(self, end: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes]:
        """Return the size of the whole file, and at most `max_bytes` bytes from `position` on.

        Raises:
            SnapshotNotFound: the snapshot does not exist, is damaged or unreadable, or is the bootstrap one, which is
                never sent.
            PositionOutOfRange: `position` is negative or beyond the end. (At the end there are no bytes, and no error.)
        """
        if end == BOOTSTRAP_END or end in self._damaged:
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
            raise SnapshotNotFound(f"this node's disk cannot read the snapshot {end}: {e}") from e
        finally:
            file.close()

    # --- writing and receiving -------------------------------------------------------------------------------------

    def write(self, meta: SnapshotMeta, image: MetadataImage) -> SnapshotInfo:
        """Write the snapshot of `image`; may run on another thread. See `writer`."""
        with self.writing(meta.end):
            return write_image(self.directory, meta, image)

    @contextmanager
    def writing(self, end: OffsetAndEpoch) -> Iterator[None]:
        """Keep the unfinished snapshot that a `SnapshotWriter` writes inside of the block. At the end it counts as verified."""
        self._writing.add(end)
        try:
            was_there = self.directory.exists(snapshot_name(end))
            yield
        finally:
            self._writing.discard(end)
        if not was_there:
            self._verified.add(end)

    def write_part(self, end: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Store a chunk of a download. Position 0 begins a new download and drops any other one.

        Raises:
            PositionOutOfRange: the chunk does not continue the download, or the download exceeds PART_BYTES_MAX.
        """
        if position == 0:
            self._drop_part()
            file = self.directory.open(part_name(end), create=True)
            file.truncate(0)
            self._part = (end, file, 0)
        if self._part is None or self._part[0] != end or self._part[2] != position:
            raise PositionOutOfRange(
                f"a chunk of snapshot {end} at {position} does not continue the download; it was not stored"
            )
        if position + len(data) > PART_BYTES_MAX:
            raise PositionOutOfRange(f"snapshot {end} is larger than {PART_BYTES_MAX} bytes; this chunk was not stored")
        file = self._part[1]
        file.write_at(position, data)
        self._part = (end, file, position + len(data))

    def resume_part(self, above: Offset) -> tuple[OffsetAndEpoch, int] | None:
        """Find the newest `.part` file that an earlier process left (a download, or a snapshot of its own). Return its
        end and size.

        The download continues there: all nodes write the same bytes, and the whole file is verified at the end. A part
        that ends at or below `above` is useless. All parts but the newest useful one are deleted.
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
        """Delete the running download if it ends at or below `upto`."""
        if self._part is not None and self._part[0].offset <= upto:
            self._drop_part()

    def part_bytes(self, end: OffsetAndEpoch) -> int:
        """Return how many bytes of the download of `end` have arrived; 0 if none or another one is running."""
        return self._part[2] if self._part is not None and self._part[0] == end else 0

    def complete_part(self, end: OffsetAndEpoch, chain: bytes | None = None) -> SnapshotMeta:
        """Finish a download: verify it, make it durable, and rename it. Read its records with `read_runs`.

        `chain` is the chain that the log has at `end`, if known; the snapshot must have the same one. May run on
        another thread: from the beginning of this call no other code uses the part.

        Raises:
            SnapshotCorrupt: the snapshot does not verify; the part was deleted.
            SnapshotNotFound: no download of this snapshot is running.
        """
        part = self._part
        if part is None or part[0] != end:
            raise SnapshotNotFound(f"no download of snapshot {end} is running")
        self._part = None
        self._writing.add(end)
        file = part[1]
        try:
            with unreadable_is_damaged():
                meta = verify_snapshot(self.directory, end, part=True)
            if chain not in (None, meta.chain):
                raise SnapshotCorrupt(
                    f"snapshot {end} has another chain than this log at its end; the download was deleted"
                )
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
        """Delete unfinished downloads and snapshots."""
        self._drop_part()
        for name in self.directory.names():
            parsed = parse_name(name)
            if parsed is not None and parsed[1] and parsed[0] not in self._writing:
                self.directory.remove(name)

    def drop_unfinished(self, end: OffsetAndEpoch) -> None:
        """Delete the remains of a snapshot that did not fit on the disk. A running download stays."""
        is_download = self._part is not None and self._part[0] == end
        if not is_download and self.directory.exists(part_name(end)):
            self.directory.remove(part_name(end))

    # --- retention -------------------------------------------------------------------------------------------------

    def retain(self, policy: RetentionPolicy, *, log_bytes: int) -> Names:
        """Delete snapshots over the limits, oldest first, but never the newest intact one. Return their names.

        Snapshots above the newest intact one are damaged. They do not count and are not deleted, so that a person can
        inspect them.
        """
        try:
            with unreadable_is_damaged():
                newest = self.newest_valid()
        except SnapshotCorrupt:
            return []  # the newest intact snapshot is not known; the scrub will find out
        if newest is None:
            return []
        sizes = [SnapshotSize(info.end, info.size, info.timestamp_ms) for info in self.list() if info.end <= newest.end]
        return self.drop(policy.expired(sizes, log_bytes))

    def drop(self, ends: Iterable[OffsetAndEpoch]) -> Names:
        """Delete these snapshots and return their names."""
        names = []
        for end in ends:
            name = snapshot_name(end)
            if self.directory.exists(name):
                self.directory.remove(name)
                names.append(name)
            self._sizes.pop(end, None)
            self._verified.discard(end)
            self._damaged.discard(end)
        if names:
            self.directory.flush()
        return names


def _timestamp_ms(file: File) -> int:
    """Return the log time in the file's first batch; 0 if that batch is damaged, which verification reports."""
    try:
        return decode(file.read_at(0, BATCH_BYTES_MAX)).last_timestamp_ms
    except LogFormatError:
        return 0


def _write_again(file: File) -> None:
    """Write the whole file again, so that the next fsync writes it to the disk.

    After a failed fsync in an earlier process, the bytes are in the page cache only, marked clean. The fsync that
    completes the download would report success and prove nothing.
    """
    position, size = 0, file.size()
    while position < size:
        data = file.read_at(position, COPY_BYTES)
        file.write_at(position, data)
        position += len(data)
