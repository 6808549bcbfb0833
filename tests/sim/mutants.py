"""Seeded bugs, to prove that the simulator finds bugs: overrides on the test's side, never switches in the code.

Each is a mistake that real systems have made. The simulator must find every one; a mutant that survives shows a law that
is not checked, or a fault that never happens at the right time.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest import mock

from metadata_log.files import Directory
from metadata_log.ids import Offset
from metadata_log.log import FlushTicket
from quorum.core import high_watermark, leader
from quorum.core.effects import ElectionState
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Leader
from quorum.runtime import election_file
from tests.sim.disk import MemoryDirectory


class Mutant(NamedTuple):
    """One bug: what it is, and how it is put in."""

    what: str
    put_in: Callable[[], AbstractContextManager[Any]]


def _count_itself_before_flush(q: QuorumState, term: Leader) -> Iterator[Offset | None]:
    for voter in q.latest_voters.keys:
        yield q.shape.end if voter == q.me else term.replicas[voter].end_offset


def _commit_older_epoch(
    ends: Any, voter_count: int, *, epoch_start_offset: Offset, current: Offset | None
) -> Offset | None:
    end = high_watermark.majority_end(ends, voter_count)
    return end if end is not None and (current is None or end > current) else None


_save = election_file.save


def _forget_vote(directory: Directory, state: ElectionState) -> None:
    _save(directory, state._replace(voted_for=None))


def _write_without_directory_flush(self: MemoryDirectory, name: str, data: bytes) -> None:
    file = self.open(f"{name}.tmp", create=True)
    file.truncate(0)
    file.write_at(0, data)
    file.flush()
    self.rename(f"{name}.tmp", name)


@contextmanager
def _patched(target: Any, name: str, replacement: Any) -> Iterator[None]:
    with mock.patch.object(target, name, replacement):
        yield


MUTANTS: dict[str, Mutant] = {
    "leader-counts-itself-before-fsync": Mutant(
        "a leader counts what it has appended, not what it has flushed",
        lambda: _patched(leader, "_ends", _count_itself_before_flush),
    ),
    "vote-not-persisted": Mutant(
        "quorum-state keeps the epoch and forgets the vote",
        lambda: _patched(election_file, "save", _forget_vote),
    ),
    "commit-of-older-epoch": Mutant(
        "a majority's end is committed whatever epoch its last record is of (Raft 5.4.2)",
        lambda: _patched(leader, "leader_high_watermark", _commit_older_epoch),
    ),
    "flush-skipped": Mutant(
        "an fsync that does nothing",
        lambda: _patched(FlushTicket, "sync", lambda self: None),
    ),
    "directory-not-flushed": Mutant(
        "quorum-state is renamed into place, and the directory is not flushed",
        lambda: _patched(MemoryDirectory, "write_atomic", _write_without_directory_flush),
    ),
}


def put_in(name: str | None) -> AbstractContextManager[Any]:
    """The bug `name`, for as long as the context lasts; None: no bug."""
    return nullcontext() if name is None else MUTANTS[name].put_in()
