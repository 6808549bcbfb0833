"""A lone node behind the services: `ControllerNode` without an event loop. Each call is a turn, and all that follows from it.

What waits for time is given time, in growing steps. So an answer is always there when a call returns, and
the same calls give the same answers.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset, OffsetAndEpoch, ReplicaKey
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.tree.queries import BatchChange, History, Row
from quorum.controller.protocol.commands import Command, CommandReply
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.core.protocol.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    PeerRequest,
    PeerResponse,
    VoteRequest,
    VoteResponse,
)
from quorum.core.roles import Transition
from quorum.runtime.active.story import Told
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.peer_answers import answered
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
    SnapshotMarked,
)
from quorum.runtime.protocol.restarts import RestartAdvice, restart_advice
from quorum.runtime.protocol.tallies import Tallies
from quorum.runtime.protocol.tree_question import TreeQuestion
from quorum.runtime.protocol.world import (
    Answer,
    BrokerFetch,
    Event,
    KeepAlive,
    LocalRead,
    RaftRequest,
    Read,
    ReplyTo,
    SkipWanted,
    SnapshotWanted,
    Submission,
)
from quorum.runtime.status import node_status
from quorum.runtime.watched_log import NodeWatchedLog
from snapshots.history.past import Past, finished
from snapshots.history.wanted import OutOfReach, Wanted
from snapshots.store import PositionOutOfRange, SnapshotInfo, SnapshotNotFound
from tests.quorum.runtime.image.inline_tree import InlineTree
from tests.quorum.runtime.lone_node import LoneNode, directory_id, formatted_disk, voters_of

T = TypeVar("T")

PATIENCE_MS: Final = 200_000
"""Nothing waits for longer, whatever it asks for: `wire.timeouts` sees to that."""


def key(node_id: NodeId) -> ReplicaKey:
    return ReplicaKey(node_id, directory_id(node_id))


def unattached() -> LoneNode:
    """Node 1 of three, which knows of no leader."""
    return LoneNode(formatted_disk(voters_of((1, 2, 3))))


def follower() -> LoneNode:
    """Node 1 of three; node 2 leads epoch 1, and was asked for its first batch."""
    lone = unattached()
    lone.turn(RaftRequest(BeginQuorumEpochRequest(key(2), key(1), 1), lone.new_reply_to()))
    assert isinstance(lone.sent[-1][1], FetchRequest)
    return lone


def leader() -> LoneNode:
    """Node 1 of three, elected by node 2. Its own disk has what opens the epoch; nobody has fetched it yet."""
    return elected(unattached(), 2)


def elected(lone: LoneNode, by: NodeId) -> LoneNode:
    """It runs, and the voter `by` gives it the vote that it lacks."""
    lone.now_ms += 10_000
    lone.turn()
    for _ in range(2):
        destination, request = next(each for each in reversed(lone.sent) if each[0] == by)
        assert isinstance(request, VoteRequest), request
        epoch = lone.node.core.epoch
        lone.turn(answered(destination, request, VoteResponse(ErrorCode.NONE, epoch, None, vote_granted=True)))
    lone.run_until_idle()
    assert lone.node.core.is_leading
    return lone


class LoneController:
    """Implements `ControllerNode` over `lone`."""

    def __init__(self, lone: LoneNode) -> None:
        self.lone = lone

    # --- one call --------------------------------------------------------------------------------------------------

    def ask(self, event: Callable[[ReplyTo], Event]) -> Answer:
        """What the node answers, at once or after a while.

        Raises:
            Refused: it refuses, or has stopped.
        """
        lone = self.lone
        reply_to = lone.new_reply_to()
        until_ms, step_ms = lone.now_ms + PATIENCE_MS, 50
        lone.turn(event(reply_to))
        lone.run_until_idle()
        while reply_to not in lone.answers:
            if lone.stopped is not None:
                raise Refused(ErrorCode.BROKER_NOT_AVAILABLE, f"this controller has stopped: {lone.stopped}")
            assert lone.now_ms < until_ms, "no answer"
            lone.now_ms += step_ms
            step_ms = min(2 * step_ms, 5_000)
            lone.turn()
            lone.run_until_idle()
        answer = lone.answers.pop(reply_to)
        if isinstance(answer, Refused):
            raise answer
        return answer

    # --- ControllerNode --------------------------------------------------------------------------------------------

    @property
    def tallies(self) -> Tallies:
        return self.lone.node.tallies

    @property
    def watched(self) -> NodeWatchedLog:
        return NodeWatchedLog(self.lone.node, lambda: None)

    async def raft(self, request: PeerRequest) -> PeerResponse:
        answer = self.ask(lambda reply_to: RaftRequest(request, reply_to))
        assert not isinstance(
            answer,
            CommandReply | MetadataFetched | SessionsKept | ReadView | SnapshotMarked | BatchSkipped | Refused,
        )
        return answer

    async def submit(self, command: Command, timeout_ms: int, identity: RequestIdentity | None = None) -> CommandReply:
        deadline_ms = self.lone.now_ms + timeout_ms
        answer = self.ask(lambda reply_to: Submission(command, reply_to, deadline_ms, identity))
        assert isinstance(answer, CommandReply)
        return answer

    def begin(
        self,
        command: Command,
        timeout_ms: int,
        on_outcome: Callable[[CommandReply | Refused], None],
        identity: RequestIdentity | None = None,
    ) -> None:
        deadline_ms = self.lone.now_ms + timeout_ms
        try:
            answer = self.ask(lambda reply_to: Submission(command, reply_to, deadline_ms, identity))
        except Refused as e:
            return on_outcome(e)
        assert isinstance(answer, CommandReply)
        return on_outcome(answer)

    async def metadata_fetch(self, fetch: MetadataFetch) -> MetadataFetched:
        answer = self.ask(lambda reply_to: BrokerFetch(fetch, reply_to))
        assert isinstance(answer, MetadataFetched)
        return answer

    async def keep_alive(self, sessions: tuple[SessionName, ...]) -> SessionsKept:
        answer = self.ask(lambda reply_to: KeepAlive(sessions, reply_to))
        assert isinstance(answer, SessionsKept)
        return answer

    async def read(self, view: Callable[[ReadView], T], timeout_ms: int) -> T:
        answer = self.ask(lambda reply_to: Read(reply_to, self.lone.now_ms + timeout_ms))
        assert isinstance(answer, ReadView)
        return view(answer)

    async def read_local(self, view: Callable[[ReadView], T], at_least: Offset, timeout_ms: int) -> T:
        deadline_ms = self.lone.now_ms + timeout_ms
        answer = self.ask(lambda reply_to: LocalRead(at_least, reply_to, deadline_ms))
        assert isinstance(answer, ReadView)
        return view(answer)

    async def past_image(self, wanted: Wanted, committed_end: Offset, timeout_ms: int) -> MetadataImage:
        try:
            return Past(self.lone.disk.subdirectory("@metadata")).shown(wanted, committed_end).image
        except OutOfReach as e:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, str(e)) from e

    def read_tree(self, asked: TreeQuestion, encode: Callable[[Row], tuple[T, int]]) -> InlineTree[T]:
        def changes(history: History, end: Offset) -> Iterable[BatchChange]:
            past = Past(self.lone.disk.subdirectory("@metadata"))
            since = finished(past.reach(end)).lowest if history.since is None else history.since
            return past.changes(since, end)

        return InlineTree(asked, encode, changes)

    async def skip_batch(self, request: SkipRequest, timeout_ms: int) -> BatchSkipped:
        answer = self.ask(lambda reply_to: SkipWanted(request, reply_to, self.lone.now_ms + timeout_ms))
        assert isinstance(answer, BatchSkipped)
        return answer

    async def create_snapshot(self, reason: str, timeout_ms: int) -> Offset:
        deadline_ms = self.lone.now_ms + timeout_ms
        answer = self.ask(lambda reply_to: SnapshotWanted(reason, reply_to, deadline_ms))
        assert isinstance(answer, SnapshotMarked)
        return answer.offset

    def status(self) -> NodeStatus:
        return node_status(self.lone.node, self.lone.now_ms)

    def leader_hint(self) -> LeaderHint:
        return self.lone.node.addresses.leader_hint(self.lone.now_ms)

    def on_transition(self, listener: Callable[[Transition], None]) -> None:
        """Nobody listens here."""

    def on_happening(self, listener: Callable[[Told], None]) -> None:
        """Nobody listens here."""

    def named_leader(self) -> LeaderHint:
        return self.lone.node.addresses.named_leader()

    async def restart_advice(self, node_id: NodeId) -> RestartAdvice:
        keeps = self.lone.node.core.keeps_majority_without({node_id})
        return restart_advice(self.status(), node_id, keeps, NodeConfig().raft.check_quorum_ms)

    def read_snapshot_chunk(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes]:
        try:
            return self.lone.node.snapshotter.store.read_chunk(snapshot, position, max_bytes)
        except SnapshotNotFound as e:
            raise Refused(ErrorCode.SNAPSHOT_NOT_FOUND, str(e)) from e
        except PositionOutOfRange as e:
            raise Refused(ErrorCode.POSITION_OUT_OF_RANGE, str(e)) from e

    def list_snapshots(self) -> tuple[SnapshotInfo, ...]:
        return self.lone.node.snapshotter.store.list()
