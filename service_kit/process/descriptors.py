"""How many connections a process takes: fewer than it may have files open, so that there is always one left for a vote.

A socket is a file too. Without a bound 120 connections over which nothing is ever said used up the 64 files of a controller, the
next vote could not be written, and the process ended. So the budget is made when a server starts:

    1. This process may have 64 files open (RLIMIT_NOFILE), and has 20.
    2. OWN_FILES (24) more are kept for itself: log, votes, snapshots, the connections that it opens, health checks over HTTP.
    3. Its gRPC server takes the 20 that are left. gRPC hangs up at once on whoever comes beyond them.

Connections that say nothing are ended too (`SILENCE_MS`), and make room for peers that do. The soft limit is only a default for
programs that cannot deal with more, so a daemon begins by raising it towards the hard one.
"""

import resource
from pathlib import Path
from typing import Final

FILES_MIN: Final = 64
"""With fewer a process does not start: a controller of three has 30 open while nothing happens."""
FILES_WANTED: Final = 65_536
OWN_FILES: Final = 24
"""In a cluster of three, a controller opens 4 connections and 5 files at a time; up to 12 may be health checks that just came."""
CONNECTIONS_MIN: Final = 2
SILENCE_MS: Final = 5_000
"""Within this time a connection has to have spoken TLS and HTTP/2; gRPC's default is two minutes."""


def raise_file_limit() -> int:
    """Lets this process have up to FILES_WANTED files open, as far as it may; gives how many that are."""
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
    """Why a process that may have so many files open must not run; None if they are enough."""
    if files >= FILES_MIN:
        return None
    return (
        f"this process may have {files} files open and needs {FILES_MIN} at least, or it would end when it has to write a vote; "
        "raise the limit: LimitNOFILE= of its unit, or ulimit -n"
    )


def connections_max(servers: int = 1) -> int:
    """How many connections each of so many servers, which are about to start in this process, may take."""
    left = files_max() - _files_open() - OWN_FILES
    return max(CONNECTIONS_MIN, left // servers)


def _files_open() -> int:
    """At this moment; 0 where the system does not tell."""
    for path in (Path("/proc/self/fd"), Path("/dev/fd")):
        if path.is_dir():
            return sum(1 for _ in path.iterdir())
    return 0
