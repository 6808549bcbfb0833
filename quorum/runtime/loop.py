"""A node on an asyncio event loop, with a real network, a real disk and a real clock. No other file of the runtime knows asyncio.

    gRPC handler --> post(event) --> [events] --> one turn for all that wait --> answers --> futures of the handlers
                                        ^                 |
         timer, finished job, peer -----+                 +--> peers.send, jobs

A handler posts an event with a future, and awaits the future. `inbox` says which events start a turn, and
`flusher` how the log is flushed.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset, OffsetAndEpoch
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.tree.queries import Row
from quorum.controller.protocol.commands import Command, CommandReply
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.core.protocol.inputs import PeerRefused, ShutDown
from quorum.core.protocol.messages import EndQuorumEpochRequest, FetchRequest, PeerRequest, PeerResponse
from quorum.core.protocol.problem import ProblemCode, found
from quorum.core.roles import Transition
from quorum.core.state.node_state import TRANSITIONS_KEPT
from quorum.runtime.active.story import Told
from quorum.runtime.active.waiting_room import unknown_outcome
from quorum.runtime.callers import Callers
from quorum.runtime.commit_meter import CommitMeter
from quorum.runtime.disk.open_directory import Opened
from quorum.runtime.flusher import Flusher
from quorum.runtime.image.past_images import PastImages
from quorum.runtime.image.tree_reads import TreeRead, TreeReads
from quorum.runtime.inbox import ClientEvent, Inbox
from quorum.runtime.node import Node
from quorum.runtime.protocol.jobs import FlushJob, Job
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.peer_answers import answered, unanswered
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
from quorum.runtime.protocol.surroundings import Clock, Peers
from quorum.runtime.protocol.tree_question import TreeQuestion
from quorum.runtime.protocol.world import (
    Answer,
    BrokerFetch,
    Event,
    JobDone,
    KeepAlive,
    LocalRead,
    RaftRequest,
    Read,
    ReplyTo,
    SkipWanted,
    SnapshotWanted,
    Submission,
    Tick,
)
from quorum.runtime.status import node_status
from quorum.runtime.turn_timer import TurnTimer
from quorum.runtime.watched_log import NodeWatchedLog
from quorum.runtime.worker import FOLLOWER_REST_S, NEW_EPOCH_REST_S, REST_S, Worker
from snapshots.history.wanted import Wanted
from snapshots.store import PositionOutOfRange, SnapshotInfo, SnapshotNotFound

logger = logging.getLogger(__name__)

T = TypeVar("T")

STALL_MS = 500
"""How many milliseconds late a turn must be to show that the process was paused. Each broker's session is extended by the
delay."""
SHUTTING_DOWN = "this controller is shutting down; nothing was done, ask another controller"
RESIGN_GRACE_MS = 500
"""How long a leader that stops waits for the other voters to hear of its resignation."""


class NodeLoop:
    """A running controller. All its code runs on the event loop's thread, except jobs."""

    def __init__(self, opened: Opened, config: NodeConfig, peers: Peers, clock: Clock, rng: random.Random) -> None:
        self._opened = opened
        self._peers = peers
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._callers = Callers()
        self._scheduled = False
        self._left = False
        self._tell_transition: Callable[[Transition], None] | None = None
        self._tell_happening: Callable[[Told], None] | None = None
        self._outside: list[tuple[ProblemCode, Callable[[], str]]] = []
        self._farewells: set[asyncio.Future[None]] = set()
        self._worker = Worker(
            clock,
            lambda job, seconds: self.tallies.count_job(job, seconds),
            self._post,
            self._load_rest_s,
        )
        self._flusher = Flusher(self._worker.run, lambda: self._loop.call_soon_threadsafe(self._schedule))
        metadata = opened.snapshotter.store.directory
        self._past = PastImages(metadata, config.past, clock.elapsed_us)
        self._tree = TreeReads(metadata, self._past, clock.elapsed_us)
        self.stopped: asyncio.Future[str] = self._loop.create_future()
        """Resolved with the reason when the node cannot go on."""
        self.node = Node(opened, config, self, rng, clock.now_ms(), clock.wall_ms())
        self.tallies = self.node.tallies
        self.watched = NodeWatchedLog(self.node, self._refusal)
        self._inbox = Inbox(self.node, clock, self._flusher.ended)
        self._timer = TurnTimer(clock, self.node.next_deadline_ms, lambda: self._post(Tick()))
        self._commit_meter = CommitMeter(self.tallies.commit_seconds)
        self._transitions: deque[Transition] = deque(maxlen=TRANSITIONS_KEPT)
        """Changes of role that have not been passed to a listener yet."""
        self._check_quorum_ms = config.raft.check_quorum_ms
        self._voters, self._leader_id = self.node.core.voters, self.node.core.leader_id
        peers.set_endpoints(self.node.addresses.endpoints(), self.node.addresses.last_named_leader())
        peers.on_peer_refused(lambda node_id: self._post(PeerRefused(node_id)))

    async def start(self) -> None:
        """Starts the node: from now on it votes, and looks for a leader."""
        self.node.start(self._clock.now_ms(), self._clock.wall_ms())
        self._post(Tick())

    async def stop(self) -> None:
        """Stops the node in order: a leader resigns, jobs end, and the directory is unlocked."""
        if self.node.stopped is None:
            self._post(ShutDown())
            await self._said_farewell()
        # The server may still be up, so that controllers that know of the resignation get an answer. From here on the node
        # takes no event: the directory is about to belong to another process.
        self._left = True
        self.watched.tell()
        self._timer.cancel()
        self._callers.refuse_all(Refused(ErrorCode.NOT_CONTROLLER, SHUTTING_DOWN, self.leader_hint()))
        await self._peers.close()
        await asyncio.to_thread(self._flusher.stop)
        await self._worker.stop()
        await self._tree.stop()
        await self._past.stop()
        self._opened.log.close()
        self._opened.directory.unlock()

    async def _said_farewell(self) -> None:
        """Waits until a leader has resigned, and until each other voter has heard of the resignation or is out of reach."""
        await asyncio.sleep(0)
        while self._scheduled:
            await asyncio.sleep(0)
        if self._farewells:
            await asyncio.wait(self._farewells, timeout=RESIGN_GRACE_MS / 1_000)

    # --- asked by gRPC ---------------------------------------------------------------------------------------------

    async def raft(self, request: PeerRequest) -> PeerResponse:
        began_us = self._clock.elapsed_us()
        answer = await self._ask(lambda reply_to: RaftRequest(request, reply_to))
        assert isinstance(answer, PeerResponse)
        if isinstance(request, FetchRequest):
            self.tallies.fetch_seconds.observe((self._clock.elapsed_us() - began_us) / 1e6, "voter")
        return answer

    async def submit(self, command: Command, timeout_ms: int, identity: RequestIdentity | None = None) -> CommandReply:
        deadline_ms = self._clock.now_ms() + timeout_ms
        answer = await self._ask(lambda reply_to: Submission(command, reply_to, deadline_ms, identity))
        assert isinstance(answer, CommandReply)
        return answer

    def begin(
        self,
        command: Command,
        timeout_ms: int,
        on_outcome: Callable[[CommandReply | Refused], None],
        identity: RequestIdentity | None = None,
    ) -> None:
        def answered(answer: Answer) -> None:
            assert isinstance(answer, CommandReply | Refused)
            on_outcome(answer)

        refusal = self._refusal() or self._callers.too_many()
        if refusal is not None:
            return on_outcome(refusal)
        reply_to = self._callers.add(answered)
        return self._post(Submission(command, reply_to, self._clock.now_ms() + timeout_ms, identity))

    async def metadata_fetch(self, fetch: MetadataFetch) -> MetadataFetched:
        began_us = self._clock.elapsed_us()
        answer = await self._ask(lambda reply_to: BrokerFetch(fetch, reply_to))
        assert isinstance(answer, MetadataFetched)
        self.tallies.fetch_seconds.observe((self._clock.elapsed_us() - began_us) / 1e6, "broker")
        return answer

    async def keep_alive(self, sessions: tuple[SessionName, ...]) -> SessionsKept:
        answer = await self._ask(lambda reply_to: KeepAlive(sessions, reply_to))
        assert isinstance(answer, SessionsKept)
        return answer

    async def read(self, view: Callable[[ReadView], T], timeout_ms: int) -> T:
        deadline_ms = self._clock.now_ms() + timeout_ms
        answer = await self._ask(lambda reply_to: Read(reply_to, deadline_ms))
        assert isinstance(answer, ReadView)
        return view(answer)

    async def read_local(self, view: Callable[[ReadView], T], at_least: Offset, timeout_ms: int) -> T:
        deadline_ms = self._clock.now_ms() + timeout_ms
        answer = await self._ask(lambda reply_to: LocalRead(at_least, reply_to, deadline_ms))
        assert isinstance(answer, ReadView)
        return view(answer)

    async def past_image(self, wanted: Wanted, committed_end: Offset, timeout_ms: int) -> MetadataImage:
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        return await self._past.image(wanted, committed_end, timeout_ms)

    def read_tree(self, asked: TreeQuestion, encode: Callable[[Row], tuple[T, int]]) -> TreeRead[T]:
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        return self._tree.open(asked, encode)

    async def skip_batch(self, request: SkipRequest, timeout_ms: int) -> BatchSkipped:
        deadline_ms = self._clock.now_ms() + timeout_ms
        answer = await self._ask(lambda reply_to: SkipWanted(request, reply_to, deadline_ms))
        assert isinstance(answer, BatchSkipped)
        return answer

    async def create_snapshot(self, reason: str, timeout_ms: int) -> Offset:
        deadline_ms = self._clock.now_ms() + timeout_ms
        answer = await self._ask(lambda reply_to: SnapshotWanted(reason, reply_to, deadline_ms))
        assert isinstance(answer, SnapshotMarked)
        return answer.offset

    def status(self) -> NodeStatus:
        return node_status(self.node, self._clock.now_ms(), found(*((code, text()) for code, text in self._outside)))

    def add_problem(self, code: ProblemCode, text: Callable[[], str]) -> None:
        """Adds a problem outside of the node, such as a certificate's. `text` returns an empty text while all is well."""
        self._outside.append((code, text))

    async def restart_advice(self, node_id: NodeId) -> RestartAdvice:
        advice = self._restart_advice(node_id)
        if not advice.can_restart:
            return advice
        await asyncio.sleep(self._check_quorum_ms / 1_000)
        return self._restart_advice(node_id)

    def _restart_advice(self, node_id: NodeId) -> RestartAdvice:
        keeps = self.node.core.keeps_majority_without({node_id})
        return restart_advice(self.status(), node_id, keeps, self._check_quorum_ms)

    def on_transition(self, listener: Callable[[Transition], None]) -> None:
        self._tell_transition = listener
        self._tell_transitions()

    def _tell_transitions(self) -> None:
        for change in self.node.core.take_transitions():
            self.tallies.count_transition(change)
            self._transitions.append(change)
        if self._tell_transition is not None:
            for change in self._transitions:
                self._tell_transition(change)
            self._transitions.clear()

    def on_happening(self, listener: Callable[[Told], None]) -> None:
        self._tell_happening = listener
        self._tell_happenings()

    def _tell_happenings(self) -> None:
        if self._tell_happening is not None:
            for told in self.node.active.story.take():
                self._tell_happening(told)

    def leader_hint(self) -> LeaderHint:
        return self.node.addresses.leader_hint(self._clock.now_ms())

    def named_leader(self) -> LeaderHint:
        return self.node.addresses.named_leader()

    def read_snapshot_chunk(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes]:
        try:
            return self.node.snapshotter.store.read_chunk(snapshot, position, max_bytes)
        except SnapshotNotFound as e:
            raise Refused(ErrorCode.SNAPSHOT_NOT_FOUND, str(e)) from e
        except PositionOutOfRange as e:
            raise Refused(ErrorCode.POSITION_OUT_OF_RANGE, str(e)) from e

    def list_snapshots(self) -> tuple[SnapshotInfo, ...]:
        return self.node.snapshotter.store.list()

    async def _ask(self, event: Callable[[ReplyTo], Event]) -> Answer:
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        future: asyncio.Future[Answer] = self._loop.create_future()

        def answered(answer: Answer) -> None:
            if not future.done():
                future.set_result(answer)

        reply_to = self._callers.add(answered)
        asked = event(reply_to)
        too_many = self._callers.too_many() if isinstance(asked, ClientEvent) else None
        if too_many is not None:
            self._callers.forget(reply_to)
            raise too_many
        self._post(asked)
        try:
            answer = await future
        finally:
            self._callers.forget(reply_to)
        if isinstance(answer, Refused):
            raise answer
        return answer

    def _refusal(self) -> Refused | None:
        """The refusal of a node that takes no requests any more; None: the node takes them."""
        if self.node.stopped is not None:
            text = f"this controller has stopped ({self.node.stopped}); nothing was done, ask another controller"
            return Refused(ErrorCode.BROKER_NOT_AVAILABLE, text)
        if self._left:
            return Refused(ErrorCode.BROKER_NOT_AVAILABLE, SHUTTING_DOWN, self.leader_hint())
        return None

    # --- asked by the node (World) ---------------------------------------------------------------------------------

    def send(self, destination: NodeId, request: PeerRequest, timeout_ms: int) -> None:
        self._follow_voters()
        heard: asyncio.Future[None] | None = None
        if isinstance(request, EndQuorumEpochRequest):
            heard = self._loop.create_future()
            self._farewells.add(heard)

        def done(event: Event) -> None:
            if heard is not None and not heard.done():
                self._farewells.discard(heard)
                heard.set_result(None)
            self._post(event)

        self._peers.send(
            destination,
            request,
            timeout_ms,
            lambda response: done(answered(destination, request, response)),
            lambda failure: done(unanswered(destination, request, failure)),
        )

    def _follow_voters(self) -> None:
        """Passes changed addresses on at once, so that a new voter gets the messages of the same turn."""
        core = self.node.core
        if core.voters is not self._voters or core.leader_id != self._leader_id:
            self._voters, self._leader_id = core.voters, core.leader_id
            self._peers.set_endpoints(self.node.addresses.endpoints(), self.node.addresses.last_named_leader())

    def reply(self, reply_to: ReplyTo, answer: Answer) -> None:
        self._callers.answer(reply_to, answer)

    def start_job(self, job: Job) -> JobDone | None:
        if not isinstance(job, FlushJob):
            self._worker.start(job)
        elif self.node.core.is_leading:
            self._flusher.start(job)
        else:
            return self._worker.run(job)
        return None

    def _load_rest_s(self) -> float:
        if self.node.core.is_leading:
            return REST_S
        return FOLLOWER_REST_S if self.node.leader_has_written else NEW_EPOCH_REST_S

    def stop_node(self, reason: str) -> None:
        # A waiting command may have been appended, and the other controllers may commit it: a plain refusal would be wrong.
        self._callers.refuse_all(unknown_outcome(f"this controller has stopped: {reason}"))
        self.watched.tell()
        if not self.stopped.done():
            self.stopped.set_result(reason)

    # --- turns -----------------------------------------------------------------------------------------------------

    def _post(self, event: Event) -> None:
        if self._inbox.add(event):
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self._left:
            return
        try:
            self._take_turn()
        except Exception as e:  # a broken assertion: the node's state may be half changed (R16)
            logger.exception("a turn failed by an internal error (please report)")
            self.node.stop(f"internal error, please report it: {e!r}")

    def _take_turn(self) -> None:
        node, now_ms = self.node, self._clock.now_ms()
        late_ms = self._timer.late_ms(now_ms)
        if late_ms > STALL_MS and node.active.on:
            node.active.controller.credit(late_ms)
        began_us = self._clock.cpu_us()
        node.turn(self._inbox.take(began_us), now_ms, self._clock.wall_ms())
        self._tell_transitions()
        self._tell_happenings()
        self._commit_meter.note(node.active.on, node.log.end, node.state.applied, self._clock.elapsed_us())
        self.watched.tell()
        self.tallies.turn_seconds.observe((self._clock.cpu_us() - began_us) / 1e6)
        if node.stopped is not None:
            self._timer.cancel()
            return
        self._follow_voters()
        self._flusher.wake_up_for_next = self._inbox.awaits_flush
        if node.has_more_to_do or self._inbox.needs_turn:
            self._schedule()
        self._timer.turn_ended(now_ms)
