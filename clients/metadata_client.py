"""`MetadataClient`: the cluster's metadata on a client's side, kept fresh in the background. Use on one event loop.

    1. A producer waits for orders-3 (`wait_for`). The client asks the least loaded broker for orders, and returns the view.
    2. The leader of orders-3 dies. The producer reports the broken connection (`note_stale`), and sends to the old view no more.
    3. The client asks another broker, and calls the producer's listener with a view in which broker 103 leads orders-3.

All decisions are made in `clients.metadata`, which is pure: this class has the clock, the task and the calls. A program that
sends other requests to the brokers reports these with `requests_to`, so that the client asks a broker with little to do.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, Self, TypeVar

from clients.errors import MetadataError
from clients.metadata.backoff import ExponentialBackoff
from clients.metadata.bootstrap import parse_bootstrap
from clients.metadata.client_metadata import ClientMetadata, NotThere
from clients.metadata.cluster import Cluster, ClusterNode, ClusterResource, TopicPartition
from clients.metadata.node_states import NodeStates
from clients.metadata.refresher import ANSWERED, Ask, ClientConfig, Problem, ProblemKind, Refresher
from clients.metadata.waiting import MAX_WAIT_MS, Waited, WaitOnMetadata
from clients.metadata_calls import (
    ClusterDescription,
    ConfigResource,
    GrpcMetadataCalls,
    MetadataCalls,
    MetadataProblem,
    OwnConfigs,
)
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Uuid
from service_kit.process.clock import RealClock

R = TypeVar("R")

logger: Final = logging.getLogger(__name__)


class ClientClock(Protocol):
    """The time, and a wait with a deadline."""

    def now_ms(self) -> int: ...

    async def wait(self, event: asyncio.Event, until_ms: int) -> None:
        """Returns once `event` is set, or at `until_ms`."""


class LoopClock:
    """The machine's clock. Producers and consumers use it, too."""

    def __init__(self) -> None:
        self._clock = RealClock()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def wait(self, event: asyncio.Event, until_ms: int) -> None:
        try:
            # Python 3.11's wait_for may swallow the cancellation of a close that comes together with the event.
            async with asyncio.timeout(max(0, until_ms - self.now_ms()) / 1_000):
                await event.wait()
        except TimeoutError:
            return  # the time has come


