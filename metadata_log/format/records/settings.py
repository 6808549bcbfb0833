"""Records of configs, of the definitions of config keys, of labels, and of feature levels."""

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


@record(46)
class ConfigDefinition(NamedTuple):
    """An embedder has defined a config key of topics or of brokers, or defined it anew. Canonical.

    `metadata_log.format.config_definitions` has the types of values and the limits. With `is_prefix`, `name` ends with a dot, and
    every key that begins with `name` is defined. `minimum` and `maximum` bound a number, the length of a text, or the number of
    items in a list. `choices` are the only good values, or the only good items of a list; empty: all are good.
    """

    resource_type: int
    name: str
    is_prefix: bool
    value_type: str
    default: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    documentation: str = ""


@record(47)
class RemoveConfigDefinition(NamedTuple):
    """The definition of a config key was removed. No resource has a value that only this definition allows."""

    resource_type: int
    name: str


WHOLE_RESOURCE = -1
"""In `Label.partition`: the label belongs to the topic or the broker itself."""


@record(48)
class Label(NamedTuple):
    """A label was attached to a topic, a partition or a broker. Canonical. The value None removes the label.

    A topic that is removed, and a broker that is unregistered, lose their labels. `metadata_log.format.labels` has the limits.
    """

    resource_type: int
    resource_name: str
    partition: int
    key: str
    value: str | None


@record(12)
class FeatureLevel(NamedTuple):
    """The finalized level of a feature such as `metadata.version`. Canonical. Level 0 removes the feature."""

    name: str
    level: int
