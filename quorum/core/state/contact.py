"""The node's contact with leaders: when a leader was last heard, and which stranger claims to lead.

Elections do not depend on any of the times. Reports do (`quorum.core.current_leader`).
"""

from metadata_log.format.ids import Epoch, NodeId


class LeaderContact:
    """One node's news of leaders."""

    __slots__ = ("begun_epoch", "begun_ms", "claimant", "heard_ms")

    def __init__(self) -> None:
        self.heard_ms: int | None = None
        """When a leader last answered a fetch well, or when the node last led; None: not since the start.

        All of the node's knowledge may be as old. (The follower's deadline cannot serve here: events without an answer
        from the leader move the deadline, too.)"""
        self.begun_epoch: Epoch = 0
        """The epoch of the last BeginQuorumEpoch; 0: none came, or the leader has ended the epoch or seems to be gone since."""
        self.begun_ms: int | None = None
        """When a leader last began or ended an epoch."""
        self.claimant: NodeId | None = None
        """A node which claims to lead and is no voter in this node's log. This node asks the claimant for news and believes
        nothing else of it (`votes`)."""

    def heard(self, at_ms: int) -> None:
        """A leader answered a fetch well, or this node still led, at `at_ms`."""
        self.heard_ms = at_ms

    def began(self, epoch: Epoch, now_ms: int) -> None:
        """The leader of `epoch` sent BeginQuorumEpoch."""
        self.begun_epoch, self.begun_ms = epoch, now_ms

    def ended(self, now_ms: int) -> None:
        """A leader sent EndQuorumEpoch."""
        self.begun_epoch, self.begun_ms = 0, now_ms

    def lost(self) -> None:
        """The leader's process is gone, or leads no longer: its last BeginQuorumEpoch is no sign of life any more."""
        self.begun_epoch = 0

    def claims(self, node_id: NodeId) -> None:
        """Notes a stranger's claim to lead."""
        self.claimant = node_id

    def take_claimant(self) -> NodeId | None:
        """The stranger to ask next, once."""
        taken, self.claimant = self.claimant, None
        return taken
