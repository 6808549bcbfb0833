"""The last events of a run as fixed-width lines: time, who, what happened, and how every controller stood after it.

12345.678  c2   Fetch answer c1>c2      c1 L e4 [0,31) f31 hw28 | c2 f e4 [0,31) f28 hw25 | c3 X
|          |    |                       |  | |  |      |   high watermark
time ms    who  event                   |  | |  log    flushed end
                                  node -+  | epoch
                                     role -+  L leader, f follower, u unattached, p prospective, c candidate,
                                              r resigned, z asleep, X down
"""

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from metadata_log.format.ids import Epoch, Offset
from metadata_log.format.log_shape import LogShape
from quorum.core.roles import Role

if TYPE_CHECKING:
    from tests.sim.nodes.controllers import SimController

LINES = 40
STATE_WIDTH = 36
LETTERS = {
    Role.UNATTACHED: "u",
    Role.PROSPECTIVE: "p",
    Role.CANDIDATE: "c",
    Role.LEADER: "L",
    Role.FOLLOWER: "f",
    Role.RESIGNED: "r",
}


class Standing(NamedTuple):
    """The state of one controller; drawn only when a person looks. A controller that is down has no role."""

    name: str
    role: Role | None = None
    paused: bool = False
    epoch: Epoch = 0
    shape: LogShape | None = None
    high_watermark: Offset | None = None

    def __str__(self) -> str:
        """`STATE_WIDTH` characters wide."""
        if self.role is None or self.shape is None:
            return f"{self.name + ' X':<{STATE_WIDTH}}"
        letter = "z" if self.paused else LETTERS[self.role]
        watermark = "?" if self.high_watermark is None else self.high_watermark
        log = f"[{self.shape.start.offset},{self.shape.end}) f{self.shape.flushed_end} hw{watermark}"
        return f"{self.name} {letter} e{self.epoch} {log}"[:STATE_WIDTH].ljust(STATE_WIDTH)


def describe(controller: "SimController") -> Standing:
    """As it stands now."""
    node = controller.node
    if node is None:
        return Standing(controller.name)
    core = node.core
    return Standing(controller.name, core.role, controller.paused, core.epoch, node.log.shape, core.high_watermark)


class Picture:
    """Keeps the last `LINES` events, and how every controller stood after each."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, str, str, tuple[Standing, ...]]] = deque(maxlen=LINES)
        self._states: dict[str, Standing] = {}

    def add(self, now_ms: float, who: str, what: str) -> None:
        """Something has happened at `who`."""
        self._lines.append((now_ms, who, what, tuple(self._states.values())))

    def add_controller(self, now_ms: float, controller: "SimController", what: str) -> None:
        """Something has happened at a controller, which may look different now."""
        self._states[controller.name] = describe(controller)
        self.add(now_ms, controller.name, what)

    def __str__(self) -> str:
        return "\n".join(
            f"{now_ms:10.3f}  {who:<4} {what:<34.34} {' | '.join(map(str, states))}"
            for now_ms, who, what, states in self._lines
        )
