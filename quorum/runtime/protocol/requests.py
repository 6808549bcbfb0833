"""The requests to a controller and their answers, as plain values: the runtime's face towards gRPC.

`wire` translates these values from and to protobuf. The simulator's clients use them directly.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.fetch_size import BatchPart
from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey, Uuid
from metadata_log.format.records import Endpoint, Voters
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.controller import BrokerStanding, Controller
from quorum.core.protocol.problem import Problem


@dataclass(frozen=True, slots=True)
class LeaderHint:
    """The leader that the node knows, and its address."""

    leader_id: NodeId | None
    epoch: Epoch
    endpoint: Endpoint | None


class Refused(Exception):
    """The refusal of a whole request.

    REQUEST_TIMED_OUT means that the request may have taken effect. Every other code means that nothing was done;
    NOT_CONTROLLER comes with a hint at the leader.
    """

    def __init__(self, code: ErrorCode, message: str, hint: LeaderHint | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class MetadataFetch:
    """A broker's fetch, which is also its heartbeat: the position of the broker's store, and its wishes."""

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
    """How many bytes of the batch at `offset` the broker has (`metadata_log.format.fetch_size`); None: the broker takes whole
    batches only."""


class SessionName(NamedTuple):
    """A session of a client."""

    session_id: Uuid
    epoch: Offset


class KeptSession(NamedTuple):
    """The state of one session after a contact."""

    is_open: bool
    """False: the session has ended, or never was."""
    lease_ms: int
    """How long the client may trust that the session is open, counted from when it sent the message. 0: not known."""


@dataclass(frozen=True, slots=True)
class SessionsKept:
    """The answer to a message that keeps sessions alive, in the order of the message."""

    sessions: tuple[KeptSession, ...]


class FetchResult(Enum):
    """The kinds of answer to a metadata fetch."""

    BATCHES = "batches"
    USE_SNAPSHOT = "use snapshot"
    DIVERGED = "diverged"
    NOT_READY = "not ready"


@dataclass(frozen=True, slots=True)
class MetadataFetched:
    """The answer to a `MetadataFetch`: committed batches up to `end_offset`, or a part of the next committed batch.

    With the last part of a batch the broker has all of that batch.
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
    skips: tuple[bytes, ...] = ()
    """Committed `SkippedBatch` records, packed, of batches at the fetch's offset or behind it."""


@dataclass(frozen=True, slots=True)
class LocalView:
    """The source of a local answer, which may be stale."""

    node_id: NodeId
    leader_heard_age_ms: int | None
    """Milliseconds since a leader last answered the node (on a leader: since a majority last answered); None: never since the
    node started."""


@dataclass(frozen=True, slots=True)
class ReadView:
    """The state that a read sees: the image as of `as_of_offset`, and on the active controller its soft state."""

    as_of_offset: Offset
    image: MetadataImage
    controller: Controller | None
    now_ms: int
    """The time of the clock that measures waits and leases; not the time of day."""
    local: LocalView | None = None
    """Set if no majority has confirmed that this image is the newest."""


@dataclass(frozen=True, slots=True)
class SnapshotMarked:
    """The answer to a request for a snapshot: the mark is committed, and every node writes its snapshot at `offset`."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class SkipRequest:
    """An operator's request to skip the committed batch at `offset`, which replay cannot apply."""

    offset: Offset
    epoch: Epoch
    chain: bytes
    although_applied: bool = False
    """Skip the batch even if the leader has applied it, because other nodes cannot apply it."""
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class BatchSkipped:
    """The answer to a `SkipRequest`: replay drops the data batches in [`dropped_start`, `dropped_end`)."""

    offset: Offset
    """One past the record that says so; the end of the log for a request that only validates."""
    dropped_start: Offset
    dropped_end: Offset
    reason: str
    """Why the leader cannot apply the batch; empty if the leader has applied it."""
    batches: tuple[Batch, ...]
    """The first dropped batches: at least one, and 1 MiB together at most."""


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One voter or observer, for `DescribeQuorum`. A value is None if the node does not know the value."""

    node_id: NodeId
    directory_id: Uuid
    endpoint: Endpoint | None
    is_voter: bool
    status: str
    log_end_offset: Offset | None
    last_fetch_age_ms: int | None
    last_caught_up_age_ms: int | None
    lag: int | None = None
    """How many records the replica lacks, on the leader; None elsewhere. A replica that the leader has not heard lacks all."""
    behind_for_ms: int | None = None
    """Milliseconds since the replica last had all records of the leader, or since the epoch began; None on other nodes."""


@dataclass(frozen=True, slots=True)
class DiskStatus:
    """The condition of the node's disk since the process started."""

    damage_found: int = 0
    """Damaged places found in log and snapshots, and a lost end of the log; those found at the start included."""
    last_damage: str = ""
    damaged_records: int = 0
    """Records of the log that cannot be read now."""
    damage_mended: int = 0
    scrubbed_bytes: int = 0
    is_full: bool = False
    """True while the disk has no room for the ballast: the node does not lead, and does not fetch."""
    log_bytes: int = 0
    """Size of all segments of the log."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node as it is now, leader or not. A node makes its status without asking another node."""

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
    """The voter set at the formatting of the cluster."""
    problems: tuple[Problem, ...] = ()
    """The problems of the node, at most a single entry for each code."""
    voted_for: ReplicaKey | None = None
    """The voter that has the node's vote in the present epoch."""
    disk: DiskStatus = DiskStatus()
    no_leader_reason: str = ""
    """The reason why the node follows no leader now; empty if the node follows a leader."""
    no_leader_for_ms: int | None = None
    """Milliseconds since the node last heard a leader, or since the node started; None while the node follows a leader."""
    features: tuple[tuple[str, int], ...] = ()
    """The levels of features in the image that the node has applied."""
    failed_decisions: int = 0
    """How many decisions of this process ended by an internal error; each request was refused, and each error logged."""
