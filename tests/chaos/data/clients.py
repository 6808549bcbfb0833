"""Producers and consumers of one topic, and a note of each call: the load of a run with data.

A producer has one batch under way at a time, for a partition of its choice. The producer repeats the batch under the same
sequence number until a leader has acknowledged it, as an idempotent producer does. A batch that is open when the run ends is
*unknown*, or *failed* if no attempt can have been appended. A consumer fetches single partitions without a session, and names
the leader epoch that it knows: so each answer belongs to one leader. Now and then a consumer reads again from an earlier
offset.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from clients.metadata.cluster import ClusterNode, PartitionView, TopicPartition
from clients.metadata_client import MetadataClient
from clients.partition_calls import CallFailed, GrpcPartitionCalls
from clients.partition_values import AppendBatch, AppendRequest, FetchRequest, PartitionFetch, TopicIdPartition
from metadata_log.format.batch import decode_all
from metadata_log.format.data_batch import DataRecord, ProducerStamp, RecordSet, decode_data, pack_records
from metadata_log.format.errors import ErrorCode
from tests.chaos.data.history import Fate, History, Seen, Send

TOPIC: Final = "orders"
ACKS_ALL: Final = -1
TIMEOUT_MS: Final = 2_000
WAIT_MS: Final = 200
RETRY_S: Final = 0.05
RECORDS_MAX: Final = 20
LAST_ATTEMPTS_S: Final = 10.0
"""How long producers go on with their open batches after the run."""
_NOTHING_DONE: Final = frozenset(
    (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_READY,
    )
)
_ALARMING: Final = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.RECORD_BATCH_TOO_LARGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
)
"""Errors that no producer here may get. A sequence out of order means that acknowledged records are gone."""


class Attempt(NamedTuple):
    """The outcome of one attempt of a batch. `offset` None: not acknowledged."""

    offset: int | None
    may_be_done: bool
    is_alarming: bool = False
    """The answer is one that nobody should get: the client stops."""


class DataClients:
    """`run` until an event; then `history` has all calls, and `oddities` the answers that nobody should get."""

    def __init__(self, brokers: str, partitions: int, seed: int, producers: int = 6, consumers: int = 3) -> None:
        self.history = History([], [])
        self.oddities: list[str] = []
        self.codes: Counter[str] = Counter()
        """How often a call ended with an error, by code."""
        self._brokers = brokers
        self._partitions = partitions
        self._seed = seed
        self._producers = producers
        self._consumers = consumers

    def acknowledged_since(self, since_ns: int) -> set[int]:
        """The partitions that acknowledged a batch that was sent after `since_ns`."""
        recent = (each for each in reversed(self.history.sends) if each.ended_ns >= since_ns)
        return {each.partition for each in recent if each.fate is Fate.ACKNOWLEDGED and each.sent_ns >= since_ns}

    async def run(self, until: asyncio.Event) -> None:
        """All clients at work until the event is set; then the producers end what they have begun."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(1, self._producers + 1):
                tasks.create_task(self._one(_Producer, f"p{number}", until))
            for number in range(1, self._consumers + 1):
                tasks.create_task(self._one(_Consumer, f"c{number}", until))

    async def _one(self, kind: "type[_Producer | _Consumer]", name: str, until: asyncio.Event) -> None:
        dice = random.Random(f"{self._seed} {name}")
        async with AsyncExitStack() as stack:
            metadata = await stack.enter_async_context(MetadataClient(self._brokers))
            calls = GrpcPartitionCalls()
            stack.push_async_callback(calls.close)
            await kind(self, name, metadata, calls, dice).work(until, range(self._partitions))

    def failed(self, metadata: MetadataClient, code: ErrorCode, node: ClusterNode) -> None:
        """Notes an error, and asks for fresh metadata."""
        self.codes[code.name] += 1
        metadata.note_stale(code, node.node_id)


class _Client:
    """A producer's or consumer's connections."""

    def __init__(
        self, home: DataClients, name: str, metadata: MetadataClient, calls: GrpcPartitionCalls, dice: random.Random
    ) -> None:
        self._home = home
        self._name = name
        self._metadata = metadata
        self._calls = calls
        self._dice = dice

    async def _leader(
        self, partition: int, until_s: float
    ) -> tuple[PartitionView, ClusterNode, TopicIdPartition] | None:
        """The partition, its leader and its place as this client knows them; None if nobody leads until then."""
        self._metadata.want((TOPIC,))  # a topic that nobody names is forgotten after 5 minutes; runs may be longer
        while time.monotonic() < until_s:
            cluster = self._metadata.cluster
            view = cluster.partitions.get(TopicPartition(TOPIC, partition))
            if view is not None and view.leader_id is not None and TOPIC in cluster.topic_ids:
                node = cluster.node(view.leader_id)
                if node.has_address:
                    return view, node, TopicIdPartition(cluster.topic_ids[TOPIC], partition)
            self._metadata.note_stale(ErrorCode.LEADER_NOT_AVAILABLE, -1)
            await asyncio.sleep(RETRY_S)
        return None

    async def _topic(self, until: asyncio.Event) -> None:
        """Waits until this client knows the topic."""
        while not until.is_set() and TOPIC not in self._metadata.cluster.topics:
            try:
                await self._metadata.wait_for(TOPIC, max_wait_s=1)
            except Exception as e:  # no broker answers yet; the end of the run ends the wait
                self._home.codes[type(e).__name__] += 1


