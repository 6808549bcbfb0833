"""A disk for tests that forgets, lies and fills up: `MemoryDirectory` is a `Directory` like the real one.

What a power cut leaves (`crash`) is as bad as disks allow, and decided by the dice that are handed in:
  * of a file's writes since its last flush, every 512-byte sector keeps *any* of the contents that it had since then,
    each sector for itself; so half a batch, a hole, or the second write without the first;
  * the file's size is any that it had since then;
  * of a directory's creations, renames and removals since its last flush, any number of the first ones have happened.

So a file whose name was not flushed may be gone whatever was flushed inside it, and a file that was renamed into place
without a flush may be empty. `kill` is the other crash: the process ends, the page cache stays.

Faults to order: `flip_bit`, `break_sector`, `fail_next_flush`, `fail_next_read`, `limit_space`, `stop_reserving`, `vanish`, and
`cut_power_after(n)`, which raises `PowerCut` at the n-th operation that changes the disk, so that a test can crash *inside*
whatever it calls.

A flush that fails does so as Linux does it: the pages are marked clean all the same. Whoever reads on, in this process or
the next, sees what was written; whoever flushes again is told that all is well; and the power cut after that brings back
what the disk had held before. Only bytes that are *written again* become durable. A directory's entries do when one of them
changes again and that is flushed: directories are small, and all of one is in one block.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from metadata_log.disk.failures import DirectoryInUse, FileTooLarge, FlushFailed, Removed
from metadata_log.disk.files import DELETED_SUFFIX, Directory
from tests.sim.world.disk_content import SECTOR_BYTES, Content, sectors_of

_EIO: Final = 5
_ENOSPC: Final = 28


class PowerCut(BaseException):
    """The machine went dark in the middle of an operation. Nothing may handle this but the test."""


class Observer:
    """The check of the laws reads the same files, and must not meet the faults that were meant for the node."""

    is_looking = False

    def __enter__(self) -> None:
        Observer.is_looking = True

    def __exit__(self, *_: object) -> None:
        Observer.is_looking = False


class _Volume:
    """The state that all directories of one disk share."""

    def __init__(self) -> None:
        self.space_bytes: int | None = None
        self.used_bytes = 0
        self.is_dark = False
        self.operations = 0
        self.flushes = 0
        self.failed_flushes = 0
        self.cut_at: int | None = None
        self.failing_flushes: set[str | None] = set()
        self.reserves_room = True
        self.failed_reads = 0
        self.failing_read = False
        self.bad_sectors: set[tuple[Content, int]] = set()
        """The sectors that cannot be read, by file."""

    def operate(self) -> None:
        """Before every change of the disk."""
        if self.is_dark:
            raise PowerCut
        self.operations += 1
        if self.cut_at is not None and self.operations >= self.cut_at:
            self.is_dark = True
            raise PowerCut

    def take(self, more_bytes: int) -> None:
        if self.space_bytes is not None and more_bytes > 0 and self.used_bytes + more_bytes > self.space_bytes:
            raise OSError(_ENOSPC, "No space left on device")
        self.used_bytes += more_bytes

    def flush(self, name: str) -> None:
        self.operate()
        self.flushes += 1
        for each in (name, None):
            if each in self.failing_flushes:
                self.failing_flushes.remove(each)
                self.failed_flushes += 1
                raise FlushFailed(f"{name}: the disk was told to fail this flush")

    def read(self, name: str) -> None:
        """Before every read of a file's contents."""
        if self.is_dark:
            raise PowerCut
        if self.failing_read and not Observer.is_looking:
            self.failing_read = False
            self.failed_reads += 1
            raise OSError(_EIO, f"Input/output error: {name}: the disk was told to fail this read")

    def read_sectors(self, name: str, content: "Content", position: int, stop: int) -> None:
        """Before [position, stop) of a file is read."""
        if not self.bad_sectors or Observer.is_looking:
            return
        for sector in sectors_of(position, min(stop, len(content.current))):
            if (content, sector) in self.bad_sectors:
                self.failed_reads += 1
                raise OSError(_EIO, f"Input/output error: {name}: sector {sector} is bad")

    def heal_sectors(self, content: "Content", sectors: range) -> None:
        """They were written, or are the file's no more: a disk then takes others in their place."""
        if self.bad_sectors:
            self.bad_sectors.difference_update((content, sector) for sector in sectors)


