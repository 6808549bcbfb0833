"""The agent of one broker: the only part of a broker with a clock and an event loop. It decides nothing.

    client, loader, signals, timer --inputs--> Session --effects--> client, loader

The agent steps the session on the event loop. The loader (`metadata_loader`) does slow work on threads.

    1. An answer to a fetch arrives. The client passes the answer to `feed`, which steps the session.
    2. The session returns `ApplyBatches`. The agent starts the loader's task for it.
    3. The loader applies the batches on the store's thread, swaps the cache, and feeds `Applied` to the session.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, assert_never

from broker_agent import convert
from broker_agent.cache import MetadataCache
from broker_agent.client import ControllerClient
from broker_agent.directory_reporter import AssignmentsAnswered, report
from broker_agent.identity import BrokerIdentity
from broker_agent.isr_proposer import ProposalsAnswered, lead
from broker_agent.metadata_loader import Log, MetadataLoader
from broker_agent.own_disk.broker_log import BrokerLog
from broker_agent.problems import BrokerProblem
from broker_agent.publishing.publishers import Publishers
from broker_agent.session.isr_proposals import IsrProposal, IsrProposals
from broker_agent.session.lifecycle import (
    AbandonFetch,
    Applied,
    ApplyBatches,
    BrokerState,
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
    Register,
    Registered,
    ResetStore,
    StateChanged,
    StopRequested,
    TimerFired,
)
from broker_agent.session.replica_directories import (
    DIRECTORY_LIMITS,
    Assignment,
    DirectoryLimits,
    Place,
    ReplicaDirectories,
)
from broker_agent.session.session import Session
from broker_agent.store import BrokerStore
from metadata_log.format.ids import NodeId, Offset, Uuid, uuid_text
from metadata_log.format.records import NO_DATA_PLANE, Endpoint
from metadata_log.image.metadata_image import MetadataImage
from service_kit.process.endpoints import HostPort

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AgentTimes:
    """The agent's own timers; the session's timers are in `SessionConfig`."""

    flush_interval_ms: int = 1_000
    """How long applied batches may wait for an fsync. A crash costs fetching them again, no more."""
    search_log_interval_ms: int = 5_000


class AgentLoop:
    """One broker process. Call `run`; all other methods may be called from the same event loop meanwhile."""

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
        directory_limits: DirectoryLimits = DIRECTORY_LIMITS,
    ) -> None:
        self.identity = identity
        self.cache = MetadataCache()
        self.leases_lapsed = 0
        self.flush_data: Callable[[], Awaitable[None]] | None = None
        """Makes the data of this broker's replicas durable, at the end of a controlled shutdown. An embedding process sets it."""
        self.data_problems: Callable[[], Iterable[BrokerProblem]] = tuple
        """The problems of the data plane in this process."""
        self.leaves_proof = True
        """False if the data may lack records although the shutdown was controlled: then the store keeps no proof of it."""
        self._session = session
        self._client = connect(self.feed)
        self._now_ms = now_ms
        self._log = log
        self._times = times
        self._inbox: deque[Input] = deque()
        self._stepping = False
        self._search_told_ms = -times.search_log_interval_ms
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        """Set and replaced at every swap of the cache and every change of state."""
        self._exit: asyncio.Future[Exit] | None = None
        self._directories = ReplicaDirectories(identity.broker_id, identity.log_dirs, directory_limits)
        self._companions: list[Callable[[], Awaitable[None]]] = []
        self.publishers = Publishers(self._spawn, log, identity.generation)
        """The subscribers that learn of every swap of the cache."""
        self._loader = MetadataLoader(
            store,
            self.cache,
            self.publishers,
            feed=self.feed,
            announce=self._announce,
            spawn=self._spawn,
            flush_interval_ms=times.flush_interval_ms,
            log=log,
        )

    # --- public state ------------------------------------------------------------------------------------------------

    @property
    def controller(self) -> str:
        """`host:port` of the controller that the broker asks now."""
        return self._client.target

    @property
    def controllers(self) -> tuple[HostPort, ...]:
        """The voters' addresses in the store's log: a way back when no configured address is right any more."""
        return self._loader.controllers

    @property
    def image(self) -> MetadataImage:
        """The image that clients are answered from."""
        return self.cache.current.image

    @property
    def cluster_id(self) -> str:
        return self.identity.cluster_id

    @property
    def generation(self) -> int:
        """The generation of the cluster's history that this broker follows."""
        return self.identity.generation

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

    @property
    def stores_dropped(self) -> int:
        return self._loader.stores_dropped

    @property
    def snapshots_loaded(self) -> int:
        return self._loader.snapshots_loaded

    @property
    def problems(self) -> tuple[BrokerProblem, ...]:
        """What is wrong with this broker although it may serve."""
        disk_full = self._loader.disk_full
        own = () if disk_full is None else (disk_full,)
        return (*self.publishers.problems, *own, *self.data_problems())

    @property
    def lease_until_ms(self) -> int:
        """The end of the lease, exclusive, on the clock of `now_ms`."""
        return self._session.lease_until_ms

    def is_current(self, image: MetadataImage) -> bool:
        """Tells whether the image has this process's registration, and everything that was committed at the last answer."""
        me, epoch = image.brokers.get(self.broker_id), self.broker_epoch
        is_registered = me is not None and epoch is not None and me.broker_epoch == epoch
        return is_registered and image.offset >= self.high_watermark

    @property
    def client(self) -> ControllerClient:
        """The connection to the controller that the broker asks now, for further calls of this broker."""
        return self._client

    async def in_log(self, work: Callable[[BrokerLog], T]) -> T:
        """Returns the result of `work`, which only reads, on the thread of the store. Raises LogUnreadable."""
        return await self._loader.in_log(work)

    def may_serve(self) -> bool:
        """Tells whether clients may be answered at this moment."""
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
        """Sets the endpoints that the broker registers. Call it before `run`."""
        self.identity = replace(self.identity, endpoints=endpoints)

    # --- log directories ---------------------------------------------------------------------------------------------

    def keep_replicas_in(self, log_dirs: tuple[Uuid, ...]) -> None:
        """Sets the ids of the log directories that the broker registers, at least one. Call it before `run`."""
        assert self._exit is None, "the broker runs already"
        self.identity = replace(self.identity, log_dirs=log_dirs)
        self._directories = ReplicaDirectories(self.broker_id, log_dirs, self._directories.limits)

    def assign_directories(self, directory: Uuid, replicas: Iterable[Place]) -> None:
        """Notes that replicas of this broker, each a topic id and a partition, are in the log directory now. The agent tells the
        controllers until its own image shows it.

        Assign a replica only when all its data is there: the controllers may elect it at once.

        Raises:
            ValueError: the broker was not started with this directory.
        """
        self._directories.assign(directory, replicas)
        self._announce()

    def directory_failed(self, directory: Uuid) -> None:
        """Notes that the log directory has failed: the controllers give its leaderships to other brokers. It stays offline until
        the next process. The process ends if the controllers cannot be told in time, or if no directory is left.

        Raises:
            ValueError: the broker was not started with this directory.
        """
        self._directories.fail(directory, self._now_ms())
        self._log.warning("log directory failed", directory=uuid_text(directory))
        self._announce()

    @property
    def unassigned_replicas(self) -> int:
        """How many replicas the image does not show in the directories that `assign_directories` has named."""
        return self._directories.untold

    @property
    def offline_directories(self) -> tuple[Uuid, ...]:
        """The log directories that have failed in this process."""
        return self._directories.offline

    def accompany(self, work: Callable[[], Awaitable[None]]) -> None:
        """Runs `work` as a task of `run`: if the task fails, `run` fails. Call it before `run`."""
        assert self._exit is None, "the broker runs already"
        self._companions.append(work)

    def give_up(self, reason: str) -> None:
        """Ends the process: the broker cannot do its work any more."""
        self._log.error("log directories", reason=reason)
        self._leave(Exit(1, reason))

    def stop(self) -> None:
        """Begins a controlled shutdown: `run` returns once the controller agrees, or after the deadline."""
        self.feed(StopRequested())

    # --- running -----------------------------------------------------------------------------------------------------

    async def run(self) -> Exit:
        """Runs the broker, from reading its store to leaving; returns the exit code and its reason.

        After a controlled shutdown the store keeps the proof of it, once `flush_data` has returned.

        Raises:
            OSError, FlushFailed: the disk has failed, and the process has to end.
        """
        self._exit = asyncio.get_running_loop().create_future()
        try:
            self._spawn(self._loader.recover(self.incarnation))
            if self.identity.data_plane == NO_DATA_PLANE:
                self._spawn(self._lead())
            self._spawn(report(self, self._directories, self._assign, self.give_up, now_ms=self._now_ms, log=self._log))
            for work in self._companions:
                self._spawn(work())
            ended = await self._exit
            if ended.clean_broker_epoch is not None and self.leaves_proof:
                if self.flush_data is not None:
                    await self.flush_data()
                await self._loader.note_clean_shutdown(ended.clean_broker_epoch)
            return ended
        finally:
            await self._close()

    def feed(self, happened: Input) -> None:
        """Steps the session. An input that arrives during a step waits for the end of that step."""
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
                    self._spawn(self._loader.note_registered(self.incarnation))
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
                request = self.identity.register_request(effect, self._directories.online)
                self._client.register(request, effect.number, effect.timeout_ms)
            case Fetch(fetch):
                self._client.fetch(self.identity.fetch_request(fetch, self._directories.offline))
            case AbandonFetch():
                self._client.abandon_fetch()
            case FindController(leader, reason):
                self._tell_of_search(reason, leader)
                self._client.turn_to(leader, self.controllers)
            case ApplyBatches():
                self._spawn(self._loader.apply(effect))
            case DownloadSnapshot():
                self._spawn(self._download(effect))
            case ResetStore(reason):
                self._spawn(self._loader.reset(reason))
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
                self._leave(effect)
            case _:
                assert_never(effect)

    def _leave(self, leaving: Exit) -> None:
        assert self._exit is not None
        if not self._exit.done():
            self._exit.set_result(leaving)

    def _tell_of_search(self, reason: str, leader: LeaderHint | None) -> None:
        """Logs at most one line per interval: a broker without a controller asks several times a second, possibly for hours."""
        now_ms = self._now_ms()
        is_time = now_ms >= self._search_told_ms + self._times.search_log_interval_ms
        tell = self._log.info if is_time else self._log.debug
        tell("looking for the controller", asked=self._client.target, reason=reason, hint=leader)
        if is_time:
            self._search_told_ms = now_ms

    async def _lead(self) -> None:
        """Proposes ISRs, because no data plane does: without data any active replica is as good as another."""
        text = "this broker adds every active replica to its ISRs, whatever data the replica has: only for trying things out"
        self._log.warning("no data plane", means=text)
        await lead(self, IsrProposals(self.broker_id), self._propose, now_ms=self._now_ms, log=self._log)

    async def _propose(self, asked: tuple[IsrProposal, ...], broker_epoch: int, timeout_ms: int) -> ProposalsAnswered:
        request = self.identity.alter_partition_request(asked, broker_epoch)
        response = await self._client.alter_partition(request, timeout_ms)
        return ProposalsAnswered(response.offset, convert.proposal_results(response))

    async def _assign(self, asked: tuple[Assignment, ...], broker_epoch: int, timeout_ms: int) -> AssignmentsAnswered:
        request = self.identity.assign_request(asked, broker_epoch)
        response = await self._client.assign_replicas(request, timeout_ms)
        return AssignmentsAnswered(response.offset, convert.assignment_results(response))

    async def _download(self, effect: DownloadSnapshot) -> None:
        request = self.identity.snapshot_request(effect)
        await self._loader.install(effect.snapshot, self._client.snapshot(request))

    async def _join_generation(self, generation: int) -> None:
        await self._loader.join_generation(generation)
        self.identity = replace(self.identity, generation=generation)
        self._announce()
        self.feed(Applied(self._loader.position))

    def _announce(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # --- tasks -------------------------------------------------------------------------------------------------------

    def _spawn(self, work: Any) -> None:
        """Starts a task. If the task fails, `run` fails: no failure in a task is silent."""
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
        if self._timer is not None:
            self._timer.cancel()
        self._loader.stop_timers()
        await self._client.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loader.close()
