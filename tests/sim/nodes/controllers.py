"""A simulated controller process: the real node over a forgetful disk, drifting clocks and a network that lies."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from metadata_log.disk.failures import FlushFailed
from metadata_log.disk.identity import Identity
from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.format.ids import NodeId, Offset, OffsetAndEpoch, ReplicaKey, Uuid
from metadata_log.format.records import RegisterController
from metadata_log.store.log import Log
from metadata_log.store.log_notes import Flushed
from metadata_log.store.segment import base_offset_of, segment_names
from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.inputs import Failure, PeerRefused
from quorum.core.protocol.messages import (
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PeerRequest,
    PeerResponse,
)
from quorum.core.raft import RaftCore
from quorum.runtime.disk import election_file
from quorum.runtime.disk.open_directory import LOG_DIRECTORY, open_directory
from quorum.runtime.inbox import ClientEvent
from quorum.runtime.node import Node
from quorum.runtime.protocol.jobs import FlushJob, Job, LoadSnapshotJob, ScrubJob, WriteSnapshotJob
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.peer_answers import answered, unanswered
from quorum.runtime.protocol.world import (
    Answer,
    BrokerFetch,
    Event,
    JobDone,
    LocalRead,
    RaftRequest,
    Read,
    ReplyTo,
    SkipWanted,
    SnapshotWanted,
    Submission,
    Tick,
)
from snapshots.format import snapshot_name
from tests.sim.laws import LawBroken, hold
from tests.sim.nodes.releases import Release
from tests.sim.world import rot
from tests.sim.world.clock import Clock
from tests.sim.world.disk import MemoryDirectory, PowerCut
from tests.sim.world.held import Held
from tests.sim.world.sizes import content_bytes

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

Make: TypeAlias = Callable[[ReplyTo, int], Event]
"""Makes the event of a request that has arrived, given whom to answer and this machine's time."""
OnAnswer: TypeAlias = Callable[[Answer], None]

SNAPSHOT_BYTES_MAX = 64 << 20
POWER_CUT_INSIDE_CHANCE = 0.6
"""Else only the process dies, in the middle of a turn, a job or its start; the page cache has what it had written."""
SLOW_DISK_MAX_MS = 900.0
SLOW_LOAD_MAX_MS = 6_000.0
"""So long a node may load its snapshot after a start, while its leader deletes the log behind that snapshot."""
HANG_LOOK_MS = 50.0
"""A flush that hangs looks so often whether its disk has recovered."""
TICK_WINDOW_MS = 200
TICKS_MAX = 4_000
ANSWER_SLACK_MS = 25.0
"""Later than this after its deadline, no answer counts as one in time."""


class _Asked(NamedTuple):
    """A request that waits for its answer."""

    event: Event
    on_answer: OnAnswer


class Process(NamedTuple):
    """One life of one controller."""

    node_id: NodeId
    boot: int


