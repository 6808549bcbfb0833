"""A simulated broker: the real session and the real store over a forgetful disk, drifting clocks and a network that lies."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from broker_agent.session.lifecycle import (
    AbandonFetch,
    Applied,
    ApplyBatches,
    BatchesRefused,
    BrokerState,
    CannotFollow,
    DownloadSnapshot,
    Effect,
    Exit,
    Fetch,
    FetchAnswer,
    FetchAnswered,
    FetchFailed,
    FetchRequest,
    FetchResult,
    FindController,
    Input,
    LeaderHint,
    LeaseLapsed,
    LeaseRenewed,
    Register,
    Registered,
    RegisterFailed,
    ResetStore,
    StateChanged,
    StopRequested,
    StoreBroken,
    StoreRecovered,
    TimerFired,
)
from broker_agent.session.session import Session
from broker_agent.store import METADATA_DIRECTORY, BrokerStore, WrongHistory
from metadata_log.disk.failures import FlushFailed
from metadata_log.format.errors import ErrorCode, LogFormatError
from metadata_log.format.ids import NodeId, OffsetAndEpoch, Uuid
from metadata_log.format.records import FROM_OFFSET, STATE_REASONS, Endpoint, FeatureRange
from metadata_log.image.replay import AppliedSkipped, ReplayStopped
from quorum.controller.protocol.commands import (
    AlterPartition,
    AlterPartitionReply,
    RegisterBrokerCommand,
    RegisterBrokerReply,
)
from quorum.runtime.protocol.requests import MetadataFetch, MetadataFetched, Refused
from quorum.runtime.protocol.world import Answer, BrokerFetch, Submission
from tests.sim.data.plane import DataPlane
from tests.sim.laws import hold
from tests.sim.nodes.controllers import Make, SimController
from tests.sim.nodes.directories import Directories
from tests.sim.nodes.downloading import Download
from tests.sim.nodes.dying import Dying
from tests.sim.nodes.leading import isr_proposal, wrong_proposal
from tests.sim.nodes.releases import Release
from tests.sim.world.clock import Clock
from tests.sim.world.disk import MemoryDirectory, PowerCut
from tests.sim.world.sizes import content_bytes

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster


OnAnswer: TypeAlias = Callable[[Answer], Input]

STANDING_MS = 4_000.0
"""How long after a skip a broker may still be given the batch: the answer may have been on its way, or the broker asleep."""
LEADING_EVERY_MS = 300.0
PROPOSAL_TIMEOUT_MS = 1_000
WRONG_CHANCE = 0.1
"""How often a leader proposes what nobody may grant."""
HESITATION_CHANCE = 0.3
HESITATION_MAX_MS = 3_000.0
"""Some proposals leave long after they were made, and find another state."""


class SimBroker:
    """One broker: its process is up between `boot_up` and an Exit or a crash."""

    def __init__(self, cluster: "Cluster", broker_id: NodeId) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.name = f"b{broker_id}"
        self.disk = MemoryDirectory(f"/{self.name}")
        self.is_up = False
        self.boot = 0
        self.paused = False
        self.stopping = False
        self.disk_is_bad = False
        """Something was ordered to go wrong with it: the process may have to die of it."""
        self.is_damaged = False
        """Bytes have rotted or were lost: the store may have to be dropped."""
        self.incarnation_id: Uuid = bytes(16)
        self.session: Session
        self.store: BrokerStore
        self._rng = random.Random(cluster.rng.random())
        self._wrong_rng = random.Random(f"{cluster.seed} {self.name} wrong")
        self.clock = Clock(lambda: cluster.now_ms, self._rng, cluster.options.clock_drift)
        self._timer = 0
        self.directories = Directories(self)
        self._release = Release(cluster, self.name)
        self.dying = Dying(self)
        self.data = DataPlane(self) if cluster.options.data else None
        """The broker's partitions; None: it has metadata only."""
        self._turn = 0
        self._target: SimController = cluster.controllers[0]
        self._asleep: list[Input] = []

    def _features(self) -> tuple[FeatureRange, ...]:
        """The features of this broker's release.

        In seeds 3, 8, 13, ... all brokers can read why a broker is in its state, in seeds 1, 6, 11, ... those with an odd id can,
        and in the other seeds none can.
        """
        reads_reasons = self.cluster.seed % 5 == 3 or (self.cluster.seed % 5 == 1 and self.broker_id % 2 == 1)
        known = self._release.supported()
        return (*known, FeatureRange(STATE_REASONS, 0, 1)) if reads_reasons else known

    def _rack(self) -> str | None:
        """The brokers 101 and 103 are in rack a, and broker 102 in rack b; or no broker has a rack."""
        return "ab"[self.broker_id % 2 == 0] if self.cluster.options.has_racks else None

    def boot_up(self) -> None:
        """Starts the process on whatever its disk holds, if it does not run."""
        if self.is_up:
            return
        self.boot += 1
        self.is_up, self.paused, self.stopping = True, False, False
        self._asleep.clear()
        self.clock.reboot()
        self._release.restarted()
        self.dying.booted()
        self.incarnation_id = self._rng.randbytes(16)
        self._turn = self._rng.randrange(len(self.cluster.controllers))
        self._target = self.cluster.controllers[self._turn]
        self.session = Session(self.cluster.options.session_config(), self._rng)
        self.guarded(self._start)

    def _start(self) -> None:
        self.dying.opens_directory()
        self.store = BrokerStore(self.disk)
        failed_reads = self.disk.failed_reads
        try:
            recovered = self.store.recover()
        except BaseException as e:
            # If the power goes while the store is dropped, the next start drops the rest. The context is why it is dropped.
            self.is_damaged |= self.disk.failed_reads > failed_reads
            self.is_damaged |= self.cluster.laws.history.skips.stops(str(e.__context__))
            raise
        if recovered.dropped is not None:
            may_drop = self.is_damaged or self.disk.failed_reads > failed_reads
            # Its log ends behind a poison batch, and in front of the record that skips the batch.
            may_drop |= self.cluster.laws.history.skips.stops(recovered.dropped)
            hold(may_drop, "D2 CrashIsNotCorruption", f"{self.name} drops its store: {recovered.dropped}")
            self.cluster.coverage["broker store dropped at start"] += 1
            self.is_damaged = False
        previous, clean_epoch = recovered.previous_incarnations, recovered.clean_broker_epoch
        self.directories.booted()
        if self.data is not None:
            self.data.booted()
            if not self.is_up:
                return
        self._take(StoreRecovered(recovered.position, previous, clean_epoch), "starts")
        if self.data is None:
            self._lead()

    def guarded(self, act: Callable[[], None]) -> None:
        """Any fault of the disk ends the process of a broker."""
        try:
            act()
        except PowerCut:
            self.crash(power_cut=self._rng.random() < 0.5)
        except (OSError, FlushFailed) as e:
            hold(self.disk_is_bad, "R16 FailStop", f"{self.name} dies of a healthy disk: {e}")
            self.cluster.coverage["broker stopped by its disk"] += 1
            self.crash(power_cut=self._rng.random() < 0.5)

    def rot(self, rng: random.Random) -> None:
        """While the process is down, a bit flips, or a file is lost."""
        self.disk.heal()  # what it was told to do to the process, it must not do to this
        metadata = self.disk.subdirectory(METADATA_DIRECTORY)
        names = [name for name in metadata.names() if metadata.size(name) > 0]
        if not names:
            return
        self.is_damaged = True
        self.cluster.coverage["broker disk: rot"] += 1
        name = rng.choice(names)
        if rng.random() < 0.3:
            metadata.remove(name)
        else:
            metadata.flip_bit(name, rng.randrange(metadata.size(name)), rng.randrange(8))

    def crash(self, *, power_cut: bool) -> None:
        """The process is gone. With a power cut, the disk forgets what it may."""
        if not self.is_up:
            return
        self.is_up = False
        self.cluster.coverage["broker crash"] += 1
        self.disk = self.disk.crash(self.cluster.rng) if power_cut else self.disk.kill()
        self.heal()
        if self.data is not None:
            self.data.ended(power_cut=power_cut)
        self.dying.ended(power_cut=power_cut)
        self.cluster.faults.restart_broker_later(self)

    def heal(self) -> None:
        """Nothing ordered earlier will break its disk any more."""
        self.disk.heal()
        self.disk_is_bad = False
        if self.data is not None:
            self.data.heal()

    def stop(self) -> None:
        """SIGTERM."""
        if self.is_up and not self.stopping:
            self.stopping = True
            self._take(StopRequested(), "SIGTERM")

    @property
    def target(self) -> SimController:
        """The controller that the broker asks now."""
        return self._target

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """Takes all inputs of the pause, before any timer."""
        self.paused = False
        if self.data is not None:
            self.data.resume()  # before the session: nothing has told it that its lease is over
        asleep, self._asleep = self._asleep, []
        for happened in [*asleep, TimerFired()]:
            self._take(happened, "wakes up")

    def may_serve(self) -> bool:
        """True if a client that asks now is served."""
        return self.is_up and self.session.may_serve(self.clock.now_ms())

    # --- the session -----------------------------------------------------------------------------------------------

    def _take(self, happened: Input, what: str) -> None:
        if not self.is_up:
            return
        if self.paused:
            self._asleep.append(happened)
            return
        self.guarded(lambda: self._step(happened, what))

    def _step(self, happened: Input, what: str) -> None:
        state = self.session.state
        for effect in self.session.step(happened, self.clock.now_ms()):
            self._carry_out(effect)
        if state is not self.session.state:
            self.cluster.coverage[f"broker edge: {state.name.lower()} -> {self.session.state.name.lower()}"] += 1
        if self.is_up:
            self.cluster.after_broker_event(self, what)
            self._arm()
        if self.is_up and self.data is not None:
            self.data.telling.look()

    def _arm(self) -> None:
        deadline_ms = self.session.next_deadline_ms()
        self._timer += 1
        if deadline_ms is None:
            return
        timer, boot = self._timer, self.boot

        def fire() -> None:
            if self.is_up and self.boot == boot and self._timer == timer:
                self._take(TimerFired(), "timer")

        self.cluster.schedule(self.clock.until(deadline_ms), fire)

    def _later(self, happened: Input, what: str) -> None:
        boot = self.boot

        def take() -> None:
            if self.boot == boot:
                self._take(happened, what)

        self.cluster.schedule(self._rng.uniform(0.05, 5.0), take)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Register():
                self._register(effect)
            case Fetch(request):
                self._fetch(request)
            case AbandonFetch():
                return
            case FindController(leader, _):
                self._find(leader)
            case ApplyBatches():
                self._later(self._apply(effect), "applied")
            case DownloadSnapshot(snapshot, _):
                Download(self, self._target, snapshot, lambda happened: self._take(happened, "snapshot")).ask()
            case ResetStore(reason):
                self.cluster.laws.brokers.store_reset(self, reason)
            case StateChanged():
                return
            case LeaseLapsed():
                self.cluster.coverage["lease lapsed"] += 1
            case LeaseRenewed():
                self.cluster.coverage["lease renewed"] += 1
            case Exit(code, reason, clean_epoch):
                is_clean = self.data is None or self.data.stop()
                if clean_epoch is not None and is_clean:
                    self.cluster.laws.eligible.ended_cleanly(self.broker_id, clean_epoch)
                    self.store.note_clean_shutdown(clean_epoch)
                self.is_up = False
                self.store.close()
                self.disk.kill()
                if self.data is not None:
                    self.data.ended(power_cut=False)
                self.dying.ended(power_cut=False)
                gave_up = reason.startswith("not registered within")  # a long outage, from its very start on
                # The level rose while the registration of an old release was on its way.
                gave_up |= "UNSUPPORTED_VERSION" in reason and self._release.was_overtaken()
                # It stands in front of a batch that nobody has skipped yet, or just so.
                gave_up |= self.cluster.laws.history.skips.stops(reason, self.cluster.now_ms - STANDING_MS)
                hold(code == 0 or gave_up, "L7 BrokersLive", f"{self.name} gives up: {reason}")
                self.cluster.coverage["broker gave up" if gave_up else "broker stopped"] += 1

    def _find(self, leader: LeaderHint | None) -> None:
        if leader is not None and leader.leader_id is not None:
            self._target = self.cluster.controller(leader.leader_id)
        else:  # the next one, as `broker_agent.client` does
            self._turn = (self._turn + 1) % len(self.cluster.controllers)
            self._target = self.cluster.controllers[self._turn]

    def _apply(self, effect: ApplyBatches) -> Input:
        try:
            self.store.apply(effect.batches, effect.previous_chain, effect.skips)
        except AppliedSkipped as e:
            return StoreBroken(e.reason)
        except ReplayStopped as e:
            return CannotFollow(str(e))
        except WrongHistory as e:
            return StoreBroken(str(e))
        except LogFormatError as e:
            return BatchesRefused(str(e))
        if self.store.why_full:
            self.cluster.coverage["broker with a full disk"] += 1
            self.store.look_for_room()
        job = self.store.take_snapshot_job()
        if job is not None:
            job.run()
            self.store.snapshot_written(job)
        if self._rng.random() < 0.2:
            self.store.flush()
        return Applied(self.store.position)

    # --- the wire --------------------------------------------------------------------------------------------------

    def _ask(self, make: Make, on_answer: OnAnswer, what: str) -> None:
        target, network, boot = self._target, self.cluster.network, self.boot

        def arrive(answer: Answer) -> None:
            if self.is_up and self.boot == boot:
                self.guarded(lambda: self._take(on_answer(answer), f"{what} answer"))

        network.carry(
            self.name,
            target.name,
            lambda: target.ask(
                make,
                lambda answer: network.carry(
                    target.name, self.name, lambda: arrive(answer), content_bytes=content_bytes(answer)
                ),
                f"{what} {self.name}",
            ),
        )

    def _register(self, effect: Register) -> None:
        self.store.note_attempt(self.incarnation_id)
        command = RegisterBrokerCommand(
            broker_id=self.broker_id,
            incarnation_id=self.incarnation_id,
            endpoints=(Endpoint("CLIENT", "127.0.0.1", 9_000 + self.broker_id),),
            features=self._features(),
            rack=self._rack(),
            log_dirs=self.directories.sound,
            previous_incarnation_id=effect.previous_incarnation,
            previous_broker_epoch=FROM_OFFSET if effect.previous_broker_epoch is None else effect.previous_broker_epoch,
        )

        def convert(answer: Answer) -> Input:
            if isinstance(answer, RegisterBrokerReply):
                self.store.note_registered(self.incarnation_id)
                self.cluster.coverage["broker registered"] += 1
                return Registered(effect.number, answer.broker_epoch)
            assert isinstance(answer, Refused)
            return RegisterFailed(effect.number, answer.code, answer.message, self._hint(answer))

        self._ask(
            lambda reply_to, now_ms: Submission(command, reply_to, now_ms + effect.timeout_ms), convert, "register"
        )

    def _fetch(self, request: FetchRequest) -> None:
        fetch = MetadataFetch(
            broker_id=self.broker_id,
            broker_epoch=request.broker_epoch,
            incarnation_id=self.incarnation_id,
            offset=request.position.offset,
            epoch=request.position.epoch,
            chain=request.position.chain,
            wants_fence=request.wants_fence,
            wants_shut_down=request.wants_shut_down,
            offline_log_dirs=self.directories.agent.offline,
            max_wait_ms=request.max_wait_ms,
            max_bytes=request.max_bytes,
            part_position=request.part_position,
        )
        sent_ms = self.clock.now_ms()
        self.dying.last_fetch = fetch

        def convert(answer: Answer) -> Input:
            if isinstance(answer, Refused):
                return FetchFailed(request.number, answer.code, answer.message, self._hint(answer))
            assert isinstance(answer, MetadataFetched)
            self.cluster.laws.brokers.lease_arrives(self, sent_ms, answer.lease_ms)
            return FetchAnswered(_answer(request.number, answer))

        self._ask(lambda reply_to, _: BrokerFetch(fetch, reply_to), convert, "MetadataFetch")

    def _lead(self) -> None:
        """Now and then, what a leader of partitions has to propose."""
        boot = self.boot

        def propose() -> None:
            if self.boot != boot or not self.is_up:
                return
            epoch = self.session.broker_epoch
            if not self.paused and epoch is not None and self.may_serve() and not self.cluster.is_idle:
                is_wrong = self._wrong_rng.random() < WRONG_CHANCE
                image, is_calm = self.store.image, self.cluster.is_calm
                if is_wrong:
                    command = wrong_proposal(image, self.broker_id, epoch, self._wrong_rng)
                else:
                    command = isr_proposal(image, self.broker_id, epoch, self._rng, is_calm=is_calm)
                self.cluster.coverage["wrong ISR proposal"] += is_wrong and command is not None
                if command is not None:
                    self._propose(command)
            self._lead()

        self.cluster.schedule(self._rng.expovariate(1 / LEADING_EVERY_MS), propose)

    def _propose(self, command: AlterPartition) -> None:
        target, coverage = self._target, self.cluster.coverage

        def answered(answer: Answer) -> None:
            if isinstance(answer, AlterPartitionReply):
                coverage["ISR proposal answered"] += 1

        def send() -> None:
            self.cluster.network.carry(
                self.name,
                target.name,
                lambda: target.ask(
                    lambda reply_to, now_ms: Submission(command, reply_to, now_ms + PROPOSAL_TIMEOUT_MS),
                    answered,
                    f"AlterPartition {self.name}",
                ),
            )

        hesitates = self._rng.random() < HESITATION_CHANCE
        self.cluster.schedule(self._rng.uniform(0.0, HESITATION_MAX_MS) if hesitates else 0.0, send)

    @staticmethod
    def _hint(refused: Refused) -> LeaderHint | None:
        if refused.code is not ErrorCode.NOT_CONTROLLER or refused.hint is None:
            return None
        return LeaderHint(refused.hint.leader_id, "", 0)


def _answer(number: int, fetched: MetadataFetched) -> FetchAnswer:
    standing = fetched.standing
    nowhere = OffsetAndEpoch(0, 0)
    return FetchAnswer(
        number=number,
        result=FetchResult(fetched.result.value),
        state=None if standing is None else BrokerState[standing.state.name],
        batches=b"".join(batch.data for batch in fetched.batches),
        previous_chain=fetched.previous_chain,
        end_offset=fetched.end_offset,
        snapshot=fetched.snapshot or nowhere,
        diverging=fetched.diverging or nowhere,
        high_watermark=fetched.high_watermark,
        digest=fetched.digest,
        digest_offset=fetched.digest_offset,
        is_caught_up=standing is not None and standing.is_caught_up,
        should_shut_down=standing is not None and standing.should_shut_down,
        lease_ms=fetched.lease_ms,
        controller_epoch=fetched.controller_epoch,
        part=fetched.part,
        skips=fetched.skips,
    )
