"""The delta: what each record does, and which records are refused."""

import pytest

from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import NO_LEADER, ZERO_UUID
from metadata_log.format.records import (
    FENCED_MODE,
    FIRST_CONTROL_TYPE,
    FROM_OFFSET,
    MAINTENANCE_MODE,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    NO_MODE,
    RECORD_TYPES,
    RECOVERING,
    TOPIC_RESOURCE,
    AbortTransaction,
    AccessControlEntry,
    BeginTransaction,
    BrokerMode,
    BrokerRegistrationChange,
    ClearElr,
    ClientQuota,
    Config,
    EndTransaction,
    FeatureLevel,
    LeaderChange,
    MetadataRecord,
    Partition,
    PartitionChange,
    PartitionColumns,
    ProducerIds,
    QuotaEntity,
    RemoveAccessControlEntry,
    RemoveDelegationToken,
    RemoveTopic,
    RemoveUserScramCredential,
    Topic,
    UnregisterBroker,
)
from metadata_log.image.delta import REPLAYS, InvalidRecord, MetadataDelta
from metadata_log.image.image_editor import DeltaKind
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from tests.metadata_log.image.histories import History, broker, uuid

TOPIC = uuid(7)


def partition(number: int, *replicas: int) -> Partition:
    return Partition(TOPIC, number, replicas, replicas, (), (), replicas[0], 0, 0, 0)


def replayed(base: MetadataImage, *records: MetadataRecord, kind: DeltaKind = DeltaKind.STRICT) -> MetadataImage:
    delta = MetadataDelta(base, kind=kind)
    for offset, record in enumerate(records, base.offset):
        delta.replay(record, offset)
    image = delta.finish(Provenance(base.offset + len(records), 1, 1_000))
    image.check_invariants()
    return image


BASE = replayed(
    EMPTY_IMAGE,
    broker(0),
    broker(1),
    broker(2),
    Topic("orders", TOPIC),
    partition(0, 0, 1, 2),
    partition(1, 1, 2, 0),
    FeatureLevel(METADATA_VERSION, METADATA_VERSION_MAX),
)


def the_partition(image: MetadataImage, number: int = 0) -> Partition:
    found = image.partition(TOPIC, number)
    assert found is not None
    return found


def test_a_brokers_epoch_is_the_offset_of_its_registration() -> None:
    """M1. A new incarnation gets a new epoch; the same one amends its record and keeps it (KAFKA-16952)."""
    assert [r.broker_epoch for r in BASE.brokers.values()] == [0, 1, 2]
    again = replayed(BASE, broker(1, incarnation=2))
    assert again.brokers[1].broker_epoch == BASE.offset
    amended = replayed(BASE, broker(1, broker_epoch=1)._replace(rack="rack-9"))
    assert (amended.brokers[1].broker_epoch, amended.brokers[1].rack) == (1, "rack-9")


def test_a_registration_change_leaves_none_fields_alone() -> None:
    """None leaves a field as it is."""
    image = replayed(BASE, BrokerRegistrationChange(1, 1, fenced=False))
    assert image.brokers[1] == BASE.brokers[1]._replace(fenced=False)


def test_the_reason_of_a_state_goes_with_the_state() -> None:
    """A change of state replaces reason and time; other changes keep both, and a change without a reason leaves none behind."""
    session_ended = BrokerRegistrationChange(1, 1, fenced=True, reason="session_ended", since_ms=1_000)
    image = replayed(BASE, session_ended, BrokerRegistrationChange(1, 1, log_dirs=(uuid(30),)))
    assert (image.brokers[1].reason, image.brokers[1].since_ms) == ("session_ended", 1_000)
    image = replayed(image, BrokerRegistrationChange(1, 1, fenced=False))
    assert (image.brokers[1].reason, image.brokers[1].since_ms) == ("", 0)


