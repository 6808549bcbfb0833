"""The rules for making and deleting snapshots.

Both rules look only at the log: its bytes, and the time in its batches. So an idle cluster makes no snapshots, and a
wrong clock deletes nothing. The caller checks that no metadata transaction is open, because a snapshot mark must not be
inside one.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from metadata_log.format.ids import OffsetAndEpoch


class MarkPolicy(NamedTuple):
    """When the leader appends a snapshot mark: after `bytes_between` bytes, or after `interval_ms` if the log has grown
    at all.
    """

    bytes_between: int = 20 << 20
    interval_ms: int = 3_600_000
    """How long after the last mark a grown log gets the next one. 0: never because of time."""

    def due(self, bytes_since_mark: int, ms_since_mark: int) -> str | None:
        """Return why a mark is due, for the record; None if none is due. A log without new bytes never needs a mark."""
        if bytes_since_mark <= 0:
            return None
        if bytes_since_mark >= self.bytes_between:
            return f"{bytes_since_mark} bytes since the last"
        if 0 < self.interval_ms <= ms_since_mark:
            return f"{ms_since_mark} ms since the last"
        return None


class SnapshotSize(NamedTuple):
    """The facts about one snapshot that retention needs."""

    end: OffsetAndEpoch
    size: int
    timestamp_ms: int


class RetentionPolicy(NamedTuple):
    """How much history a node keeps: log and snapshots together. The limits are soft: the newest snapshot always
    stays.
    """

    max_bytes: int = 100 << 20
    max_age_ms: int = 7 * 24 * 3_600_000

    def expired(self, snapshots: Sequence[SnapshotSize], log_bytes: int) -> tuple[OffsetAndEpoch, ...]:
        """Return the oldest snapshots that are over the limits; never the newest. `snapshots` ascend.

        Age is the difference to the newest snapshot in the log's time. So all nodes decide alike, and a wrong clock
        deletes nothing.
        """
        total = log_bytes + sum(snapshot.size for snapshot in snapshots)
        gone: list[OffsetAndEpoch] = []
        span = max(1, snapshots[-1].end.offset - snapshots[0].end.offset) if snapshots else 1
        for snapshot, following in pairwise(snapshots):
            too_old = snapshots[-1].timestamp_ms - snapshot.timestamp_ms > self.max_age_ms
            if total <= self.max_bytes and not too_old:
                break
            gone.append(snapshot.end)
            # The log below the next snapshot is deleted together with this snapshot, so count it. Otherwise a log
            # slightly over the limit would lose all snapshots but one, and every broker that was away for a minute
            # would have to load that one.
            total -= snapshot.size + log_bytes * (following.end.offset - snapshot.end.offset) // span
        return tuple(gone)
