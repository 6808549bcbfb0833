"""The story that controllers tell: only of what is committed, and of each fencing once.

T1  a happening is told after its batch is committed, and a fencing that is told stands in that batch
T2  a fencing is told by the controller that decided it, if that controller is still active when it applies the batch
T3  a record says why a broker is in its state only while every registered broker can read that
"""

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from metadata_log.format.ids import Epoch, NodeId, Offset
from metadata_log.format.records import BrokerRegistrationChange, RegisterBroker
from quorum.controller.partitions.broker_view import reads_reasons
from quorum.controller.protocol.brokers.broker_happenings import BrokerFenced
from tests.sim.coverage import Coverage
from tests.sim.history import History, Step
from tests.sim.laws.broken import hold

if TYPE_CHECKING:
    from tests.sim.nodes.controllers import SimController


class _Fencing(NamedTuple):
    broker_epoch: int
    reason: str
    """Empty: the record does not say why."""


class StoryLaws:
    """Fed with every committed batch, and with what controllers tell."""

    def __init__(self, history: History, coverage: Coverage) -> None:
        self._history = history
        self._coverage = coverage
        self._untold: defaultdict[Epoch, dict[tuple[Offset, NodeId], _Fencing]] = defaultdict(dict)
        """By epoch of the batch: the end of each batch with a fencing, the broker, and what the batch says."""

    def committed(self, step: Step) -> None:
        """One more batch is committed."""
        for record in step.records:
            if not isinstance(record, BrokerRegistrationChange | RegisterBroker):
                continue
            before = step.before.brokers.get(record.broker_id)
            if record.reason and (before is None or record.reason != before.reason):
                self._coverage["reason of a broker's state written"] += 1
                text = f"b{record.broker_id} is {record.reason} at {step.batch.base_offset}, which some brokers cannot read"
                readers = [reads_reasons(broker.features) for broker in step.before.brokers.values()]
                hold(all(readers), "T3 ReasonsAreRead", text)
            if before is not None and not before.fenced and record.fenced:
                reason = record.reason if isinstance(record, BrokerRegistrationChange) else ""
                fencing = _Fencing(before.broker_epoch, reason)
                self._untold[step.batch.epoch][step.batch.end_offset, record.broker_id] = fencing

    def observe(self, controller: "SimController") -> None:
        """After an event at a controller that is still up."""
        node = controller.node
        assert node is not None
        for told in node.active.story.take():
            end = self._history.end
            hold(told.offset <= end, "T1 ToldWhenCommitted", f"{controller.name} tells {told}; committed is {end}")
            self._coverage["happening told"] += 1
            if isinstance(told.happening, BrokerFenced):
                fenced = told.happening
                epoch = self._history.epoch_below(told.offset)
                known = self._untold[epoch].pop((told.offset, fenced.broker_id), None)
                text = f"{controller.name} tells {told}; its batch says {known}, or it was told before"
                is_in_batch = (
                    known is not None
                    and known.broker_epoch == fenced.broker_epoch
                    and known.reason in ("", fenced.why.value)
                )
                hold(is_in_batch, "T1 ToldWhenCommitted", text)
        if node.active.on:
            for offset, broker_id in self._untold[node.core.epoch]:
                text = f"{controller.name} has fenced b{broker_id} at {offset} and does not tell it"
                hold(node.state.applied < offset, "T2 EachFencingTold", text)
