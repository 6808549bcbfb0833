"""The laws of following: since when a leader can no longer prove its followers (L5, C5, the lease).

A leader knows when a fetch arrived. The simulator knows when each fetch and each vote *left*, and only the sending
proves the following: at that moment the sender still followed the epoch.

Example:

    1. Voter 2 sends a fetch to leader 1 at 100, and elects leader 3 at 120. The fetch arrives at leader 1 at 140.
    2. A read arrived at leader 1 at 110. Leader 1 must not answer the read because of the fetch, although the fetch
       arrived later than the read.
    3. For a lease, too, voter 2 has followed leader 1 until 100, not until 140.
"""

from typing import TYPE_CHECKING, TypeAlias

from metadata_log.format.ids import Epoch, ReplicaKey
from quorum.core.protocol.messages import FetchRequest, FetchSnapshotRequest, PeerRequest
from quorum.core.protocol.voters import VoterSet
from quorum.runtime.protocol.world import ReplyTo
from tests.sim.laws.broken import LawBroken, hold
from tests.sim.options import Options

if TYPE_CHECKING:
    from tests.sim.nodes.controllers import Process, SimController

RESIGN_SLACK_MS = 25.0

Term: TypeAlias = "tuple[Process, Epoch]"
NEVER_MS = -1.0


class FollowingLaws:
    """Checks each fetch when it leaves and when it is processed, each vote, and each read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._sent_ms: dict[tuple[type[PeerRequest], ReplicaKey, int], float] = {}
        """When each fetch left, by sender and number."""
        self._votes: dict[tuple[Epoch, ReplicaKey], dict[ReplicaKey, float]] = {}
        """By epoch and candidate: the granting voters, and when each vote left."""
        self._heard: dict[Term, dict[ReplicaKey, float]] = {}
        """When the leader of the epoch last processed a fetch of each replica."""
        self._spoke: dict[Term, dict[ReplicaKey, float]] = {}
        """When each replica sent its newest vote or fetch processed by the leader of the epoch."""
        self._followed_until: dict[Term, tuple[VoterSet, float]] = {}
        """The earliest time at which a majority of these voters can have been silent for too long."""
        self._reads: dict[tuple[Process, ReplyTo], tuple[VoterSet, float]] = {}
        """Unanswered reads: the voters at each read's arrival, and the time."""

    # --- messages --------------------------------------------------------------------------------------------------

    def sent(self, request: PeerRequest, now_ms: float) -> None:
        """Notes a request leaving its sender."""
        if isinstance(request, FetchRequest | FetchSnapshotRequest):
            self._sent_ms[type(request), request.replica, request.number] = now_ms

    def voted(self, voter: ReplicaKey, epoch: Epoch, candidate: ReplicaKey, now_ms: float) -> None:
        """Notes a vote leaving its voter."""
        self._votes.setdefault((epoch, candidate), {})[voter] = now_ms

    def elected(self, controller: "SimController") -> None:
        """Notes a new leader."""
        term = controller.process, controller.core.epoch
        self._heard[term] = {}
        self._spoke[term] = dict(self._votes.get((controller.core.epoch, controller.key), {}))

    def taken(self, controller: "SimController", request: PeerRequest, now_ms: float) -> None:
        """Called before a leader processes another controller's request."""
        core, term = controller.core, (controller.process, controller.core.epoch)
        if not isinstance(request, FetchRequest | FetchSnapshotRequest) or term not in self._heard:
            return
        if core.is_leading and request.epoch == core.epoch:
            self._heard[term][request.replica] = now_ms
            sent_ms = self._sent_ms[type(request), request.replica, request.number]
            spoke = self._spoke[term]
            spoke[request.replica] = max(spoke.get(request.replica, NEVER_MS), sent_ms)

    def spoke_majority_ms(self, controller: "SimController", now_ms: float) -> float:
        """The last time at which a majority is known to have followed the leader; now, for a quorum of one."""
        spoke = self._spoke.get((controller.process, controller.core.epoch), {})
        return self._of_majority(controller, {key: spoke.get(key, NEVER_MS) for key in _others(controller)}, now_ms)

    @staticmethod
    def _of_majority(controller: "SimController", times_ms: dict[ReplicaKey, float], now_ms: float) -> float:
        voters = controller.core.voters
        needed = voters.majority - (1 if controller.key in voters.keys else 0)
        return sorted(times_ms.values(), reverse=True)[needed - 1] if needed > 0 else now_ms

    # --- the laws --------------------------------------------------------------------------------------------------

    def check_still_followed(self, controller: "SimController", now_ms: float) -> None:
        """L5: a leader without fetches of a majority for the check-quorum time has stepped down."""
        core = controller.core
        voters, term = core.voters, (controller.process, core.epoch)
        of, until_ms = self._followed_until.get(term, (None, 0.0))
        if of is voters and now_ms <= until_ms:
            return
        heard = self._heard.get(term)
        if controller.paused or heard is None:
            return
        newest_ms = self._of_majority(
            controller, {key: heard.setdefault(key, now_ms) for key in _others(controller)}, now_ms
        )
        limit_ms = controller.config.raft.check_quorum_ms * (1 + self._options.clock_drift) + RESIGN_SLACK_MS
        self._followed_until[term] = voters, newest_ms + limit_ms
        if now_ms - newest_ms > limit_ms:
            raise LawBroken(
                "L5 ResignsWithoutQuorum",
                f"c{controller.node_id} leads epoch {core.epoch} although no majority was heard "
                f"for {now_ms - newest_ms:.0f} ms",
            )

    def read_taken(self, controller: "SimController", reply_to: ReplyTo, now_ms: float) -> None:
        """Called before a controller processes a read."""
        self._reads[controller.process, reply_to] = controller.core.voters, now_ms

    def read_answered(self, controller: "SimController", reply_to: ReplyTo, now_ms: float) -> None:
        """C5 (Raft 6.4): a majority still followed the leader when the read had arrived.

        Skipped if the voters changed meanwhile.
        """
        voters, taken_ms = self._reads.pop((controller.process, reply_to))
        if voters != controller.core.voters:
            return
        spoke_ms = self.spoke_majority_ms(controller, now_ms)
        text = f"c{controller.node_id} answers a read of {taken_ms:.1f}; a majority is known to have followed at {spoke_ms:.1f}"
        hold(spoke_ms >= taken_ms, "C5 ReadConfirmed", text)


def _others(controller: "SimController") -> tuple[ReplicaKey, ...]:
    return tuple(controller.core.voters.others(controller.key))
