"""Directories that the jobs write into: of this machine, or of an object store.

A job writes a file once, from its first byte to its last one, so an object store can hold it: the bytes go up as one
object with the name of a `.part` file, and the object gets its own name when it is complete. Example, a snapshot of 3
MB for `s3://meta/compacted`:
  1. `write_at` three times: Arrow sends the bytes as parts of one upload. No object exists yet;
  2. `flush` ends the upload. The object `...checkpoint.part` exists, with all 3 MB, or the job fails;
  3. `rename` moves the object to `...checkpoint`. A reader sees no snapshot, or the whole one.
A job that is killed in between leaves a `.part` file or an unfinished upload, and the next run writes anew.
"""

import io
from pathlib import Path
from typing import Any

from metadata_log.disk.files import Directory, RealDirectory
from metadata_log.disk.whole_file import write_whole
from snapshots.offline.readonly import ReadOnlyDirectory, ReadOnlyFile


class UploadedFile:
    """A file that is written once, front to back, into an object store."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self._size = 0

    def size(self) -> int:
        return self._size

    def read_at(self, position: int, length: int) -> bytes:
        raise io.UnsupportedOperation(
            "a file that is being sent to an object store cannot be read; nothing was changed"
        )

    def write_at(self, position: int, data: bytes) -> None:
        assert position == self._size, (position, self._size)
        self._sink.write(data)
        self._size += len(data)

    def truncate(self, size: int) -> None:
        assert size == self._size, (size, self._size)

    def preallocate(self, size: int) -> None:
        """Do nothing: an object store has no space to reserve."""

    def flush(self) -> None:
        """End the upload: from now on the file exists, with all bytes.

        Raises:
            OSError: the store refused the file; it does not exist.
        """
        self._sink.close()

    def check_in_place(self) -> None:
        """Do nothing: an upload has no place until it ends."""

    def close(self) -> None:
        if not self._sink.closed:
            self._sink.close()


class RemoteDirectory(ReadOnlyDirectory):
    """A directory of an object store, given by its URL, that a job writes files into."""

    def open(self, name: str, *, create: bool = False) -> ReadOnlyFile | UploadedFile:  # type: ignore[override]
        if not create:
            return super().open(name)
        if self._filesystem.type_name == "hdfs":  # an object store knows no directories
            self._filesystem.create_dir(self._root, recursive=True)
        return UploadedFile(self._filesystem.open_output_stream(f"{self._root}/{name}"))

    def rename(self, old: str, new: str) -> None:
        self._filesystem.move(f"{self._root}/{old}", f"{self._root}/{new}")

    def remove(self, name: str) -> None:
        self._filesystem.delete_file(f"{self._root}/{name}")

    def write_atomic(self, name: str, data: bytes) -> None:
        file = self.open(f"{name}.part", create=True)
        file.write_at(0, data)
        file.flush()
        self.rename(f"{name}.part", name)

    def flush(self) -> None:
        """Do nothing: a store that has answered a request keeps its result."""


def writable(path: str) -> Directory:
    """Return the directory at `path`, a local path or a URL that `ReadOnlyDirectory` knows; a local one is created.

    Raises:
        OSError: the directory cannot be created.
    """
    if path.startswith("file://"):
        return RealDirectory(path.removeprefix("file://"))
    return RemoteDirectory(path) if "://" in path else RealDirectory(path)


def write_text(path: str, text: str, *, mode: int | None = None) -> None:
    """Write a text file by its local path or URL. A reader sees the old file or the new one, as a whole.

    `mode`: the permissions of a new local file; None: those that the umask leaves. A file that is replaced keeps its own.

    Raises:
        OSError, FlushFailed: the file could not be written, and the old one is as it was.
    """
    if "://" in path and not path.startswith("file://"):
        directory, _, name = path.rpartition("/")
        RemoteDirectory(directory).write_atomic(name, text.encode())
    else:
        write_whole(Path(path.removeprefix("file://")), text.encode(), mode)
