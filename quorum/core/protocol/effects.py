"""All effects of the core, as values. `runtime.node` carries out effects in order.

The order is a promise: each effect is complete before the next one begins. `SaveElectionState` therefore precedes every
message about the new epoch or vote, which gives "disk before speech" for elections. For the log, the same rule holds
because a follower fetches from its *flushed* end, and a leader counts itself by its own flushed end.

After `AppendBatches`, `AppendControl` and `TruncateLog` the node feeds back `Appended`, `Truncated` or `AnswerRefused`
before any other input. `InstallSnapshot` only starts a job; `SnapshotInstalled` or `SnapshotInstallFailed` reports the job's end.

Example: voter 1 grants its vote to voter 2 in epoch 5. The list is [SaveElectionState(5, vote 2), Reply(granted)].
"""

from dataclasses import dataclass
from typing import TypeAlias

from metadata_log.format.batch import Batch
from metadata_log.format.election_state import ElectionState as ElectionState
from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from metadata_log.format.records import LeaderChange, Voters
from quorum.core.protocol.messages import FetchResponse, FetchSnapshotResponse, QuorumChangeRequest, Request, Response


@dataclass(frozen=True, slots=True)
class SaveElectionState:
    """Make `state` durable (file, fsync, rename, fsync of the directory) before the next effect."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send `request` to `destination`.

    Feed the answer as `ResponseReceived`; without one in `timeout_ms`, feed `RequestFailed`.
    """

    destination: NodeId
    request: Request
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request received with `reply_to`."""

    reply_to: int
    response: Response


@dataclass(frozen=True, slots=True)
class ReplyWithBatches:
    """Answer a fetch with `response`, filled with the batches at `offset`, committed or not.

    If the first batch is larger than `max_bytes`, and the asking replica accepts parts, a part is sent
    (`metadata_log.format.fetch_size`).
    """

    reply_to: int
    response: FetchResponse
    offset: Offset
    max_bytes: int
    part_position: int | None


@dataclass(frozen=True, slots=True)
class ReplyWithChunk:
    """Answer a snapshot fetch with `response`, filled with size and data of the snapshot's file.

    The node has the files, so the node detects SNAPSHOT_NOT_FOUND and POSITION_OUT_OF_RANGE.
    """

    reply_to: int
    response: FetchSnapshotResponse
    snapshot: OffsetAndEpoch
    max_bytes: int


@dataclass(frozen=True, slots=True)
class AppendBatches:
    """Append fetched batches, which continue the follower's log."""

    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class AppendControl:
    """Append a control record as leader of `epoch`: the first record of the epoch, or a voter set.

    Only answers may follow a changed voter set in a list, because the set is appended at the log's end as known to the
    core.
    """

    epoch: Epoch
    record: LeaderChange | Voters


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Truncate the log to `end`, durably."""

    end: Offset


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """Write `data` at `position` of the snapshot's `.part` file. Position 0 starts a new file."""

    snapshot: OffsetAndEpoch
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """The download is complete: verify the file, make it durable, start the log at its end, load it.

    Then `SnapshotInstalled`.
    """

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class LeadershipChanged:
    """This node's view of the leader. `leading` is true once this node is elected and may append.

    Announced for every change of (epoch, leader), including a change to no leader.
    """

    epoch: Epoch
    leader_id: NodeId | None
    leading: bool


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """All records below `high_watermark` are committed."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class ReadsConfirmed:
    """A majority has confirmed this node's leadership after every `ConfirmReads` up to `token` had arrived."""

    token: int


@dataclass(frozen=True, slots=True)
class RefuseFailed:
    """Refuse a request about the quorum, because the unexpected `error` ended the request before it had changed anything.

    Example: an operator requests leader 1 to transfer the leadership, and the search for a target raises a KeyError. The
    node refuses the request with UNKNOWN_SERVER_ERROR, and leader 1 leads on as if the request had not come.
    """

    reply_to: int
    request: QuorumChangeRequest
    error: Exception


@dataclass(frozen=True, slots=True)
class StopNode:
    """Stop the node and report `reason`: safety is broken (two leaders in one epoch, different chains)."""

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
    | RefuseFailed
    | StopNode
)
