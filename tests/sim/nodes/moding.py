"""A simulated operator: fences brokers, drains them, and ends that again. Once nothing breaks any more, every mode is ended.

The operator looks at the image of the controller that it asks, as `quorumctl brokers list` would. The image may be old: then the
request is refused, or finds nothing to do.
"""

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from metadata_log.format.ids import NodeId, Offset
from metadata_log.format.partition_state import ISR, LEADER
from metadata_log.format.records import MAINTENANCE_MODE, BrokerMode
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.commands import FenceBroker, FenceBrokerReply
from quorum.controller.protocol.election_commands import (
    ElectionType,
    ElectLeaders,
    ElectLeadersReply,
    TopicPartition,
)
from quorum.controller.protocol.mode_commands import BrokerModeReply, DrainBroker, EndBrokerMode, Mode
from quorum.runtime.protocol.world import Answer

if TYPE_CHECKING:
    from tests.sim.nodes.clients import SimClient

ELECT_CHANCE = 0.7
"""How often an operator wants a broker in maintenance for a leader, if one is in sync and does not lead."""
END_CHANCE = 0.6
"""How often the operator ends a mode, rather than giving another, if a broker has one."""


class Moding:
    """The operator's part of a client, with dice of its own."""

    def __init__(self, client: "SimClient", dice: random.Random) -> None:
        self._client = client
        self._dice = dice

    def act(self) -> bool:
        """Perhaps begins an operation; False: the client does something else."""
        cluster = self._client.cluster
        image = cluster.laws.history.image if cluster.is_calm else self._client.seen_image()
        if not cluster.brokers or image is None:
            return False
        if cluster.is_calm:
            if not len(image.broker_modes) or self._dice.random() < 0.3:
                return False
            self._end(image)
        elif self._dice.random() >= cluster.options.mode_chance:
            return False
        elif self._dice.random() < ELECT_CHANCE and (places := [*_in_sync_in_maintenance(image)]):
            self._elect(*self._dice.choice(places))
        elif len(image.broker_modes) and self._dice.random() < END_CHANCE:
            self._end(image)
        else:
            self._begin(self._dice.choice(sorted(cluster.brokers)))
        return True

    def _begin(self, broker_id: NodeId) -> None:
        cluster, reason = self._client.cluster, self._dice.choice(("", "why"))
        if self._dice.random() < 0.6:
            cluster.laws.placement.may_be_drained(broker_id)
            self._client.submit(DrainBroker(broker_id, reason), self._answered)
        else:
            cluster.laws.brokers.may_be_fenced(broker_id)
            self._client.submit(FenceBroker(broker_id, reason), self._answered)

    def _elect(self, place: TopicPartition, broker_id: NodeId) -> None:
        """Another operator does not know of the maintenance. A controller elects no such broker."""
        self._client.submit(ElectLeaders((place,), ElectionType.DESIGNATED, broker_id), self._answered)

    def _end(self, image: MetadataImage) -> None:
        record: BrokerMode = self._dice.choice(list(image.broker_modes.values()))
        self._client.submit(EndBrokerMode(record.broker_id, Mode(record.mode)), self._answered)

    def _answered(self, answer: Answer, floor: Offset) -> None:
        if isinstance(answer, FenceBrokerReply | BrokerModeReply | ElectLeadersReply):
            self._client.cluster.laws.clients.answered(answer.offset, floor)


def _in_sync_in_maintenance(image: MetadataImage) -> Iterator[tuple[TopicPartition, NodeId]]:
    """The replicas in sync that do not lead, on brokers in maintenance."""
    modes = image.broker_modes
    resting = {
        broker.broker_id
        for broker in image.brokers.values()
        if not broker.fenced and broker.broker_id in modes and modes[broker.broker_id].mode == MAINTENANCE_MODE
    }
    for topic in image.topics():
        for partition, state in enumerate(topic.states()):
            for member in state[ISR]:
                if member in resting and member != state[LEADER]:
                    yield TopicPartition(topic.name, partition), member
