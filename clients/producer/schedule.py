"""The partitions to look at now, and the times at which the others want to be looked at.

A producer may have batches for thousands of partitions, and most of them wait. A turn costs what has changed, not what is there.
Example: 1,000 partitions linger until 105 ms, and one batch becomes full at 101 ms. The turn at 101 ms looks at one partition.
"""

import heapq
from collections.abc import Iterable

from clients.producer.partition_queue import PartitionQueue


class _Timers:
    """A time for each partition. An earlier time replaces a later one."""

    def __init__(self) -> None:
        self._times: dict[PartitionQueue, int] = {}
        self._heap: list[tuple[int, int, PartitionQueue]] = []
        self._count = 0

    def set(self, queue: PartitionQueue, at_ms: int) -> None:
        known = self._times.get(queue)
        if known is None or at_ms < known:
            self._times[queue] = at_ms
            self._count += 1
            heapq.heappush(self._heap, (at_ms, self._count, queue))

    def take_due(self, now_ms: int) -> list[PartitionQueue]:
        found: list[PartitionQueue] = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, queue = heapq.heappop(self._heap)
            if self._times.get(queue) == at_ms:
                del self._times[queue]
                found.append(queue)
        return found

    def next_ms(self) -> int | None:
        while self._heap and self._times.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._heap)


class Schedule:
    """The partitions of one producer."""

    def __init__(self) -> None:
        self._now: dict[PartitionQueue, None] = {}
        self._soon = _Timers()
        self._deadlines = _Timers()
        """The deadline of one batch of each partition, not later than that of its first batch. Batches come and go by the
        thousand before one of their deadlines, so a partition has one entry at most."""

    def __len__(self) -> int:
        """How many entries the schedule has in memory."""
        return len(self._now) + len(self._soon) + len(self._deadlines)

    def look_at(self, queues: Iterable[PartitionQueue]) -> None:
        """Has the partitions looked at in the next turn."""
        for queue in queues:
            self._now[queue] = None

    def look_at_ms(self, queue: PartitionQueue, at_ms: int) -> None:
        """Has a partition looked at in the first turn at or after `at_ms`, if no earlier time is set."""
        self._soon.set(queue, at_ms)

    def watch(self, queue: PartitionQueue, deadline_ms: int) -> None:
        """Has a partition looked at when its first batch expires."""
        self._deadlines.set(queue, deadline_ms)

    def due(self, now_ms: int, at_most: int) -> list[PartitionQueue]:
        """Returns the first partitions to look at now, and takes them out. The others are due in the next turn."""
        self.look_at(self._soon.take_due(now_ms))
        self.look_at(self._deadlines.take_due(now_ms))
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
        times = (self._soon.next_ms(), self._deadlines.next_ms())
        return min((each for each in times if each is not None), default=None)
