"""A local directory that a tool only reads: a copy, or the directory of a node that runs.

The class has the methods of `metadata_log.disk.files.Directory`, so all code that reads logs and snapshots works with it. Methods
that would change something raise an error. Example:
  1. An operator looks into the directory of controller 1, which runs, with `quorumctl shell`.
  2. `RealDirectory.subdirectory` would create a missing `archive/`, with the operator as its owner.
  3. `LocalDirectory.subdirectory` creates nothing: a directory that does not exist is empty.
"""

import errno
import io
import os
import stat
from pathlib import Path
from typing import NoReturn, Self

from metadata_log.disk.failures import FileTooLarge
from metadata_log.disk.files import Directory


class ReadOnlyFile:
    """The methods of `metadata_log.disk.files.File` that change something."""

    def write_at(self, position: int, data: bytes) -> None:
        _refuse()

    def truncate(self, size: int) -> None:
        _refuse()

    def preallocate(self, size: int) -> None:
        _refuse()

    def flush(self) -> None:
        _refuse()

    def check_in_place(self) -> None:
        """Do nothing: a reader acknowledges nothing, so a deleted file does no harm."""


class LocalFile(ReadOnlyFile):
    """A file of a `LocalDirectory`, open for reading."""

    def __init__(self, path: Path) -> None:
        check_regular(path)
        self._file = path.open("rb", buffering=0)
        self._path = path

    def size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def read_at(self, position: int, length: int) -> bytes:
        parts: list[bytes] = []
        left = length
        try:
            while left > 0 and (data := os.pread(self._file.fileno(), left, position)):
                parts.append(data)
                position, left = position + len(data), left - len(data)
        except OSError as e:
            e.filename = str(self._path)
            raise
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ReadOnlyDirectory:
    """The methods of `metadata_log.disk.files.Directory` that change something."""

    def write_atomic(self, name: str, data: bytes) -> None:
        _refuse()

    def rename(self, old: str, new: str) -> None:
        _refuse()

    def move(self, name: str, target: Directory) -> None:
        _refuse()

    def remove(self, name: str) -> None:
        _refuse()

    def remove_directory(self, name: str) -> None:
        _refuse()

    def flush(self) -> None:
        _refuse()

    def check_in_place(self) -> None:
        """Do nothing: a reader acknowledges nothing, so a deleted directory does no harm."""

    def lock(self) -> None:
        _refuse()

    def unlock(self) -> None:
        _refuse()

    def free_bytes(self) -> int:
        return 0


class LocalDirectory(ReadOnlyDirectory):
    """One directory, for reading. A directory that does not exist is empty."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def path_text(self) -> str:
        return str(self.path)

    def names(self) -> list[str]:
        return sorted(each.name for each in self.path.iterdir()) if self.path.is_dir() else []

    def exists(self, name: str) -> bool:
        return (self.path / name).exists()

    def open(self, name: str, *, create: bool = False) -> LocalFile:
        return _refuse() if create else LocalFile(self.path / name)

    def read(self, name: str, max_bytes: int) -> bytes:
        with self.open(name) as file:
            if file.size() > max_bytes:
                raise FileTooLarge(
                    f"{self.path / name}: more than the {max_bytes} bytes that this file may have; not read"
                )
            return file.read_at(0, max_bytes)

    def subdirectory(self, name: str) -> "LocalDirectory":
        return LocalDirectory(self.path / name)


def check_regular(path: Path) -> None:
    """Refuse a pipe or a device, which would hold up its reader for ever. Opening the file refuses a directory, or no file.

    Raises:
        OSError: the file is such a file.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "this is no regular file, and was not read; move it away", str(path))


def _refuse() -> NoReturn:
    raise io.UnsupportedOperation("this directory is only read; nothing was changed")