class MetadataClient:
    """`async with MetadataClient("b1:9092,b2:9092") as client`: the metadata of one cluster."""

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        *,
        config: ClientConfig | None = None,
        all_topics: bool = False,
        listener: str = "",
        dial: Any = None,
        calls: MetadataCalls | None = None,
        clock: ClientClock | None = None,
        dice: random.Random | None = None,
    ) -> None:
        """`bootstrap`: `host:port` of brokers, as a list or as text with commas. `all_topics`: the view has all topics of the
        cluster, and not only those that were waited for. `listener`: the brokers' listener for this client; "": the listener
        that the client calls. `dial(target) -> Channel`: makes the channels, for example a `Dialer` with TLS.

        Raises:
            BadEndpoint: `bootstrap` is empty, or an entry is not `host:port`. (A ValueError.)
        """
        times = config or ClientConfig()
        dice = dice or random.Random()
        self._clock = clock or LoopClock()
        self._calls = calls or GrpcMetadataCalls(dial, listener=listener)
        self._metadata = ClientMetadata(
            parse_bootstrap(bootstrap),
            all_topics=all_topics,
            retry_backoff_ms=times.retry_backoff_ms,
            retry_backoff_max_ms=times.retry_backoff_max_ms,
            max_age_ms=times.metadata_max_age_ms,
            topic_expiry_ms=times.metadata_max_idle_ms,
            dice=dice,
        )
        reconnect = ExponentialBackoff(times.reconnect_backoff_ms, times.reconnect_backoff_max_ms, dice)
        self._nodes = NodeStates(reconnect, dice)
        self._refresher = Refresher(self._metadata, self._nodes, times)
        self._waits: dict[WaitOnMetadata, asyncio.Future[Waited]] = {}
        self._wake = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._call: asyncio.Task[None] | None = None
        self._cluster_id: str | None = None
        self._metadata.subscribe_cluster(self._log_cluster)

    async def __aenter__(self) -> Self:
        assert self._running is None, "this client has been started"
        self._running = asyncio.create_task(self._run(), name="metadata client")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends all waits with an error, and closes the connections. May be called twice."""
        self._metadata.close()
        self._settle_waits()
        tasks = [task for task in (self._running, self._call) if task is not None]
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        await self._calls.close()
        for each in ended:
            if isinstance(each, Exception):
                raise each

    # --- the view ----------------------------------------------------------------------------------------------------

    @property
    def cluster(self) -> Cluster:
        """The present view, which is immutable. Until the first answer it has the bootstrap addresses only."""
        return self._metadata.cluster

    async def wait_for(
        self, topic: str, partition: int | None = None, max_wait_s: float = MAX_WAIT_MS / 1_000
    ) -> Waited:
        """Returns the view with the topic, and with the partition if one is given, and how long that took.

        A topic stays of interest for 5 minutes after the last wait for it (`metadata_max_idle_ms`).

        Raises:
            MetadataError: the time is over (REQUEST_TIMED_OUT), the topic's name is not valid or the topic may not be seen, or
                the client was closed or refused.
            ValueError: `max_wait_s` or `partition` is negative.
        """
        assert self._running is not None, "use `async with MetadataClient(...)`, or the client asks nobody"
        now_ms = self._clock.now_ms()
        wait = WaitOnMetadata(self._metadata, topic, partition, now_ms, round(max_wait_s * 1_000))
        outcome = wait.poll(now_ms)
        if isinstance(outcome, Waited):
            return outcome
        if outcome is not None:
            raise MetadataError(outcome.code, outcome.message)
        self._check_runs()
        future: asyncio.Future[Waited] = asyncio.get_running_loop().create_future()
        self._waits[wait] = future
        self._wake.set()
        try:
            return await future
        finally:
            self._waits.pop(wait, None)

    def want(self, topics: Iterable[str]) -> None:
        """Keeps topics of interest for 5 minutes more (`metadata_max_idle_ms`), without a wait."""
        now_ms = self._clock.now_ms()
        for topic in topics:
            self._metadata.add(topic, now_ms)
        self._wake.set()

    def subscribe(self, listener: Callable[[Cluster], object]) -> Callable[[], None]:
        """Calls `listener` with each new view, until the returned function is called. An exception of a listener is logged, and
        stops nothing."""
        guarded = _guarded(listener)
        self._metadata.subscribe(guarded)
        return lambda: self._metadata.unsubscribe(guarded)

    def subscribe_cluster(self, listener: Callable[[ClusterResource], object]) -> None:
        """Calls `listener` with the cluster's id at each answer."""
        self._metadata.subscribe_cluster(_guarded(listener))

    # --- questions ---------------------------------------------------------------------------------------------------

    async def describe_cluster(self, timeout_s: float = 10) -> ClusterDescription:
        """Returns all registered brokers with their states, and the features. Raises MetadataError."""
        return await self._ask_any(self._calls.describe, timeout_s)

    async def configs(
        self, resources: Iterable[ConfigResource], timeout_s: float = 10
    ) -> dict[ConfigResource, OwnConfigs]:
        """Returns the configs that were set on each resource itself, without defaults. Raises MetadataError."""
        wanted = list(dict.fromkeys(resources))
        return await self._ask_any(lambda node: self._calls.configs(node, wanted), timeout_s)

    async def _ask_any(self, call: Callable[[ClusterNode], Awaitable[R]], timeout_s: float) -> R:
        """Asks the least loaded node, then the next ones, each once."""
        last = Problem(ProblemKind.LOST, ErrorCode.REQUEST_TIMED_OUT, f"no broker answered within {timeout_s:g} s")
        try:
            async with asyncio.timeout(timeout_s):
                for _ in range(len(self.cluster.nodes) + 1):
                    node = self._nodes.least_loaded(self.cluster, self._clock.now_ms())
                    if node is None:
                        break
                    try:
                        with self.requests_to(node.node_id):
                            return await call(node)
                    except MetadataProblem as e:
                        last = e.problem
                    if last.kind is ProblemKind.FATAL and last.code is not ErrorCode.UNSUPPORTED_VERSION:
                        break
                    self._nodes.failed(node, self._clock.now_ms(), reached=last.kind in ANSWERED)
        except TimeoutError:
            pass  # `last` says why
        raise MetadataError(last.code, last.message)

    # --- what the owner has learned ----------------------------------------------------------------------------------

    def request_update(self) -> None:
        """Asks for a fresh view, as soon as the back-off allows."""
        self._metadata.request_update()
        self._wake.set()

    def note_stale(self, code: ErrorCode, node_id: NodeId | None = None) -> bool:
        """Takes the error of a request to a broker. Returns True, and asks for a fresh view, if the view may be the cause.

        LEADER_NOT_AVAILABLE: the view has no leader to send to. BROKER_NOT_AVAILABLE: the connection to `node_id` broke.
        REQUEST_TIMED_OUT: `node_id` did not answer in time. Other codes are those of an answer, such as NOT_LEADER_OR_FOLLOWER.
        """
        is_stale = self._metadata.note_stale(code)
        node = None if node_id is None else self.cluster.nodes.get(node_id)
        if node is not None and code in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT):
            self._nodes.failed(node, self._clock.now_ms())
        if is_stale:
            self._wake.set()
        return is_stale

    def note_leader_epoch(self, topic: str, partition: int, epoch: Epoch, topic_id: Uuid | None = None) -> bool:
        """Takes a leader epoch from a broker's response. Returns True, and asks for a fresh view, if the view is older."""
        is_later = self._metadata.note_leader_epoch(TopicPartition(topic, partition), epoch, topic_id)
        if is_later:
            self._wake.set()
        return is_later

    @contextmanager
    def requests_to(self, node_id: NodeId) -> Iterator[None]:
        """Counts a request to a broker as in flight inside of the block: the least loaded broker is asked for metadata."""
        self._nodes.sent(node_id)
        try:
            yield
        finally:
            self._nodes.finished(node_id)

    # --- the task ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                self._wake.clear()
                now_ms = self._clock.now_ms()
                self._give_up_late(now_ms)
                self._settle_waits()
                ask = self._refresher.step(now_ms)
                if ask is not None:
                    self._call = asyncio.create_task(self._send(ask), name="metadata request")
                deadlines = (wait.deadline_ms for wait in self._waits)
                await self._clock.wait(
                    self._wake, min(self._refresher.next_ms(now_ms), *deadlines, now_ms + MAX_WAIT_MS)
                )
        except Exception as e:
            logger.exception("the metadata client has failed")
            self._metadata.fail(NotThere(ErrorCode.UNKNOWN_SERVER_ERROR, f"the metadata client has failed: {e!r}"))
            self._settle_waits()
            raise

    def _check_runs(self) -> None:
        """A wait would never end after the task has failed."""
        task = self._running
        if task is not None and task.done() and not task.cancelled() and task.exception() is not None:
            text = f"the metadata client has failed: {task.exception()!r}; close it, and make a new one"
            raise MetadataError(ErrorCode.UNKNOWN_SERVER_ERROR, text)

    def _settle_waits(self) -> None:
        """Ends the waits that are over."""
        now_ms = self._clock.now_ms()
        for wait, future in list(self._waits.items()):
            outcome = None if future.done() else wait.poll(now_ms)
            if outcome is None:
                continue
            del self._waits[wait]
            if isinstance(outcome, Waited):
                future.set_result(outcome)
            else:
                future.set_exception(MetadataError(outcome.code, outcome.message))

    def _give_up_late(self, now_ms: int) -> None:
        ask = self._refresher.late(now_ms)
        if ask is not None:
            assert self._call is not None
            self._call.cancel()
            text = f"{ask.node.host}:{ask.node.port} did not answer in time"
            self._refresher.failed(ask, Problem(ProblemKind.LOST, ErrorCode.REQUEST_TIMED_OUT, text), now_ms)

    async def _send(self, ask: Ask) -> None:
        def page_came() -> None:
            self._refresher.page_came(ask, self._clock.now_ms())

        try:
            answer = await self._calls.fetch(ask.node, ask.plan, page_came)
            self._refresher.answered(ask, answer, self._clock.now_ms())
        except MetadataProblem as e:
            logger.debug("no metadata: %s", e)
            self._refresher.failed(ask, e.problem, self._clock.now_ms())
        except Exception as e:  # a mistake of this client: every present wait ends with it, and the client asks again
            logger.exception("a metadata request has failed")
            text = f"the metadata client could not use an answer: {e!r}"
            problem = Problem(ProblemKind.REFUSED, ErrorCode.UNKNOWN_SERVER_ERROR, text)
            self._refresher.failed(ask, problem, self._clock.now_ms())
            self._metadata.fail(NotThere(problem.code, problem.message))
        finally:
            self._wake.set()

    def _log_cluster(self, resource: ClusterResource) -> None:
        before, self._cluster_id = self._cluster_id, resource.cluster_id
        if before is None and resource.cluster_id is not None:
            logger.info("cluster id: %s", resource.cluster_id)
        elif before != resource.cluster_id:
            logger.warning("the brokers now belong to cluster %s, and no longer to %s", resource.cluster_id, before)


def _guarded(listener: Callable[[Any], object]) -> Callable[[Any], None]:
    def call(told: Any) -> None:
        try:
            listener(told)
        except Exception:  # a listener's mistake must not keep the view from the others
            logger.exception("a listener of the metadata client has failed")

    return call
