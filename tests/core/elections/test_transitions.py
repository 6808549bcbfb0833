"""A change of role outside the table is refused, and the documentation shows the table."""

import runpy
from itertools import product
from pathlib import Path

import pytest

from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.progress import ReplicaProgress
from quorum.core.protocol.reads import ReadRounds
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import (
    TRANSITIONS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    RoleState,
    Unattached,
    Votes,
    Why,
)
from tests.core.solo import Solo, key

ROOT = Path(__file__).resolve().parents[3]
NO_VOTES = Votes(frozenset(), frozenset(), {})
ELECTION = ElectionState(3, None, None)


def state_of(role: Role) -> RoleState:
    match role:
        case Role.UNATTACHED:
            return Unattached(9_000)
        case Role.PROSPECTIVE:
            return Prospective(NO_VOTES, 9_000, suspicious=False)
        case Role.CANDIDATE:
            return Candidate(NO_VOTES, 1_000, 9_000)
        case Role.LEADER:
            return Leader(2, 1_000, {key(node_id): ReplicaProgress(1_000) for node_id in (2, 3)}, {}, ReadRounds())
        case Role.FOLLOWER:
            return Follower(2, 9_000)
        case Role.RESIGNED:
            return Resigned(9_000, (), {})


def desk_of(role: Role) -> QuorumState:
    state: QuorumState = Solo(epochs=(1, 1), election=ELECTION).core._state
    state.effects.clear()
    state.role = state_of(role)
    return state


@pytest.mark.parametrize(("start", "end"), list(product(Role, Role)), ids=lambda role: role.value)
def test_only_what_is_in_the_table_may_happen(start: Role, end: Role) -> None:
    """A node takes each edge of the table, and at every other edge stops unchanged."""
    for why in Why:
        state = desk_of(start)
        before = state.role
        if (start, end, why) in TRANSITIONS:
            state.become(state_of(end), why, ELECTION)
            assert state.role.role is end
        else:
            with pytest.raises(AssertionError, match="no such transition"):
                state.become(state_of(end), why, ELECTION)
            assert state.role is before
            assert state.effects == []


def test_every_role_can_be_left_and_every_reason_is_used() -> None:
    """A role or a reason without a row in the table is dead code."""
    assert {start for start, _, _ in TRANSITIONS} == {end for _, end, _ in TRANSITIONS} == set(Role)
    assert {why for _, _, why in TRANSITIONS} == set(Why)


def test_the_documentation_shows_the_table_of_the_code() -> None:
    """If this test fails: run `python scripts/transition_table.py`, and read the diff."""
    script = runpy.run_path(str(ROOT / "scripts" / "transition_table.py"))

    assert (ROOT / "docs" / "transitions.md").read_text() == script["table"]()
