"""The messages between controllers: KRaft's RPCs, as values.

Every request names its sender, and a request for one voter only also names its receiver, both with directory ids. Every
reply carries the replier's epoch and known leader, so that nodes learn each other's epochs. The wire checks cluster id
and generation before a message reaches the core.

Example, a fetch in epoch 6:

    1. Voter 2 sends FetchRequest(epoch 6, fetch_offset 9, last_fetched_epoch 6, chain).
    2. Leader 1 answers FetchResponse(error NONE, epoch 6, leader 1, batches [9,11), high_watermark 9).

Sources: KIP-595 (Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch), KIP-630 (FetchSnapshot), KIP-996 (pre-vote), KIP-853
(changes of the voter set).

FetchRequest and FetchResponse are tuples for speed: building a frozen dataclass of this many fields takes four times as
long. The other messages are dataclasses, because tuples of different types may compare equal.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.fetch_size import BatchPart
from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from metadata_log.format.records import Endpoint, FeatureRange, Voter


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """May `candidate` lead `epoch`? With `pre_vote`, the question is hypothetical and changes no state anywhere."""

    candidate: ReplicaKey
    receiver: ReplicaKey
    epoch: Epoch
    last_epoch: Epoch
    end_offset: Offset
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class VoteResponse:
    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId | None
    vote_granted: bool


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """`leader` leads `epoch` and invites `receiver` to fetch."""

    leader: ReplicaKey
    receiver: ReplicaKey
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochResponse:
    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId | None


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """`leader` steps down from `epoch`. The successors are ranked by the length of their logs."""

    leader: ReplicaKey
    epoch: Epoch
    preferred_successors: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class EndQuorumEpochResponse:
    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId | None


class FetchRequest(NamedTuple):
    """Asks for the records from `fetch_offset` on. A voter thereby states: all records below `fetch_offset` are durable
    here.

    `number` counts this replica's requests, to tell a late or repeated answer from the awaited one. `chain` is the hash
    of the follower's history at `fetch_offset`. `read_token` repeats the token of the last reply accepted from this
    leader in this epoch; 0: none. `incarnation` is a new random number for each process. `digest` is the digest of the
    replica's image at `applied_offset`, empty without one; the core only carries both. `damaged`: the replica's log is
    damaged, or its disk is full (see `disk_trust`), so the replica would not campaign. `part_position`: how many bytes of
    the batch at `fetch_offset` the replica holds already (`metadata_log.format.fetch_size`); None: the replica accepts
    whole batches only, like an earlier release.
    """

    replica: ReplicaKey
    epoch: Epoch
    number: int
    fetch_offset: Offset
    last_fetched_epoch: Epoch
    chain: bytes
    high_watermark: Offset
    max_wait_ms: int
    max_bytes: int
    read_token: int = 0
    incarnation: int = 0
    applied_offset: Offset = 0
    digest: bytes = b""
    damaged: bool = False
    part_position: int | None = None


class FetchResponse(NamedTuple):
    """Carries at most one of batches, part, diverging and snapshot.

    `high_watermark` is None until the leader has committed a record in its epoch. `successors` ranks the voters by the
    length of their logs, for the case of the leader's failure. `read_token` counts the leader's replies in this epoch;
    a follower repeating a token proves that it accepted the reply (see `quorum.core.protocol.reads`). `image_differs`:
    the asking replica's image differs from a majority's. `log_end` is the end of the leader's own log.
    """

    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId | None
    number: int
    high_watermark: Offset | None = None
    log_start: Offset = 0
    batches: tuple[Batch, ...] = ()
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    successors: tuple[NodeId, ...] = ()
    read_token: int = 0
    image_differs: bool = False
    log_end: Offset = 0
    part: BatchPart | None = None


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    replica: ReplicaKey
    epoch: Epoch
    number: int
    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchSnapshotResponse:
    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId | None
    number: int
    size: int = 0
    position: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class ChainRequest:
    """Asks for the chain at `offset`, if the record below is of `epoch`. Nodes answer in any role.

    A node asks when two logs differ at equal (offset, epoch), which log matching rules out: a disk or a program has
    returned wrong data.
    """

    replica: ReplicaKey
    offset: Offset
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class ChainResponse:
    """`chain` is None if this node's durable log has no batch boundary at (offset, epoch)."""

    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId | None
    chain: bytes | None
    end_offset: Offset
    last_epoch: Epoch


