"""Pauses that grow with each failure, as in KIP-580: doubled each time, with jitter, and with a maximum.

1. Broker 1 dies, and 1,000 clients fail at the same moment. With equal pauses all of them return at the same moments, too.
2. With jitter each client waits 80 % to 120 % of the pause, so the clients return one after the other.
"""

import random
from typing import Final

MULTIPLIER: Final = 2
JITTER: Final = 0.2
_DOUBLINGS_MAX: Final = 32


class ExponentialBackoff:
    """`first_ms`, then twice as much for each attempt, at most `max_ms`. The dice throw the jitter; None: no jitter."""

    def __init__(self, first_ms: int, max_ms: int, dice: random.Random | None = None) -> None:
        assert 0 < first_ms <= max_ms, f"the first pause of {first_ms} ms must be between 1 ms and {max_ms} ms"
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._dice = dice

    def pause_ms(self, attempts: int) -> int:
        """Returns the pause after `attempts` failures in a row, counted from 0."""
        doubled_ms: int = self._first_ms * MULTIPLIER ** min(attempts, _DOUBLINGS_MAX)
        factor = 1.0 if self._dice is None else self._dice.uniform(1 - JITTER, 1 + JITTER)
        return min(round(min(doubled_ms, self._max_ms) * factor), self._max_ms)