def test_a_partition_change_counts_its_epochs() -> None:
    """M5: the partition epoch with every change, the leader epoch where a leader is named, the same one too."""
    image = replayed(BASE, PartitionChange(TOPIC, 0, isr=(0, 1)))
    assert (the_partition(image).partition_epoch, the_partition(image).leader_epoch) == (1, 0)
    image = replayed(image, PartitionChange(TOPIC, 0, leader=0))
    assert (the_partition(image).partition_epoch, the_partition(image).leader_epoch) == (2, 1)
    image = replayed(image, PartitionChange(TOPIC, 0, leader=NO_LEADER, isr=()), PartitionChange(TOPIC, 0, elr=(1,)))
    assert the_partition(image) == Partition(TOPIC, 0, (0, 1, 2), (), (), (), NO_LEADER, 0, 2, 4, (), (1,))
    assert the_partition(image, 1) == partition(1, 1, 2, 0)


def test_directories_move_with_their_replicas() -> None:
    """A change of replicas that names no directories keeps those that are known and has none for new ones."""
    with_directories = partition(2, 0, 1)._replace(directories=(uuid(20), uuid(21)))
    image = replayed(BASE, with_directories, PartitionChange(TOPIC, 2, replicas=(2, 1), isr=(1,), leader=1))
    assert the_partition(image, 2).directories == (ZERO_UUID, uuid(21))


def test_removing_a_topic_takes_partitions_and_configs_along() -> None:
    """And leaves what belongs to others; the name is free again, for another id."""
    image = replayed(BASE, Config(TOPIC_RESOURCE, "orders", "k", "v"), RemoveTopic("orders", TOPIC))
    assert image.topic("orders") is None
    assert (image.partition_count, image.record_count) == (0, 4)
    assert image.config(TOPIC_RESOURCE, "orders") == {}
    assert image.topics_of_broker(1) == ()
    again = replayed(image, Topic("orders", uuid(8)))
    assert again.topic("orders") is not None


def test_a_topic_made_and_removed_in_one_delta_leaves_nothing() -> None:
    """Not even in the list of what changed."""
    delta = MetadataDelta(BASE)
    records: list[MetadataRecord] = [
        Topic("t", uuid(9)),
        partition(0, 0)._replace(topic_id=uuid(9)),
        RemoveTopic("t", uuid(9)),
    ]
    for offset, record in enumerate(records, BASE.offset):
        delta.replay(record, offset)
    image = delta.finish(Provenance(BASE.offset + 3, 1, 1))
    assert image.digest == BASE.digest
    assert not delta.changed.created_topics
    assert not delta.changed.deleted_topics


def test_clear_elr_changes_only_who_has_one() -> None:
    """KIP-966: of one topic by id or name, or of all; a partition with nothing to forget keeps its epoch."""
    base = replayed(BASE, PartitionChange(TOPIC, 0, isr=(0,), elr=(1,), last_known_elr=(2,)))
    for clear in (ClearElr(None, None), ClearElr("orders", None), ClearElr(None, TOPIC), ClearElr("orders", TOPIC)):
        image = replayed(base, clear)
        assert (the_partition(image).elr, the_partition(image).last_known_elr) == ((), ())
        assert the_partition(image).partition_epoch == 2
        assert the_partition(image, 1) == the_partition(base, 1)


def test_clear_elr_does_what_it_did_in_release_0_1() -> None:
    """Replay is a function of the bytes alone: a partition without a leader loses its ELR, too, and its ISR stays empty."""
    base = replayed(BASE, PartitionChange(TOPIC, 0, isr=(), leader=NO_LEADER, elr=(0, 1), last_known_elr=(2,)))
    cleared = replayed(base, ClearElr(None, None))
    assert the_partition(cleared) == the_partition(base)._replace(elr=(), last_known_elr=(), partition_epoch=2)


