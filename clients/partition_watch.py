"""Looks for the assigned partitions in the metadata, so that a missing partition is an error after `max_block_ms`.

1. A program assigns orders-7, and orders has 2 partitions. The watch waits for orders-7, at most 60 s.
2. The wait ends with an error that names the 2 partitions. `poll` raises this error once, and the watch waits again.
3. The topic grows to 8 partitions: the watch ends, and the consumer reads orders-7.
"""

import asyncio
from collections.abc import Callable, Iterable

from clients.consumer.consumer_core import ConsumerCore
from clients.errors import MetadataError
from clients.metadata.cluster import TopicPartition
from clients.metadata_client import MetadataClient
from metadata_log.format.errors import ErrorCode


class PartitionWatch:
    """One task for each assigned topic, until the topic has the partitions."""

    def __init__(self, client: MetadataClient, core: ConsumerCore, max_block_ms: int, tell: Callable[[], None]) -> None:
        """`tell`: is called after each error."""
        self._client = client
        self._core = core
        self._max_block_ms = max_block_ms
        self._tell = tell
        self.tasks: list[asyncio.Task[None]] = []

    def look_for(self, assigned: Iterable[TopicPartition]) -> None:
        """Looks for these partitions, and for no others."""
        wanted: dict[str, list[TopicPartition]] = {}
        for key in assigned:
            wanted.setdefault(key.topic, []).append(key)
        for task in self.tasks:
            task.cancel()
        self.tasks = [
            asyncio.create_task(self._look_for(topic, keys), name=f"metadata of {topic}")
            for topic, keys in wanted.items()
        ]

    async def _look_for(self, topic: str, keys: list[TopicPartition]) -> None:
        last = max(key.partition for key in keys)
        while True:
            try:
                await self._client.wait_for(topic, last, self._max_block_ms / 1_000)
                return
            except MetadataError as e:
                known = self._client.cluster.partitions
                self._core.missing([key for key in keys if key not in known], e.code, e.message)
                self._tell()
                if e.code is not ErrorCode.REQUEST_TIMED_OUT:
                    return
