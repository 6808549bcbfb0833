"""Hands requests to the active controller while this node leads, and otherwise refuses them.

    a request --> does the node lead?  --no--> NOT_CONTROLLER, with a leader hint
                          | yes
                          v
                   ActiveController: decides, or holds the request until it is active

*An elected node is not active yet.* Its active controller begins when the image has reached the end of the log
(`quorum.runtime.active.active_controller` says why). Example:
    1. node 2, with the log's end at 40, is elected in epoch 5, and appends the LeaderChange 40: its end is 41;
    2. a client asks node 2 for a topic: node 2 leads, so the active controller holds the request;
    3. the other voters have fetched 40: node 2 commits and applies it, its image and its log end at 41;
    4. the active controller begins, and decides on the topic.

*A bug in a decision may cost the leadership.* If a decision raises an unexpected error and may have left the controller's soft
state half changed (`quorum.runtime.active.decisions`), the node resigns. Nothing was appended; the next leader builds its soft
state from the image.
"""

import logging
from collections.abc import Callable
from typing import ParamSpec

from metadata_log.format.errors import ErrorCode
from quorum.runtime.active.active_controller import ActiveController
from quorum.runtime.active.decisions import DecisionFailed
from quorum.runtime.addresses import Addresses
from quorum.runtime.agreement import Agreement
from quorum.runtime.applier import Applier
from quorum.runtime.parts import Parts
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.world import BrokerFetch, KeepAlive, Read, SnapshotWanted, Submission

P = ParamSpec("P")

logger = logging.getLogger(__name__)


class Leadership:
    """Connects the core, which wins elections, to the active controller, which decides."""

    def __init__(
        self, parts: Parts, active: ActiveController, applier: Applier, agreement: Agreement, addresses: Addresses
    ) -> None:
        self._node_id = parts.me.node_id
        self._core, self._log, self._state, self._world = parts.core, parts.log, parts.state, parts.world
        self._resign = parts.resign
        self._active = active
        self._applier = applier
        self._agreement = agreement
        self._addresses = addresses

    def run(self, act: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Runs `act` of the active controller. If `act` raises DecisionFailed, this node resigns."""
        try:
            act(*args, **kwargs)
        except DecisionFailed as e:
            logger.error(
                "node %d resigns: a decision failed by a bug in this program (please report): %s", self._node_id, e
            )
            self._resign()

    def take(self, event: Submission | Read | SnapshotWanted, now_ms: int) -> None:
        """Takes a client's request: decided, held, or refused with NOT_CONTROLLER."""
        if self._core.is_leading:
            self.run(self._active.take, event, now_ms)
        else:
            self._world.reply(event.reply_to, self._not_controller(now_ms))

    def take_fetch(self, event: BrokerFetch, now_ms: int) -> None:
        """Takes a broker's fetch, which is also its heartbeat."""
        if self._core.is_leading:
            self.run(self._active.fetch, event, self._core.epoch, now_ms)
        else:
            self._world.reply(event.reply_to, self._not_controller(now_ms))

    def take_keep_alive(self, event: KeepAlive, now_ms: int) -> None:
        """Takes a message that keeps sessions of clients alive."""
        if self._core.is_leading:
            self._active.keep_alive(event, now_ms)
        else:
            self._world.reply(event.reply_to, self._not_controller(now_ms))

    def begin_if_ready(self, now_ms: int) -> None:
        """Begins the active controller if the image has reached the log's end; an active one whose image has stopped resigns."""
        core = self._core
        if self._active.on:
            self._agreement.resign_if_stopped()
            return
        if not core.is_leading or core.high_watermark is None or self._applier.is_loading:
            return
        if self._state.applied == self._log.end:
            self.run(self._active.begin, core.epoch, now_ms)

    def _not_controller(self, now_ms: int) -> Refused:
        hint = self._addresses.leader_hint(now_ms)
        known = f"the leader is {hint.leader_id}" if hint.leader_id is not None else "no leader is known"
        return Refused(ErrorCode.NOT_CONTROLLER, f"node {self._node_id} is not the active controller; {known}", hint)
