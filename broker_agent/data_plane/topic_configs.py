"""The configs of the topics with replicas on this broker, as the manager was told them.

1. `orders` has `min.insync.replicas` 2. Before its first assignment the manager is told so.
2. An operator sets `retention.ms` of `orders`. The next image has the change, and the manager is told again.
3. An operator sets `log.retention.ms` for all brokers. Every topic is looked at; only those whose config differs now are told.
"""

from collections.abc import Iterator, Mapping

from broker_agent.partitions.manager_config import TopicConfig
from broker_agent.partitions.throttle import ThrottledReplicas
from broker_agent.publishing.publishers import ImageUpdate
from broker_agent.replica.partition_log_config import PartitionLogConfig
from metadata_log.format.ids import NodeId, Uuid
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE
from metadata_log.image.metadata_image import MetadataImage

MIN_INSYNC_REPLICAS = "min.insync.replicas"
LEADER_THROTTLED = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED = "follower.replication.throttled.replicas"


class TopicConfigs:
    """The configs that the manager has."""

    def __init__(self, producer_id_expiration_ms: int = PartitionLogConfig().producer_id_expiration_ms) -> None:
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._told: dict[Uuid, TopicConfig] = {}

    def news_of(self, image: MetadataImage, topic_id: Uuid, broker_id: NodeId) -> TopicConfig | None:
        """The topic's config, to be told now; None if the manager has it, or if the topic is gone."""
        topic = image.topic_by_id(topic_id)
        if topic is None:
            return None
        own = image.config(TOPIC_RESOURCE, topic.name)
        config = self._config(own, of_broker(image, broker_id), broker_id)
        if self._told.get(topic_id) == config:
            return None
        self._told[topic_id] = config
        return config

    def _config(self, topic: Mapping[str, str], broker: Mapping[str, str], broker_id: NodeId) -> TopicConfig:
        log = PartitionLogConfig.of_topic(topic, broker)
        min_isr = int(topic.get(MIN_INSYNC_REPLICAS, broker.get(MIN_INSYNC_REPLICAS, "1")))
        return TopicConfig(
            log._replace(producer_id_expiration_ms=self._producer_id_expiration_ms),
            min_isr,
            ThrottledReplicas.of(topic.get(LEADER_THROTTLED, ""), broker_id),
            ThrottledReplicas.of(topic.get(FOLLOWER_THROTTLED, ""), broker_id),
        )

    def forget(self, topic_id: Uuid) -> None:
        """Forgets a topic that was deleted."""
        self._told.pop(topic_id, None)

    def changed_topics(self, update: ImageUpdate) -> Iterator[Uuid]:
        """Yields the topics that were told, and whose config may be another one now."""
        changes, after = update.changes, update.after
        if any(kind == BROKER_RESOURCE for kind, _ in changes.config_resources):
            yield from tuple(self._told)
            return
        for kind, name in changes.config_resources:
            topic = after.topic(name) if kind == TOPIC_RESOURCE else None
            if topic is not None and topic.topic_id in self._told:
                yield topic.topic_id


def of_broker(image: MetadataImage, broker_id: NodeId) -> Mapping[str, str]:
    """The values that are set for this broker, and for all brokers."""
    return {**image.config(BROKER_RESOURCE, ""), **image.config(BROKER_RESOURCE, str(broker_id))}
