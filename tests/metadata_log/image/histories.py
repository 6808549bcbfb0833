"""Random histories of a cluster, valid record by record: what the laws of image, delta, replay and fold are tried on."""

import random
from collections.abc import Iterator

from metadata_log.format import batch as batches
from metadata_log.format.batch import Batch
from metadata_log.format.codec import encode_records
from metadata_log.format.ids import NO_LEADER, Uuid
from metadata_log.format.records import (
    BROKER_RESOURCE,
    FENCED_MODE,
    FROM_OFFSET,
    MAINTENANCE_MODE,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    NO_MODE,
    TOPIC_RESOURCE,
    AccessControlEntry,
    BrokerMode,
    BrokerRegistrationChange,
    ClearElr,
    ClientQuota,
    ClientSession,
    Config,
    ConfigDefinition,
    DelegationToken,
    EndClientSession,
    Endpoint,
    Entity,
    EntityKind,
    EpochFloor,
    EpochsRaised,
    FeatureLevel,
    FeatureRange,
    Label,
    MetadataRecord,
    NoOp,
    Owner,
    Partition,
    PartitionChange,
    ProducerIds,
    QuotaEntity,
    Record,
    RegisterBroker,
    RegisterController,
    RemoveAccessControlEntry,
    RemoveConfigDefinition,
    RemoveDelegationToken,
    RemoveEntity,
    RemoveEntityKind,
    RemoveTopic,
    RemoveUserScramCredential,
    RequestOutcome,
    Topic,
    UnregisterBroker,
    UserScramCredential,
)
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import EMPTY_IMAGE, NOWHERE, MetadataImage, Provenance

NAMES = ("a", "a\x00", "a\x00b", "ab", "b", "é", "topic-1", "topic-10", "topic-2")
"""Names whose order is easily got wrong: a zero inside, one the beginning of another, beyond ASCII."""


def uuid(number: int) -> Uuid:
    return number.to_bytes(16, "big")


def broker(broker_id: int, incarnation: int = 1, broker_epoch: int = FROM_OFFSET) -> RegisterBroker:
    endpoints = (Endpoint("PLAINTEXT", f"broker-{broker_id}", 9092),)
    features = (FeatureRange("metadata.version", 1, METADATA_VERSION_MAX),)
    return RegisterBroker(
        broker_id, uuid(incarnation), endpoints, features, "rack-1", True, False, (uuid(9),), broker_epoch
    )


def newest_level() -> MetadataImage:
    """The image before the first record, in which `metadata.version` has the newest level all the same."""
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(FeatureLevel(METADATA_VERSION, METADATA_VERSION_MAX), 0)
    return delta.finish(NOWHERE)


