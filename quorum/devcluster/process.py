"""The processes of a cluster on this machine: started apart from their starter, found again by their pid files.

A pid alone is not enough: after a reboot another program may have it. So a pid file also holds the time at which the process
began, and a process is the node's only if pid and time both agree.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from quorum.devcluster.layout import DevNode
from quorum.devcluster.node_files import open_regular

MODULES: Final = {"controller": "quorum", "broker": "broker_agent"}
"""Role -> the module of the node's daemon."""


class Child(Protocol):
    """A child process, as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...

    def wait(self) -> int: ...


_STARTED: dict[int, Child] = {}
"""The children of this process, by pid. This process must wait for each child, or the child stays as a zombie."""
_EXIT_CODES: dict[int, int] = {}
"""The exit codes of ended children, by pid."""
_LOG_BEGINS: dict[Path, int] = {}
"""The length of a node's log before the last start by this process."""
_MISTAKES: Final = re.compile(r"\d+ mistakes? in the configuration:")
"""The line above a daemon's list of mistakes. Each mistake of the list is indented."""
LOG_TAIL_BYTES: Final = 65_536
PID_FILE_BYTES_MAX: Final = 64


def spawn(node: DevNode) -> int:
    """Starts the node's daemon and returns its pid. The daemon's output is appended to the node's log.

    Raises:
        OSError: a file of the node cannot be written; no process is left.
    """
    with node.log_path.open("ab") as log:
        _LOG_BEGINS[node.log_path] = log.tell()
        child = start_child(node, log)
    try:
        node.pid_path.write_text(f"{child.pid} {_birth(child.pid)}\n")
    except OSError:
        child.kill()  # without a pid file nothing could stop it
        child.wait()
        raise
    _STARTED[child.pid] = child
    return child.pid


def start_child(node: DevNode, log: BinaryIO) -> Child:
    """Starts the node's daemon, whose output goes to `log`, in a session and a working directory of its own."""
    arguments = [sys.executable, "-m", MODULES[node.role], "--config", str(node.config_path)]
    return subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=node.directory
    )


def pid_of(node: DevNode) -> int | None:
    """The pid of the node's running process; None if it does not run, or if its pid file cannot be read (`layout.unusable`)."""
    try:
        with open_regular(node.pid_path) as file:
            pid_text, birth = file.read(PID_FILE_BYTES_MAX).decode().split()
        pid = int(pid_text)
    except (OSError, ValueError):
        return None
    return pid if _runs(pid) and _birth(pid) == birth else None


def is_paused(pid: int) -> bool:
    """True if the process was paused by SIGSTOP, and waits for SIGCONT."""
    return _state(pid) in ("T", "t")


def send(node: DevNode, number: signal.Signals) -> bool:
    """Sends the signal; False if the node does not run."""
    pid = pid_of(node)
    if pid is None:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def exit_code(pid: int) -> int | None:
    """The exit code of a child of this process (a signal's number is negative); None for a running or unknown pid."""
    return None if _runs(pid) else _EXIT_CODES.get(pid)


def log_tail(node: DevNode, lines: int = 5) -> str:
    """The last lines that the node printed since its last start; empty if its log cannot be read.

    If these lines are the end of a list of configuration mistakes, the whole list.
    """
    try:
        with open_regular(node.log_path) as file:
            begin = _LOG_BEGINS.get(node.log_path, 0)
            file.seek(max(begin, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            printed = file.read(LOG_TAIL_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return ""
    heading = max((index for index, line in enumerate(printed) if _MISTAKES.fullmatch(line)), default=None)
    if heading is not None and all(line.startswith("  ") for line in printed[heading + 1 :]):
        return "\n".join(printed[heading:])
    return "\n".join(printed[-lines:])


def _runs(pid: int) -> bool:
    child = _STARTED.get(pid)
    if child is not None:
        code = child.poll()
        if code is None:
            return True
        del _STARTED[pid]
        _EXIT_CODES[pid] = code
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _state(pid) != "Z" or _has_other_threads(pid)


def _has_other_threads(pid: int) -> bool:
    """True if the process still has threads after its first thread has ended: until all have ended, its ports stay taken."""
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except OSError:
        return False


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command's name; empty where there is no /proc."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _state(pid: int) -> str:
    fields = _stat(pid)
    return fields[0] if fields else "?"


def _birth(pid: int) -> str:
    """The time at which the process began, in the kernel's ticks; `?` if unknown, and then the pid alone decides."""
    fields = _stat(pid)
    return fields[19] if len(fields) > 19 else "?"
