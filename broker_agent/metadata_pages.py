"""One page of a Metadata answer, built in slices: neither the page nor a slice grows with the cluster.

    1. A client asks for all topics of a cluster with 1,000,000 partitions. One partition takes 7 us.
    2. All partitions would take 7 s, longer than the broker's lease, and would exceed gRPC's message limit of 4 MiB.
    3. So the answer is a page of 10,000 partitions and a page token. The page is built in slices of 256 partitions, 2 ms each.
       Between two slices the event loop runs all other tasks, above all the one that renews the lease.

All slices of one page use one view, which is immutable. Concurrent requests take turns slice by slice (`Turns`): a hundred
clients that ask for all topics delay neither the lease nor a client that asks for one topic.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from quorum_rpc.v1 import client_pb2

from broker_agent import convert
from broker_agent.cache import MetadataView, PartitionInfo
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ZERO_UUID, Uuid, uuid_text
from metadata_log.format.topic_names import TOPIC_NAME_CHARS_MAX, topic_name_problem

PAGE_PARTITIONS_MAX: Final = 10_000
PAGE_BYTES_MAX: Final = 1 << 20
"""Maximum size of a page's topics. Together with the nodes, which every page has, a page stays below gRPC's 4 MiB for tens of
thousands of brokers."""
SLICE_PARTITIONS: Final = 256
CURSOR_NAME_CHARS_MAX: Final = TOPIC_NAME_CHARS_MAX + 1
"""Maximum length of a topic name in a cursor. A requested name may be longer than any topic's name: the cursor has its
beginning."""
_PARTITION_BYTES: Final = 59
_REPLICA_BYTES: Final = 5
"""Maximum number of bytes on the wire for a partition's own fields, and for an id in one of its lists."""
_REPLICAS_PER_UNIT: Final = 8


class Turns:
    """The turns of requests on the event loop. All listeners of a broker share one instance."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        """A fair lock: the request that has waited longest is next."""
        self._worked = 0
        """Work since the event loop last ran other tasks, in partitions."""

    async def take(self, steps: Iterator[int]) -> None:
        """Takes all `steps`; each step yields its amount of work. After a slice of work, of any request, other tasks run."""
        while True:
            async with self._lock:
                worked = next(steps, None)
                if worked is None:
                    return
                self._worked += worked
                if self._worked >= SLICE_PARTITIONS:
                    await asyncio.sleep(0)
                    self._worked = 0


class Page:
    """One page of `view` for clients of `listener`, starting at `cursor`. Take all `steps` to complete it."""

    def __init__(self, view: MetadataView, listener: str, limit: int, cursor: client_pb2.MetadataCursor | None) -> None:
        self.response = client_pb2.MetadataResponse()
        """Nodes, topics and `next_page_token`. Built in place, because copying a page takes longer than a slice."""
        self._view = view
        self._listener = listener
        self._cursor = cursor
        self._next: client_pb2.MetadataCursor | None = None
        """The place where the next page begins; None for the last page."""
        self._left = min(limit, PAGE_PARTITIONS_MAX) if limit > 0 else PAGE_PARTITIONS_MAX
        self._bytes_left = PAGE_BYTES_MAX
        self._worked = 0

    def steps(self, wanted: Iterator[str | Uuid]) -> Iterator[int]:
        """Builds the page for the topics with the names or ids `wanted`; each step yields its amount of work in partitions, a
        slice at most."""
        for node in self._view.alive_nodes(self._listener):
            self.response.nodes.append(convert.node(node))
            yield from self._work(1)
        for each in wanted:
            if self._is_full():
                self._next = _beginning_of(each)
                break
            yield from self._topic(each)
            if self._next is not None:
                break
        if self._next is not None:
            self.response.next_page_token = self._next.SerializeToString()
        yield self._worked

    def _topic(self, wanted: str | Uuid) -> Iterator[int]:
        name = self._view.topic_name(wanted) if isinstance(wanted, bytes) else wanted
        told = None if name is None else self._view.topic_head(name)
        if name is None or told is None:
            self._add(_no_id(wanted) if isinstance(wanted, bytes) else _not_there(wanted))
            self._left -= 1
            yield from self._work(1)
            return
        first = self._first_partition(name, told.topic_id)
        topic = self._add(convert.topic_head(told))
        for partition in self._view.partition_infos(name, first, self._listener):
            if self._is_full():
                self._next = client_pb2.MetadataCursor(
                    topic=name, partition=partition.partition, topic_id=told.topic_id
                )
                return
            topic.partitions.append(convert.partition(partition))
            self._left -= 1
            self._bytes_left -= _bytes_of(partition)
            yield from self._work(1 + len(partition.replicas) // _REPLICAS_PER_UNIT)

    def _first_partition(self, name: str, topic_id: bytes) -> int:
        """The first partition for the page. Another topic with the name in the cursor starts at partition 0."""
        cursor = self._cursor
        if cursor is None or cursor.topic != name or cursor.topic_id != topic_id:
            return 0
        return cursor.partition

    def _add(self, topic: client_pb2.TopicMetadata) -> client_pb2.TopicMetadata:
        added = self.response.topics.add()
        added.MergeFrom(topic)
        self._bytes_left -= topic.ByteSize()
        return added

    def _is_full(self) -> bool:
        """True if the page is full. An empty page takes one partition of any size."""
        return self._left <= 0 or self._bytes_left <= 0

    def _work(self, units: int) -> Iterator[int]:
        self._worked += units
        if self._worked >= SLICE_PARTITIONS:
            worked, self._worked = self._worked, 0
            yield worked


def cursor_name(name: str) -> str:
    """The name for a requested topic in a cursor."""
    return name[:CURSOR_NAME_CHARS_MAX]


def _beginning_of(wanted: str | Uuid) -> client_pb2.MetadataCursor:
    """The place before the topic with this name or id."""
    if isinstance(wanted, bytes):
        return client_pb2.MetadataCursor(topic_id=wanted)
    # No topic has this id. With the id the token is not empty even if the name is.
    return client_pb2.MetadataCursor(topic=cursor_name(wanted), topic_id=ZERO_UUID)


def _bytes_of(partition: PartitionInfo) -> int:
    ids = len(partition.replicas) + len(partition.isr) + len(partition.offline_replicas)
    ids += len(partition.elr) + len(partition.last_known_elr)
    return _PARTITION_BYTES + _REPLICA_BYTES * ids


def _no_id(topic_id: Uuid) -> client_pb2.TopicMetadata:
    told = convert.topic_error("", ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {uuid_text(topic_id)}")
    told.topic_id = topic_id
    return told


def _not_there(name: str) -> client_pb2.TopicMetadata:
    why = topic_name_problem(name)
    if why is not None:
        return convert.topic_error(name[:TOPIC_NAME_CHARS_MAX], ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    return convert.topic_error(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