class History:
    """Makes records that fit, one after the other, and keeps the image that a delta a record makes of them."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.image: MetadataImage = EMPTY_IMAGE
        self.log: list[MetadataRecord] = []
        self.ids = 100

    def append(self, record: MetadataRecord) -> None:
        offset = len(self.log)
        delta = MetadataDelta(self.image)
        delta.replay(record, offset)
        self.log.append(record)
        self.image = delta.finish(Provenance(offset + 1, 1, 1_000))

    def run(self, steps: int) -> "History":
        self.append(FeatureLevel(METADATA_VERSION, METADATA_VERSION_MAX))
        for broker_id in range(4):
            now = self.image.brokers.get(broker_id)
            for record in () if now is None else self.end_of(Owner(None, broker_id, now.broker_epoch)):
                self.take(record)
            self.take(broker(broker_id))
        self.work(steps)
        return self

    def work(self, steps: int) -> None:
        for _ in range(steps):
            for record in self.next_records():
                self.take(record)

    def take(self, record: MetadataRecord) -> None:
        """Append a record of the dice. A subclass may append others with it, or instead."""
        self.append(record)

    def next_records(self) -> Iterator[MetadataRecord]:
        makers = (
            self.new_topic, self.more_partitions, self.partition_change, self.partition_change, self.partition_change,
            self.remove_topic, self.config, self.config, self.broker_change, self.security, self.others, self.clear_elr,
            self.raise_epochs, self.entity, self.entity, self.session,
            self.config_definition, self.label, self.label,
        )  # fmt: skip
        return self.dice.choice(makers)()

    def fresh_id(self) -> Uuid:
        self.ids += 1
        return uuid(self.ids)

    def replicas(self) -> tuple[int, ...]:
        brokers = [*self.image.brokers]
        return tuple(self.dice.sample(brokers, min(len(brokers), self.dice.randint(1, 3))))

    def partition(self, topic_id: Uuid, number: int) -> Partition:
        replicas = self.replicas()
        directories = self.dice.choice(((), tuple(uuid(r) for r in replicas)))
        return Partition(topic_id, number, replicas, replicas, (), (), replicas[0], 0, 0, 0, directories)

    def new_topic(self) -> Iterator[MetadataRecord]:
        free = [name for name in NAMES if name not in self.image.topic_ids]
        if free and self.image.brokers:
            name, topic_id = self.dice.choice(free), self.fresh_id()
            yield Topic(name, topic_id)
            yield Config(TOPIC_RESOURCE, name, "retention.ms", "1")
            for number in range(self.dice.choice((1, 3, 64, 65, 130))):
                yield self.partition(topic_id, number)

    def some_topic(self) -> Uuid | None:
        ids = [*self.image.topics_by_id]
        return self.dice.choice(ids) if ids else None

    def more_partitions(self) -> Iterator[MetadataRecord]:
        topic_id = self.some_topic()
        if topic_id is not None and self.image.brokers:
            count = self.image.topics_by_id[topic_id].partition_count
            for number in range(count, count + 3):
                yield self.partition(topic_id, number)

    def partition_change(self) -> Iterator[MetadataRecord]:
        topic_id = self.some_topic()
        if topic_id is None:
            return
        number = self.dice.randrange(self.image.topics_by_id[topic_id].partition_count)
        now = self.image.partition(topic_id, number)
        assert now is not None
        if self.dice.random() < 0.3 and self.image.brokers:
            replicas = self.replicas()
            yield PartitionChange(
                topic_id, number, isr=replicas, leader=replicas[-1], replicas=replicas, elr=(), last_known_elr=()
            )
            return
        isr = tuple(self.dice.sample(now.replicas, self.dice.randint(0, len(now.replicas))))
        out = tuple(each for each in now.replicas if each not in isr)
        yield PartitionChange(topic_id, number, isr=isr, leader=isr[0] if isr else NO_LEADER, elr=out[:1])

    def remove_topic(self) -> Iterator[MetadataRecord]:
        topic_id = self.some_topic()
        if topic_id is not None and self.dice.random() < 0.3:
            yield RemoveTopic(self.image.topics_by_id[topic_id].name, topic_id)

    def config(self) -> Iterator[MetadataRecord]:
        value = self.dice.choice((None, "1", "2"))
        names = [*self.image.topic_ids]
        key = self.dice.choice(("k", "k\x00", "retention.ms"))
        if names and self.dice.random() < 0.6:
            yield Config(TOPIC_RESOURCE, self.dice.choice(names), key, value)
        else:
            yield Config(BROKER_RESOURCE, self.dice.choice(("", "1", "10", "2")), key, value)

    def label(self) -> Iterator[MetadataRecord]:
        topic_id, brokers = self.some_topic(), [*self.image.brokers]
        key, value = self.dice.choice(("k", "k.", "k/a")), self.dice.choice((None, "", "1", "é"))
        if topic_id is not None and self.dice.random() < 0.7:
            topic = self.image.topics_by_id[topic_id]
            for _ in range(3):
                yield Label(TOPIC_RESOURCE, topic.name, self.dice.randint(-1, topic.partition_count - 1), key, value)
        elif brokers:
            yield Label(BROKER_RESOURCE, str(self.dice.choice(brokers)), -1, key, value)

    def config_definition(self) -> Iterator[MetadataRecord]:
        key = self.dice.choice((TOPIC_RESOURCE, BROKER_RESOURCE)), self.dice.choice(("a", "a.", "a-b", "a.b", "b"))
        if key in self.image.config_definitions and self.dice.random() < 0.4:
            yield RemoveConfigDefinition(*key)
        else:
            choices = self.dice.choice(((), ("x",), ("x", "y")))
            yield ConfigDefinition(*key, key[1].endswith("."), "text", "x", None, self.dice.randrange(3), choices)

    def broker_change(self) -> Iterator[MetadataRecord]:
        broker_id = self.dice.randrange(6)
        now = self.image.brokers.get(broker_id)
        kind = self.dice.randrange(7)
        if now is not None:
            yield from self.end_of(Owner(None, broker_id, now.broker_epoch))
        if now is None or kind == 0:
            yield broker(broker_id, incarnation=self.dice.randrange(1, 4))
        elif kind == 1:
            yield BrokerMode(broker_id, NO_MODE)
            yield UnregisterBroker(broker_id, now.broker_epoch)
        elif kind == 2:
            yield now
        elif kind < 5:
            mode = self.dice.choice((NO_MODE, FENCED_MODE, MAINTENANCE_MODE))
            yield BrokerMode(broker_id, mode, self.dice.choice(("", "why", "é")), self.dice.randrange(3))
        else:
            why = ("caught_up", 1_700_000_000_000 + now.broker_epoch) if now.fenced else ("", 0)
            yield BrokerRegistrationChange(broker_id, now.broker_epoch, not now.fenced, None, None, *why)

    def end_of(self, owner: Owner) -> Iterator[MetadataRecord]:
        """The ephemeral entities of a session are removed before the session ends."""
        for kind, name in sorted(self.image.owned.get(owner, ())):
            yield RemoveEntity(kind, name)

    def session(self) -> Iterator[MetadataRecord]:
        session_id = uuid(self.dice.randrange(4))
        now: ClientSession | None = self.image.client_sessions.get(session_id)
        if now is None:
            yield ClientSession(session_id, self.dice.choice(("", "é")), "anonymous", self.dice.choice((1_000, 9_000)))
        else:
            yield from self.end_of(Owner(session_id, None, now.epoch))
            yield EndClientSession(session_id, now.epoch, self.dice.choice(("expired", "closed", "replaced")))

    def entity(self) -> Iterator[MetadataRecord]:
        kind, name = (
            self.dice.choice(("a", "a-b", "a.b", "b")),
            self.dice.choice(("a", "a/", "a/b", "ab", "é", "\U0001f600")),
        )
        now = self.image.entity(kind, name)
        if now is not None and self.dice.random() < 0.3:
            yield RemoveEntity(kind, name)
        else:
            value = self.dice.randbytes(self.dice.choice((0, 1, 300)))
            yield Entity(kind, name, value, self.owner(), FROM_OFFSET if now is None else now.created)
        if kind in self.image.entity_kinds and self.dice.random() < 0.5:
            yield RemoveEntityKind(kind)
        elif self.dice.random() < 0.3:
            yield EntityKind(kind, self.dice.choice(("", "{}")), self.dice.randrange(3), 0, 0)

    def owner(self) -> Owner | None:
        """An open session, or none."""
        clients = [Owner(each.session_id, None, each.epoch) for each in self.image.client_sessions.values()]
        brokers = [
            Owner(None, each.broker_id, each.broker_epoch) for each in self.image.brokers.values() if not each.fenced
        ]
        return self.dice.choice([None, *clients, *brokers])

    def security(self) -> Iterator[MetadataRecord]:
        entry, user, token = uuid(self.dice.randrange(4)), self.dice.choice("xyz"), self.dice.choice("pq")
        if entry in self.image.acls:
            yield RemoveAccessControlEntry(entry)
        else:
            yield AccessControlEntry(entry, 2, "a", 3, "User:x", "*", 3, 1)
        if (user, 1) in self.image.scram_credentials and self.dice.random() < 0.5:
            yield RemoveUserScramCredential(user, 1)
        else:
            yield UserScramCredential(user, 1, b"salt", b"stored", b"server", self.dice.randrange(4096, 9999))
        if token in self.image.delegation_tokens and self.dice.random() < 0.5:
            yield RemoveDelegationToken(token)
        else:
            yield DelegationToken(token, "o", "r", ("n",), 1, self.dice.randrange(9), 9)

    def others(self) -> Iterator[MetadataRecord]:
        entity = self.dice.choice(
            (
                (QuotaEntity("user", None),),
                (QuotaEntity("user", ""),),
                (QuotaEntity("client-id", "c"), QuotaEntity("user", "x")),
            )
        )
        yield ClientQuota(entity, "producer_byte_rate", self.dice.choice((None, 1.5, 2.0)))
        yield FeatureLevel(self.dice.choice(("group.version", "kraft.version")), self.dice.randrange(3))
        old = self.image.producer_ids
        yield ProducerIds(1, 1, (0 if old is None else old.next_producer_id) + 1000)
        yield RegisterController(self.dice.randrange(3), self.fresh_id(), (), ())
        yield NoOp()
        reply = self.dice.choice((None, b"", b"reply"))
        yield RequestOutcome(self.dice.randrange(5), self.fresh_id(), bytes(32), "anonymous", len(self.log) // 2, reply)

    def clear_elr(self) -> Iterator[MetadataRecord]:
        topic_id = self.some_topic()
        kind = self.dice.randrange(6)
        if kind == 0:
            yield ClearElr(None, None)
        elif topic_id is not None and kind == 1:
            yield ClearElr(None, topic_id)
        elif topic_id is not None and kind == 2:
            yield ClearElr(self.image.topics_by_id[topic_id].name, None)

    def raise_epochs(self) -> Iterator[MetadataRecord]:
        topic_id, old = self.some_topic(), self.image.epoch_floor
        yield EpochFloor(2 if old is None else old.generation + 1, self.image.first_epoch + 1_000)
        if topic_id is not None:
            count = self.image.topics_by_id[topic_id].partition_count
            first = self.dice.randrange(count)
            yield EpochsRaised(topic_id, first, self.dice.randint(1, count - first), 1_000)


class LogWriter:
    """Seals records into batches that follow each other."""

    def __init__(self) -> None:
        self.end = 0
        self.chain = batches.genesis_chain("test", b"")

    def batch(self, *records: Record, is_control: bool = False, epoch: int = 1, timestamp_ms: int = 1_000) -> Batch:
        sealed = batches.encode(
            encode_records(records), base_offset=self.end, epoch=epoch, record_count=len(records),
            first_timestamp_ms=timestamp_ms, last_timestamp_ms=timestamp_ms, is_control=is_control,
            previous_chain=self.chain,
        )  # fmt: skip
        self.end, self.chain = sealed.end_offset, sealed.chain
        return sealed
