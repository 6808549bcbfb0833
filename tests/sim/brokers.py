"""A simulated broker: the real session and the real store over a forgetful disk."""

import random
from typing import TYPE_CHECKING

from broker_agent.lifecycle import (
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
    SnapshotFailed,
    StateChanged,
    StopRequested,
    StoreBroken,
    StoreRecovered,
    TimerFired,
)
from broker_agent.session import Session, SessionConfig
from broker_agent.store import BrokerStore, WrongHistory
from metadata_log.errors import ErrorCode, LogFormatError
from metadata_log.ids import NodeId, OffsetAndEpoch, Uuid
from metadata_log.records import Endpoint, FeatureRange
from metadata_log.replay import ReplayStopped
from quorum.controller.commands import RegisterBrokerCommand, RegisterBrokerReply
from quorum.runtime.requests import MetadataFetch, MetadataFetched, Refused
from quorum.runtime.world import Answer, BrokerFetch, Submission
from tests.sim.disk import MemoryDirectory

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.controllers import SimController


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
        self.was_reset = False
        self.stopping = False
        self.wants_fence = True
        self.incarnation_id: Uuid = bytes(16)
        self.session: Session
        self.store: BrokerStore
        self._rng = random.Random(cluster.rng.random())
        self._timer = 0
        self._target: "SimController" = cluster.controllers[0]
        self._asleep: list[Input] = []

    def boot_up(self) -> None:
        self.boot += 1
        self.is_up, self.paused, self.was_reset, self.stopping = True, False, False, False
        self._asleep.clear()
        self.incarnation_id = self._rng.randbytes(16)
        self._target = self._rng.choice(self.cluster.controllers)
        self.session = Session(SessionConfig(), self._rng)
        self.store = BrokerStore(self.disk)
        recovered = self.store.recover()
        self._take(StoreRecovered(recovered.position, recovered.previous_incarnations), "starts")

    def crash(self, *, power_cut: bool) -> None:
        if not self.is_up:
            return
        self.is_up = False
        self.disk = self.disk.crash(self.cluster.rng) if power_cut else self.disk.kill()

    def stop(self) -> None:
        """SIGTERM."""
        if self.is_up and not self.stopping:
            self.stopping = True
            self._take(StopRequested(), "SIGTERM")

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        asleep, self._asleep = self._asleep, []
        if self.is_up:
            for happened in [*asleep, TimerFired()]:
                if self.is_up:
                    self._take(happened, "wakes up")

    def may_serve(self) -> bool:
        """Whether a client that asked now would be served."""
        return self.is_up and self.session.may_serve(int(self.cluster.now_ms))

    # --- the session -----------------------------------------------------------------------------------------------

    def _take(self, happened: Input, what: str) -> None:
        if not self.is_up:
            return
        if self.paused:
            self._asleep.append(happened)
            return
        state = self.session.state
        for effect in self.session.step(happened, int(self.cluster.now_ms)):
            self._carry_out(effect)
            if not self.is_up:
                break
        if state is not self.session.state:
            self.cluster.coverage[f"broker: {state.name} -> {self.session.state.name}"] += 1
        self.cluster.after_broker_event(self, what)
        if self.is_up:
            self._arm()

    def _arm(self) -> None:
        deadline_ms = self.session.next_deadline_ms()
        self._timer += 1
        if deadline_ms is None:
            return
        timer, boot = self._timer, self.boot

        def fire() -> None:
            if self.is_up and self.boot == boot and self._timer == timer:
                self._take(TimerFired(), "timer")

        self.cluster.schedule(max(0.0, deadline_ms - self.cluster.now_ms) + 0.01, fire, "timer")

    def _later(self, happened: Input, what: str) -> None:
        boot = self.boot
        delay_ms = self._rng.uniform(0.05, 5.0)
        self.cluster.schedule(delay_ms, lambda: self._take(happened, what) if self.boot == boot else None, what)

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
                self._later(self._download(snapshot), "snapshot")
            case ResetStore():
                self.was_reset = True
                self.store.reset()
                self._later(Applied(self.store.position), "reset")
            case StateChanged(state, _):
                if state is BrokerState.ONLINE:
                    self.cluster.coverage["broker online"] += 1
            case LeaseLapsed():
                self.cluster.coverage["lease lapsed"] += 1
            case LeaseRenewed():
                return
            case Exit():
                self.is_up = False
                self.store.close()
                self.disk.kill()
                if self.stopping:
                    self.cluster.coverage["broker stopped"] += 1

    def _find(self, leader: LeaderHint | None) -> None:
        if leader is not None and leader.leader_id is not None:
            self._target = self.cluster.controller(leader.leader_id)
        else:
            self._target = self._rng.choice(self.cluster.controllers)

    def _apply(self, effect: ApplyBatches) -> Input:
        try:
            self.store.apply(effect.batches, effect.previous_chain)
        except ReplayStopped as e:
            return CannotFollow(str(e))
        except WrongHistory as e:
            return StoreBroken(str(e))
        except LogFormatError as e:
            return BatchesRefused(str(e))
        job = self.store.take_snapshot_job()
        if job is not None:
            job.run()
            self.store.snapshot_written(job)
        if self._rng.random() < 0.2:
            self.store.flush()
        return Applied(self.store.position)

    def _download(self, snapshot: OffsetAndEpoch) -> Input:
        source = self._target
        if source.node is None or not self.cluster.network.reaches(source.name, self.name):
            return SnapshotFailed("out of reach")
        position, size = 0, 1
        try:
            while position < size:
                size, data = source.node.snapshotter.store.read_chunk(snapshot, position, 4_096)
                self.store.write_part(snapshot, position, data)
                position += len(data)
            self.store.install(snapshot)
        except Exception as e:  # not found, or retired in between: the session asks anew
            return SnapshotFailed(str(e))
        self.cluster.coverage["snapshot loaded by a broker"] += 1
        return Applied(self.store.position)

    # --- the wire --------------------------------------------------------------------------------------------------

    def _ask(self, make: "object", on_answer: "object", what: str) -> None:
        target, boot = self._target, self.boot

        def back(answer: Answer) -> None:
            def arrive() -> None:
                if self.boot == boot:
                    self._take(on_answer(answer, target), f"{what} answer")  # type: ignore[operator]

            self.cluster.network.carry(target.name, self.name, arrive, what)

        self.cluster.network.carry(
            self.name, target.name, lambda: target.ask(make, back, f"{what} {self.name}"), what  # type: ignore[arg-type]
        )

    def _register(self, effect: Register) -> None:
        self.store.note_attempt(self.incarnation_id)
        command = RegisterBrokerCommand(
            broker_id=self.broker_id,
            incarnation_id=self.incarnation_id,
            endpoints=(Endpoint("CLIENT", "127.0.0.1", 9_000 + self.broker_id),),
            features=(FeatureRange("metadata.version", 1, 1),),
            rack=None,
            log_dirs=(self.broker_id.to_bytes(16, "big"),),
            previous_incarnation_id=effect.previous_incarnation,
        )
        deadline_ms = int(self.cluster.now_ms) + effect.timeout_ms

        def convert(answer: Answer, target: "SimController") -> Input:
            if isinstance(answer, RegisterBrokerReply):
                self.store.note_registered(self.incarnation_id)
                self.cluster.coverage["broker registered"] += 1
                return Registered(effect.number, answer.broker_epoch)
            assert isinstance(answer, Refused)
            return RegisterFailed(effect.number, answer.code, answer.message, self._hint(answer))

        self._ask(lambda reply_to: Submission(command, reply_to, deadline_ms), convert, "register")

    def _fetch(self, request: FetchRequest) -> None:
        self.wants_fence = request.wants_fence
        fetch = MetadataFetch(
            broker_id=self.broker_id,
            broker_epoch=request.broker_epoch,
            incarnation_id=self.incarnation_id,
            offset=request.position.offset,
            epoch=request.position.epoch,
            chain=request.position.chain,
            wants_fence=request.wants_fence,
            wants_shut_down=request.wants_shut_down,
            offline_log_dirs=(),
            max_wait_ms=request.max_wait_ms,
            max_bytes=request.max_bytes,
        )

        def convert(answer: Answer, target: "SimController") -> Input:
            if isinstance(answer, Refused):
                return FetchFailed(request.number, answer.code, answer.message, self._hint(answer))
            assert isinstance(answer, MetadataFetched)
            return FetchAnswered(_answer(request.number, answer))

        self._ask(lambda reply_to: BrokerFetch(fetch, reply_to), convert, "metadata fetch")

    @staticmethod
    def _hint(refused: Refused) -> LeaderHint | None:
        if refused.code is not ErrorCode.NOT_CONTROLLER or refused.hint is None:
            return None
        return LeaderHint(refused.hint.leader_id, "", 0)


def _answer(number: int, fetched: MetadataFetched) -> FetchAnswer:
    standing = fetched.standing
    nowhere = OffsetAndEpoch(0, 0)
    assert fetched.result.value != "diverged", "nothing in the simulation may take committed records back"
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
    )
