"""The laws of entities, sessions, locks, the past and watches (E1 to E6, W1, W2), in runs whose clients use them."""

from typing import TYPE_CHECKING

from tests.sim.coverage import Coverage
from tests.sim.history import History, Step
from tests.sim.laws.entities.ephemerals import EphemeralLaws
from tests.sim.laws.entities.known import KnownEntities
from tests.sim.laws.entities.locks import LockLaws
from tests.sim.laws.entities.past import PastLaws
from tests.sim.laws.entities.registers import RegisterLaws
from tests.sim.laws.entities.sessions import SessionLaws
from tests.sim.laws.entities.watches import WatchLaws
from tests.sim.options import Options

if TYPE_CHECKING:
    from tests.sim.nodes.controllers import SimController

__all__ = ["EntityLaws"]


class EntityLaws:
    """All of them, over one replay."""

    def __init__(self, history: History, options: Options, coverage: Coverage) -> None:
        self._is_used = options.entities
        self.known = KnownEntities()
        self.registers = RegisterLaws(self.known)
        self.ephemerals = EphemeralLaws(self.known, coverage)
        self.sessions = SessionLaws(options, coverage)
        self.locks = LockLaws(coverage)
        self.watches = WatchLaws(history)
        self.past = PastLaws(history, self.watches, options, coverage)

    def committed(self, step: Step) -> None:
        """Checks a newly committed batch."""
        if not self._is_used:
            return
        self.watches.committed(step)
        if not step.records:
            return
        touched = self.known.take(step)
        if touched:
            deleted = self.registers.committed(step, touched)
            self.ephemerals.committed(step, touched, deleted)
            self.sessions.committed(step, touched)

    def observe(self, controller: "SimController", now_ms: float) -> None:
        """Called after an event at a running controller."""
        if self._is_used:
            self.sessions.observe(controller, now_ms)