def test_values_of_none_and_zero_remove() -> None:
    """Configs, quotas and features; removing what is not there is no error and no change."""
    entity = (QuotaEntity("user", None),)
    image = replayed(
        BASE, Config(4, "", "k", "v"), ClientQuota(entity, "rate", 1.0), FeatureLevel("group.version", 3)
    )  # fmt: skip
    assert image.features == {"metadata.version": METADATA_VERSION_MAX, "group.version": 3}
    assert [*image.quotas.values()] == [ClientQuota(entity, "rate", 1.0)]
    removers = (Config(4, "", "k", None), ClientQuota(entity, "rate", None), FeatureLevel("group.version", 0))
    image = replayed(image, *removers, *removers)
    assert image.digest == BASE.digest


def test_changes_name_what_differs() -> None:
    """For publishers: created and deleted topics, partitions of the others, brokers, config resources."""
    delta = MetadataDelta(replayed(BASE, Topic("old", uuid(30))))
    offset = 7
    for record in (
        PartitionChange(TOPIC, 1, leader=2),
        partition(2, 0),
        RemoveTopic("old", uuid(30)),
        Topic("new", uuid(31)),
        partition(0, 0)._replace(topic_id=uuid(31)),
        Config(TOPIC_RESOURCE, "new", "k", "v"),
        BrokerRegistrationChange(2, 2, fenced=False),
    ):
        delta.replay(record, offset)
    delta.finish(Provenance(14, 1, 1))
    changed = delta.changed
    assert changed
    assert changed.partitions == {TOPIC: {1, 2}}
    assert changed.deleted_topics == {uuid(30): "old"}
    assert changed.created_topics == {uuid(31)}
    assert changed.brokers == {2}
    assert changed.config_resources == {(TOPIC_RESOURCE, "new")}


ACL = AccessControlEntry(uuid(1), 2, "a", 3, "User:x", "*", 3, 1)

MISFITS: dict[str, MetadataRecord] = {
    "there is no topic": partition(0, 0)._replace(topic_id=uuid(99)),
    "has no partition 2": PartitionChange(TOPIC, 2, leader=0),
    "has no partition -1": PartitionChange(TOPIC, -1, leader=0),
    "not the next": partition(3, 0),
    "partition 1 of topic 'orders' is not the next": partition(1, 0),
    "broker 9 is not registered": partition(2, 9),
    "broker 8 is not registered": PartitionChange(TOPIC, 0, replicas=(0, 1, 2, 8)),
    "leader 2 is not in isr": PartitionChange(TOPIC, 0, isr=(0, 1), leader=2),
    "leader 0 is not in isr": PartitionChange(TOPIC, 0, isr=(1,)),
    "isr (0, 3) is not a subset": PartitionChange(TOPIC, 0, isr=(0, 3)),
    "isr (0, 0) is not a subset": PartitionChange(TOPIC, 0, isr=(0, 0)),
    "elr (1,)": PartitionChange(TOPIC, 0, elr=(1,)),
    "replicas ()": PartitionChange(TOPIC, 0, replicas=(), isr=(), leader=NO_LEADER),
    "replicas (0, 0)": partition(2, 0, 0),
    "removing (5,)": PartitionChange(TOPIC, 0, removing_replicas=(5,)),
    "adding (5,)": PartitionChange(TOPIC, 0, adding_replicas=(5,)),
    "1 directories for 3 replicas": PartitionChange(TOPIC, 0, directories=(uuid(1),)),
    "leader recovery state 2": PartitionChange(TOPIC, 0, leader_recovery_state=RECOVERING + 1),
    "neither may be negative": partition(2, 0)._replace(leader_epoch=-1),
    "topic 'orders' exists": Topic("orders", uuid(9)),
    "is taken": Topic("other", TOPIC),
    "topic ''": Topic("", uuid(9)),
    "topic 'zero'": Topic("zero", ZERO_UUID),
    "no topic 'orders' with id": RemoveTopic("orders", uuid(9)),
    "no topic 'other' with id": RemoveTopic("other", TOPIC),
    "broker 1 has epoch 1, not 2": BrokerRegistrationChange(1, 2, fenced=False),
    "broker 1 with the reason": BrokerRegistrationChange(1, 1, fenced=True, reason="x" * 65),
    "broker 3 with the reason": broker(3)._replace(since_ms=-1),
    "broker 2 with the reason": BrokerRegistrationChange(2, 2, fenced=True, since_ms=1 << 60),
    "broker 7 is not registered": BrokerRegistrationChange(7, 2, fenced=False),
    "broker 2 has epoch 2, not 0": UnregisterBroker(2, 0),
    "broker 1 registers with epoch 1": broker(1, incarnation=2, broker_epoch=1),
    "broker 5 registers with epoch 1": broker(5, broker_epoch=1),
    "broker id -4": broker(-4),
    "mode 3 of broker 1": BrokerMode(1, 3),
    "mode -1 of broker 1": BrokerMode(1, -1),
    "mode 1 of broker 1": BrokerMode(1, FENCED_MODE, "x" * 201),
    "mode 2 of broker 1": BrokerMode(1, MAINTENANCE_MODE, since_ms=-1),
    "a mode of broker 7, which is not registered": BrokerMode(7, FENCED_MODE),
    "without an epoch": broker(1, broker_epoch=-2),
    "does not exist": Config(TOPIC_RESOURCE, "missing", "k", "v"),
    "no topic 'missing'": ClearElr("missing", None),
    "no ACL": RemoveAccessControlEntry(uuid(1)),
    "no credential": RemoveUserScramCredential("u", 1),
    "no token": RemoveDelegationToken("t"),
    "sorted by type": ClientQuota((QuotaEntity("user", "u"), QuotaEntity("client-id", "c")), "rate", 1.0),
    "at least one part": ClientQuota((), "rate", 1.0),
    "next producer id -1": ProducerIds(0, 0, -1),
    "level -1": FeatureLevel("f", -1),
    "this release supports 1 to 3": FeatureLevel(METADATA_VERSION, 4),
    "BeginTransaction is not a record of the image": BeginTransaction("t"),
}


