"""The table of transitions, the voter sets, and the one-line picture of a node."""

from collections.abc import Iterator

import pytest

from metadata_log.format.ids import ReplicaKey
from quorum.core import quorum_state
from quorum.core.protocol.voters import VoterHistory, VoterSet
from quorum.core.roles import TRANSITIONS, Role, Why
from tests.core.cluster import Cluster, Node, directory, voter, voters_of
from tests.core.solo import Solo, key
from tests.core.test_chaos import live


@pytest.fixture
def edges(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[tuple[Role, Role, Why]]]:
    """The transitions during a test."""
    seen: set[tuple[Role, Role, Why]] = set()
    become = quorum_state.QuorumState.become

    def watched(self: quorum_state.QuorumState, role, why, election) -> None:  # type: ignore[no-untyped-def]
        seen.add((self.role.role, role.role, why))
        become(self, role, why, election)

    monkeypatch.setattr(quorum_state.QuorumState, "become", watched)
    yield seen


def test_an_observer_is_only_ever_unattached_or_following() -> None:
    """R14: an observer's edges lead to no other role."""
    observing = {Role.UNATTACHED, Role.FOLLOWER}
    for start, end, why in TRANSITIONS:
        if end in observing and start in observing:
            continue
        # Every edge out of these two roles belongs to an election, and only voters take part in elections.
        assert start not in observing or why in (Why.ELECTION_TIMEOUT, Why.LEADER_SILENT, Why.LEADER_GONE)


def test_only_an_election_makes_a_leader() -> None:
    """R1: no other edge leads into office, and only resigning or a higher epoch leads out."""
    assert [(s, w) for s, e, w in TRANSITIONS if e is Role.LEADER] == [(Role.CANDIDATE, Why.VOTE_WON)]
    assert {e for s, e, w in TRANSITIONS if s is Role.LEADER} == {Role.RESIGNED, Role.UNATTACHED, Role.FOLLOWER}
    assert {s for s, e, w in TRANSITIONS if e is Role.CANDIDATE} == {Role.PROSPECTIVE}


def test_random_lives_take_most_edges(edges: set[tuple[Role, Role, Why]]) -> None:
    """An unused table proves nothing; and `become` refuses every other edge."""
    for seed in range(12):
        live(seed).elect(20_000)

    assert edges <= TRANSITIONS
    assert len(edges) >= len(TRANSITIONS) * 2 // 3


def test_a_voter_is_a_node_and_its_directory() -> None:
    """R15: the same node with another disk is another voter."""
    voters = VoterSet(voters_of(1, 2, 3).voters)

    assert voters.contains(key(1))
    assert not voters.contains(ReplicaKey(1, directory(1, generation=1)))
    assert voters.others(key(1)) == (key(2), key(3))
    assert voters.others(key(9)) == (key(1), key(2), key(3))
    assert voters.key_of(2) == key(2)
    assert voters.key_of(9) is None
    assert str(voters) == "{1,2,3}"


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majorities(count: int, majority: int) -> None:
    """Any two majorities share a voter."""
    assert VoterSet(voters_of(*range(1, count + 1)).voters).majority == majority


def test_a_node_id_twice_is_no_voter_set() -> None:
    """To replace a disk, the old voter is removed first."""
    with pytest.raises(AssertionError, match="twice"):
        VoterSet((voter(1), voter(1)))


def test_the_voter_set_is_a_function_of_the_log() -> None:
    """KIP-853: in effect from its offset on, gone after a truncation, embedded in snapshots as of their ends."""
    history = VoterHistory(voters_of(1, 2, 3)).append(40, voters_of(1, 2, 3, 4)).append(90, voters_of(2, 3, 4))
    history.check_invariants()

    assert history.latest.ids == (2, 3, 4)
    assert history.latest_offset == 90
    assert [history.at(end).ids for end in (40, 41, 90, 91)] == [(1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4), (2, 3, 4)]
    assert history.truncate(90).latest.ids == (1, 2, 3, 4)
    assert history.truncate(40).latest.ids == (1, 2, 3)
    assert history.truncate(40).latest_offset is None
    assert VoterHistory.from_snapshot(voters_of(2), 9).latest.ids == (2,)


def test_a_snapshots_voters_outrank_what_the_log_says_below_its_end() -> None:
    """The set at offset 6 is unreadable, and the older set at 2 is readable; the snapshot embeds the set at 6."""
    below, embedded, above = voters_of(1, 2, 3, 4), voters_of(1, 3, 4, 5), voters_of(1, 3, 4)
    history = VoterHistory.from_snapshot(embedded, 19, [(2, below)])

    assert history.latest.ids == history.at(30).ids == (1, 3, 4, 5)
    assert history.fill([(2, below), (6, embedded)]).latest.ids == (1, 3, 4, 5)
    assert history.append(25, above).truncate(25) == history
    assert VoterHistory.from_snapshot(embedded, 19, [(2, below), (19, above)]).latest.ids == (1, 3, 4)


def test_lines_stand_in_a_table() -> None:
    """Each field starts at its column, in every role."""
    lines = [
        Solo(epochs=(1, 2)).core.describe(),
        Solo(epochs=(1, 2), me=ReplicaKey(1, directory(1, 7))).core.describe(),
    ]
    cluster = Cluster(3).boot_all()
    cluster.elect()
    lines += [node.describe() for node in cluster.nodes.values()]

    assert len({line.index(" log ") for line in lines}) == 1
    assert len({line.index(" disk ") for line in lines}) == 1
    assert lines[1].endswith("observer")
    assert isinstance(cluster[1], Node)


def test_replicas_are_the_leaders_to_tell() -> None:
    """DescribeQuorum: the leader first, then voters, then observers; empty on other nodes."""
    cluster = Cluster(3, observers=(9,)).boot_all()
    leader = cluster.elect()
    cluster.run(1000)
    replicas = leader.up.replicas()

    assert replicas[0].node_id == leader.id
    assert [status.is_voter for status in replicas] == [True, True, True, False]
    assert {status.log_end_offset for status in replicas} == {leader.log.end}
    assert all(status.last_fetch_ms is not None and status.last_caught_up_ms is not None for status in replicas)
    assert cluster[9].up.replicas() == ()
