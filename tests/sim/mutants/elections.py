"""Bugs of elections."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from metadata_log.disk.files import Directory
from metadata_log.format.ids import ReplicaKey
from metadata_log.store.log_notes import LogStart
from quorum.core import leader, votes
from quorum.core.protocol.effects import Effect, ElectionState, SaveElectionState
from quorum.core.protocol.messages import VoteRequest
from quorum.core.protocol.progress import FOREVER_MS
from quorum.core.protocol.voters import VoterSet
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Leader, Role, RoleState, Unattached, Votes, Why
from quorum.runtime.disk import election_file, open_directory
from quorum.runtime.node import Node
from tests.sim.mutants.patching import Mutant, patched
from tests.sim.world.disk import MemoryDirectory

_save, _load = election_file.save, election_file.load
_grants, _on_vote_request = votes.grants, votes.on_vote_request
_carry_out = Node._carry_out
_write_again = open_directory._write_again


def _forget_vote(directory: Directory, state: ElectionState) -> None:
    _save(directory, state._replace(voted_for=None))


def _remember_nothing_alone(self: Node, effect: Effect) -> None:
    if not (isinstance(effect, SaveElectionState) and len(self.core.voters) == 1):
        _carry_out(self, effect)


def _load_without_flush(directory: Directory) -> ElectionState | None:
    with patched(MemoryDirectory, "flush", lambda self: None):
        return _load(directory)


def _write_all_but_the_vote(
    directory: Directory, metadata: Directory, election: ElectionState | None, start: LogStart | None
) -> None:
    _write_again(directory, metadata, None, start)


@contextmanager
def _speak_of_what_was_read() -> Iterator[None]:
    with (
        patched(election_file, "load", _load_without_flush),
        patched(open_directory, "_write_again", _write_all_but_the_vote),
    ):
        yield


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


def _one_vote_short(self: Votes, voters: VoterSet) -> bool:
    return sum(map(voters.contains, self.granted)) >= max(1, voters.majority - 1)


def _always_up_to_date(candidate: object, mine: object) -> bool:
    return True


def _grant_although_the_leader_answers(
    role: RoleState, election: ElectionState, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool
) -> bool:
    if pre_vote and up_to_date and role.role is Role.FOLLOWER:
        return True
    return _grants(role, election, candidate, up_to_date=up_to_date, pre_vote=pre_vote)


def _raise_epoch_for_a_pre_vote(state: QuorumState, request: VoteRequest, reply_to: int) -> None:
    if request.pre_vote and request.epoch >= state.epoch:
        state.become_unattached(request.epoch + 1, Why.HIGHER_EPOCH)
        request = replace(request, epoch=request.epoch + 1)
    _on_vote_request(state, request, reply_to)


def _leads_on(state: QuorumState, leadership: Leader) -> int:
    return FOREVER_MS


def _start_unattached(self: QuorumState) -> RoleState:
    return Unattached(self.election_deadline_ms())


ELECTIONS: dict[str, Mutant] = {
    "vote-not-persisted": Mutant(
        "quorum-state keeps the epoch and forgets the vote",
        lambda: patched(election_file, "save", _forget_vote),
    ),
    "lone-voter-forgets-its-epoch": Mutant(
        "a voter that is alone elects itself, and notes down neither epoch nor vote",
        lambda: patched(Node, "_carry_out", _remember_nothing_alone),
    ),
    "directory-not-flushed": Mutant(
        "a file is renamed into place, and the directory is not flushed",
        lambda: patched(MemoryDirectory, "write_atomic", _write_without_directory_flush),
    ),
    "vote-read-not-flushed": Mutant(
        "a vote that a killed process has left in the page cache is spoken of",
        _speak_of_what_was_read,
    ),
    "vote-read-not-written-again": Mutant(
        "a vote whose directory's fsync has failed is flushed again, and spoken of",
        lambda: patched(open_directory, "_write_again", _write_all_but_the_vote),
    ),
    "second-vote-granted": Mutant(
        "a voter grants every vote request, again and again in one epoch",
        lambda: patched(votes, "grants", _grant_a_second_vote),
    ),
    "minority-elects": Mutant(
        "one vote too few is counted as a majority",
        lambda: patched(Votes, "won", _one_vote_short),
    ),
    "short-log-elected": Mutant(
        "votes are given without comparing the logs (Raft 5.4.1)",
        lambda: patched(votes, "is_up_to_date", _always_up_to_date),
    ),
    "pre-vote-granted-under-a-leader": Mutant(
        "a follower whose leader answers grants pre-votes (KIP-996)",
        lambda: patched(votes, "grants", _grant_although_the_leader_answers),
    ),
    "pre-vote-raises-epoch": Mutant(
        "a voter that is asked for a pre-vote enters the next epoch",
        lambda: patched(votes, "on_vote_request", _raise_epoch_for_a_pre_vote),
    ),
    "leader-never-resigns": Mutant(
        "a leader stays in office without a quorum (KAFKA-15489)",
        lambda: patched(leader, "check_quorum_deadline_ms", _leads_on),
    ),
    "leadership-forgotten": Mutant(
        "a restarted leader does not remember that it led its epoch (KAFKA-10527)",
        lambda: patched(QuorumState, "_role_at_start", _start_unattached),
    ),
}
