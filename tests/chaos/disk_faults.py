"""Faults under `metadata_log.disk.files`: the calls that it makes of the operating system go through here in a daemon that
`tests.chaos.launch` has started, and do what the harness has asked for.

Nothing in production code knows of it: its `os` is replaced by `FaultyOs`, which is the real one but for the calls that make
bytes durable. Threads come through here at once (flushes run on workers), so a lock guards the counters, never a call.
"""

import errno
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Literal, TypeAlias

from metadata_log.disk import files
from metadata_log.disk.ballast import BALLAST_BYTES, BALLAST_NAME
from metadata_log.store import segment_file

Call: TypeAlias = Literal["write", "fsync", "rename"]
PREALLOCATE_BYTES: Final = 16 << 10
CALLS: Final[tuple[Call, ...]] = ("write", "fsync", "rename")


class Faults:
    """The faults that are ordered, and their progress. `now_s` moments are of `time.monotonic`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kill_in: dict[str, int] = {}
        self._failing_fsyncs = 0
        self._full_until_s = 0.0
        self._full_directory = Path()
        self._full_bytes = 0
        self._slow_until_s = 0.0
        self._slow_by_s = 0.0
        self.lies = False
        """Every fsync says that it is done, and does nothing."""
        self.wall_step_ms = 0

    def take(self, order: dict[str, Any]) -> None:
        """One order of the harness."""
        with self._lock:
            match order["fault"]:
                case "kill_at":
                    self._kill_in = {order["call"]: int(order["nth"])}
                case "fsync_fails":
                    self._failing_fsyncs = int(order["count"])
                case "fsync_lies":
                    self.lies = True
                case "disk_full":
                    self._full_directory = Path(order["directory"])
                    ballast = _size(self._full_directory / BALLAST_NAME)
                    room = int(order.get("room", BALLAST_BYTES))
                    self._full_bytes = _used_bytes(self._full_directory) - ballast + room
                    self._full_until_s = time.monotonic() + float(order["seconds"])
                case "slow_fsync":
                    self._slow_until_s = time.monotonic() + float(order["seconds"])
                    self._slow_by_s = float(order["by_s"])
                case "wall_step":
                    self.wall_step_ms += int(order["ms"])
                case "heal":
                    self._kill_in = {}
                    self._failing_fsyncs = 0
                    self._full_until_s = self._slow_until_s = 0.0
                case unknown:
                    raise ValueError(f"no such fault: {unknown}")

    def dies_now(self, call: Call) -> bool:
        """Counts this call; True if it is the one to die at."""
        with self._lock:
            left = self._kill_in.get(call)
            if left is None:
                return False
            self._kill_in[call] = left - 1
            return left <= 1

    def fails_now(self) -> bool:
        """True if this fsync has to fail."""
        with self._lock:
            if self._failing_fsyncs == 0:
                return False
            self._failing_fsyncs -= 1
            return True

    def room_bytes(self) -> int | None:
        """The room left on a disk that had no room but the ballast's when it filled up; None: as much as there really is."""
        if time.monotonic() >= self._full_until_s:
            return None
        return max(0, self._full_bytes - _used_bytes(self._full_directory))

    def delay_s(self) -> float:
        """How long this fsync takes longer."""
        return self._slow_by_s if time.monotonic() < self._slow_until_s else 0.0


class FaultyOs:
    """`os`, as `metadata_log.disk.files` finds it."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pwrite(self, fd: int, data: bytes, position: int) -> int:
        """Dies after half of the bytes; a full disk takes half of them, too."""
        if self._faults.dies_now("write"):
            os.pwrite(fd, data[: len(data) // 2], position)
            die()
        if self._is_too_much(fd, position + len(data)):
            os.pwrite(fd, data[: len(data) // 2], position)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(fd, data, position)

    def posix_fallocate(self, fd: int, position: int, length: int) -> None:
        if self._is_too_much(fd, position + length):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(fd, position, length)

    def statvfs(self, path: Any) -> Any:
        """A full disk says so, too."""
        room = self._faults.room_bytes()
        return os.statvfs(path) if room is None else SimpleNamespace(f_bavail=room, f_frsize=1)

    def _is_too_much(self, fd: int, end: int) -> bool:
        """A full disk refuses new blocks; what was allocated before can be written still."""
        room = self._faults.room_bytes()
        return room is not None and end - os.fstat(fd).st_size > room

    def fdatasync(self, fd: int) -> None:
        self._fsync(fd, os.fdatasync)

    def fsync(self, fd: int) -> None:
        self._fsync(fd, os.fsync)

    def _fsync(self, fd: int, real: Any) -> None:
        if self._faults.dies_now("fsync"):
            die()
        delay_s = self._faults.delay_s()
        if delay_s:
            time.sleep(delay_s)
        if self._faults.fails_now():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if not self._faults.lies:
            real(fd)


def _used_bytes(directory: Path) -> int:
    return sum(_size(Path(where) / name) for where, _, names in os.walk(directory) for name in names)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0  # it has just gone


def die() -> None:
    """As `kill -9` does: no handler, no flush, no farewell."""
    os.kill(os.getpid(), signal.SIGKILL)


def put_in(faults: Faults) -> None:
    """From here on this process's disk does as `faults` says."""
    vars(files)["os"] = FaultyOs(faults)
    # A full disk is to be felt within a second of writing, and not when a preallocated megabyte is used up.
    assert segment_file.PREALLOCATE_BYTES > PREALLOCATE_BYTES
    vars(segment_file)["PREALLOCATE_BYTES"] = PREALLOCATE_BYTES
    replace = Path.replace

    def faulty_replace(self: Path, target: Any) -> Path:
        if faults.dies_now("rename"):
            die()
        return replace(self, target)

    Path.replace = faulty_replace  # type: ignore[method-assign, assignment]
