"""The words of a broker's life: its states, what can happen to it and what it may ask of the world, all as values.

The table of who may become what stands in `EDGES`; the docs' picture and the tests are made from it.

    OFFLINE --registered--> FENCED --unfenced, caught up--> ONLINE --SIGTERM--> STOPPING --may go--> OFFLINE
       ^                    |    ^                            |                    ^
       |                    |    +-----fenced, unregistered---+                    |
       +----told to stop----+----------------------SIGTERM-------------------------+

A *lapsed lease* is not a fifth state: the broker stays Online (or Stopping) as the controller sees it, and behaves as if
fenced towards clients, until a confirmed answer arrives or the controller says that it had fenced it meanwhile.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum, unique
from typing import NamedTuple, TypeAlias

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch, Uuid
from metadata_log.format.pieces import BatchPart


@unique
class BrokerState(IntEnum):
    """Where a broker is in its life; the numbers are those of `quorum_rpc.v1.BrokerState`."""

    OFFLINE = 1
    FENCED = 2
    ONLINE = 3
    STOPPING = 4


EDGES: dict[BrokerState, frozenset[BrokerState]] = {
    BrokerState.OFFLINE: frozenset({BrokerState.FENCED}),
    BrokerState.FENCED: frozenset({BrokerState.ONLINE, BrokerState.STOPPING, BrokerState.OFFLINE}),
    BrokerState.ONLINE: frozenset({BrokerState.FENCED, BrokerState.STOPPING, BrokerState.OFFLINE}),
    BrokerState.STOPPING: frozenset({BrokerState.OFFLINE}),
}
"""Who may become what. Whatever the process does last, it does from OFFLINE."""


class LeaseMode(Enum):
    """What a lapsed lease does to clients.

    STRICT: they are not served, so that moved leadership never overlaps. ADVISORY: they are, so that a control-plane
    outage stays invisible to them, and two brokers may answer for one partition until leader epochs tell them apart.
    """

    STRICT = "strict"
    ADVISORY = "advisory"


class Position(NamedTuple):
    """Where the local store stands: all below `offset` is applied.

    `epoch` and `chain` are those just below it; `chain` is empty where the store holds nothing and knows no history yet.
    `digest` is the image's, empty where there is no image.
    """

    offset: Offset
    epoch: Epoch
    chain: bytes
    digest: bytes = b""


EMPTY_POSITION = Position(0, 0, b"")
NOWHERE = OffsetAndEpoch(0, 0)


class LeaderHint(NamedTuple):
    """Who leads the quorum, as far as the answering node knows, and where it takes calls."""

    leader_id: NodeId | None
    host: str
    port: int


class FetchResult(Enum):
    """What a MetadataFetch answer holds; see `broker.proto`."""

    BATCHES = "batches"
    USE_SNAPSHOT = "use snapshot"
    DIVERGED = "diverged"
    NOT_READY = "not ready"


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What one MetadataFetch says. The node's own fixed fields (ids, directories) are added where it is sent."""

    number: int
    broker_epoch: int
    position: Position
    wants_fence: bool
    wants_shut_down: bool
    max_wait_ms: int
    max_bytes: int
    part_position: int = 0
    """So many bytes of the batch at the position the broker holds already (`metadata_log.format.pieces`)."""


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """One MetadataFetch answer without an error."""

    number: int
    result: FetchResult
    state: BrokerState | None
    """None where the controller did not say."""
    batches: bytes = b""
    previous_chain: bytes = b""
    end_offset: Offset = 0
    snapshot: OffsetAndEpoch = NOWHERE
    diverging: OffsetAndEpoch = NOWHERE
    high_watermark: Offset = 0
    digest: bytes = b""
    digest_offset: Offset = 0
    is_caught_up: bool = False
    should_shut_down: bool = False
    lease_ms: int = 0
    controller_epoch: Epoch = 0
    """0 where the controller did not say."""
    part: BatchPart | None = None

    @property
    def content_bytes(self) -> int:
        """How much of the log has come. 0: there is no more."""
        return len(self.batches) + (0 if self.part is None else len(self.part.data))


# --- what can happen -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreRecovered:
    """The local store is read: the broker can register.

    `previous_incarnations` are the processes that held the store before and may be registered still, the likeliest first.
    """

    position: Position
    previous_incarnations: tuple[Uuid, ...]


