"""The agent: the one place of a broker where there is a clock, an event loop and threads. It decides nothing.

    client, store threads, signals, timer --inputs--> Session --effects--> client, store threads, cache

The session is stepped on the event loop. What is slow runs on two threads of its own: the store's (applying, loading,
flushing: one thread owns the store) and the snapshot writer's, so that writing a snapshot of millions of partitions holds
up neither the applying nor the heartbeat. Their completions come back to the loop as inputs.

The cache is swapped on the loop, before the session hears that something is applied: whoever sees the state Online finds
this broker unfenced in the cache too.
"""

import asyncio
import gc
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, assert_never

from quorum_rpc.v1 import broker_pb2, common_pb2

from broker_agent import convert
from broker_agent.cache import MetadataCache
from broker_agent.client import ControllerClient, SnapshotUnavailable
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
    FindController,
    Input,
    JoinGeneration,
    LeaderHint,
    LeaseLapsed,
    LeaseRenewed,
    Position,
    Register,
    Registered,
    ResetStore,
    SnapshotFailed,
    StateChanged,
    StopRequested,
    StoreBroken,
    StoreRecovered,
    TimerFired,
)
from broker_agent.session import Session
from broker_agent.store import BrokerStore, Recovered, SnapshotJob, WrongHistory
from metadata_log.changes import Changes
from metadata_log.errors import LogFormatError
from metadata_log.files import FlushFailed
from metadata_log.ids import NodeId, Offset, OffsetAndEpoch, Uuid
from metadata_log.image import MetadataImage
from metadata_log.records import Endpoint, FeatureRange
from metadata_log.replay import ReplayStopped

T = TypeVar("T")


class Log(Protocol):
    """A structured log: an event and its fields."""

    def debug(self, event: str, **fields: object) -> object: ...

    def info(self, event: str, **fields: object) -> object: ...

    def warning(self, event: str, **fields: object) -> object: ...

    def error(self, event: str, **fields: object) -> object: ...


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What this process registers as."""

    cluster_id: str
    broker_id: NodeId
    incarnation: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    log_dirs: tuple[Uuid, ...]
    generation: int = 1


@dataclass(frozen=True, slots=True)
class AgentTimes:
    """The agent's own times; the session's are in `SessionConfig`."""

    flush_interval_ms: int = 1_000
    """What was applied is durable at the latest so much later. A crash costs fetching it again, nothing else."""
    snapshot_timeout_ms: int = 600_000
    search_log_interval_ms: int = 5_000


class _Step(NamedTuple):
    """What a piece of work on the store's thread has led to."""

    position: Position
    image: MetadataImage
    changes: Changes
    snapshot: SnapshotJob | None