@pytest.mark.parametrize(("reason", "record"), MISFITS.items())
def test_a_record_that_does_not_fit_is_refused(reason: str, record: MetadataRecord) -> None:
    """M4-M7, each by one record on the same good image; the error names the offset."""
    with pytest.raises(InvalidRecord) as caught:
        MetadataDelta(BASE).replay(record, 77)
    assert reason in str(caught.value)
    assert caught.value.offset == 77
    assert isinstance(caught.value, LogFormatError)


def test_a_mode_belongs_to_the_broker_id_until_it_ends() -> None:
    """The mode survives a new process of the broker; no broker with a mode is unregistered; an ended mode leaves nothing."""
    image = replayed(BASE, BrokerMode(1, FENCED_MODE, "slow disk", 1_000), broker(1, incarnation=2))
    assert image.broker_modes[1] == BrokerMode(1, FENCED_MODE, "slow disk", 1_000)
    with pytest.raises(InvalidRecord, match="has a mode"):
        MetadataDelta(image).replay(UnregisterBroker(1, image.brokers[1].broker_epoch), 9)
    loaded = replayed(EMPTY_IMAGE, *image.canonical_records(), kind=DeltaKind.LOADING)
    assert loaded.broker_modes == image.broker_modes
    drained = replayed(BASE, BrokerMode(1, MAINTENANCE_MODE))
    assert drained.digest != BASE.digest
    assert replayed(drained, BrokerMode(1, NO_MODE), BrokerMode(1, NO_MODE)).digest == BASE.digest
    gone = replayed(drained, BrokerMode(1, NO_MODE), UnregisterBroker(1, 1))
    gone.check_invariants()


def test_an_acl_is_made_once_and_producer_ids_only_grow() -> None:
    """Repeating either is refused."""
    image = replayed(BASE, ACL, ProducerIds(0, 0, 1000))
    for record in (ACL, ProducerIds(1, 1, 1000)):
        with pytest.raises(InvalidRecord):
            MetadataDelta(image).replay(record, 8)


