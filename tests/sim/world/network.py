"""Links that lose, delay, reorder and repeat, each direction by itself."""

import random
from collections.abc import Callable
from typing import TypeAlias

from tests.sim.coverage import Coverage
from tests.sim.options import Options

SLOW_MAX_MS = 1_500.0
LATE_REPEAT_CHANCE = 0.2
LATE_REPEAT_MAX_MS = 6_000.0
"""Some repeats come when everything that they speak of is long over."""

Link: TypeAlias = tuple[str, str]
"""From one address to another. Addresses are names such as `c1`, `b102`, `k0`."""


class _Line:
    """The way to one address: so many bytes a second, one message after the other, also those that nobody waits for any more."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_ms = bytes_per_s / 1_000
        self._free_at_ms = 0.0

    def takes_ms(self, content_bytes: int, now_ms: float) -> float:
        """Until the last byte is there."""
        self._free_at_ms = max(self._free_at_ms, now_ms) + content_bytes / self._bytes_per_ms
        return self._free_at_ms - now_ms


class Network:
    """Decides what becomes of each message."""

    def __init__(
        self,
        options: Options,
        rng: random.Random,
        schedule: Callable[[float, Callable[[], None]], None],
        coverage: Coverage,
        now_ms: Callable[[], float],
    ) -> None:
        self._options = options
        self._now_ms = now_ms
        self._lines: dict[str, _Line] = {}
        self._rng = rng
        self._schedule = schedule
        self._coverage = coverage
        self._cut: dict[Link, int] = {}
        self._sent: dict[Link, int] = {}
        self._arrived: dict[Link, int] = {}
        self._healed = False

    def carry(
        self,
        source: str,
        destination: str,
        deliver: Callable[[], None],
        *,
        repeats: bool = True,
        content_bytes: int = 0,
    ) -> None:
        """`deliver` will be called never, once or, with `repeats`, more often; at some time.

        `content_bytes`: of log or snapshot, which take their time where the way is narrow; the rest of a message takes none.
        """
        if (source, destination) in self._cut:
            self._coverage["message cut off"] += 1
            return
        options, rng = self._options, self._rng
        if not self._healed and rng.random() < options.loss:
            self._coverage["message lost"] += 1
            return
        link = source, destination
        number = self._sent[link] = self._sent.get(link, 0) + 1

        def arrive() -> None:
            if number < self._arrived.get(link, 0):
                self._coverage["message reordered"] += 1
            else:
                self._arrived[link] = number
            deliver()

        line = self._lines.get(destination)
        transmission_ms = 0.0 if line is None or not content_bytes else line.takes_ms(content_bytes, self._now_ms())
        self._schedule(transmission_ms + self._delay_ms(), arrive)
        if repeats and not self._healed and rng.random() < options.duplicate:
            self._coverage["message duplicated"] += 1
            late = rng.random() < LATE_REPEAT_CHANCE
            self._schedule(rng.uniform(0.0, LATE_REPEAT_MAX_MS) if late else self._delay_ms() * 3, deliver)

    def _delay_ms(self) -> float:
        options, rng = self._options, self._rng
        if not self._healed and rng.random() < options.slow_chance:
            self._coverage["message slow"] += 1
            return rng.uniform(options.delay_max_ms, SLOW_MAX_MS)
        return rng.uniform(options.delay_min_ms, max(options.delay_min_ms, options.delay_max_ms))

    def reaches(self, source: str, destination: str) -> bool:
        return (source, destination) not in self._cut

    def cut(self, links: set[Link]) -> None:
        """Nothing gets through until as many `mend`s as `cut`s."""
        for link in links:
            self._cut[link] = self._cut.get(link, 0) + 1
        self._coverage["link cut"] += len(links)

    def mend(self, links: set[Link]) -> None:
        for link in links & self._cut.keys():
            self._cut[link] -= 1
            if self._cut[link] <= 0:
                del self._cut[link]

    def narrow(self, destination: str, bytes_per_s: float) -> None:
        """So much gets through to `destination`, from all together."""
        self._lines[destination] = _Line(bytes_per_s)

    def widen(self) -> None:
        """To everybody as much as one likes. Messages on their way arrive at their time."""
        self._lines.clear()

    def heal(self) -> None:
        """From now on every message arrives, once, unless its link is cut again."""
        self._cut.clear()
        self.widen()
        self._healed = True
