"""A node's part in comparing images (see `digests`): what its fetches say, what it makes of others', and when it stops."""

import logging
from collections.abc import Callable

from metadata_log.format.ids import ReplicaKey
from quorum.core.protocol.messages import FetchRequest, FetchResponse
from quorum.core.raft import RaftCore
from quorum.runtime.image.state_machine import StateMachine

logger = logging.getLogger(__name__)

ODD_ONE = "the image of this node differs from that of a majority, although their logs agree: it applies nothing more"


class Agreement:
    """Stands between the core, which carries digests, and the state machine, which has them."""

    def __init__(self, me: ReplicaKey, core: RaftCore, state: StateMachine, resign: Callable[[str], None]) -> None:
        self._me = me
        self._core = core
        self._state = state
        self._resign = resign
        self._told = ""
        self._odd = False

    @property
    def is_odd(self) -> bool:
        """Whether the image here is known to be none that a majority has, or ever had."""
        return self._odd and self._state.stopped is not None

    def applied(self) -> None:
        """The image has moved, or stands still for good: the next fetches say so."""
        state = self._state
        self._odd = self._odd and state.stopped is not None
        digest = b"" if state.stopped is not None else state.committed.digest_bytes
        self._core.carry_digest(state.applied, digest)

    def leadership_changed(self) -> None:
        self._state.digests.forget_others()

    def heard_fetch(self, request: FetchRequest) -> None:
        """As leader: a replica says what its image is."""
        core, state = self._core, self._state
        voters = core.voters.keys
        if not core.is_leading or request.replica not in voters:
            return
        if state.stopped is not None:
            self._make_way_for(request)
        elif state.digests.heard(request.replica, request.applied_offset, request.digest):
            core.carry_verdict(request.replica, image_differs=False)
        elif state.digests.am_odd(voters):
            self._stop(f"{ODD_ONE}; it differs from {state.digests.differing()}")
        else:
            differing = state.digests.differing()
            if differing != self._told:
                self._told = differing
                logger.error("node %d: images differ: that of %s is not this one's", self._me.node_id, differing)
            odd = state.digests.is_odd(request.replica, voters, self._me)
            core.carry_verdict(request.replica, image_differs=odd)

    def heard_answer(self, leader_id: int, response: FetchResponse) -> None:
        """As follower: the leader may know that this node is the odd one."""
        core = self._core
        if response.image_differs and response.epoch == core.epoch and leader_id == core.leader_id:
            self._stop(ODD_ONE)

    def resign_if_stopped(self) -> None:
        """As active controller: whose image is not to be believed must not decide by it; somebody else can."""
        if self._state.stopped is not None:
            self._resign(self._state.stopped)

    def _make_way_for(self, request: FetchRequest) -> None:
        """As a leader that applies nothing any more, and so never becomes active: a voter that could has fetched.

        Not before that voter holds all of the log. Of two that are left, each needs the other's vote: a leader that resigned
        as soon as it was elected would refuse its own to whoever lacks the record of its epoch, and be elected again, for ever.
        """
        core, state = self._core, self._state
        assert state.stopped is not None
        holds_all = request.epoch == core.epoch and request.fetch_offset == core.shape.end
        if holds_all and not request.damaged and request.digest and request.applied_offset > state.applied:
            self._resign(state.stopped)

    def _stop(self, reason: str) -> None:
        if self._state.stopped is None:
            logger.error("node %d: %s", self._me.node_id, reason)
            self._state.stop(reason)
            self._odd = True
            self.applied()
