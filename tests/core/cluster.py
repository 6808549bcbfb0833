"""A quorum of cores in memory: virtual time, a network with cuts, disks without unflushed records after a crash.

Everything runs in one thread and in one order, so a run depends only on its commands. After every event the cluster
checks the laws between nodes (`_check_laws`).
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

from metadata_log.format.errors import ErrorCode
from metadata_log.format.fetch_size import as_asked
from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from metadata_log.format.records import Endpoint, Voter, Voters
from quorum.core.protocol.config import RaftConfig
from quorum.core.protocol.disk_trust import FULL, DiskTrust, Lost
from quorum.core.protocol.effects import (
    AppendBatches,
    AppendControl,
    Effect,
    ElectionState,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeadershipChanged,
    ReadsConfirmed,
    RefuseFailed,
    Reply,
    ReplyWithBatches,
    ReplyWithChunk,
    SaveElectionState,
    SendRequest,
    StopNode,
    TruncateLog,
    WriteSnapshotChunk,
)
from quorum.core.protocol.inputs import (
    AnswerRefused,
    Appended,
    ConfirmReads,
    Failure,
    Flushed,
    Input,
    LogStartMoved,
    PeerRefused,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    ShutDown,
    SnapshotInstalled,
    TimerFired,
    Truncated,
)
from quorum.core.protocol.messages import (
    AddVoterRequest,
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
    QuorumChangeRequest,
    QuorumChangeResponse,
    RemoveVoterRequest,
    Request,
    Response,
    TransferLeadershipRequest,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
    place_of,
)
from quorum.core.protocol.voters import VoterHistory
from quorum.core.raft import RaftCore
from quorum.core.roles import Role
from tests.core.fake_log import FakeLog
from tests.core.following.slow_link import SlowLink

LATENCY_MS = 1
FLUSH_MS = 1
SNAPSHOT_BYTES = 250
OPERATOR = 0
"""The sender of requests to change the voters; no node has this id."""


def directory(node_id: NodeId, generation: int = 0) -> bytes:
    return bytes([generation, *([0] * 14), node_id])


def voter(node_id: NodeId, generation: int = 0) -> Voter:
    return Voter(node_id, directory(node_id, generation), (Endpoint("CONTROLLER", f"c{node_id}", 9093),))


def voters_of(*node_ids: NodeId) -> Voters:
    return Voters(tuple(voter(node_id) for node_id in node_ids))


@dataclass
class Snapshot:
    """The contents of a snapshot file, as far as these tests need them."""

    chain: bytes
    voters: Voters


@dataclass
class Node:
    """One core with its disk. `core` is None while the process is down."""

    cluster: "Cluster"
    key: ReplicaKey
    log: FakeLog = field(default_factory=FakeLog)
    election: ElectionState = field(default_factory=lambda: ElectionState(0, None, None))
    core: RaftCore | None = None
    boot: int = 0
    bootstrap: Voters = field(default_factory=lambda: Voters(()))
    snapshots: dict[OffsetAndEpoch, Snapshot] = field(default_factory=dict)
    flush_held: bool = False
    flushing: bool = False
    paused: bool = False
    waiting: list[Input] = field(default_factory=list)
    """The inputs received while the node was paused, to be processed on resuming."""
    stopped: str | None = None
    endpoints: tuple[Endpoint, ...] = ()
    """The node's own endpoints, as configured."""
    disk_trust: DiskTrust = FULL
    """The disk trust at the next start."""
    part: int = 0
    """The downloaded bytes of a snapshot."""
    high_watermark: Offset = 0
    checked: Offset = 0
    """The committed log below was already compared with all other nodes' logs."""
    confirmed: list[int] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    asked: dict[int, tuple[NodeId, int, Request]] = field(default_factory=dict)
    """reply_to -> (sender, the sender's boot number, request)."""

    @property
    def id(self) -> NodeId:
        return self.key.node_id

    @property
    def up(self) -> RaftCore:
        assert self.core is not None, f"node {self.id} is down"
        return self.core

    def boot_up(self) -> None:
        assert self.core is None
        self.boot += 1
        self.asked.clear()
        self.checked = 0
        self.waiting.clear()
        self.paused, self.flushing, self.part, self.stopped, self.high_watermark = False, False, 0, None, 0
        bootstrap = self.bootstrap
        if self.log.snapshot is not None:
            bootstrap = self.snapshots[self.log.snapshot].voters
        self.core = RaftCore(
            me=self.key,
            config=self.cluster.config,
            election=self.election,
            shape=self.log.shape(),
            voters=VoterHistory(bootstrap, self.log.voter_records()),
            rng=random.Random(self.cluster.seed * 1000 + self.id * 10 + self.boot),
            now_ms=self.cluster.now_ms,
            my_endpoints=self.endpoints,
            disk_trust=self.disk_trust,
        )
        self.perform(self.core.start(self.cluster.now_ms))

    def lie(self, offset: Offset) -> None:
        """Gives this node's log another history from `offset` on, consistent in itself."""
        self.log.rewrite(offset)
        self.feed(LogStartMoved(self.log.shape()))

    def lose_tail(self, end: Offset) -> None:
        """Removes the durable records from `end` on from a stopped node's disk.

        The node starts with a note of the loss.
        """
        assert self.core is None
        known = self.disk_trust.lost
        lost = Lost(max(self.log.end, known.end if known else 0), self.election.epoch)
        self.disk_trust = self.disk_trust._replace(lost=lost)
        self.log.truncate(end)

    @property
    def owed_end(self) -> Offset:
        """The end of the records the node holds durably, or held until its disk lost them."""
        disk_trust = self.disk_trust if self.core is None else self.core.disk_trust
        return max(self.log.flushed_end, disk_trust.lost.end if disk_trust.lost else 0)

    def crash(self) -> None:
        if self.core is not None:
            self.disk_trust = self.core.disk_trust
        self.log.crash()
        self.core = None

    def feed(self, event: Input) -> None:
        if self.core is None:
            return
        self.perform(self.core.step(event, self.cluster.now_ms))

    def perform(self, effects: list[Effect]) -> None:
        """Carries out effects in order and depth first: all consequences of a log effect come before the next effect."""
        assert self.core is not None
        for effect in effects:
            self._perform(effect)
        self.core.check_invariants()

    def _perform(self, effect: Effect) -> None:
        log = self.log
        match effect:
            case SaveElectionState(state=state):
                assert state.epoch >= self.election.epoch, "the durable epoch falls (R3)"
                if state.epoch == self.election.epoch and self.election.voted_for is not None:
                    assert state.voted_for == self.election.voted_for, "a second vote (R2)"
                self.election = state
            case SendRequest(destination=destination, request=request, timeout_ms=timeout_ms):
                self.cluster.send(self, destination, request, timeout_ms)
            case Reply(reply_to=reply_to, response=response):
                self.cluster.answer(self, reply_to, response)
            case ReplyWithBatches(reply_to, response, offset, max_bytes, part_position):
                batches, part = as_asked(log.read(offset, max_bytes), max_bytes, part_position)
                self.cluster.answer(self, reply_to, response._replace(batches=batches, part=part))
            case ReplyWithChunk():
                self._send_chunk(effect)
            case AppendBatches(batches=batches) if not log.is_continued_by(batches):
                self.feed(AnswerRefused("another chain"))
            case AppendBatches(batches=batches):
                end = log.end
                log.append_batches(batches)
                self.feed(Appended(log.shape(), log.voter_records(end)))
                self.want_flush()
            case AppendControl(epoch=epoch, record=record):
                self.append(epoch, record)
            case TruncateLog(end=end):
                self.note(f"truncates {log.end} -> {end}")
                log.truncate(end)
                self.feed(Truncated(log.shape()))
            case WriteSnapshotChunk(position=position, data=data):
                assert position in (0, self.part), "a hole in the snapshot"
                self.part = position + len(data)
            case InstallSnapshot(snapshot=snapshot):
                assert self.part == self.cluster.snapshot_bytes
                if self.cluster.install_ms:
                    self.cluster.later(self.cluster.install_ms, partial(self._installed, snapshot, self.boot))
                else:
                    self._installed(snapshot, self.boot)
            case LeadershipChanged(epoch=epoch, leader_id=leader_id, leading=leading):
                self.note(f"e{epoch} leads" if leading else f"e{epoch} leader {leader_id}")
            case HighWatermarkAdvanced(high_watermark=high_watermark):
                assert high_watermark > self.high_watermark, "the high watermark falls (R9)"
                self.high_watermark = high_watermark
                self.note(f"hw {high_watermark}")
            case ReadsConfirmed(token=token):
                self.confirmed.append(token)
                self.note(f"reads confirmed {token}")
            case RefuseFailed(error=error):
                raise error
            case StopNode(reason=reason):
                self.stopped = reason
                self.note(f"STOPS: {reason}")
            case _:
                assert_never(effect)

    def append(self, epoch: Epoch, record: object = None) -> None:
        end = self.log.end
        self.log.append(epoch, record)  # type: ignore[arg-type]
        self.feed(Appended(self.log.shape(), self.log.voter_records(end)))
        self.want_flush()

    def want_flush(self) -> None:
        if not self.flush_held and not self.flushing:
            self.flushing = True
            boot = self.boot
            self.cluster.later(FLUSH_MS, lambda: self._flushed(boot))

    def _flushed(self, boot: int) -> None:
        if boot != self.boot or self.core is None:
            return
        self.flushing = False
        if not self.flush_held and self.log.flushed_end < self.log.end:
            self.log.flush()
            self.feed(Flushed(self.log.shape()))

    def _send_chunk(self, effect: ReplyWithChunk) -> None:
        response = effect.response
        whole = self.cluster.snapshot_bytes
        size = min(self.cluster.chunk_bytes, effect.max_bytes, whole - response.position)
        if effect.snapshot in self.snapshots and size >= 0:
            response = replace(response, size=whole, data=bytes(size))
        else:
            response = replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        self.cluster.answer(self, effect.reply_to, response)

    def _installed(self, snapshot: OffsetAndEpoch, boot: int) -> None:
        """Takes the contents from a node with the snapshot. The downloaded bytes are only counted."""
        if boot != self.boot or self.core is None:
            return
        content = next(node.snapshots[snapshot] for node in self.cluster.nodes.values() if snapshot in node.snapshots)
        self.snapshots[snapshot] = content
        self.log.install(snapshot, content.chain)
        self.note(f"installs {snapshot}")
        self.feed(SnapshotInstalled(self.log.shape(), content.voters))

    def take_snapshot(self, end: Offset) -> None:
        chain = self.log.chain_at(end)
        assert chain is not None and end <= min(self.high_watermark, self.log.flushed_end)
        voters = Voters(self.up.voter_history.at(end).voters)
        self.snapshots[self.log.take_snapshot(end)] = Snapshot(chain, voters)
        self.feed(LogStartMoved(self.log.shape()))

    def note(self, what: str) -> None:
        self.said.append(what)
        self.cluster.note(self, what)

    def describe(self) -> str:
        if self.core is None:
            return f"{self.id:<2} down"
        return self.core.describe()


