"""What is due when: one time for each item, and the next of them. Pure.

1. `set(orders-0, 500)` and `set(orders-1, 300)`: `next_ms` is 300.
2. `bring_forward(orders-0, 200)`: an append with an early deadline. `bring_forward(orders-0, 900)` changes nothing.
3. At time 250, `due(250)` gives orders-0, and then None.
"""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)
_OLD_MAX: Final = 64


class Agenda(Generic[T]):
    """The times of items. A changed time leaves its old entry in the heap, where it has no effect."""

    def __init__(self) -> None:
        self._times: dict[T, int] = {}
        self._heap: list[tuple[int, int, T]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._times)

    def set(self, item: T, at_ms: int) -> None:
        """Make `at_ms` the item's time."""
        if self._times.get(item) != at_ms:
            self._times[item] = at_ms
            self._number += 1
            heappush(self._heap, (at_ms, self._number, item))

    def bring_forward(self, item: T, at_ms: int | None) -> None:
        """Make `at_ms` the item's time, unless the item has an earlier one; None changes nothing."""
        if at_ms is not None:
            known = self._times.get(item)
            if known is None or at_ms < known:
                self.set(item, at_ms)

    def drop(self, item: T) -> None:
        """Forget the item's time. Old entries are at most half of a large heap: they keep their items in memory."""
        self._times.pop(item, None)
        if len(self._heap) > 2 * len(self._times) + _OLD_MAX:
            self._heap = [each for each in self._heap if self._times.get(each[2]) == each[0]]
            heapify(self._heap)

    def due(self, now_ms: int) -> T | None:
        """Take the item with the earliest time at or before `now_ms`; None if there is none."""
        at_ms = self.next_ms()
        if at_ms is None or at_ms > now_ms:
            return None
        _, _, item = heappop(self._heap)
        del self._times[item]
        return item

    def next_ms(self) -> int | None:
        """The earliest time."""
        while self._heap and self._times.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None
