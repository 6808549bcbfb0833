"""When a node acts as the active controller, and what it answers to requests for that controller while it does not.

    a request --> does this node lead? --no--> NOT_CONTROLLER, and who leads
                          | yes
                          v
                   ActiveController: decides, or holds the request until it is active

*An elected node is not active yet.* It begins once its image is all of its log (`active` says why). Example:
    1. node 2, with the log's end at 40, is elected in epoch 5, and appends the LeaderChange 40: its end is 41;
    2. a client asks node 2 for a topic: node 2 leads, so the active controller holds the request;
    3. the other voters have fetched 40: node 2 commits and applies it, its image and its log end at 41;
    4. the active controller begins, and decides on the topic.

*A mistake of ours may cost the lead.* A decision that has failed in the program, and may have left the controller's soft state
half changed (`deciding`), makes this node resign. Nothing was appended; the next leader builds that state anew from the image.
"""

import logging
from collections.abc import Callable
from typing import ParamSpec

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId
from metadata_log.store.log_view import LogView
from quorum.core.raft import RaftCore
from quorum.runtime.active.active_controller import ActiveController
from quorum.runtime.active.decisions import DecisionFailed
from quorum.runtime.addresses import Addresses
from quorum.runtime.agreement import Agreement
from quorum.runtime.applier import Applier
from quorum.runtime.image.state_machine import StateMachine
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.world import BrokerFetch, Read, SnapshotWanted, Submission, World

P = ParamSpec("P")

logger = logging.getLogger(__name__)


class Leadership:
    """Stands between the core, which is elected, and the active controller, which decides. `resign` tells the core why."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        core: RaftCore,
        log: LogView,
        state: StateMachine,
        active: ActiveController,
        applier: Applier,
        agreement: Agreement,
        addresses: Addresses,
        world: World,
        resign: Callable[[str], None],
    ) -> None:
        self._node_id = node_id
        self._core = core
        self._log = log
        self._state = state
        self._active = active
        self._applier = applier
        self._agreement = agreement
        self._addresses = addresses
        self._world = world
        self._resign = resign

    def run(self, act: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Lets the active controller `act`. If a decision fails in a way that spoils its soft state, this node resigns."""
        try:
            act(*args, **kwargs)
        except DecisionFailed as e:
            logger.error("node %d resigns: a decision failed by a mistake in the program: %s", self._node_id, e)
            self._resign(f"a decision failed by a mistake in the program: {e}")

    def take(self, event: Submission | Read | SnapshotWanted, now_ms: int) -> None:
        """A client's request."""
        if self._core.is_leading:
            self.run(self._active.take, event, now_ms)
        else:
            self._world.reply(event.reply_to, self._not_controller(now_ms))

    def take_fetch(self, event: BrokerFetch, now_ms: int) -> None:
        """A broker's fetch, which is its sign of life."""
        if self._core.is_leading:
            self.run(self._active.fetch, event, self._core.epoch, now_ms)
        else:
            self._world.reply(event.reply_to, self._not_controller(now_ms))

    def begin_if_ready(self, now_ms: int) -> None:
        """The active controller begins where its image is all of the log; one whose image is not to be believed resigns."""
        core = self._core
        if self._active.on:
            self._agreement.resign_if_stopped()
            return
        if not core.is_leading or core.high_watermark is None or self._applier.is_loading:
            return
        if self._state.applied == self._log.shape.end:
            self.run(self._active.begin, core.epoch, now_ms)

    def _not_controller(self, now_ms: int) -> Refused:
        hint = self._addresses.leader_hint(now_ms)
        known = f"the leader is {hint.leader_id}" if hint.leader_id is not None else "no leader is known"
        return Refused(ErrorCode.NOT_CONTROLLER, f"node {self._node_id} is not the active controller; {known}", hint)
