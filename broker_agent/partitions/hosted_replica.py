"""One replica on this broker: its log, its role, and what is under way on its log.

The log is opened once, and stays with the replica through all roles. Example:

    1. `Follow(leader=101)` arrives. The log is opened (`job`); meanwhile `Lead(epoch 4)` arrives, and replaces the assignment.
    2. The log is open: the replica takes the role of the newest assignment, so it leads epoch 4.
    3. `Delete` arrives: the leader resigns, the log is closed, and its deletion is the next `job`.
"""

from broker_agent.partitions.effects import DeleteLog, Flush, OpenLog, TrimLog
from broker_agent.publishing.assignments import Assignment, Delete
from broker_agent.replica.follower import FollowerEffect, PartitionFollower
from broker_agent.replica.leader import PartitionLeader
from broker_agent.replica.log_directory import ReplicaPlace
from broker_agent.replica.partition_log import PartitionLog
from metadata_log.format.ids import Offset, Uuid


class HostedReplica:
    """One replica. The rooms of `ReplicaManager` share it; each changes only the part that it owns."""

    __slots__ = (
        "assignment",
        "base_offsets",
        "directory_id",
        "failure",
        "flushing",
        "follower",
        "is_lost",
        "job",
        "leader",
        "log",
        "place",
        "work",
    )

    def __init__(self, place: ReplicaPlace, directory_id: Uuid, assignment: Assignment) -> None:
        self.place = place
        self.directory_id = directory_id
        self.assignment: Assignment | None = assignment
        """The newest one; None: this broker has no such replica any more, and the log stays on the disk."""
        self.log: PartitionLog | None = None
        """None until the log is open, and after a failure."""
        self.job: OpenLog | DeleteLog | TrimLog | None = None
        self.flushing: Flush | None = None
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        self.work: list[FollowerEffect] = []
        """The decisions of the follower that are still to be carried out, in this order."""
        self.failure: str | None = None
        """The reason for which this replica serves nothing."""
        self.is_lost = False
        """True if only another process can serve this replica again: its log has failed."""
        self.base_offsets: dict[int, Offset] = {}
        """Token -> base offset of the writes that wait."""

    @property
    def is_open(self) -> bool:
        """True if the log may be used."""
        return self.log is not None and self.failure is None

    @property
    def is_to_be_deleted(self) -> bool:
        return isinstance(self.assignment, Delete)

    def __str__(self) -> str:
        role = self.leader or self.follower or self.failure or ("open" if self.log else "no log")
        return f"{self.place.name}: {role}"
