"""The observer's view of one replica: its log, role and high watermark, and whether one of them has changed."""

from typing import Any

from broker_agent.partitions.hosted_replica import HostedReplica
from broker_agent.partitions.replica_manager import ReplicaManager
from broker_agent.replica.follower import PartitionFollower
from broker_agent.replica.leader import PartitionLeader
from broker_agent.replica.partition_log import PartitionLog
from metadata_log.format.ids import Epoch, Offset
from tests.sim.laws.partitions.committed import Place
from tests.sim.laws.partitions.leading import LagWatch


def hosted_of(manager: ReplicaManager) -> "dict[Place, HostedReplica]":
    """All replicas of a manager, also those whose log is not open yet."""
    return manager._hosting.replicas


class ReplicaView:
    """One replica that has a role."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        self.log: PartitionLog
        self.watch: LagWatch | None = None
        self.seen_high_watermark: Offset = -1
        """The high watermark at the last look."""
        self._seen: tuple[Any, ...] = (None, None, None, None)
        """Role, shape, high watermark and leader epoch at the last look."""

    @property
    def role(self) -> PartitionLeader | PartitionFollower:
        role = self.leader or self.follower
        assert role is not None
        return role

    @property
    def high_watermark(self) -> Offset:
        return self.role.high_watermark

    @property
    def leader_epoch(self) -> Epoch:
        return self.role.leader_epoch

    def is_as_seen(self, hosted: HostedReplica) -> bool:
        """True if nothing has changed since the last look. This is called for every replica after every event."""
        role, seen_role, shape, high_watermark, leader_epoch = hosted.leader or hosted.follower, *self._seen
        return (
            role is seen_role
            and role is not None
            and role.shape is shape
            and role.high_watermark == high_watermark
            and role.leader_epoch == leader_epoch
        )

    def begins(self, hosted: HostedReplica, now_ms: int) -> bool:
        """Takes the present role and log; returns True if the replica has just begun to lead."""
        assert hosted.log is not None
        is_new = hosted.leader is not None and hosted.leader is not self.leader
        if hosted.leader is not self.leader or hosted.follower is not self.follower:
            self.seen_high_watermark = -1
        self.leader, self.follower, self.log = hosted.leader, hosted.follower, hosted.log
        if is_new:
            assert hosted.leader is not None
            self.watch = LagWatch(hosted.leader, now_ms)
        elif self.leader is None:
            self.watch = None
        return is_new

    def seen(self) -> None:
        """The observer has looked at it."""
        self.seen_high_watermark = self.high_watermark
        self._seen = (self.role, self.role.shape, self.role.high_watermark, self.leader_epoch)
