"""A budget for open files: the process takes fewer connections than it may open files, so that a file is left for its vote.

A socket is an open file too. Without a limit, 120 idle connections used up the 64 files of a controller. The controller could not
write its next vote, and the process ended. So a server computes its budget at the start:

    1. The process may have 64 files open (RLIMIT_NOFILE), and has 20 open now.
    2. OWN_FILES (24) more are reserved for the process: log, votes, snapshots, outgoing connections, health checks over HTTP.
    3. The gRPC server accepts up to 20 connections, the rest. gRPC closes every further connection at once.

Connections that never complete a handshake are closed too (`SILENCE_MS`). The soft limit is only a default for programs that
cannot handle more files, so a daemon first raises it towards the hard limit.
"""

import resource
from pathlib import Path
from typing import Final

FILES_MIN: Final = 64
"""Minimum number of files that a process needs to start: an idle controller of three has 30 open."""
FILES_WANTED: Final = 65_536
OWN_FILES: Final = 24
"""How many files are reserved: in a cluster of three a controller opens 4 connections, 5 files and up to 12 health checks."""
CONNECTIONS_MIN: Final = 2
SILENCE_MS: Final = 5_000
"""How long a connection may take for its TLS and HTTP/2 handshake; gRPC's default is two minutes."""


def raise_file_limit() -> int:
    """Raises the soft limit of open files up to FILES_WANTED, as far as allowed; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return files_max()


def files_max() -> int:
    """How many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_WANTED if soft == resource.RLIM_INFINITY else soft


def too_few(files: int) -> str | None:
    """The reason why `files` open files are too few for a daemon; None if they are enough."""
    if files >= FILES_MIN:
        return None
    return (
        f"this process may have {files} files open, but needs at least {FILES_MIN}, or a controller could not write its vote; "
        "nothing was started. Raise the limit: LimitNOFILE= of the unit, or ulimit -n"
    )


def connections_max(servers: int = 1) -> int:
    """How many connections each of `servers` new servers of this process may accept."""
    left = files_max() - _files_open() - OWN_FILES
    return max(CONNECTIONS_MIN, left // servers)


def _files_open() -> int:
    """How many files are open now; 0 if the system does not tell."""
    for path in (Path("/proc/self/fd"), Path("/dev/fd")):
        if path.is_dir():
            return sum(1 for _ in path.iterdir())
    return 0
