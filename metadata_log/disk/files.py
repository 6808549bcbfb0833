"""The only file that writes, fsyncs and renames what a node keeps. Everything else says what it wants of a `Directory`.

Two Protocols, `File` and `Directory`, and the real ones over POSIX. The simulator's disk (`tests/sim/disk.py`) is the other
implementation, and one suite of tests runs over both.

What durability costs, and the order it needs (each line is a file that was lost otherwise):
  * a new file's *name* is durable only after an fsync of its directory, whatever was fsynced inside it;
  * rename without an fsync of the file first: after a power cut the new name may stand before an empty file;
  * rename without an fsync of the directory after: after a power cut the old content may be back. For a vote that is a
    second vote in one epoch.
So `write_atomic` does: write name.tmp, fsync it, rename, fsync the directory.

A failed fsync is never retried. The kernel marks the pages clean when it reports the error, so a second fsync succeeds and
proves nothing (page cache says B, disk says A). `FlushFailed` therefore ends the process, and the file refuses more work.

A file that was removed while it is open takes writes and fsyncs as before, and nobody will ever find them: a voter under whom
somebody runs `rm -rf` would go on acknowledging. So a flush of a file without a name fails like any other (`Removed`), and
`check_in_place` asks the same of a directory, which may also have been renamed, or replaced by an empty one.
"""

import errno
import fcntl
import os
import threading
from pathlib import Path
from typing import Protocol, Self

from metadata_log.format.errors import LogFormatError

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
LOCK_NAME = ".lock"
_HOLDER_BYTES = 20
"""Of the number in it."""


class FlushFailed(Exception):
    """An fsync failed: what is on the disk is unknown. Not an OSError, so that nobody handles it as one: stop the process."""


class Removed(FlushFailed):
    """A file or directory was removed, or replaced, under this process: whatever it writes there is found by nobody."""

    def __init__(self, what: Path | str) -> None:
        super().__init__(
            f"{what} was removed, or replaced, while this process was using it: what is written there now would be found by "
            "nobody, so this process stops. Find out who did that. If the directory was moved, move it back, and start again; if "
            "it is gone, or part of it, this node's disk is lost: give it a new directory, never an old copy"
        )


def is_full(error: OSError) -> bool:
    """Whether the disk, or this user's share of it, is full: that passes, unlike most of what a disk reports."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_unreadable(error: OSError) -> bool:
    """Whether the disk cannot give what it was asked for, now or ever: one sector says nothing of the others."""
    return error.errno == errno.EIO


class FileTooLarge(LogFormatError):
    """A file is larger than anything that could rightly be in it, and was not read."""


class DirectoryInUse(Exception):
    """Another process holds the directory's lock; the message names its pid."""


