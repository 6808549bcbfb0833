"""Durable files: the only file of the project that writes, fsyncs and renames what a node keeps.

All other code uses the Protocols `File` and `Directory`. `RealFile` and `RealDirectory` implement them over POSIX; the
simulator's disk (`tests/sim/world/disk.py`) is the other implementation, and one test suite runs over both.

*Durability needs the right order.* Each rule has an example of a file that was lost without it:
  * fsync the directory after creating a file: otherwise the new *name* may be missing after a power cut, although the
    content was fsynced;
  * fsync a file before renaming it: otherwise the new name may show an empty file after a power cut;
  * fsync the directory after a rename: otherwise the old content may be back after a power cut. For a vote, that means
    a second vote in the same epoch.
So `write_atomic` does four steps: write name.tmp, fsync it, rename it, fsync the directory.

*A failed fsync is never retried.* The kernel reports the error once and marks the pages clean. Example:
  1. the page cache has B, the disk has A; the fsync of B fails;
  2. a second fsync finds no dirty page and succeeds, but the disk still has A.
So `FlushFailed` ends the process, and the file refuses further writes.

*A deleted file is detected.* An open file that was deleted accepts writes and fsyncs, but after a restart the file does
not exist. A voter whose directory was deleted with `rm -rf` would go on acknowledging. So a flush of a file without a
name raises `Removed`. `check_in_place` does the same check, also for a directory that was renamed or replaced.
"""

import fcntl
import os
import shutil
import threading
from pathlib import Path
from typing import Protocol, Self

from metadata_log.disk.failures import DirectoryInUse, FileTooLarge, FlushFailed, Removed, is_full, is_unreadable

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
LOCK_NAME = ".lock"
DELETED_SUFFIX = ".deleted"
_HOLDER_BYTES = 20
"""How many bytes the process id in the lock file has."""


