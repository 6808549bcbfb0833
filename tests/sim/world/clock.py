"""One machine's clocks, which no two machines agree on.

The steady clock begins anywhere at each boot and runs a little fast or slow; the wall clock is off by some amount that may
change at any time. Both follow the cluster's virtual time, which nobody in it can see.
"""

import random
from collections.abc import Callable

WALL_CLOCK_BEGINS_MS = 1_700_000_000_000
STEADY_CLOCK_MAX_MS = 10_000_000
SOON_MS = 0.01
"""A timer rings this much after its time, so that whole milliseconds have certainly passed."""


class Clock:
    """The time that a process on this machine reads, in whole milliseconds."""

    def __init__(self, virtual_ms: Callable[[], float], rng: random.Random, drift: float) -> None:
        self._virtual_ms = virtual_ms
        self._rng = rng
        self._rate = 1.0 + rng.uniform(-drift, drift)
        self._steady_base_ms = 0.0
        self._wall_offset_ms = 0
        self.reboot()

    def reboot(self) -> None:
        """The steady clock starts over."""
        self._steady_base_ms = self._rng.uniform(0, STEADY_CLOCK_MAX_MS) - self._virtual_ms() * self._rate

    def step_wall(self, by_ms: int) -> None:
        """Somebody sets the wall clock."""
        self._wall_offset_ms += by_ms

    def now_ms(self) -> int:
        return int(self._exact_ms())

    def wall_ms(self) -> int:
        return WALL_CLOCK_BEGINS_MS + int(self._virtual_ms()) + self._wall_offset_ms

    def until(self, deadline_ms: int) -> float:
        """In how many virtual milliseconds `deadline_ms` will have come."""
        return max(0.0, (deadline_ms - self._exact_ms()) / self._rate) + SOON_MS

    def _exact_ms(self) -> float:
        return self._steady_base_ms + self._virtual_ms() * self._rate
