"""The law of time travel (E6): the image that a node shows of the past is the replay of the history up to there.

Example: the batches of the history end at 40, 44 and 52, and a transaction is open from 44 to 52.

    1. A reader asks controller 2 for the image at 45. It must be the image at 44.
    2. Controller 2 has trimmed its log to 48, and its archive is lost. It may say that 45 is out of its reach, and nothing else.
"""

import random
from bisect import bisect_right
from typing import TYPE_CHECKING

from metadata_log.format.ids import Offset
from metadata_log.image.replay import ReplayStopped
from snapshots.history.past import Past
from snapshots.history.wanted import HistoryDamaged, OutOfReach, Shown, Wanted
from tests.sim.coverage import Coverage
from tests.sim.history import History
from tests.sim.laws.broken import hold
from tests.sim.laws.entities.watches import WatchLaws
from tests.sim.options import Options
from tests.sim.world.disk import Observer

if TYPE_CHECKING:
    from tests.sim.nodes.controllers import Process, SimController

KNOWN_CHANCE = 0.5
"""How often replay goes on from an image that was shown before."""


class PastLaws:
    """Looks at the past of one controller now and then."""

    def __init__(self, history: History, watches: WatchLaws, options: Options, coverage: Coverage) -> None:
        self._may_rot = options.rot_every_ms > 0
        self._history = history
        self._watches = watches
        self._coverage = coverage
        self._known: dict[Process, Shown] = {}

    def look(self, controller: "SimController", dice: random.Random) -> None:
        """Asks a controller that is up for a random offset, and compares."""
        committed_end = controller.log_applied_end()
        wanted = Wanted(offset=dice.randint(0, committed_end))
        known = self._known.get(controller.process)
        before = () if known is None or dice.random() >= KNOWN_CHANCE else (known,)
        try:
            with Observer():
                shown = Past(controller.metadata).shown(wanted, committed_end, before)
        except OutOfReach as e:
            assert wanted.offset is not None
            text = f"{controller.name} cannot show {wanted}, and reaches down to {e.reach.lowest}"
            hold(wanted.offset < e.reach.lowest, "E6 PastIsReplay", text)
            return
        except ReplayStopped as e:
            stops = self._history.skips.stops(str(e))
            hold(stops, "E6 PastIsReplay", f"{controller.name} shows nothing at {wanted}: {e}")
            return
        except HistoryDamaged as e:
            # A node does not know of each bit that has rotted under it.
            is_bad = self._may_rot or bool(controller.log.damage) or controller.disk_is_bad
            is_bad = is_bad or controller.log.lost is not None
            hold(is_bad, "E6 PastIsReplay", f"{controller.name} has no damage, and shows nothing at {wanted}: {e}")
            return
        self._known[controller.process] = shown
        self._coverage["past shown"] += 1
        self._check(controller.name, wanted.offset or 0, shown)

    def _check(self, name: str, wanted: Offset, shown: Shown) -> None:
        boundaries = self._watches.boundaries
        right = boundaries[bisect_right(boundaries, wanted) - 1]
        text = f"{name} shows the image at {shown.image.offset} for {wanted}; the last whole batch ends at {right}"
        hold(shown.image.offset == right, "E6 PastIsReplay", text)
        same = self._history.agrees(right, shown.image.digest_bytes)
        hold(same, "E6 PastIsReplay", f"{name} shows another state at {right} than the history has")