class Cluster:
    """Nodes 1..n, all voters by default, and the network between them."""

    def __init__(
        self, count: int = 3, *, seed: int = 0, config: RaftConfig | None = None, observers: tuple[NodeId, ...] = ()
    ) -> None:
        self.seed = seed
        self.config = config or RaftConfig(watermark_linger_ms=0)
        self.now_ms = 1000
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._pending: dict[int, Callable[[Input], None]] = {}
        self.delays: Callable[[], list[int]] = lambda: [LATENCY_MS]
        """The delays of the copies of the next message. Empty: the message is lost."""
        self.cuts: set[tuple[NodeId, NodeId]] = set()
        self.events: list[str] = []
        self.links: dict[NodeId, SlowLink] = {}
        """The slow links over which some nodes receive answers."""
        self.snapshot_bytes, self.chunk_bytes = SNAPSHOT_BYTES, 100
        self.install_ms = 0
        self.traced = False
        self.leaders: dict[Epoch, NodeId] = {}
        self.committed: dict[Offset, bytes] = {}
        bootstrap = voters_of(*range(1, count + 1))
        self.nodes = {
            node_id: Node(self, ReplicaKey(node_id, directory(node_id)), bootstrap=bootstrap)
            for node_id in (*range(1, count + 1), *observers)
        }

    def boot_all(self) -> "Cluster":
        for node in self.nodes.values():
            node.boot_up()
        return self

    def __getitem__(self, node_id: NodeId) -> Node:
        return self.nodes[node_id]

    # --- time and messages ----------------------------------------------------------------------------------------

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._sequence, action))

    def note(self, node: Node, what: str) -> None:
        self.events.append(f"{self.now_ms - 1000:>6} {node.id} {what}")

    def trace(self, what: str) -> None:
        if self.traced:
            self.events.append(f"{self.now_ms - 1000:>6}   {what}")

    def is_cut(self, source: NodeId, destination: NodeId) -> bool:
        return (source, destination) in self.cuts

    def send(self, source: Node, destination: NodeId, request: Request, timeout_ms: int) -> None:
        boot, answered = source.boot, [False]

        def answer(event: Input) -> None:
            if not answered[0] and source.boot == boot:
                answered[0] = True
                self._feed(source, event)

        self._sequence += 1
        reply_to = self._sequence
        self._pending[reply_to] = answer
        self.trace(f"{source.id}->{destination} {summary(request)}")

        def arrive() -> None:
            target = self.nodes[destination]
            if self.is_cut(source.id, destination):
                return
            if target.core is None:
                answer(RequestFailed(destination, request, Failure.REFUSED))
                return
            target.asked[reply_to] = (source.id, boot, request)
            place = place_of(request)
            chain = None if place is None else target.log.chain_at(place)
            self._feed(target, RequestReceived(request, reply_to, chain))

        for delay_ms in self.delays():
            self.later(delay_ms, arrive)
        self.later(timeout_ms, lambda: answer(RequestFailed(destination, request, Failure.TIMED_OUT)))

    def answer(self, node: Node, reply_to: int, response: Response) -> None:
        if reply_to not in node.asked:
            return  # the second answer to a request received twice
        asker, _, request = node.asked.pop(reply_to)
        answer = self._pending[reply_to]
        self.trace(f"{asker}<-{node.id} {summary(response)}")

        def arrive() -> None:
            if not self.is_cut(node.id, asker):
                answer(ResponseReceived(node.id, request, response))

        link = self.links.get(asker)
        transmission_ms = 0 if link is None else link.transmission_ms(response, self.now_ms)
        for delay_ms in self.delays():
            self.later(delay_ms + transmission_ms, arrive)

    def _feed(self, node: Node, event: Input) -> None:
        if node.core is None or node.stopped is not None:
            return
        if node.paused:
            node.waiting.append(event)
            return
        node.feed(event)

    def run(self, duration_ms: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Lets `duration_ms` pass, or less if `until` becomes true. Returns True if `until` did."""
        end_ms = self.now_ms + duration_ms
        steps = 0
        while not until():
            timers = [
                (deadline_ms, node.id)
                for node in self.nodes.values()
                if node.core is not None
                and not node.paused
                and (deadline_ms := node.core.next_deadline_ms()) is not None
            ]
            timer_ms, timer_id = min(timers, default=(end_ms + 1, 0))
            event_ms = self._events[0][0] if self._events else end_ms + 1
            if min(timer_ms, event_ms) > end_ms:
                self.now_ms = end_ms
                return until()
            # Inputs come before timers: a busy node must not look dead.
            if event_ms <= timer_ms:
                self.now_ms, _, action = heapq.heappop(self._events)
                action()
            else:
                self.now_ms = max(self.now_ms, timer_ms)
                core = self.nodes[timer_id].up
                self.nodes[timer_id].feed(TimerFired())
                next_ms = core.next_deadline_ms()
                assert next_ms is None or next_ms > self.now_ms, f"a timer that stays due: {core.describe()}"
            self._check_laws()
            steps += 1
            assert steps < 200_000, "a busy loop"
        return True

    # --- faults ---------------------------------------------------------------------------------------------------

    def crash(self, node_id: NodeId, *, breaking: bool = True, refusing: bool = True) -> None:
        """Ends the process. If the machine lives, it breaks the connections and refuses new ones."""
        if breaking:
            for reply_to, (_, _, request) in list(self[node_id].asked.items()):
                self.later(
                    LATENCY_MS, partial(self._pending[reply_to], RequestFailed(node_id, request, Failure.BROKEN))
                )
        self[node_id].crash()
        for other in self.nodes.values():
            if refusing and other.core is not None and other.id != node_id:
                self.later(LATENCY_MS, lambda other=other: self._feed(other, PeerRefused(node_id)))  # type: ignore[misc]

    def resume(self, node_id: NodeId) -> None:
        """Continues a paused node: first the inputs received meanwhile, then the timers."""
        node = self[node_id]
        node.paused = False
        waiting, node.waiting = node.waiting, []
        for event in waiting:
            self._feed(node, event)

    def cut(self, *node_ids: NodeId) -> None:
        """Separates these nodes from all others."""
        for one in node_ids:
            for other in self.nodes:
                if other not in node_ids:
                    self.cuts |= {(one, other), (other, one)}

    def heal(self) -> None:
        self.cuts.clear()

    @property
    def leader(self) -> Node:
        """The leader of the highest epoch."""
        leading = [node for node in self.nodes.values() if node.core is not None and node.core.is_leading]
        assert leading, "nobody leads"
        return max(leading, key=lambda node: node.election.epoch)

    def elect(self, limit_ms: int = 5000) -> Node:
        """Runs until a leader has committed a record in its epoch."""
        assert self.run(limit_ms, until=self._has_working_leader), "no leader"
        return self.leader

    def _has_working_leader(self) -> bool:
        leading = [node for node in self.nodes.values() if node.core is not None and node.core.is_leading]
        if not leading:
            return False
        newest = max(leading, key=lambda node: node.election.epoch)
        return newest.up.high_watermark is not None

    def propose(self, node_id: NodeId, count: int = 1) -> None:
        node = self[node_id]
        for _ in range(count):
            assert node.up.is_leading, f"node {node_id} does not lead"
            node.append(node.up.epoch)

    def confirm_reads(self, node_id: NodeId, token: int) -> None:
        self[node_id].feed(ConfirmReads(token))

    def resign(self, node_id: NodeId) -> None:
        self[node_id].feed(Resign(self[node_id].up.epoch))

    def shut_down(self, node_id: NodeId) -> None:
        self[node_id].feed(ShutDown())

    def wish(self, node_id: NodeId, request: QuorumChangeRequest) -> list[QuorumChangeResponse]:
        """Sends an operator's request to node `node_id`. The answer is added to the list, and told to the watchers."""
        answers: list[QuorumChangeResponse] = []

        def hear(event: Input) -> None:
            if isinstance(event, ResponseReceived) and isinstance(event.response, QuorumChangeResponse):
                answers.append(event.response)
                self.note(self[node_id], f"answers {event.response.error.name}: {event.response.message}")

        self._sequence += 1
        self._pending[self._sequence] = hear
        self[node_id].asked[self._sequence] = (OPERATOR, 0, request)
        self._feed(self[node_id], RequestReceived(request, self._sequence))
        return answers

    # --- the laws -------------------------------------------------------------------------------------------------

    def _check_laws(self) -> None:
        for node in self.nodes.values():
            core = node.core
            if core is None:
                continue
            if core.role is Role.LEADER:
                assert self.leaders.setdefault(core.epoch, node.id) == node.id, (
                    f"two leaders in epoch {core.epoch} (R1)"
                )
            node.checked = max(node.checked, node.log.start.offset)
            while node.checked < min(node.high_watermark, node.log.end):
                batch = node.log.batch_at(node.checked)
                node.checked = batch.end_offset
                known = self.committed.setdefault(batch.base_offset, batch.chain)
                assert known == batch.chain, f"two histories at {batch.base_offset} (R13)"
            if core.is_leading and core.high_watermark is not None:
                # A majority of the latest set, or of the set before: any two majorities of both share a voter.
                sets = (core.voters, core.voter_history.at(core.high_watermark))
                holders = {n.key for n in self.nodes.values() if n.owed_end >= core.high_watermark}
                assert any(len(holders & set(voters.keys)) >= voters.majority for voters in sets), (
                    "the high watermark is not on a majority's disks (R11)"
                )


def summary(message: Request | Response) -> str:
    """A message in a few words, without fields which do not matter for the story."""

    def error(code: ErrorCode) -> str:
        return "" if code is ErrorCode.NONE else f" {code.name}"

    match message:
        case VoteRequest():
            kind = "pre-vote?" if message.pre_vote else "vote?"
            return f"{kind} e{message.epoch} log {message.end_offset}@{message.last_epoch}"
        case VoteResponse():
            return f"{'yes' if message.vote_granted else 'no'} e{message.epoch} leader {message.leader_id}{error(message.error)}"
        case BeginQuorumEpochRequest():
            return f"begin e{message.epoch}"
        case EndQuorumEpochRequest():
            return f"end e{message.epoch} successors {[key.node_id for key in message.preferred_successors]}"
        case BeginQuorumEpochResponse() | EndQuorumEpochResponse():
            return f"ok e{message.epoch}" if not message.error else f"e{message.epoch}{error(message.error)}"
        case FetchRequest():
            return f"fetch e{message.epoch} from {message.fetch_offset}@{message.last_fetched_epoch} hw {message.high_watermark}"
        case FetchResponse():
            what = (
                f"[{message.batches[0].base_offset},{message.batches[-1].end_offset})" if message.batches else "nothing"
            )
            what = f"diverging {message.diverging}" if message.diverging else what
            what = f"snapshot {message.snapshot}" if message.snapshot else what
            what = f"leader {message.leader_id}{error(message.error)}" if message.error else what
            return f"e{message.epoch} {what} hw {'-' if message.high_watermark is None else message.high_watermark}"
        case FetchSnapshotRequest():
            return f"snapshot {message.snapshot} from byte {message.position}"
        case FetchSnapshotResponse():
            return f"chunk {message.position}+{len(message.data)} of {message.size}{error(message.error)}"
        case ChainRequest():
            return f"chain at {message.offset}@{message.epoch}?"
        case ChainResponse(chain=chain):
            return f"chain {'unknown' if chain is None else chain.hex()[:8]}"
        case AddVoterRequest(voter=voter):
            return f"add voter {voter.node_id}"
        case RemoveVoterRequest(voter=replica):
            return f"remove voter {replica.node_id}"
        case UpdateVoterRequest(voter=voter):
            return f"update voter {voter.node_id}"
        case TransferLeadershipRequest(target=target):
            return f"transfer leadership to {target}"
        case QuorumChangeResponse():
            return f"e{message.epoch} {message.error.name.lower()}: {message.message}"
        case _:
            assert_never(message)
