"""The laws of the modes that operators give to brokers (M10): a mode lasts, and a broker with a mode gets no work.

    lasts        only a record of a mode changes a mode: no registration, fence, failover or snapshot does
    kept out     a broker that an operator has fenced is fenced in every image, and so leads nothing
    led last     a broker in maintenance leads a partition only while no other active broker is in the ISR
    unplaced     no new partition has a replica on a broker with a mode

The third law is about images that the active controller proposes, because two things may delay it: the other broker is on its way
out (it is barred, or being drained), or the controller is still looking through all partitions, after a failover or after the end
of another broker's maintenance.

Example: broker 101 is in maintenance and alone in the ISR of orders-0, which it leads. Broker 102 enters the ISR: in the image
that has this change broker 102 must lead.
"""

from typing import TYPE_CHECKING

from metadata_log.format.ids import NO_LEADER, NodeId, Uuid
from metadata_log.format.partition_state import DIRECTORIES, ISR, LEADER, REPLICAS
from metadata_log.format.records import FENCED_MODE, MAINTENANCE_MODE, BrokerMode, Partition
from metadata_log.image.log_directories import offline_replicas
from metadata_log.image.metadata_image import MetadataImage
from tests.sim.coverage import Coverage
from tests.sim.history import Step
from tests.sim.laws.broken import hold

if TYPE_CHECKING:
    from tests.sim.nodes.controllers import SimController

_WORDS = {FENCED_MODE: "broker fenced by hand", MAINTENANCE_MODE: "broker drained"}


class ModeLaws:
    """Checks every committed batch, and every image that an active controller proposes."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._looked_at: dict[NodeId, tuple[object, ...]] = {}

    def committed(self, step: Step) -> None:
        """One more batch is committed."""
        told: set[NodeId] = set()
        modes = step.after.broker_modes
        for record in step.records:
            if isinstance(record, BrokerMode):
                told.add(record.broker_id)
                self._coverage[_WORDS.get(record.mode, "mode of a broker ended")] += 1
            elif isinstance(record, Partition):
                placed = [each for each in record.replicas if each in step.before.broker_modes]
                hold(
                    not placed, "M10 Unplaced", f"a new partition at {step.batch.base_offset} has replicas on {placed}"
                )
        for broker_id in {*step.before.broker_modes, *modes} - told:
            was, now = step.before.broker_modes.get(broker_id), modes.get(broker_id)
            hold(was == now, "M10 Lasts", f"the mode of b{broker_id} went from {was} to {now} without a word")
        for broker_id, record in modes.items():
            broker = step.after.brokers.get(broker_id)
            is_out = record.mode != FENCED_MODE or (broker is not None and broker.fenced)
            hold(is_out, "M10 KeptOut", f"b{broker_id} is fenced by an operator at {step.batch.end_offset}: {broker}")

    def observe(self, controller: "SimController") -> None:
        """After an event at a controller that is still up."""
        node = controller.node
        assert node is not None
        if not node.active.on:
            return
        image = node.state.proposed
        brokers = node.active.controller._brokers
        if brokers._returns.looks or not any(each.mode == MAINTENANCE_MODE for each in image.broker_modes.values()):
            self._looked_at.pop(controller.node_id, None)
            return
        views = brokers.views
        parts = (
            image.topics_by_id, image.brokers, image.broker_modes, views._barred, views._drained, views._failing,
        )  # fmt: skip
        before = self._looked_at.get(controller.node_id, ())
        if len(before) == len(parts) and all(one is other for one, other in zip(before, parts, strict=True)):
            return
        self._looked_at[controller.node_id] = parts
        leaving = brokers.views._barred | brokers.views._drained
        failing = {each for directories in brokers.views._failing.values() for each in directories}
        self._check_led_last(image, leaving, failing, f"{controller.name} at {image.offset}")

    def _check_led_last(self, image: MetadataImage, leaving: frozenset[NodeId], failing: set[Uuid], who: str) -> None:
        free = {
            broker.broker_id
            for broker in image.brokers.values()
            if not broker.fenced
            and not broker.in_controlled_shutdown
            and broker.broker_id not in image.broker_modes
            and broker.broker_id not in leaving
        }
        for topic in image.topics_by_id.values():
            for number, state in enumerate(topic.states()):
                leader = state[LEADER]
                if leader == NO_LEADER or leader not in image.broker_modes:
                    continue
                others = free.intersection(state[ISR])
                others.difference_update(offline_replicas(image.brokers, state[REPLICAS], state[DIRECTORIES]))
                others -= {each for each, at in zip(state[REPLICAS], state[DIRECTORIES], strict=False) if at in failing}
                where = f"{who}: {topic.name}-{number}"
                hold(not others, "M10 LedLast", f"{where} is led by {leader} in maintenance; {others} could lead")
                self._coverage["led by a drained broker, because no other can"] += 1
