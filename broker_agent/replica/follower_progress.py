"""The leader's knowledge of one follower: the durable end of its log, and when the follower was last caught up.

A follower is *caught up* at a moment if the follower then had all records of the leader. Fetches arrive later than records, so
under steady load no fetch ever reaches the leader's present end. The rule therefore compares a fetch with two ends of the log:

    * the end now: a fetch at this offset proves that the follower is caught up now;
    * the end at the previous fetch: a fetch at this offset proves that the follower was caught up at that time.

    1. Follower 2 fetches at 10 at time 100, and the leader's log ends at 15. The answer brings [10,15).
    2. Follower 2 fetches at 15 at time 600, and the log ends at 22 meanwhile. The follower was caught up at time 100.

A follower that fetches often but too little is not caught up, however often it fetches.
"""

from dataclasses import dataclass

from metadata_log.format.ids import Offset


@dataclass(slots=True)
class FollowerProgress:
    """One follower, as its leader sees it in one leader epoch."""

    end: Offset | None = None
    """The end of the follower's log on its disk; None before the first fetch in this leader epoch."""
    broker_epoch: int | None = None
    """The broker epoch of the last fetch (KIP-903); None before the first fetch."""
    last_caught_up_ms: int | None = None
    """The latest time at which the follower is known to have been caught up; None: never in this leader epoch."""
    last_fetch_ms: int | None = None
    leader_end_at_last_fetch: Offset = 0

    def fetched(self, offset: Offset, broker_epoch: int, leader_end: Offset, now_ms: int) -> None:
        """Note a fetch whose place in the log the leader has found valid. A process with an empty disk begins again at 0."""
        if offset >= leader_end:
            self._caught_up_at(now_ms)
        elif self.last_fetch_ms is not None and offset >= self.leader_end_at_last_fetch:
            self._caught_up_at(self.last_fetch_ms)
        self.end = offset
        self.broker_epoch = broker_epoch
        self.last_fetch_ms = now_ms
        self.leader_end_at_last_fetch = leader_end

    def leader_appends(self, end_before: Offset, now_ms: int) -> None:
        """Note that the leader's log grows now. A follower that had everything was caught up until now, also if it did not name
        this idle partition in its fetches for hours (KIP-227).
        """
        if self.end == end_before:
            self._caught_up_at(now_ms)

    def is_caught_up(self, leader_end: Offset, now_ms: int, lag_time_max_ms: int) -> bool:
        """Return True if the follower has all records, or had all of them at most `lag_time_max_ms` ago."""
        if self.end == leader_end:
            return True
        return self.last_caught_up_ms is not None and now_ms - self.last_caught_up_ms <= lag_time_max_ms

    def _caught_up_at(self, at_ms: int) -> None:
        self.last_caught_up_ms = at_ms if self.last_caught_up_ms is None else max(self.last_caught_up_ms, at_ms)
