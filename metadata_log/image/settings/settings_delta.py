"""The effects of the records of configs, of definitions of config keys, and of labels on an image.

A resource (a topic, a broker, or all brokers) has its configs in one dictionary, which a delta copies once. A definition is one
record of the image. Replay does not compare values with definitions: the controller that wrote a value has done so, with the
definitions of that time. Example:
  1. at 10, an embedder defines acme.shard.count as an int from 1 to 64; at 11, topic orders gets 32;
  2. an embedder wants to lower the maximum to 16: the controller refuses, and names orders;
  3. at 12, orders gets 8; at 13, the definition has the maximum 16. No replay needs to compare the two.
"""

from collections.abc import Mapping
from typing import Final

from metadata_log.format.config_definitions import definition_problem
from metadata_log.format.ids import Offset
from metadata_log.format.labels import LABELS_MAX, label_problem
from metadata_log.format.records import (
    TOPIC_RESOURCE,
    WHOLE_RESOURCE,
    Config,
    ConfigDefinition,
    Label,
    RemoveConfigDefinition,
)
from metadata_log.image.broker_delta import BrokerDelta
from metadata_log.image.digest import MODULUS, record_hash
from metadata_log.image.image_editor import DeltaKind, Edits, Law, Misfit
from metadata_log.image.metadata_image import ConfigResource, MetadataImage
from metadata_log.image.settings.resource_labels import ResourceLabels

_DIGITS_MAX: Final = 10
"""Maximum length of the id of a broker as text."""


class SettingsDelta(BrokerDelta):
    """Changes to the configs of one image, to the definitions of their keys, and to labels."""

    def __init__(self, image: MetadataImage, *, kind: DeltaKind = DeltaKind.STRICT) -> None:
        super().__init__(image, kind=kind)
        self._owned_labels: dict[ConfigResource, dict[int, Mapping[str, str]]] = {}
        """The mappings that this delta has made and may change."""

    _config_definitions: Edits[ConfigResource, ConfigDefinition] = Edits("config_definitions")

    def _config(self, record: Config, offset: Offset) -> None:
        resource = (record.resource_type, record.resource_name)
        is_alone = self._kind is DeltaKind.FOLDING or record.resource_type != TOPIC_RESOURCE
        if not is_alone and record.resource_name not in self._topic_ids:
            raise Misfit(f"a config of topic {record.resource_name!r}, which does not exist", Law.NOTHING)
        if self._kind is DeltaKind.LOADING and record.value is None:
            raise Misfit("a config without a value")
        self.changed.config_resources.add(resource)
        config = self._configs.get(resource)
        old = None if config is None else config.get(record.key)
        if old is None and record.value is None:
            return
        if config is None or resource not in self._owned_configs:
            config = {} if config is None else dict(config)
            self._owned_configs.add(resource)
            self._configs[resource] = config
        self._exchange(
            None if old is None else Config(*resource, record.key, old), record if record.value is not None else None
        )
        if record.value is not None:
            config[record.key] = record.value
            return
        del config[record.key]
        if not config:
            del self._configs[resource]

    def _config_definition(self, record: ConfigDefinition, offset: Offset) -> None:
        problem = definition_problem(record)
        if problem is not None:
            raise Misfit(f"a definition of config {record.name[:60]!r}: {problem}")
        key = (record.resource_type, record.name)
        self._put(self._config_definitions, key, record)
        self.changed.config_definitions.add(key)

    def _remove_config_definition(self, record: RemoveConfigDefinition, offset: Offset) -> None:
        key = (record.resource_type, record.name)
        self._drop(self._config_definitions, key, f"definition of config {record.name[:60]!r}")
        self.changed.config_definitions.add(key)

    # --- labels ---

    def _label(self, record: Label, offset: Offset) -> None:
        missing = self._missing(record)
        problem = label_problem(record) or missing
        if problem is None and record.value is None and self._kind is DeltaKind.LOADING:
            problem = "a label without a value"
        if problem is not None:
            raise Misfit(f"a label: {problem}", Law.NOTHING if problem is missing else Law.RECORD)
        resource = (record.resource_type, record.resource_name)
        self.changed.labels.add(resource)
        known = self._labels.get(resource) or ResourceLabels()
        labels = dict(known.get(record.partition))
        old = labels.pop(record.key, None)
        count, digest = known.label_count, known.digest
        if old is not None:
            count, digest = count - 1, digest - record_hash(record._replace(value=old))
        if record.value is not None:
            labels[record.key] = record.value
            count, digest = count + 1, digest + record_hash(record)
        if len(labels) > LABELS_MAX:
            raise Misfit(f"{len(labels)} labels of {record.resource_name!r:.80}: at most {LABELS_MAX} are possible")
        self._digest += digest - known.digest
        self._record_count += count - known.label_count
        self._label_count += count - known.label_count
        self._set_labels(resource, record.partition, labels, known._replace(label_count=count, digest=digest % MODULUS))

    def _set_labels(
        self, resource: ConfigResource, partition: int, labels: dict[str, str], new: ResourceLabels
    ) -> None:
        if not new.label_count:
            if resource in self._labels:
                del self._labels[resource]
            return
        owned = self._owned_labels.get(resource)
        if owned is None or new.of is not owned:
            owned = self._owned_labels[resource] = dict(new.of)
        if labels:
            owned[partition] = labels
        else:
            owned.pop(partition, None)
        self._labels[resource] = new._replace(of=owned)

    def _missing(self, record: Label) -> str | None:
        """Say which topic, partition or broker of a label does not exist; None if all is there, or nothing can be said."""
        if self._kind is DeltaKind.FOLDING:
            return None
        name = record.resource_name
        if record.resource_type != TOPIC_RESOURCE:
            is_there = (
                name.isdecimal() and len(name) <= _DIGITS_MAX and str(int(name)) == name and int(name) in self._brokers
            )
            return None if is_there else f"broker {name!r:.80} is not registered"
        topic_id = self._topic_ids.get(name)
        topic = None if topic_id is None else self._open.get(topic_id) or self._topics.get(topic_id)
        if topic is None:
            return f"there is no topic {name!r:.80}"
        if record.partition != WHOLE_RESOURCE and record.partition >= topic.partition_count:
            return f"topic {name!r:.80} has no partition {record.partition}"
        return None
