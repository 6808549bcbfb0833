"""The real clock. No other file reads a clock: all other code gets the time as `now_ms`.

There are two clocks, and code never mixes them. `now_ms` measures waits and leases; `wall_ms` labels records for people.

`now_ms` uses CLOCK_BOOTTIME if the system has it, because that clock runs on while the machine is suspended:

    1. A broker on a laptop has a lease until 5 s. At 2 s the laptop is suspended for an hour.
    2. The laptop wakes up. CLOCK_BOOTTIME shows an hour more, so the broker finds its lease over and refuses clients.
    3. CLOCK_MONOTONIC would still show 2 s: the broker would serve for 3 s more, although it was fenced long ago.
"""

import time
from typing import Final

_ELAPSED: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_s() -> float:
    """Seconds since some fixed moment, to measure how long a call took."""
    return time.monotonic()


class RealClock:
    """The clock of this machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Milliseconds since a fixed moment; never goes back, and runs on while the machine sleeps (on Linux)."""
        return time.clock_gettime_ns(_ELAPSED) // 1_000_000

    def cpu_us(self) -> int:
        """Microseconds of CPU time of the calling thread; waiting does not count."""
        return time.thread_time_ns() // 1_000

    def elapsed_us(self) -> int:
        """Microseconds since a fixed moment, to measure durations; the machine's sleep does not count."""
        return time.monotonic_ns() // 1_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC by the machine's clock; may jump in both directions."""
        return time.time_ns() // 1_000_000
