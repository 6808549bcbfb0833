"""One page of a Metadata answer, built in slices: neither the page nor what is done in one piece grows with the cluster.

    1. A client asks for all topics of a cluster with 1,000,000 partitions. Telling of one partition takes 7 us.
    2. In one piece that is 7 s, longer than the broker's lease, and more than gRPC takes in one message (4 MiB).
    3. So the answer is a page of 10,000 partitions and a cursor; and the page is built in slices of 256 partitions, 2 ms each,
       between which everything else on the event loop gets its turn: a lease that is renewed, first of all.

All slices of one page see one view, which is immutable. Requests that come at the same time take turns slice by slice (`Turns`):
a hundred clients that ask for everything hold up neither the lease nor a client that asks for one topic.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from quorum_rpc.v1 import client_pb2

from broker_agent import convert
from broker_agent.cache import MetadataView, PartitionInfo
from metadata_log.format.errors import ErrorCode
from metadata_log.format.topic_names import TOPIC_NAME_CHARS_MAX, topic_name_problem

PAGE_PARTITIONS_MAX: Final = 10_000
PAGE_BYTES_MAX: Final = 1 << 20
"""Of topics. With the nodes, which every page has, that stays below gRPC's 4 MiB for tens of thousands of brokers."""
SLICE_PARTITIONS: Final = 256
CURSOR_NAME_CHARS_MAX: Final = TOPIC_NAME_CHARS_MAX + 1
"""In a cursor. No topic's name is so long, so a name that is asked for and longer is told by its beginning."""
_PARTITION_BYTES: Final = 48
_REPLICA_BYTES: Final = 5
"""The most that a partition's own fields, and one id in one of its lists, take on the wire."""
_REPLICAS_PER_UNIT: Final = 8


class Turns:
    """Who may work on the event loop now. One for all that one broker answers."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        """Fair: who waits longest is next."""
        self._worked = 0
        """In partitions, since everything else had its turn."""

    async def take(self, steps: Iterator[int]) -> None:
        """Takes all `steps`; each says how much it did. After a slice of work, whosever it was, the event loop goes round."""
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
    """One page of `view` for clients of `listener`, from `cursor` on. Complete when all `steps` are taken."""

    def __init__(self, view: MetadataView, listener: str, limit: int, cursor: client_pb2.MetadataCursor | None) -> None:
        self.response = client_pb2.MetadataResponse()
        """Nodes, topics and `next`, built in place: copying a page takes longer than a slice."""
        self._view = view
        self._listener = listener
        self._cursor = cursor
        self._left = min(limit, PAGE_PARTITIONS_MAX) if limit > 0 else PAGE_PARTITIONS_MAX
        self._bytes_left = PAGE_BYTES_MAX
        self._worked = 0

    def steps(self, names: Iterator[str]) -> Iterator[int]:
        """Builds the page of the topics `names`; each step yields how much it did, in partitions, a slice at most."""
        for node in self._view.alive_nodes(self._listener):
            self.response.nodes.append(convert.node(node))
            yield from self._work(1)
        for name in names:
            if self._is_full():
                self.response.next.topic = cursor_name(name)
                break
            yield from self._topic(name)
            if self.response.HasField("next"):
                break
        yield self._worked

    def _topic(self, name: str) -> Iterator[int]:
        told = self._view.topic_head(name)
        if told is None:
            self._add(_not_there(name))
            self._left -= 1
            yield from self._work(1)
            return
        first = self._first_partition(name, told.topic_id)
        topic = self._add(convert.topic_head(told))
        for partition in self._view.partition_infos(name, first, self._listener):
            if self._is_full():
                cursor = client_pb2.MetadataCursor(topic=name, partition=partition.partition, topic_id=told.topic_id)
                self.response.next.CopyFrom(cursor)
                return
            topic.partitions.append(convert.partition(partition))
            self._left -= 1
            self._bytes_left -= _bytes_of(partition)
            yield from self._work(1 + len(partition.replicas) // _REPLICAS_PER_UNIT)

    def _first_partition(self, name: str, topic_id: bytes) -> int:
        """Where the topic is begun with: another topic under the cursor's name is told from its beginning."""
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
        """A page that has nothing yet takes one partition, however large."""
        return self._left <= 0 or self._bytes_left <= 0

    def _work(self, units: int) -> Iterator[int]:
        self._worked += units
        if self._worked >= SLICE_PARTITIONS:
            worked, self._worked = self._worked, 0
            yield worked


def cursor_name(name: str) -> str:
    """How a cursor names a topic that is asked for."""
    return name[:CURSOR_NAME_CHARS_MAX]


def _bytes_of(partition: PartitionInfo) -> int:
    ids = len(partition.replicas) + len(partition.isr) + len(partition.offline_replicas)
    return _PARTITION_BYTES + _REPLICA_BYTES * ids


def _not_there(name: str) -> client_pb2.TopicMetadata:
    why = topic_name_problem(name)
    if why is not None:
        return convert.topic_error(name[:TOPIC_NAME_CHARS_MAX], ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    return convert.topic_error(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
