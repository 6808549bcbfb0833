"""Copies of files, in steps that fit into memory."""

from contextlib import closing
from typing import Final

from metadata_log.disk.bad_sectors import read_around
from metadata_log.disk.files import Directory

_COPY_BYTES: Final = 1 << 20


def copy_file(directory: Directory, name: str, copy: str) -> None:
    """Copy a file durably, unless a file with the copy's name exists. A sector that the disk cannot read is 0xFF in the
    copy.

    Raises:
        OSError: usually the disk is full; no copy was made.
    """
    if directory.exists(copy):
        return
    part = f"{copy}.tmp"
    with closing(directory.open(name)) as source, closing(directory.open(part, create=True)) as target:
        try:
            position = 0
            while data := read_around(source, position, _COPY_BYTES):
                target.write_at(position, data)
                position += len(data)
            target.flush()
        except OSError:
            directory.remove(part)
            raise
    directory.rename(part, copy)
    directory.flush()
