"""The configs and the feature that decide elections in one topic.

    may replicas out of sync lead?      `unclean.leader.election.enable`
    how many replicas must be in sync?  `min.insync.replicas`
    are eligible leader replicas kept?  the feature `eligible.leader.replicas.version` (KIP-966)

A key may have a value on several levels, and the first one holds. Example: who decides about unclean elections of orders-0?

    1  the topic        config of topic orders
    2  the node         config of broker resource 1, if controller 1 is the active controller
    3  the cluster      config of broker resource '', the default of all
    4  the static one   the key in the configuration file of the active controller

The node of level 2 is the active controller, as in Kafka: it decides the elections. A value of a broker that is no controller has
no effect on them. After a failover the value of the new active controller holds, so most operators set level 1 or level 3.

`min.insync.replicas` has the levels 1 and 3 only. Its value is also a promise of the data plane: the leader of a partition stops
its high watermark while the ISR is smaller. Every node must know the same value, so a value of one node is refused (`configs`).
"""

from typing import Final

from metadata_log.format.ids import NO_LEADER
from metadata_log.format.records import BROKER_RESOURCE, ELR_METADATA_VERSION, ELR_VERSION, TOPIC_RESOURCE
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.config import ControllerConfig

UNCLEAN_KEY: Final = "unclean.leader.election.enable"
MIN_ISR_KEY: Final = "min.insync.replicas"


def keeps_elr(image: MetadataImage) -> bool:
    """True if the cluster keeps eligible leader replicas. The one place that asks for the feature."""
    return image.features.get(ELR_VERSION, 0) >= 1 and image.metadata_version >= ELR_METADATA_VERSION


def allows_unclean_election(image: MetadataImage, config: ControllerConfig, topic_name: str) -> bool:
    """True if a replica that is neither in sync nor eligible may lead a partition of the topic."""
    value = image.config(TOPIC_RESOURCE, topic_name).get(UNCLEAN_KEY)
    if value is None and config.node_id != NO_LEADER:
        value = image.config(BROKER_RESOURCE, str(config.node_id)).get(UNCLEAN_KEY)
    if value is None:
        value = image.config(BROKER_RESOURCE, "").get(UNCLEAN_KEY)
    return config.unclean_leader_election if value is None else value == "true"


def min_isr_of(image: MetadataImage, topic_name: str) -> int:
    """`min.insync.replicas` of the topic: at most so many replicas are needed that a partition has."""
    value = image.config(TOPIC_RESOURCE, topic_name).get(MIN_ISR_KEY)
    if value is None:
        value = image.config(BROKER_RESOURCE, "").get(MIN_ISR_KEY)
    return 1 if value is None else int(value)


class ElectionRules:
    """The rules of one topic. Each config is read only when a decision depends on it."""

    __slots__ = ("_config", "_image", "_topic_name", "keeps_elr")

    def __init__(self, image: MetadataImage, config: ControllerConfig, topic_name: str) -> None:
        self._image = image
        self._config = config
        self._topic_name = topic_name
        self.keeps_elr = keeps_elr(image)

    def allows_unclean(self) -> bool:
        """See `allows_unclean_election`."""
        return allows_unclean_election(self._image, self._config, self._topic_name)

    def min_isr(self) -> int:
        """See `min_isr_of`."""
        return min_isr_of(self._image, self._topic_name)
