"""All inputs of a Raft node, as values. `RaftCore.step` takes nothing else.

The log's inputs (`Appended`, `Truncated`, `Flushed`, `LogStartMoved`, `SnapshotInstalled`) report changes of the log,
whatever their cause. The core relies on the reports and never guesses the log's shape.

Example: a client's batch is appended on leader 1. The runtime feeds Appended(shape), and after the flush
Flushed(shape).
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from metadata_log.format.log_shape import LogShape
from metadata_log.format.records import KRaftVersion, Voters
from quorum.core.protocol.messages import Request, Response


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time named by `next_deadline_ms` has come.

    (Fed after all other waiting inputs: a busy node must not look dead.)
    """


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A request arrived. `reply_to` is opaque and returns in the `Reply`.

    For a fetch, `chain_at_offset` is this node's own chain at the requested offset; None without a batch boundary
    there.
    """

    request: Request
    reply_to: int
    chain_at_offset: bytes | None = None


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """`source` answered `request`."""

    source: NodeId
    request: Request
    response: Response


class Failure(Enum):
    """The reason for a missing answer.

    REFUSED: no process listens on the port. A paused or slow node does not cause REFUSED.
    """

    TIMED_OUT = "timed out"
    BROKEN = "broken"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """No answer to `request` will come from `destination`."""

    destination: NodeId
    request: Request
    failure: Failure


@dataclass(frozen=True, slots=True)
class PeerRefused:
    """The stream to `node_id` broke and an immediate reconnect was refused: the process is gone (fast failover)."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class Appended:
    """The log grew by a proposal, a control record or fetched batches. `control` lists the records about the voter set."""

    shape: LogShape
    control: tuple[tuple[Offset, Voters | KRaftVersion], ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerRefused:
    """The leader's answer does not fit this log, which is unchanged.

    Either fetched batches do not continue this log's chain, although each batch is intact, or a truncation point lies
    inside a batch.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Truncated:
    """The log was truncated durably, as requested by the core."""

    shape: LogShape


@dataclass(frozen=True, slots=True)
class Flushed:
    """`shape.flushed_end` has moved."""

    shape: LogShape


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """A snapshot is durable, and the log starts at the snapshot's end. The core requested the snapshot, or it covers
    damage.

    In the second case the log above may have been kept: `control` lists its records about the voter set.
    """

    shape: LogShape
    voters: Voters
    control: tuple[tuple[Offset, Voters | KRaftVersion], ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotInstallFailed:
    """A downloaded snapshot failed verification (`is_damaged`), or the disk has no room, or the download is gone."""

    snapshot: OffsetAndEpoch
    reason: str
    is_damaged: bool


@dataclass(frozen=True, slots=True)
class LogStartMoved:
    """A snapshot of this node became durable (`shape.snapshot`), or the log before a snapshot was deleted."""

    shape: LogShape


@dataclass(frozen=True, slots=True)
class LogRepaired:
    """A damaged part of the log was restored. `control` lists the restored records about the voter set."""

    shape: LogShape
    control: tuple[tuple[Offset, Voters | KRaftVersion], ...]


@dataclass(frozen=True, slots=True)
class DamageFound:
    """A range inside the log is unreadable, with a valid chain behind it. This node must not lead (see `disk_trust`)."""


@dataclass(frozen=True, slots=True)
class DamageRepaired:
    """The damaged range is intact again, as its chain proves."""


@dataclass(frozen=True, slots=True)
class DiskFilled:
    """The disk has no room for more records. This node must not lead, and cannot follow (see `disk_trust`)."""


@dataclass(frozen=True, slots=True)
class DiskHasRoom:
    """The disk takes records again."""


@dataclass(frozen=True, slots=True)
class ConfirmReads:
    """A client wants a linearizable read: confirm with the followers that this node still leads. Tokens ascend."""

    token: int


@dataclass(frozen=True, slots=True)
class Resign:
    """Step down in `epoch` if this node leads it: its image, or the soft state of its controller, may be wrong."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The process is shutting down: hand over the leadership, if any, and start nothing new."""


Input: TypeAlias = (
    TimerFired
    | RequestReceived
    | ResponseReceived
    | RequestFailed
    | PeerRefused
    | Appended
    | AnswerRefused
    | Truncated
    | Flushed
    | SnapshotInstalled
    | SnapshotInstallFailed
    | LogStartMoved
    | LogRepaired
    | DamageFound
    | DamageRepaired
    | DiskFilled
    | DiskHasRoom
    | ConfirmReads
    | Resign
    | ShutDown
)
