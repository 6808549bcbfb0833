"""The laws of death certificates (M19): a dead process has really ended, was reported, and never comes back.

    reported         only a process that a watcher has reported is dead in the log
    dead             no process that runs is dead in the log
    never unfenced   a process that was dead once is fenced in every later image

A late registration of a dead process may still be taken, after the processes that came between them have ended: it is another
registration, born fenced, and nobody knows its epoch.

The lease law covers the data planes that outlive their agents (`brokers`).
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from metadata_log.format.ids import NodeId, Uuid
from tests.sim.coverage import Coverage
from tests.sim.history import Step
from tests.sim.laws.broken import hold

if TYPE_CHECKING:
    from tests.sim.nodes.brokers import SimBroker


class DeathLaws:
    """Checks every committed batch that changes brokers."""

    def __init__(self, coverage: Coverage, brokers: "Mapping[NodeId, SimBroker]") -> None:
        self._coverage = coverage
        self._brokers = brokers
        self._reported: set[tuple[NodeId, Uuid]] = set()
        self._dead: dict[tuple[NodeId, Uuid], int] = {}
        """Each dead process, with the epoch of its registration."""

    def reported(self, broker_id: NodeId, incarnations: Iterable[Uuid]) -> None:
        """Notes that a watcher reports these processes."""
        self._reported.update((broker_id, incarnation) for incarnation in incarnations)

    def committed(self, step: Step) -> None:
        """One more batch is committed."""
        if step.before.brokers is step.after.brokers:
            return
        for broker_id, broker in step.after.brokers.items():
            process = broker_id, broker.incarnation_id
            if broker.dead and process not in self._dead:
                self._dead[process] = broker.broker_epoch
                self._coverage["broker process dead in the log"] += 1
                hold(process in self._reported, "M19 Reported", f"b{broker_id} is dead, and nobody has reported it")
                living = self._brokers[broker_id]
                is_alive = living.is_up and living.incarnation_id == broker.incarnation_id
                hold(not is_alive, "M19 Dead", f"b{broker_id}@{broker.broker_epoch} is dead in the log, and alive")
            elif process in self._dead:
                is_out = broker.fenced and (broker.dead or broker.broker_epoch != self._dead[process])
                hold(is_out, "M19 NeverUnfenced", f"b{broker_id}@{broker.broker_epoch} was dead, and is {broker}")
