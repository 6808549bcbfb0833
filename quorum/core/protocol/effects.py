"""Everything that the core may ask of the world, as values. `runtime.node` carries them out, in order.

Order is a promise: an effect is complete before the next one begins. `SaveElectionState` therefore stands before every
message that speaks of the new epoch or vote, and that is how "disk before speech" holds for elections. For the log it holds
because a follower asks for what comes after its *flushed* end, and a leader counts itself by its flushed end.

After `AppendBatches`, `AppendControl` and `TruncateLog` the node feeds back `Appended` or `Truncated` before anything else.
`InstallSnapshot` only begins a job; `SnapshotInstalled` or `SnapshotInstallFailed` comes when that is over.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from metadata_log.format.records import LeaderChange, Voters
from quorum.core.protocol.messages import FetchResponse, FetchSnapshotResponse, Request, Response


class ElectionState(NamedTuple):
    """What a node must not forget: its epoch, whom it voted for in it, and who leads it. One atomic file."""

    epoch: Epoch
    voted_for: ReplicaKey | None
    leader_id: NodeId | None


@dataclass(frozen=True, slots=True)
class SaveElectionState:
    """Make `state` durable (file, fsync, rename, fsync of the directory) before going on to the next effect."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Ask `destination`; the answer comes back as `ResponseReceived`, its absence after `timeout_ms` as `RequestFailed`."""

    destination: NodeId
    request: Request
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request that came with `reply_to`."""

    reply_to: int
    response: Response


@dataclass(frozen=True, slots=True)
class ReplyWithBatches:
    """Answer a fetch with `response`, its batches filled in from the log at `offset` (uncommitted ones too).

    Or its part, where the first of them is larger than `max_bytes` and the asker takes parts (`pieces.as_asked`).
    """

    reply_to: int
    response: FetchResponse
    offset: Offset
    max_bytes: int
    part_position: int | None


@dataclass(frozen=True, slots=True)
class ReplyWithChunk:
    """Answer a snapshot fetch with `response`, size and data filled in from the snapshot's file.

    SNAPSHOT_NOT_FOUND and POSITION_OUT_OF_RANGE are found by the node, which has the files.
    """

    reply_to: int
    response: FetchSnapshotResponse
    snapshot: OffsetAndEpoch
    max_bytes: int


@dataclass(frozen=True, slots=True)
class AppendBatches:
    """A follower has fetched these; they continue the log."""

    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class AppendControl:
    """As leader of `epoch`, append this control record: the one that opens the epoch, or a voter set.

    A changed voter set stands last in its list but for answers: it goes to the log's end as the core knows it.
    """

    epoch: Epoch
    record: LeaderChange | Voters


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Cut the log back to `end`, durably."""

    end: Offset


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """Write `data` at `position` of the `.part` file of `snapshot`; position 0 starts it anew."""

    snapshot: OffsetAndEpoch
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """The download is complete: verify it, make it durable, start the log at its end, load it. Then `SnapshotInstalled`."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class LeadershipChanged:
    """This node's view of who leads. `leading` is true once this node is elected; it may write at once.

    Announced for every change of (epoch, leader), also to None while there is none.
    """

    epoch: Epoch
    leader_id: NodeId | None
    leading: bool


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """Records below `high_watermark` are committed."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class ReadsConfirmed:
    """A majority has said, asked after every `ConfirmReads` up to `token` had come in, that this node leads."""

    token: int


@dataclass(frozen=True, slots=True)
class StopNode:
    """Something happened that safety does not survive (two leaders in one epoch, diverging chains): stop, and say why."""

    reason: str


Effect: TypeAlias = (
    SaveElectionState
    | SendRequest
    | Reply
    | ReplyWithBatches
    | ReplyWithChunk
    | AppendBatches
    | AppendControl
    | TruncateLog
    | WriteSnapshotChunk
    | InstallSnapshot
    | LeadershipChanged
    | HighWatermarkAdvanced
    | ReadsConfirmed
    | StopNode
)
