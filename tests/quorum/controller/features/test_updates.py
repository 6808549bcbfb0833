"""Levels of features: up when all nodes support them, down when nothing is lost; against a dumb twin, too."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ReplicaKey
from metadata_log.format.records import (
    ELR_VERSION,
    FEATURES,
    METADATA_VERSION,
    ClientSession,
    EndClientSession,
    Entity,
    EntityKind,
    FeatureLevel,
    FeatureRange,
    MetadataRecord,
    Partition,
    PartitionChange,
    RegisterController,
    RemoveEntity,
    RemoveEntityKind,
    level_of,
)
from metadata_log.format.records.levels import FIELD_LEVELS, RECORD_LEVELS
from metadata_log.image.delta import REPLAYS
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.features.described_features import described_features
from quorum.controller.features.losses import ENTITIES
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.feature_commands import (
    FeatureResult,
    FeatureUpdate,
    UpdateFeatures,
    UpdateFeaturesReply,
    UpgradeType,
)
from quorum.controller.protocol.happenings import FeatureFinalized
from tests.quorum.controller.cluster import Cluster, incarnation

AT_LEVEL_1 = ControllerConfig(bootstrap_metadata_version=1)
OLD = (FeatureRange(METADATA_VERSION, 1, 1),)
NEW = tuple(feature.range for feature in FEATURES.values())


def voter(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, incarnation(node_id))


def update(name: str, level: int, kind: UpgradeType = UpgradeType.UPGRADE) -> FeatureUpdate:
    return FeatureUpdate(name, level, kind)


def up(level: int = 2, *, voters: Sequence[ReplicaKey] = (), dry: bool = False) -> UpdateFeatures:
    return UpdateFeatures((update(METADATA_VERSION, level),), dry, tuple(voters))


def down(level: int = 1, *, dry: bool = False) -> UpdateFeatures:
    return UpdateFeatures((update(METADATA_VERSION, level, UpgradeType.SAFE_DOWNGRADE),), dry)


def register(cluster: Cluster, node_id: int, features: tuple[FeatureRange, ...]) -> None:
    cluster.append(RegisterController(node_id, incarnation(node_id), (), features))


def speak(cluster: Cluster, broker_id: int, features: tuple[FeatureRange, ...]) -> None:
    """The registered broker is of a release with these features."""
    cluster.append(cluster.image.brokers[broker_id]._replace(features=features))


def refusal(cluster: Cluster, command: UpdateFeatures) -> tuple[ErrorCode, str]:
    before = cluster.image.digest
    with pytest.raises(ControllerError) as refused:
        cluster.run(command)
    assert cluster.image.digest == before
    assert "nothing was done" in refused.value.message
    return refused.value.code, refused.value.message


# --- up --------------------------------------------------------------------------------------------------------------


def test_the_level_rises_when_every_broker_and_voter_supports_it() -> None:
    """A fenced broker and a voter without a registration hold the level back; the answer names each of them."""
    cluster = Cluster(3, config=AT_LEVEL_1)
    for node_id in (11, 12):
        register(cluster, node_id, NEW)
    speak(cluster, 1, OLD)
    speak(cluster, 2, OLD)
    cluster.append(cluster.image.brokers[2]._replace(fenced=True))
    voters = [voter(11), voter(12), voter(13)]

    code, text = refusal(cluster, up(voters=voters))
    assert code is ErrorCode.INVALID_UPDATE_VERSION
    assert "broker 1 supports 1 to 1, broker 2 supports 1 to 1, controller 13 has not registered" in text
    speak(cluster, 1, NEW)
    speak(cluster, 2, NEW)
    register(cluster, 13, OLD)
    assert "by all nodes: controller 13 supports 1 to 1;" in refusal(cluster, up(voters=voters))[1]
    register(cluster, 13, NEW)

    ran = cluster.run(up(voters=voters))
    assert ran.records == [FeatureLevel(METADATA_VERSION, 2)]
    assert ran.happenings == [FeatureFinalized(METADATA_VERSION, 2)]
    assert ran.reply == UpdateFeaturesReply(cluster.image.offset, (FeatureResult(METADATA_VERSION, level=2),))
    assert cluster.run(up(voters=voters)).records == [], "the level is there"


def test_a_voter_with_another_disk_must_register_again() -> None:
    """The registration names the directory: what the former process supported says nothing about the present one."""
    cluster = Cluster(0, config=AT_LEVEL_1)
    register(cluster, 11, NEW)
    moved = ReplicaKey(11, incarnation(99))
    assert "controller 11 has not registered" in refusal(cluster, up(voters=[moved]))[1]
    assert cluster.run(up(voters=[voter(11)])).records == [FeatureLevel(METADATA_VERSION, 2)]


def test_a_dry_run_changes_nothing() -> None:
    """It is answered as the update would be."""
    cluster = Cluster(1, config=AT_LEVEL_1)
    ran = cluster.run(up(dry=True))
    assert (ran.records, ran.happenings) == ([], [])
    assert ran.reply == UpdateFeaturesReply(cluster.image.offset, (FeatureResult(METADATA_VERSION, level=2),))


# --- what no update may do ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("updates", "code", "text"),
    [
        ((), ErrorCode.INVALID_REQUEST, "no feature"),
        ((update(METADATA_VERSION, 2),) * 2, ErrorCode.INVALID_REQUEST, "a feature twice"),
        ((update("group.version", 1),), ErrorCode.INVALID_UPDATE_VERSION, "there is no feature 'group.version'"),
        ((update(METADATA_VERSION, 4),), ErrorCode.INVALID_UPDATE_VERSION, "supports 1 to 3"),
        ((update(METADATA_VERSION, 0),), ErrorCode.INVALID_UPDATE_VERSION, "supports 1 to 3"),
        ((update(METADATA_VERSION, 1),), ErrorCode.INVALID_UPDATE_VERSION, "would be a downgrade"),
        (
            (update(METADATA_VERSION, 1, UpgradeType.UNSAFE_DOWNGRADE),),
            ErrorCode.INVALID_UPDATE_VERSION,
            "no release supports",
        ),
        (
            (update(ELR_VERSION, 1, UpgradeType.SAFE_DOWNGRADE),),
            ErrorCode.INVALID_UPDATE_VERSION,
            "would be an upgrade",
        ),
        (
            (update(ELR_VERSION, 1), update(METADATA_VERSION, 1, UpgradeType.SAFE_DOWNGRADE)),
            ErrorCode.INVALID_UPDATE_VERSION,
            "eligible.leader.replicas.version 1 needs metadata.version 2, which would be at 1",
        ),
    ],
)
def test_a_bad_update_is_told_why(updates: tuple[FeatureUpdate, ...], code: ErrorCode, text: str) -> None:
    """And none of the request is done."""
    found, message = refusal(Cluster(1), UpdateFeatures(updates))
    assert (found, text in message) == (code, True), message


def test_features_that_need_each_other_rise_and_fall_together() -> None:
    """The order in the request does not matter: the levels after it count."""
    cluster = Cluster(1, config=AT_LEVEL_1)
    assert "needs metadata.version 2" in refusal(cluster, UpdateFeatures((update(ELR_VERSION, 1),)))[1]
    both = UpdateFeatures((update(ELR_VERSION, 1), update(METADATA_VERSION, 2)))
    assert cluster.run(both).records == [FeatureLevel(ELR_VERSION, 1), FeatureLevel(METADATA_VERSION, 2)]
    assert "needs metadata.version 2" in refusal(cluster, down())[1]
    off = update(ELR_VERSION, 0, UpgradeType.SAFE_DOWNGRADE)
    assert cluster.run(UpdateFeatures((*down().updates, off))).records == [
        FeatureLevel(METADATA_VERSION, 1),
        FeatureLevel(ELR_VERSION, 0),
    ]
    assert cluster.image.features == {METADATA_VERSION: 1}


# --- down --------------------------------------------------------------------------------------------------------------


def loaded(**fields: tuple[int, ...]) -> Cluster:
    """A cluster in which partition t-1 has these fields."""
    cluster = Cluster(3)
    cluster.assign("s", (0, 1, 2))
    cluster.assign("t", (0, 1, 2), (0, 1, 2))
    topic = cluster.image.topic("t")
    assert topic is not None
    cluster.append(PartitionChange(topic.topic_id, 1, isr=(0,), **fields))  # type: ignore[arg-type]
    return cluster


@pytest.mark.parametrize("field", ["elr", "last_known_elr", "adding_replicas", "removing_replicas"])
def test_a_downgrade_that_would_lose_something_is_refused(field: str) -> None:
    """With the names of what would be lost. When that has ended, the level falls, and level 1 holds again."""
    cluster = loaded(**{field: (1, 2)})
    code, text = refusal(cluster, down())
    assert (code, "would lose metadata of t-1;" in text) == (ErrorCode.FEATURE_UPDATE_FAILED, True), text
    assert "t-1" in refusal(cluster, down(dry=True))[1]
    topic = cluster.image.topic("t")
    assert topic is not None
    cluster.append(PartitionChange(topic.topic_id, 1, **{field: ()}))  # type: ignore[arg-type]
    assert cluster.run(down()).records == [FeatureLevel(METADATA_VERSION, 1)]
    assert all(level_of(record) == 1 for record in cluster.image.canonical_records())


def test_the_search_for_losses_takes_slices_and_looks_again_at_what_has_changed() -> None:
    """Between two slices a reassignment of a topic begins that the search has passed: the level does not fall."""
    cluster = Cluster(3, config=ControllerConfig(slice_partitions_max=2))
    for name in "abcdef":
        cluster.assign(name, (0, 1, 2), (0, 1, 2))
    first = cluster.controller.decide(cluster.image, down(), cluster.now_ms)
    assert (first.records, isinstance(first.then, UpdateFeatures)) == ((), True)
    assert isinstance(first.then, UpdateFeatures) and first.then.looked_at is not None
    (passed,) = first.then.looked_at.topics.values()
    cluster.append(PartitionChange(passed.topic_id, 0, adding_replicas=(2,)))
    assert f"{passed.name}-0" in refusal(cluster, first.then)[1]
    cluster.append(PartitionChange(passed.topic_id, 0, adding_replicas=()))
    ran = cluster.run(down())
    assert (ran.records, ran.steps) == ([FeatureLevel(METADATA_VERSION, 1)], 6)


def test_the_search_for_losses_takes_slices_of_a_large_topic_too() -> None:
    """A slice looks at whole chunks of 64 partitions. A loss in the last chunk is found, and a change begins the topic anew."""
    cluster = Cluster(3, config=ControllerConfig(slice_partitions_max=64))
    cluster.assign("t", *[(0, 1, 2)] * 200)
    ran = cluster.run(UpdateFeatures(down().updates, validate_only=True))
    assert (ran.records, ran.steps) == ([], 4)
    topic = cluster.image.topic("t")
    assert topic is not None
    first = cluster.controller.decide(cluster.image, down(), cluster.now_ms)
    assert isinstance(first.then, UpdateFeatures)
    cluster.append(PartitionChange(topic.topic_id, 0, adding_replicas=(2,)))
    assert "t-0" in refusal(cluster, first.then)[1], "the first chunk was passed"
    cluster.append(PartitionChange(topic.topic_id, 0, adding_replicas=()))
    cluster.append(PartitionChange(topic.topic_id, 199, adding_replicas=(2,)))
    following = cluster.controller.decide(cluster.image, down(), cluster.now_ms).then
    for _ in range(2):
        assert following is not None
        following = cluster.controller.decide(cluster.image, following, cluster.now_ms).then
    assert isinstance(following, UpdateFeatures) and "t-199" in refusal(cluster, following)[1]


@pytest.mark.parametrize(
    ("records", "undo", "named"),
    [
        ((EntityKind("lock", "", 0, 0, 0),), RemoveEntityKind("lock"), "the kind lock"),
        ((Entity("lock", "a", b"", None),), RemoveEntity("lock", "a"), "1 entities of kind lock"),
        ((ClientSession(bytes(16), "", "", 9_000),), None, "the sessions of 1 clients"),
    ],
)
@pytest.mark.parametrize("level", [1, 2])
def test_entities_kinds_and_sessions_hold_the_level_up(
    records: tuple[MetadataRecord, ...], undo: MetadataRecord | None, named: str, level: int
) -> None:
    """No level below 3 keeps them. When they are gone, the level falls."""
    cluster = Cluster(1)
    epoch = cluster.image.offset
    cluster.append(*records)
    assert f"would lose metadata of {named};" in refusal(cluster, down(level))[1]
    cluster.append(undo or EndClientSession(bytes(16), epoch, "closed"))
    assert cluster.run(down(level)).records == [FeatureLevel(METADATA_VERSION, level)]


def test_a_refusal_names_kinds_and_not_a_million_entities() -> None:
    cluster = Cluster(1)
    cluster.append(*[Entity(kind, str(number), b"", None) for kind in "abcdefg" for number in range(1_200)])
    text = refusal(cluster, down(2))[1]
    assert "1,200 entities of kind a, " in text and "kind e and 2 more;" in text


def test_many_losses_are_counted_and_few_are_named() -> None:
    """A refusal has a bounded text."""
    cluster = Cluster(3)
    cluster.assign("t", *[(0, 1, 2)] * 9)
    topic = cluster.image.topic("t")
    assert topic is not None
    cluster.append(*[PartitionChange(topic.topic_id, number, adding_replicas=(1,)) for number in range(9)])
    assert "t-0, t-1, t-2, t-3, t-4 and 4 more;" in refusal(cluster, down())[1]


EMPTY: dict[str, dict[str, Any]] = {"elr": {"elr": ()}, "last_known_elr": {"elr": (), "last_known_elr": ()}}


@pytest.mark.parametrize("field", ["elr", "last_known_elr", "adding_replicas"])
def test_eligible_leaders_end_with_their_feature(field: str) -> None:
    """They are cleared in the same batch; a reassignment goes on. Nothing is lost, so nothing is refused."""
    off = UpdateFeatures((update(ELR_VERSION, 0, UpgradeType.SAFE_DOWNGRADE),))
    cluster = loaded(**{field: (1,)})
    cluster.append(FeatureLevel(ELR_VERSION, 1))
    records = cluster.run(off).records
    partition = cluster.partitions("t")[1]
    changes = [] if field == "adding_replicas" else [PartitionChange(partition.topic_id, 1, **EMPTY[field])]
    assert records == [*changes, FeatureLevel(ELR_VERSION, 0)]
    assert (partition.elr, partition.last_known_elr) == ((), ())
    assert bool(partition.adding_replicas) is (field == "adding_replicas")


def test_every_canonical_record_with_a_level_is_looked_for_before_a_downgrade() -> None:
    """A new canonical record type, or one with a new field, has a row in ENTITIES, or a downgrade would lose it silently."""
    levelled = (set(RECORD_LEVELS) | set(FIELD_LEVELS)) - {Partition}
    canonical = {kind for kind in levelled if kind in REPLAYS and REPLAYS[kind].order is not None}
    assert canonical == set(ENTITIES)


def test_an_operator_sees_who_is_in_the_way() -> None:
    """The levels of the release, the cluster's level, and the brokers that do not support the highest level."""
    cluster = Cluster(2, config=AT_LEVEL_1)
    speak(cluster, 1, OLD)
    cluster.append(FeatureLevel("group.version", 3))
    found = {each.name: each for each in described_features(cluster.image)}
    assert list(found) == [ELR_VERSION, "group.version", METADATA_VERSION]
    assert found[METADATA_VERSION][1:] == (1, 3, 1, ("broker 1 supports 1 to 1",))
    assert found[ELR_VERSION][1:] == (0, 1, 0, ("broker 1 does not know it",))
    assert found["group.version"][1:] == (0, 0, 3, ())


