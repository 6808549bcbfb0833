"""The face of a running controller towards `wire`: a method for each kind of request, which returns a value or raises `Refused`.

The face is a Protocol, so that tests run the gRPC services against a fake. `runtime.loop.NodeLoop` is the real controller.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from metadata_log.format.ids import NodeId, Offset, OffsetAndEpoch
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.tree.queries import Row
from quorum.controller.protocol.commands import Command, CommandReply
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.core.protocol.messages import PeerRequest, PeerResponse
from quorum.core.roles import Transition
from quorum.runtime.active.story import Told
from quorum.runtime.protocol.requests import (
    BatchSkipped,
    LeaderHint,
    MetadataFetch,
    MetadataFetched,
    NodeStatus,
    ReadView,
    Refused,
    SessionName,
    SessionsKept,
    SkipRequest,
)
from quorum.runtime.protocol.restarts import RestartAdvice
from quorum.runtime.protocol.tallies import Tallies
from quorum.runtime.protocol.tree_question import TreeQuestion, TreeRows
from snapshots.history.wanted import Wanted
from snapshots.store import SnapshotInfo
from watches.core.watched_log import WatchedLog

T = TypeVar("T")


class ControllerNode(Protocol):
    """A controller on this process's event loop. Any handler may call the async methods concurrently."""

    @property
    def tallies(self) -> Tallies:
        """The counters and histograms of the controller."""
        ...

    @property
    def watched(self) -> WatchedLog:
        """The committed log, for watches."""
        ...

    async def raft(self, request: PeerRequest) -> PeerResponse:
        """Answers another controller. Raises Refused(REQUEST_TIMED_OUT) if the node stops first."""
        ...

    async def submit(self, command: Command, timeout_ms: int, identity: RequestIdentity | None = None) -> CommandReply:
        """Decides `command` on the active controller, and returns when its records are committed.

        With an `identity` the command takes effect once: a client that repeats the command gets the first answer.

        Raises:
            Refused: NOT_CONTROLLER with a hint; the controller's own refusal; REQUEST_TIMED_OUT: it may have happened.
        """
        ...

    def begin(
        self,
        command: Command,
        timeout_ms: int,
        on_outcome: Callable[[CommandReply | Refused], None],
        identity: RequestIdentity | None = None,
    ) -> None:
        """Does the same as `submit` for a caller with many commands under way: calls `on_outcome` once with the outcome.

        The call may come at once, or inside of a turn, so `on_outcome` must not call the node.
        """
        ...

    async def metadata_fetch(self, fetch: MetadataFetch) -> MetadataFetched:
        """Answers a broker's fetch, which is also its heartbeat; waits up to `max_wait_ms` for new records."""
        ...

    async def keep_alive(self, sessions: tuple[SessionName, ...]) -> SessionsKept:
        """Keeps sessions of clients alive on the active controller. Nothing is written.

        Raises:
            Refused: NOT_CONTROLLER with a hint, NOT_READY: no session was kept alive.
        """
        ...

    async def read(self, view: Callable[[ReadView], T], timeout_ms: int) -> T:
        """Reads on the active controller, linearizably: `view` sees everything that was acknowledged before the call."""
        ...

    async def read_local(self, view: Callable[[ReadView], T], at_least: Offset, timeout_ms: int) -> T:
        """Reads the image that the node has applied, leader or not, once all records below `at_least` are applied.

        Raises:
            Refused: NOT_READY: the node has not applied them in time.
        """
        ...

    async def past_image(self, wanted: Wanted, committed_end: Offset, timeout_ms: int) -> MetadataImage:
        """Returns the image at an offset or a time of the past. `committed_end`: the offset of a view that was read just before.

        Raises:
            Refused: OFFSET_OUT_OF_RANGE, NOT_READY, THROTTLING_QUOTA_EXCEEDED or STORAGE_ERROR; nothing was read.
        """
        ...

    def read_tree(self, asked: TreeQuestion, encode: Callable[[Row], tuple[T, int]]) -> TreeRows[T]:
        """Begins the answer to a query of the tree. `encode` returns a row for the wire and its size; it may run on a thread.

        Raises:
            Refused: THROTTLING_QUOTA_EXCEEDED: the node makes as many answers as it may.
        """
        ...

    async def skip_batch(self, request: SkipRequest, timeout_ms: int) -> BatchSkipped:
        """Makes replay drop a committed batch that it cannot apply. Returns when the record that says so is committed.

        Raises:
            Refused: nothing was done. REQUEST_TIMED_OUT: the batch may be skipped.
        """
        ...

    async def create_snapshot(self, reason: str, timeout_ms: int) -> Offset:
        """Appends a snapshot mark. Returns the end offset of the snapshots when the mark is committed."""
        ...

    def status(self) -> NodeStatus:
        """Returns the status of the node as it is now."""
        ...

    def on_transition(self, listener: Callable[[Transition], None]) -> None:
        """Calls `listener` with each change of the node's role, also with the changes before this call."""
        ...

    def on_happening(self, listener: Callable[[Told], None]) -> None:
        """Calls `listener` with each committed happening that the node has decided, in the order of the log."""
        ...

    def leader_hint(self) -> LeaderHint:
        """Returns the leader that the node knows, with its address, for clients."""
        ...

    def named_leader(self) -> LeaderHint:
        """Returns the same for another controller: without addresses that only the node's configuration has."""
        ...

    async def restart_advice(self, node_id: NodeId) -> RestartAdvice:
        """Says whether that controller may be restarted now. A yes takes the check-quorum timeout
        (`quorum.runtime.protocol.restarts`). Raises Refused: NOT_CONTROLLER, VOTER_NOT_FOUND."""
        ...

    def read_snapshot_chunk(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes]:
        """Returns the file's size and bytes from `position` on. Raises Refused: SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE."""
        ...

    def list_snapshots(self) -> tuple[SnapshotInfo, ...]:
        """Returns the node's snapshots, oldest first."""
        ...
