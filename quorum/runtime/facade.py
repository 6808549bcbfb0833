"""The one thing that `wire` holds of a running controller: ask, await, get a value or `Refused`.

Stated as a Protocol so that the gRPC services can be tried against a fake; `runtime.loop.NodeLoop` is the real one.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from metadata_log.format.ids import NodeId, Offset, OffsetAndEpoch
from quorum.controller.protocol.commands import Command, CommandReply
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.core.protocol.messages import PeerRequest, PeerResponse
from quorum.core.roles import Transition
from quorum.runtime.active.story import Told
from quorum.runtime.protocol.requests import LeaderHint, MetadataFetch, MetadataFetched, NodeStatus, ReadView, Refused
from quorum.runtime.protocol.restarts import RestartAdvice
from quorum.runtime.protocol.tallies import Tallies
from snapshots.store import SnapshotInfo

T = TypeVar("T")


class ControllerNode(Protocol):
    """A controller on this process's event loop. Methods marked async may be called concurrently by any handler."""

    @property
    def tallies(self) -> Tallies:
        """What this controller counts and measures."""
        ...

    async def raft(self, request: PeerRequest) -> PeerResponse:
        """Answers another controller. Raises Refused(REQUEST_TIMED_OUT) if the node stops first."""
        ...

    async def submit(self, command: Command, timeout_ms: int, identity: RequestIdentity | None = None) -> CommandReply:
        """Decides `command` on the active controller and waits until it is committed. With an `identity` it takes effect
        once, and whoever repeats it gets the first answer.

        Raises:
            Refused: NOT_CONTROLLER with a hint; the controller's own refusal; REQUEST_TIMED_OUT (may have happened).
        """
        ...

    def begin(
        self,
        command: Command,
        timeout_ms: int,
        on_outcome: Callable[[CommandReply | Refused], None],
        identity: RequestIdentity | None = None,
    ) -> None:
        """As `submit`, for who has many under way: calls `on_outcome` once with what `submit` would return or raise.

        It may be called at once, or inside of a turn, so it must not ask the node anything itself.
        """
        ...

    async def metadata_fetch(self, fetch: MetadataFetch) -> MetadataFetched:
        """A broker's fetch and heartbeat; waits up to its `max_wait_ms` for something new."""
        ...

    async def read(self, view: Callable[[ReadView], T], timeout_ms: int) -> T:
        """A linearizable read on the active controller: `view` sees everything acknowledged before the call."""
        ...

    async def read_local(self, view: Callable[[ReadView], T], at_least: Offset, timeout_ms: int) -> T:
        """A read of what this node has applied, leader or not; waits until that is `at_least` all below the offset.

        Raises:
            Refused: NOT_READY: the node has not come so far in time.
        """
        ...

    async def create_snapshot(self, reason: str, timeout_ms: int) -> Offset:
        """Appends a snapshot mark; returns the offset that the snapshots will end at, once the mark is committed."""
        ...

    def status(self) -> NodeStatus: ...

    def on_transition(self, listener: Callable[[Transition], None]) -> None:
        """`listener` is called with each change of this node's role, those before this call included."""
        ...

    def on_happening(self, listener: Callable[[Told], None]) -> None:
        """`listener` is called with each happening that this node has decided and that is committed, in the order of the log."""
        ...

    def leader_hint(self) -> LeaderHint: ...

    def named_leader(self) -> LeaderHint:
        """The same for another controller: without what only this node's configuration says."""
        ...

    def restart_advice(self, node_id: NodeId) -> RestartAdvice:
        """Whether that controller may be restarted now. Raises Refused: NOT_CONTROLLER, VOTER_NOT_FOUND."""
        ...

    def read_snapshot_chunk(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes]:
        """(size of the whole file, bytes from `position`). Raises Refused: SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE."""
        ...

    def list_snapshots(self) -> tuple[SnapshotInfo, ...]: ...