class File(Protocol):
    """An open file. One thread reads and writes; `flush` may run on another thread at the same time."""

    def size(self) -> int: ...

    def read_at(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file."""

    def write_at(self, position: int, data: bytes) -> None:
        """Write all of `data`. After an OSError any part of `data` may have been written."""

    def truncate(self, size: int) -> None:
        """Set the file's size: cut the file, or extend it with zeros."""

    def preallocate(self, size: int) -> None:
        """Extend the file with zeros to at least `size` bytes, and reserve their blocks.

        Raises:
            OSError: ENOSPC; the file is unchanged.
        """

    def flush(self) -> None:
        """Make everything durable that was written before the call. May run on a worker thread.

        Does nothing to a closed file: the thread that closed the file has made this flush void.

        Raises:
            FlushFailed: now, and at every later call.
            Removed: the file has no name any more.
        """

    def check_in_place(self) -> None:
        """Raise Removed if the file has no name any more. Costs one system call, about a microsecond."""

    def close(self) -> None:
        """Close the file, after waiting for a running flush."""


class Directory(Protocol):
    """One directory. Names have no separators. Creations and renames are durable after `flush`."""

    @property
    def path_text(self) -> str:
        """The path of this directory, for messages."""

    def names(self) -> list[str]:
        """Return the names of all files and subdirectories, sorted."""

    def exists(self, name: str) -> bool: ...

    def open(self, name: str, *, create: bool = False) -> File:
        """Open a file for reading and writing; with `create`, create it if it does not exist.

        Raises:
            FileNotFoundError: the file does not exist, and `create` is False.
        """

    def read(self, name: str, max_bytes: int) -> bytes:
        """Read a whole small file.

        Raises:
            FileNotFoundError: the file does not exist.
            FileTooLarge: the file is larger than `max_bytes`; nothing was read.
        """

    def write_atomic(self, name: str, data: bytes) -> None:
        """Replace the content of `name` by `data`, durably. After any crash the file has either the old or the new
        content.

        Raises:
            OSError: the file is unchanged.
            FlushFailed: stop the process; `Removed` if the directory was deleted or replaced.
        """

    def rename(self, old: str, new: str) -> None:
        """Rename a file within this directory. An existing file `new` is replaced."""

    def move(self, name: str, target: "Directory") -> None:
        """Move a file into `target`, a directory of the same volume, under the same name."""

    def remove(self, name: str) -> None:
        """Delete a file.

        Raises:
            FileNotFoundError: the file does not exist.
        """

    def flush(self) -> None:
        """Make creations, renames and deletions durable (fsync of the directory).

        Raises:
            FlushFailed: stop the process; `Removed` if the directory was deleted or replaced.
        """

    def check_in_place(self) -> None:
        """Raise Removed if this directory or its lock was deleted, or another directory has its name. Costs two system
        calls.
        """

    def subdirectory(self, name: str) -> "Directory":
        """Return the subdirectory `name`; create it, durably, if it does not exist."""

    def remove_directory(self, name: str) -> None:
        """Delete the subdirectory `name` with all files in it, durably.

        The subdirectory first gets the suffix DELETED_SUFFIX. So after a crash it is whole, or has another name, or is gone.
        The name with the suffix can be given, too.

        Raises:
            FileNotFoundError: there is no such subdirectory.
        """

    def lock(self) -> None:
        """Lock this directory for this process, until `unlock` or the end of the process.

        Raises:
            DirectoryInUse: another process has the lock.
        """

    def unlock(self) -> None: ...

    def free_bytes(self) -> int:
        """Return how many bytes the volume has room for."""


class RealFile:
    """A file of the operating system."""

    def __init__(self, path: Path, *, create: bool) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._path = path
        self._fd = os.open(path, flags, FILE_MODE)
        self._failed = False
        self._was_removed = False
        # Held by flush and close. Example: a worker is about to fsync file descriptor 7; the log closes 7 and opens
        # another file, which gets the number 7 again. The worker would fsync the wrong file and report the first one as
        # durable.
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
            e.filename = str(self._path)  # the kernel does not name the file, but the operator needs to know
            raise
        return data

    def write_at(self, position: int, data: bytes) -> None:
        self._refuse_after_failure()
        try:
            written = os.pwrite(self._fd, data, position)
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], position + written)
        except OSError as e:
            e.filename = str(self._path)  # which of several disks is full?
            raise

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
                os.ftruncate(self._fd, current)  # the C library may write zeros itself, and some may be written already
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
                raise FlushFailed(
                    f"{self._path}: fdatasync failed ({e}); the content of the disk is unknown, so this process stops"
                ) from e
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
            self._was_removed = True
            raise Removed(self._path)

    def _refuse_after_failure(self) -> None:
        if self._was_removed:
            raise Removed(self._path)
        if self._failed:
            raise FlushFailed(
                f"{self._path}: an earlier fsync failed; this file refuses further writes until this node is restarted"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RealDirectory:
    """A directory of the operating system. Created, durably and with mode 0700, if it does not exist. Files in it have
    mode 0600.
    """

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
        return sorted(os.listdir(self.path))  # noqa: PTH208 - half the cost of Path.iterdir, and only names are needed

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
            raise FileTooLarge(f"{self._at(name)}: more than the {max_bytes} bytes that this file may have; not read")
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
            self._at(temporary).unlink(missing_ok=True)  # give a full disk its bytes back
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
        # The number of a deleted directory's inode may be used again at once for the directory that replaces it. The
        # lock file is held open, so its inode number is not used again.
        if _identity(self.path) != self._identity or (self._lock_fd >= 0 and os.fstat(self._lock_fd).st_nlink == 0):
            raise Removed(self.path)

    def subdirectory(self, name: str) -> "RealDirectory":
        path = self._at(name)
        if not path.is_dir():
            path.mkdir(mode=DIRECTORY_MODE)
            self.flush()
        return RealDirectory(path)

    def remove_directory(self, name: str) -> None:
        doomed = self._at(name.removesuffix(DELETED_SUFFIX) + DELETED_SUFFIX)
        if not name.endswith(DELETED_SUFFIX):
            if doomed.exists():
                shutil.rmtree(doomed)  # of an earlier deletion that a crash ended
            self._at(name).rename(doomed)
            self.flush()
        shutil.rmtree(doomed)
        self.flush()

    def lock(self) -> None:
        assert self._lock_fd < 0, "this object has the lock already"
        fd = os.open(self._at(LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            holder = os.pread(fd, _HOLDER_BYTES, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise DirectoryInUse(
                f"{self.path} is in use by process {holder}. Nothing was changed; stop that process first"
            ) from e
        try:
            # Overwrite in place, always with the same length: a full disk has this block already, and perhaps no other.
            os.pwrite(fd, f"{os.getpid()}\n".rjust(_HOLDER_BYTES).encode(), 0)
        except OSError as e:
            if not is_full(e) and not is_unreadable(e):
                os.close(fd)
                raise
            os.ftruncate(fd, 0)  # the directory is locked; the pid is only for the message to people
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
    """Return device and inode of the directory at `path`; None if there is none."""
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
        raise FlushFailed(
            f"{path}: fsync of the directory failed ({e}); the content of the disk is unknown, so this process stops"
        ) from e
    finally:
        os.close(fd)
