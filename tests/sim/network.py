"""Links that lose, delay, reorder and repeat, each direction by itself."""

import random
from collections.abc import Callable

from tests.sim.coverage import Coverage
from tests.sim.options import Options


class Network:
    """Decides what becomes of each message. Addresses are names such as `c1`, `b2`, `client`."""

    def __init__(
        self,
        options: Options,
        rng: random.Random,
        schedule: Callable[[float, Callable[[], None], str], None],
        coverage: Coverage,
    ) -> None:
        self._options = options
        self._rng = rng
        self._schedule = schedule
        self._coverage = coverage
        self._cut: set[tuple[str, str]] = set()
        self.healed = False

    def carry(self, source: str, destination: str, deliver: Callable[[], None], what: str) -> None:
        """`deliver` will be called never, once or more often, at some time."""
        options, rng = self._options, self._rng
        if (source, destination) in self._cut:
            self._coverage["message cut off"] += 1
            return
        if not self.healed and rng.random() < options.loss:
            self._coverage["message lost"] += 1
            return
        self._schedule(self._delay_ms(), deliver, what)
        if not self.healed and rng.random() < options.duplicate:
            self._coverage["message duplicated"] += 1
            self._schedule(self._delay_ms() * 3, deliver, what)

    def _delay_ms(self) -> float:
        options, rng = self._options, self._rng
        if not self.healed and rng.random() < options.slow_chance:
            return rng.uniform(options.delay_max_ms, 1_500.0)
        return rng.uniform(options.delay_min_ms, max(options.delay_min_ms, options.delay_max_ms))

    def reaches(self, source: str, destination: str) -> bool:
        return (source, destination) not in self._cut

    def cut(self, links: set[tuple[str, str]]) -> None:
        self._cut |= links
        self._coverage["link cut"] += len(links)

    def mend(self, links: set[tuple[str, str]]) -> None:
        self._cut -= links

    def heal(self) -> None:
        """From now on every message arrives, once."""
        self._cut.clear()
        self.healed = True
