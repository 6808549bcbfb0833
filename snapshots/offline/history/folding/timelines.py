"""Timelines: facts about the whole cluster that the history of each topic needs, small enough for every task.

    BrokerTimeline    the state of each broker, at any offset
    MinIsrTimeline    the value of `min.insync.replicas` for each topic, at any offset

Example: partition orders-0 has no leader from image 812 on. The task that folds topic orders asks the timeline for the brokers
101 and 102 at 812, and writes into the row that 101 was fenced because its session had ended, and that 102 was online.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from metadata_log.format.ids import NodeId, Offset
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE
from snapshots.offline.history.folding.steps import Step

MIN_ISR_KEY: Final = "min.insync.replicas"
DEFAULT_MIN_ISR: Final = 1

ONLINE: Final = "online"
STOPPING: Final = "stopping"
FENCED: Final = "fenced"
REGISTERED: Final = "registered"
UNREGISTERED: Final = "unregistered"
"""The states of a broker. `registered`: fenced since its registration, and has not yet applied the registration."""

Resource = tuple[int, str]
CLUSTER: Final[Resource] = (BROKER_RESOURCE, "")
"""The resource with the default of all topics."""


class BrokerState(NamedTuple):
    """The state of a broker from an offset on."""

    state: str
    reason: str
    mode: str
    """`fenced` or `maintenance`, as an operator has set it; `none`."""

    @property
    def serves(self) -> bool:
        return self.state in (ONLINE, STOPPING)


NEVER_SEEN: Final = BrokerState(UNREGISTERED, "", "none")


class BrokerTimeline(NamedTuple):
    """For each broker the offsets at which its state changed, ascending, with the state from there on."""

    states: Mapping[NodeId, tuple[tuple[Offset, BrokerState], ...]]

    def at(self, broker_id: NodeId, offset: Offset) -> BrokerState:
        """Return the state of the broker in the image at `offset`."""
        changes = self.states.get(broker_id, ())
        at = bisect_right(changes, offset, key=lambda each: each[0]) - 1
        return changes[at][1] if at >= 0 else NEVER_SEEN


class MinIsrTimeline(NamedTuple):
    """For each resource the steps at which its own value changed, ascending; None: it has no value of its own from there on."""

    values: Mapping[Resource, tuple[tuple[Step, str | None], ...]]

    def at(self, topic: str, offset: Offset) -> int:
        """Return the value that holds for the topic in the image at `offset`."""
        for resource in ((TOPIC_RESOURCE, topic), CLUSTER):
            changes = self.values.get(resource)
            if not changes:
                continue
            at = bisect_right(changes, offset, key=lambda each: each[0].offset) - 1
            value = changes[at][1] if at >= 0 else None
            if value is not None:
                return int(value)
        return DEFAULT_MIN_ISR

    def steps(self, topic: str) -> list[Step]:
        """Return the steps at which the value for the topic may have changed, ascending."""
        found: Iterable[tuple[Step, str | None]] = (
            *self.values.get((TOPIC_RESOURCE, topic), ()),
            *self.values.get(CLUSTER, ()),
        )
        return sorted({step for step, _ in found}, key=lambda step: step.offset)
