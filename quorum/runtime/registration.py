"""The registration of this controller in the log: its addresses, and the levels of features that it supports.

The level of `metadata.version` may rise only when every voter's registration supports the new level
(`quorum.controller.features`). So each controller looks into its own image, and registers as long as the image shows another
registration, or none. The image is the acknowledgement: no answer that is lost matters.

    the leader       decides on its own registration, in a turn
    another node     sends the registration to the leader, again after a pause, and at once to the next leader

Example with leader 1 and the restarted controller 3, of a newer release:
  1. the image of controller 3 shows `metadata.version` 1 to 1 for controller 3, and its release supports 1 to 2;
  2. controller 3 sends its registration to leader 1, which appends it at 40 and answers; leader 1 dies, and 40 is lost;
  3. controller 2 is elected. The image of controller 3 still shows the old levels: controller 3 sends again, to leader 2.

The directory id stands for the process: a registration counts for the voter with this directory only, so a controller with a
replaced disk must register again. An observer registers like a voter: the leader adds it as a voter only after that (`judge`).
"""

import logging

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, ReplicaKey
from metadata_log.format.records import RegisterController
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.features.support import is_registered, lacks
from quorum.controller.protocol.commands import RegisterControllerCommand
from quorum.core.protocol.messages import RegisterControllerRequest, RegisterControllerResponse
from quorum.core.protocol.newcomer import Unfit
from quorum.runtime.active.active_controller import ActiveController
from quorum.runtime.active.decisions import DecisionFailed
from quorum.runtime.parts import Parts
from quorum.runtime.protocol.peer_answers import RegistrationEnded
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.world import ReplyTo

logger = logging.getLogger(__name__)

MAX_DOUBLINGS = 4
"""How many times the pause between two attempts is doubled at most."""


class Registration:
    """Registers one controller, and takes the registrations of others on the leader."""

    def __init__(self, parts: Parts, active: ActiveController) -> None:
        self._me, self._core, self._state = parts.me, parts.core, parts.state
        self._config, self._world, self._time = parts.config, parts.world, parts.time
        self._active = active
        self._mine = RegisterController(
            parts.me.node_id, parts.me.directory_id, parts.config.endpoints, parts.config.features
        )
        self._asked = False
        """True while a request is under way."""
        self._leader_id: NodeId | None = None
        """The leader of the last attempt."""
        self._again_ms = 0
        """The time of the next attempt at the same leader."""
        self._failures = 0
        self._seen: object = None
        """The controllers of the image that was looked at last: an unchanged map needs no second look."""
        self._is_there = False

    # --- this controller -------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Registers this controller, if the image does not show its registration and the next attempt is due."""
        leader_id = self._leader()
        if leader_id is None or self._asked or self._is_registered():
            return
        if leader_id != self._leader_id:
            self._leader_id, self._failures, self._again_ms = leader_id, 0, self._time.now_ms
        if self._time.now_ms < self._again_ms:
            return
        if self._active.on:
            self._ended(self._decide(RegisterControllerCommand(*self._mine)))
        else:
            self._asked = True
            request = RegisterControllerRequest(self._me, self._mine.endpoints, self._mine.features)
            self._world.send(leader_id, request, self._config.raft.request_timeout_ms)

    def take_end(self, event: RegistrationEnded) -> None:
        """Takes the leader's answer, or its absence. Without the record in the image the next attempt follows."""
        if self._asked:
            self._asked = False
            self._ended(event.error)

    def _ended(self, error: ErrorCode | None) -> None:
        if error is not None and error is not ErrorCode.NONE and not self._failures:
            logger.info("controller %d is not registered yet: the leader answers %s", self._me.node_id, error.name)
        self._again_ms = self._time.now_ms + (self._config.raft.request_timeout_ms << self._failures)
        self._failures = min(self._failures + 1, MAX_DOUBLINGS)

    def next_deadline_ms(self) -> int | None:
        """The time of the next attempt at the same leader; None: nothing is due by time alone."""
        if self._asked or self._leader_id is None or self._leader() != self._leader_id or self._is_registered():
            return None
        return self._again_ms

    def _leader(self) -> NodeId | None:
        """The active controller; None while this node does not follow it, or has not applied all that it has committed."""
        if self._active.on:
            return self._me.node_id
        committed = self._core.leaders_high_watermark
        return None if committed is None or self._state.applied < committed else self._core.leader_id

    def _is_registered(self) -> bool:
        image: MetadataImage = self._state.proposed if self._active.on else self._state.committed
        if image.controllers is not self._seen:
            self._seen = image.controllers
            self._is_there = image.controllers.get(self._me.node_id) == self._mine
        return self._is_there

    # --- other controllers -----------------------------------------------------------------------------------------

    def take_request(self, request: RegisterControllerRequest, reply_to: ReplyTo) -> None:
        """Decides on another controller's registration, and answers at once."""
        error = ErrorCode.NOT_READY if self._core.is_leading else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self._active.on:
            error = self._decide(RegisterControllerCommand(*request.controller, request.endpoints, request.features))
        self._world.reply(reply_to, RegisterControllerResponse(error, self._core.epoch, self._core.leader_id))

    def judge(self, newcomer: ReplicaKey) -> Unfit | None:
        """Says why another controller cannot become a voter, by the features that it has registered.

        A leader that is not active yet may have an image of a lower level: for example, a restarted leader loads its snapshot.
        """
        if not self._active.on:
            return Unfit("this leader to apply its log", may_pass=True)
        image: MetadataImage = self._state.proposed
        lacked = lacks(image, newcomer)
        if not lacked:
            return None
        if is_registered(image, newcomer):
            levels = ", ".join(f"{level} (it {problem})" for level, problem in lacked.items())
            return Unfit(f"controller {newcomer.node_id} lacks what this cluster needs: {levels}", may_pass=False)
        levels = ", ".join(lacked)
        return Unfit(f"controller {newcomer.node_id} to register that it supports {levels}", may_pass=True)

    def _decide(self, command: RegisterControllerCommand) -> ErrorCode:
        try:
            self._active.register(command, self._time.now_ms)
        except Refused as refused:
            return refused.code
        except DecisionFailed as failed:
            return failed.refusal().code
        return ErrorCode.NONE
