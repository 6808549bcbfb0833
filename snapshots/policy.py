"""When a snapshot is due, and which ones may go.

Both are judged by the log alone, its bytes and its own time, so that an idle cluster makes no snapshots and a wrong clock
deletes nothing. Whether a metadata transaction is open, in which no mark may stand, is for the caller to know.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from metadata_log.format.ids import OffsetAndEpoch


class MarkPolicy(NamedTuple):
    """The leader's judgement, made from the log: a mark is due after so many bytes, or so much time with any bytes at all."""

    bytes_between: int = 20 << 20
    interval_ms: int = 3_600_000
    """0: time alone never makes a snapshot due."""

    def due(self, bytes_since_mark: int, ms_since_mark: int) -> str | None:
        """Why a mark is due, for the record; None: it is not. An idle log, with nothing since the last mark, never is."""
        if bytes_since_mark <= 0:
            return None
        if bytes_since_mark >= self.bytes_between:
            return f"{bytes_since_mark} bytes since the last"
        if 0 < self.interval_ms <= ms_since_mark:
            return f"{ms_since_mark} ms since the last"
        return None


class SnapshotSize(NamedTuple):
    """What retention needs to know of one snapshot."""

    end: OffsetAndEpoch
    size: int
    timestamp_ms: int


class RetentionPolicy(NamedTuple):
    """How much history a node keeps: log and snapshots together, and by the log's time. Soft limits: the newest stays."""

    max_bytes: int = 100 << 20
    max_age_ms: int = 7 * 24 * 3_600_000

    def expired(self, snapshots: Sequence[SnapshotSize], log_bytes: int) -> tuple[OffsetAndEpoch, ...]:
        """The oldest snapshots that are over the limits; never the newest. `snapshots` ascend.

        Age is counted in the log's own time, against the newest snapshot: all nodes judge alike, and a clock that is
        wrong deletes nothing.
        """
        total = log_bytes + sum(snapshot.size for snapshot in snapshots)
        gone: list[OffsetAndEpoch] = []
        span = max(1, snapshots[-1].end.offset - snapshots[0].end.offset) if snapshots else 1
        for snapshot, following in pairwise(snapshots):
            too_old = snapshots[-1].timestamp_ms - snapshot.timestamp_ms > self.max_age_ms
            if total <= self.max_bytes and not too_old:
                break
            gone.append(snapshot.end)
            # The log below the next snapshot goes with this one. Without counting it, a log that is a little over the limit
            # would lose all snapshots but one, and every broker that was away for a minute would have to load that.
            total -= snapshot.size + log_bytes * (following.end.offset - snapshot.end.offset) // span
        return tuple(gone)
