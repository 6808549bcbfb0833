"""The partitions to look at now, and the times at which the others want to be looked at.

A producer may have batches for thousands of partitions, and most of them wait. A turn costs what has changed, not what is there.
Example: 1,000 partitions linger until 105 ms, and one batch becomes full at 101 ms. The turn at 101 ms looks at one partition.
"""

import heapq
from collections.abc import Iterable

from clients.producer.partition_queue import PartitionQueue


class Schedule:
    """Each partition has at most one time; an earlier time replaces a later one."""

    def __init__(self) -> None:
        self._now: dict[PartitionQueue, None] = {}
        self._times: dict[PartitionQueue, int] = {}
        self._heap: list[tuple[int, int, PartitionQueue]] = []
        self._count = 0

    def look_at(self, queues: Iterable[PartitionQueue]) -> None:
        """Has the partitions looked at in the next turn."""
        for queue in queues:
            self._now[queue] = None

    def look_at_ms(self, queue: PartitionQueue, at_ms: int) -> None:
        """Has a partition looked at in the first turn at or after `at_ms`, if no earlier time is set."""
        known = self._times.get(queue)
        if known is None or at_ms < known:
            self._times[queue] = at_ms
            self._count += 1
            heapq.heappush(self._heap, (at_ms, self._count, queue))

    def due(self, now_ms: int, at_most: int) -> list[PartitionQueue]:
        """Returns the first partitions to look at now, and takes them out. The others are due in the next turn."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, queue = heapq.heappop(self._heap)
            if self._times.get(queue) == at_ms:
                del self._times[queue]
                self._now[queue] = None
        found = list(self._now)
        if len(found) <= at_most:
            self._now.clear()
            return found
        for queue in found[:at_most]:
            del self._now[queue]
        return found[:at_most]

    def next_ms(self, now_ms: int) -> int | None:
        """The time of the next turn; `now_ms` if there is something to look at already."""
        if self._now:
            return now_ms
        while self._heap and self._times.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
