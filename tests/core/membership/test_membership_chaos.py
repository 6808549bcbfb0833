"""Random lives of a quorum with changing voters: added, removed, moved, leadership transferred, under the same faults.

Besides the laws of every cluster (one leader per epoch, one history, the high watermark on a majority's disks), the
test checks two laws. Successive sets in one log differ by one voter, so that their majorities share a voter. And
answers are true: a change answered as committed is in every later leader's log.
"""

import random
from itertools import pairwise

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import Endpoint
from quorum.core.protocol.messages import (
    AddVoterRequest,
    QuorumChangeRequest,
    QuorumChangeResponse,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    UpdateVoterRequest,
)
from quorum.core.protocol.voters import VoterSet
from tests.core.cluster import Cluster, voter
from tests.core.test_chaos import live

NODES = 7


class Operators:
    """Random requests to the leader, and the answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[QuorumChangeRequest, list[QuorumChangeResponse]]] = []

    def turn(self, cluster: Cluster, rng: random.Random) -> None:
        leading = [node for node in cluster.nodes.values() if node.core is not None and node.core.is_leading]
        if leading and rng.random() < 0.7:
            leader = rng.choice(leading)
            request = self._wish(cluster, leader.up.voters, leader.up.epoch, rng)
            self.asked.append((request, cluster.wish(leader.id, request)))
        check_sets(cluster)

    def _wish(self, cluster: Cluster, voters: VoterSet, epoch: int, rng: random.Random) -> QuorumChangeRequest:
        timeout_ms = rng.choice((50, 500, 3000))
        others = [node_id for node_id in cluster.nodes if node_id not in voters.ids]
        kind = rng.randrange(5)
        if others and (kind == 0 or len(voters) == 1):
            return AddVoterRequest(voter(rng.choice(others)), rng.random() < 0.7, timeout_ms)
        if kind < 3:
            return RemoveVoterRequest(rng.choice(voters.keys), timeout_ms)
        if kind == 3:
            return TransferLeadershipRequest(rng.choice((None, *voters.ids)), timeout_ms)
        endpoints = (Endpoint("CONTROLLER", f"host{rng.randrange(9)}", 9093),)
        return UpdateVoterRequest(rng.choice(voters.voters)._replace(endpoints=endpoints), epoch, timeout_ms)


def check_sets(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        if node.core is None:
            continue
        history = node.core.voter_history
        sets = [VoterSet(record.voters) for record in (history.bootstrap, *(record for _, record in history.entries))]
        for before, after in pairwise(sets):
            assert len(set(before.keys) ^ set(after.keys)) <= 1, f"two voters at a time: {before} -> {after}"


@pytest.mark.parametrize("seed", range(12))
def test_a_quorum_lives_through_changes_of_its_voters(seed: int) -> None:
    """After the last fault all nodes, voters or not, have the same log; and the quorum is the one named in the log."""
    operators = Operators()
    cluster = live(seed, also=operators.turn, count=random.Random(seed).choice((1, 2, 3, 3)), nodes=NODES)

    assert all(node.stopped is None for node in cluster.nodes.values()), [n.stopped for n in cluster.nodes.values()]
    leader = cluster.elect(20_000)
    cluster.propose(leader.id)
    cluster.run(5_000)
    check_sets(cluster)
    leader = cluster.leader
    assert len({node.log.chain for node in cluster.nodes.values()}) == 1
    assert {node.up.voters for node in cluster.nodes.values()} == {leader.up.voters}
    assert {node.high_watermark for node in cluster.nodes.values()} == {leader.log.end}
    for request, answers in operators.asked:
        for response in answers:
            if response.error is ErrorCode.NONE and response.offset is not None and response.message == "committed":
                assert response.offset in standing(leader.up.voter_history.entries, leader.log.start.offset), request


def standing(entries: tuple[tuple[int, object], ...], log_start: int) -> range | set[int]:
    """The offsets of voter sets in the leader's log; below the log's start, every offset."""
    return {*range(log_start), *(offset for offset, _ in entries)}


@pytest.mark.parametrize("seed", range(4))
def test_whoever_wants_to_vote_does_in_the_end(seed: int) -> None:
    """With nodes joining by themselves: all nodes never removed become voters, with their configured endpoints."""
    operators = Operators()
    cluster = live(seed, also=operators.turn, count=random.Random(seed).choice((1, 2, 3, 3)), nodes=NODES, joining=True)
    cluster.elect(20_000)
    cluster.run(60_000)
    check_sets(cluster)

    voters = cluster.leader.up.voters
    for node in cluster.nodes.values():
        assert voters.contains(node.key) or node.up.voter_history.has_named(node.key), node.describe()
    assert [v.endpoints for v in voters.voters] == [voter(node_id).endpoints for node_id in voters.ids]
    assert len({node.log.chain for node in cluster.nodes.values()}) == 1


def test_the_lives_are_eventful() -> None:
    """Otherwise the lives prove nothing: every kind of request is granted, and refused, somewhere."""
    seen: set[tuple[type, ErrorCode]] = set()
    for seed in range(7):
        operators = Operators()
        live(seed, also=operators.turn, count=3, nodes=NODES)
        seen |= {(type(request), response.error) for request, answers in operators.asked for response in answers}

    kinds = (AddVoterRequest, RemoveVoterRequest, UpdateVoterRequest, TransferLeadershipRequest)
    assert {(kind, ErrorCode.NONE) for kind in kinds} <= seen
    assert {(kind, ErrorCode.REQUEST_TIMED_OUT) for kind in kinds} <= seen
    assert (RemoveVoterRequest, ErrorCode.NOT_READY) in seen