class _Producer(_Client):
    async def work(self, until: asyncio.Event, partitions: range) -> None:
        await self._topic(until)
        producer_id = await self._producer_id(until)
        sequences: Counter[int] = Counter()
        made = 0
        while not until.is_set() and not self._home.oddities:
            partition = self._dice.choice(partitions)
            count = self._dice.randint(1, RECORDS_MAX)
            values = tuple(f"{self._name}-{made + i}" for i in range(count))
            made += count
            stamp = ProducerStamp(producer_id, 0, sequences[partition])
            send = await self._until_known(partition, values, stamp, until)
            self._home.history.sends.append(send)
            sequences[partition] += count
            await asyncio.sleep(self._dice.random() * 0.04)

    async def _producer_id(self, until: asyncio.Event) -> int:
        while True:
            for node in list(self._metadata.cluster.nodes.values()):
                try:
                    return await self._calls.allocate_producer_id(node, 2)
                except CallFailed as e:
                    self._home.failed(self._metadata, e.failure.code, node)
            await asyncio.sleep(RETRY_S)
            if until.is_set():
                return 0

    async def _until_known(
        self, partition: int, values: tuple[str, ...], stamp: ProducerStamp, until: asyncio.Event
    ) -> Send:
        """Repeats one batch until it is acknowledged, or the run is over for long enough."""
        now_ms = time.time_ns() // 1_000_000
        records = pack_records([DataRecord(now_ms, self._name.encode(), value.encode()) for value in values])
        sent_ns = time.monotonic_ns()
        may_be_done = False
        over_s = float("inf")
        while time.monotonic() < over_s:
            if until.is_set() and over_s == float("inf"):
                over_s = time.monotonic() + LAST_ATTEMPTS_S
            found = await self._attempt(partition, records, stamp)
            if found.offset is not None:
                ended_ns = time.monotonic_ns()
                return Send(self._name, partition, values, sent_ns, ended_ns, Fate.ACKNOWLEDGED, found.offset)
            may_be_done |= found.may_be_done
            if found.is_alarming:
                break
            await asyncio.sleep(RETRY_S * (1 + self._dice.random()))
        fate = Fate.UNKNOWN if may_be_done else Fate.FAILED
        return Send(self._name, partition, values, sent_ns, time.monotonic_ns(), fate)

    async def _attempt(self, partition: int, records: RecordSet, stamp: ProducerStamp) -> Attempt:
        known = await self._leader(partition, time.monotonic() + 1)
        if known is None:
            return Attempt(None, may_be_done=False)
        view, node, place = known
        epoch = view.leader_epoch if self._dice.random() < 0.5 else None
        batch = AppendBatch(place, epoch, stamp, records.record_count, records.packed)
        try:
            request = AppendRequest(ACKS_ALL, TIMEOUT_MS, (batch,))
            (result,) = await self._calls.append(node, request, TIMEOUT_MS / 1_000 + 1)
        except CallFailed as e:
            self._home.failed(self._metadata, e.failure.code, node)
            return Attempt(None, e.failure.may_have_been_done)
        if result.code is ErrorCode.NONE:
            return Attempt(result.base_offset, may_be_done=True)
        self._home.failed(self._metadata, result.code, node)
        is_alarming = result.code in _ALARMING
        if is_alarming:
            what = f"{self._name} to {partition} with sequence {stamp.base_sequence}"
            self._home.oddities.append(f"{what}: {result.code.name}: {result.message}")
        return Attempt(None, result.code not in _NOTHING_DONE, is_alarming)


class _Consumer(_Client):
    async def work(self, until: asyncio.Event, partitions: range) -> None:
        await self._topic(until)
        positions = dict.fromkeys(partitions, 0)
        while not until.is_set() and not self._home.oddities:
            partition = self._dice.choice(partitions)
            if self._dice.random() < 0.02:
                positions[partition] = self._dice.randint(0, positions[partition])
            seen = await self._fetch(partition, positions[partition])
            if seen is None:
                await asyncio.sleep(RETRY_S)
                continue
            self._home.history.reads.append(seen)
            positions[partition] = seen.offset + len(seen.values)

    async def _fetch(self, partition: int, offset: int) -> Seen | None:
        """One answer to one fetch; None if there was no good one."""
        known = await self._leader(partition, time.monotonic() + 1)
        if known is None or known[0].leader_epoch is None:
            return None
        view, node, place = known
        assert view.leader_epoch is not None
        request = FetchRequest((PartitionFetch(place, offset, view.leader_epoch),), WAIT_MS)
        asked_ns = time.monotonic_ns()
        try:
            (fetched,) = (await self._calls.fetch(node, request, 3)).partitions
        except CallFailed as e:
            self._home.failed(self._metadata, e.failure.code, node)
            return None
        answered_ns = time.monotonic_ns()
        if fetched.code is not ErrorCode.NONE:
            self._home.failed(self._metadata, fetched.code, node)
            if fetched.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._home.oddities.append(
                    f"{self._name} at {offset} of {partition}: OFFSET_OUT_OF_RANGE {fetched.message}"
                )
            return None
        values = tuple(_values(fetched.batches, offset, fetched.high_watermark))
        times = (asked_ns, answered_ns)
        return Seen(self._name, partition, *times, view.leader_epoch, fetched.high_watermark, offset, values)


def _values(batches: bytes, offset: int, high_watermark: int) -> Iterator[str]:
    """The committed records from `offset` on."""
    for batch in decode_all(batches):
        for at, record in enumerate(decode_data(batch), batch.base_offset):
            if offset <= at < high_watermark:
                yield (record.value or b"").decode()
