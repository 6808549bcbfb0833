"""What the outside may ask of a controller, and what it gets: the runtime's face towards gRPC, as plain values.

`wire` translates these from and to protobuf and does nothing else; the simulator's clients use them as they are.
"""

from dataclasses import dataclass
from enum import Enum

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey, Uuid
from metadata_log.format.pieces import BatchPart
from metadata_log.format.records import Endpoint, Voters
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.controller import BrokerStanding, Controller
from quorum.core.protocol.problem import Problem


@dataclass(frozen=True, slots=True)
class LeaderHint:
    """Who leads, as far as this node knows, and where to reach it."""

    leader_id: NodeId | None
    epoch: Epoch
    endpoint: Endpoint | None


class Refused(Exception):
    """The request as a whole has no result.

    `code` tells the three cases apart: NOT_CONTROLLER and the specific codes mean that nothing was done;
    REQUEST_TIMED_OUT means that it may have happened.
    """

    def __init__(self, code: ErrorCode, message: str, hint: LeaderHint | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class MetadataFetch:
    """A broker's fetch, which is also its heartbeat: where it stands and what it wants."""

    broker_id: NodeId
    broker_epoch: int
    incarnation_id: Uuid
    offset: Offset
    epoch: Epoch
    chain: bytes
    wants_fence: bool
    wants_shut_down: bool
    offline_log_dirs: tuple[Uuid, ...]
    max_wait_ms: int
    max_bytes: int
    part_position: int | None = None
    """So many bytes of the batch at `offset` the broker holds (`metadata_log.format.pieces`); None: it takes whole
    batches only."""


class FetchResult(Enum):
    """What a metadata fetch has brought."""

    BATCHES = "batches"
    USE_SNAPSHOT = "use snapshot"
    DIVERGED = "diverged"
    NOT_READY = "not ready"


@dataclass(frozen=True, slots=True)
class MetadataFetched:
    """The answer to a `MetadataFetch`. `batches` are committed, and all below `end_offset` has been delivered.

    Or `part` is, of the one batch that comes next; with its last part all of it has been delivered.
    """

    result: FetchResult
    controller_epoch: Epoch
    high_watermark: Offset
    batches: tuple[Batch, ...] = ()
    previous_chain: bytes = b""
    end_offset: Offset = 0
    snapshot: OffsetAndEpoch | None = None
    diverging: OffsetAndEpoch | None = None
    digest: bytes = b""
    digest_offset: Offset = 0
    standing: BrokerStanding | None = None
    lease_ms: int = 0
    part: BatchPart | None = None


@dataclass(frozen=True, slots=True)
class LocalView:
    """That an answer is one node's own, and how old it may be."""

    node_id: NodeId
    leader_heard_age_ms: int | None
    """Since a leader last answered this node, or as leader a majority; None: not since it started."""


@dataclass(frozen=True, slots=True)
class ReadView:
    """What a read sees: the image as of `as_of_offset`, and the controller's soft state where this node is active."""

    as_of_offset: Offset
    image: MetadataImage
    controller: Controller | None
    now_ms: int
    local: LocalView | None = None
    """Set where nobody has confirmed that this is the newest."""


@dataclass(frozen=True, slots=True)
class SnapshotMarked:
    """A snapshot mark is committed; every node writes its snapshot at `offset`."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One voter or observer, as `DescribeQuorum` tells of it; None where this node does not know."""

    node_id: NodeId
    directory_id: Uuid
    endpoint: Endpoint | None
    is_voter: bool
    status: str
    log_end_offset: Offset | None
    last_fetch_age_ms: int | None
    last_caught_up_age_ms: int | None
    lag: int | None = None
    """Records that it lacks, as the leader knows; None elsewhere. A replica that the leader has not heard lacks all of them."""
    behind_for_ms: int | None = None
    """Since it last held all that the leader held, or, if never in this epoch, since that began; None: not the leader's word."""


@dataclass(frozen=True, slots=True)
class DiskStatus:
    """What this node's disk has done to it since the process started."""

    damage_found: int = 0
    """Damaged places, in log and snapshots; those of the opening too."""
    last_damage: str = ""
    damaged_records: int = 0
    """Records of the log that are missing now."""
    damage_mended: int = 0
    scrubbed_bytes: int = 0
    is_full: bool = False
    """There is no room for the ballast: this node does not lead, and does not fetch."""
    log_bytes: int = 0
    """Size of all segments of the log."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """This node as it is now, leader or not. Never waits for anybody."""

    cluster_id: str
    node_id: NodeId
    directory_id: Uuid
    role: str
    epoch: Epoch
    leader: LeaderHint
    is_active: bool
    high_watermark: Offset | None
    log_start_offset: Offset
    log_end_offset: Offset
    flushed_end_offset: Offset
    applied_offset: Offset
    chain: bytes
    digest: bytes
    snapshot: OffsetAndEpoch | None
    replicas: tuple[ReplicaView, ...]
    generation: int
    bootstrap: Voters
    """The voter set that the cluster was formatted with."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with this node, or between it and another, one entry for each code; empty while the node knows of none."""
    voted_for: ReplicaKey | None = None
    """The voter that this node has voted for in its epoch."""
    disk: DiskStatus = DiskStatus()
    no_leader_reason: str = ""
    """Why this node follows nobody now, in words; empty where it does (`leader`)."""
    no_leader_for_ms: int | None = None
    """Where it follows nobody: since it last heard a leader, or, if it never has, since it started."""
    failed_decisions: int = 0
    """Decisions that this process, as leader, could not make for a mistake in the program; each was refused, and logged."""
