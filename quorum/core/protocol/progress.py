"""The leader's knowledge of each replica in the current epoch, and conclusions about the quorum.

The knowledge ends with the epoch: an acknowledgement given to an earlier leadership proves nothing (R12).

Example, on leader 1: follower 2 fetches at 9, so `end_offset` is 9. The leader's log also ends at 9, so follower 2 is
caught up now. Follower 2 repeats token 7, so it has accepted reply 7 and followed this epoch when reply 7 left.
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
"""A time which never comes: a quorum of one never expires."""

INSTALL_MS_MAX = 60_000
"""How long a replica at one position of a snapshot counts as making progress: the replica may be loading the
snapshot."""

REPLIES_REMEMBERED = 8
"""How many replies are remembered per replica. A follower has one fetch in flight; a few more serve late duplicates."""


class ReplicaStatus(NamedTuple):
    """One row of DescribeQuorum. Times are the leader's `now_ms`; None: never in this epoch.

    A replica not heard in this epoch may hold no records, and counts as behind since the epoch began. So a dead or
    disconnected voter shows as behind, not as unknown.
    """

    node_id: NodeId
    directory_id: Uuid
    log_end_offset: Offset | None
    last_fetch_ms: int | None
    last_caught_up_ms: int | None
    is_voter: bool
    lag: int
    """How many records the replica's acknowledged end in this epoch (0 without one) is behind the leader's end."""
    behind_since_ms: int
    """When the replica last held all records of the leader; if never in this epoch, the epoch's beginning."""
    silent_at_ms: int
    """From when on the replica is silent: the check-quorum time after its last fetch in this epoch."""


@dataclass(slots=True)
class ReplicaProgress:
    """One replica, as known from its fetches in this epoch."""

    progress_ms: int
    """When the replica last made progress, or proved to have nothing left to fetch (check-quorum; KAFKA-15911)."""
    end_offset: Offset | None = None
    """The replica's log below is durable and equal to the leader's. Only grows: a late fetch proves less and disproves
    nothing."""
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    begun_ms: int | None = None
    """When the leader last sent BeginQuorumEpoch."""
    fetch_offset: Offset | None = None
    part: tuple[int, int] = (0, 0)
    """The fetching process, and how many bytes of the batch at `fetch_offset` this process has held at most."""
    told_end: Offset = 0
    """The end of the leader's log at the leader's last answer."""
    snapshot_position: tuple[Offset, int] | None = None
    snapshot_since_ms: int = 0
    """Since when the replica asks for the same snapshot position."""
    echoed_token: int = 0
    confirmed_ms: int | None = None
    """When the newest provably accepted reply left. At this time or later, the replica followed this epoch."""
    image_differs: bool = False
    """The runtime's verdict on the replica's image (`runtime.digests`); each answer carries the verdict."""
    damaged: bool = False
    """The replica reports damage in its log."""
    applies_nothing: bool = False
    """The replica's replay has stopped: the replica reports the end of its image without a digest."""
    pace: Pace = field(default_factory=Pace)
    processes: Processes = field(default_factory=Processes)
    sent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=REPLIES_REMEMBERED))
    """The tokens of the newest replies, and when each reply left."""

    @property
    def is_unfit(self) -> bool:
        """True if the replica should not lead: a damaged log, a differing image, or a stopped replay."""
        return self.damaged or self.image_differs or self.applies_nothing

    def falls_behind(self, now_ms: int) -> bool:
        """True if the replica fetches and lacks more and more records. A silent replica is another problem."""
        return self.pace.falls_behind and self.last_fetch_ms is not None and now_ms - self.last_fetch_ms < WINDOW_MS

    @property
    def newest_sent(self) -> int:
        return self.sent[-1][0] if self.sent else 0

    def heard_fetch(self, request: FetchRequest, leader_end: Offset, now_ms: int) -> None:
        """Notes a fetch, before judging its log."""
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

    def heard_mismatch(self, now_ms: int) -> None:
        """Notes a fetch of another history: the replica is alive, and makes no progress."""
        self.last_fetch_ms = now_ms

    def sent_begin(self, now_ms: int) -> None:
        """Notes BeginQuorumEpoch sent to the replica."""
        self.begun_ms = now_ms

    def take_verdict(self, *, image_differs: bool) -> None:
        """Adopts the runtime's verdict on the replica's image."""
        self.image_differs = image_differs

    def echoed(self, read_token: int) -> None:
        """Notes that the replica has accepted the reply with `read_token`, if the leader remembers the reply."""
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
        """Notes a valid fetch: all records below `offset` are durable at the replica."""
        self.end_offset = offset if self.end_offset is None else max(self.end_offset, offset)

    def answered(self, token: int, leader_end: Offset, now_ms: int) -> None:
        self.told_end = leader_end
        self.sent.append((token, now_ms))

    def silent_since_ms(self, elected_ms: int) -> int:
        """Since when the replica has neither fetched nor been sent BeginQuorumEpoch."""
        return max(elected_ms, self.last_fetch_ms or elected_ms, self.begun_ms or elected_ms)


def newest_of_majority(times_ms: Iterable[int | None], needed: int) -> int | None:
    """The newest time at or after which `needed` of the voters acted; None: too few ever did."""
    if needed <= 0:
        return FOREVER_MS
    known = [time_ms for time_ms in times_ms if time_ms is not None]
    known.sort(reverse=True)
    return known[needed - 1] if len(known) >= needed else None


def successors(voters: Iterable[ReplicaKey], replicas: dict[ReplicaKey, ReplicaProgress]) -> tuple[ReplicaKey, ...]:
    """The `voters`, longest log first: fewer refusals await such a candidate. Unfit voters come last."""
    ranked: list[tuple[bool, Offset, ReplicaKey]] = []
    for key in voters:
        progress = replicas.get(key)
        end = -1 if progress is None or progress.end_offset is None else progress.end_offset
        ranked.append((progress is not None and progress.is_unfit, -end, key))
    ranked.sort()
    return tuple([key for _, _, key in ranked])
