"""One controller: the pure core, the log and the state machine, joined in a synchronous turn.

A turn takes its events in order:

    events --> core.step --> effects, carried out in order --> (appended, truncated: reported to the core at once)
           --> timers, after all events
           --> settle: apply committed records, answer the waiting clients, start one flush for all appended batches

The node keeps two rules.

*Disk before speech.* `SaveElectionState` returns when the vote is durable; only then does the node carry out the next effect. A
node acknowledges an appended batch only after a `FlushJob` that was started after the append has ended, and after the core has
taken `Flushed`. Example with leader 1 and follower 2:
    1. follower 2 receives the batch [40, 45), appends the batch, and starts a flush; its flushed end is 40;
    2. the power fails at this moment: the batch is lost, but follower 2 has not acknowledged the batch;
    3. without the power failure the flush ends, the core takes `Flushed(45)`, and follower 2 fetches from 45.

*Fail-stop.* Damage that no repair handles, a failed flush or a broken law stops the node with a reason. A failed fsync is never
repeated: the kernel marks the pages clean after the failure, so the second fsync would succeed without writing them.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final, ParamSpec, assert_never

from metadata_log.disk.failures import FlushFailed
from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import Offset, ReplicaKey
from metadata_log.format.records import LeaderChange, SkippedBatch, Voters
from quorum.controller.controller import Controller
from quorum.core.protocol import effects as fx
from quorum.core.protocol import inputs as raft
from quorum.core.protocol.deadlines import soonest
from quorum.core.protocol.messages import (
    FetchRequest,
    FetchSnapshotRequest,
)
from quorum.core.raft import RaftCore
from quorum.runtime.active.active_controller import ActiveController
from quorum.runtime.active.proposals import Proposals
from quorum.runtime.active.skipping import Skipping
from quorum.runtime.addresses import Addresses
from quorum.runtime.agreement import Agreement
from quorum.runtime.applier import Applier
from quorum.runtime.disk.log_reader import LogReader
from quorum.runtime.disk.log_writer import LogWriter
from quorum.runtime.disk.node_disk import Disk
from quorum.runtime.disk.open_directory import Opened
from quorum.runtime.image.state_machine import StateMachine
from quorum.runtime.leadership import Leadership
from quorum.runtime.local_reads import LocalReads
from quorum.runtime.log_repair import LogRepair
from quorum.runtime.parts import Parts, TurnTime
from quorum.runtime.peer_messages import PeerMessages
from quorum.runtime.protocol.jobs import FlushJob, Job, LoadSnapshotJob, ScrubJob, WriteSnapshotJob
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.peer_answers import BatchesReceived, PieceReceived, ReadFailed, RegistrationEnded
from quorum.runtime.protocol.tallies import Tallies
from quorum.runtime.protocol.world import (
    BrokerFetch,
    Event,
    JobDone,
    KeepAlive,
    LocalRead,
    NodeStopped,
    RaftRequest,
    Read,
    SkipWanted,
    SnapshotWanted,
    Submission,
    Tick,
    World,
)
from quorum.runtime.registration import Registration

P = ParamSpec("P")


NOT_LEADING: Final = "this controller does not lead"


class Node:
    """A controller without network and threads. The caller drives it by `turn`, in production and in the simulator."""

    def __init__(
        self, opened: Opened, config: NodeConfig, world: World, rng: random.Random, now_ms: int, wall_ms: int
    ) -> None:
        self.identity = opened.identity
        self.bootstrap = opened.bootstrap
        self.me = ReplicaKey(opened.identity.node_id, opened.identity.directory_id)
        self.log = opened.log
        self.snapshotter = opened.snapshotter
        self.state = StateMachine()
        self.tallies = Tallies()
        self._directory = opened.directory
        self._config = config
        self._world = world
        self._time = TurnTime(now_ms, wall_ms)
        self._is_ticked = False
        """True if a Tick is among the events of the turn, so that the timers fire after the events."""
        self._stopped: str | None = None
        self.disk = Disk(opened, config, self.me, now_ms)
        self._others_wait = False
        """True if a peer waits for the turn's flush or for the turn's fetch, so applying may be put off."""
        self.core = self._new_core(opened, rng, now_ms)
        self.addresses = Addresses(self.core, self.me.node_id, config)
        self._writer = LogWriter(self.me.node_id, opened.directory, self.log, self.snapshotter.store, self.disk.space)
        self._reader = LogReader(self.log, self.snapshotter.store, self.core, world, self.disk.found_damage)
        parts = Parts(
            me=self.me,
            generation=opened.identity.generation,
            config=config,
            log=self.log,
            state=self.state,
            snapshotter=self.snapshotter,
            core=self.core,
            world=world,
            time=self._time,
            found_damage=self.disk.found_damage,
            step=self._step,
        )
        controller = Controller(config.controller, rng)
        self.active = ActiveController(parts, controller, Proposals(parts, self._writer), self.tallies)
        self._agreement = Agreement(parts)
        self._log_repair = LogRepair(parts, self.disk)
        self._registration = Registration(parts, self.active)
        self._peer_messages = PeerMessages(
            parts, self._reader, self._agreement, self._log_repair, self.active.accidents, self._registration
        )
        self._applier = Applier(
            parts,
            self.disk,
            load=opened.load,
            agreement=self._agreement,
            log_repair=self._log_repair,
            mark_passed=self.active.marks.passed,
        )
        self._leadership = Leadership(parts, self.active, self._applier, self._agreement, self.addresses)
        self._skipping = Skipping(parts, self.active, self._append_skip)
        self._local_reads = LocalReads(parts, self.active, self._applier, self._agreement)

    def _new_core(self, opened: Opened, rng: random.Random, now_ms: int) -> RaftCore:
        return RaftCore(
            me=self.me,
            config=self._config.raft,
            election=opened.election,
            shape=opened.log.shape,
            voters=opened.voters,
            rng=rng,
            now_ms=now_ms,
            my_endpoints=self._config.endpoints,
            judge_newcomer=lambda newcomer: self._registration.judge(newcomer),
            part=opened.part,
            disk_trust=opened.disk_trust._replace(damaged=bool(self.log.damage), out_of_room=self.disk.space.is_short),
        )

    # --- the turn --------------------------------------------------------------------------------------------------

    def start(self, now_ms: int, wall_ms: int) -> None:
        """Takes the first turn. A job loads the snapshot; the node votes and replicates meanwhile."""
        self._time.now_ms, self._time.wall_ms = now_ms, wall_ms
        self._applier.start()
        self._guarded(self._carry_out_all, self.core.start(now_ms))
        self._guarded(self._settle)

    def turn(self, events: Iterable[Event], now_ms: int, wall_ms: int) -> None:
        """Takes `events` in order, then the due timers, then settles. A stopped node does nothing."""
        self._time.now_ms, self._time.wall_ms = now_ms, wall_ms
        self._guarded(self._take_all, events)

    def _take_all(self, events: Iterable[Event]) -> None:
        self.disk.check_in_place(self._time.now_ms)
        for event in events:
            self._handle(event)
        if self._is_ticked:
            self._is_ticked = False
            self._fire_timers()
        elif self.log.damage:
            self._care_for_disk()
        self._settle()

    def next_deadline_ms(self) -> int | None:
        """The time at which the node needs a Tick; None: no timer is set. Every turn may move the time."""
        if self.has_more_to_do:
            return self._time.now_ms
        core_ms, active_ms = self.core.next_deadline_ms(), self.active.next_deadline_ms()
        disk_ms, reads_ms = self.disk.next_deadline_ms(), self._local_reads.next_deadline_ms()
        registration_ms = None if self._applier.is_loading else self._registration.next_deadline_ms()
        return soonest(core_ms, active_ms, disk_ms, reads_ms, registration_ms, self._skipping.next_deadline_ms())

    @property
    def has_more_to_do(self) -> bool:
        """True if the last turn left work to do, for which the node needs a Tick at once."""
        if self._applier.has_more_to_do(self.commit_target) or self._skipping.has_more_to_do:
            return True
        return self.active.on and self.active.has_more_to_do

    @property
    def awaits_majority(self) -> bool:
        """True if the active controller has appended records that are not committed yet.

        In this case another turn is certain to come soon: with a flush, a fetch, or the timer of check-quorum.
        """
        return self.active.on and self.state.applied < self.log.end

    @property
    def leader_has_written(self) -> bool:
        """True if the log has records of this epoch after the first, which says that the epoch has a leader.

        The leader wrote these records by its image. Without them, the leader may still be loading its image.
        """
        shape, epoch = self.log.shape, self.core.epoch
        before = shape.end_of_epoch(epoch - 1)
        return before.epoch == epoch or shape.end > before.offset + 1

    @property
    def is_loading_image(self) -> bool:
        """True while the first snapshot is loading, so that the node has no image yet."""
        return self._applier.is_loading

    def found_damage(self, error: CorruptLog) -> None:
        """Notes damage that a reader outside of the turns has found. The repair begins with the next turn."""
        self._guarded(self.disk.found_damage, error)

    @property
    def has_odd_image(self) -> bool:
        """True if the node has stopped applying records because its image differs from the image of a majority."""
        return self._agreement.is_odd

    @property
    def stopped(self) -> str | None:
        """The reason if the node has stopped, otherwise None."""
        return self._stopped

    def stop(self, reason: str) -> None:
        """Stops the node for good and gives the reason to the world. The event loop calls `stop`, too, after a failed turn."""
        self._stopped = reason
        self._world.stop_node(reason)

    def _guarded(self, act: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        if self._stopped is not None:
            return
        try:
            act(*args, **kwargs)
        except (NodeStopped, FlushFailed, CorruptLog, LogFormatError) as e:
            self.stop(str(e) or type(e).__name__)
        except OSError as e:
            self.stop(f"{self._directory.path_text}: {e}")

    def _handle(self, event: Event) -> None:
        match event:
            case RaftRequest(request, reply_to):
                self._peer_messages.take_request(request, reply_to)
            case raft.ResponseReceived():
                self._peer_messages.take_response(event)
            case BatchesReceived() | PieceReceived() | ReadFailed():
                self._log_repair.take(event, self._time.now_ms)
            case RegistrationEnded():
                self._registration.take_end(event)
            case raft.RequestFailed() | raft.PeerRefused() | raft.ShutDown():
                self._step(event)
            case Submission() | Read() | SnapshotWanted():
                self._leadership.take(event, self._time.now_ms)
            case LocalRead():
                self._local_reads.take(event, self._time.now_ms)
            case SkipWanted():
                self._skipping.take(event, self.addresses.leader_hint(self._time.now_ms))
            case BrokerFetch():
                self._leadership.take_fetch(event, self._time.now_ms)
            case KeepAlive():
                self._leadership.take_keep_alive(event, self._time.now_ms)
            case JobDone(job, error):
                self._finish(job, error)
            case Tick():
                self._is_ticked = True
            case _:
                assert_never(event)

    def _fire_timers(self) -> None:
        self._report_growth()
        self._care_for_disk()
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self._time.now_ms:
            self._step(raft.TimerFired())
        self._leadership.run(self.active.fire_timers, self._time.now_ms)
        self._local_reads.refuse_expired(self._time.now_ms)
        self._skipping.fire_timers(self._time.now_ms)

    def _care_for_disk(self) -> None:
        if self.disk.space.look_again(self._time.now_ms):
            self._fetch_again()
        self._log_repair.go_on(self._time.now_ms)

    def _settle(self) -> None:
        if self.log.lost is not None and self.core.disk_trust.lost is None:
            self.log.forget_loss()
        if not self.core.is_leading:
            self._flush()  # a follower acknowledges before it applies
        others_wait, self._others_wait = self._others_wait and not self.core.is_leading, False
        apply = self._applier.apply_later if others_wait else self._applier.apply
        apply(self.commit_target)
        self.state.release()
        self._leadership.begin_if_ready(self._time.now_ms)
        if not self._applier.is_loading:
            self._registration.go_on()
        if self.active.on:
            self._leadership.run(self.active.settle, self._time.now_ms, self._time.wall_ms)
            self._report_growth()
        self._local_reads.answer_ready(self._time.now_ms)
        self._skipping.go_on()
        self._skipping.answer_ready(self.commit_target)
        self._log_repair.report_disk()
        self._flush()

    def _flush(self) -> None:
        flush = self._writer.flush_if_grown()
        done = None if flush is None else self._world.start_job(flush)
        if done is not None:
            self._finish(done.job, done.error)

    def _fetch_again(self) -> None:
        for held in self._writer.release_held():
            self._step(held)

    # --- the core's effects ----------------------------------------------------------------------------------------

    def _step(self, raft_input: raft.Input | None) -> None:
        """Gives the core an input, if there is one, and carries out the effects in order before it returns."""
        if raft_input is None:
            return
        self._report_growth()
        self._carry_out_all(self.core.step(raft_input, self._time.now_ms))

    def _report_growth(self) -> None:
        """Reports the appended proposals of the turn to the core, all at once."""
        if self._writer.take_unreported():
            self._carry_out_all(self.core.step(raft.Appended(self.log.shape), self._time.now_ms))

    def _carry_out_all(self, effects: Sequence[fx.Effect]) -> None:
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: fx.Effect) -> None:
        match effect:
            case fx.SaveElectionState(state):
                self._writer.save_election(state, self._time.now_ms)
            case fx.SendRequest(destination, request, timeout_ms):
                if isinstance(request, FetchRequest | FetchSnapshotRequest) and self.disk.cannot_keep_what(request):
                    self._writer.hold(destination, request)
                else:
                    self._others_wait |= isinstance(request, FetchRequest)
                    self._world.send(destination, request, timeout_ms)
            case fx.Reply(reply_to, response):
                self._world.reply(reply_to, response)
            case fx.ReplyWithBatches():
                self._reader.reply_with_batches(effect)
            case fx.ReplyWithChunk():
                self._reader.reply_with_chunk(effect)
            case fx.AppendBatches(batches):
                self._others_wait = True
                self._step(self._writer.append_fetched(batches, self._time.now_ms))
            case fx.AppendControl(_, record):
                self._append_control(record)
            case fx.TruncateLog(end):
                self._step(self._writer.truncate(end))
            case fx.WriteSnapshotChunk(snapshot, position, data):
                self._step(self._writer.write_chunk(snapshot, position, data, self._time.now_ms))
            case fx.InstallSnapshot(snapshot):
                if self.core.is_loading_snapshot:  # false if the disk had no room for the last piece
                    self._world.start_job(self.snapshotter.install_job(snapshot))
            case fx.LeadershipChanged(_, _, leading):
                self._agreement.leadership_changed()
                if not leading:
                    hint = self.addresses.leader_hint(self._time.now_ms)
                    self.active.end(NOT_LEADING, hint)
                    self._skipping.end(NOT_LEADING, hint)
            case fx.HighWatermarkAdvanced():
                return  # applied when the turn settles
            case fx.ReadsConfirmed(token):
                self.active.answers.confirmed(token)
            case fx.RefuseFailed():
                self._peer_messages.refuse_failed(effect)
            case fx.StopNode(reason):
                raise NodeStopped(reason)
            case _:
                assert_never(effect)

    def _append_control(self, record: LeaderChange | Voters) -> None:
        batch = self._writer.append_control(record, self.core.epoch, self._time.now_ms, self._time.wall_ms)
        if batch is None:
            return
        if self.active.on:
            # The proposed image must reach the log's end, or the next proposal would have a wrong offset.
            self.state.propose(None, batch)
        self._step(self._writer.grown_from(batch.base_offset))

    def _append_skip(self, record: SkippedBatch) -> Batch | None:
        """Appends the record. An active controller ends, because its image is to be made anew, and begins again later."""
        self._report_growth()
        batch = self._writer.append_control(record, self.core.epoch, self._time.now_ms, self._time.wall_ms)
        if batch is not None:
            hint = self.addresses.leader_hint(self._time.now_ms)
            self.active.end("this controller makes its image anew", hint, leads_on=True)
            self._step(self._writer.grown_from(batch.base_offset))
        return batch

    # --- commits ---------------------------------------------------------------------------------------------------

    @property
    def commit_target(self) -> Offset:
        """The offset up to which (exclusive) the node may apply: committed, and durable on its own disk."""
        return min(self.core.high_watermark or 0, self.log.shape.flushed_end)

    # --- jobs ------------------------------------------------------------------------------------------------------

    def _finish(self, job: Job, error: Exception | None) -> None:
        match job:
            case FlushJob():
                self._step(self._writer.finish_flush(job, error))
            case WriteSnapshotJob():
                self._step(self._applier.finish_snapshot(job, error, self._time.now_ms))
            case LoadSnapshotJob():
                self._step(self._applier.finish_load(job, error, self._time.now_ms))
                if job.repairs:
                    self._fetch_again()
            case ScrubJob():
                if self._log_repair.finish_scrub(job, error) and self.active.on:
                    self._leadership.run(self.active.make_snapshot, "the only snapshot is damaged")
            case _:
                assert_never(job)

    # --- for tests -------------------------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Asserts the laws between the parts of the node. Cheap enough to run after every turn."""
        assert self.core.shape == self.log.shape, (self.core.shape, self.log.shape)
        self.core.check_invariants()
        self._applier.check_invariants()
        assert not self.active.on or self.core.is_leading
