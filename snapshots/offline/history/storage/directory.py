"""The directory of the tables: on this machine, or at the URL of an object store. All names are relative to the directory.

Both kinds have the same methods, and travel into Spark's tasks. A task opens the store itself. Three things differ:

    on this machine   files are flushed to the disk   one run at a time holds a lock   Spark reads Parquet itself
    at a URL          an answered request is kept     nobody holds a lock              tasks read Parquet through Arrow

An object appears as a whole, but also when its writer fails: Arrow ends the upload of a file that is closed. Example: a task
writes the file 00003.
  1. The task writes 5 of 9 groups of rows, and then finds no memory. Its file is closed, and an object with 5 groups appears.
  2. The object has the name of an unfinished file of this attempt, so no run counts it.
  3. The second attempt writes all 9 groups, and moves its object to the name 00003.
A move at a store is a copy and a removal. A job that dies between the two leaves both names, and the next run removes the staged
one.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyarrow import fs

from metadata_log.disk.files import RealDirectory
from snapshots.offline.writable import RemoteDirectory

REQUESTS_AT_ONCE: Final = 16
"""Maximum number of requests that the driver sends to a store at the same time, where many files are moved or removed."""
STAGING_MARK: Final = "begun"
"""An object in the staging directory of a run at a store. Another run that begins removes the object."""
UNCHANGED: Final = (
    "The tables were not changed. Check that the bucket exists, and that the credentials may list, read, write and delete there; "
    "then run the job again"
)
_SUFFIX: Final = ".parquet"
_WITH_DIRECTORIES: Final = ("hdfs", "abfs")
"""Kinds of stores where a file needs its directory."""


class StoreRefused(OSError):
    """The store or the disk did not do what the job asked. The text says why, whether the tables changed, and what to do."""


class LocalTables:
    """A directory of this machine, or of a volume that driver and workers share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def below(self, name: str) -> "LocalTables":
        """Return a directory in this one. It need not exist."""
        return LocalTables(self.path / name)

    def names(self) -> list[str]:
        """Return the names of what lies directly in the directory; nothing if the directory does not exist."""
        return [entry.name for entry in self.path.iterdir()] if self.path.exists() else []

    def exists(self, name: str) -> bool:
        return (self.path / name).exists()

    def files(self, name: str) -> list[str]:
        """Return the names of all Parquet files below `name`, at any depth, sorted."""
        return [path.relative_to(self.path).as_posix() for path in sorted((self.path / name).rglob(f"*{_SUFFIX}"))]

    def content(self, name: str, max_bytes: int) -> bytes | None:
        """Return the content of a file; None if the file does not exist.

        Raises:
            ValueError: the file is larger than `max_bytes`.
        """
        path = self.path / name
        if not path.exists():
            return None
        if path.stat().st_size > max_bytes:
            raise ValueError(f"more than {max_bytes} bytes")
        return path.read_bytes()

    def status(self, name: str) -> tuple[int, int]:
        """Return the size of a file, and the time of its last change in milliseconds since 1970."""
        status = (self.path / name).stat()
        return status.st_size, status.st_mtime_ns // 1_000_000

    def source(self, name: str) -> Any:
        """Open a file for reading at any place. Use the result as a context."""
        return pa.memory_map(str(self.path / name))

    def sink(self, name: str) -> Any:
        """Open a new file for writing from its first byte to its last one. Use the result as a context."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(path), "wb")

    def rename(self, old: str, new: str) -> None:
        (self.path / old).replace(self.path / new)

    def remove_files(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink()

    def remove_all(self, name: str) -> None:
        """Remove a directory with all that lies in it, if it exists."""
        if (self.path / name).exists():
            shutil.rmtree(self.path / name)

    def write_atomic(self, name: str, data: bytes) -> None:
        """Write a small file, durably: a reader sees the old content or the new one, as a whole."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        RealDirectory(path.parent).write_atomic(path.name, data)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other runs out until the end of the block.

        Raises:
            DirectoryInUse: another run writes.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        directory = RealDirectory(self.path)
        try:
            directory.lock()
            yield
        finally:
            directory.unlock()

    def create_staging(self) -> None:
        """Make this directory, the staging directory of a run."""
        self.path.mkdir(parents=True)

    def is_staging(self) -> bool:
        """Return True as long as no other run has removed this staging directory. Under a lock none does."""
        return True

    def publish(self, staging: "TablesDirectory", tables: Iterable[str]) -> None:
        """Move the staged files to their names, durably. Each table gets a directory."""
        assert isinstance(staging, LocalTables)
        directories = {self.path}
        for table in tables:
            (self.path / table).mkdir(exist_ok=True)
            directories.add(self.path / table)
        for name in staging.files(""):
            path, target = staging.path / name, self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            _flush(path)
            path.replace(target)  # the baseline, and not this move, makes the rows count
            directories |= {target.parent, target.parent.parent}
        for directory in directories:
            _flush(directory)

    @contextmanager
    def explaining_errors(self, outcome: str | None = None) -> Iterator[None]:
        """Name the directory in an error of the disk that names no file, as Arrow's `[Errno 28] Error writing bytes to file`.

        With an `outcome` the error ends with it. Example: the disk is full when the baseline of run 2 is written already, so the
        job must not say that it wrote no result.
        """
        try:
            yield
        except ConnectionError:
            raise  # of a socket
        except OSError as e:
            named = e
            if e.filename is None and e.errno is not None:
                named = OSError(e.errno, os.strerror(e.errno), str(self))
            if outcome is None:
                raise named from None
            raise StoreRefused(f"{named}. {outcome}") from None


