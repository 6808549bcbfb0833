"""Compares this node's image with the images of the other voters, and stops a node whose image differs from a majority's.

The digests of images travel with fetches (`quorum.runtime.image.digests`). Example with voters 1, 2 and 3, leader 1:
    1. a bug on node 3 changes a partition of its image; the logs of all three nodes still agree;
    2. node 3 fetches, and its fetch carries the digest of its image at offset 40; leader 1 has another digest at 40;
    3. node 2 has the digest of leader 1 at 40, so leader 1 answers node 3 with `image_differs`;
    4. node 3 stops applying records, says so in its next fetches, and refuses local reads.

*A skipped batch* (`metadata_log.image.skips`) has its effect in the image of a node that has applied the batch, until the node
comes to the record that skips the batch. So the leader compares no images in between.
"""

import logging

from metadata_log.format.ids import Offset
from quorum.core.protocol.messages import FetchRequest, FetchResponse
from quorum.runtime.parts import Parts

logger = logging.getLogger(__name__)

ODD_ONE = "the image of this node differs from that of a majority, although their logs agree: it applies nothing more"


class Agreement:
    """Gives the digests of the state machine to the core, which sends them, and judges the digests of the other voters."""

    def __init__(self, parts: Parts) -> None:
        self._me, self._core, self._state, self._log = parts.me, parts.core, parts.state, parts.log
        self._resign = parts.resign
        self._told = ""
        self._odd = False

    @property
    def is_odd(self) -> bool:
        """True if the node has stopped because no majority has, or ever had, the same image."""
        return self._odd and self._state.stopped is not None

    def applied(self) -> None:
        """Gives the core the digest for the next fetches. A node that has stopped applying sends an empty digest."""
        state = self._state
        self._odd = self._odd and state.stopped is not None
        digest = b"" if state.stopped is not None else state.committed.digest_bytes
        self._core.carry_digest(state.applied, digest)

    def leadership_changed(self) -> None:
        self._state.digests.forget_others()

    def heard_fetch(self, request: FetchRequest) -> None:
        """Takes the digest in a voter's fetch. Only a leader compares it."""
        core, state = self._core, self._state
        voters = core.voters.keys
        if not core.is_leading or request.replica not in voters:
            return
        if state.stopped is not None:
            self._make_way_for(request)
        elif self._is_before_skip(request.applied_offset):
            return
        elif state.digests.heard(request.replica, request.applied_offset, request.digest):
            core.carry_verdict(request.replica, image_differs=False)
        elif state.digests.am_odd(voters):
            self._stop(f"{ODD_ONE}; it differs from {state.digests.differing()}")
        else:
            differing = state.digests.differing()
            if differing != self._told:
                self._told = differing
                logger.error(
                    "node %d: images differ: the image of %s is not equal to this node's image",
                    self._me.node_id,
                    differing,
                )
            odd = state.digests.is_odd(request.replica, voters, self._me)
            core.carry_verdict(request.replica, image_differs=odd)

    def _is_before_skip(self, offset: Offset) -> bool:
        """True if a sound image at `offset` may have, or not have, the effect of a skipped batch."""
        return any(skip.dropped_start < offset <= at for at, skip in self._log.skipped())

    def heard_answer(self, leader_id: int, response: FetchResponse) -> None:
        """Stops the follower if the leader reports that the follower's image differs from a majority's."""
        core = self._core
        if response.image_differs and response.epoch == core.epoch and leader_id == core.leader_id:
            self._stop(ODD_ONE)

    def resign_if_stopped(self) -> None:
        """Resigns if the node has stopped applying: an active controller must not decide by a wrong image."""
        if self._state.stopped is not None:
            self._resign()

    def _make_way_for(self, request: FetchRequest) -> None:
        """Resigns in favour of the voter that has just fetched. The leader has stopped applying, so it can never become active.

        The leader waits until the voter holds the whole log. Otherwise two remaining voters, 1 and 2, would loop:
            1. node 1 is elected, and resigns at once;
            2. voter 2 campaigns, but lacks node 1's LeaderChange record, so node 1 refuses its vote;
            3. node 1 is elected again.
        """
        core, state = self._core, self._state
        assert state.stopped is not None
        holds_all = request.epoch == core.epoch and request.fetch_offset == core.shape.end
        if holds_all and not request.damaged and request.digest and request.applied_offset > state.applied:
            self._resign()

    def _stop(self, reason: str) -> None:
        if self._state.stopped is None:
            logger.error("node %d: %s", self._me.node_id, reason)
            self._state.stop(reason)
            self._odd = True
            self.applied()
