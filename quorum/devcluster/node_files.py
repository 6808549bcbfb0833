"""The files of a node of a development cluster: which of them cannot be used, and why.

A person may have replaced a file by anything. Example:
  1. a test leaves a named pipe in the place of `controller-1/pid`;
  2. a plain `open` of the pipe waits for a writer, so `quorumctl dev status` would never end;
  3. `open_regular` does not wait: it refuses the pipe, and `dev status` names it.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def unusable(directories: Iterable[Path], files: Iterable[Path]) -> str | None:
    """The first of `directories`, then of `files`, that cannot be opened, with the reason; None if there is none.

    An absent path is no problem here. For example, a symbolic link to a disk that is not mounted is there, and cannot be opened.
    """
    try:
        for directory in directories:
            if _is_there(directory):
                next(directory.iterdir(), None)
        for path in files:
            if _is_there(path):
                with open_regular(path):
                    pass
    except OSError as e:
        return why_text(e)
    return None


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """Opens a regular file for reading. Does not wait, as `open` waits for the writer of a named pipe.

    Raises:
        OSError: the file cannot be opened, or is a named pipe, a device or a directory.
    """
    with open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        yield file


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def why_text(e: OSError) -> str:
    """The path of the error, and the reason; for a symbolic link, its target too."""
    if e.filename is None:
        return str(e)
    path = Path(os.fsdecode(e.filename))
    try:
        link = f" (it is a symbolic link to {path.readlink()})"
    except OSError:
        link = ""  # it is no link
    return f"{path} cannot be used: {e.strerror}{link}"
