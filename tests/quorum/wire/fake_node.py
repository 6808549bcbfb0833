"""A controller node without Raft: real decisions on a real image, committed at once. What the services are tried against."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from metadata_log.disk.identity import Identity
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset, OffsetAndEpoch
from metadata_log.format.records import Endpoint, Voter, Voters
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.tree.queries import Row
from quorum.controller.protocol.commands import Command, CommandReply
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.core.protocol.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    ChainRequest,
    ChainResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PeerRequest,
    PeerResponse,
    QuorumChangeRequest,
    QuorumChangeResponse,
    ReadLogRequest,
    ReadLogResponse,
    ReadSnapshotRequest,
    ReadSnapshotResponse,
    RegisterControllerRequest,
    RegisterControllerResponse,
    VoteRequest,
    VoteResponse,
)
from quorum.core.roles import Transition
from quorum.runtime.active.story import Told
from quorum.runtime.protocol.requests import (
    BatchSkipped,
    FetchResult,
    KeptSession,
    LeaderHint,
    LocalView,
    MetadataFetch,
    MetadataFetched,
    NodeStatus,
    ReadView,
    Refused,
    ReplicaView,
    SessionName,
    SessionsKept,
    SkipRequest,
)
from quorum.runtime.protocol.restarts import RestartAdvice, restart_advice
from quorum.runtime.protocol.tallies import Tallies
from quorum.runtime.protocol.tree_question import TreeQuestion
from service_kit.process.endpoints import HostPort
from snapshots.history.wanted import Wanted
from snapshots.store import SnapshotInfo
from tests.quorum.controller.cluster import Cluster
from tests.quorum.runtime.image.inline_tree import InlineTree
from tests.watches.fake_log import FakeLog
from watches.core.watched_log import WatchedLog

T = TypeVar("T")

ANY_PORT = HostPort("127.0.0.1", 0)
IDENTITY = Identity("test-cluster", 1, bytes([1]) * 16, 1, "controller")
SNAPSHOT = OffsetAndEpoch(7, 1)
SNAPSHOT_BYTES = bytes(range(256)) * 10_000


class FakeNode:
    """Implements `ControllerNode`. `refuse_with` makes it refuse everything; `asked` is what Raft was asked."""

    def __init__(self, brokers: int = 3) -> None:
        self.cluster = Cluster(brokers)
        self.tallies = Tallies()
        self.log = FakeLog()
        """What is watched; no change of `cluster` is in it."""
        self.refuse_with: Refused | None = None
        self.asked: list[PeerRequest] = []
        self.fetches: list[MetadataFetch] = []
        self.leader: Endpoint | None = None
        self.under_way: set[asyncio.Task[CommandReply]] = set()
        self.leader_id = 1
        self.role = "leader"
        self.images: list[MetadataImage] = []
        """Images of the past, oldest first."""
        self.target = ""
        """Where it is served, if whoever serves it says so."""
        self.identities: list[RequestIdentity | None] = []
        self.after_change: Callable[[], None] = lambda: None
        """Called after each decided command, before its answer leaves."""
        self.answer_fetch: Callable[[FetchRequest], FetchResponse] = lambda request: FetchResponse(
            ErrorCode.NONE, 1, 1, request.number
        )
        self.answer_change: Callable[[QuorumChangeRequest], QuorumChangeResponse] = lambda request: (
            QuorumChangeResponse(ErrorCode.NONE, 1, 1, "done", 42)
        )

    @property
    def watched(self) -> WatchedLog:
        return self.log

    async def raft(self, request: PeerRequest) -> PeerResponse:
        self._maybe_refuse()
        self.asked.append(request)
        match request:
            case VoteRequest():
                return VoteResponse(ErrorCode.NONE, request.epoch, None, True)
            case BeginQuorumEpochRequest():
                return BeginQuorumEpochResponse(ErrorCode.NONE, request.epoch, 1)
            case EndQuorumEpochRequest():
                return EndQuorumEpochResponse(ErrorCode.NONE, request.epoch, None)
            case FetchRequest():
                return self.answer_fetch(request)
            case ReadLogRequest():
                return ReadLogResponse(ErrorCode.NONE, 1, 1, (), request.offset)
            case ChainRequest():
                return ChainResponse(ErrorCode.NONE, 1, 1, bytes(32), request.offset, request.epoch)
            case ReadSnapshotRequest():
                data = SNAPSHOT_BYTES[request.position : request.position + request.max_bytes]
                return ReadSnapshotResponse(ErrorCode.NONE, 1, 1, len(SNAPSHOT_BYTES), request.position, data)
            case FetchSnapshotRequest():
                data = SNAPSHOT_BYTES[request.position : request.position + request.max_bytes]
                size = len(SNAPSHOT_BYTES)
                return FetchSnapshotResponse(ErrorCode.NONE, 1, 1, request.number, size, request.position, data)
            case RegisterControllerRequest():
                return RegisterControllerResponse(ErrorCode.NONE, 1, 1)
            case _:
                return self.answer_change(request)

    async def submit(self, command: Command, timeout_ms: int, identity: RequestIdentity | None = None) -> CommandReply:
        assert timeout_ms > 0
        self.identities.append(identity)
        self._maybe_refuse()
        try:
            reply = self.cluster.run(command).reply
        except ControllerError as e:
            raise Refused(e.code, e.message) from e
        self.after_change()
        return reply

    def begin(
        self,
        command: Command,
        timeout_ms: int,
        on_outcome: Callable[[CommandReply | Refused], None],
        identity: RequestIdentity | None = None,
    ) -> None:
        work = asyncio.get_running_loop().create_task(self.submit(command, timeout_ms, identity))
        self.under_way.add(work)

        def done(task: asyncio.Task[CommandReply]) -> None:
            self.under_way.discard(task)
            if not task.cancelled():
                error = task.exception()
                assert error is None or isinstance(error, Refused)
                on_outcome(task.result() if error is None else error)

        work.add_done_callback(done)

    async def keep_alive(self, sessions: tuple[SessionName, ...]) -> SessionsKept:
        self._maybe_refuse()
        image, now_ms = self.cluster.image, self.cluster.now_ms
        kept = [self.cluster.controller.keep_alive(image, *each, now_ms) for each in sessions]
        return SessionsKept(
            tuple(KeptSession(each is not None, 0 if each is None else each.timeout_ms * 4 // 5) for each in kept)
        )

    async def metadata_fetch(self, fetch: MetadataFetch) -> MetadataFetched:
        self._maybe_refuse()
        self.fetches.append(fetch)
        image = self.cluster.image
        return MetadataFetched(
            FetchResult.BATCHES,
            controller_epoch=1,
            high_watermark=image.offset,
            end_offset=fetch.offset,
            digest=image.digest_bytes,
            digest_offset=image.offset,
            standing=self.cluster.controller.standing(image, fetch.broker_id),
            lease_ms=5_000,
        )

    async def read(self, view: Callable[[ReadView], T], timeout_ms: int) -> T:
        self._maybe_refuse()
        image = self.cluster.image
        return view(ReadView(image.offset, image, self.cluster.controller, self.cluster.now_ms))

    async def read_local(self, view: Callable[[ReadView], T], at_least: Offset, timeout_ms: int) -> T:
        image = self.cluster.image
        if at_least > image.offset:
            raise Refused(ErrorCode.NOT_READY, f"this controller has applied all below {image.offset}")
        return view(ReadView(image.offset, image, None, self.cluster.now_ms, LocalView(self.leader_id, 7)))

    async def past_image(self, wanted: Wanted, committed_end: Offset, timeout_ms: int) -> MetadataImage:
        """The images that the cluster has had, by offset."""
        past = [each for each in self.images if wanted.reaches(each.offset, each.provenance.timestamp_ms)]
        if not past or (wanted.offset or 0) > committed_end:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"{wanted} cannot be shown; nothing was read")
        return past[-1]

    def read_tree(self, asked: TreeQuestion, encode: Callable[[Row], tuple[T, int]]) -> InlineTree[T]:
        """A history has no batches here."""
        self._maybe_refuse()
        return InlineTree(asked, encode, lambda history, end: ())

    async def skip_batch(self, request: SkipRequest, timeout_ms: int) -> BatchSkipped:
        self._maybe_refuse()
        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"no batch begins at offset {request.offset}; nothing was done")

    async def create_snapshot(self, reason: str, timeout_ms: int) -> Offset:
        self._maybe_refuse()
        return SNAPSHOT.offset

    def status(self) -> NodeStatus:
        image = self.cluster.image
        endpoint = Endpoint("CONTROLLER", "127.0.0.1", 9001)
        return NodeStatus(
            cluster_id=IDENTITY.cluster_id,
            node_id=IDENTITY.node_id,
            directory_id=IDENTITY.directory_id,
            role=self.role,
            epoch=1,
            leader=self.leader_hint(),
            is_active=True,
            high_watermark=image.offset,
            log_start_offset=0,
            log_end_offset=image.offset,
            flushed_end_offset=image.offset,
            applied_offset=image.offset,
            chain=bytes(32),
            digest=image.digest_bytes,
            snapshot=None,
            replicas=(
                ReplicaView(1, IDENTITY.directory_id, endpoint, True, "leader", image.offset, None, None, 0, 0),
                ReplicaView(2, bytes([2]) * 16, None, True, "follower", image.offset - 1, 20, 40, 1, 40),
                ReplicaView(9, bytes([9]) * 16, None, False, "observer", 0, 20, None),
            ),
            generation=IDENTITY.generation,
            bootstrap=Voters((Voter(1, IDENTITY.directory_id, (endpoint,)),)),
        )

    async def restart_advice(self, node_id: NodeId) -> RestartAdvice:
        return restart_advice(self.status(), node_id, node_id not in (1, 2), 1_000)

    def on_transition(self, listener: Callable[[Transition], None]) -> None:
        """Nobody listens here."""

    def on_happening(self, listener: Callable[[Told], None]) -> None:
        """Nobody listens here."""

    def named_leader(self) -> LeaderHint:
        return self.leader_hint()

    def leader_hint(self) -> LeaderHint:
        return LeaderHint(self.leader_id, 1, self.leader)

    def read_snapshot_chunk(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes]:
        if snapshot != SNAPSHOT:
            raise Refused(ErrorCode.SNAPSHOT_NOT_FOUND, f"there is no snapshot {snapshot} here")
        return len(SNAPSHOT_BYTES), SNAPSHOT_BYTES[position : position + max_bytes]

    def list_snapshots(self) -> tuple[SnapshotInfo, ...]:
        return (SnapshotInfo(SNAPSHOT, len(SNAPSHOT_BYTES), 1_700_000_000_000),)

    def _maybe_refuse(self) -> None:
        if self.refuse_with is not None:
            raise self.refuse_with