# --- the twin ------------------------------------------------------------------------------------------------------------


def twin(image: MetadataImage, command: UpdateFeatures) -> dict[str, int] | None:
    """The levels after the command by the plain rules, from all records of the image; None: refused."""
    levels = {METADATA_VERSION: 1, ELR_VERSION: 0}
    records = [*image.canonical_records()]
    levels |= {record.name: record.level for record in records if isinstance(record, FeatureLevel)}
    now = dict(levels)
    for name, level, kind in command.updates:
        low, high = {METADATA_VERSION: (1, 3), ELR_VERSION: (0, 1)}.get(name, (1, 0))
        if not low <= level <= high or kind is UpgradeType.UNSAFE_DOWNGRADE:
            return None
        if (level < now[name] and kind is UpgradeType.UPGRADE) or (
            level > now[name] and kind is not UpgradeType.UPGRADE
        ):
            return None
        voting = [image.controllers[key.node_id].features for key in command.voters]
        for features in [*(broker.features for broker in image.brokers.values()), *voting]:
            ranges = {each.name: (each.min_level, each.max_level) for each in features}
            lowest, highest = ranges.get(name, (0, 0))
            if not lowest <= level <= highest:
                return None
        levels[name] = level
    if levels[ELR_VERSION] == 1 and levels[METADATA_VERSION] < 2:
        return None
    is_lower = any(levels[name] < now[name] for name in levels)
    for record in records if is_lower else []:
        if levels[METADATA_VERSION] < now[METADATA_VERSION] and level_of(record) > levels[METADATA_VERSION]:
            return None
    return levels


