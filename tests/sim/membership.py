"""An operator of the quorum: adds and removes controllers, transfers the leadership, and replaces disks."""

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ReplicaKey
from metadata_log.format.records import Endpoint, Voter
from quorum.core.protocol.messages import (
    AddVoterRequest,
    QuorumChangeRequest,
    QuorumChangeResponse,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    UpdateVoterRequest,
)
from quorum.runtime.protocol.world import Answer, RaftRequest
from tests.sim.nodes.controllers import SimController

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

TIMEOUT_MS = 3_000
VOTERS_MAX = 5


class Membership:
    """Asks whoever leads, mostly; and now and then somebody who does not."""

    def __init__(self, cluster: "Cluster", rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._removed_ms = -3.0 * TIMEOUT_MS
        """When somebody was last to be sent away."""
        self._voteless: set[ReplicaKey] = set()
        """The controllers whose vote was lost: they come back as other replicas when they start."""

    def change(self) -> None:
        """Wishes for something that makes sense to whoever is asked, as far as it knows."""
        up = [controller for controller in self._cluster.controllers if controller.is_up]
        leading = [controller for controller in up if controller.core.is_leading]
        if not up:
            return
        asked = self._rng.choice(leading if leading and self._rng.random() < 0.9 else up)
        request = self._wish(asked)
        if request is None:
            return
        what = type(request).__name__.removesuffix("Request")
        coverage = self._cluster.coverage
        coverage["membership change asked for"] += 1

        def answered(answer: Answer) -> None:
            assert isinstance(answer, QuorumChangeResponse)
            if answer.error is ErrorCode.NONE:
                coverage[f"done: {what}"] += 1

        self._cluster.network.carry(
            "operator",
            asked.name,
            lambda: asked.ask(lambda reply_to, _: RaftRequest(request, reply_to), answered, what),
            repeats=False,
        )

    def _wish(self, asked: SimController) -> QuorumChangeRequest | None:
        voters = asked.core.voters
        strangers = [each for each in self._cluster.controllers if not voters.contains(each.key)]
        kind = self._rng.choice(("add", "add", "remove", "transfer", "update"))
        if kind == "add":
            strangers = [each for each in strangers if voters.key_of(each.node_id) is None]
            if not strangers or len(voters) >= VOTERS_MAX:
                return None
            newcomer = self._rng.choice(strangers)
            endpoints = (Endpoint("CONTROLLER", "127.0.0.1", 9_092 + newcomer.node_id),)
            voter = Voter(newcomer.node_id, newcomer.identity.directory_id, endpoints)
            return AddVoterRequest(voter, ack_when_committed=self._rng.random() < 0.7, timeout_ms=TIMEOUT_MS)
        if kind == "remove":
            lost = self._lost((*voters.keys, *self._cluster.laws.history.voters.keys))
            removable = [key for key in voters.keys if key in lost or not lost]
            if not removable or len(voters) == 1 or (len(voters) <= 2 and self._rng.random() < 0.7):
                return None
            self._removed_ms = self._cluster.now_ms
            return RemoveVoterRequest(self._rng.choice(removable), TIMEOUT_MS)
        if kind == "update":
            voter = self._rng.choice(voters.voters)
            moved = Endpoint("CONTROLLER", "127.0.0.1", self._rng.randint(10_000, 20_000))
            return UpdateVoterRequest(voter._replace(endpoints=(moved,)), asked.core.epoch, TIMEOUT_MS)
        target = self._rng.choice((None, *voters.ids))
        return TransferLeadershipRequest(target, TIMEOUT_MS)

    def _lost(self, keys: Iterable[ReplicaKey]) -> set[ReplicaKey]:
        """Those that will never speak again."""
        return set(keys) - {controller.key for controller in self._cluster.controllers} | self._voteless.intersection(
            keys
        )

    def lose(self) -> None:
        """A controller's disk is lost for good, and it comes back with an empty one; or only its vote is.

        Never more of them at a time than the others can do without: what is committed must be on the disks of a majority of
        which none was lost since. (Who sends one voter away while another is lost may be left with too few; and where somebody
        holds a set of two that was never committed, either of the two may be what an election still needs.)
        """
        voters = self._cluster.laws.history.voters
        known = (*voters.keys, *self._cluster.laws.quorum.voters_anywhere())
        all_up = all(controller.is_up for controller in self._cluster.controllers)
        removing = self._cluster.now_ms - self._removed_ms < 3 * TIMEOUT_MS
        if len(voters) < 3 or not all_up or removing or self._lost(known):
            return
        victim = self._rng.choice(self._cluster.controllers)
        sets = [voters, *(controller.core.voters for controller in self._cluster.controllers)]
        if any(each.contains(victim.key) and len(each) < 3 for each in sets):
            return
        if self._rng.random() < 0.5:
            self._cluster.coverage["disk replaced"] += 1
            victim.replace_disk(self._rng.randbytes(16))
        else:
            self._cluster.coverage["vote lost or damaged"] += 1
            if victim.lose_vote(self._rng):
                self._voteless.add(victim.key)
