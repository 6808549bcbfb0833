"""Who follows a leader, and since when that cannot be said any more (L5, C5, the lease).

A leader knows what it has heard. The simulator knows when each fetch and each vote *left*, and that is what proves something: at
that moment the sender still followed this epoch. For example voter 2 sends a fetch at 100, elects another leader at 120, and its
fetch arrives at 140. A read that came to the first leader at 110 must not be answered because of that fetch, though it was heard
after the read; and for a lease voter 2 has followed until 100, not until 140.
"""

from typing import TYPE_CHECKING, TypeAlias

from metadata_log.format.ids import Epoch, ReplicaKey
from quorum.core.protocol.messages import FetchRequest, FetchSnapshotRequest, PeerRequest
from quorum.core.protocol.voters import VoterSet
from quorum.runtime.protocol.world import ReplyTo
from tests.sim.laws.broken import LawBroken, hold
from tests.sim.options import Options

if TYPE_CHECKING:
    from tests.sim.controllers import Process, SimController

RESIGN_SLACK_MS = 25.0

Term: TypeAlias = "tuple[Process, Epoch]"
NEVER_MS = -1.0


class FollowingLaws:
    """Looks at each fetch when it leaves and when it is taken, at each vote, and at each read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._sent_ms: dict[tuple[type[PeerRequest], ReplicaKey, int], float] = {}
        """When a fetch left, by who asks and its number."""
        self._votes: dict[tuple[Epoch, ReplicaKey], dict[ReplicaKey, float]] = {}
        """By epoch and candidate: who has voted for him, and when."""
        self._heard: dict[Term, dict[ReplicaKey, float]] = {}
        """When each replica's last fetch was taken by the leader of that epoch."""
        self._spoke: dict[Term, dict[ReplicaKey, float]] = {}
        """When each replica has last sent what the leader of that epoch has taken: its vote, or a fetch."""
        self._followed_until: dict[Term, tuple[VoterSet, float]] = {}
        """No sooner than then can a majority of these voters have been silent for too long: they speak ever later."""
        self._reads: dict[tuple[Process, ReplyTo], tuple[VoterSet, float]] = {}
        """Reads that are not answered: who voted when each was taken, and when that was."""

    # --- what is said ----------------------------------------------------------------------------------------------

    def sent(self, request: PeerRequest, now_ms: float) -> None:
        """A request leaves."""
        if isinstance(request, FetchRequest | FetchSnapshotRequest):
            self._sent_ms[type(request), request.replica, request.number] = now_ms

    def voted(self, voter: ReplicaKey, epoch: Epoch, candidate: ReplicaKey, now_ms: float) -> None:
        """A vote leaves."""
        self._votes.setdefault((epoch, candidate), {})[voter] = now_ms

    def elected(self, controller: "SimController") -> None:
        """It leads its epoch, which it did not before."""
        term = controller.process, controller.core.epoch
        self._heard[term] = {}
        self._spoke[term] = dict(self._votes.get((controller.core.epoch, controller.key), {}))

    def taken(self, controller: "SimController", request: PeerRequest, now_ms: float) -> None:
        """A request of another controller is about to be processed."""
        core, term = controller.core, (controller.process, controller.core.epoch)
        if not isinstance(request, FetchRequest | FetchSnapshotRequest) or term not in self._heard:
            return
        if core.is_leading and request.epoch == core.epoch:
            self._heard[term][request.replica] = now_ms
            sent_ms = self._sent_ms[type(request), request.replica, request.number]
            spoke = self._spoke[term]
            spoke[request.replica] = max(spoke.get(request.replica, NEVER_MS), sent_ms)

    def spoke_majority_ms(self, controller: "SimController", now_ms: float) -> float:
        """Until when a majority is known to have followed the leader; now, where it needs nobody."""
        spoke = self._spoke.get((controller.process, controller.core.epoch), {})
        return self._of_majority(controller, {key: spoke.get(key, NEVER_MS) for key in _others(controller)}, now_ms)

    @staticmethod
    def _of_majority(controller: "SimController", times_ms: dict[ReplicaKey, float], now_ms: float) -> float:
        voters = controller.core.voters
        needed = voters.majority - (1 if controller.key in voters.keys else 0)
        return sorted(times_ms.values(), reverse=True)[needed - 1] if needed > 0 else now_ms

    # --- the laws --------------------------------------------------------------------------------------------------

    def check_still_followed(self, controller: "SimController", now_ms: float) -> None:
        """L5: a leader that no majority has fetched from for the check-quorum time has stepped down."""
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
        """A read is about to be processed."""
        self._reads[controller.process, reply_to] = controller.core.voters, now_ms

    def read_answered(self, controller: "SimController", reply_to: ReplyTo, now_ms: float) -> None:
        """C5 (Raft 6.4): a majority still followed when the read had come. Who votes may have changed since it was proven."""
        voters, taken_ms = self._reads.pop((controller.process, reply_to))
        if voters != controller.core.voters:
            return
        spoke_ms = self.spoke_majority_ms(controller, now_ms)
        text = f"c{controller.node_id} answers a read of {taken_ms:.1f}; a majority is known to have followed at {spoke_ms:.1f}"
        hold(spoke_ms >= taken_ms, "C5 ReadConfirmed", text)


def _others(controller: "SimController") -> tuple[ReplicaKey, ...]:
    return tuple(controller.core.voters.others(controller.key))
