"""The real clock; the only file that reads one. Everything else is told the time as `now_ms`.

Two clocks, never mixed: `now_ms` measures waits and leases, `wall_ms` labels records for people. `now_ms` runs on
CLOCK_BOOTTIME where there is one, because it goes on while a laptop or a virtual machine is suspended: a broker that
slept through its session must find its lease over when it wakes (CLOCK_MONOTONIC would say that no time had passed).
"""

import time
from typing import Final

_ELAPSED: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class RealClock:
    """The clock of this machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Milliseconds since some fixed moment; never goes back, and goes on while the machine sleeps (on Linux)."""
        return time.clock_gettime_ns(_ELAPSED) // 1_000_000

    def cpu_us(self) -> int:
        """Microseconds that the calling thread has worked; what it waited does not count."""
        return time.thread_time_ns() // 1_000

    def elapsed_us(self) -> int:
        """Microseconds since some fixed moment, to measure how long something took; the machine's sleep does not count."""
        return time.monotonic_ns() // 1_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC, as the machine believes; may jump either way."""
        return time.time_ns() // 1_000_000
