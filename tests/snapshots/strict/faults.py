"""Faults of a leader with a bug, each with the rule that it breaks. All checksums and chains are right.

    a healthy beginning | the fault: healthy records, the wrong record, healthy records | a healthy end

The snapshot at the end has the state without the wrong record if the record does not fit.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from metadata_log.format.ids import Offset
from metadata_log.format.records import (
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    TOPIC_RESOURCE,
    AbortTransaction,
    BeginTransaction,
    BrokerRegistrationChange,
    ClientSession,
    Config,
    EndClientSession,
    EndTransaction,
    Entity,
    EpochFloor,
    FeatureLevel,
    Label,
    MetadataRecord,
    Owner,
    Partition,
    PartitionChange,
    ProducerIds,
    Record,
    RemoveEntity,
    RemoveTopic,
    RequestOutcome,
    SkippedBatch,
    Topic,
    UnregisterBroker,
    Voters,
)
from metadata_log.image.delta import MetadataDelta
from tests.metadata_log.image.histories import broker, uuid
from tests.snapshots.nodes import VOTERS, Node

ORDERS, USERS, OLD, SESSION = uuid(11), uuid(12), uuid(13), b"s" * 16
NOBODY = Owner(b"nobody".ljust(16), None, 3)


class Small(Node):
    """A small cluster: three brokers that serve, two topics, and one of nearly everything else."""

    def beginning(self) -> "Small":
        self.elect(1)
        self.apply(FeatureLevel(METADATA_VERSION, METADATA_VERSION_MAX))
        for broker_id in (1, 2, 3):
            self.apply(broker(broker_id, incarnation=broker_id))
            self.apply(BrokerRegistrationChange(broker_id, self.epoch_of(broker_id), fenced=False))
        for topic_id, name, leader in ((ORDERS, "orders", 1), (USERS, "users", 2), (OLD, "old", 3)):
            replicas = (leader, leader % 3 + 1)
            parts = [Partition(topic_id, n, replicas, replicas, (), (), leader, 0, 0, 0) for n in range(2)]
            self.apply(Topic(name, topic_id), *parts, Config(TOPIC_RESOURCE, name, "retention.ms", "1"))
        self.apply(RemoveTopic("old", OLD), ProducerIds(1, 1, 5_000), outcome(1))
        self.apply(ClientSession(SESSION, "worker", "anonymous", 9_000))
        self.apply(Entity("lock", "a", b"", self.owner_of()), Entity("shard", "b", b"value", None))
        return self

    def end(self) -> "Small":
        self.apply(PartitionChange(ORDERS, 0, isr=(1,)), PartitionChange(ORDERS, 0, isr=(1, 2)))
        self.elect(2)
        self.apply(Config(TOPIC_RESOURCE, "users", "retention.ms", "2"), outcome(2))
        self.mark()
        self.apply(PartitionChange(USERS, 1, leader=3))
        self.journal.flush()
        return self

    def apply(self, *records: MetadataRecord) -> Offset:
        """Append records that fit, as one batch; return the offset of the first."""
        base = self.journal.shape.end
        delta = MetadataDelta(self.image)
        for offset, record in enumerate(records, base):
            delta.replay(record, offset)
        self.image = delta.finish(self.image.provenance)
        self.log_records(*records)
        return base

    def wrong(self, *records: Record, at: int = 0) -> Offset:
        """Append records without an effect on the image, as one batch; return the offset of one of them."""
        base = self.journal.shape.end
        self.log_records(*records)
        return base + at

    def epoch_of(self, broker_id: int) -> int:
        return self.image.brokers[broker_id].broker_epoch

    def owner_of(self) -> Owner:
        return Owner(SESSION, None, self.image.client_sessions[SESSION].epoch)

    def fence(self, broker_id: int, fenced: bool) -> MetadataRecord:
        return BrokerRegistrationChange(broker_id, self.epoch_of(broker_id), fenced=fenced)


def outcome(number: int, *, slot: int | None = None) -> RequestOutcome:
    return RequestOutcome(number if slot is None else slot, uuid(70 + number), bytes(32), "anonymous", 0, None)


class Fault(NamedTuple):
    """A fault: `plant` returns the offset of the wrong record."""

    name: str
    rule: str
    plant: Callable[[Small], Offset]


def _between(before: MetadataRecord, wrong: Record, after: MetadataRecord) -> Callable[[Small], Offset]:
    def plant(node: Small) -> Offset:
        node.apply(before)
        offset = node.wrong(wrong)
        node.apply(after)
        return offset

    return plant


def _bracketed(*records: Record, at: int) -> Callable[[Small], Offset]:
    return lambda node: node.wrong(*records, at=at)


def _with_one_more(node: Small) -> Offset:
    """A second partition of a batch is wrong, and the records around it are right."""
    right = PartitionChange(USERS, 0, isr=(2,)), PartitionChange(USERS, 0, isr=(2, 3))
    base = node.journal.shape.end
    delta = MetadataDelta(node.image)
    delta.replay(right[0], base)
    delta.replay(right[1], base + 2)
    node.image = delta.finish(node.image.provenance)
    node.log_records(right[0], PartitionChange(ORDERS, 1, leader=3), right[1])
    return base + 1


def _chosen_while_fenced(node: Small) -> Offset:
    node.apply(PartitionChange(USERS, 0, isr=(2,)), PartitionChange(USERS, 1, isr=(2,)), node.fence(3, True))
    offset = node.apply(PartitionChange(USERS, 0, isr=(2, 3), leader=3))
    node.apply(PartitionChange(USERS, 0, leader=2), node.fence(3, False), PartitionChange(USERS, 1, isr=(2, 3)))
    return offset


def _fenced_while_leading(node: Small) -> Offset:
    moved = PartitionChange(ORDERS, 1, leader=2)
    offset = node.apply(moved, PartitionChange(ORDERS, 0, isr=(1,)), node.fence(1, True)) + 2
    node.apply(PartitionChange(ORDERS, 0, isr=(1, 2)), node.fence(1, False))
    return offset


def _older_incarnation(node: Small) -> Offset:
    """Broker 3 has a new process, and the old process registers again with its own epoch."""
    old = node.epoch_of(3)
    moved = [PartitionChange(USERS, number, isr=(2,)) for number in range(2)]
    node.apply(*moved, broker(3, incarnation=8))
    offset = node.wrong(broker(3, incarnation=3, broker_epoch=old))
    node.apply(node.fence(3, False), *(PartitionChange(USERS, number, isr=(2, 3)) for number in range(2)))
    return offset


def _in_a_transaction(node: Small) -> Offset:
    before = node.image
    node.wrong(BeginTransaction("t"))
    offset = node.wrong(Config(TOPIC_RESOURCE, "nowhere", "retention.ms", "1"))
    node.wrong(AbortTransaction("changed my mind"))
    assert node.image.digest == before.digest
    return offset


def _other_voters(node: Small) -> Offset:
    moved = [each._replace(node_id=each.node_id + 3) for each in VOTERS.voters]
    offset = node.wrong(Voters((VOTERS.voters[0], *moved[:2])))
    node.wrong(Voters((VOTERS.voters[0], moved[0])))
    return offset


FAULTS: Final = (
    Fault("unknown type", "unknown-record", lambda node: node.log_raw([50, 0, b"x"])),
    Fault("unknown version", "unknown-record", lambda node: node.log_raw([2, 7, "a", b"x" * 16])),
    Fault("wrong field", "record-malformed", lambda node: node.log_raw([2, 0, 5])),
    Fault("control record among data", "record-malformed", lambda node: node.log_raw([69, 0, "why"])),
    Fault("end without begin", "transaction-markers", _bracketed(EndTransaction(), at=0)),
    Fault("abort without begin", "transaction-markers", _bracketed(AbortTransaction("why"), at=0)),
    Fault(
        "begin in begin", "transaction-markers",
        _bracketed(BeginTransaction("a"), BeginTransaction("b"), EndTransaction(), at=1),
    ),
    Fault(
        "entity below level 3", "level-not-allowed",
        _between(FeatureLevel(METADATA_VERSION, 2), Entity("a", "b", b"", None), FeatureLevel(METADATA_VERSION, 3)),
    ),
    Fault(
        "transaction below level 2", "level-not-allowed",
        _between(FeatureLevel(METADATA_VERSION, 1), BeginTransaction("a"), FeatureLevel(METADATA_VERSION, 3)),
    ),
    Fault("two topics of one name", "topic-name-twice", lambda node: node.wrong(Topic("orders", uuid(99)))),
    Fault("two topics of one id", "topic-id-reused", lambda node: node.wrong(Topic("more-orders", ORDERS))),
    Fault("id of a removed topic", "topic-id-reused", lambda node: node.apply(Topic("again", OLD))),
    Fault(
        "config of nothing", "reference-to-nothing",
        lambda node: node.wrong(Config(TOPIC_RESOURCE, "nowhere", "retention.ms", "1")),
    ),
    Fault("change of nothing", "reference-to-nothing", lambda node: node.wrong(PartitionChange(ORDERS, 7, isr=(1,)))),
    Fault("change of no topic", "reference-to-nothing", lambda node: node.wrong(PartitionChange(uuid(99), 0, isr=(1,)))),
    Fault("removal of nothing", "reference-to-nothing", lambda node: node.wrong(RemoveTopic("nowhere", uuid(99)))),
    Fault("removed under another id", "reference-to-nothing", lambda node: node.wrong(RemoveTopic("orders", USERS))),
    Fault(
        "partition of nothing", "reference-to-nothing",
        lambda node: node.wrong(Partition(uuid(99), 0, (1, 2), (1, 2), (), (), 1, 0, 0, 0)),
    ),
    Fault("removed entity", "reference-to-nothing", lambda node: node.wrong(RemoveEntity("lock", "none"))),
    Fault(
        "label of nothing", "reference-to-nothing", lambda node: node.wrong(Label(TOPIC_RESOURCE, "orders", 9, "k", "v"))
    ),
    Fault("unknown broker changed", "reference-to-nothing", lambda node: node.wrong(UnregisterBroker(9, 3))),
    Fault("leader outside the ISR", "partition-unsound", _with_one_more),
    Fault("ISR outside the replicas", "partition-unsound", lambda node: node.wrong(PartitionChange(USERS, 1, isr=(2, 1)))),
    Fault("fenced broker chosen", "leader-fenced", _chosen_while_fenced),
    Fault("leader fenced", "leader-fenced", _fenced_while_leading),
    Fault(
        "replica on nobody", "unknown-broker", lambda node: node.wrong(PartitionChange(ORDERS, 1, replicas=(1, 2, 9)))
    ),
    Fault(
        "broker epoch reused", "broker-epoch-reused",
        lambda node: node.wrong(broker(2, incarnation=8, broker_epoch=node.epoch_of(2))),
    ),
    Fault("two incarnations", "broker-epoch-reused", _older_incarnation),
    Fault(
        "stale broker epoch", "broker-epoch-stale",
        lambda node: node.wrong(BrokerRegistrationChange(2, node.epoch_of(2) - 1, in_controlled_shutdown=True)),
    ),
    Fault(
        "dead and not fenced", "dead-broker-serves",
        lambda node: node.wrong(BrokerRegistrationChange(2, node.epoch_of(2), dead=True)),
    ),
    Fault("request done twice", "request-done-twice", lambda node: node.wrong(outcome(1, slot=4))),
    Fault("entity created twice", "entity-conflict", lambda node: node.wrong(Entity("shard", "b", b"other", None))),
    Fault(
        "entity of another creation", "entity-conflict", lambda node: node.wrong(Entity("shard", "b", b"other", None, 3))
    ),
    Fault("owner without session", "owner-not-open", lambda node: node.wrong(Entity("lock", "z", b"", NOBODY))),
    Fault(
        "session ends and owns", "orphaned-entity",
        lambda node: node.wrong(EndClientSession(SESSION, node.owner_of().epoch, "expired")),
    ),
    Fault(
        "session opened twice", "session-conflict",
        lambda node: node.wrong(ClientSession(SESSION, "worker", "anonymous", 9_000)),
    ),
    Fault("producer ids go back", "number-went-back", lambda node: node.wrong(ProducerIds(1, 1, 4_000))),
    Fault(
        "floor of epochs goes back", "number-went-back",
        _between(EpochFloor(2, 1_000), EpochFloor(3, 900), EpochFloor(3, 2_000)),
    ),
    Fault(
        "epochs of a partition go back", "record-misfit",
        _between(
            PartitionChange(ORDERS, 0, isr=(1,)), Partition(ORDERS, 0, (1, 2), (1, 2), (), (), 1, 0, 0, 0),
            PartitionChange(ORDERS, 0, isr=(1, 2)),
        ),
    ),
    Fault(
        "partition left out", "record-misfit",
        lambda node: node.wrong(Partition(ORDERS, 3, (1, 2), (1, 2), (), (), 1, 0, 0, 0)),
    ),
    Fault("in an aborted transaction", "reference-to-nothing", _in_a_transaction),
    Fault("voters changed by many", "voters-changed-by-many", _other_voters),
    Fault(
        "skip of another batch", "skip-of-another-batch", lambda node: node.wrong(SkippedBatch(2, 1, bytes(32), 2, 3))
    ),
)  # fmt: skip
