"""The file `process` in a broker's directory: which locks the last process took, and where.

    boot.id=3c9a5d0e-...                          the boot of this host, drawn by its kernel
    data.plane=beside                             where data are served: none, inside of the process, or beside it
    serving.lock=64769:1311                       device and inode of serving.lock, if the file existed
    lock=64769:1312 /var/lib/metaquorum/broker    device and inode of each locked .lock, and its directory

A process writes the note while it holds the locks, before it registers. A watcher believes a free lock only if the note agrees:

    1. Broker 7 runs on host A. An administrator copies its directory to host B, with the file `process`.
    2. On host B all locks are free, but broker 7 lives. The boot id is another one, so the watcher on host B proves nothing.
    3. On host A somebody deletes `.lock` and creates it again. The new file is not locked, but its inode is another one.
"""

from pathlib import Path
from typing import Final, NamedTuple

from metadata_log.disk.failures import FileTooLarge, is_full
from metadata_log.disk.files import LOCK_NAME, Directory

NOTE_NAME: Final = "process"
SERVING_LOCK_NAME: Final = "serving.lock"
"""A data plane in another process holds a shared lock (flock) of this file from before it asks for the lease until it stops."""
NOTE_BYTES_MAX: Final = 64 << 10
BOOT_ID_PATH: Final = Path("/proc/sys/kernel/random/boot_id")

NOWHERE: Final = "none"
INSIDE: Final = "inside"
BESIDE: Final = "beside"
"""The server of a broker's data: no process, the broker's own process, or a process beside it."""


class FileId(NamedTuple):
    """A file of this host, whatever its name is."""

    device: int
    inode: int

    def __str__(self) -> str:
        return f"{self.device}:{self.inode}"


class ProcessNote(NamedTuple):
    """The note of one process."""

    boot_id: str
    data_plane: str
    serving_lock: FileId | None
    locks: tuple[tuple[str, FileId], ...]
    """Each locked directory with its `.lock`."""

    def encoded(self) -> bytes:
        serving = [] if self.serving_lock is None else [f"{SERVING_LOCK_NAME}={self.serving_lock}"]
        locks = [f"lock={file} {path}" for path, file in self.locks]
        lines = [f"boot.id={self.boot_id}", f"data.plane={self.data_plane}", *serving, *locks]
        return ("\n".join(lines) + "\n").encode()


def this_boot(path: Path = BOOT_ID_PATH) -> str | None:
    """The boot id of this host; None if the kernel has none."""
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def file_id(path: Path) -> FileId | None:
    """The file with this name; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return FileId(status.st_dev, status.st_ino)


def note_of(directories: tuple[Path, ...], data_plane: str) -> ProcessNote | None:
    """The note of this process, which has locked the directories; None if the host has no boot id, or a path no plain name."""
    boot_id = this_boot()
    paths = tuple(str(each.absolute()) for each in directories)
    locks = tuple((path, found) for path in paths if (found := file_id(Path(path) / LOCK_NAME)) is not None)
    if boot_id is None or len(locks) < len(paths) or any("\n" in path for path in paths):
        return None
    return ProcessNote(boot_id, data_plane, file_id(Path(paths[0]) / SERVING_LOCK_NAME), locks)


def write_note(directory: Directory, note: ProcessNote | None) -> None:
    """Replaces the note of an earlier process, or deletes it: a wrong note is worse than none.

    Raises:
        OSError, FlushFailed: the disk has failed. A full disk is no failure: without a note no death is proved.
    """
    try:
        if note is not None:
            directory.write_atomic(NOTE_NAME, note.encoded())
            return
    except OSError as e:
        if not is_full(e):
            raise
    if directory.exists(NOTE_NAME):
        directory.remove(NOTE_NAME)
        directory.flush()


def read_note(directory: Directory) -> ProcessNote | None:
    """The last process's note; None if there is none, or if it cannot be read."""
    try:
        return _parsed(directory.read(NOTE_NAME, NOTE_BYTES_MAX).decode())
    except (OSError, FileTooLarge, ValueError):
        return None


def _parsed(text: str) -> ProcessNote | None:
    pairs = [line.partition("=")[::2] for line in text.splitlines()]
    values = dict(pairs)
    locks = [value.split(" ", 1) for key, value in pairs if key == "lock"]
    if not locks or values.get("data.plane") not in (NOWHERE, INSIDE, BESIDE) or "boot.id" not in values:
        return None
    serving = values.get(SERVING_LOCK_NAME)
    return ProcessNote(
        values["boot.id"],
        values["data.plane"],
        None if serving is None else _parsed_id(serving),
        tuple((path, _parsed_id(file)) for file, path in locks),
    )


def _parsed_id(text: str) -> FileId:
    device, _, inode = text.partition(":")
    return FileId(int(device), int(inode))