class SimController:
    """One controller: up or down, awake or paused. Implements the node's `World`."""

    def __init__(self, cluster: "Cluster", identity: Identity, disk: MemoryDirectory, config: NodeConfig) -> None:
        self.cluster = cluster
        self.node_id: NodeId = identity.node_id
        self._be(identity)
        self.name = f"c{identity.node_id}"
        self.disk = disk
        self.config = config
        self.node: Node | None = None
        self.boot = 0
        self.process = Process(self.node_id, 0)
        self.paused = False
        self.disk_is_bad = False
        """A flush was ordered to fail, or space is short: the node may have to stop itself."""
        self._has_rotted = False
        """A bit of its log has flipped, or a sector cannot be read any more, perhaps unseen so far."""
        self._excused_boot = 0
        """The life in which a job has met a bad disk: it stops when it hears of that, by when the disk may be well again."""
        self.disk_slow_until_ms = self.disk_hangs_until_ms = 0.0
        self.died: Held | None = None
        """The log as the last crash met it; None while there was none."""
        self._known_loss: Flushed | None = None
        """The loss that its log noted when this turn began. (The log forgets a repaired loss a little later than the core.)"""
        self.end_before: Offset = 0
        """The end of its log when this turn began."""
        self._release = Release(cluster, self.name)
        self._rng = random.Random(cluster.rng.random())
        self._loading = random.Random(f"{cluster.seed} {self.name} loads")
        self.clock = Clock(lambda: cluster.now_ms, self._rng, cluster.options.clock_drift)
        self._asked: dict[ReplyTo, _Asked] = {}
        self._last_reply_to = 0
        self._asleep: list[Event] = []
        self._naps = 0
        self._timer = 0
        self._ticked_ms = 0.0
        self._election = (b"", election_file.FIRST_STATE)
        self._crash_countdown: int | None = None
        self._stop_reason: str | None = None
        self._ticks = self._tick_window = 0

    # --- looking in ------------------------------------------------------------------------------------------------

    @property
    def registration(self) -> RegisterController:
        """What the log must say of it."""
        return RegisterController(*self.key, self.config.endpoints, self.config.features)

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

    def durable_election(self) -> ElectionState:
        """The content of quorum-state after a power cut."""
        data = self.disk.durable_bytes(election_file.FILE_NAME)
        if data is None:
            return election_file.FIRST_STATE
        if data != self._election[0]:
            copy = MemoryDirectory()
            copy.write_atomic(election_file.FILE_NAME, data)
            state = election_file.load(copy)
            assert state is not None
            self._election = (data, state)
        return self._election[1]

    @property
    def believed_high_watermark(self) -> Offset | None:
        """The high watermark that the core knows. A new leader does not tell it yet, but will act on it when it is deposed."""
        return self.core._state.known_high_watermark

    @property
    def held(self) -> Held | None:
        """Its log, up or as the last crash met it; None where that is not to be expected back."""
        return self.died if self.node is None else Held(self.log.shape, self.log.damage)

    def chain_at(self, offset: Offset) -> bytes | None:
        """The chain of its log there; None where that is no boundary, or rotten."""
        try:
            return self.log.chain_at(offset)
        except CorruptLog:
            return None

    def is_whole_since(self, boot: int) -> bool:
        """True if a later life than `boot` has read its whole log, and nothing of the log is missing now."""
        if self.node is None or self.boot <= boot:
            return False
        return not self.log.damage and self.log.lost is None

    def snapshot_bytes(self, end: OffsetAndEpoch) -> bytes:
        return self.metadata.read(snapshot_name(end), SNAPSHOT_BYTES_MAX)

    def log_is_durable(self) -> bool:
        """True if the whole log would survive a power cut.

        A segment that the disk had no room for may have left its file: it holds nothing, and begins where the log ends.
        """
        first, *others = segment_names(self.metadata)
        end = self.log.shape.end
        holding = [first, *(name for name in others if (base_offset_of(name) or 0) < end)]
        return all(self.metadata.is_durable(name) for name in holding)

    def log_is_applied(self) -> bool:
        return self.node is not None and self.node.state.applied == self.log.end

    def log_applied_end(self) -> Offset:
        """How far the records of this node are committed, durable and applied. The node is up."""
        assert self.node is not None
        return self.node.state.committed.offset

    def snapshot_is_durable(self, end: OffsetAndEpoch) -> bool:
        return self.metadata.is_durable(snapshot_name(end))

    # --- life ------------------------------------------------------------------------------------------------------

    def boot_up(self) -> None:
        """Starts the process on whatever its disk holds. The power may go while it does."""
        assert self.node is None
        self.boot += 1
        self.process = Process(self.node_id, self.boot)
        self.paused = False
        self.clock.reboot()
        self._asked.clear()
        self._asleep.clear()
        self._crash_countdown = None
        self._stop_reason = None
        self._release.restarted()
        self.config = self.config._replace(features=self._release.supported())
        try:
            opened = open_directory(self.disk, self.identity, self.config, lambda: self._rng.randbytes(16))
        except PowerCut:
            self.cluster.coverage["crash inside recovery"] += 1
            self._fall(power_cut=self._rng.random() < POWER_CUT_INSIDE_CHANCE)
            return
        except CorruptLog as e:
            raise LawBroken("D2 CrashIsNotCorruption", f"{self.name} does not start: {e}") from e
        except (OSError, FlushFailed) as e:
            hold(self.disk_is_bad, "R16 FailStop", f"{self.name} does not start on a healthy disk: {e}")
            self._fall(power_cut=True)
            return
        if opened.identity != self.identity:
            self._become(opened.identity)
        self.disk_is_bad = self.disk.has_orders
        self.node = Node(opened, self.config, self, self._rng, self.clock.now_ms(), self.clock.wall_ms())
        self.cluster.laws.quorum.restarted(self)
        self._during(lambda node: node.start(self.clock.now_ms(), self.clock.wall_ms()), "start")

    def crash(self, *, power_cut: bool) -> None:
        """The process is gone. With a power cut, the disk forgets what it may."""
        if self.node is not None:
            self.died = self.held
            is_new_loss = self.log.lost not in (None, self._known_loss)
            if is_new_loss and self.core.disk_trust.lost is None:
                self.cluster.laws.quorum.lost_end(self)  # it has just cut its log inside damage
            self._fall(power_cut=power_cut)

    def replace_disk(self, directory_id: Uuid) -> None:
        """Its disk is gone for good; it comes back with an empty one, as another replica.

        The voters that the cluster began with may all be gone, or be itself. So its configuration names the other controllers.
        """
        self.crash(power_cut=True)
        self.cluster.laws.quorum.gone_for_good(self)
        self._be(self.identity._replace(directory_id=directory_id))
        self.disk = self.cluster.formatted(self.node_id)
        others = tuple(each.node_id for each in self.cluster.controllers if each is not self)
        self.config = self.config._replace(raft=self.config.raft._replace(also_ask=others))
        self.died = None
        self._election = (b"", election_file.FIRST_STATE)

    def lose_vote(self, rng: random.Random) -> bool:
        """It crashes, and its quorum-state is lost or rots: it must come back as another replica. False if it has none yet."""
        self.crash(power_cut=True)
        name = election_file.FILE_NAME
        if self.disk.size(name) == 0:
            return False
        if rng.random() < 0.5:
            self.disk.remove(name)
        else:
            self.disk.flip_bit(name, rng.randrange(self.disk.size(name)), rng.randrange(8))
        return True

    def rot(self, rng: random.Random, *, sector: bool) -> bool:
        """A bit of its log rots, or a sector cannot be read any more; False if there is too little of that.

        While it is up, in a sealed segment, below what is committed.
        """
        rotten = rot.break_inside if sector else rot.flip_inside
        has_rotted: bool = rotten(
            self.metadata, rng, sealed_below=self.cluster.laws.history.end if self.is_up else None
        )
        self._has_rotted |= has_rotted
        return has_rotted

    def lose_end(self, rng: random.Random) -> bool:
        """While it is down, the end of what was durable is lost; False if there is none that can be."""
        died = self.died
        if died is None or not rot.mangle_end(self.metadata, rng):
            return False
        self.cluster.laws.quorum.lost_end(self)
        return True

    def _be(self, identity: Identity) -> None:
        self.identity = identity
        self.key = ReplicaKey(self.node_id, identity.directory_id)
        """Its key in a voter set: a node with another disk is another replica."""

    def _become(self, identity: Identity) -> None:
        """It has found that it is not the replica that it was."""
        self.cluster.laws.quorum.gone_for_good(self)
        self._be(identity)
        self.cluster.coverage["came back as another replica"] += 1

    def _fall(self, *, power_cut: bool) -> None:
        self.node = None
        self._asked.clear()
        what = "power cut" if power_cut else "kill"
        self.cluster.coverage[what] += 1
        self.cluster.draw(self, what)
        self.disk = self.disk.crash(self.cluster.rng) if power_cut else self.disk.kill()
        self.cluster.restart_later(self)

    def crash_soon(self, rng: random.Random, within: int = 30) -> None:
        """The power goes in the middle of one of the next turns: at a change of the disk, or between two effects."""
        if rng.random() < 0.5:
            self.disk.cut_power_after(rng.randint(1, within))
        else:
            self._crash_countdown = rng.randint(1, within)

    def pause(self) -> None:
        self.paused = True
        self._naps += 1
        self.cluster.draw(self, "falls asleep")

    def resume(self) -> None:
        """Takes all events of the pause in one turn, before any timer; clients come last, as in `runtime.inbox`."""
        self.paused = False
        self._naps += 1
        asleep, self._asleep = self._asleep, []
        if self.node is not None:
            asleep.sort(key=lambda event: isinstance(event, ClientEvent))
            self._turn([*asleep, Tick()], "wakes up")

    def heal(self) -> None:
        """Nothing ordered earlier will break it any more."""
        self.disk_slow_until_ms = self.disk_hangs_until_ms = 0.0
        self._crash_countdown = None
        self.disk.heal()
        self.disk_is_bad = False

    # --- events ----------------------------------------------------------------------------------------------------

    def ask(self, make: Make, on_answer: OnAnswer, what: str) -> None:
        """Somebody's request has arrived here."""
        if self.node is None:
            return
        self._last_reply_to += 1
        reply_to = self._last_reply_to
        event = make(reply_to, self.clock.now_ms())
        self._asked[reply_to] = _Asked(event, on_answer)
        self._watch(reply_to, event)
        self.deliver(event, what)

    def _watch(self, reply_to: ReplyTo, event: Event) -> None:
        """F8, L3: whoever waits is answered by the deadline, unless the process dies or sleeps meanwhile."""
        match event:
            case (
                Submission(_, _, deadline_ms)
                | Read(_, deadline_ms)
                | LocalRead(_, _, deadline_ms)
                | SnapshotWanted(_, _, deadline_ms)
                | SkipWanted(_, _, deadline_ms)
            ):
                due_ms = self.clock.until(deadline_ms)
            case BrokerFetch(fetch, _):
                due_ms = self.clock.until(self.clock.now_ms() + fetch.max_wait_ms)
            case _:
                return
        boot, naps = self.boot, self._naps

        def look() -> None:
            awake = self.node is not None and not self.paused and (boot, naps) == (self.boot, self._naps)
            if awake and reply_to in self._asked:
                raise LawBroken("F8 AnsweredInTime", f"{self.name} has not answered {event} by its deadline")

        self.cluster.schedule(due_ms + ANSWER_SLACK_MS, look)

    def deliver(self, event: Event, what: str) -> None:
        """Something has happened that concerns this process."""
        if self.node is None:
            return
        if self.paused:
            self._asleep.append(event)
        else:
            self._turn([event], what)

    def _turn(self, events: list[Event], what: str) -> None:
        for event in events:
            self.cluster.laws.about_to_take(self, event, self.cluster.now_ms)
        if len(events) > 1:
            self.cluster.laws.forget_question()
        self._during(lambda node: node.turn(events, self.clock.now_ms(), self.clock.wall_ms()), what)

    def poison(self, act: Callable[[Node, int, int], None]) -> None:
        """A bug makes the active controller append what it should not."""
        self._during(lambda node: act(node, self.clock.now_ms(), self.clock.wall_ms()), "poison")

    def _during(self, act: Callable[[Node], None], what: str) -> None:
        node = self.node
        assert node is not None
        self._known_loss, self.end_before = node.log.lost, node.log.end
        role, failed_flushes = node.core.role, self.disk.failed_flushes
        try:
            act(node)
        except PowerCut:
            self.cluster.coverage["crash inside a turn"] += 1
            self.cluster.draw(self, f"{what}, cut short")
            self.crash(power_cut=self._rng.random() < POWER_CUT_INSIDE_CHANCE)
            return
        self.cluster.coverage["brokers answered in slices"] += node.active.on and node.active.feed.has_more_to_do
        failed_now = self.disk.failed_flushes > failed_flushes
        hold(
            self._stop_reason is not None or not failed_now,
            "R16 FailStop",
            f"{self.name} lives on after a failed flush",
        )
        if self._stop_reason is not None:
            self.cluster.draw(self, f"{what}, stops itself")
            self.crash(power_cut=self._rng.random() < 0.5)
            return
        self.cluster.after_event(self, what)
        self._arm()
        if node.core.role is not role:
            self.cluster.faults.role_changed(self)

    def _arm(self) -> None:
        assert self.node is not None
        deadline_ms = self.node.next_deadline_ms()
        self._timer += 1
        if deadline_ms is None:
            return
        timer, boot = self._timer, self.boot

        def fire() -> None:
            if self.boot == boot and self._timer == timer and not self.paused:
                self._check_idle()
                self._ticked_ms = self.cluster.now_ms
                self.deliver(Tick(), "timer")

        rested_ms = self._ticked_ms + self.cluster.options.turn_pause_ms if self.node.has_more_to_do else 0.0
        self.cluster.schedule(max(rested_ms - self.cluster.now_ms, self.clock.until(deadline_ms)), fire)

    def _check_idle(self) -> None:
        """L6: a node whose timers ring for ever, and that gets nowhere by them, burns a processor."""
        window = int(self.cluster.now_ms / TICK_WINDOW_MS)
        self._ticks = self._ticks + 1 if window == self._tick_window else 0
        self._tick_window = window
        if self._ticks > TICKS_MAX:
            raise LawBroken("L6 NoBusyLoop", f"{self.name}'s timers rang {self._ticks} times in {TICK_WINDOW_MS} ms")

    def _before_effect(self) -> None:
        hold(self._stop_reason is None, "R16 FailStop", f"{self.name} goes on after it stopped: {self._stop_reason}")
        if self._crash_countdown is not None:
            self._crash_countdown -= 1
            if self._crash_countdown <= 0:
                raise PowerCut

    # --- World -----------------------------------------------------------------------------------------------------

    def send(self, destination: NodeId, request: PeerRequest, timeout_ms: int) -> None:
        self._before_effect()
        self.cluster.laws.about_to_send(self, request, self.cluster.now_ms)
        peer, network, boot = self.cluster.controller(destination), self.cluster.network, self.boot
        settled = False
        what = type(request).__name__.removesuffix("Request")

        def fail(failure: Failure) -> None:
            nonlocal settled
            if settled or self.boot != boot:
                return
            settled = True
            self.deliver(unanswered(destination, request, failure), f"{what} to {peer.name} {failure.value}")
            if failure is Failure.REFUSED and self._rng.random() < 0.8:
                self.deliver(PeerRefused(destination), f"{peer.name} is gone")

        def respond(answer: Answer) -> None:
            nonlocal settled
            if self.boot == boot:
                settled = True
                assert isinstance(answer, PeerResponse)
                self.deliver(answered(destination, request, answer), f"{what} answer {peer.name}>{self.name}")

        def carry_back(answer: Answer) -> None:
            network.carry(peer.name, self.name, lambda: respond(answer), content_bytes=content_bytes(answer))

        def arrive() -> None:
            if peer.is_up:
                peer.ask(
                    lambda reply_to, _: RaftRequest(request, reply_to),
                    lambda answer: carry_back(self._forged(peer, request, answer)),
                    f"{what} {self.name}>{peer.name}",
                )
            else:
                network.carry(peer.name, self.name, lambda: fail(Failure.REFUSED))

        network.carry(self.name, peer.name, arrive)
        self.cluster.schedule(timeout_ms, lambda: fail(Failure.TIMED_OUT))

    def _forged(self, peer: "SimController", request: PeerRequest, answer: Answer) -> Answer:
        """The bytes that `peer` really sends of a snapshot, with its bad memory."""
        if not isinstance(request, FetchSnapshotRequest) or not isinstance(answer, FetchSnapshotResponse):
            return answer
        if answer.error is not ErrorCode.NONE:
            return answer
        end, position = request.snapshot, answer.position
        size, data = self.cluster.forger.piece(self.name, peer.metadata, end, position, answer.size, answer.data)
        return replace(answer, size=size, data=data)

    def reply(self, reply_to: ReplyTo, answer: Answer) -> None:
        self._before_effect()
        asked = self._asked.pop(reply_to, None)
        assert asked is not None, f"{self.name} answers {reply_to} twice, or nobody: {answer}"
        self.cluster.laws.about_to_reply(self, asked.event, answer, self.cluster.now_ms)
        if isinstance(answer, FetchResponse) and answer.part is not None:
            self.cluster.coverage["part of a batch given to a follower"] += 1
        asked.on_answer(answer)

    def start_job(self, job: Job) -> None:
        self._before_effect()
        if isinstance(job, LoadSnapshotJob) and job.install and not job.repairs:
            self.cluster.laws.snapshots.about_to_install(self, job.end)
        rng, boot = self._rng, self.boot
        slowest_ms = self.cluster.options.flush_max_ms if isinstance(job, FlushJob) else 50.0
        if isinstance(job, LoadSnapshotJob) and not job.install and not self.cluster.is_calm:
            slowest_ms = self._loading.choice((slowest_ms, SLOW_LOAD_MAX_MS))
        if self.cluster.now_ms < self.disk_slow_until_ms:
            slowest_ms = SLOW_DISK_MAX_MS

        def run() -> None:
            if self.boot != boot or self.node is None:
                return
            if isinstance(job, FlushJob) and self.cluster.now_ms < self.disk_hangs_until_ms:
                self.cluster.schedule(HANG_LOOK_MS, run)
                return
            try:
                done = _run(job)
            except PowerCut:
                self.cluster.coverage["crash inside a job"] += 1
                self.crash(power_cut=self._rng.random() < POWER_CUT_INSIDE_CHANCE)
                return
            if done.error is not None and self.disk_is_bad:
                self._excused_boot = boot
            self.cluster.schedule(rng.uniform(0.0, 0.5), lambda: self._job_done(done, boot))

        self.cluster.schedule(rng.uniform(0.05, slowest_ms), run)

    def _job_done(self, done: JobDone, boot: int) -> None:
        if self.boot != boot or self.node is None:
            return
        match done:
            case JobDone(WriteSnapshotJob(), None):
                self.cluster.coverage["snapshot written"] += 1
            case JobDone(LoadSnapshotJob(repairs=True), None):
                self.cluster.coverage["snapshot loaded in place of damage"] += 1
            case JobDone(LoadSnapshotJob(install=True), None):
                self.cluster.coverage["snapshot installed by a controller"] += 1
            case JobDone(_, None):
                pass
            case JobDone(ScrubJob(), CorruptLog()):
                self.cluster.coverage["scrub found rot"] += 1
            case _:
                self.cluster.coverage["job failed"] += 1
        asleep = self.paused
        self.deliver(done, type(done.job).__name__)
        stopped = not self.is_up or asleep or not isinstance(done.error, FlushFailed)
        hold(stopped, "R16 FailStop", f"{self.name} lives on although a job's flush failed: {done.error}")

    def stop_node(self, reason: str) -> None:
        is_bad = self.disk_is_bad or self._excused_boot == self.boot
        is_bad = is_bad or "had been durable" in reason  # a truncation inside damage, of which nothing can be kept
        # A truncation may read what has rotted since the start.
        is_bad = is_bad or (self._has_rotted and "met this damage" in reason)
        hold(is_bad, "R16 FailStop", f"{self.name} stopped itself on a healthy disk: {reason}")
        self.cluster.coverage["stopped itself"] += 1
        self._stop_reason = reason


def _run(job: Job) -> JobDone:
    try:
        job.run()
    except Exception as e:  # as in production, the node judges what a job died of
        return JobDone(job, e)
    return JobDone(job)