def test_a_replica_may_stay_on_a_broker_that_was_unregistered() -> None:
    """M7 asks of a newly named broker only: the old list may be kept, in the log and in a snapshot."""
    image = replayed(BASE, UnregisterBroker(0, 0))
    kept = replayed(image, PartitionChange(TOPIC, 1, replicas=(0, 1), isr=(1,), leader=1))
    assert the_partition(kept, 1).replicas == (0, 1)
    loaded = replayed(EMPTY_IMAGE, *kept.canonical_records(), kind=DeltaKind.LOADING)
    assert loaded.digest == kept.digest
    with pytest.raises(InvalidRecord):
        MetadataDelta(image).replay(partition(2, 0), 9)


@pytest.mark.parametrize(
    "record",
    [
        RemoveTopic("orders", TOPIC),
        broker(4, broker_epoch=FROM_OFFSET),
        Config(4, "", "k", None),
        FeatureLevel("f", 0),
        BrokerMode(1, NO_MODE),
        ClientQuota((QuotaEntity("user", None),), "rate", None),
    ],
)
def test_a_snapshot_holds_canonical_records_only(record: MetadataRecord) -> None:
    """Changes, removals and epochs to be filled in stand in logs, never in snapshots."""
    with pytest.raises(InvalidRecord):
        MetadataDelta(BASE, kind=DeltaKind.LOADING).replay(record, 0)


def test_every_metadata_record_has_its_row() -> None:
    """All types below the control records, but for the markers of transactions, which replay takes, and the columns of a
    snapshot, which a reader turns into partitions."""
    others = {BeginTransaction, EndTransaction, AbortTransaction, PartitionColumns}
    metadata = {cls for number, cls in RECORD_TYPES.items() if number < FIRST_CONTROL_TYPE}
    assert set(REPLAYS) == metadata - others
    with pytest.raises(InvalidRecord):
        MetadataDelta(BASE).replay(LeaderChange(1, (), ()), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(8))
def test_how_the_log_is_cut_into_deltas_does_not_matter(seed: int) -> None:
    """One delta for all, or one for each record: the same image."""
    history = History(seed).run(60)
    delta = MetadataDelta(EMPTY_IMAGE)
    for offset, record in enumerate(history.log):
        delta.replay(record, offset)
    image = delta.finish(history.image.provenance)
    image.check_invariants()
    assert image == history.image


def test_a_record_above_the_level_does_not_fit() -> None:
    """At level 1 the fields of level 2 are damage; from the record on that raises the level they fit, in the same delta too."""
    lowered = replayed(BASE, FeatureLevel(METADATA_VERSION, 1))
    change = PartitionChange(TOPIC, 0, isr=(0, 1), elr=(2,))
    for image in (lowered, replayed(BASE, FeatureLevel(METADATA_VERSION, 0))):
        assert image.metadata_version == 1
        with pytest.raises(InvalidRecord, match=r"PartitionChange with elr needs metadata\.version 2"):
            replayed(image, change)
        assert the_partition(replayed(image, change._replace(elr=None))).isr == (0, 1)
    assert the_partition(replayed(lowered, FeatureLevel(METADATA_VERSION, 2), change)).elr == (2,)
    with pytest.raises(InvalidRecord, match="at level 1"):
        replayed(BASE, FeatureLevel(METADATA_VERSION, 1), change)


def test_a_snapshot_above_its_own_level_is_refused() -> None:
    """The level is the first record of a snapshot; a fold of one entity sees no level, and checks none."""
    newer = partition(0, 0, 1)._replace(isr=(0,), elr=(1,))
    with pytest.raises(InvalidRecord, match="Partition with elr needs"):
        replayed(EMPTY_IMAGE, FeatureLevel(METADATA_VERSION, 1), Topic("a", TOPIC), newer, kind=DeltaKind.LOADING)
    replayed(EMPTY_IMAGE, FeatureLevel(METADATA_VERSION, 2), Topic("a", TOPIC), newer, kind=DeltaKind.LOADING)
    replayed(EMPTY_IMAGE, Topic("a", TOPIC), newer, kind=DeltaKind.FOLDING)
