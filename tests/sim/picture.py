"""The last events of a run as fixed-width lines: time, who, what happened, and every controller's state after it.

    12345.678  c2  fetch answer c1->c2       c1 L e4 [0,31) f31 hw28 | c2 F e4 [0,31) f28 hw25 | c3 X
    |          |   |                          |  | |  |     |   high watermark
    time ms    who event                      |  | |  log   durable end
                                        node -+  | epoch
                              role, X: down -----+

Roles are written by their first letters: L leads, z sleeps.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.controllers import SimController

LINES = 40


class Picture:
    """Keeps the last `LINES` events."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES)

    def add(self, now_ms: float, who: str, what: str, controllers: "Sequence[SimController]") -> None:
        states = " | ".join(controller.describe() for controller in controllers)
        self._lines.append(f"{now_ms:10.3f}  {who:<4} {what:<34.34} {states}")

    def __str__(self) -> str:
        return "\n".join(self._lines)
