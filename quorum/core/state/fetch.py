"""The state of a node's own fetches: the one in flight, its number, its size, and the earliest time of the next one.

Example:

    1. Follower 2 sends fetch number 17 to leader 1 at 1,000 (`sent`).
    2. Leader 1 does not answer. At 1,500 the request fails: nothing is in flight (`take`), the next fetch may leave
       at 1,530 (`back_off`), and after a second failure 60 ms after the failure.
    3. Leader 1 answers fetch number 18: the next fetch may leave at once (`answered`).
"""

from metadata_log.format.fetch_size import FetchSize
from metadata_log.format.ids import NodeId
from quorum.core.protocol.config import RaftConfig
from quorum.core.protocol.messages import FetchRequest, FetchSnapshotRequest, Request

MAX_BACKOFF_DOUBLINGS = 3


class FetchState:
    """One node's fetches, of the log and of snapshots."""

    __slots__ = ("_backoff_ms", "_failures", "_number", "_sent_ms", "in_flight", "incarnation", "pieces", "retry_at_ms")

    def __init__(self, config: RaftConfig, number: int, now_ms: int) -> None:
        """`number` is random, so that answers meant for an earlier process match no request of this one."""
        self.in_flight: tuple[NodeId, FetchRequest | FetchSnapshotRequest] | None = None
        """The one fetch in flight, and its destination."""
        self.pieces = FetchSize(
            config.piece_bytes_min, max(config.fetch_bytes_max, config.snapshot_chunk_bytes), config.request_timeout_ms
        )
        """How many bytes the next fetch asks for, of the log or of a snapshot: both use the same link."""
        self.incarnation = number or 1
        """A random number to tell this process from any other process fetching under the same key (see `processes`)."""
        self.retry_at_ms = now_ms
        """The earliest time for the next fetch."""
        self._number = number
        """The number of the last fetch."""
        self._sent_ms = now_ms
        """When the last fetch was sent."""
        self._backoff_ms = config.retry_backoff_ms
        self._failures = 0

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def sent(self, destination: NodeId, request: FetchRequest | FetchSnapshotRequest, now_ms: int) -> None:
        """Notes `request` as the fetch in flight."""
        self.in_flight = destination, request
        self._sent_ms = now_ms

    def take(self, source: NodeId, request: Request) -> bool:
        """Returns True, and clears the fetch in flight, if `request` to `source` is the awaited one."""
        if self.in_flight is None or self.in_flight[0] != source or self.in_flight[1] != request:
            return False
        self.in_flight = None
        return True

    def answered(self, now_ms: int) -> None:
        """Lets the next fetch leave at once, after a good answer."""
        self._failures = 0
        self.retry_at_ms = now_ms

    def back_off(self, now_ms: int) -> None:
        """Delays the next fetch after a failed one, longer after each failure."""
        self.retry_at_ms = now_ms + (self._backoff_ms << min(self._failures, MAX_BACKOFF_DOUBLINGS))
        self._failures += 1

    def wait_until(self, at_ms: int) -> None:
        """Lets no fetch leave before `at_ms`."""
        self.retry_at_ms = at_ms

    def abandon(self, now_ms: int) -> None:
        """Forgets the fetch in flight, and lets the next fetch leave at once."""
        self.in_flight = None
        self.retry_at_ms = now_ms

    def restart(self, now_ms: int) -> None:
        """Forgets fetch and failures, for a new role."""
        self.abandon(now_ms)
        self._failures = 0

    def piece_came(self, content_bytes: int, now_ms: int) -> None:
        """Notes an answer to the last fetch with `content_bytes`, and with more to come from the same source."""
        self.pieces.came(content_bytes, self._sent_ms, now_ms)
