"""The laws of leaders of partitions (P2, P4, P5, P6).

P5 has a dumb twin of the leader's rule: it keeps the ends of the leader's log with their times, and what each follower has asked
for. A member lags from the moment at which the leader's log first had more than the member.

Example: the lag time is 1,000 ms, and a leader appends record 7 at 5,000.
    1. Follower 103 last asked for offset 7. It lags since 5,000.
    2. At 6,500 the leader must have proposed an ISR without 103, or wait for the outcome of an earlier proposal.
"""

from collections import deque
from typing import TYPE_CHECKING

from broker_agent.replica.leader import PartitionLeader
from metadata_log.format.ids import Epoch, NodeId, Offset
from tests.sim.laws.broken import LawBroken, hold
from tests.sim.laws.partitions.committed import Place

if TYPE_CHECKING:
    from tests.sim.data.plane import DataPlane

LAG_FACTOR = 1.5
SLACK_MS = 60
"""A tick that is due now comes in the same millisecond or a few later, after other work of the broker."""
ENDS_KEPT = 64


class LagWatch:
    """One leader's followers, by the dumb rule. All times are those of the leader's clock."""

    def __init__(self, leader: PartitionLeader, now_ms: int) -> None:
        self.leader = leader
        self.appended_end = leader.shape.end
        self._ends: deque[tuple[int, Offset]] = deque([(now_ms, leader.shape.end)], maxlen=ENDS_KEPT)
        self._members: dict[NodeId, int] = {}
        """Since when each is a member, and the leader is free to propose."""
        self._reached: dict[NodeId, Offset] = {}

    def appended(self, now_ms: int) -> None:
        """The leader's log has changed."""
        if self.leader.shape.end > self._ends[-1][1]:
            self._ends.append((now_ms, self.leader.shape.end))

    def proposed(self) -> None:
        """The leader has proposed an ISR: from its answer on it has its full time again."""
        self._members.clear()

    def looked(self, now_ms: int) -> None:
        """Now and then: notes what its followers have told the leader."""
        leader = self.leader
        for broker_id, follower in leader.followers.items():
            if follower.end is not None:
                self._reached[broker_id] = max(follower.end, self._reached.get(broker_id, 0))
        members = leader.isr.committed - {leader.me} if leader.isr.may_propose else frozenset()
        self._members = {each: self._members.get(each, now_ms) for each in members}

    def laggard(self, now_ms: int) -> tuple[NodeId, int] | None:
        """A member that lags for longer than any leader may bear, and for how long."""
        for broker_id, member_since_ms in self._members.items():
            since_ms = max(member_since_ms, self._lags_since(broker_id, now_ms))
            if now_ms - since_ms > LAG_FACTOR * self.leader.config.lag_time_max_ms + SLACK_MS:
                return broker_id, now_ms - since_ms
        return None

    def _lags_since(self, broker_id: NodeId, now_ms: int) -> int:
        reached = self._reached.get(broker_id, -1)
        return next((at_ms for at_ms, end in self._ends if end > reached), now_ms)


class LeadingLaws:
    """All leaders that ever were."""

    def __init__(self) -> None:
        self._appends: dict[tuple[Place, Epoch], tuple[NodeId, int]] = {}
        """The process that has appended in each leader epoch."""
        self._led: dict[tuple[Place, Epoch], NodeId] = {}
        """The leader of each leader epoch, by committed metadata."""
        self._told: dict[tuple[Place, Epoch], Offset] = {}
        """The largest high watermark that consumers were told in each leader epoch."""
        self._high_watermarks: dict[tuple[Place, Epoch], Offset] = {}

    def elected(self, place: Place, leader_epoch: Epoch, leader_id: NodeId) -> None:
        """The metadata has a leader."""
        self._led[place, leader_epoch] = leader_id

    def looked(self, plane: "DataPlane", place: Place, leader: PartitionLeader, watch: LagWatch, name: str) -> None:
        """After an event at a broker whose leader has changed: P2 and P4."""
        key, who = (place, leader.leader_epoch), f"{plane.name} leads {name} in epoch {leader.leader_epoch}"
        before = self._high_watermarks.get(key, 0)
        told = f"{who}: {leader.high_watermark} after {before}"
        hold(leader.high_watermark >= before, "P2 MonotonicHW", told)
        self._high_watermarks[key] = leader.high_watermark
        on_disk = leader.high_watermark <= leader.shape.flushed_end
        hold(on_disk, "P8 OnDisk", f"{who}: knows {leader.high_watermark}, and has {leader.shape.flushed_end}")
        if leader.shape.end > watch.appended_end:
            watch.appended_end = leader.shape.end
            process = plane.broker_id, plane.boot
            first = self._appends.setdefault(key, process)
            hold(first == process, "P4 OneAppends", f"{who}: appends, as {first} did in this epoch")
            elected = self._led.get(key)
            hold(elected == plane.broker_id, "P4 OneAppends", f"{who}: appends; the metadata has {elected}")

    def lags(self, plane: "DataPlane", watch: LagWatch, now_ms: int, name: str) -> None:
        """P5, at a broker that is awake and could reach a controller."""
        found = watch.laggard(now_ms)
        if found is not None:
            broker_id, lag_ms = found
            text = f"{plane.name}, the leader of {name}, keeps b{broker_id} in the ISR, which lags for {lag_ms} ms"
            raise LawBroken("P5 NoLaggard", f"{text}: {watch.leader}")

    def told_consumer(self, who: str, place: Place, leader_epoch: Epoch, high_watermark: Offset) -> None:
        """P2: an answer to a consumer leaves."""
        key = place, leader_epoch
        before = self._told.get(key, 0)
        text = f"{who}: a consumer is told {high_watermark} in epoch {leader_epoch}, after {before}"
        hold(high_watermark >= before, "P2 MonotonicHW", text)
        self._told[key] = high_watermark