@dataclass(frozen=True, slots=True)
class AddVoterRequest:
    """Adds `voter`. Answered after the commit; without `ack_when_committed`, once the set is in the leader's log."""

    voter: Voter
    ack_when_committed: bool
    timeout_ms: int
    since: Offset | None = None
    """The end of the log that the client had seen before it first sent the request: if the voter was added at or above this
    offset, the request was done. None: the client does not repeat the request."""


@dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    """Removes `voter`, exactly this replica. Answered after the commit."""

    voter: ReplicaKey
    timeout_ms: int
    since: Offset | None = None
    """As in AddVoterRequest."""


@dataclass(frozen=True, slots=True)
class UpdateVoterRequest:
    """Replaces the endpoints of `voter`, as the voter itself asks in `epoch`. Answered after the commit."""

    voter: Voter
    epoch: Epoch
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class TransferLeadershipRequest:
    """Makes `target` the leader; None: the voter with the longest log. Answered when the leader has stepped down."""

    target: NodeId | None
    timeout_ms: int
    since: Offset | None = None
    """As in AddVoterRequest. Without a `target`, a leadership that began at or above this offset is the wanted one."""


@dataclass(frozen=True, slots=True)
class QuorumChangeResponse:
    """The outcome of a change of the voters or of the leader; `message` is a sentence for the operator.

    REQUEST_TIMED_OUT with an `offset` means "may have happened": the record of the change is, or was, at `offset`.
    Without an `offset` nothing was written.
    """

    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId | None
    message: str
    offset: Offset | None = None


@dataclass(frozen=True, slots=True)
class ReadLogRequest:
    """Asks for the durable part of [offset, end_offset). The range is damaged in the log of `replica`, whose chain
    proves each batch.

    Sent to any voter, leader or not. Repair concerns the disk, not Raft: `runtime` asks and answers, and the core never
    sees the request.
    """

    replica: ReplicaKey
    offset: Offset
    end_offset: Offset
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReadLogResponse:
    """The first batches of the requested range, at least one without an error.

    OFFSET_OUT_OF_RANGE: this node does not hold the range, or no longer. STORAGE_ERROR: the range is damaged here, too.
    `snapshot` is this node's newest snapshot, in any case.
    """

    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId | None
    batches: tuple[Batch, ...] = ()
    log_start: Offset = 0
    snapshot: OffsetAndEpoch | None = None


@dataclass(frozen=True, slots=True)
class ReadSnapshotRequest:
    """Asks for the bytes of `snapshot` from `position` on. The log of `replica` is damaged below, and no log reaches
    back far enough.

    Sent to any voter, leader or not, and handled by the runtime, like `ReadLogRequest`: a snapshot holds committed
    records only.
    """

    replica: ReplicaKey
    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReadSnapshotResponse:
    """`data` from `position` on, of a file of `size` bytes.

    SNAPSHOT_NOT_FOUND: this node does not have the file, or no longer.
    """

    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId | None
    size: int = 0
    position: int = 0
    data: bytes = b""


QuorumChangeRequest: TypeAlias = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest | TransferLeadershipRequest


@dataclass(frozen=True, slots=True)
class RegisterControllerRequest:
    """Tells the active controller where `controller` is reached, and which levels of features it supports."""

    controller: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


@dataclass(frozen=True, slots=True)
class RegisterControllerResponse:
    """NONE: the registration is appended or was there already. The sender's own image shows when it is committed."""

    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId | None


def place_of(request: "Request") -> Offset | None:
    """The offset at which the answering node's own chain is needed to judge `request`; None: not needed."""
    match request:
        case FetchRequest(fetch_offset=offset) | ChainRequest(offset=offset):
            return offset
        case _:
            return None


Request: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | ChainRequest
    | QuorumChangeRequest
)
Response: TypeAlias = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | ChainResponse
    | QuorumChangeResponse
)
PeerRequest: TypeAlias = Request | ReadLogRequest | ReadSnapshotRequest | RegisterControllerRequest
"""All requests between controllers: the core's, and those handled by the runtime alone."""
PeerResponse: TypeAlias = Response | ReadLogResponse | ReadSnapshotResponse | RegisterControllerResponse