class Agent:
    """One broker process. `run` it; everything else may be called from the same event loop meanwhile."""

    def __init__(
        self,
        identity: BrokerIdentity,
        session: Session,
        store: BrokerStore,
        connect: Callable[[Callable[[Input], None]], ControllerClient],
        *,
        now_ms: Callable[[], int],
        log: Log,
        times: AgentTimes = AgentTimes(),
    ) -> None:
        self.identity = identity
        self.cache = MetadataCache()
        self.leases_lapsed = 0
        self.stores_dropped = 0
        self.snapshots_loaded = 0
        self._session = session
        self._store = store
        self._client = connect(self.feed)
        self._now_ms = now_ms
        self._log = log
        self._times = times
        self._inbox: deque[Input] = deque()
        self._stepping = False
        self._search_told_ms = -times.search_log_interval_ms
        self._timer: asyncio.TimerHandle | None = None
        self._flush_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        """Set, and replaced, at every swap and every change of state."""
        self._exit: asyncio.Future[Exit] | None = None
        self._store_thread = ThreadPoolExecutor(1, "store")
        self._snapshot_thread = ThreadPoolExecutor(1, "snapshot")

    # --- what others see ---------------------------------------------------------------------------------------------

    @property
    def controller(self) -> str:
        """`host:port` of the controller that it asks."""
        return self._client.target

    @property
    def cluster_id(self) -> str:
        return self.identity.cluster_id

    @property
    def broker_id(self) -> NodeId:
        return self.identity.broker_id

    @property
    def incarnation(self) -> Uuid:
        return self.identity.incarnation

    @property
    def state(self) -> BrokerState:
        return self._session.state

    @property
    def reason(self) -> str:
        return self._session.reason

    @property
    def broker_epoch(self) -> int | None:
        return self._session.broker_epoch

    @property
    def high_watermark(self) -> Offset:
        return self._session.high_watermark

    @property
    def lease_lapsed(self) -> bool:
        return self._session.lease_lapsed

    def may_serve(self) -> bool:
        """Whether clients may be answered at this very moment."""
        return self._session.may_serve(self._now_ms())

    async def applied(self, offset: Offset) -> None:
        """Returns once the cache has applied everything below `offset`."""
        while self.cache.current.offset < offset:
            await self._changed.wait()

    async def reached(self, state: BrokerState) -> None:
        """Returns once the broker is in `state`."""
        while self.state is not state:
            await self._changed.wait()

    async def changed(self) -> None:
        """Returns at the next change of state, lease or cache."""
        await self._changed.wait()

    def advertise(self, endpoints: tuple[Endpoint, ...]) -> None:
        """What is registered is `endpoints`. Before `run`."""
        self.identity = replace(self.identity, endpoints=endpoints)

    def stop(self) -> None:
        """Leave in order: leaders first. `run` returns once the controller agrees, or the deadline has passed."""
        self.feed(StopRequested())

    # --- running -----------------------------------------------------------------------------------------------------

    async def run(self) -> Exit:
        """From recovering the store to leaving; the exit says why.

        Raises:
            OSError, FlushFailed: the disk's, which nothing here can mend.
        """
        self._exit = asyncio.get_running_loop().create_future()
        try:
            self._spawn(self._recover())
            return await self._exit
        finally:
            await self._close()

    async def _recover(self) -> None:
        recovered = await self._in_store(self._store.recover)
        if recovered.dropped is not None:
            self.stores_dropped += 1
            self._log.error("store dropped", reason=recovered.dropped, now="fetching everything anew")
        await self._in_store(lambda: self._store.note_attempt(self.incarnation))
        self._log.info("store recovered", offset=recovered.position.offset, image=repr(recovered.image))
        self._publish(recovered.image, Changes.between(self.cache.current.image, recovered.image))
        gc.freeze()  # what was loaded stays: no collection needs to walk it again
        self.feed(StoreRecovered(recovered.position, _others(recovered, self.incarnation)))

    def feed(self, happened: Input) -> None:
        """Steps the session; what comes while it is being stepped waits its turn."""
        self._inbox.append(happened)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._inbox:
                happened = self._inbox.popleft()
                for effect in self._session.step(happened, self._now_ms()):
                    self._carry_out(effect)
                if isinstance(happened, Registered):
                    self._spawn(self._in_store_for_nothing(lambda: self._store.note_registered(self.incarnation)))
        finally:
            self._stepping = False
        self._arm_timer()

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._session.next_deadline_ms()
        if deadline_ms is not None:
            delay_ms = max(0, deadline_ms - self._now_ms())
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1_000, self.feed, TimerFired())

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Register():
                self._client.register(self._register_request(effect), effect.number, effect.timeout_ms)
            case Fetch(request):
                self._client.fetch(
                    convert.fetch_request(
                        request,
                        cluster_id=self.cluster_id,
                        broker_id=self.broker_id,
                        incarnation=self.incarnation,
                        generation=self.identity.generation,
                    )
                )
            case AbandonFetch():
                self._client.abandon_fetch()
            case FindController(leader, reason):
                self._tell_of_search(reason, leader)
                self._client.turn_to(leader)
            case ApplyBatches():
                self._spawn(self._apply(effect))
            case DownloadSnapshot():
                self._spawn(self._download(effect))
            case ResetStore(reason):
                self._spawn(self._reset(reason))
            case JoinGeneration(generation):
                self._spawn(self._join_generation(generation))
            case StateChanged(state, reason):
                self._log.info("broker state", state=state.name.lower(), reason=reason, broker_epoch=self.broker_epoch)
                self._announce()
            case LeaseLapsed():
                self.leases_lapsed += 1
                self._log.warning("lease lapsed", serving=self.may_serve(), controller=self._client.target)
                self._announce()
            case LeaseRenewed():
                self._log.info("lease renewed")
                self._announce()
            case Exit():
                assert self._exit is not None
                if not self._exit.done():
                    self._exit.set_result(effect)
            case _:
                assert_never(effect)

    def _tell_of_search(self, reason: str, leader: LeaderHint | None) -> None:
        """One line in a while: a broker without a controller asks several times a second, for as long as it takes."""
        now_ms = self._now_ms()
        is_time = now_ms >= self._search_told_ms + self._times.search_log_interval_ms
        tell = self._log.info if is_time else self._log.debug
        tell("looking for the controller", asked=self._client.target, reason=reason, hint=leader)
        if is_time:
            self._search_told_ms = now_ms

    def _register_request(self, effect: Register) -> broker_pb2.RegisterBrokerRequest:
        identity = self.identity
        return convert.register_request(
            cluster_id=identity.cluster_id,
            broker_id=identity.broker_id,
            incarnation=identity.incarnation,
            endpoints=identity.endpoints,
            features=identity.features,
            rack=identity.rack,
            log_dirs=identity.log_dirs,
            previous_incarnation=effect.previous_incarnation,
            generation=identity.generation,
        )

    # --- the store ---------------------------------------------------------------------------------------------------

    async def _apply(self, effect: ApplyBatches) -> None:
        try:
            step = await self._in_store(lambda: self._apply_in_store(effect))
        except WrongHistory as e:
            self.feed(StoreBroken(str(e)))
        except ReplayStopped as e:
            self.feed(CannotFollow(f"{e}; a newer release of this broker may know what to do"))
        except LogFormatError as e:
            self.feed(BatchesRefused(str(e)))
        else:
            self._settle(step)

    def _apply_in_store(self, effect: ApplyBatches) -> _Step:
        """On the store's thread."""
        published = self.cache.current.image
        result = self._store.apply(effect.batches, effect.previous_chain)
        follows = result.before is published
        changes = result.changed if follows else Changes.between(published, result.image)
        return _Step(self._store.position, result.image, changes, self._store.take_snapshot_job())

    async def _download(self, effect: DownloadSnapshot) -> None:
        end = effect.snapshot
        request = broker_pb2.FetchMetadataSnapshotRequest(
            cluster_id=self.cluster_id,
            broker_id=self.broker_id,
            broker_epoch=effect.broker_epoch,
            incarnation_id=self.incarnation,
            snapshot=common_pb2.SnapshotId(end_offset=end.offset, epoch=end.epoch),
            generation=self.identity.generation,
        )
        try:
            async for piece in self._client.snapshot(request, self._times.snapshot_timeout_ms):
                await self._in_store(partial(self._store.write_part, end, piece.position, piece.data))
            step = await self._in_store(lambda: self._install_in_store(end))
        except (SnapshotUnavailable, LogFormatError) as e:
            self.feed(SnapshotFailed(str(e)))
            return
        self.snapshots_loaded += 1
        self._log.info("snapshot loaded", snapshot=str(end), image=repr(step.image))
        self._settle(step)
        gc.freeze()

    def _install_in_store(self, end: OffsetAndEpoch) -> _Step:
        """On the store's thread."""
        self._store.install(end)
        changes = Changes.between(self.cache.current.image, self._store.image)
        return _Step(self._store.position, self._store.image, changes, None)

    async def _reset(self, reason: str) -> None:
        self.stores_dropped += 1
        self._log.error("store dropped", reason=reason, now="fetching everything anew")
        await self._in_store(self._store.reset)
        self.feed(Applied(self._store.position))

    async def _join_generation(self, generation: int) -> None:
        """The curtain falls: in the new history even what clients were told last may be missing."""
        self.stores_dropped += 1
        self._log.warning("new generation", generation=generation, now="dropping the store, fetching everything anew")
        await self._in_store(lambda: self._store.join_generation(generation))
        self.identity = replace(self.identity, generation=generation)
        self.cache.begin_anew()
        self._announce()
        self.feed(Applied(self._store.position))

    def _settle(self, step: _Step) -> None:
        """Back on the loop: clients see it, then the session."""
        self._publish(step.image, step.changes)
        if step.snapshot is not None:
            self._spawn(self._write_snapshot(step.snapshot))
        if self._flush_timer is None:
            delay = self._times.flush_interval_ms / 1_000
            self._flush_timer = asyncio.get_running_loop().call_later(delay, self._flush)
        self.feed(Applied(step.position))

    def _publish(self, image: MetadataImage, changes: Changes) -> None:
        """A store that began anew stays behind the curtain until it has reached what clients were already told."""
        before = self.cache.current
        if image.offset < before.offset or image is before.image:
            return
        swapped = self.cache.swap(image, changes)
        if swapped.deleted:
            self._log.info("partitions deleted", count=len(swapped.deleted), first=swapped.deleted[0].topic)
        for listener, lacking in swapped.listeners_that_differ.items():
            self._log.warning("brokers without a listener that others have", listener=listener, brokers=lacking)
        self._announce()

    def _announce(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _flush(self) -> None:
        self._flush_timer = None
        self._spawn(self._in_store_for_nothing(self._store.flush))

    async def _write_snapshot(self, job: SnapshotJob) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._snapshot_thread, job.run)
        except OSError as e:
            self._log.warning("snapshot not written", snapshot=str(job.meta.end), reason=str(e))
            return
        retired = await self._in_store(lambda: self._store.snapshot_written(job))
        self._log.info("snapshot written", snapshot=str(job.meta.end), retired=len(retired))

    async def _in_store(self, work: Callable[[], T]) -> T:
        """Runs `work` on the store's thread, after all that was given to it before."""
        return await asyncio.get_running_loop().run_in_executor(self._store_thread, work)

    async def _in_store_for_nothing(self, work: Callable[[], None]) -> None:
        await self._in_store(work)

    # --- tasks -------------------------------------------------------------------------------------------------------

    def _spawn(self, work: Any) -> None:
        """A task whose failure ends the process: there is nothing in here that may fail in silence."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is None:
            return
        error = task.exception()
        assert error is not None and self._exit is not None
        if not self._exit.done():
            self._exit.set_exception(error)

    async def _close(self) -> None:
        for timer in (self._timer, self._flush_timer):
            if timer is not None:
                timer.cancel()
        await self._client.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._in_store_for_nothing(self._store.close)
        except (OSError, FlushFailed) as e:
            self._log.error("store not flushed", reason=str(e))
        self._snapshot_thread.shutdown()
        self._store_thread.shutdown()


def _others(recovered: Recovered, incarnation: Uuid) -> tuple[Uuid, ...]:
    return tuple(each for each in recovered.previous_incarnations if each != incarnation)
