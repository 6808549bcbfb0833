"""The line between a controller and its world: the events that a node takes, and the calls that a node makes.

`Node` is on one side, synchronous and deterministic. On the other side is `NodeLoop` (asyncio, gRPC, threads) or the simulator
(virtual time, one thread, a seed). Both drive the same node and the same log, so the simulator tests the real code. Example:
    1. node 2 calls `world.send(1, FetchRequest)`: `NodeLoop` sends a gRPC message, the simulator draws a delay from its seed;
    2. the answer enters node 2 as the core's input `ResponseReceived(source=1, ...)`; without an answer, `RequestFailed` enters
       (`peer_answers`: the answers to reads of a repair enter as inputs of the repair).
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from metadata_log.format.ids import NodeId, Offset
from quorum.controller.protocol.commands import Command, CommandReply
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.core.protocol.inputs import PeerRefused, RequestFailed, ResponseReceived, ShutDown
from quorum.core.protocol.messages import PeerRequest, PeerResponse
from quorum.runtime.protocol.jobs import Job
from quorum.runtime.protocol.peer_answers import ReadEnd, RegistrationEnded
from quorum.runtime.protocol.requests import (
    BatchSkipped,
    MetadataFetch,
    MetadataFetched,
    ReadView,
    Refused,
    SessionName,
    SessionsKept,
    SkipRequest,
    SnapshotMarked,
)

ReplyTo: TypeAlias = int
"""The name of one waiting caller. The world chooses the names; the node answers each at most once."""


@dataclass(frozen=True, slots=True)
class RaftRequest:
    """A request of another controller: for the core, which also needs this node's chain (`RequestReceived`), or a read."""

    request: PeerRequest
    reply_to: ReplyTo


@dataclass(frozen=True, slots=True)
class Submission:
    """A command for the active controller. A command that is not begun by `deadline_ms` is refused."""

    command: Command
    reply_to: ReplyTo
    deadline_ms: int
    identity: RequestIdentity | None = None
    """With an identity the command takes effect once, however often the client sends it."""


@dataclass(frozen=True, slots=True)
class BrokerFetch:
    """A fetch of a broker, which is also its heartbeat."""

    fetch: MetadataFetch
    reply_to: ReplyTo


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """A client's message that keeps sessions alive. Nothing is written."""

    sessions: tuple[SessionName, ...]
    reply_to: ReplyTo


@dataclass(frozen=True, slots=True)
class Read:
    """A client's request for a linearizable view."""

    reply_to: ReplyTo
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class LocalRead:
    """A client's request for the image that the node has applied, once the node has applied all records below `at_least`."""

    at_least: Offset
    reply_to: ReplyTo
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class SnapshotWanted:
    """An operator's request for a snapshot on every node. The leader appends a snapshot mark."""

    reason: str
    reply_to: ReplyTo
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class SkipWanted:
    """An operator's request to skip a batch that replay cannot apply. The leader appends a `SkippedBatch`."""

    request: SkipRequest
    reply_to: ReplyTo
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class JobDone:
    """The end of a job, which holds its own result. `error`: the job failed with it."""

    job: Job
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """A deadline has passed, or the last turn left work to do. After all events of its turn the due timers fire."""


Event: TypeAlias = (
    RaftRequest
    | ResponseReceived
    | RequestFailed
    | ReadEnd
    | RegistrationEnded
    | PeerRefused
    | Submission
    | BrokerFetch
    | KeepAlive
    | Read
    | LocalRead
    | SnapshotWanted
    | SkipWanted
    | JobDone
    | Tick
    | ShutDown
)

Answer: TypeAlias = (
    PeerResponse | CommandReply | MetadataFetched | SessionsKept | ReadView | SnapshotMarked | BatchSkipped | Refused
)


class NodeStopped(Exception):
    """The node must stop at once; the text is the reason."""


class World(Protocol):
    """The calls that a node makes. No call blocks, and no call reaches the node again before the turn has ended."""

    def send(self, destination: NodeId, request: PeerRequest, timeout_ms: int) -> None:
        """Sends `request`. The answer or the failure follows (`peer_answers`), late or never; an answer may come twice."""
        ...

    def reply(self, reply_to: ReplyTo, answer: Answer) -> None:
        """Answers a waiting caller."""
        ...

    def start_job(self, job: Job) -> JobDone | None:
        """Runs `job`, for example on another thread; `JobDone` follows. A job that was run at once returns its end instead."""
        ...

    def stop_node(self, reason: str) -> None:
        """Ends the node, which cannot go on safely. No turn follows."""
        ...
