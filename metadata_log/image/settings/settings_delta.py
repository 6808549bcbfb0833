"""The effects of the records of configs and of definitions of config keys on an image.

A resource (a topic, a broker, or all brokers) has its configs in one dictionary, which a delta copies once. A definition is one
record of the image. Replay does not compare values with definitions: the controller that wrote a value has done so, with the
definitions of that time. Example:
  1. at 10, an embedder defines acme.shard.count as an int from 1 to 64; at 11, topic orders gets 32;
  2. an embedder wants to lower the maximum to 16: the controller refuses, and names orders;
  3. at 12, orders gets 8; at 13, the definition has the maximum 16. No replay needs to compare the two.
"""

from metadata_log.format.config_definitions import definition_problem
from metadata_log.format.ids import Offset
from metadata_log.format.records import TOPIC_RESOURCE, Config, ConfigDefinition, RemoveConfigDefinition
from metadata_log.image.broker_delta import BrokerDelta
from metadata_log.image.image_editor import DeltaKind, Edits, Misfit
from metadata_log.image.metadata_image import ConfigResource


class SettingsDelta(BrokerDelta):
    """Changes to the configs of one image, and to the definitions of their keys."""

    _config_definitions: Edits[ConfigResource, ConfigDefinition] = Edits("config_definitions")

    def _config(self, record: Config, offset: Offset) -> None:
        resource = (record.resource_type, record.resource_name)
        is_alone = self._kind is DeltaKind.FOLDING or record.resource_type != TOPIC_RESOURCE
        if not is_alone and record.resource_name not in self._topic_ids:
            raise Misfit(f"a config of topic {record.resource_name!r}, which does not exist")
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
