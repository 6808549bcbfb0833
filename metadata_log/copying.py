"""Copies of files, or parts of them, in pieces that fit into memory."""

from contextlib import closing
from typing import Final

from metadata_log.files import Directory, File

_COPY_BYTES: Final = 1 << 20


def copy_file(directory: Directory, name: str, copy: str) -> None:
    """A durable copy of a file, unless there is one under that name already.

    Raises:
        OSError: no room; then there is none.
    """
    if directory.exists(copy):
        return
    part = f"{copy}.tmp"
    with closing(directory.open(name)) as source, closing(directory.open(part, create=True)) as target:
        try:
            copy_bytes(source, 0, source.size(), target, 0)
            target.flush()
        except OSError:
            directory.remove(part)
            raise
    directory.rename(part, copy)
    directory.flush()


def copy_bytes(source: File, position: int, stop: int, target: File, at: int) -> int:
    """Copies [position, stop) of `source` to `at` in `target`; gives the place behind it there."""
    while position < stop:
        data = source.read_at(position, min(_COPY_BYTES, stop - position))
        if not data:
            raise OSError(f"a file ends at {position}, which had {stop} bytes")
        target.write_at(at, data)
        position, at = position + len(data), at + len(data)
    return at
