"""The state of an image that a filter names: what a RESET shows.

The pieces come one by one from a generator, so that the caller may stop between two of them: the state of a large cluster has
millions. An image never changes, so a pause of any length leaves the state true at the offset of the image.

    1. A watch of the kind `shard` begins without a position, and the image at 1,000 has 3 shards among 2,000,000 partitions.
    2. The generator finds the 3 shards by their range of keys, and touches no partition.
    3. A watch of everything gets all canonical records that a watch may show, in canonical order.
"""

from collections.abc import Iterable, Iterator

from metadata_log.format.entity_names import prefix_range
from metadata_log.format.ids import NodeId
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE, Config, FeatureLevel, MetadataRecord
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.settings.resource_labels import ResourceLabels
from metadata_log.image.topic_image import TopicImage
from watches.core.changes import Change, state_change
from watches.core.filters import EntityFilter, Filter


def state_of(image: MetadataImage, shown: Filter) -> Iterator[Change]:
    """Return the state that `shown` names, in an order that depends on the image alone."""

    def name_of(topic_id: bytes) -> str:
        topic = image.topic_by_id(topic_id)
        assert topic is not None, topic_id
        return str(topic.name)

    for record in _records(image, shown):
        change = state_change(record, name_of)
        if change is not None:
            yield change


def size_of(image: MetadataImage, shown: Filter) -> int:
    """Return roughly how many pieces the state has. O(filter)."""
    size = 0
    for kind, prefix in shown.entities:
        size += image.entities.count(*prefix_range(kind, prefix)) if kind else len(image.entities)
    if shown.all_topics:
        size += image.topic_count + image.partition_count + len(image.configs) + image.label_count
    for name in shown.topics:
        topic = image.topic(name)
        size += 0 if topic is None else 1 + topic.partition_count
    size += len(image.brokers) if shown.all_brokers else len(shown.brokers)
    size += len(image.client_sessions) if shown.sessions else 0
    return size + (len(image.quotas) + len(image.acls) + len(image.configs) if shown.others else 0)


def _records(image: MetadataImage, shown: Filter) -> Iterator[MetadataRecord]:
    if shown.others:
        for feature, level in image.features.items():
            yield FeatureLevel(feature, level)
        yield from image.controllers.values()
    yield from _brokers(image, image.brokers if shown.all_brokers else shown.brokers)
    for topic in _topics(image, shown):
        yield topic.record
        yield from topic.partitions()
    yield from _configs(image, shown)
    if shown.others:
        yield from image.quotas.values()
        if image.producer_ids is not None:
            yield image.producer_ids
        yield from image.acls.values()
        if image.epoch_floor is not None:
            yield image.epoch_floor
        yield from image.entity_kinds.values()
        yield from image.config_definitions.values()
    if shown.sessions:
        yield from image.client_sessions.values()
    yield from _entities(image, shown.entities)
    for resource_type, name in _resources(image.labels, shown):
        labels: ResourceLabels | None = image.labels.get((resource_type, name))
        yield from () if labels is None else labels.records(resource_type, name)


def _brokers(image: MetadataImage, broker_ids: Iterable[NodeId]) -> Iterator[MetadataRecord]:
    for broker_id in broker_ids:
        registration = image.brokers.get(broker_id)
        if registration is not None:
            yield registration
            mode = image.broker_modes.get(broker_id)
            if mode is not None:
                yield mode


def _topics(image: MetadataImage, shown: Filter) -> Iterator[TopicImage]:
    if shown.all_topics:
        yield from image.topics()
        return
    for name in shown.topics:
        topic = image.topic(name)
        if topic is not None:
            yield topic


def _resources(all_of_them: Iterable[tuple[int, str]], shown: Filter) -> Iterable[tuple[int, str]]:
    """Return the shown ones of `all_of_them`, and perhaps others that do not exist."""
    if shown.all_topics or shown.all_brokers or shown.others:
        return (each for each in all_of_them if _is_shown(each, shown))
    named = [(TOPIC_RESOURCE, name) for name in shown.topics]
    return named + [(BROKER_RESOURCE, str(broker_id)) for broker_id in shown.brokers]


def _configs(image: MetadataImage, shown: Filter) -> Iterator[Config]:
    for resource_type, name in _resources(image.configs, shown):
        config = image.config(resource_type, name)
        for key in sorted(config):
            yield Config(resource_type, name, key, config[key])


def _is_shown(resource: tuple[int, str], shown: Filter) -> bool:
    resource_type, name = resource
    if resource_type == TOPIC_RESOURCE:
        return shown.all_topics or name in shown.topics
    if resource_type == BROKER_RESOURCE:
        return shown.all_brokers or any(str(each) == name for each in shown.brokers)
    return shown.others


def _entities(image: MetadataImage, wanted: Iterable[EntityFilter]) -> Iterator[MetadataRecord]:
    """The entities of all filters, each once, by kind and name."""
    kinds = sorted(image.kind_usage)
    for kind in kinds:
        prefixes = sorted({each.name_prefix for each in wanted if each.kind in ("", kind)})
        done = None
        for prefix in prefixes:
            if done is not None and prefix.startswith(done):
                continue
            done = prefix
            for (at_kind, name), entity in image.entities.items_from((kind, prefix)):
                if at_kind != kind or not name.startswith(prefix):
                    break
                yield entity
