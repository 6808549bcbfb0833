"""The values of a broker's life: its states, the inputs of its session and the effects that the session asks for.

`EDGES` holds the allowed changes of state. The session asserts them, and the simulator counts them.

    OFFLINE --registered--> FENCED --unfenced, caught up--> ONLINE --SIGTERM--> STOPPING --may leave--> OFFLINE
       ^                    |    ^                            |                      ^
       |                    |    +-----fenced, unregistered---+                      |
       +---stop requested---+----------------------SIGTERM---------------------------+

A *lapsed lease* is not a fifth state. To the controller the broker is still online (or stopping). To clients the broker behaves
as if it were fenced, until a confirmed answer arrives or the controller reports that it has fenced the broker. For example:

    1. Broker 101 is online. Its network fails. After 5 s the lease ends, and the broker refuses its clients.
    2. The network is back after 7 s, within the session of 9 s. An answer renews the lease, and the broker serves again.
    3. If the network is back only after 10 s, the answer says fenced, and the broker becomes FENCED.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum, unique
from typing import NamedTuple, TypeAlias

from metadata_log.format.errors import ErrorCode
from metadata_log.format.fetch_size import BatchPart
from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch, Uuid


@unique
class BrokerState(IntEnum):
    """The state of a broker; the numbers are those of `quorum_rpc.v1.BrokerState`."""

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
"""Allowed changes of state. A process always ends in OFFLINE."""


class LeaseMode(Enum):
    """The treatment of clients after the lease has lapsed.

    STRICT: the broker refuses clients, so two leaders of one partition never serve at the same time.
    ADVISORY: the broker goes on serving. Clients do not notice an outage of the controllers, but two brokers may answer for one
    partition until clients compare leader epochs.
    """

    STRICT = "strict"
    ADVISORY = "advisory"


class Position(NamedTuple):
    """The local store's position in the log: every record below `offset` is applied.

    `epoch` and `chain` are those just below `offset`; `chain` is empty if the store holds nothing and knows no history.
    `digest` is the image's digest, empty if there is no image.
    """

    offset: Offset
    epoch: Epoch
    chain: bytes
    digest: bytes = b""


EMPTY_POSITION = Position(0, 0, b"")
NOWHERE = OffsetAndEpoch(0, 0)


class LeaderHint(NamedTuple):
    """The quorum's leader and its address, as far as the answering node knows."""

    leader_id: NodeId | None
    host: str
    port: int


class FetchResult(Enum):
    """The kind of a MetadataFetch answer; see `broker.proto`."""

    BATCHES = "batches"
    USE_SNAPSHOT = "use snapshot"
    DIVERGED = "diverged"
    NOT_READY = "not ready"


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """The contents of one MetadataFetch. The sender adds the node's own fixed fields (ids, directories)."""

    number: int
    broker_epoch: int
    position: Position
    wants_fence: bool
    wants_shut_down: bool
    max_wait_ms: int
    max_bytes: int
    part_position: int = 0
    """How many bytes of the batch at the position the broker already holds (`metadata_log.format.fetch_size`)."""


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """One MetadataFetch answer without an error."""

    number: int
    result: FetchResult
    state: BrokerState | None
    """None if the controller did not report a state."""
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
    """0 if the controller did not report its epoch."""
    part: BatchPart | None = None
    skips: tuple[bytes, ...] = ()
    """Records that skip batches at the fetch's offset or behind it."""

    @property
    def content_bytes(self) -> int:
        """How many bytes of the log the answer holds; 0 at the end of the log."""
        return len(self.batches) + (0 if self.part is None else len(self.part.data))


# --- inputs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreRecovered:
    """The local store has been read, so the broker can register.

    `previous_incarnations` are the processes that held the store before and may still be registered, the likeliest first.
    `clean_broker_epoch` is the epoch of the last process, if that process ended with a controlled shutdown.
    """

    position: Position
    previous_incarnations: tuple[Uuid, ...]
    clean_broker_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """The controller has committed the registration `number`; the broker's epoch is that record's offset."""

    number: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The controller refused request `number` with `code`, or did not answer.

    `generation` is the controller's, if it differs from the broker's (INVALID_CONTROL_GENERATION).
    """

    number: int
    code: ErrorCode
    message: str
    leader: LeaderHint | None = None
    generation: int = 0


@dataclass(frozen=True, slots=True)
class RegisterFailed(RequestFailed):
    """A registration has failed; without an answer in time the code is REQUEST_TIMED_OUT."""


@dataclass(frozen=True, slots=True)
class FetchAnswered:
    """An answer arrived. The answer counts only if its number is that of the request in flight."""

    answer: FetchAnswer


@dataclass(frozen=True, slots=True)
class FetchFailed(RequestFailed):
    """A fetch has failed; after a break of its stream the code is BROKER_NOT_AVAILABLE."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The store has done the work of `ApplyBatches`, `DownloadSnapshot`, `ResetStore` or `JoinGeneration`."""

    position: Position


@dataclass(frozen=True, slots=True)
class SnapshotFailed:
    """The snapshot could not be fetched, or its checksums were wrong; the store is unchanged."""

    reason: str


@dataclass(frozen=True, slots=True)
class BatchesRefused:
    """The batches were damaged in transit; the store is unchanged."""

    reason: str


@dataclass(frozen=True, slots=True)
class StoreBroken:
    """The store and the controllers' history contradict each other; the broker has to drop its store."""

    reason: str


@dataclass(frozen=True, slots=True)
class CannotFollow:
    """The log has a record that this release does not understand. Dropping the store does not help."""

    reason: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A signal (SIGINT, SIGTERM) or the embedding program asks the broker to stop."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time of `next_deadline_ms` has come."""


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


# --- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """Ask the controller to register this process; answer with `Registered` or `RegisterFailed` of the same number."""

    number: int
    previous_incarnation: Uuid | None
    timeout_ms: int
    previous_broker_epoch: int | None = None
    """The proof that the last process of this broker ended with a controlled shutdown (KIP-966)."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Send this request; answer with `FetchAnswered` or `FetchFailed` of the same number, or not at all."""

    request: FetchRequest


@dataclass(frozen=True, slots=True)
class AbandonFetch:
    """Stop waiting for the answer to `number`: the next fetch is more urgent, or this fetch took too long."""

    number: int


@dataclass(frozen=True, slots=True)
class FindController:
    """Send the next requests to `leader` if it is named, else to the next bootstrap server."""

    leader: LeaderHint | None
    reason: str


@dataclass(frozen=True, slots=True)
class ApplyBatches:
    """Append and replay these batches; answer `Applied` or an error. `previous_chain` is the chain below the first batch."""

    batches: bytes
    previous_chain: bytes
    end_offset: Offset
    skips: tuple[bytes, ...] = ()


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
    """Drop the local store and forget what clients were told, because the cluster was recovered without a majority. Note durably
    that this broker now belongs to `generation`; answer `Applied` at the empty position."""

    generation: int


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The broker is in `state` now."""

    state: BrokerState
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseLapsed:
    """The lease has ended without a confirmed answer: in strict mode the broker refuses clients."""


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """A confirmed answer has ended a lapse of the lease."""


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process with this exit code; no effect follows.

    `clean_broker_epoch`: a controlled shutdown has ended. Once the data of the replicas is durable, the store keeps this epoch as
    the proof for the next process.
    """

    code: int
    reason: str
    clean_broker_epoch: int | None = None


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
