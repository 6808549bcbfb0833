"""A file that a person or another program reads, such as a report: replaced as a whole, with the permissions that it had.

`write_atomic` is for a node's own files. Other files have readers, and more than one writer. Example:
  1. A web server shows `report.html`. The audit of tonight is killed while it writes: the page of yesterday is still there.
  2. Two audits end at the same moment. Each has a part file of its own, so the page is of one of them, as a whole.
  3. The path is `/dev/stdout`, or a link. A terminal gets the bytes, and a link stays a link.
"""

import os
import stat
from pathlib import Path

from metadata_log.disk.failures import FlushFailed
from metadata_log.disk.files import RealDirectory


def write_whole(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write the file, durably. `mode`: the permissions of a new file; None: those that the umask leaves.

    Raises:
        OSError, FlushFailed: the file could not be written, and the old one is as it was.
    """
    place = path.resolve()
    if place.exists() and not place.is_file():
        place.write_bytes(data)  # a pipe, or /dev/stdout; a directory is an error
        return
    if not place.parent.is_dir():
        raise FileNotFoundError(f"{path} was not written: there is no directory {place.parent}; make the directory")
    directory = RealDirectory(place.parent)
    temporary = f".{place.name}.{os.getpid()}.part"  # two jobs may write one file: the last one wins, as a whole
    try:
        with directory.open(temporary, create=True) as file:
            file.truncate(0)
            file.write_at(0, data)
            file.flush()
        (place.parent / temporary).chmod(_mode_of(place, mode))
        directory.rename(temporary, place.name)
    except (OSError, FlushFailed):
        (place.parent / temporary).unlink(missing_ok=True)
        raise
    directory.flush()


def _mode_of(place: Path, mode: int | None) -> int:
    if place.exists():
        return stat.S_IMODE(place.stat().st_mode)
    if mode is not None:
        return mode
    umask = os.umask(0)  # there is no other way to read it
    os.umask(umask)
    return 0o666 & ~umask
