"""Directories that the jobs only read: a node's live directory, a copy, or a directory in an object store.

The classes have the methods of `metadata_log.disk.files.Directory`, so all code that reads logs and snapshots works
with them. Methods that would change something raise an error (`metadata_log.disk.read_only`): a job never writes into a
node's directory.

Paths are local paths, or URIs that Arrow knows: `s3://`, `gs://`, `abfs://`, `hdfs://` (and `s3a://`, Hadoop's name for
`s3://`).
"""

from errno import ENOTDIR
from pathlib import Path
from typing import Any

from pyarrow import fs

from metadata_log.disk import read_only
from metadata_log.disk.failures import FileTooLarge
from metadata_log.disk.read_only import LocalDirectory, check_regular


def location_of(path: str) -> str:
    """Return a path or URL in the one form that can be compared: no `file://`, links resolved, `s3://` for `s3a://`."""
    path = path.removeprefix("file://")
    if "://" not in path:
        return str(Path(path).resolve())
    return ("s3" + path.removeprefix("s3a") if path.startswith("s3a://") else path).rstrip("/")


class ReadOnlyFile(read_only.ReadOnlyFile):
    """A file of a `ReadOnlyDirectory`, opened by Arrow."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def size(self) -> int:
        return int(self._source.size())

    def read_at(self, position: int, length: int) -> bytes:
        left = self.size() - position
        return bytes(self._source.read_at(min(length, left), position)) if left > 0 else b""

    def close(self) -> None:
        self._source.close()


class ReadOnlyDirectory(read_only.ReadOnlyDirectory):
    """One directory. A directory that does not exist is empty."""

    def __init__(self, path: str) -> None:
        self.path_text = path.rstrip("/") or "/"
        if "://" in path:
            uri = path if path.startswith("file://") else location_of(path)
            self._filesystem, self._root = fs.FileSystem.from_uri(uri)
        else:
            self._filesystem, self._root = fs.LocalFileSystem(), path
        self._root = self._root.rstrip("/") or "/"

    def names(self) -> list[str]:
        if isinstance(self._filesystem, fs.LocalFileSystem):
            if Path(self._root).is_file():
                raise NotADirectoryError(ENOTDIR, "this is a file", self.path_text)
            return LocalDirectory(self._root).names()  # Arrow fails at a name that is not UTF-8
        selector = fs.FileSelector(self._root, allow_not_found=True)
        return sorted(info.base_name for info in self._filesystem.get_file_info(selector))

    def exists(self, name: str) -> bool:
        found = self._filesystem.get_file_info(f"{self._root}/{name}").type
        return bool(found != fs.FileType.NotFound)

    def size_of(self, name: str) -> int:
        """Return the size of a file; 0 if the file does not exist."""
        return int(self._filesystem.get_file_info(f"{self._root}/{name}").size or 0)

    def open(self, name: str, *, create: bool = False) -> ReadOnlyFile:
        if isinstance(self._filesystem, fs.LocalFileSystem):
            check_regular(Path(self._root) / name)
        return ReadOnlyFile(self._filesystem.open_input_file(f"{self._root}/{name}"))

    def read(self, name: str, max_bytes: int) -> bytes:
        file = self.open(name)
        try:
            if file.size() > max_bytes:
                raise FileTooLarge(f"{self.path_text}/{name}: more than {max_bytes} bytes")
            return file.read_at(0, max_bytes)
        finally:
            file.close()

    def subdirectory(self, name: str) -> "ReadOnlyDirectory":
        return ReadOnlyDirectory(f"{self.path_text}/{name}")
