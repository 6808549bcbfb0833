"""The line between a controller and its world: the events that come in, and what a node may ask for.

`Node` is on one side, synchronous and deterministic. On the other is `NodeLoop` (asyncio, gRPC, threads) or the simulator
(virtual time, one thread, a seed); both hold the same node and the same log, so what the simulator proves is what runs.
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from metadata_log.format.ids import NodeId, Offset
from quorum.controller.protocol.commands import Command, CommandReply
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.core.protocol.inputs import Failure
from quorum.core.protocol.messages import PeerRequest, PeerResponse
from quorum.runtime.protocol.jobs import Job
from quorum.runtime.protocol.requests import MetadataFetch, MetadataFetched, ReadView, Refused, SnapshotMarked

ReplyTo: TypeAlias = int
"""Names one waiting caller. The world gives them out; the node answers each at most once."""


@dataclass(frozen=True, slots=True)
class RaftRequest:
    """Another controller asks."""

    request: PeerRequest
    reply_to: ReplyTo


@dataclass(frozen=True, slots=True)
class RaftResponse:
    """Another controller has answered what this node had sent."""

    source: NodeId
    request: PeerRequest
    response: PeerResponse


@dataclass(frozen=True, slots=True)
class RaftFailure:
    """No answer will come."""

    destination: NodeId
    request: PeerRequest
    failure: Failure


@dataclass(frozen=True, slots=True)
class PeerGone:
    """The other controller's process is not there any more: its stream broke and a reconnect was refused."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class Submission:
    """A command for the active controller. What is not begun by `deadline_ms` is never begun."""

    command: Command
    reply_to: ReplyTo
    deadline_ms: int
    identity: RequestIdentity | None = None
    """With one, it takes effect once, however often it comes."""


@dataclass(frozen=True, slots=True)
class BrokerFetch:
    """A broker fetches, and is thereby alive."""

    fetch: MetadataFetch
    reply_to: ReplyTo


@dataclass(frozen=True, slots=True)
class Read:
    """Somebody wants a linearizable view."""

    reply_to: ReplyTo
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class LocalRead:
    """Somebody wants what this node has applied, `at_least` all below that offset."""

    at_least: Offset
    reply_to: ReplyTo
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class SnapshotWanted:
    """An operator wants a snapshot on every node: a mark, in other words."""

    reason: str
    reply_to: ReplyTo
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class JobDone:
    """A job has ended; `error` says how if it failed. What it brought stands in the job."""

    job: Job
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """A deadline has passed, or there is more to do."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The process is asked to go: hand over leadership, then it may."""


Event: TypeAlias = (
    RaftRequest
    | RaftResponse
    | RaftFailure
    | PeerGone
    | Submission
    | BrokerFetch
    | Read
    | LocalRead
    | SnapshotWanted
    | JobDone
    | Tick
    | StopRequested
)

Answer: TypeAlias = PeerResponse | CommandReply | MetadataFetched | ReadView | SnapshotMarked | Refused


class NodeStopped(Exception):
    """The node must not go on; the text says why."""


class World(Protocol):
    """What a node may ask for. None of these blocks, and none calls back into the node before its turn is over."""

    def send(self, destination: NodeId, request: PeerRequest, timeout_ms: int) -> None:
        """Ask another controller. `RaftResponse` or `RaftFailure` follows; either may be late, lost or (a response) repeated."""
        ...

    def reply(self, reply_to: ReplyTo, answer: Answer) -> None:
        """Answer a caller."""
        ...

    def start_job(self, job: Job) -> None:
        """Run `job`, elsewhere or in a quiet moment; `JobDone` follows."""
        ...

    def stop_node(self, reason: str) -> None:
        """This node cannot go on safely. No further turn follows."""
        ...
