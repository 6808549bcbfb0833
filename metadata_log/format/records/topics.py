"""Records of topics and partitions."""

from typing import NamedTuple

from metadata_log.format.ids import NodeId, Uuid
from metadata_log.format.records.registry import record


@record(2)
class Topic(NamedTuple):
    """A topic exists. Canonical. Names and live ids are one to one, and an id is never used again."""

    name: str
    topic_id: Uuid


@record(9)
class RemoveTopic(NamedTuple):
    """The topic, its partitions and its configs were deleted. The name is for the fold by entity, which needs it for
    the configs.
    """

    name: str
    topic_id: Uuid


RECOVERED = 0
RECOVERING = 1
"""Leader recovery states. After an unclean election a leader is RECOVERING until its log is consistent."""


@record(3)
class Partition(NamedTuple):
    """A whole partition. Canonical. `leader` is NO_LEADER or a member of `isr`; `isr` is a subset of `replicas`."""

    topic_id: Uuid
    partition: int
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    removing_replicas: tuple[NodeId, ...]
    adding_replicas: tuple[NodeId, ...]
    leader: NodeId
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[Uuid, ...] = ()
    elr: tuple[NodeId, ...] = ()
    last_known_elr: tuple[NodeId, ...] = ()


@record(5)
class PartitionChange(NamedTuple):
    """Some fields of a partition have changed; None leaves a field unchanged.

    Replay adds 1 to the partition epoch, and 1 to the leader epoch if `leader` is not None, even if the leader is the
    same.
    """

    topic_id: Uuid
    partition: int
    isr: tuple[NodeId, ...] | None = None
    leader: NodeId | None = None
    replicas: tuple[NodeId, ...] | None = None
    removing_replicas: tuple[NodeId, ...] | None = None
    adding_replicas: tuple[NodeId, ...] | None = None
    leader_recovery_state: int | None = None
    directories: tuple[Uuid, ...] | None = None
    elr: tuple[NodeId, ...] | None = None
    last_known_elr: tuple[NodeId, ...] | None = None


@record(58)
class EpochFloor(NamedTuple):
    """The epochs of all partitions were raised for this generation of the cluster (`quorum recover`). Canonical; the image
    has at most one. A partition that is created later begins at `floor`.
    """

    generation: int
    floor: int


@record(59)
class EpochsRaised(NamedTuple):
    """The leader epochs and the partition epochs of some partitions of one topic grew by `by`, and nothing else changed.

    The partitions are `first` to `first + partition_count - 1`. All records of a raise are in one batch or transaction with
    their `EpochFloor`.
    """

    topic_id: Uuid
    first: int
    partition_count: int
    by: int


@record(28)
class ClearElr(NamedTuple):
    """Eligible leader replicas were cleared: of one topic, or of all topics if name and id are None (KIP-966).

    No controller writes this record: it writes a `PartitionChange` for each such partition.
    """

    topic_name: str | None
    topic_id: Uuid | None


class ListColumn(NamedTuple):
    """A list of numbers for each partition, in two columns (`metadata_log.format.columns`)."""

    sizes: bytes
    numbers: bytes


@record(62)
class PartitionColumns(NamedTuple):
    """Partitions of one topic that follow each other, column by column (`metadata_log.format.partition_runs`). Only in
    snapshots, from level 2 on. The canonical records are those of the partitions.
    """

    topic_id: Uuid
    first: int
    partition_count: int
    hashes: bytes
    """The sum of the hashes of the partitions' records, modulo 2^256; 32 bytes."""
    lists: tuple[ListColumn, ...]
    """Replicas, ISR (without bytes: as the replicas), removing, adding, ELR, last known ELR, directories (as places in
    `directories`)."""
    numbers: tuple[bytes, ...]
    """Leader, recovery state, leader epoch, partition epoch."""
    directories: tuple[Uuid, ...] = ()
