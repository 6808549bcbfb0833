"""Faults under `metadata_log.files`: the calls that it makes of the operating system go through here in a daemon that
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
from typing import Any, Final, Literal, TypeAlias

from metadata_log import files

Call: TypeAlias = Literal["write", "fsync", "rename"]
CALLS: Final[tuple[Call, ...]] = ("write", "fsync", "rename")


class Faults:
    """What is to go wrong, and how far it is. `now_s` moments are of `time.monotonic`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kill_in: dict[str, int] = {}
        self._failing_fsyncs = 0
        self._full_until_s = 0.0
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
        """Whether this fsync is to fail."""
        with self._lock:
            if self._failing_fsyncs == 0:
                return False
            self._failing_fsyncs -= 1
            return True

    def is_full(self) -> bool:
        return time.monotonic() < self._full_until_s

    def delay_s(self) -> float:
        """How long this fsync takes longer."""
        return self._slow_by_s if time.monotonic() < self._slow_until_s else 0.0


class FaultyOs:
    """`os`, as `metadata_log.files` finds it."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pwrite(self, fd: int, data: bytes, position: int) -> int:
        """Dies after half of the bytes; a full disk takes half of them, too."""
        if self._faults.dies_now("write"):
            os.pwrite(fd, data[: len(data) // 2], position)
            die()
        if self._faults.is_full() and _grows(fd, data, position):
            os.pwrite(fd, data[: len(data) // 2], position)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(fd, data, position)

    def posix_fallocate(self, fd: int, position: int, length: int) -> None:
        if self._faults.is_full():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(fd, position, length)

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


def _grows(fd: int, data: bytes, position: int) -> bool:
    """A full disk refuses new blocks; what was allocated before can be written still."""
    return position + len(data) > os.fstat(fd).st_size


def die() -> None:
    """As `kill -9` does: no handler, no flush, no farewell."""
    os.kill(os.getpid(), signal.SIGKILL)


def put_in(faults: Faults) -> None:
    """From here on this process's disk does as `faults` says."""
    vars(files)["os"] = FaultyOs(faults)
    replace = Path.replace

    def faulty_replace(self: Path, target: Any) -> Path:
        if faults.dies_now("rename"):
            die()
        return replace(self, target)

    Path.replace = faulty_replace  # type: ignore[method-assign, assignment]
