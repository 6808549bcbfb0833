"""A simulated controller process: the real node over a forgetful disk, a virtual clock and a network that lies."""

import json
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from metadata_log.errors import ErrorCode
from metadata_log.identity import Identity
from metadata_log.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from metadata_log.log import Log
from quorum.core.inputs import Failure
from quorum.core.messages import Request
from quorum.core.raft import RaftCore
from quorum.core.roles import Role
from quorum.runtime.election_file import FILE_NAME
from quorum.runtime.jobs import FlushJob, Job, LoadSnapshotJob, WriteSnapshotJob
from quorum.runtime.node import Node
from quorum.runtime.node_config import NodeConfig
from quorum.runtime.opening import LOG_DIRECTORY, open_directory
from quorum.runtime.requests import Refused
from quorum.runtime.world import Answer, Event, JobDone, PeerGone, RaftFailure, RaftRequest, RaftResponse, ReplyTo, Tick
from snapshots.format import snapshot_name
from tests.sim.disk import MemoryDirectory, PowerCut

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

LETTERS = {
    Role.UNATTACHED: "u",
    Role.PROSPECTIVE: "p",
    Role.CANDIDATE: "c",
    Role.LEADER: "L",
    Role.FOLLOWER: "f",
    Role.RESIGNED: "r",
}
SNAPSHOT_BYTES_MAX = 64 << 20


