"""The laws of damage (D3): a node with a damaged log does not lead, and a node with a lost durable end does not count.

The laws remember the contents of each lost log, because the node itself cannot know them
(`quorum.core.protocol.disk_trust`).

Example:

    1. Controller 2 has acknowledged 40. Its disk loses everything from 30 on, while it is down.
    2. Controller 2 restarts. It must know of the loss (LossIsKnown), and must not vote or acknowledge (LostEndIsNobody).
    3. Controller 2 declares itself restored. By then it must hold all committed records below 40 (RestoredWhenWhole).
"""

from typing import TYPE_CHECKING, NamedTuple

from metadata_log.format.ids import Epoch, Offset, ReplicaKey
from metadata_log.format.log_shape import LogShape
from metadata_log.store.damage import DamagedRange
from quorum.core.protocol.messages import FetchRequest, FetchSnapshotRequest, PeerRequest, VoteRequest, VoteResponse
from tests.sim.coverage import Coverage
from tests.sim.history import History
from tests.sim.laws.broken import hold
from tests.sim.world.held import Held, has

if TYPE_CHECKING:
    from tests.sim.nodes.controllers import Process, SimController


class _Loss(NamedTuple):
    """The durable log of a controller at the loss of its end, and the controller's epoch then."""

    held: Held
    epoch: Epoch


class DamageLaws:
    """Checks a controller after each of its events, and each of its messages."""

    def __init__(self, history: History, coverage: Coverage) -> None:
        self._history = history
        self._coverage = coverage
        self._losses: dict[ReplicaKey, _Loss] = {}
        """The controllers with a lost durable end not restored yet."""
        self._damages: dict[Process, tuple[DamagedRange, ...]] = {}

    # --- damage inside ---------------------------------------------------------------------------------------------

    def observe(self, controller: "SimController") -> None:
        self._check_damage(controller)
        self._look_for_restored(controller)

    def _check_damage(self, controller: "SimController") -> None:
        """A node with a damaged log does not lead. Counts the repair of the damage."""
        before, damage = self._damages.get(controller.process), controller.log.damage
        self._damages[controller.process] = damage
        if damage:
            leads, who = controller.core.is_leading, f"c{controller.node_id}"
            hold(not leads, "D3 DamagedNeverLeads", f"{who} leads with a damaged log")
        elif before:
            self._coverage["log mended"] += 1

    # --- a lost end ------------------------------------------------------------------------------------------------

    def lost_end(self, controller: "SimController", before: LogShape | None) -> None:
        """Notes the loss of a durable end. `before` is the last known log of a running node."""
        held = controller.died
        if controller.node is not None and before is not None:
            held = Held(before, self._damages[controller.process])
        assert held is not None
        self._losses.setdefault(controller.key, _Loss(held, controller.durable_election().epoch))
        controller.died = None  # the law about crashes must not expect the lost records

    def restarted(self, controller: "SimController") -> None:
        """A node with a lost end knows of the loss after every start, until it is restored."""
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
        """True if `quorum.core.protocol.disk_trust` allows full trust: all lost records are committed and on disk, or a
        record of a later epoch is.

        Also true if the committed records on disk are of a later epoch than the lost end, which then can never be
        committed. (A leader which is cut off appends up to 26 in epoch 7, hears of epoch 8, loses its end, and finds 24
        to 25 of epoch 8 committed.)
        """
        if controller.node is None:
            return False
        shape, held = controller.log.shape, loss.held
        committed = min(shape.flushed_end, self._history.end)
        if committed >= held.shape.flushed_end or (shape.epoch_below(shape.flushed_end) or 0) > loss.epoch:
            return True
        return (shape.epoch_below(committed) or 0) > held.last_epoch

    # --- rights of a node ------------------------------------------------------------------------------------------

    def is_holder(self, other: "SimController", watermark: Offset, epoch: Epoch) -> bool:
        """True if `other` may count as a holder of the records below `watermark`.

        A node with a lost end counts for the records held before the loss, in its epoch then: its acknowledgements may
        still be in flight, and were true. Records fetched since do not count before the node is restored.
        """
        loss = self._losses.get(other.key)
        if loss is None or self._is_restored(other, loss):
            return has(other.held, watermark, epoch)
        return loss.epoch >= epoch and loss.held.has(watermark, epoch)

    def check_standing(self, controller: "SimController", message: PeerRequest | VoteResponse) -> None:
        """A node which must not count sends no vote, no vote request, and no fetch under its own key."""
        self._look_for_restored(controller)
        disk_trust, who = controller.core.disk_trust, f"c{controller.node_id}"
        lost = controller.key in self._losses
        match message:
            case VoteRequest():
                hold(not lost and disk_trust.may_campaign, "D3 UnfitNeverRuns", f"{who}, {disk_trust}, asks for votes")
            case VoteResponse(vote_granted=True):
                hold(not lost, "D3 LostEndIsNobody", f"{who}, {disk_trust}, grants a vote")
            case FetchRequest(replica=replica) | FetchSnapshotRequest(replica=replica):
                as_itself = lost and replica == controller.key
                hold(not as_itself, "D3 LostEndIsNobody", f"{who}, {disk_trust}, fetches under its own name")
            case _:
                pass
