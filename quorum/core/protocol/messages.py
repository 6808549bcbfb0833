"""What the controllers say to each other: KRaft's RPCs, as values.

Every request names its sender and, where it is meant for one voter only, its receiver, both with directory ids. A reply
always says the replier's epoch and the leader that it knows, because that is how nodes learn of each other's epochs.
Cluster id and generation are checked at the wire before anything reaches the core.

Sources: KIP-595 (Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch), KIP-630 (FetchSnapshot), KIP-996 (pre-vote), KIP-853 (changes
of the voter set).

Fetches never end, so the two that they are made of are tuples: a frozen dataclass of so many fields takes four times as
long to make. The others are not, because tuples of different types may be equal.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from metadata_log.format.pieces import BatchPart
from metadata_log.format.records import Voter


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """May `candidate` lead `epoch`? With `pre_vote`: would you say yes, if I asked? That changes nothing anywhere."""

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
    """`leader` leads `epoch`; come and fetch."""

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
    """`leader` steps down from `epoch`; the successors are ranked by how far they have fetched."""

    leader: ReplicaKey
    epoch: Epoch
    preferred_successors: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class EndQuorumEpochResponse:
    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId | None


class FetchRequest(NamedTuple):
    """Give me what comes after `fetch_offset`. From a voter it also says: below `fetch_offset` all is durable here.

    `number` counts this replica's requests, so that a late or repeated answer is told from the awaited one. `chain` is
    the hash of the follower's history at `fetch_offset`. `read_token` repeats the token of the last reply that it accepted
    from this leader in this epoch: 0 if there was none. `incarnation` is drawn anew at every start of the process. `digest`
    is that of the replica's image at `applied_offset`, empty where there is none; the core only carries it. `damaged`: its log
    is (see `disk_trust`), so that it would not run for leader. `part_position`: so many bytes of the batch at `fetch_offset` the
    replica holds already (`metadata_log.format.pieces`); None where it takes whole batches only, as an earlier release does.
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
    """At most one of batches, part, diverging and snapshot.

    `high_watermark` is None until the leader has committed in its epoch. `successors` ranks the voters by progress, for
    the day this leader is gone. `read_token` counts the leader's replies in this epoch; whoever repeats it has shown that it
    accepted this one (see `quorum.core.protocol.reads`). `image_differs`: the images of a majority differ from the asker's.
    `log_end` is where the leader's own log ends.
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
    """What is your chain at `offset`, if the record below it is of `epoch`? Anybody answers, whatever its role.

    Asked when two logs differ at equal (offset, epoch), which log matching rules out: somebody's disk or code has lied.
    """

    replica: ReplicaKey
    offset: Offset
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class ChainResponse:
    """`chain` is None where this node's durable log has no batch boundary at that (offset, epoch)."""

    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId | None
    chain: bytes | None
    end_offset: Offset
    last_epoch: Epoch


@dataclass(frozen=True, slots=True)
class AddVoterRequest:
    """Let `voter` vote. Answered when that is committed, or as soon as it is in the leader's log if not `ack_when_committed`."""

    voter: Voter
    ack_when_committed: bool
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    """Let `voter`, this very replica, vote no more. Answered when that is committed."""

    voter: ReplicaKey
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class UpdateVoterRequest:
    """A voter says in `epoch` where it is to be reached from now on. Answered when that is committed."""

    voter: Voter
    epoch: Epoch
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class TransferLeadershipRequest:
    """Let `target` lead; None: the voter that is furthest. Answered when the leader has stepped down for it."""

    target: NodeId | None
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class QuorumChangeResponse:
    """What became of a change of the voters or of the leader; `message` says it in a sentence.

    REQUEST_TIMED_OUT means "may have happened" where `offset` is given: there the record stands that makes the change,
    or stood. Without an offset nothing was written.
    """

    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId | None
    message: str
    offset: Offset | None = None


@dataclass(frozen=True, slots=True)
class ReadLogRequest:
    """Give `replica` what you hold durably of [offset, end_offset): it is damaged over there, and its chain proves what fits.

    Asked of any voter, whoever leads. It is the disk's business, not Raft's: `runtime` asks and answers, the core never hears.
    """

    replica: ReplicaKey
    offset: Offset
    end_offset: Offset
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReadLogResponse:
    """The first batches of what was asked for, at least one where there is no error.

    OFFSET_OUT_OF_RANGE: this node does not hold it (any more). STORAGE_ERROR: it is damaged here too. `snapshot` is the newest
    that there is here, whatever becomes of the log.
    """

    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId | None
    batches: tuple[Batch, ...] = ()
    log_start: Offset = 0
    snapshot: OffsetAndEpoch | None = None


@dataclass(frozen=True, slots=True)
class ReadSnapshotRequest:
    """Give `replica` the bytes of `snapshot` from `position` on: its log is damaged below, and nobody's log reaches back there.

    Asked of any voter, whoever leads, and the runtime's business as `ReadLogRequest` is: what a snapshot holds is committed.
    """

    replica: ReplicaKey
    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReadSnapshotResponse:
    """`data` from `position` on, of a file of `size` bytes. SNAPSHOT_NOT_FOUND: it is not here (any more)."""

    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId | None
    size: int = 0
    position: int = 0
    data: bytes = b""


QuorumChangeRequest: TypeAlias = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest | TransferLeadershipRequest


def place_of(request: "Request") -> Offset | None:
    """Where the answerer's own chain is needed to judge `request`; None if it is not."""
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
PeerRequest: TypeAlias = Request | ReadLogRequest | ReadSnapshotRequest
"""What one controller may ask of another: the core's requests, and those that the runtime sees to by itself."""
PeerResponse: TypeAlias = Response | ReadLogResponse | ReadSnapshotResponse
