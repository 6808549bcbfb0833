"""Records of configs and of feature levels."""

from typing import NamedTuple

from metadata_log.format.records.registry import record

BROKER_RESOURCE = 4
TOPIC_RESOURCE = 2
"""Config resource types, with Kafka's numbers. The cluster-wide default for brokers has the empty string as its
name."""


@record(4)
class Config(NamedTuple):
    """One config key of one resource. Canonical. The value None removes the key."""

    resource_type: int
    resource_name: str
    key: str
    value: str | None


@record(12)
class FeatureLevel(NamedTuple):
    """The finalized level of a feature such as `metadata.version`. Canonical. Level 0 removes the feature."""

    name: str
    level: int
