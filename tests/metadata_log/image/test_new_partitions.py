"""New partitions of one topic are replayed together, and nobody can tell: not by the image, and not by the error."""

import random
from collections.abc import Callable, Sequence

import pytest

from metadata_log.format.ids import EPOCH_MAX, NO_LEADER
from metadata_log.format.partition_state import misfit
from metadata_log.format.records import (
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    RECOVERING,
    FeatureLevel,
    MetadataRecord,
    Partition,
    PartitionChange,
    Topic,
    UnregisterBroker,
)
from metadata_log.image.delta import InvalidRecord, MetadataDelta
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from metadata_log.image.topic_image import TopicEditor
from tests.metadata_log.image.histories import broker, uuid

A, B = uuid(1), uuid(2)
Change = Callable[[Partition], Partition]
SOUND: list[Change] = [
    lambda p: p._replace(isr=p.replicas[:1]),
    lambda p: p._replace(leader=NO_LEADER),
    lambda p: p._replace(leader=p.replicas[-1]),
    lambda p: p._replace(leader_epoch=EPOCH_MAX - 99, partition_epoch=3),
    lambda p: p._replace(leader_recovery_state=RECOVERING),
    lambda p: p._replace(directories=tuple(uuid(90 + each) for each in p.replicas)),
    lambda p: p._replace(removing_replicas=p.replicas[:1], adding_replicas=p.replicas[1:]),
    lambda p: p._replace(isr=p.replicas[:1], elr=p.replicas[1:], last_known_elr=(77,)),
]
WRONG: list[Change] = [
    lambda p: p._replace(partition=p.partition + 1),
    lambda p: p._replace(topic_id=uuid(3)),
    lambda p: p._replace(replicas=(), isr=(), leader=NO_LEADER),
    lambda p: p._replace(replicas=(1, 1), isr=(1, 1), leader=1),
    lambda p: p._replace(replicas=(-2,), isr=(-2,), leader=-2),
    lambda p: p._replace(replicas=(9,), isr=(9,), leader=9),
    lambda p: p._replace(leader=9),
    lambda p: p._replace(isr=(1, 9), leader=1),
    lambda p: p._replace(leader_epoch=-1),
    lambda p: p._replace(partition_epoch=EPOCH_MAX + 1),
    lambda p: p._replace(leader_recovery_state=7),
    lambda p: p._replace(directories=(uuid(91),) * 9),
    lambda p: p._replace(elr=p.replicas[:1]),
]


def base(level: int = METADATA_VERSION_MAX) -> MetadataImage:
    records: list[MetadataRecord] = [
        FeatureLevel(METADATA_VERSION, level),
        *(broker(n) for n in range(1, 7)),
        Topic("a", A),
        Topic("b", B),
    ]
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay_all(records, 0)
    return delta.finish(Provenance(len(records), 1, 1))


def partitions(dice: random.Random, topic: bytes, first: int, count: int) -> list[Partition]:
    lists = [tuple(dice.sample(range(1, 7), 3)) for _ in range(count)]
    return [Partition(topic, n, ids, ids, (), (), ids[0], 0, 0, 0) for n, ids in enumerate(lists, first)]


def outcome(
    records: Sequence[MetadataRecord], image: MetadataImage, *, together: bool
) -> MetadataImage | tuple[int, str]:
    """The image after the records, or the offset and the reason of the error."""
    delta = MetadataDelta(image)
    try:
        if together:
            delta.replay_all(records, image.offset)
        else:
            for offset, record in enumerate(records, image.offset):
                delta.replay(record, offset)
    except InvalidRecord as e:
        return e.offset, e.reason
    found = delta.finish(Provenance(image.offset + len(records), 1, 2))
    found.check_invariants()
    return found


def assert_the_same(records: Sequence[MetadataRecord], image: MetadataImage) -> MetadataImage | tuple[int, str]:
    one_by_one, together = (outcome(records, image, together=way) for way in (False, True))
    assert together == one_by_one
    if isinstance(together, MetadataImage) and isinstance(one_by_one, MetadataImage):
        assert [*together.canonical_records()] == [*one_by_one.canonical_records()]
    return together


@pytest.mark.parametrize("seed", range(12))
def test_any_sound_partitions(seed: int) -> None:
    """Two topics in turn, chunks that are full in the middle of a group, and changes of partitions that are a record old."""
    dice, image, counts = random.Random(seed), base(), {A: 0, B: 0}
    for _ in range(4):
        records: list[MetadataRecord] = []
        for _ in range(dice.randrange(1, 6)):
            topic, count = dice.choice((A, B)), dice.choice((1, 2, 63, 64, 65, 130))
            some = partitions(dice, topic, counts[topic], count)
            if dice.random() < 0.4:
                some[dice.randrange(count)] = dice.choice(SOUND)(some[-1])._replace(partition=some[-1].partition)
                some = [each._replace(partition=n) for n, each in enumerate(some, counts[topic])]
            counts[topic] += count
            records += [*some, PartitionChange(topic, dice.randrange(counts[topic]), leader=NO_LEADER)]
        found = assert_the_same(records, image)
        assert isinstance(found, MetadataImage)
        image = found


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("place", [0, 3, 99])
def test_the_error_names_the_first_partition_that_does_not_fit(wrong: Change, place: int) -> None:
    records = partitions(random.Random(place), A, 0, 100)
    records[place] = wrong(records[place])
    found = assert_the_same(records, base())
    assert isinstance(found, tuple) and found[0] in (base().offset + place, base().offset + place + 1)


@pytest.mark.parametrize("change", SOUND)
def test_unusual_partitions_are_judged_one_by_one(change: Change) -> None:
    records = partitions(random.Random(1), A, 0, 5)
    records[2] = change(records[2])
    assert misfit(records[2][2:]) is None
    assert isinstance(assert_the_same(records, base()), MetadataImage)


def test_below_the_newest_level_each_field_is_looked_at() -> None:
    """Level 1 has no eligible leader replicas: a record with some does not fit, in whatever company."""
    records = partitions(random.Random(1), A, 0, 5)
    assert isinstance(assert_the_same(records, base(level=1)), MetadataImage)
    records[3] = records[3]._replace(isr=records[3].replicas[:1], elr=records[3].replicas[1:])
    assert isinstance(assert_the_same(records, base(level=1)), tuple)


def test_a_broker_that_was_unregistered_meanwhile_is_not_known_any_more() -> None:
    """Both groups are replayed by one delta, which remembers the brokers that it has found."""
    image = base()
    epoch = image.brokers[6].broker_epoch
    records: list[MetadataRecord] = [
        *[Partition(A, n, (5, 6), (5, 6), (), (), 5, 0, 0, 0) for n in range(3)],
        UnregisterBroker(6, epoch),
        *[Partition(B, n, (5, 6), (5, 6), (), (), 5, 0, 0, 0) for n in range(3)],
    ]
    found = assert_the_same(records, image)
    assert isinstance(found, tuple) and "broker 6 is not registered" in found[1]


def test_the_usual_partitions_are_added_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """If each of them were added by itself, the twin above would prove nothing."""

    def one_by_one(self: TopicEditor, state: object) -> None:
        raise AssertionError("added by itself")

    monkeypatch.setattr(TopicEditor, "append", one_by_one)
    assert isinstance(outcome(partitions(random.Random(1), A, 0, 200), base(), together=True), MetadataImage)