class SimController:
    """One controller: up or down, awake or paused. Implements the node's `World`."""

    def __init__(self, cluster: "Cluster", identity: Identity, disk: MemoryDirectory, config: NodeConfig) -> None:
        self.cluster = cluster
        self.identity = identity
        self.node_id: NodeId = identity.node_id
        self.name = f"c{identity.node_id}"
        self.disk = disk
        self.node: Node | None = None
        self.boot = 0
        self.paused = False
        self.durable_end_at_crash: Offset = 0
        self.durable_chain_at_crash = b""
        self._config = config
        self._rng = random.Random(cluster.rng.random())
        self._replies: dict[ReplyTo, Callable[[Answer], None]] = {}
        self._last_reply_to = 0
        self._asleep: list[Event] = []
        self._timer = 0
        self._election: tuple[bytes, Epoch] = (b"", 0)
        self._wall_offset_ms = 0
        self._crash_countdown: int | None = None

    # --- looking in ------------------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return self.node is not None

    @property
    def core(self) -> RaftCore:
        assert self.node is not None
        return self.node.core

    @property
    def log(self) -> Log:
        assert self.node is not None
        return self.node.log

    @property
    def metadata(self) -> MemoryDirectory:
        return self.disk.subdirectory(LOG_DIRECTORY)

    def durable_epoch(self) -> Epoch:
        """The epoch in quorum-state, as programs would read it now."""
        if not self.disk.exists(FILE_NAME):
            return 0
        data = self.disk.read(FILE_NAME, 4_096)
        if data != self._election[0]:
            self._election = (data, int(json.loads(data)["state"]["epoch"]))
        return self._election[1]

    def shape_truncated_below(self, offset: Offset) -> bool:
        return self.log.shape.end < offset

    def holds_durably(self, offset: Offset, chain: bytes | None) -> bool:
        """Whether the history up to `offset` is on this node's disk, up or down."""
        if self.node is None:
            if self.durable_end_at_crash == offset:
                return self.durable_chain_at_crash == chain
            return self.durable_end_at_crash > offset
        shape = self.log.shape
        if shape.start.offset > offset:
            return True
        return shape.flushed_end >= offset and self.log.chain_at(offset) == chain

    def snapshot_bytes(self, end: OffsetAndEpoch) -> bytes:
        return self.metadata.read(snapshot_name(end), SNAPSHOT_BYTES_MAX)

    def describe(self) -> str:
        if self.node is None:
            return f"{self.name} X {'':<21}"
        core, shape = self.core, self.log.shape
        letter = LETTERS[core.role] if not self.paused else "z"
        watermark = "?" if core.high_watermark is None else core.high_watermark
        text = f"{self.name} {letter} e{core.epoch} [{shape.start.offset},{shape.end}) f{shape.flushed_end} hw{watermark}"
        return f"{text:<27.27}"

    # --- life ------------------------------------------------------------------------------------------------------

    def boot_up(self) -> None:
        """Starts the process on whatever its disk holds."""
        assert self.node is None
        self.boot += 1
        self.paused = False
        self._replies.clear()
        self._asleep.clear()
        self._crash_countdown = None
        opened = open_directory(self.disk, self.identity, self._config)
        self.node = Node(opened, self._config, self, self._rng, self.now_ms(), self.wall_ms())
        self.cluster.laws.restarted(self)
        self._during(lambda node: node.start(self.now_ms(), self.wall_ms()), "start")

    def crash(self, *, power_cut: bool) -> None:
        """The process is gone. With a power cut, the disk forgets what it may."""
        if self.node is None:
            return
        shape = self.log.shape
        self.durable_end_at_crash = shape.flushed_end
        self.durable_chain_at_crash = shape.flushed_chain
        unflushed = shape.end > shape.flushed_end
        self.node = None
        if power_cut:
            self.cluster.coverage["power cut"] += 1
            self.disk = self.disk.crash(self.cluster.rng)
            if unflushed:
                self.cluster.coverage["lost unflushed records"] += 1
        else:
            self.disk.kill()
        self._replies.clear()

    def crash_soon(self, rng: random.Random) -> None:
        """The power goes in the middle of one of the next turns: at a change of the disk, or between two effects."""
        if rng.random() < 0.5:
            self.disk.cut_power_after(rng.randint(1, 30))
        else:
            self._crash_countdown = rng.randint(1, 30)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """What has come in meanwhile is waiting, and is taken before any timer."""
        self.paused = False
        asleep, self._asleep = self._asleep, []
        if self.node is not None:
            self._during(lambda node: node.turn([*asleep, Tick()], self.now_ms(), self.wall_ms()), "wakes up")

    def step_wall_clock(self, by_ms: int) -> None:
        self._wall_offset_ms += by_ms

    def now_ms(self) -> int:
        return int(self.cluster.now_ms)

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.cluster.now_ms) + self._wall_offset_ms

    # --- events ----------------------------------------------------------------------------------------------------

    def ask(self, make: Callable[[ReplyTo], Event], on_answer: Callable[[Answer], None], what: str) -> None:
        """Somebody's request has arrived here."""
        if self.node is None:
            return
        self._last_reply_to += 1
        self._replies[self._last_reply_to] = on_answer
        self.deliver(make(self._last_reply_to), what)

    def deliver(self, event: Event, what: str) -> None:
        if self.node is None:
            return
        if self.paused:
            self._asleep.append(event)
            return
        self._during(lambda node: node.turn([event], self.now_ms(), self.wall_ms()), what)

    def _during(self, act: Callable[[Node], None], what: str) -> None:
        node = self.node
        assert node is not None
        try:
            act(node)
        except PowerCut:
            self.cluster.coverage["crash inside a turn"] += 1
            self.crash(power_cut=True)
            self.cluster.restart_later(self)
            self.cluster.picture.add(self.cluster.now_ms, self.name, f"{what}: power cut inside", self.cluster.controllers)
            return
        self.cluster.after_event(self, what)
        if self.node is not None:
            self._arm()

    def _arm(self) -> None:
        assert self.node is not None
        deadline_ms = self.node.next_deadline_ms()
        self._timer += 1
        if deadline_ms is None:
            return
        timer, boot = self._timer, self.boot

        def fire() -> None:
            if self.boot == boot and self._timer == timer and not self.paused:
                self.deliver(Tick(), "timer")

        self.cluster.schedule(max(0.0, deadline_ms - self.cluster.now_ms) + 0.01, fire, "timer")

    def _count_down(self) -> None:
        if self._crash_countdown is not None:
            self._crash_countdown -= 1
            if self._crash_countdown <= 0:
                raise PowerCut

    # --- World -----------------------------------------------------------------------------------------------------

    def send(self, destination: NodeId, request: Request, timeout_ms: int) -> None:
        self._count_down()
        self.cluster.laws.about_to_send(self, request)
        peer = self.cluster.controller(destination)
        boot = self.boot
        settled = False
        what = type(request).__name__.removesuffix("Request").lower()

        def fail(failure: Failure) -> None:
            nonlocal settled
            if not settled and self.boot == boot:
                settled = True
                self.deliver(RaftFailure(destination, request, failure), f"{what} to {peer.name} {failure.value}")
                if failure is Failure.REFUSED and self.cluster.rng.random() < 0.8:
                    self.deliver(PeerGone(destination), f"{peer.name} is gone")

        def respond(answer: Answer) -> None:
            nonlocal settled
            if self.boot != boot:
                return
            settled = True
            if isinstance(answer, Refused):
                raise AssertionError(f"a voter's request is answered, not refused: {answer}")
            self.deliver(RaftResponse(destination, request, answer), f"{what} answer {peer.name}>{self.name}")  # type: ignore[arg-type]

        def arrive() -> None:
            if not peer.is_up:
                self.cluster.network.carry(peer.name, self.name, lambda: fail(Failure.REFUSED), "refused")
                return
            peer.ask(
                lambda reply_to: RaftRequest(request, reply_to),
                lambda answer: self.cluster.network.carry(peer.name, self.name, lambda: respond(answer), what),
                f"{what} {self.name}>{peer.name}",
            )

        self.cluster.network.carry(self.name, peer.name, arrive, what)
        self.cluster.schedule(timeout_ms, lambda: fail(Failure.TIMED_OUT), "timeout")

    def reply(self, reply_to: ReplyTo, answer: Answer) -> None:
        self._count_down()
        self.cluster.laws.about_to_reply(self)
        on_answer = self._replies.pop(reply_to, None)
        assert on_answer is not None, f"{self.name} answers {reply_to} twice, or nobody"
        on_answer(answer)

    def start_job(self, job: Job) -> None:
        self._count_down()
        rng, options, boot = self._rng, self.cluster.options, self.boot
        run_after = rng.uniform(0.05, options.flush_max_ms if isinstance(job, FlushJob) else 50.0)

        def run() -> None:
            if self.boot != boot or self.node is None:
                return
            try:
                done = _run(job)
            except PowerCut:
                self.crash(power_cut=True)
                self.cluster.restart_later(self)
                return
            self.cluster.schedule(rng.uniform(0.0, 0.5), lambda: self._job_done(done, boot), "job")

        self.cluster.schedule(run_after, run, "job")

    def _job_done(self, done: JobDone, boot: int) -> None:
        if self.boot != boot:
            return
        if isinstance(done.job, WriteSnapshotJob):
            self.cluster.coverage["snapshot written"] += 1
        if isinstance(done.job, LoadSnapshotJob) and done.job.install and done.error is None:
            self.cluster.coverage["snapshot installed by a controller"] += 1
        self.deliver(done, type(done.job).__name__)

    def stop_node(self, reason: str) -> None:
        raise AssertionError(f"{self.name} stopped itself: {reason}")


def _run(job: Job) -> JobDone:
    try:
        job.run()
    except Exception as e:  # as in production, the node judges what a job died of
        return JobDone(job, e)
    return JobDone(job)


def may_have_happened(refused: Refused) -> bool:
    """Whether the refusal leaves the outcome open."""
    return refused.code is ErrorCode.REQUEST_TIMED_OUT
