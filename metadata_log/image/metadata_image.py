"""The image: the cluster's metadata after the first N records of the log. Immutable.

    provenance  the image is the state after [0, provenance.offset)
    maps        every entity as its canonical record, in sharded maps; partitions in chunks inside their topic
    digest      the sum of all canonical records' hashes (see `digest`)

Keeping an image costs one reference, because a new image shares every unchanged shard and chunk with the old one.
Example:
  1. the image at 100 is committed; the controller creates topic A at 100..102 and has a second image, at 103, that is
     only proposed;
  2. a snapshot writer writes the image at 100 meanwhile;
  3. the controller loses leadership and drops its reference to the image at 103. Nothing has to be undone.

Invariants, recomputed by `check_invariants`: digest and counts agree with `canonical_records`; names and live topic ids
are one to one; every topic has partitions 0..n-1 with the leader in the ISR (or no leader) and the ISR within the
replicas; the index from broker to topics counts exactly the replicas; configs and labels of topics belong to live
topics, modes and labels of brokers to registered brokers; request ids and slots are one to one; the laws of entities
(`entity_index`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, cast

from metadata_log.format.entity_names import EntityName
from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch, Uuid
from metadata_log.format.partition_runs import PartitionRun
from metadata_log.format.records import (
    METADATA_VERSION,
    METADATA_VERSION_MIN,
    TOPIC_RESOURCE,
    WHOLE_RESOURCE,
    AccessControlEntry,
    BrokerMode,
    ClientQuota,
    ClientSession,
    Config,
    ConfigDefinition,
    DelegationToken,
    Entity,
    EntityKind,
    EpochFloor,
    FeatureLevel,
    MetadataRecord,
    Owner,
    Partition,
    ProducerIds,
    QuotaEntity,
    RegisterBroker,
    RegisterController,
    RequestOutcome,
    UserScramCredential,
)
from metadata_log.image.canonical_order import by_quota
from metadata_log.image.digest import MODULUS, digest_to_bytes, record_hash
from metadata_log.image.entity_index import KindUsage, by_owner, check_entities
from metadata_log.image.ordered_map import OrderedMap
from metadata_log.image.settings.resource_labels import NO_LABELS, ResourceLabels
from metadata_log.image.sharded_map import ShardedMap
from metadata_log.image.topic_image import TopicImage, check_topic

ConfigResource: TypeAlias = tuple[int, str]
"""Resource type and resource name."""
QuotaKey: TypeAlias = tuple[tuple[QuotaEntity, ...], str]
ScramKey: TypeAlias = tuple[str, int]
"""User and mechanism."""

_NO_CONFIG: Final[Mapping[str, str]] = MappingProxyType({})


class Provenance(NamedTuple):
    """The log prefix from which an image was made. `offset` is exclusive; epoch and time are those of the last batch
    below.
    """

    offset: Offset
    epoch: Epoch
    timestamp_ms: int

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.offset, self.epoch)


NOWHERE: Final = Provenance(0, 0, 0)
"""The provenance before the first record."""


@dataclass(frozen=True, eq=False, repr=False)
class MetadataImage:
    """All metadata at one offset. Compared by provenance and digest; made by `MetadataDelta.finish`."""

    provenance: Provenance = NOWHERE
    digest: int = 0
    """A number in [0, 2**256)."""
    record_count: int = 0
    """How many canonical records the image has."""
    partition_count: int = 0
    brokers: ShardedMap[NodeId, RegisterBroker] = field(default_factory=ShardedMap)
    """Registrations, each with its broker epoch filled in."""
    controllers: ShardedMap[NodeId, RegisterController] = field(default_factory=ShardedMap)
    topics_by_id: ShardedMap[Uuid, TopicImage] = field(default_factory=ShardedMap)
    topic_ids: ShardedMap[str, Uuid] = field(default_factory=ShardedMap)
    """Name -> id."""
    configs: ShardedMap[ConfigResource, dict[str, str]] = field(default_factory=ShardedMap)
    """Resources with at least one key. Read-only: use `config`."""
    features: ShardedMap[str, int] = field(default_factory=ShardedMap)
    quotas: ShardedMap[QuotaKey, ClientQuota] = field(default_factory=partial(ShardedMap, by_quota))
    producer_ids: ProducerIds | None = None
    acls: ShardedMap[Uuid, AccessControlEntry] = field(default_factory=ShardedMap)
    scram_credentials: ShardedMap[ScramKey, UserScramCredential] = field(default_factory=ShardedMap)
    delegation_tokens: ShardedMap[str, DelegationToken] = field(default_factory=ShardedMap)
    request_outcomes: ShardedMap[int, RequestOutcome] = field(default_factory=ShardedMap)
    """Outcomes by slot, each with its offset filled in."""
    request_slots: ShardedMap[Uuid, int] = field(default_factory=ShardedMap)
    """Request id -> slot."""
    newest_request: RequestOutcome | None = None
    """The outcome with the highest offset."""
    broker_modes: ShardedMap[NodeId, BrokerMode] = field(default_factory=ShardedMap)
    """The modes that operators have set, each of a registered broker."""
    epoch_floor: EpochFloor | None = None
    """The last raise of all epochs; None: the cluster was never recovered without a majority, or by an older release."""
    entity_kinds: ShardedMap[str, EntityKind] = field(default_factory=ShardedMap)
    """The declared kinds."""
    client_sessions: ShardedMap[Uuid, ClientSession] = field(default_factory=ShardedMap)
    """The open sessions of clients, each with its epoch filled in. A broker's session is its registration."""
    entities: OrderedMap[EntityName, Entity] = field(default_factory=OrderedMap)
    """By kind and name, each with the offsets of its creation and of its last write filled in."""
    kind_usage: ShardedMap[str, KindUsage] = field(default_factory=ShardedMap)
    """Kind -> how many entities it has, and how large they are. Only kinds with entities."""
    owned: ShardedMap[Owner, frozenset[EntityName]] = field(default_factory=partial(ShardedMap, by_owner))
    """Owner -> the ephemeral entities of this session. Only owners with entities."""
    config_definitions: ShardedMap[ConfigResource, ConfigDefinition] = field(default_factory=ShardedMap)
    """The definitions of config keys, by resource type and name."""
    labels: ShardedMap[ConfigResource, ResourceLabels] = field(default_factory=ShardedMap)
    """Topics and brokers with at least one label, of a topic also with labels of partitions. Use `labels_of` for one."""
    label_count: int = 0
    entity_bytes: int = 0
    """The size of all names and values of entities, in bytes."""

    @property
    def offset(self) -> Offset:
        """The end of the log prefix: the image is the state after [0, offset)."""
        return self.provenance.offset

    @property
    def digest_bytes(self) -> bytes:
        """The digest as it is sent: 32 bytes, big-endian."""
        return digest_to_bytes(self.digest)

    @property
    def metadata_version(self) -> int:
        """The level of `metadata.version`: no record above this level may follow. A log without the record is at level 1."""
        level: int = self.features.get(METADATA_VERSION, METADATA_VERSION_MIN)
        return level

    # --- topics and partitions ---

    @property
    def topic_count(self) -> int:
        return len(self.topics_by_id)

    def topic(self, name: str) -> TopicImage | None:
        """Return the live topic of this name."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics_by_id[topic_id]

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        """Return the live topic with this id."""
        found: TopicImage | None = self.topics_by_id.get(topic_id)
        return found

    def topics(self) -> Iterator[TopicImage]:
        """Return all topics, by name. Images with the same names share the sorted names."""
        by_id = self.topics_by_id
        for name in self.topic_ids.sorted_keys():
            yield by_id[self.topic_ids[name]]

    def partition(self, topic_id: Uuid, partition: int) -> Partition | None:
        """Return the canonical record of one partition; None if the topic or the number does not exist."""
        topic: TopicImage | None = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.partition(partition)

    def topics_of_broker(self, broker_id: NodeId) -> tuple[Uuid, ...]:
        """Return the ids, ascending, of the topics with a replica on the broker, whether the broker is registered or
        not.

        O(topics): for tools and laws. A controller searches slice by slice (`quorum.controller.partitions.walks`).
        `TopicImage.partitions_on` returns the partitions.
        """
        found = [topic.topic_id for topic in self.topics_by_id.unordered_values() if topic.has_replica_on(broker_id)]
        found.sort()
        return tuple(found)

    # --- configs ---

    def config(self, resource_type: int, resource_name: str) -> Mapping[str, str]:
        """Return the configs that were set on the resource itself; empty if none were set."""
        found: dict[str, str] | None = self.configs.get((resource_type, resource_name))
        return _NO_CONFIG if found is None else MappingProxyType(found)

    def config_resources(self) -> Iterator[ConfigResource]:
        """Return the resources that have configs, by type and name."""
        return iter(self.configs)

    @property
    def first_epoch(self) -> int:
        """The leader epoch and the partition epoch of a new partition."""
        return 0 if self.epoch_floor is None else self.epoch_floor.floor

    def labels_of(self, resource_type: int, name: str, partition: int = WHOLE_RESOURCE) -> Mapping[str, str]:
        """Return the labels of a topic, of one of its partitions, or of a broker."""
        found: ResourceLabels | None = self.labels.get((resource_type, name))
        return NO_LABELS if found is None else found.get(partition)

    # --- requests ---

    def request_outcome(self, request_id: Uuid) -> RequestOutcome | None:
        """Return the outcome of the request with this id, if it is still remembered."""
        slot = self.request_slots.get(request_id)
        return None if slot is None else self.request_outcomes[slot]

    @property
    def request_horizon(self) -> Offset:
        """The offset from which on every outcome is remembered."""
        return 0 if self.newest_request is None else self.newest_request.horizon

    # --- entities ---

    def entity(self, kind: str, name: str) -> Entity | None:
        """Return the entity with this kind and name."""
        found: Entity | None = self.entities.get((kind, name))
        return found

    # --- all of it ---

    def canonical_records(self) -> Iterator[MetadataRecord]:
        """Return every canonical record in canonical order."""
        return cast(Iterator[MetadataRecord], self._canonical(TopicImage.partitions))

    def canonical_pieces(self) -> Iterator[MetadataRecord | PartitionRun]:
        """Return every canonical record in canonical order, with partitions in runs: what a snapshot is made of."""
        return self._canonical(TopicImage.runs)

    def _canonical(
        self, partitions: Callable[[TopicImage], Iterator[Partition | PartitionRun]]
    ) -> Iterator[MetadataRecord | PartitionRun]:
        for feature, level in self.features.items():
            yield FeatureLevel(feature, level)
        yield from self.controllers.values()
        yield from self.brokers.values()
        for topic in self.topics():
            yield topic.record
            yield from partitions(topic)
        for (resource_type, resource_name), config in self.configs.items():
            for key in sorted(config):
                yield Config(resource_type, resource_name, key, config[key])
        yield from self.quotas.values()
        if self.producer_ids is not None:
            yield self.producer_ids
        yield from self.acls.values()
        yield from self.scram_credentials.values()
        yield from self.delegation_tokens.values()
        yield from self.request_outcomes.values()
        yield from self.broker_modes.values()
        if self.epoch_floor is not None:
            yield self.epoch_floor
        yield from self.entity_kinds.values()
        yield from self.client_sessions.values()
        yield from self.entities.values()
        yield from self.config_definitions.values()
        for resource, labels in self.labels.items():
            yield from labels.records(*resource)

    def check_invariants(self) -> None:
        """Recompute everything that is kept incrementally, and assert that it agrees. O(image)."""
        digest = count = 0
        for record in self.canonical_records():
            digest += record_hash(record)
            count += 1
        assert digest % MODULUS == self.digest, (self, "digest")
        assert count == self.record_count, (self, count)
        assert len(self.topic_ids) == len(self.topics_by_id), self
        partition_count = 0
        for topic in self.topics():
            assert self.topic_ids[topic.name] == topic.topic_id, topic
            check_topic(topic)
            partition_count += topic.partition_count
        assert partition_count == self.partition_count, (self, partition_count)
        for broker_id, registration in self.brokers.items():
            assert broker_id == registration.broker_id, registration
            assert registration.broker_epoch >= 0, registration
        assert all(broker_id in self.brokers for broker_id in self.broker_modes), self
        for (resource_type, name), config in self.configs.items():
            assert config, (resource_type, name)
            assert resource_type != TOPIC_RESOURCE or name in self.topic_ids, name
        for (resource_type, name), labels in self.labels.items():
            labels.check(resource_type, name)
            assert resource_type != TOPIC_RESOURCE or name in self.topic_ids, name
            assert resource_type == TOPIC_RESOURCE or int(name) in self.brokers, name
        assert self.label_count == sum(labels.label_count for labels in self.labels.values()), self
        outcomes = [*self.request_outcomes.values()]
        assert len(self.request_slots) == len(outcomes), self
        assert all(self.request_outcome(outcome.request_id) is outcome for outcome in outcomes), self
        assert self.newest_request == max(outcomes, key=lambda outcome: outcome.offset, default=None), self
        check_entities(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetadataImage):
            return NotImplemented
        return self.digest == other.digest and self.provenance == other.provenance

    def __hash__(self) -> int:
        return hash((self.provenance, self.digest))

    def __repr__(self) -> str:
        return (
            f"MetadataImage({self.provenance.end}, {self.topic_count} topics, {self.partition_count} partitions, "
            f"{len(self.brokers)} brokers, digest {self.digest_bytes[:4].hex()})"
        )


def evolved(image: MetadataImage, changes: dict[str, Any]) -> MetadataImage:
    """Do the same as `dataclasses.replace`, which is too slow for every commit."""
    new = object.__new__(MetadataImage)
    new.__dict__.update(image.__dict__)
    new.__dict__.update(changes)
    return new


EMPTY_IMAGE: Final = MetadataImage()
"""The image before the first record."""
