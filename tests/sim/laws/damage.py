"""The laws of damage (D3): whose log has a hole does not lead; who has lost its durable end is nobody until that is made good.

What a controller had is remembered here when it is lost, for the node itself cannot know it (`quorum.core.protocol.disk_trust`).
"""

from typing import TYPE_CHECKING, NamedTuple

from metadata_log.format.ids import Epoch, Offset, ReplicaKey
from metadata_log.format.log_shape import LogShape
from metadata_log.store.damage import DamagedRange
from quorum.core.protocol.messages import FetchRequest, FetchSnapshotRequest, PeerRequest, VoteRequest, VoteResponse
from tests.sim.coverage import Coverage
from tests.sim.held import Held, has
from tests.sim.history import History
from tests.sim.laws.broken import hold

if TYPE_CHECKING:
    from tests.sim.controllers import Process, SimController


class _Loss(NamedTuple):
    """What a controller had durably when the end of that was lost, and its epoch then."""

    held: Held
    epoch: Epoch


class DamageLaws:
    """Looks at a controller after each of its events, and at what it says of itself."""

    def __init__(self, history: History, coverage: Coverage) -> None:
        self._history = history
        self._coverage = coverage
        self._losses: dict[ReplicaKey, _Loss] = {}
        """Who has lost the end of what it had durably, and has not made that good."""
        self._damages: dict[Process, tuple[DamagedRange, ...]] = {}

    # --- damage inside ---------------------------------------------------------------------------------------------

    def observe(self, controller: "SimController") -> None:
        self._check_damage(controller)
        self._look_for_restored(controller)

    def _check_damage(self, controller: "SimController") -> None:
        """A node with a hole in its log does not lead; and one day it has none."""
        before, damage = self._damages.get(controller.process), controller.log.damage
        self._damages[controller.process] = damage
        if damage:
            leads, who = controller.core.is_leading, f"c{controller.node_id}"
            hold(not leads, "D3 DamagedNeverLeads", f"{who} leads with a damaged log")
        elif before:
            self._coverage["log mended"] += 1

    # --- a lost end ------------------------------------------------------------------------------------------------

    def lost_end(self, controller: "SimController", before: LogShape | None) -> None:
        """The end of what was durable is gone; `before` is the log as it was last seen, if the node was up."""
        held = controller.died
        if controller.node is not None and before is not None:
            held = Held(before, self._damages[controller.process])
        assert held is not None
        self._losses.setdefault(controller.key, _Loss(held, controller.durable_election().epoch))
        controller.died = None  # nobody expects that log back

    def restarted(self, controller: "SimController") -> None:
        """Whoever has lost its end knows that as soon as it is up, however often it crashes before."""
        loss = self._losses.get(controller.key)
        if loss is not None and controller.log.lost is None:
            who, whole = f"c{controller.node_id}", self._is_restored(controller, loss)
            hold(whole, "D3 LossIsKnown", f"{who} has lost its end at {loss.held.shape.end}, and has no idea")
            del self._losses[controller.key]

    def _look_for_restored(self, controller: "SimController") -> None:
        loss = self._losses.get(controller.key)
        if loss is not None and controller.core.disk_trust.lost is None:
            held = loss.held.shape.flushed_end
            whole = self._is_restored(controller, loss)
            hold(whole, "D3 RestoredWhenWhole", f"c{controller.node_id} calls itself restored, and had {held} durably")
            self._coverage["standing restored"] += 1
            del self._losses[controller.key]

    def _is_restored(self, controller: "SimController", loss: _Loss) -> bool:
        """See `quorum.core.protocol.disk_trust`: all that it had is committed and here, or here is a record of a later epoch.

        Or what is committed here is of a later epoch than the end of what it had: then that end never can be. (A leader that
        is cut off appends up to 26 in epoch 7, hears of epoch 8, loses its end, and finds 24 to 25 of epoch 8 committed.)
        """
        if controller.node is None:
            return False
        shape, held = controller.log.shape, loss.held
        committed = min(shape.flushed_end, self._history.end)
        if committed >= held.shape.flushed_end or (shape.epoch_below(shape.flushed_end) or 0) > loss.epoch:
            return True
        return (shape.epoch_below(committed) or 0) > held.last_epoch

    # --- who counts ------------------------------------------------------------------------------------------------

    def is_holder(self, other: "SimController", watermark: Offset, epoch: Epoch) -> bool:
        """Whether `other` may count for what lies below `watermark`.

        One that has lost its end counts for what it had then, in the epoch that it was in: its acknowledgements may still be
        on their way, and were true. What it has fetched since does not count, before it is restored.
        """
        loss = self._losses.get(other.key)
        if loss is None or self._is_restored(other, loss):
            return has(other.held, watermark, epoch)
        return loss.epoch >= epoch and loss.held.has(watermark, epoch)

    def check_standing(self, controller: "SimController", message: PeerRequest | VoteResponse) -> None:
        """Who may not be counted does not ask to be: no votes, no campaign, no fetch under its own name."""
        self._look_for_restored(controller)
        disk_trust, who = controller.core.disk_trust, f"c{controller.node_id}"
        lost = controller.key in self._losses
        match message:
            case VoteRequest():
                hold(not lost and not disk_trust.damaged, "D3 UnfitNeverRuns", f"{who}, {disk_trust}, asks for votes")
            case VoteResponse(vote_granted=True):
                hold(not lost, "D3 LostEndIsNobody", f"{who}, {disk_trust}, grants a vote")
            case FetchRequest(replica=replica) | FetchSnapshotRequest(replica=replica):
                as_itself = lost and replica == controller.key
                hold(not as_itself, "D3 LostEndIsNobody", f"{who}, {disk_trust}, fetches under its own name")
            case _:
                pass
