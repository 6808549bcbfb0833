"""Everything that can happen to a Raft node, as values. `RaftCore.step` takes one of these and nothing else.

The log's inputs (`Appended`, `Truncated`, `Flushed`, `LogStartMoved`, `SnapshotInstalled`) report what the log has
done, whoever asked for it: the core never guesses the log's shape, it is told.
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
    """The time that `next_deadline_ms` named has come. (Fed after all other waiting inputs: a busy node is not a dead one.)"""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A request came in; `reply_to` is opaque and goes back in the `Reply`.

    For a fetch, `chain_at_offset` is this node's own chain at the asked offset: None where it has no batch boundary there.
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
    """Why a request has no answer. REFUSED: nobody listens there any more, which a paused or slow node does not cause."""

    TIMED_OUT = "timed out"
    BROKEN = "broken"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """`request` to `destination` will not be answered."""

    destination: NodeId
    request: Request
    failure: Failure


@dataclass(frozen=True, slots=True)
class PeerRefused:
    """The stream to `node_id` broke and an immediate reconnect was refused: its process is gone (fast failover)."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class Appended:
    """The log has grown, by a proposal, a control record or fetched batches. `control` lists what concerns the voter set."""

    shape: LogShape
    control: tuple[tuple[Offset, Voters | KRaftVersion], ...] = ()


@dataclass(frozen=True, slots=True)
class BatchesRefused:
    """What was fetched does not continue the chain of this log, although each batch is whole; nothing was appended."""

    reason: str


@dataclass(frozen=True, slots=True)
class Truncated:
    """The log was cut back, durably, as the core had asked."""

    shape: LogShape


@dataclass(frozen=True, slots=True)
class Flushed:
    """`shape.flushed_end` has moved."""

    shape: LogShape


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """A snapshot is durable, and the log now starts at its end. The core has asked for it, or it covers damage in the log.

    Then the log above it may have been kept: `control` lists what concerns the voter set there.
    """

    shape: LogShape
    voters: Voters
    control: tuple[tuple[Offset, Voters | KRaftVersion], ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotInstallFailed:
    """The downloaded snapshot did not verify (`is_damaged`), or there is no room for it or no download any more."""

    snapshot: OffsetAndEpoch
    reason: str
    is_damaged: bool


@dataclass(frozen=True, slots=True)
class LogStartMoved:
    """A snapshot of this node's own became durable (`shape.snapshot`), or the log before one was dropped."""

    shape: LogShape


@dataclass(frozen=True, slots=True)
class LogMended:
    """Something that was damaged is in the log again, as it was: `control` lists what of it concerns the voter set."""

    shape: LogShape
    control: tuple[tuple[Offset, Voters | KRaftVersion], ...]


@dataclass(frozen=True, slots=True)
class DamageFound:
    """A range inside the log is unreadable, with a valid chain behind it: this node is not fit to lead (see `disk_trust`)."""


@dataclass(frozen=True, slots=True)
class DamageRepaired:
    """The damaged range is whole again, by its chain."""


@dataclass(frozen=True, slots=True)
class ConfirmReads:
    """Somebody wants a linearizable read: ask the followers whether this node still leads. Tokens ascend."""

    token: int


@dataclass(frozen=True, slots=True)
class Resign:
    """Step down in `epoch` if this node leads it: the state machine failed, or an operator asked."""

    epoch: Epoch
    reason: str


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The process is going: hand over leadership if there is any, and start nothing new."""


Input: TypeAlias = (
    TimerFired
    | RequestReceived
    | ResponseReceived
    | RequestFailed
    | PeerRefused
    | Appended
    | BatchesRefused
    | Truncated
    | Flushed
    | SnapshotInstalled
    | SnapshotInstallFailed
    | LogStartMoved
    | LogMended
    | DamageFound
    | DamageRepaired
    | ConfirmReads
    | Resign
    | ShutDown
)
