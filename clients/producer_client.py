"""`Producer`: sends records to the leaders of partitions, each partition in order. Use on one event loop.

    1. The program sends a record to orders. The producer looks orders up, and puts the record into the batch of its partition.
    2. Batches for one broker leave in one request. The answer ends the sends: each gets the offset of its record.
    3. The leader dies. The producer finds the next leader, and sends the batches again, in order. No record is written twice.

All decisions are made in `clients.producer`, which is pure: this class has the clock, the tasks and the calls.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias, assert_never, cast

from clients.admission import Admission
from clients.metadata.cluster import ClusterNode, TopicPartition
from clients.metadata.refresher import ClientConfig
from clients.metadata_client import ClientClock, LoopClock, MetadataClient
from clients.partition_calls import CallFailed, GrpcPartitionCalls, PartitionCalls
from clients.partition_values import CallFailure, FailureKind
from clients.producer.config import ProducerConfig
from clients.producer.effects import (
    AskProducerId,
    Delivered,
    NotDelivered,
    NoteLeaderEpoch,
    NoteStale,
    ProducerEffects,
    SendAppend,
)
from clients.producer.errors import ProducerClosed, RecordTooLarge, SendError
from clients.producer.producer_core import ProducerCore
from clients.producer.record_metadata import RecordMetadata
from metadata_log.format.data_batch import DataRecord, pack_record
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from service_kit.process.clock import RealClock
from service_kit.rpc.dial import Dialer

IDLE_MS: Final = 60_000
"""Maximum time between two turns."""
TURN_MS: Final = 10
"""How long a program that enqueues without a wait keeps all other tasks waiting, at most."""
ID_TIMEOUT_MS: Final = 5_000
"""How long one broker may take to give a producer id, before the next broker is asked."""

CANCELLED_CLOSE_S: Final = 1.0
"""How long a cancelled program waits for the delivery of its records."""

Headers: TypeAlias = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]
Sent: TypeAlias = asyncio.Future[RecordMetadata]

logger: Final = logging.getLogger(__name__)


class ProducerClock(ClientClock, Protocol):
    """The time to wait by, and the time of records."""

    def wall_ms(self) -> int: ...


class _LoopClock(LoopClock):
    """The machine's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.wall_ms = RealClock().wall_ms