def _flush(path: Path) -> None:
    """Flush a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class StoredTables(RemoteDirectory):
    """A directory at the URL of an object store. See `LocalTables` for the methods."""

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredTables, (self.path_text,)

    def __str__(self) -> str:
        return self.path_text

    def below(self, name: str) -> "StoredTables":
        return StoredTables(f"{self.path_text}/{name}")

    def files(self, name: str) -> list[str]:
        root = self._root.rstrip("/")
        selector = fs.FileSelector(f"{root}/{name}".rstrip("/"), recursive=True, allow_not_found=True)
        paths = (each.path for each in self._filesystem.get_file_info(selector) if each.is_file)
        return sorted(path.removeprefix(f"{root}/") for path in paths if path.endswith(_SUFFIX))

    def content(self, name: str, max_bytes: int) -> bytes | None:
        if not self.exists(name):
            return None
        with self.source(name) as source:
            if source.size() > max_bytes:
                raise ValueError(f"more than {max_bytes} bytes")
            return bytes(source.read())

    def status(self, name: str) -> tuple[int, int]:
        found = self._filesystem.get_file_info(self._path(name))
        return int(found.size or 0), int(found.mtime_ns or 0) // 1_000_000

    def source(self, name: str) -> Any:
        return self._filesystem.open_input_file(self._path(name))

    def sink(self, name: str) -> Any:
        self._need_directory_of(name)
        return self._filesystem.open_output_stream(self._path(name))

    def rename(self, old: str, new: str) -> None:
        self._need_directory_of(new)
        super().rename(old, new)

    def remove_files(self, names: Iterable[str]) -> None:
        _at_once(self._filesystem.delete_file, [(self._path(name),) for name in names])

    def remove_all(self, name: str) -> None:
        if self._filesystem.get_file_info(self._path(name)).type == fs.FileType.Directory:
            self._filesystem.delete_dir(self._path(name))

    def write_atomic(self, name: str, data: bytes) -> None:
        self._need_directory_of(name)
        super().write_atomic(name, data)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Do nothing: a store has no lock. See `is_staging`."""
        yield

    def create_staging(self) -> None:
        """Write an object. So a store where the job may not write refuses the run before the long pass."""
        with self.sink(STAGING_MARK):
            pass

    def is_staging(self) -> bool:
        return self.exists(STAGING_MARK)

    def publish(self, staging: "TablesDirectory", _: Iterable[str]) -> None:
        """Move the staged objects to their names. A table without rows has no objects."""
        assert isinstance(staging, StoredTables)
        names = staging.files("")
        for directory in sorted({name.rpartition("/")[0] for name in names}):
            self._need_directory_of(f"{directory}/any")
        _at_once(self._filesystem.move, [(staging._path(name), self._path(name)) for name in names])

    @contextmanager
    def explaining_errors(self, outcome: str = UNCHANGED) -> Iterator[None]:
        """Turn an error of the store into one line, which ends with `outcome`."""
        try:
            yield
        except (StoreRefused, ConnectionError):
            raise  # told already, or of a socket: Java has ended. Arrow has no ConnectionError for a store that is away
        except OSError as e:
            reason = " ".join(str(e).split()).rstrip(".")
            raise StoreRefused(f"the store of {self} refused or did not answer: {reason}. {outcome}") from None

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _need_directory_of(self, name: str) -> None:
        if self._filesystem.type_name in _WITH_DIRECTORIES:
            self._filesystem.create_dir(self._path(name).rpartition("/")[0], recursive=True)


TablesDirectory: TypeAlias = LocalTables | StoredTables


def _at_once(request: Any, words: list[tuple[str, ...]]) -> None:
    """Send a request for each of the words, some at the same time.

    Raises:
        OSError: the first one that failed. Those that were sent already have ended too.
    """
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        for _ in pool.map(lambda each: request(*each), words):
            pass
