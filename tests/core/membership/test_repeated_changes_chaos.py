"""Random lives of a quorum whose operators repeat their requests, at any leader, also after the answer (late copies).

Two laws. Each addition of a voter in the log has a request of its own, and so has each removal: a repetition changes
nothing. And all answers to one request that say "done" name the same offset.

Example: an operator asks leader 1 to add controller 4, and again leader 2 after leader 1 has died. Meanwhile another
operator has removed controller 4. If leader 2 added controller 4 a second time, the log would have two additions and one
request.
"""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset, ReplicaKey
from metadata_log.format.records import Voters
from quorum.core.membership import membership
from quorum.core.protocol.messages import AddVoterRequest, QuorumChangeResponse, RemoveVoterRequest
from quorum.core.protocol.voters import VoterSet
from tests.core.cluster import Cluster, voter
from tests.core.test_chaos import live

NODES = 6
SEEDS = range(20)
KEPT = 8
"""How many of the newest requests are sent again and again."""


@dataclass
class Asked:
    """A request, and the answers to all of its attempts."""

    request: AddVoterRequest | RemoveVoterRequest
    answers: list[list[QuorumChangeResponse]] = field(default_factory=list)

    @property
    def key(self) -> ReplicaKey:
        if isinstance(self.request, AddVoterRequest):
            return ReplicaKey(self.request.voter.node_id, self.request.voter.directory_id)
        return self.request.voter

    @property
    def done_at(self) -> set[Offset | None]:
        """The offsets in the answers that say "done"."""
        return {each.offset for answers in self.answers for each in answers if each.error is ErrorCode.NONE}


class RepeatingOperators:
    """Adds and removes voters; sends each request many times."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    def turn(self, cluster: Cluster, rng: random.Random) -> None:
        leading = [node for node in cluster.nodes.values() if node.core is not None and node.core.is_leading]
        if not leading:
            return
        leader = rng.choice(leading)
        if rng.random() < 0.5 or not self.asked:
            self._wish(cluster, leader.up.voters, rng)
        for asked in rng.sample(self.asked[-KEPT:], min(2, len(self.asked))):
            asked.answers.append(cluster.wish(leader.id, asked.request))

    def _wish(self, cluster: Cluster, voters: VoterSet, rng: random.Random) -> None:
        since = max(cluster.committed, default=0) + 1
        others = [node_id for node_id in cluster.nodes if node_id not in voters.ids]
        if others and (rng.random() < 0.5 or len(voters) <= 2):
            newcomer = voter(rng.choice(others))
            wish = Asked(AddVoterRequest(newcomer, ack_when_committed=True, timeout_ms=500, since=since))
        else:
            wish = Asked(RemoveVoterRequest(rng.choice(voters.keys), timeout_ms=500, since=since))
        # Of two requests for one change, one would cover up that the other was made twice.
        if all((type(each.request), each.key) != (type(wish.request), wish.key) or each.done_at for each in self.asked):
            self.asked.append(wish)


def changes(history: Iterable[Voters]) -> Counter[tuple[type, ReplicaKey]]:
    """How often each replica was added and removed."""
    found: Counter[tuple[type, ReplicaKey]] = Counter()
    for before, after in pairwise(VoterSet(each.voters) for each in history):
        found.update((AddVoterRequest, key) for key in set(after.keys) - set(before.keys))
        found.update((RemoveVoterRequest, key) for key in set(before.keys) - set(after.keys))
    return found


def lived(seed: int) -> RepeatingOperators:
    """One life, with the laws checked at its end."""
    operators = RepeatingOperators()
    cluster = live(seed, also=operators.turn, count=3, nodes=NODES)
    leader = cluster.elect(20_000)
    history = leader.up.voter_history
    made = changes([history.bootstrap, *(voters for _, voters in history.entries)])
    wanted = Counter((type(each.request), each.key) for each in operators.asked)
    assert made <= wanted, f"more changes than requests: {made - wanted}"
    for each in operators.asked:
        assert len(each.done_at) <= 1, f"{each.request} was done at {each.done_at}"
    return operators


@pytest.mark.parametrize("seed", SEEDS)
def test_a_repeated_change_is_made_once(seed: int) -> None:
    """`lived` asserts both laws. (The last test of this file shows that they fail for a leader without the rule.)"""
    lived(seed)


@pytest.mark.slow
def test_the_lives_have_repetitions_that_would_do_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are answered more than once; and a leader that judges by the present voters alone breaks the law."""
    everything = [each for seed in SEEDS for each in lived(seed).asked]
    answered = [sum(each.error is ErrorCode.NONE for got in asked.answers for each in got) for asked in everything]
    assert sum(count > 1 for count in answered) > len(SEEDS)

    monkeypatch.setattr(membership, "_done_at", lambda state, request: None)
    with pytest.raises(AssertionError, match=r"more changes than requests|was done at"):
        for seed in SEEDS:
            lived(seed)