@pytest.mark.parametrize("seed", range(12))
def test_every_update_ends_as_the_dumb_twin_says(seed: int) -> None:
    """Random nodes of two releases, random partitions, random updates: the same levels, or refused by both."""
    dice = random.Random(seed)
    cluster = Cluster(3, config=ControllerConfig(slice_partitions_max=dice.choice((1, 2, 10_000))), seed=seed)
    cluster.assign("a", (0, 1, 2))
    cluster.assign("b", (0, 1, 2), (1, 2, 0))
    voters = (voter(11), voter(12))
    for key in voters:
        register(cluster, key.node_id, NEW)
    seen = {True: 0, False: 0}
    for _ in range(220):
        _change_something(cluster, dice)
        names = dice.sample([METADATA_VERSION, ELR_VERSION, METADATA_VERSION, ELR_VERSION, "x"], dice.randint(1, 2))
        wanted = tuple(
            FeatureUpdate(name, dice.choice((0, 1, 1, 2, 2, 3, 3, 4)), dice.choice((*UpgradeType, *[*UpgradeType][:2])))
            for name in dict.fromkeys(names)
        )
        command = UpdateFeatures(wanted, dice.random() < 0.1, voters)
        expected = twin(cluster.image, command)
        before = cluster.image
        try:
            reply = cluster.ask(command, UpdateFeaturesReply)
        except ControllerError as e:
            assert expected is None, (command, e)
            assert cluster.image == before
        else:
            assert expected is not None, command
            assert {each.name: each.level for each in reply.results} == {each.name: each.level for each in wanted}
            levels = {METADATA_VERSION: 1, ELR_VERSION: 0} | dict(cluster.image.features.items())
            assert levels == (twin(before, UpdateFeatures(())) if command.validate_only else expected)
        seen[expected is not None] += 1
        level = cluster.image.metadata_version
        assert all(level_of(record) <= level for record in cluster.image.canonical_records()), "the law"
    assert min(seen.values()) > 10, seen


def _change_something(cluster: Cluster, dice: random.Random) -> None:
    """A node changes its release, or a partition begins or ends what needs a level; only as far as the levels allow."""
    image = cluster.image
    topic = image.topic(dice.choice("ab"))
    assert topic is not None
    number = dice.randrange(topic.partition_count)
    knows_elr = image.metadata_version >= 2
    elr = (1,) if knows_elr and image.features.get(ELR_VERSION) and dice.random() < 0.2 else ()
    adding = (2,) if knows_elr and dice.random() < 0.15 else ()
    cluster.append(PartitionChange(topic.topic_id, number, isr=(0,), leader=0, elr=elr, adding_replicas=adding))
    if image.metadata_version >= 3 and dice.random() < 0.05:
        cluster.append(Entity("lock", str(image.offset), b"", None))
    elif image.entities and dice.random() < 0.5:
        cluster.append(*[RemoveEntity(*key) for key in image.entities])
    features = (
        OLD if image.metadata_version == 1 and not image.features.get(ELR_VERSION) and dice.random() < 0.2 else NEW
    )
    if dice.random() < 0.5:
        speak(cluster, dice.randrange(3), features)
    else:
        register(cluster, dice.choice((11, 12)), features)