@dataclass(frozen=True, slots=True)
class Registered:
    """The controller has committed the registration `number`; the broker's epoch is that record's offset."""

    number: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class RegisterFailed:
    """Registration `number` was refused with `code`, or not answered (REQUEST_TIMED_OUT).

    `generation` is the controller's, where it is another than the broker's (INVALID_CONTROL_GENERATION).
    """

    number: int
    code: ErrorCode
    message: str
    leader: LeaderHint | None = None
    generation: int = 0


@dataclass(frozen=True, slots=True)
class FetchAnswered:
    """An answer came in; it counts only while its number is the one that is in flight."""

    answer: FetchAnswer


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """Fetch `number` was refused with `code`, or its stream broke (BROKER_NOT_AVAILABLE). `generation` as above."""

    number: int
    code: ErrorCode
    message: str
    leader: LeaderHint | None = None
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Applied:
    """What `ApplyBatches`, `DownloadSnapshot` or `ResetStore` asked for is done."""

    position: Position


@dataclass(frozen=True, slots=True)
class SnapshotFailed:
    """The snapshot could not be fetched or did not verify; the store is as it was."""

    reason: str


@dataclass(frozen=True, slots=True)
class BatchesRefused:
    """What came was damaged on its way; the store is as it was."""

    reason: str


@dataclass(frozen=True, slots=True)
class StoreBroken:
    """The store and the controllers' history do not fit together; only a fresh start helps."""

    reason: str


@dataclass(frozen=True, slots=True)
class CannotFollow:
    """A committed record that this release does not understand, or a disk that takes no more: no fresh start helps."""

    reason: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """SIGINT, SIGTERM, or an embedder that wants to go."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time that `next_deadline_ms` named has come."""


Input: TypeAlias = (
    StoreRecovered
    | Registered
    | RegisterFailed
    | FetchAnswered
    | FetchFailed
    | Applied
    | SnapshotFailed
    | BatchesRefused
    | StoreBroken
    | CannotFollow
    | StopRequested
    | TimerFired
)


# --- what it asks of the world -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """Ask the controller to register this process; answer with `Registered` or `RegisterFailed` of the same number."""

    number: int
    previous_incarnation: Uuid | None
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Send this request; answer with `FetchAnswered` or `FetchFailed` of the same number, or not at all."""

    request: FetchRequest


@dataclass(frozen=True, slots=True)
class AbandonFetch:
    """Nobody waits for the answer to `number` any more: the next fetch is more urgent, or this one took too long."""

    number: int


@dataclass(frozen=True, slots=True)
class FindController:
    """Turn to `leader` if it is named, else to the next of the bootstrap servers, with whatever is asked next."""

    leader: LeaderHint | None
    reason: str


@dataclass(frozen=True, slots=True)
class ApplyBatches:
    """Append and replay these; answer `Applied`, or what went wrong. `previous_chain` is the chain below the first."""

    batches: bytes
    previous_chain: bytes
    end_offset: Offset


@dataclass(frozen=True, slots=True)
class DownloadSnapshot:
    """Fetch, verify and load this snapshot, and begin the log at its end; answer `Applied` or `SnapshotFailed`."""

    snapshot: OffsetAndEpoch
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ResetStore:
    """Drop the local store, log and snapshots; answer `Applied` at the empty position."""

    reason: str


@dataclass(frozen=True, slots=True)
class JoinGeneration:
    """The cluster was recovered without a majority: drop the local store, forget what clients were told, note that this
    broker is of `generation` from now on, durably; answer `Applied` at the empty position."""

    generation: int


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The broker is in `state` now."""

    state: BrokerState
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseLapsed:
    """No controller has confirmed this broker for too long: it behaves as fenced towards clients (in strict mode)."""

    last_confirmed_ms: int


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """A confirmed answer ended a lapse."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class Exit:
    """The process ends, with this exit code; nothing follows."""

    code: int
    reason: str


Effect: TypeAlias = (
    Register
    | Fetch
    | AbandonFetch
    | FindController
    | ApplyBatches
    | DownloadSnapshot
    | ResetStore
    | JoinGeneration
    | StateChanged
    | LeaseLapsed
    | LeaseRenewed
    | Exit
)