class Producer:
    """`async with Producer("b1:9092,b2:9092") as producer: await producer.send("orders", b"value")`."""

    def __init__(
        self,
        bootstrap: str | Iterable[str] = "",
        *,
        config: ProducerConfig | None = None,
        client_config: ClientConfig | None = None,
        listener: str = "",
        dial: Any = None,
        metadata: MetadataClient | None = None,
        calls: PartitionCalls | None = None,
        clock: ProducerClock | None = None,
        dice: random.Random | None = None,
    ) -> None:
        """`bootstrap`: `host:port` of brokers, as a list or as text with commas. `listener`: the brokers' listener for this
        client. `dial(target) -> Channel`: makes the channels, for example a `Dialer` with TLS. `metadata`: a started client to
        use instead of an own one, without `bootstrap`; the producer does not close it.

        Raises:
            BadEndpoint: `bootstrap` is empty, or an entry is not `host:port`. (A ValueError.)
        """
        self.config = config or ProducerConfig()
        self._own_dialer = Dialer() if dial is None else None
        dial = dial or self._own_dialer
        self._clock: ProducerClock = clock or _LoopClock()
        self._dice = dice or random.Random()
        self._own_metadata = (
            MetadataClient(bootstrap, config=client_config, listener=listener, dial=dial) if metadata is None else None
        )
        self._client = cast(MetadataClient, metadata or self._own_metadata)
        self._calls = calls or GrpcPartitionCalls(dial)
        self._core = ProducerCore(self.config, self._dice)
        self._wake = asyncio.Event()
        self._admission = Admission(self._core, self._client, self._clock, self._wake)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._flushes: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._closed_because: str | None = None
        self._turn_ms = 0
        """The time of the last turn of the event loop that `enqueue` knows of."""
        self._unsubscribe: Callable[[], None] = lambda: None

    # --- life --------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        assert self._running is None, "this producer has been started"
        if self._own_metadata is not None:
            await self._own_metadata.__aenter__()
        self._unsubscribe = self._client.subscribe(lambda _: self._wake.set())
        self._loop = asyncio.get_running_loop()
        self._running = self._loop.create_task(self._run(), name="producer")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delivers the rest, and closes. A task that is cancelled does not wait for a cluster that is away."""
        is_cancelled = kind is not None and not issubclass(kind, Exception)
        await self.close(CANCELLED_CLOSE_S if is_cancelled else None)

    async def close(self, timeout_s: float | None = None) -> None:
        """Takes no more records, waits until all records have an end, and closes the connections. May be called twice.

        `timeout_s`: how long the wait may take; then the records that are left fail. None: until `delivery_timeout_ms`.
        """
        self._closed_because = self._closed_because or "the producer was closed"
        self._admission.close()
        try:
            # In Python 3.11 asyncio.timeout does not end as a timeout in a task that is cancelled already.
            await asyncio.wait((self._flushed(),), timeout=timeout_s)
        finally:
            await self._end()

    async def _end(self) -> None:
        """Fails what is left, ends the tasks, and closes the connections."""
        self._unsubscribe()
        self._carry_out(self._core.close())
        tasks = [*self._tasks, *(task for task in (self._running,) if task is not None)]
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        if self._own_metadata is not None:
            await self._own_metadata.close()
        await self._calls.close()
        if self._own_dialer is not None:
            await self._own_dialer.close()
        for each in ended:
            if isinstance(each, Exception):
                raise each

    # --- records -----------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Sends a record, waits until it is as durable as `acks` says, and returns its place.

        `value` None: a tombstone of `key`. `partition` None: by the key, or the present partition of the topic.
        `timestamp_ms` None: now. A caller that is cancelled does not take the record back.

        Raises:
            SendError: the record was not delivered. `may_have_been_written` says if it may be in the log.
            ValueError: `partition` is negative, or `topic` is no text.
            LogFormatError: key, value or headers are not bytes, or too many. (A ValueError.)
        """
        sent = await self.enqueue(
            topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        return await sent

    async def enqueue(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Sent:
        """Puts a record into its batch, and returns a future of its place.

        Waits only for the topic's metadata, and for room while `buffer_memory` is in use. Records of one task stay in order.
        Parameters and errors of this call are those of `send`; the future raises the errors of the delivery.
        """
        self._check_open(topic)
        now_ms = self._clock.now_ms()
        timestamp_ms = self._clock.wall_ms() if timestamp_ms is None else timestamp_ms
        packed = pack_record(DataRecord(timestamp_ms, key, value, _tuple_of(headers) if headers else ()))
        size = len(packed)
        if size > self.config.record_bytes_max:
            raise self._too_large(topic, size, partition)
        if not self._admission.is_open(topic, partition, size, now_ms):
            try:
                await self._admission.enter(topic, partition, size)
            except SendError:
                self._check_open(topic)  # a close explains the failure
                raise
            self._check_open(topic)
            now_ms = self._clock.now_ms()
        if partition is None:
            partition = self._core.partition_for(topic, key, size, self._client.cluster)
        assert self._loop is not None
        sent: Sent = self._loop.create_future()
        if self._core.enqueue(TopicPartition(topic, partition), packed, timestamp_ms, sent, now_ms):
            self._wake.set()
        if now_ms >= self._turn_ms + TURN_MS:
            self._turn_ms = now_ms
            try:
                await asyncio.sleep(0)  # behind the record, so that no later caller overtakes this one
            except asyncio.CancelledError:
                sent.cancel()  # the record stays, and nobody waits for its end
                raise
        return sent

    async def flush(self) -> None:
        """Sends what waits without lingering, and returns when every record that was enqueued before has an end, good or bad."""
        await self._flushed()

    def _flushed(self) -> asyncio.Future[None]:
        """Returns a future that is done when every present record has an end."""
        number = self._core.flush()
        self._wake.set()
        flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._core.is_flushed(number):
            flushed.set_result(None)
        else:
            self._flushes.append((number, flushed))
        return flushed

    def _check_open(self, topic: str) -> None:
        assert self._running is not None, "use `async with Producer(...)`, or nothing is sent"
        if self._closed_because is not None:
            text = f"{self._closed_because}; the record was not queued"
            raise ProducerClosed(ErrorCode.NOT_READY, text, topic)

    def _too_large(self, topic: str, size: int, partition: int | None) -> RecordTooLarge:
        config = self.config
        text = (
            f"a record of {size} bytes; at most {config.record_bytes_max} fit "
            f"(max_request_size={config.max_request_size}, buffer_memory={config.buffer_memory}); the record was not queued"
        )
        return RecordTooLarge(ErrorCode.RECORD_BATCH_TOO_LARGE, text, topic, partition)

    # --- the task ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                self._wake.clear()
                now_ms = self._clock.now_ms()
                self._carry_out(self._core.step(self._client.cluster, now_ms))
                self._admission.settle(now_ms)
                times = (self._core.next_ms(now_ms), self._admission.next_ms())
                await self._clock.wait(
                    self._wake, min((each for each in times if each is not None), default=now_ms + IDLE_MS)
                )
        except Exception as e:
            self._give_up(e)
            raise

    def _give_up(self, error: BaseException) -> None:
        """Ends everything after a mistake of this class or the core: no record may wait for ever."""
        logger.error("the producer has failed", exc_info=error)
        self._closed_because = f"the producer has failed: {error!r}"
        self._admission.close()
        self._carry_out(self._core.close())

    def _carry_out(self, effects: ProducerEffects) -> None:
        for effect in effects:
            match effect:
                case SendAppend():
                    self._begin(self._send(effect, self._client.cluster.node(effect.node_id)))
                case AskProducerId():
                    self._begin(self._ask_for_id(effect))
                case NoteStale():
                    self._client.note_stale(effect.code, effect.node_id)
                case NoteLeaderEpoch():
                    self._client.note_leader_epoch(*effect.key, effect.leader_epoch, effect.topic_id)
                case Delivered():
                    _deliver(effect)
                case NotDelivered():
                    _fail(effect)
                case _:
                    assert_never(effect)
        while self._flushes and self._core.is_flushed(self._flushes[0][0]):
            _, flushed = self._flushes.popleft()
            if not flushed.done():
                flushed.set_result(None)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._give_up(error)

    async def _send(self, send: SendAppend, node: ClusterNode) -> None:
        try:
            with self._client.requests_to(node.node_id):
                results = await self._calls.append(node, send.request, send.timeout_ms / 1_000)
        except CallFailed as e:
            self._carry_out(self._core.failed(send.number, e.failure, self._clock.now_ms()))
        else:
            self._carry_out(self._core.answered(send.number, results, self._clock.now_ms()))
        self._wake.set()

    async def _ask_for_id(self, ask: AskProducerId) -> None:
        """Asks one broker after the other, in a random order, each once."""
        nodes = list(self._client.cluster.nodes.values())
        self._dice.shuffle(nodes)
        timeout_ms = min(ask.timeout_ms, ID_TIMEOUT_MS)
        last = CallFailure(FailureKind.NOT_CONNECTED, ErrorCode.BROKER_NOT_AVAILABLE, "no broker is known")
        for node in nodes:
            try:
                with self._client.requests_to(node.node_id):
                    found = await self._calls.allocate_producer_id(node, timeout_ms / 1_000)
            except CallFailed as e:
                last = e.failure
                continue
            self._carry_out(self._core.id_allocated(found))
            break
        else:
            self._carry_out(self._core.id_refused(f"no producer id: {last.message}", self._clock.now_ms()))
        self._wake.set()


def _tuple_of(headers: Headers) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(headers.items() if isinstance(headers, Mapping) else headers)


def _deliver(effect: Delivered) -> None:
    topic, partition = effect.key
    offset: Offset | None = effect.base_offset
    for token, timestamp_ms in zip(effect.tokens, effect.timestamps, strict=True):
        sent = cast(Sent, token)
        if not sent.done():  # a caller that was cancelled
            sent.set_result(RecordMetadata(topic, partition, offset, timestamp_ms))
        if offset is not None:
            offset += 1


def _fail(effect: NotDelivered) -> None:
    error = effect.error
    for token in effect.tokens:
        sent = cast(Sent, token)
        if not sent.done():  # each caller gets an error of its own: a traceback grows with each raise
            sent.set_exception(type(error)(error.code, error.message, error.topic, error.partition))
