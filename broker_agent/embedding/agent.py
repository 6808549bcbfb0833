"""The agent as a library: one broker inside of your process, beside its data plane.

    async with Agent(config, flush_data=store.flush) as agent:
        async for assignment in agent.assignments():
            match assignment:
                case Lead():
                    store.lead(assignment)
                ...

    1. Entering the block opens the directory, binds the listeners and registers the broker. The agent runs on your event loop.
    2. The stream of assignments says what to do with each replica. `may_serve` says if clients may be answered at this moment.
    3. A signal handler calls `stop`. The controllers move the leaderships away, and the stream yields these changes, too.
    4. The controllers let the broker go. The stream ends, and so does the block. `flush_data` has made the data durable.

*The end of the agent ends the block.* If the agent ends by itself, for example because its disk has failed, the body of the block
is cancelled, and the block raises AgentEnded: a broker without its agent must not serve. Leaving the block stops the agent in
order.

Below this class is `agent.AgentLoop`, which `brokerd` runs without a data plane in its process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from quorum_rpc.v1 import broker_pb2

from broker_agent.agent import AgentLoop
from broker_agent.cache import MetadataView
from broker_agent.client import CallFailed
from broker_agent.config import BrokerConfig
from broker_agent.data_plane.producer_ids import ProducerIdBlock, ProducerIds
from broker_agent.embedding.errors import AgentEnded, NotAnswered, NotRegistered, NotRunning, typed
from broker_agent.embedding.isr_requests import IsrGranted, IsrRequests, refused
from broker_agent.embedding.standard_log import StandardLog
from broker_agent.metadata_loader import Log
from broker_agent.problems import BrokerProblem
from broker_agent.process import run_broker
from broker_agent.publishing.assignment_feed import NAME, AssignmentFeed, AssignmentStream
from broker_agent.publishing.assignments import Lead, ResumePoint, TopicIdPartition
from broker_agent.publishing.publishers import Subscriber
from broker_agent.session.isr_proposals import IsrMember, IsrProposal
from broker_agent.session.lifecycle import BrokerState, Exit
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset, Uuid
from metadata_log.format.records import Endpoint
from metadata_log.image.metadata_image import MetadataImage
from service_kit.process.clock import RealClock

REQUEST_TIMEOUT_MS: Final = 5_000
"""How long to wait for the controller's answer to one request."""


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    """The lease at one moment. Ask again at each answer to a client: a process that was paused has noticed nothing."""

    holds: bool
    """True if the controllers have promised that no other broker gets this broker's partitions yet."""
    remaining_ms: int
    """How long the lease holds without another answer of the controllers; 0 if it does not hold."""


