"""Control records: they are for the quorum itself, not for the image."""

from typing import NamedTuple

from metadata_log.format.ids import Epoch, NodeId, Offset, Uuid
from metadata_log.format.records.registry import Endpoint, record


@record(64)
class LeaderChange(NamedTuple):
    """The first record of an epoch: its leader, and the voters that voted for the leader."""

    leader_id: NodeId
    voters: tuple[NodeId, ...]
    granting_voters: tuple[NodeId, ...]


@record(65)
class SnapshotHeader(NamedTuple):
    """The first record of a snapshot. The timestamp is that of the last batch below the snapshot's end."""

    format_version: int
    end_offset: Offset
    epoch: Epoch
    last_contained_log_timestamp_ms: int


@record(66)
class SnapshotFooter(NamedTuple):
    """The last record of a snapshot: the log's chain at its end, and the digest and number of the records inside."""

    chain: bytes
    digest: bytes
    record_count: int


class Voter(NamedTuple):
    """One member of the voter set (KIP-853)."""

    node_id: NodeId
    directory_id: Uuid
    endpoints: tuple[Endpoint, ...]
    kraft_version_min: int = 0
    kraft_version_max: int = 1


@record(67)
class KRaftVersion(NamedTuple):
    """The level of the quorum's own protocol. Level 1 means that the voter set is in the log."""

    level: int


@record(68)
class Voters(NamedTuple):
    """The voter set. Takes effect as soon as it is appended (KIP-853). Sorted by node id."""

    voters: tuple[Voter, ...]


@record(69)
class SnapshotMark(NamedTuple):
    """When this record is committed, every node writes its snapshot at the offset just after this record."""

    reason: str


@record(70)
class SkippedBatch(NamedTuple):
    """Replay drops a committed batch that some node cannot apply, because an operator said so.

    `offset`, `epoch` and `chain` name the batch. Replay drops all data batches in [`dropped_start`, `dropped_end`): the batch
    alone, or the whole metadata transaction to which the batch belongs.
    """

    offset: Offset
    epoch: Epoch
    chain: bytes
    dropped_start: Offset
    dropped_end: Offset
