"""The last events of a run as fixed-width lines: time, who, what happened, and every controller's state after it.

    12345.678  c2  fetch answer c1->c2       c1 L e4 [0,31) f31 hw28 | c2 F e4 [0,31) f28 hw25 | c3 X
    |          |   |                          |  | |  |     |   high watermark
    time ms    who event                      |  | |  log   durable end
                                        node -+  | epoch
                              role, X: down -----+

Roles are written by their first letters: L leads, z sleeps.
"""

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.controllers import SimController

LINES = 40


class Picture:
    """Keeps the last `LINES` events, and how every controller stood after each."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, str, str, tuple[str, ...]]] = deque(maxlen=LINES)
        self._states: dict[str, str] = {}

    def add(self, now_ms: float, who: str, what: str) -> None:
        """Something has happened at `who`."""
        self._lines.append((now_ms, who, what, tuple(self._states.values())))

    def add_controller(self, now_ms: float, controller: "SimController", what: str) -> None:
        """Something has happened at a controller, which may look different now."""
        self._states[controller.name] = controller.describe()
        self.add(now_ms, controller.name, what)

    def __str__(self) -> str:
        return "\n".join(
            f"{now_ms:10.3f}  {who:<4} {what:<34.34} {' | '.join(states)}" for now_ms, who, what, states in self._lines
        )
