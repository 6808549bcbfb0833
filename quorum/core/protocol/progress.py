"""What a leader knows of each replica in its epoch, and what that says of the quorum.

All of it is forgotten when the epoch ends: an acknowledgement given to an earlier leadership proves nothing (R12).
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from metadata_log.format.ids import NodeId, Offset, ReplicaKey, Uuid
from quorum.core.protocol.messages import FetchRequest
from quorum.core.protocol.pace import WINDOW_MS, Pace
from quorum.core.protocol.processes import Processes

FOREVER_MS = 1 << 62
"""A time that never comes: when a quorum of one goes out of date."""

INSTALL_MS_MAX = 60_000
"""For so long a replica that stands at one position of a snapshot counts as getting further: it may be loading it."""

REPLIES_REMEMBERED = 8
"""A follower has one fetch in flight, so only the newest reply matters; a few more serve late duplicates."""


class ReplicaStatus(NamedTuple):
    """One line of DescribeQuorum. Times are the leader's `now_ms`; None: never in this epoch.

    A replica that the leader has not heard in its epoch may hold nothing, and counts so since the epoch began: a voter that is
    dead, or cut off, is behind, and not unknown.
    """

    node_id: NodeId
    directory_id: Uuid
    log_end_offset: Offset | None
    last_fetch_ms: int | None
    last_caught_up_ms: int | None
    is_voter: bool
    lag: int
    """Records between what it has acknowledged in this epoch, if anything, and the leader's end."""
    behind_since_ms: int
    """When it last held all that the leader held; if never in this epoch, when that began."""
    silent_at_ms: int
    """From then on it is silent: it has not fetched, in this epoch, for as long as a leader gives its quorum."""


@dataclass(slots=True)
class ReplicaProgress:
    """One replica, as its fetches in this epoch show it."""

    progress_ms: int
    """When it last got further, or showed that there is nothing further to get (check-quorum; KAFKA-15911)."""
    end_offset: Offset | None = None
    """Below this, its log is durable and is the leader's. Only grows: a late fetch proves less, but unproves nothing."""
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    begun_ms: int | None = None
    """When it was last sent BeginQuorumEpoch."""
    fetch_offset: Offset | None = None
    part: tuple[int, int] = (0, 0)
    """Which process of it fetches, and how much of the batch at `fetch_offset` that process has ever held."""
    told_end: Offset = 0
    """The leader's log end when it was last answered."""
    snapshot_position: tuple[Offset, int] | None = None
    snapshot_since_ms: int = 0
    """When it was first heard of at that position."""
    echoed_token: int = 0
    confirmed_ms: int | None = None
    """When the newest reply left that it has proven to have accepted: then, or later, it followed this epoch."""
    image_differs: bool = False
    """As the runtime has told (`runtime.digests`); each answer passes it on."""
    damaged: bool = False
    """Its log is, as it says itself."""
    applies_nothing: bool = False
    """Its replay has stopped: it says how far its image reaches, and has no digest of it."""
    pace: Pace = field(default_factory=Pace)
    processes: Processes = field(default_factory=Processes)
    sent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=REPLIES_REMEMBERED))
    """Tokens of the newest replies and when they left."""

    @property
    def is_unfit(self) -> bool:
        """Whether it should leave the lead to others: its log is damaged, or its image is the odd one, or stands still."""
        return self.damaged or self.image_differs or self.applies_nothing

    def falls_behind(self, now_ms: int) -> bool:
        """Whether it fetches and lacks more and more. One that has fallen silent does not: that is another matter."""
        return self.pace.falls_behind and self.last_fetch_ms is not None and now_ms - self.last_fetch_ms < WINDOW_MS

    @property
    def newest_sent(self) -> int:
        return self.sent[-1][0] if self.sent else 0

    def heard_fetch(self, request: FetchRequest, leader_end: Offset, now_ms: int) -> None:
        """Notes a fetch, before it is known whether it is valid."""
        offset, part = request.fetch_offset, (request.incarnation, request.part_position or 0)
        if offset != self.fetch_offset or part[0] != self.part[0]:
            self.part = (part[0], 0)
        if offset != self.fetch_offset or offset >= self.told_end or part[1] > self.part[1]:
            self.progress_ms = now_ms
        self.part = max(self.part, part)
        if offset >= leader_end:
            self.last_caught_up_ms = now_ms
            self.pace.kept()
        elif self.last_fetch_ms is not None and offset >= self.told_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms or 0, self.last_fetch_ms)
            self.pace.kept()
        else:
            self.pace.lags(leader_end - offset, now_ms)
        self.fetch_offset = offset
        self.last_fetch_ms = now_ms
        self.damaged = request.damaged
        self.applies_nothing = request.applied_offset > 0 and not request.digest

    def echoed(self, read_token: int) -> None:
        """It has accepted the reply that carried this token, if it is one that is remembered."""
        for token, sent_ms in self.sent:
            if token == read_token and token > self.echoed_token:
                self.echoed_token = token
                self.confirmed_ms = sent_ms

    def heard_snapshot_fetch(self, end: Offset, position: int, now_ms: int) -> None:
        if self.snapshot_position != (end, position):
            self.snapshot_since_ms = now_ms
        if now_ms - self.snapshot_since_ms < INSTALL_MS_MAX:
            self.progress_ms = now_ms
        self.snapshot_position = (end, position)
        self.last_fetch_ms = now_ms

    def acknowledged(self, offset: Offset) -> None:
        """A valid fetch: everything below `offset` is durable there."""
        self.end_offset = offset if self.end_offset is None else max(self.end_offset, offset)

    def answered(self, token: int, leader_end: Offset, now_ms: int) -> None:
        self.told_end = leader_end
        self.sent.append((token, now_ms))

    def silent_since_ms(self, elected_ms: int) -> int:
        """Since when it has neither fetched nor been told who leads."""
        return max(elected_ms, self.last_fetch_ms or elected_ms, self.begun_ms or elected_ms)


def newest_of_majority(times_ms: Iterable[int | None], needed: int) -> int | None:
    """The newest time at which, or after which, `needed` of the voters did something; None if too few ever did."""
    if needed <= 0:
        return FOREVER_MS
    known = [time_ms for time_ms in times_ms if time_ms is not None]
    known.sort(reverse=True)
    return known[needed - 1] if len(known) >= needed else None


def successors(voters: Iterable[ReplicaKey], replicas: dict[ReplicaKey, ReplicaProgress]) -> tuple[ReplicaKey, ...]:
    """`voters`, the furthest first: whoever is ahead wins with the fewest refusals. Last come those that would not run."""
    ranked: list[tuple[bool, Offset, ReplicaKey]] = []
    for key in voters:
        progress = replicas.get(key)
        end = -1 if progress is None or progress.end_offset is None else progress.end_offset
        ranked.append((progress is not None and progress.is_unfit, -end, key))
    ranked.sort()
    return tuple([key for _, _, key in ranked])
