"""Seeded bugs, to prove that the simulator finds bugs: overrides on the test's side, never switches in the code.

Each is a mistake that real systems have made, or that was once made here. The simulator must find every one; a mutant that
survives shows a law that is not checked, or a fault that never happens at the right time.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple
from unittest import mock

from metadata_log.errors import ErrorCode
from metadata_log.files import Directory
from metadata_log.ids import NodeId, Offset, ReplicaKey
from metadata_log.image import MetadataImage
from metadata_log.log import FlushTicket
from metadata_log.records import PartitionChange, RequestOutcome
from quorum.controller import brokers as controller_brokers
from quorum.controller.brokers import Brokers
from quorum.controller.contact import BrokerState, Next, next_state
from quorum.controller.request_outcomes import RequestIdentity
from quorum.controller.sessions import Sessions
from quorum.core import high_watermark, leader, votes
from quorum.core.effects import ElectionState
from quorum.core.progress import FOREVER_MS
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Leader, Role, RoleState, Unattached
from quorum.runtime import active, election_file
from quorum.runtime.active import ActiveController
from quorum.runtime.jobs import LoadSnapshotJob
from quorum.runtime.node import Node
from quorum.runtime.requests import ReadView, Refused
from quorum.runtime.world import ReplyTo
from tests.sim.disk import MemoryDirectory


class Mutant(NamedTuple):
    """One bug: what it is, and how it is put in."""

    what: str
    put_in: Callable[[], AbstractContextManager[None]]


@contextmanager
def _patched(target: object, name: str, replacement: object) -> Iterator[None]:
    assert hasattr(target, name), f"{target} has no {name} any more"
    with mock.patch.object(target, name, replacement):
        yield


# --- elections -------------------------------------------------------------------------------------------------------

_save = election_file.save


def _forget_vote(directory: Directory, state: ElectionState) -> None:
    _save(directory, state._replace(voted_for=None))


def _write_without_directory_flush(self: MemoryDirectory, name: str, data: bytes) -> None:
    file = self.open(f"{name}.tmp", create=True)
    file.truncate(0)
    file.write_at(0, data)
    file.flush()
    self.rename(f"{name}.tmp", name)


def _grant_a_second_vote(
    role: RoleState, election: ElectionState, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool
) -> bool:
    return up_to_date and role.role in (Role.UNATTACHED, Role.PROSPECTIVE)


def _always_up_to_date(candidate: object, mine: object) -> bool:
    return True


def _leads_on(q: QuorumState, term: Leader) -> int:
    return FOREVER_MS


def _start_unattached(self: QuorumState) -> RoleState:
    return Unattached(self.election_deadline_ms())


# --- commits ---------------------------------------------------------------------------------------------------------


def _count_itself_before_flush(q: QuorumState, term: Leader) -> Iterator[Offset | None]:
    for voter in q.latest_voters.keys:
        yield q.shape.end if voter == q.me else term.replicas[voter].end_offset


def _commit_older_epoch(
    ends: Iterable[Offset | None], voter_count: int, *, epoch_start_offset: Offset, current: Offset | None
) -> Offset | None:
    end = high_watermark.majority_end(ends, voter_count)
    return end if end is not None and (current is None or end > current) else None


def _one_short_of_a_majority(ends: Iterable[Offset | None], voter_count: int) -> Offset | None:
    known = sorted((end for end in ends if end is not None), reverse=True)
    return known[max(0, voter_count // 2 - 1)] if len(known) >= max(1, voter_count // 2) else None


def _sync_nothing(self: FlushTicket) -> None:
    pass


# --- answers ---------------------------------------------------------------------------------------------------------


_wait_confirmed = ActiveController._wait_confirmed


def _read_at_once(
    self: ActiveController, reply_to: ReplyTo, reply: active.Pending, deadline_ms: int, *, wrote: bool = False
) -> None:
    if reply is not None:
        _wait_confirmed(self, reply_to, reply, deadline_ms, wrote=wrote)
        return
    view = ReadView(self._state.applied, self._state.committed, self.controller, self._now_ms)
    self._world.reply(reply_to, view)


def _refuse_for_good(why: str) -> Refused:
    return Refused(ErrorCode.NOT_READY, f"{why}: nothing was done")


def _do_it_again(self: ActiveController, asked: active._FollowUp, identity: RequestIdentity) -> None:
    self._decide(asked.command, asked.reply_to, asked.deadline_ms)


def _remember_all_that_is_remembered(image: MetadataImage, identity: RequestIdentity) -> RequestOutcome | None:
    return image.request_outcome(identity.request_id)


_finish_load = Node._finish_load


def _late_load_wins(self: Node, job: LoadSnapshotJob, error: Exception | None) -> None:
    if not job.install:
        self._load = job
    _finish_load(self, job, error)


# --- brokers ---------------------------------------------------------------------------------------------------------


def _hear_any_epoch(self: Sessions, broker_id: NodeId, broker_epoch: int, now_ms: int) -> None:
    session = self._by_broker.get(broker_id)
    if session is not None:
        session.last_contact_ms = now_ms
        session.deadline_ms = max(session.deadline_ms, now_ms + self._timeout_ms)


def _unfence_at_once(
    state: BrokerState, *, wants_fence: bool, wants_shut_down: bool, is_caught_up: bool, is_held: bool
) -> Next:
    return next_state(state, wants_fence=False, wants_shut_down=wants_shut_down, is_caught_up=True, is_held=is_held)


def _leave_nothing(
    self: Brokers, image: MetadataImage, broker_id: NodeId, now_ms: int
) -> tuple[list[PartitionChange], bool]:
    return [], True


def _no_session_after_failover(self: Sessions, image: MetadataImage, now_ms: int) -> None:
    self._by_broker.clear()
    self._next_deadline_ms = None
    for broker in image.brokers.unordered_values():
        if not broker.fenced:
            self._open(broker.broker_id, broker.broker_epoch, now_ms - self._timeout_ms)


def _lease_of_a_session(self: Node) -> int:
    return 2 * self._config.controller.session_timeout_ms


def _lease_by_the_look(self: Brokers, image: MetadataImage, broker_id: NodeId, offset: Offset) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced


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
        lambda: _patched(FlushTicket, "sync", _sync_nothing),
    ),
    "directory-not-flushed": Mutant(
        "a file is renamed into place, and the directory is not flushed",
        lambda: _patched(MemoryDirectory, "write_atomic", _write_without_directory_flush),
    ),
    "second-vote-granted": Mutant(
        "a voter says yes to whoever asks, again and again in one epoch",
        lambda: _patched(votes, "grants", _grant_a_second_vote),
    ),
    "short-log-elected": Mutant(
        "votes are given without comparing the logs (Raft 5.4.1)",
        lambda: _patched(votes, "is_up_to_date", _always_up_to_date),
    ),
    "leader-never-resigns": Mutant(
        "a leader stays in office without a quorum (KAFKA-15489)",
        lambda: _patched(leader, "check_quorum_deadline_ms", _leads_on),
    ),
    "minority-commits": Mutant(
        "one voter too few is counted as a majority",
        lambda: _patched(high_watermark, "majority_end", _one_short_of_a_majority),
    ),
    "leadership-forgotten": Mutant(
        "a restarted leader does not remember that it led its epoch (KAFKA-10527)",
        lambda: _patched(QuorumState, "_role_at_start", _start_unattached),
    ),
    "stale-read": Mutant(
        "a leader answers reads without asking whether it still leads",
        lambda: _patched(ActiveController, "_wait_confirmed", _read_at_once),
    ),
    "unknown-called-refused": Mutant(
        "what may have happened is reported as certainly not done",
        lambda: _patched(active, "unknown_outcome", _refuse_for_good),
    ),
    "request-done-again": Mutant(
        "a request that comes again is decided again, whatever its id",
        lambda: _patched(ActiveController, "_decide_once", _do_it_again),
    ),
    "forgotten-request-done-again": Mutant(
        "an id that may have been forgotten is taken for a new one",
        lambda: _patched(active, "earlier_outcome", _remember_all_that_is_remembered),
    ),
    "late-load-wins": Mutant(
        "the snapshot that a node began to load at its start replaces the newer one that it has installed meanwhile",
        lambda: _patched(Node, "_finish_load", _late_load_wins),
    ),
    "stale-broker-epoch-heard": Mutant(
        "a broker's earlier life speaks for its present one",
        lambda: _patched(Sessions, "touch", _hear_any_epoch),
    ),
    "unfenced-before-caught-up": Mutant(
        "a broker is unfenced before it has applied its own registration",
        lambda: _patched(controller_brokers, "next_state", _unfence_at_once),
    ),
    "fenced-broker-leads": Mutant(
        "a broker is fenced and what it leads is left with it",
        lambda: _patched(Brokers, "_leave", _leave_nothing),
    ),
    "no-session-after-failover": Mutant(
        "a new controller judges brokers by a silence that it was not there to hear",
        lambda: _patched(Sessions, "reset", _no_session_after_failover),
    ),
    "lease-outlasts-session": Mutant(
        "a lease is longer than the session that it is a promise about",
        lambda: _patched(Node, "_lease_ms", _lease_of_a_session),
    ),
    "lease-by-the-look": Mutant(
        "a broker that looks unfenced is given a lease, whatever is decided and not applied",
        lambda: _patched(Brokers, "may_serve", _lease_by_the_look),
    ),
}


def put_in(name: str | None) -> AbstractContextManager[None]:
    """The bug `name`, for as long as the context lasts; None: no bug."""
    return nullcontext() if name is None else MUTANTS[name].put_in()
