"""`Consumer`: reads the records of assigned partitions, in the order of their offsets. Use on one event loop.

    1. The program assigns orders-0. The store has no position, so the consumer begins at the end, or where the config says.
    2. `async for record in consumer` gives the records. Meanwhile the consumer fetches ahead, and commits positions every 5 s.
    3. The program raises an error while it works on record 12. The consumer commits position 12, and closes: the next run
       begins with record 12.

All decisions are made in `clients.consumer`, which is pure: this class has the clock, the tasks and the calls.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, assert_never

from clients.committer import Committer
from clients.consumer.config import ConsumerConfig
from clients.consumer.consumer_core import ConsumerCore
from clients.consumer.effects import AskEpochs, AskOffsets, Cancel, Effect, Fetch, SawEpoch, Stale, Warn
from clients.consumer.offset_query import OffsetQuery
from clients.consumer.partition_names import parse_partition
from clients.consumer.positions import Position, PositionStore, StoredPosition
from clients.consumer.records import ConsumerRecord
from clients.consumer_calls import asked
from clients.metadata.cluster import Cluster, TopicPartition
from clients.metadata.refresher import ClientConfig
from clients.metadata_client import ClientClock, LoopClock, MetadataClient
from clients.partition_calls import CallFailed, GrpcPartitionCalls, PartitionCalls
from clients.partition_values import CallFailure, EndOfLog, FailureKind, WantedOffset
from clients.partition_watch import PartitionWatch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, Offset
from service_kit.rpc.dial import Dialer

INTEREST_MS: Final = 60_000
"""How often the consumer tells the metadata client that it still wants its topics."""
REMIND_MS: Final = 1_000
"""How long `poll` waits for records of other partitions before it raises an error again that the program has heard of."""
TURN_MS: Final = 10
"""How long a program that finds records at each `poll` keeps all other tasks waiting, at most."""

logger: Final = logging.getLogger(__name__)


class Consumer:
    """`async with Consumer("b1:9092,b2:9092", positions=FilePositions(path)) as consumer`: one reader of partitions."""

    def __init__(
        self,
        bootstrap: str | Iterable[str] = "",
        *,
        positions: PositionStore | None = None,
        config: ConsumerConfig | None = None,
        client_config: ClientConfig | None = None,
        listener: str = "",
        dial: Any = None,
        metadata: MetadataClient | None = None,
        calls: PartitionCalls | None = None,
        clock: ClientClock | None = None,
        dice: random.Random | None = None,
    ) -> None:
        """`bootstrap`: `host:port` of brokers, as a list or as text with commas. `positions`: the store of positions; None: no
        commits. `listener`: the brokers' listener for this client. `dial(target) -> Channel`: makes the channels, for example a
        `Dialer` with TLS. `metadata`: a started client to use instead of an own one, without `bootstrap`; the
        consumer does not close it.

        Raises:
            BadEndpoint: `bootstrap` is empty, or an entry is not `host:port`. (A ValueError.)
        """
        self.config = config or ConsumerConfig()
        self._store = positions
        self._own_dialer = Dialer() if dial is None else None
        dial = dial or self._own_dialer
        self._clock = clock or LoopClock()
        self._dice = dice or random.Random()
        self._own_metadata = (
            MetadataClient(bootstrap, config=client_config, listener=listener, dial=dial) if metadata is None else None
        )
        self._metadata = metadata or self._own_metadata
        self._calls = calls or GrpcPartitionCalls(dial)
        self._core = ConsumerCore(self.config, self._dice, {})
        self._wake = asyncio.Event()
        self._news = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._watch: PartitionWatch | None = None
        self._committer = self._new_committer()
        self._interest_ms: int | None = None
        self._turn_ms = 0
        """The time of the last turn of the event loop that `poll` knows of."""
        self._unsubscribe: Callable[[], None] = lambda: None

    # --- life --------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Reads the store, and starts. Raises PositionsUnusable."""
        assert self._running is None, "this consumer has been started"
        stored = {} if self._store is None else await self._store.load()
        self._core = ConsumerCore(self.config, self._dice, stored)
        self._committer = self._new_committer()
        if self._own_metadata is not None:
            await self._own_metadata.__aenter__()
        self._core.follow(self._client.cluster)
        self._watch = PartitionWatch(self._client, self._core, self.config.max_block_ms, self._tell)
        self._unsubscribe = self._client.subscribe(self._follow)
        self._running = asyncio.create_task(self._run(), name="consumer")
        self._running.add_done_callback(lambda _: self._news.set())
        return self

    def _new_committer(self) -> Committer:
        interval_ms = self.config.auto_commit_interval_ms
        return Committer(self._store, self._core.commits, interval_ms, self._clock, self._tell)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commits what the program has taken, and closes. After an error the last record or `poll` does not count as taken."""
        await self.close(is_done=error is None)

    async def close(self, *, is_done: bool = True) -> None:
        """Commits the positions, ends all requests, and closes the connections. May be called twice.

        `is_done`: the program has done with all records that it got.

        Raises:
            PositionsUnusable: the last positions were not committed.
        """
        self._unsubscribe()
        tasks = [*self._requests.values(), *(self._watch.tasks if self._watch is not None else ())]
        tasks += [task for task in (self._running,) if task is not None]
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        try:
            if self._running is not None:
                if is_done:
                    self._core.commits.take_all()
                await self._committer.commit()
        finally:
            self._running = None
            if self._own_metadata is not None:
                await self._own_metadata.close()
            await self._calls.close()
            if self._own_dialer is not None:
                await self._own_dialer.close()
        for each in ended:
            if isinstance(each, Exception):
                raise each

    @property
    def _client(self) -> MetadataClient:
        assert self._metadata is not None
        return self._metadata

    # --- what to read ------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Reads exactly these partitions. A new one begins at its stored position, or else where `auto_offset_reset` says.

        Raises:
            ValueError: an entry is no topic with a number, such as ("orders", 0). Nothing was changed.
        """
        self._check_runs()
        self._core.assign([parse_partition(each) for each in partitions])
        self._interest_ms = None
        assert self._watch is not None
        self._watch.look_for(self._core.assigned)
        self._wake.set()

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions."""
        return self._core.assigned

    async def partitions_of(self, topic: str) -> tuple[TopicPartition, ...]:
        """Returns the partitions of a topic, for `assign`. Raises MetadataError after `max_block_ms`."""
        waited = await self._client.wait_for(topic, max_wait_s=self.config.max_block_ms / 1_000)
        return tuple(view.key for view in waited.cluster.partitions_by_topic[topic])

    def seek(self, partition: TopicPartition, offset: Offset, leader_epoch: Epoch | None = None) -> None:
        """Goes on at `offset`. With the leader epoch of the record below, the leader is asked if it has this record (KIP-320)."""
        if offset < 0:
            raise ValueError(f"the offset {offset} is negative")
        self._core.seek(partition, Position(offset, leader_epoch))
        self._wake.set()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Goes on at the start of each log; without arguments: of all assigned partitions."""
        self._seek_all(partitions, EndOfLog.EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Goes on at the high watermark of each log; without arguments: of all assigned partitions."""
        self._seek_all(partitions, EndOfLog.LATEST)

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Goes on at the first record that is not older than `timestamp_ms` (since 1970), or at the end if there is none."""
        if timestamp_ms < 0:
            raise ValueError(f"the time {timestamp_ms} is negative")
        self._seek_all(partitions, timestamp_ms)

    def _seek_all(self, partitions: tuple[TopicPartition, ...], wanted: WantedOffset) -> None:
        for each in partitions or self.assignment:
            self._core.seek_to(each, wanted)
        self._wake.set()

    def pause(self, *partitions: TopicPartition) -> None:
        """Gives no records of these partitions until `resume`."""
        for each in partitions:
            self._core.pause(each, True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Gives records of these partitions again."""
        for each in partitions:
            self._core.pause(each, False)
        self._tell()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._core.paused()

    def position(self, partition: TopicPartition) -> Offset | None:
        """The offset of the next record; None while the leader has not told the end or the time that was sought."""
        return self._core.position(partition)

    def high_watermark(self, partition: TopicPartition) -> Offset | None:
        """The high watermark of the last answer; None before the first one."""
        return self._core.high_watermark(partition)

    # --- records -----------------------------------------------------------------------------------------------------

    async def poll(self, max_wait_s: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Returns records as soon as there are any; none after `max_wait_s`. The records of the last `poll` count as taken.

        Raises:
            ConsumerError: a partition cannot be read on by itself: seek, pause or assign, and poll again. The records of other
                partitions come first in a poll after the error. A poll that has no records raises it again, after
                REMIND_MS at most.
            PositionsUnusable: the last commit has failed. It is tried again after `auto_commit_interval_ms`.
        """
        self._check_runs()
        self._core.commits.take_all()  # before the first turn of the loop: Ctrl-C may end this call there
        now_ms = self._clock.now_ms()
        until_ms = now_ms + round(max_wait_s * 1_000)
        remind_ms = min(until_ms, now_ms + REMIND_MS)
        if max_wait_s <= 0 or now_ms >= self._turn_ms + TURN_MS:
            self._turn_ms = now_ms
            await asyncio.sleep(
                0
            )  # fetches, commits and signals need turns of the loop, even if the program never waits
        limit = max_records or self.config.max_poll_records
        while True:
            self._check_runs()
            self._committer.raise_error()
            self._news.clear()
            records = self._core.poll(limit)
            if self._core.is_hungry:
                self._wake.set()
            if records:
                return records
            now_ms = self._clock.now_ms()
            if now_ms >= remind_ms:
                self._core.remind()
                remind_ms = until_ms
            if now_ms >= until_ms:
                return []
            await self._clock.wait(self._news, remind_ms)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Returns the next record. The record before counts as taken. Raises as `poll`, and never ends by itself."""
        while True:
            records = await self.poll(3_600, 1)
            if records:
                return records[0]

    async def commit(self) -> None:
        """Commits the positions now. All records that the program has got count as taken.

        Raises:
            PositionsUnusable: the store has refused; the old positions hold.
        """
        self._core.commits.take_all()
        await self._committer.commit()

    def committed(self, partition: TopicPartition) -> StoredPosition | None:
        """The position in the store; None if there is none."""
        return self._core.commits.committed.get(partition)

    # --- questions ---------------------------------------------------------------------------------------------------

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float = 30
    ) -> dict[TopicPartition, Offset]:
        """Returns the start of each log. Raises MetadataError, ConsumerError; TimeoutError after `timeout_s`."""
        found = await self._ask(dict.fromkeys(partitions, EndOfLog.EARLIEST), timeout_s)
        return {key: offset or 0 for key, offset in found.items()}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float = 30
    ) -> dict[TopicPartition, Offset]:
        """Returns the high watermark of each log. Raises as `beginning_offsets`."""
        found = await self._ask(dict.fromkeys(partitions, EndOfLog.LATEST), timeout_s)
        return {key: offset or 0 for key, offset in found.items()}

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout_s: float = 30
    ) -> dict[TopicPartition, Offset | None]:
        """Returns for each partition the first record that is not older; None if there is none. Raises as `beginning_offsets`."""
        return await self._ask(times_ms, timeout_s)

    async def _ask(
        self, wanted: Mapping[TopicPartition, WantedOffset], timeout_s: float
    ) -> dict[TopicPartition, Offset | None]:
        self._check_runs()
        query = OffsetQuery(wanted)
        until_ms = self._clock.now_ms() + round(timeout_s * 1_000)
        for key in wanted:
            await self._client.wait_for(key.topic, key.partition, timeout_s)
        self._core.ask(query)
        try:
            while not query.is_over:
                self._check_runs()
                if self._clock.now_ms() >= until_ms:
                    raise TimeoutError(f"the leaders have not told the offsets within {timeout_s:g} s: ask again")
                self._wake.set()
                self._news.clear()
                await self._clock.wait(self._news, until_ms)
        finally:
            self._core.forget(query)
        if query.error is not None:
            raise query.error
        return query.offsets()

    # --- the task ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            now_ms = self._clock.now_ms()
            if self._interest_ms is None or now_ms >= self._interest_ms:
                self._interest_ms = now_ms + INTEREST_MS
                self._client.want({key.topic for key in self._core.assigned})
            for effect in self._core.step(now_ms):
                self._carry_out(effect)
            if self._core.has_error:
                self._news.set()
            until_ms = min(self._core.next_ms(), self._interest_ms, self._committer.step(now_ms))
            await self._clock.wait(self._wake, until_ms)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Fetch() | AskOffsets() | AskEpochs():
                task = asyncio.create_task(self._send(effect), name=f"consumer request {effect.number}")
                self._requests[effect.number] = task
                task.add_done_callback(lambda _, number=effect.number: self._requests.pop(number, None))  # type: ignore[misc]
            case Cancel():
                task_to_end = self._requests.get(effect.number)
                if task_to_end is not None:
                    task_to_end.cancel()
            case Stale():
                self._client.note_stale(effect.code, effect.node_id)
            case SawEpoch():
                key = effect.partition
                self._client.note_leader_epoch(key.topic, key.partition, effect.epoch, effect.topic_id)
            case Warn():
                logger.warning("%s", effect.message)
            case _:
                assert_never(effect)

    async def _send(self, effect: Fetch | AskOffsets | AskEpochs) -> None:
        try:
            with self._client.requests_to(effect.node.node_id):
                answers = await asked(self._calls, effect, self.config.request_timeout_ms)
        except CallFailed as e:
            logger.debug("no answer: %s", e)
            self._core.failed(effect.number, e.failure, self._clock.now_ms())
        except Exception as e:  # a mistake of this client: the partitions have a pause, and the others go on
            logger.exception("a request of the consumer has failed")
            failure = CallFailure(FailureKind.UNUSABLE, ErrorCode.UNKNOWN_SERVER_ERROR, repr(e))
            self._core.failed(effect.number, failure, self._clock.now_ms())
        else:
            self._core.answered(effect.number, answers, self._clock.now_ms())
        self._tell()

    def _tell(self) -> None:
        """Wakes the task and the program."""
        self._wake.set()
        self._news.set()

    def _follow(self, cluster: Cluster) -> None:
        self._core.follow(cluster)
        self._wake.set()

    def _check_runs(self) -> None:
        """Raises what the task has failed with: without the task no records come."""
        assert self._running is not None, "use `async with Consumer(...)`, or the consumer asks nobody"
        if self._running.done() and not self._running.cancelled():
            self._running.result()
