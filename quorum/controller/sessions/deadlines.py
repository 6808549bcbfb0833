"""The deadlines of sessions: which session ends next, at a cost that does not grow with the number of sessions.

A session is heard several times before its deadline, and each contact moves the deadline. So the heap has one entry for each
session, with the time of the next look at the session. A contact changes the deadline alone, and leaves the entry in its
place. An entry that falls due before the deadline of its session goes back into the heap, at the deadline.

    1  At 1,000 session A gets the deadline 10,000. Its entry in the heap is 10,000.
    2  At 4,000 the session is heard: the deadline is 13,000, the entry still 10,000.
    3  At 10,000 the controller looks, and A goes on: the entry is 13,000 from now on.
    4  Nobody hears A. At 13,000 deadline and entry agree: the session has ended.

So a contact costs a lookup, and each session costs one look for each timeout. 100,000 sessions with a timeout of 9,000 ms cost
11,000 looks a second. `coarse_ms` joins the looks of so many milliseconds in one turn; a session then ends so much later at
most, and never earlier.

A stall of the process lengthens all sessions by the same time. Kept deadlines are in a time that stands still during a stall,
so a credit costs nothing.
"""

import heapq
from typing import Final, Generic, TypeVar

K = TypeVar("K", int, bytes)

_OLD_ENTRIES_MIN: Final = 1_000
"""How many old entries the heap may have besides one for each valid one, before it is made anew."""


class Deadlines(Generic[K]):
    """One deadline for each key, which names a session."""

    def __init__(self, coarse_ms: int = 1) -> None:
        assert coarse_ms >= 1
        self._coarse_ms = coarse_ms
        self._credit_ms = 0
        """How long the process has stood still in all. A kept time is a real time minus this credit."""
        self._deadline_ms: dict[K, int] = {}
        self._entry_ms: dict[K, int] = {}
        """The time of the one valid entry of each key."""
        self._heap: list[tuple[int, K]] = []

    def __len__(self) -> int:
        return len(self._deadline_ms)

    def __contains__(self, key: K) -> bool:
        return key in self._deadline_ms

    def clear(self) -> None:
        self._deadline_ms.clear()
        self._entry_ms.clear()
        self._heap.clear()
        self._credit_ms = 0

    def of(self, key: K) -> int:
        """The deadline of a key that has one."""
        return self._deadline_ms[key] + self._credit_ms

    def set(self, key: K, deadline_ms: int) -> None:
        """Sets the deadline, earlier or later than before."""
        kept_ms = deadline_ms - self._credit_ms
        self._deadline_ms[key] = kept_ms
        entry_ms = self._entry_ms.get(key)
        if entry_ms is None or kept_ms < entry_ms:
            self._enter(key, kept_ms)

    def lengthen(self, key: K, deadline_ms: int) -> None:
        """Moves the deadline of a key that has one to a later time; nothing if it is later already."""
        kept_ms = deadline_ms - self._credit_ms
        if kept_ms > self._deadline_ms[key]:
            self._deadline_ms[key] = kept_ms

    def remove(self, key: K) -> None:
        """Forgets a key; nothing if there is none. Its entry in the heap is dropped when it falls due."""
        self._deadline_ms.pop(key, None)
        self._entry_ms.pop(key, None)

    def look_again(self, key: K, at_ms: int) -> None:
        """Leaves a key with a passed deadline out until `at_ms`, because the session may not end now."""
        self._enter(key, at_ms - self._credit_ms)

    def credit(self, stall_ms: int) -> None:
        """Lengthens all deadlines by the time that the process stood still."""
        assert stall_ms >= 0
        self._credit_ms += stall_ms

    def first_passed(self, now_ms: int) -> K | None:
        """The key whose deadline passed first, if any has passed by now. The key stays until it is changed or removed."""
        kept_ms = now_ms - self._credit_ms
        heap = self._heap
        while heap and heap[0][0] <= kept_ms:
            entry_ms, key = heap[0]
            if self._entry_ms.get(key) != entry_ms:
                heapq.heappop(heap)  # an older entry
                continue
            if self._deadline_ms[key] <= entry_ms:
                return key
            heapq.heappop(heap)
            self._enter(key, self._deadline_ms[key])
        return None

    def next_ms(self) -> int | None:
        """The time to call `first_passed`; possibly too early, never too late. None: there is no key."""
        return self._heap[0][0] + self._credit_ms if self._heap else None

    def _enter(self, key: K, at_ms: int) -> None:
        entry_ms = -(-at_ms // self._coarse_ms) * self._coarse_ms
        self._entry_ms[key] = entry_ms
        heapq.heappush(self._heap, (entry_ms, key))
        if len(self._heap) > 2 * len(self._entry_ms) + _OLD_ENTRIES_MIN:
            self._heap = [(at_ms, key) for key, at_ms in self._entry_ms.items()]
            heapq.heapify(self._heap)