class MemoryFile:
    """An open file of a `MemoryDirectory`."""

    def __init__(self, volume: _Volume, name: str, content: Content) -> None:
        self._volume = volume
        self._name = name
        self._content = content
        self._failed = False
        self._was_removed = False
        self._closed = False

    def size(self) -> int:
        return len(self._content.current)

    def read_at(self, position: int, length: int) -> bytes:
        self._volume.read(self._name)
        self._volume.read_sectors(self._name, self._content, position, position + length)
        return bytes(self._content.current[position : position + length])

    def write_at(self, position: int, data: bytes) -> None:
        self._before_change()
        self._volume.take(max(0, position + len(data) - self.size()))
        self._content.change(position, bytes(data))
        self._volume.heal_sectors(self._content, sectors_of(position, position + len(data)))

    def truncate(self, size: int) -> None:
        self._before_change()
        self._volume.take(size - self.size())
        gone_from = (size + SECTOR_BYTES - 1) // SECTOR_BYTES
        self._volume.heal_sectors(self._content, range(gone_from, self.size() // SECTOR_BYTES + 1))
        self._content.change(size, None)

    def preallocate(self, size: int) -> None:
        if size > self.size() and self._volume.reserves_room:
            self.truncate(size)

    def flush(self) -> None:
        if self._closed:
            return
        self._refuse_after_failure()
        try:
            self._volume.flush(self._name)
        except FlushFailed:
            self._failed = True
            self._content.fail_flush()
            raise
        self._content.flush()
        self.check_in_place()

    def check_in_place(self) -> None:
        if self._content.is_removed and not self._closed:
            self._was_removed = True
            raise Removed(self._name)

    def close(self) -> None:
        self._closed = True

    def _before_change(self) -> None:
        assert not self._closed, self._name
        self._refuse_after_failure()
        self._volume.operate()

    def _refuse_after_failure(self) -> None:
        if self._was_removed:
            raise Removed(self._name)
        if self._failed:
            raise FlushFailed(
                f"{self._name}: an earlier fsync failed; this file refuses further writes until this node is restarted"
            )


_Change = tuple[str, "Content | MemoryDirectory | None"]


class MemoryDirectory:
    """See the file's head."""

    def __init__(self, path_text: str = "/memory", _volume: _Volume | None = None) -> None:
        self._path_text = path_text
        self._volume = _volume or _Volume()
        self._entries: dict[str, Content | MemoryDirectory] = {}
        self._durable: dict[str, Content | MemoryDirectory] = {}
        self._pending: list[list[_Change]] = []
        """Changes of entries since the last flush, oldest first; the parts of one change happen together."""
        self._locked = False
        self._is_gone = False

    # --- the Directory protocol ------------------------------------------------------------------------------------

    @property
    def path_text(self) -> str:
        return self._path_text

    def names(self) -> list[str]:
        return sorted(self._entries)

    def exists(self, name: str) -> bool:
        return name in self._entries

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        if create and name not in self._entries:
            self._change((name, Content()))
        return MemoryFile(self._volume, name, self._content(name))

    def read(self, name: str, max_bytes: int) -> bytes:
        self._volume.read(name)
        content = self._content(name)
        if len(content.current) > max_bytes:
            raise FileTooLarge(
                f"{self._path_text}/{name}: more than the {max_bytes} bytes that this file may have; not read"
            )
        self._volume.read_sectors(name, content, 0, max_bytes)
        return bytes(content.current)

    def write_atomic(self, name: str, data: bytes) -> None:
        temporary = f"{name}.tmp"
        self.check_in_place()
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.write_at(0, data)
            file.flush()
        except OSError:
            self.remove(temporary)
            raise
        self.rename(temporary, name)
        self.flush()

    def rename(self, old: str, new: str) -> None:
        content = self._content(old)
        if isinstance(replaced := self._entries.get(new), Content):
            replaced.is_removed = replaced is not content
        self._change((old, None), (new, content))

    def move(self, name: str, target: Directory) -> None:
        assert isinstance(target, MemoryDirectory)
        content = self._content(name)
        target._change((name, content))
        self._change((name, None))

    def remove(self, name: str) -> None:
        content = self._content(name)
        self._change((name, None))
        content.is_removed = True
        self._volume.used_bytes -= len(content.current)

    def check_in_place(self) -> None:
        if self._is_gone:
            raise Removed(self._path_text)

    def flush(self) -> None:
        self.check_in_place()
        try:
            self._volume.flush(self._path_text)
        except FlushFailed:
            self._pending.clear()  # clean now, and not on the disk
            raise
        if self._pending:
            self._durable = dict(self._entries)
            self._pending.clear()

    def subdirectory(self, name: str) -> "MemoryDirectory":
        found = self._entries.get(name)
        if found is None:
            found = MemoryDirectory(f"{self._path_text}/{name}", self._volume)
            self._change((name, found))
            self.flush()
        assert isinstance(found, MemoryDirectory), name
        return found

    def remove_directory(self, name: str) -> None:
        doomed = name.removesuffix(DELETED_SUFFIX) + DELETED_SUFFIX
        if name != doomed:
            found = self._entries.get(name)
            if not isinstance(found, MemoryDirectory):
                raise FileNotFoundError(2, "No such directory", f"{self._path_text}/{name}")
            self._change((name, None), (doomed, MemoryDirectory(f"{self._path_text}/{doomed}", self._volume)))
            self._volume.used_bytes -= sum(found.size(each) for each in found.names())
            found.vanish()
            self.flush()
        if doomed not in self._entries:
            raise FileNotFoundError(2, "No such directory", f"{self._path_text}/{doomed}")
        self._change((doomed, None))
        self.flush()

    def lock(self) -> None:
        if self._locked:
            raise DirectoryInUse(
                f"{self._path_text} is in use by process 0. Nothing was changed; stop that process first"
            )
        self._locked = True

    def unlock(self) -> None:
        self._locked = False

    def free_bytes(self) -> int:
        space = self._volume.space_bytes
        return 1 << 40 if space is None else max(0, space - self._volume.used_bytes)

    def _content(self, name: str) -> Content:
        assert "/" not in name and name not in ("", ".", ".."), name
        found = self._entries.get(name)
        if not isinstance(found, Content):
            raise FileNotFoundError(2, "No such file", f"{self._path_text}/{name}")
        return found

    def _change(self, *parts: _Change) -> None:
        self._volume.operate()
        self._pending.append(list(parts))
        _enter(self._entries, parts)

    # --- crashes and faults ----------------------------------------------------------------------------------------

    def crash(self, rng: Random) -> "MemoryDirectory":
        """The power goes. Gives the directory as it is found afterwards; this one, and all files open in it, are dark."""
        self._volume.is_dark = True
        volume = _Volume()
        volume.space_bytes = self._volume.space_bytes
        survivors: dict[int, Content] = {}
        return self._after_power_cut(rng, volume, survivors)

    def _after_power_cut(self, rng: Random, volume: _Volume, survivors: dict[int, Content]) -> "MemoryDirectory":
        entries = dict(self._durable)
        for parts in self._pending[: rng.randint(0, len(self._pending))]:
            _enter(entries, parts)
        found = MemoryDirectory(self._path_text, volume)
        for name, entry in entries.items():
            if isinstance(entry, MemoryDirectory):
                found._entries[name] = entry._after_power_cut(rng, volume, survivors)
                continue
            # one content may stand under two names, where a move was half done
            if id(entry) not in survivors:
                survivors[id(entry)] = entry.after_power_cut(rng)
                volume.used_bytes += len(survivors[id(entry)].current)
                bad = {sector for content, sector in self._volume.bad_sectors if content is entry}
                volume.bad_sectors |= {(survivors[id(entry)], sector) for sector in bad}
            found._entries[name] = survivors[id(entry)]
        found._durable = dict(found._entries)
        return found

    def kill(self) -> "MemoryDirectory":
        """The process is killed: its lock is gone, what it wrote is in the page cache, unflushed as before.

        After a `PowerCut` it was only the process that ended there: the disk is as that operation found it.
        """
        self._volume.is_dark = False
        self._volume.cut_at = None
        self._locked = False
        for entry in self._entries.values():
            if isinstance(entry, MemoryDirectory):
                entry.kill()
        return self

    def cut_power_after(self, operations: int) -> None:
        """The `operations`-th change of the disk from now on does not happen: `PowerCut`. Then `crash` tells what is left."""
        assert operations > 0
        self._volume.cut_at = self._volume.operations + operations

    def fail_next_flush(self, name: str | None = None) -> None:
        """The next flush of the file `name` (of anything, without a name) fails."""
        self._volume.failing_flushes.add(name)

    def fail_next_read(self) -> None:
        """The next read of any file's contents fails."""
        self._volume.failing_read = True

    def has_bad_sector(self, name: str) -> bool:
        """True if the file has a sector that cannot be read."""
        content = self._content(name)
        return any(each is content for each, _ in self._volume.bad_sectors)

    def break_sector(self, name: str, position: int) -> None:
        """The sector at `position` of a file cannot be read until it is written again, or the file is replaced."""
        content = self._content(name)
        assert position < len(content.current), (name, position, len(content.current))
        self._volume.bad_sectors.add((content, position // SECTOR_BYTES))

    def vanish(self) -> None:
        """Somebody removes this directory, and all that is in it, under whoever has it open."""
        self._is_gone = True
        for entry in self._entries.values():
            if isinstance(entry, MemoryDirectory):
                entry.vanish()
            else:
                entry.is_removed = True
        self._entries.clear()

    def limit_space(self, space_bytes: int | None) -> None:
        """The volume has room for so many bytes in all; None for no limit."""
        self._volume.space_bytes = space_bytes

    def stop_reserving(self) -> None:
        """From now on `preallocate` does nothing, as on file systems that cannot reserve room."""
        self._volume.reserves_room = False

    @property
    def has_orders(self) -> bool:
        """True if an ordered fault has not come yet, or lasts."""
        volume = self._volume
        return bool(volume.failing_flushes) or volume.failing_read or volume.space_bytes is not None

    def heal(self) -> None:
        """Takes back all orders."""
        self._volume.cut_at = None
        self._volume.failing_flushes.clear()
        self._volume.failing_read = False
        self._volume.bad_sectors.clear()
        self._volume.space_bytes = None

    def flip_bit(self, name: str, position: int, bit: int = 0) -> None:
        """A bit rots, in the durable content and in what programs see."""
        content = self._content(name)
        assert position < len(content.current), (name, position, len(content.current))
        content.current[position] ^= 1 << bit
        if position < len(content.durable):
            content.durable[position] ^= 1 << bit

    def edit(self, name: str, change: Callable[[bytearray], object]) -> None:
        """Somebody changes a file with an editor; durable at once."""
        content = self._content(name)
        before = len(content.current)
        change(content.current)
        self._volume.used_bytes += len(content.current) - before
        content.durable[:] = content.current
        content.pending.clear()

    def is_durable(self, name: str) -> bool:
        """True if the file, its name and all that was written to it would survive a power cut."""
        content = self._entries.get(name)
        return isinstance(content, Content) and self._durable.get(name) is content and content.is_durable

    def size(self, name: str) -> int:
        """Of the file `name`; 0 of a directory."""
        content = self._entries.get(name)
        return len(content.current) if isinstance(content, Content) else 0

    def durable_bytes(self, name: str) -> bytes | None:
        """The bytes that a power cut would leave under `name`, if no pending change happens; None: no such file."""
        content = self._durable.get(name)
        return bytes(content.durable) if isinstance(content, Content) else None

    @property
    def operations(self) -> int:
        """How many changes of the disk there were so far."""
        return self._volume.operations

    @property
    def flushes(self) -> int:
        """How many flushes there were so far, of files and directories."""
        return self._volume.flushes

    @property
    def failed_flushes(self) -> int:
        """How many of them failed, as they were told to."""
        return self._volume.failed_flushes

    @property
    def failed_reads(self) -> int:
        """How many reads failed, as they were told to."""
        return self._volume.failed_reads

    @property
    def used_bytes(self) -> int:
        return self._volume.used_bytes


def _enter(entries: "dict[str, Content | MemoryDirectory]", parts: "list[_Change] | tuple[_Change, ...]") -> None:
    for name, entry in parts:
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry
