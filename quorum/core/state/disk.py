"""The state of a node's own disk: the trust left after faults, and a flush in progress.

Example: leader 1 appends at 2,000 and its disk hangs. `unflushed_since_ms` stays at 2,000. At 7,000 the leader has waited
for five check-quorum timeouts, and resigns (`stall`). At 9,000 the flush ends, and node 1 may campaign again.
"""

from metadata_log.format.ids import Offset
from metadata_log.format.log_shape import LogShape
from quorum.core.protocol.disk_trust import DiskTrust


class DiskState:
    """One node's disk, as far as elections and acknowledgements depend on it."""

    __slots__ = ("is_stalled", "trust", "unflushed_since_ms")

    def __init__(self, trust: DiskTrust, shape: LogShape, now_ms: int) -> None:
        self.trust = trust
        """The rights left to the node after disk faults (`quorum.core.protocol.disk_trust`)."""
        self.unflushed_since_ms = None if shape.flushed_end == shape.end else now_ms
        """Since when the flushed end has not moved although the log is longer. None: all is flushed."""
        self.is_stalled = False
        """True after a leader resigned because of a hanging flush (`leader`). The node does not campaign until the flush
        advances."""

    def note_shape(self, before: LogShape, shape: LogShape, now_ms: int) -> None:
        """Notes whether the flush has advanced from `before` to `shape`."""
        is_flushed, has_moved = shape.flushed_end == shape.end, shape.flushed_end != before.flushed_end
        if is_flushed or has_moved:
            self.is_stalled = False
        if is_flushed:
            self.unflushed_since_ms = None
        elif has_moved or self.unflushed_since_ms is None:
            self.unflushed_since_ms = now_ms

    def stall(self) -> None:
        """Notes a flush hanging for too long."""
        self.is_stalled = True

    def note_damage(self, *, is_damaged: bool) -> None:
        """Notes damage inside the log, or its repair."""
        self.trust = self.trust._replace(damaged=is_damaged)

    def note_room(self, *, is_full: bool) -> None:
        """Notes a disk without room for more records, or room again."""
        self.trust = self.trust._replace(out_of_room=is_full)

    def bound_loss(self, leader_end: Offset) -> None:
        """Notes the end of the leader's log: the limit of a lost tail."""
        self.trust = self.trust.bounded_by(leader_end)

    def restore_tail(self) -> None:
        """Notes that the lost tail is on disk again."""
        self.trust = self.trust._replace(lost=None)