class File(Protocol):
    """An open file. One thread reads and writes it; `flush` may run on another meanwhile."""

    def size(self) -> int: ...

    def read_at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only where the file ends."""

    def write_at(self, position: int, data: bytes) -> None:
        """Writes all of `data`, or raises OSError having written any part of it."""

    def truncate(self, size: int) -> None:
        """Cuts the file, or extends it with zeros."""

    def preallocate(self, size: int) -> None:
        """Makes the file at least `size` bytes long, the new ones zero and their blocks reserved.

        Raises:
            OSError: ENOSPC; nothing has changed then.
        """

    def flush(self) -> None:
        """Makes everything durable that was written before the call. May run on a worker thread.

        Does nothing to a closed file: whoever closes a file while a flush is on its way has voided that flush.

        Raises:
            FlushFailed: now, and from every later call.
            Removed: the file has no name any more.
        """

    def check_in_place(self) -> None:
        """Raises Removed where the file has no name any more. Costs a system call, of about a microsecond."""

    def close(self) -> None:
        """Closes the file, waiting for a flush that is under way."""


class Directory(Protocol):
    """One directory. Names are plain: no separators. What is created or renamed is durable after `flush`."""

    @property
    def path_text(self) -> str:
        """Where this is, for messages."""

    def names(self) -> list[str]:
        """Everything in it, sorted; subdirectories too."""

    def exists(self, name: str) -> bool: ...

    def open(self, name: str, *, create: bool = False) -> File:
        """Opens for reading and writing; with `create` also a file that is not there yet.

        Raises:
            FileNotFoundError: without `create`.
        """

    def read(self, name: str, max_bytes: int) -> bytes:
        """A whole small file.

        Raises:
            FileNotFoundError: it is not there.
            FileTooLarge: it is larger than `max_bytes`; nothing was read.
        """

    def write_atomic(self, name: str, data: bytes) -> None:
        """Replaces `name` by `data`, durably: after any crash the file is wholly the old or wholly the new one.

        Raises:
            OSError: nothing was replaced.
            FlushFailed: stop the process; `Removed` where the directory is not in its place any more.
        """

    def rename(self, old: str, new: str) -> None:
        """Renames within this directory, replacing `new`."""

    def move(self, name: str, target: "Directory") -> None:
        """Moves a file into `target`, a directory of the same volume, under the same name."""

    def remove(self, name: str) -> None:
        """Removes a file.

        Raises:
            FileNotFoundError: it is not there.
        """

    def flush(self) -> None:
        """Makes creations, renames and removals durable (fsync of the directory).

        Raises:
            FlushFailed: stop the process; `Removed` where the directory is not in its place any more.
        """

    def check_in_place(self) -> None:
        """Raises Removed where this directory, or its lock, is gone, or another one stands in its place. Two system calls."""

    def subdirectory(self, name: str) -> "Directory":
        """The directory `name` in this one, made (and made durable) if it is not there."""

    def lock(self) -> None:
        """Takes this directory for this process, until `unlock` or the process's end.

        Raises:
            DirectoryInUse: another process has it.
        """

    def unlock(self) -> None: ...

    def free_bytes(self) -> int:
        """Bytes that the volume still has room for."""


class RealFile:
    """A file of the operating system's."""

    def __init__(self, path: Path, *, create: bool) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._path = path
        self._fd = os.open(path, flags, FILE_MODE)
        self._failed = False
        # Held by flush and close: a number of a closed file may belong to another file a moment later, and a worker that
        # still flushed by that number would report the wrong file as durable.
        self._flush_lock = threading.Lock()

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read_at(self, position: int, length: int) -> bytes:
        try:
            data = os.pread(self._fd, length, position)
            while data and len(data) < length:
                more = os.pread(self._fd, length - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as e:
            e.filename = str(self._path)  # the kernel does not say, and whoever has to act must know
            raise
        return data

    def write_at(self, position: int, data: bytes) -> None:
        self._refuse_after_failure()
        written = os.pwrite(self._fd, data, position)
        while written < len(data):
            written += os.pwrite(self._fd, data[written:], position + written)

    def truncate(self, size: int) -> None:
        self._refuse_after_failure()
        os.ftruncate(self._fd, size)

    def preallocate(self, size: int) -> None:
        self._refuse_after_failure()
        current = self.size()
        if current < size:
            try:
                os.posix_fallocate(self._fd, current, size - current)
            except OSError:
                os.ftruncate(self._fd, current)  # where the C library writes zeros itself, some may be there already
                raise

    def flush(self) -> None:
        with self._flush_lock:
            if self._fd < 0:
                return
            self._refuse_after_failure()
            try:
                os.fdatasync(self._fd)
            except OSError as e:
                self._failed = True
                raise FlushFailed(f"{self._path}: fdatasync failed ({e}); what is on the disk is unknown") from e
            self._check_linked()

    def close(self) -> None:
        with self._flush_lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def check_in_place(self) -> None:
        with self._flush_lock:
            if self._fd >= 0:
                self._check_linked()

    def _check_linked(self) -> None:
        if os.fstat(self._fd).st_nlink == 0:
            self._failed = True
            raise Removed(self._path)

    def _refuse_after_failure(self) -> None:
        if self._failed:
            raise FlushFailed(f"{self._path}: an earlier fsync failed; this file takes no more work")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RealDirectory:
    """A directory of the operating system's, made (0700, and durably) if it is not there. Files in it are 0600."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        missing = [each for each in (self.path, *self.path.parents) if not each.exists()]
        self.path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        for made in missing:
            _flush_directory(made.parent)
        self._identity = _identity(self.path)
        self._lock_fd = -1

    @property
    def path_text(self) -> str:
        return str(self.path)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path))  # noqa: PTH208 - half the cost of Path.iterdir, and names are what we want

    def exists(self, name: str) -> bool:
        return self._at(name).exists()

    def open(self, name: str, *, create: bool = False) -> RealFile:
        return RealFile(self._at(name), create=create)

    def read(self, name: str, max_bytes: int) -> bytes:
        with self._at(name).open("rb") as f:
            try:
                data = f.read(max_bytes + 1)
            except OSError as e:
                e.filename = str(self._at(name))
                raise
        if len(data) > max_bytes:
            raise FileTooLarge(f"{self._at(name)}: more than the {max_bytes} bytes that it could rightly have")
        return data

    def write_atomic(self, name: str, data: bytes) -> None:
        temporary = f"{name}.tmp"
        self.check_in_place()
        try:
            with self.open(temporary, create=True) as f:
                f.truncate(0)
                f.write_at(0, data)
                f.flush()
        except OSError:
            self._at(temporary).unlink(missing_ok=True)  # a full disk gets its bytes back
            raise
        self.rename(temporary, name)
        self.flush()

    def rename(self, old: str, new: str) -> None:
        self._at(old).replace(self._at(new))

    def move(self, name: str, target: Directory) -> None:
        assert isinstance(target, RealDirectory)
        self._at(name).replace(target._at(name))

    def remove(self, name: str) -> None:
        self._at(name).unlink()

    def flush(self) -> None:
        self.check_in_place()
        _flush_directory(self.path)

    def check_in_place(self) -> None:
        # An inode may be taken for the next directory as soon as this one is gone; that of a lock that is held may not.
        if _identity(self.path) != self._identity or (self._lock_fd >= 0 and os.fstat(self._lock_fd).st_nlink == 0):
            raise Removed(self.path)

    def subdirectory(self, name: str) -> "RealDirectory":
        path = self._at(name)
        if not path.is_dir():
            path.mkdir(mode=DIRECTORY_MODE)
            self.flush()
        return RealDirectory(path)

    def lock(self) -> None:
        assert self._lock_fd < 0, "this object has the lock already"
        fd = os.open(self._at(LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            holder = os.pread(fd, _HOLDER_BYTES, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise DirectoryInUse(f"{self.path} is in use by process {holder}; one process at a time") from e
        try:
            # In place and always as long: a full disk has the block already, and may have no other.
            os.pwrite(fd, f"{os.getpid()}\n".rjust(_HOLDER_BYTES).encode(), 0)
        except OSError as e:
            if not is_full(e) and not is_unreadable(e):
                os.close(fd)
                raise
            os.ftruncate(fd, 0)  # it is locked; the holder's number is only for people
        self._lock_fd = fd

    def unlock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def free_bytes(self) -> int:
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def _at(self, name: str) -> Path:
        assert "/" not in name and name not in ("", ".", ".."), name
        return self.path / name


def _identity(path: Path) -> tuple[int, int] | None:
    """Which directory stands there; None: none."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def _flush_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as e:
        raise FlushFailed(f"{path}: fsync of the directory failed ({e})") from e
    finally:
        os.close(fd)
