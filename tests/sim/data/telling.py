"""The metadata of one broker for its data plane: assignments, candidates and configs, as the store's image changes.

The data plane acts only on an image that has its own process's registration (the second duty in docs/partition-replicas.md).
"""

from typing import TYPE_CHECKING

from broker_agent.partitions.effects import Effects
from broker_agent.partitions.manager_config import TopicConfig
from broker_agent.partitions.replica_manager import ReplicaManager
from broker_agent.publishing.assignments import (
    Assignment,
    AssignmentNews,
    TopicIdPartition,
    WholeSet,
    all_assignments,
    deletion,
)
from broker_agent.replica.partition_log_config import PartitionLogConfig
from metadata_log.format.ids import NodeId, Uuid
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.election_rules import min_isr_of

if TYPE_CHECKING:
    from tests.sim.data.plane import DataPlane

SEGMENT_BYTES = "4096"


class Telling:
    """What the manager has been told."""

    def __init__(self, plane: "DataPlane") -> None:
        self._plane = plane
        self.booted()

    def booted(self) -> None:
        """A new process knows nothing."""
        self._image: MetadataImage | None = None
        self._broker_epoch = -1
        self._assignments: dict[TopicIdPartition, Assignment] = {}
        self._candidates: dict[NodeId, int] = {}
        self._configs: dict[Uuid, TopicConfig] = {}

    def look(self) -> None:
        """Tells what is new in the broker's image."""
        broker = self._plane.broker
        image, epoch = broker.store.image, broker.session.broker_epoch
        registered = image.brokers.get(broker.broker_id)
        if image is self._image or epoch is None or registered is None or registered.broker_epoch != epoch:
            return
        self._image = image
        self._plane.act(lambda manager: self._tell(manager, image, epoch), "assignments")

    def _tell(self, manager: ReplicaManager, image: MetadataImage, epoch: int) -> Effects:
        now_ms, effects = self._plane.now_ms(), list[object]()
        if epoch != self._broker_epoch:
            manager.registered(epoch)
        news = self._news(image, is_whole=epoch != self._broker_epoch)
        self._broker_epoch = epoch
        for topic_id in sorted({each.topic_id for each in self._assignments.values()}):
            config = topic_config(image, topic_id)
            if config is not None and self._configs.get(topic_id) != config:
                self._configs[topic_id] = config
                effects += manager.topic_configured(topic_id, config, now_ms)
        candidates = {
            each.broker_id: each.broker_epoch
            for each in image.brokers.values()
            if not each.fenced and not each.in_controlled_shutdown
        }
        if candidates != self._candidates:
            self._candidates = candidates
            effects += manager.brokers_changed(candidates, now_ms)
        if news:
            effects += manager.assign(news, now_ms)
        return effects  # type: ignore[return-value]

    def _news(self, image: MetadataImage, *, is_whole: bool) -> list[AssignmentNews]:
        before = self._assignments
        after = self._assignments = all_assignments(image, self._plane.broker_id)
        if is_whole:
            return [WholeSet(frozenset(after), image.offset), *after.values()]  # type: ignore[list-item]
        gone = [deletion(each, image.offset) for place, each in before.items() if place not in after]
        changed = [each for place, each in after.items() if before.get(place) != each]
        return [*gone, *changed]  # type: ignore[list-item]


def topic_config(image: MetadataImage, topic_id: Uuid) -> TopicConfig | None:
    """The configuration of a topic; None if there is no such topic."""
    topic = image.topic_by_id(topic_id)
    if topic is None:
        return None
    own = {"segment.bytes": SEGMENT_BYTES, **image.config(TOPIC_RESOURCE, topic.name)}
    log = PartitionLogConfig.of_topic(own, image.config(BROKER_RESOURCE, ""))
    return TopicConfig(log, min_isr_of(image, topic.name))
