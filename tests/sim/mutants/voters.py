"""Bugs of changing who votes."""

from collections.abc import Iterator
from contextlib import contextmanager

from metadata_log.format.ids import ReplicaKey
from quorum.core.membership import change_rules
from quorum.core.membership.change_rules import Refusal
from quorum.core.protocol.messages import QuorumChangeRequest, TransferLeadershipRequest
from quorum.core.protocol.voters import VoterSet
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Leader
from tests.sim.mutants.patching import Mutant, patched

_refusal_now = change_rules.refusal_now


def _drop_the_one_before(state: QuorumState, request: QuorumChangeRequest) -> Refusal | None:
    if isinstance(state.role, Leader) and not isinstance(request, TransferLeadershipRequest):
        state.role.changes.end()
    return _refusal_now(state, request)


def _nothing_is_in_the_way(state: QuorumState, leadership: Leader) -> Refusal | None:
    return None


@contextmanager
def _change_at_any_time() -> Iterator[None]:
    with (
        patched(change_rules, "refusal_now", _drop_the_one_before),
        patched(change_rules, "not_yet", _nothing_is_in_the_way),
    ):
        yield


def _same_node_same_voter(self: VoterSet, replica: ReplicaKey) -> bool:
    return replica.node_id in self.ids


VOTERS: dict[str, Mutant] = {
    "voters-changed-before-the-last-change": Mutant(
        "a leader appends a voter set although the one before is not committed",
        _change_at_any_time,
    ),
    "new-disk-old-voter": Mutant(
        "a voter whose disk was replaced is taken for the voter that it was",
        lambda: patched(VoterSet, "contains", _same_node_same_voter),
    ),
}