class Agent:
    """One broker. Use it once, with `async with`; call all methods from the event loop of that block."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        log_dirs: Iterable[Uuid] = (),
        endpoints: Iterable[Endpoint] = (),
        flush_data: Callable[[], Awaitable[None]] | None = None,
        log: Log | None = None,
    ) -> None:
        """`log_dirs` are the ids of the log directories of your data; none: you have one, and do not name it. `endpoints` are the
        addresses of your data plane, which the broker registers beside its own listeners.

        `flush_data` makes all data durable at the end of a controlled shutdown. Only then the broker leaves the proof that its
        data are whole. Without `flush_data`, or after an error in the block, the next process counts as one that was killed.

        `log` takes the lines of the agent; without it they go to the standard library's logger `metaquorum`.
        """
        self._config = config
        self._log_dirs = tuple(log_dirs)
        self._endpoints = tuple(endpoints)
        self._flush_data = flush_data
        self._log: Log = StandardLog() if log is None else log
        self._feed = AssignmentFeed(config.node_id, lambda image: self._the_loop.is_current(image))
        self._subscribers: dict[str, Subscriber] = {NAME: self._feed.take}
        self._isr_requests = IsrRequests(self._alter_partition)
        self._producer_ids = ProducerIds(self._allocate, lambda: self._the_loop.generation, NotAnswered)
        self._clock = RealClock()
        self._loop: AgentLoop | None = None
        self._running: asyncio.Task[Exit] | None = None
        self._has_started = asyncio.Event()
        self._body: asyncio.Task[Any] | None = None
        """The task in the block, while the block's body runs."""
        self._has_cancelled_body = False
        self._is_stopping = False

    # --- the block ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Starts the broker; returns once it is registered.

        Raises:
            CannotStart: the configuration or the directory is wrong.
            NotRegistered: the controllers refuse the broker, or none answers in time (`initial.broker.registration.timeout.ms`).
            DiskFailed: the disk under the metadata directory has failed.
        """
        assert self._running is None, "an agent is used once: make another one"
        now_ms = self._clock.now_ms
        self._running = asyncio.get_running_loop().create_task(
            run_broker(self._config, now_ms, self._log, started=self._start)
        )
        try:
            await self._before_the_end(self._until_registered())
        except BaseException:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            raise
        if self._running.done():
            raise NotRegistered(
                f"{self._result().reason}. The broker has not served. Correct the reason, then start again; the logs of the "
                "controllers say more"
            )
        self._body = asyncio.current_task()
        self._running.add_done_callback(self._ended)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves in order: the leaderships move away, and the data become durable.

        Raises:
            AgentEnded: the agent has ended by itself, or could not leave in order.
        """
        assert self._running is not None and self._body is not None
        body, self._body = self._body, None
        if self._has_cancelled_body:
            body.uncancel()
        if isinstance(error, Exception):
            self._the_loop.leaves_proof = False
        if not self._running.done():
            self.stop()
            await asyncio.gather(self._running, return_exceptions=True)
        await self._isr_requests.close()
        ended = self._result()
        if ended.code or self._has_cancelled_body:
            raise AgentEnded(
                f"the broker has ended: {ended.reason}. It serves no more; start the process again"
            ) from error

    def stop(self) -> None:
        """Begins a controlled shutdown, for example from a signal handler. The streams of assignments end with the broker."""
        self._is_stopping = True
        self._the_loop.stop()

    def _start(self, loop: AgentLoop) -> None:
        """Prepares the broker, which runs from the next step on."""
        self._loop = loop
        if self._log_dirs:
            loop.keep_replicas_in(self._log_dirs)
        if self._endpoints:
            loop.advertise((*loop.identity.endpoints, *self._endpoints))
        loop.flush_data = self._flush_data
        loop.leaves_proof = self._flush_data is not None
        for name, subscriber in self._subscribers.items():
            loop.publishers.subscribe(name, subscriber)
        self._has_started.set()

    async def _until_registered(self) -> None:
        await self._has_started.wait()
        while self._the_loop.broker_epoch is None:
            await self._the_loop.changed()

    async def _before_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Waits for `work`, or for the end of the agent."""
        assert self._running is not None
        task = asyncio.get_running_loop().create_task(work)
        try:
            await asyncio.wait({task, self._running}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()

    def _ended(self, running: asyncio.Task[Exit]) -> None:
        """Ends the streams, and the block's body unless it has stopped the agent itself."""
        self._feed.end()
        is_in_order = not running.cancelled() and running.exception() is None and running.result().code == 0
        if self._body is not None and not (is_in_order and self._is_stopping):
            self._has_cancelled_body = True
            self._body.cancel()

    def _result(self) -> Exit:
        """The end of the agent, which has ended. Raises CannotStart, DiskFailed."""
        assert self._running is not None and self._running.done()
        try:
            return self._running.result()
        except Exception as e:
            raise typed(e) from e

    @property
    def _the_loop(self) -> AgentLoop:
        if self._loop is None:
            raise NotRunning(
                "the agent was not started. Nothing was done; use it inside of `async with Agent(config) as agent`"
            )
        return self._loop

    # --- the broker --------------------------------------------------------------------------------------------------

    def may_serve(self) -> bool:
        """Tells whether clients may be answered at this moment. Ask again after each wait, before you answer."""
        return self._loop is not None and self._loop.may_serve()

    @property
    def lease(self) -> LeaseStatus:
        """The lease at this moment."""
        remaining_ms = max(0, self._the_loop.lease_until_ms - self._clock.now_ms())
        return LeaseStatus(remaining_ms > 0, remaining_ms)

    @property
    def broker_id(self) -> NodeId:
        return self._config.node_id

    @property
    def broker_epoch(self) -> int | None:
        """The offset of this process's registration; None while the process is not registered."""
        return self._the_loop.broker_epoch

    @property
    def state(self) -> BrokerState:
        """The state of the broker."""
        return self._the_loop.state

    @property
    def reason(self) -> str:
        """The reason for the state, in a sentence."""
        return self._the_loop.reason

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The addresses that the broker has registered, with the bound ports."""
        return self._the_loop.identity.endpoints

    @property
    def problems(self) -> tuple[BrokerProblem, ...]:
        """The problems that the broker has although it may serve: subscribers that have failed, and a full disk."""
        return self._the_loop.problems

    async def online(self) -> None:
        """Returns once the broker is online: it has caught up, and the controllers may elect it."""
        await self._the_loop.reached(BrokerState.ONLINE)

    # --- metadata ----------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> MetadataView:
        """The view of the cluster that clients are answered from. Take it once for each answer."""
        return self._the_loop.cache.current

    @property
    def image(self) -> MetadataImage:
        """The image of the view: everything that the cluster knows."""
        return self._the_loop.image

    async def applied(self, offset: Offset) -> None:
        """Returns once everything below `offset` is in the image."""
        await self._the_loop.applied(offset)

    def subscribe(self, name: str, subscriber: Subscriber) -> None:
        """Adds a subscriber, which gets an `ImageUpdate` for each swap of the metadata; the first has the whole image.

        A plain function is called at each swap, in the order of the subscriptions, and has to return within milliseconds. A
        coroutine function may take its time: swaps that come meanwhile are merged into its next update.

        Raises:
            ValueError: another subscriber has this name. Nothing was done.
        """
        if self._loop is not None:
            self._loop.publishers.subscribe(name, subscriber)
        elif not name or name in self._subscribers:
            raise ValueError(
                f"no subscription: {name!r} is empty or the name of another publisher. Choose another name"
            )
        else:
            self._subscribers[name] = subscriber

    def assignments(self, since: ResumePoint | None = None) -> AssignmentStream:
        """Returns a stream of this broker's assignments, at least once and in order, until the broker has left.

        The stream begins with `WholeSet` and an assignment for each replica, and goes on with each change. With `since`, the
        `resume_point` of an earlier stream, it begins with the changes since then if the agent still knows them. An agent of
        another process does not: after a restart the whole set comes first.
        """
        return self._feed.stream(since)

    # --- requests ----------------------------------------------------------------------------------------------------

    async def propose_isr(self, lead: Lead, isr: Iterable[NodeId] | Mapping[NodeId, int]) -> IsrGranted:
        """Proposes the ISR of a partition that this broker leads; returns the partition after the change.

        `isr` are the members. A mapping also has the broker epoch of each member's last fetch: then a member that was restarted
        meanwhile is not let in. Without a mapping the members have the broker epochs of the metadata.

        A proposed member may be elected before the answer comes. So a write needs each proposed member, too, from this call on,
        until an assignment without the member comes, or ProposalRefused.

        Raises:
            ProposalRefused: the controller has refused it; `code` and text say why, and what to do.
            ProposalInFlight: another proposal of the partition has no answer yet.
            NotAnswered: the change may have happened; the next assignment of the partition says.
        """
        brokers = self._the_loop.image.brokers
        epochs = isr if isinstance(isr, Mapping) else {}
        place = f"{lead.topic}-{lead.partition}"
        members = []
        for broker_id in isr:
            known = brokers.get(broker_id)
            if known is None:
                raise refused(ErrorCode.INELIGIBLE_REPLICA, place, f"broker {broker_id} is not registered")
            members.append(IsrMember(broker_id, epochs.get(broker_id, known.broker_epoch)))
        proposal = IsrProposal(lead.topic_id, lead.partition, lead.leader_epoch, lead.partition_epoch, tuple(members))
        return await self._isr_requests.propose(proposal, place)

    async def _alter_partition(self, proposals: tuple[IsrProposal, ...]) -> broker_pb2.AlterPartitionResponse:
        loop, epoch = self._registered()
        return await loop.client.alter_partition(
            loop.identity.alter_partition_request(proposals, epoch), REQUEST_TIMEOUT_MS
        )

    @property
    def producer_ids(self) -> ProducerIds:
        """Producer ids: `await agent.producer_ids.next()` is a number that no producer of the cluster has had."""
        return self._producer_ids

    async def _allocate(self) -> ProducerIdBlock:
        loop, epoch = self._registered()
        request = loop.identity.producer_ids_request(epoch)
        response = await loop.client.allocate_producer_ids(request, REQUEST_TIMEOUT_MS)
        return ProducerIdBlock(response.first_producer_id, response.count, request.generation)

    def _registered(self) -> tuple[AgentLoop, int]:
        """The broker and its epoch. Raises CallFailed."""
        loop = self._the_loop
        if loop.broker_epoch is None or self._running is None or self._running.done():
            raise CallFailed(f"the broker is not registered: {loop.reason}. Nothing was sent; ask again when it is")
        return loop, loop.broker_epoch

    # --- log directories ---------------------------------------------------------------------------------------------

    def assign_directories(self, directory: Uuid, replicas: Iterable[TopicIdPartition]) -> None:
        """Notes that these replicas, with all their data, are in the log directory now; the controllers may elect them at once.

        Raises:
            ValueError: the agent was not made with this directory.
        """
        self._the_loop.assign_directories(directory, replicas)

    def directory_failed(self, directory: Uuid) -> None:
        """Notes that the log directory has failed: the controllers give its leaderships to other brokers.

        Raises:
            ValueError: the agent was not made with this directory.
        """
        self._the_loop.directory_failed(directory)

    @property
    def offline_directories(self) -> tuple[Uuid, ...]:
        """The log directories that have failed in this process."""
        return self._the_loop.offline_directories
