"""The configs of topics and brokers as an admin sees them: which value holds, where it was set, and what else was set.

A key may have a value on several levels, and the first one holds:

    retention.ms of topic orders      5          set on the topic itself
    log.retention.ms of all brokers   86400000   the cluster's default for topics that do not say it
    (built in)                        604800000

If an operator deletes the first, the second holds. Keys that an embedder has defined have the same levels; the default of the
definition is the last (`defined_keys`). A value of one broker, such as `num.io.threads` of broker 7, comes before the
default of all brokers in the same way.

`unclean.leader.election.enable` has two more levels, which only the active controller knows (`partitions.election_rules`): the
config of the active controller's own id, and the key in its configuration file.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from metadata_log.format.config_definitions import definition_of
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigDefinition
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.election_rules import UNCLEAN_KEY
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.topic_rules import Rejected
from quorum.controller.topics.config_keys import KEYS
from quorum.controller.topics.config_meanings import BROKER_MEANINGS, TOPIC_MEANINGS
from quorum.controller.topics.configs import check_resource
from quorum.controller.topics.defined_keys import broker_key, known_key

RESOURCES_PAGE_MAX: Final = 1_000
"""Maximum number of resources in one page, also if a client wants more."""
EFFECTIVE_PAGE_MAX: Final = 20
"""Maximum number of resources in one page that describes all keys: each resource has some 30, so a page takes a few ms."""
KEYS_PAGE_MAX: Final = 1_000
"""How many keys end a page: the page ends with the resource that brings it there."""
MEANINGS: Final = {TOPIC_RESOURCE: TOPIC_MEANINGS, BROKER_RESOURCE: BROKER_MEANINGS}


class ConfigSource(Enum):
    """The levels on which a key may have a value. An earlier level comes before a later one."""

    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    """The default of all brokers."""
    STATIC = 5
    """In the configuration file of the active controller."""
    DEFAULT = 4
    """Built in."""


class ConfigLevel(NamedTuple):
    """The value of a key on one level. A cluster's default for topics may have another name than the topic's key."""

    key: str
    value: str
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """One key of a resource, with its values on all levels that have one, the value that holds first."""

    key: str
    levels: tuple[ConfigLevel, ...]
    is_set_here: bool
    """The first value was set on the resource itself."""
    meaning: str = ""

    @property
    def value(self) -> str:
        """The value that holds."""
        return self.levels[0].value

    @property
    def source(self) -> ConfigSource:
        """The level of the value that holds."""
        return self.levels[0].source


class DescribedResource(NamedTuple):
    """The configs of one resource, by key."""

    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    configs: tuple[DescribedConfig, ...] = ()


def describe_configs(
    image: MetadataImage,
    resource_type: int,
    resource_name: str,
    config: ControllerConfig | None = None,
    *,
    with_defaults: bool = False,
) -> DescribedResource:
    """Describes the keys that were set on the resource itself; with `with_defaults` all keys.

    `config` is that of the active controller. Without it, on another node, the levels that it knows are left out.
    """
    try:
        check_resource(image, resource_type, resource_name, NO_LEADER if config is None else config.node_id)
    except Rejected as error:
        return DescribedResource(resource_type, resource_name, error.code, str(error))
    own = image.config(resource_type, resource_name)
    keys = own.keys() | _all_keys(image, resource_type) if with_defaults else own.keys()
    described = [
        DescribedConfig(
            key,
            tuple(_levels(image, resource_type, resource_name, config, key)),
            key in own,
            _meaning(image, resource_type, key),
        )
        for key in sorted(keys)
    ]
    return DescribedResource(resource_type, resource_name, configs=tuple(described))


def _all_keys(image: MetadataImage, resource_type: int) -> set[str]:
    """The built-in keys, and those that an embedder has defined by their whole name."""
    defined = {each.name for each in image.config_definitions.unordered_values() if _is_whole(each, resource_type)}
    return defined | KEYS[resource_type].keys()


def _is_whole(definition: ConfigDefinition, resource_type: int) -> bool:
    return definition.resource_type == resource_type and not definition.is_prefix


def _meaning(image: MetadataImage, resource_type: int, key: str) -> str:
    meaning = MEANINGS[resource_type].get(key)
    if meaning is not None or key in KEYS[resource_type]:
        return meaning or ""
    definition = definition_of(image.config_definitions, resource_type, key)
    return "" if definition is None else definition.documentation


def _levels(
    image: MetadataImage, resource_type: int, resource_name: str, config: ControllerConfig | None, key: str
) -> Iterator[ConfigLevel]:
    own = image.config(resource_type, resource_name).get(key)
    if own is not None:
        yield ConfigLevel(key, own, _source_of(resource_type, resource_name))
    known = known_key(resource_type, key, image.config_definitions)
    if known is None:
        return  # a key of another release, which has no default here
    if key == UNCLEAN_KEY and resource_type == TOPIC_RESOURCE and config is not None:
        value = image.config(BROKER_RESOURCE, str(config.node_id)).get(key)
        if value is not None:
            yield ConfigLevel(key, value, ConfigSource.BROKER)
    inherited = broker_key(resource_type, key, image.config_definitions)
    if resource_name and inherited:
        value = image.config(BROKER_RESOURCE, "").get(inherited)
        if value is not None:
            yield ConfigLevel(inherited, value, ConfigSource.CLUSTER)
    if key == UNCLEAN_KEY and config is not None and config.unclean_leader_election:
        yield ConfigLevel(key, "true", ConfigSource.STATIC)
    yield ConfigLevel(key, known.default, ConfigSource.DEFAULT)


def _source_of(resource_type: int, resource_name: str) -> ConfigSource:
    if resource_type == TOPIC_RESOURCE:
        return ConfigSource.TOPIC
    return ConfigSource.BROKER if resource_name else ConfigSource.CLUSTER
