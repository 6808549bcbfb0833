"""Lists of partitions by filter: against a twin that looks at every partition with words of its own, page by page."""

import random

import pytest

from metadata_log.format.ids import LOST_DIRECTORY, NO_LEADER, UNASSIGNED_DIRECTORY
from metadata_log.format.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    Config,
    FeatureLevel,
    Partition,
    PartitionChange,
    RegisterBroker,
    RemoveTopic,
    Topic,
)
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.listing import partition_listing
from quorum.controller.partitions.listing.partition_conditions import PartitionCondition
from quorum.controller.partitions.listing.partition_counts import PartitionCounter
from quorum.controller.partitions.listing.partition_health import partition_health
from quorum.controller.partitions.listing.partition_listing import (
    PartitionFilter,
    PartitionListing,
    TopicPlace,
    list_partitions,
)
from tests.quorum.controller.partitions.test_partition_counts import after, topic_id

Found = list[tuple[str, int]]
ALL = PartitionFilter()


def any_image(dice: random.Random) -> MetadataImage:
    """Some topics, with partitions in every state that a filter knows."""
    records: list[object] = [FeatureLevel("metadata.version", 2)]
    records += [
        RegisterBroker(each, bytes(16), (), (), None, each == 5, False, (_directory(each),)) for each in range(1, 6)
    ]
    records += [Config(BROKER_RESOURCE, "", "min.insync.replicas", "2")] * dice.randint(0, 1)
    for number in dice.sample(range(1, 40), dice.randint(0, 9)):
        records.append(Topic(f"t-{number}", topic_id(number)))
        records += [_any_partition(dice, number, each) for each in range(dice.choice((1, 2, 3, 70, 130)))]
        if dice.random() < 0.4:
            records.append(Config(TOPIC_RESOURCE, f"t-{number}", "min.insync.replicas", str(dice.randint(1, 4))))
    return after(MetadataImage(), *records)


def _any_partition(dice: random.Random, number: int, partition: int) -> Partition:
    replicas = tuple(dice.sample(range(1, 6), dice.randint(1, 4)))
    isr = replicas if dice.random() < 0.5 else tuple(dice.sample(replicas, dice.randint(1, len(replicas))))
    leader = NO_LEADER if dice.random() < 0.2 else dice.choice(isr)
    adding = replicas[-1:] if dice.random() < 0.2 else ()
    removing = replicas[:1] if dice.random() < 0.2 and len(replicas) > 1 else ()
    directories = tuple(dice.choice((UNASSIGNED_DIRECTORY, _directory(each), LOST_DIRECTORY)) for each in replicas)
    directories = directories if dice.random() < 0.5 else ()
    return Partition(topic_id(number), partition, replicas, isr, removing, adding, leader, 0, 0, 0, directories)


def _directory(broker_id: int) -> bytes:
    return bytes([100 + broker_id] * 16)


def twin(image: MetadataImage, wanted: PartitionFilter) -> Found:
    """The partitions that pass, found by looking at all of them."""
    found = []
    default = image.config(BROKER_RESOURCE, "").get("min.insync.replicas", "1")
    for topic in image.topics():
        min_isr = int(image.config(TOPIC_RESOURCE, topic.name).get("min.insync.replicas", default))
        for each in topic.partitions():
            enough = min(min_isr, len(each.replicas))
            moving = max(len(each.adding_replicas), len(each.removing_replicas))
            met = {
                PartitionCondition.UNDER_REPLICATED: len(each.isr) < len(each.replicas) - moving,
                PartitionCondition.UNAVAILABLE: each.leader == NO_LEADER,
                PartitionCondition.UNDER_MIN_ISR: len(each.isr) < enough,
                PartitionCondition.AT_MIN_ISR: len(each.isr) == enough,
                PartitionCondition.NOT_PREFERRED_LEADER: each.leader != each.replicas[0],
                PartitionCondition.OFFLINE_REPLICAS: 5 in each.replicas or LOST_DIRECTORY in each.directories,
            }
            passes = (
                not wanted.conditions or any(met[condition] for condition in wanted.conditions),
                wanted.replica_on is None or wanted.replica_on in each.replicas,
                wanted.led_by is None or wanted.led_by == each.leader,
                wanted.topics is None or topic.name in wanted.topics,
            )
            if all(passes):
                found.append((topic.name, each.partition))
    return found


def any_filter(dice: random.Random) -> PartitionFilter:
    return PartitionFilter(
        tuple(dice.sample(list(PartitionCondition), dice.choice((0, 1, 1, 2)))),
        replica_on=dice.choice((None, None, 3)),
        led_by=dice.choice((None, None, 2)),
        topics=dice.choice((None, None, frozenset(f"t-{number}" for number in range(1, 20)))),
    )


def names(page: tuple[PartitionListing, ...]) -> Found:
    return [(each.topic, each.description.record.partition) for each in page]


def all_pages(image: MetadataImage, wanted: PartitionFilter, limit: int) -> Found:
    found, place = [], None
    while True:
        page = list_partitions(image, wanted, place, limit)
        assert len(page.partitions) <= limit
        found += names(page.partitions)
        place = page.next_place
        if place is None:
            return found


@pytest.mark.parametrize("seed", range(12))
def test_any_filter_finds_what_the_twin_finds_in_pages_of_any_size(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition that passes is listed once, by name and number, however small a page's work or its rows are."""
    dice = random.Random(seed)
    image = any_image(dice)
    for _ in range(6):
        wanted = any_filter(dice)
        monkeypatch.setattr(partition_listing, "PARTITIONS_LOOKED_AT_MAX", dice.choice((1, 60, 300, 10_000)))
        assert all_pages(image, wanted, dice.choice((1, 3, 64, 1_000))) == twin(image, wanted)


@pytest.mark.parametrize("seed", range(6))
def test_counts_and_lists_mean_the_same(seed: int) -> None:
    """The metrics, `health` and the filters agree about every image."""
    image = any_image(random.Random(seed))
    listed = {each: len(twin(image, PartitionFilter((each,)))) for each in PartitionCondition}
    counts, health = PartitionCounter().count(image), partition_health(image, 0)
    assert (counts.offline, health.leaderless) == (listed[PartitionCondition.UNAVAILABLE],) * 2
    assert (counts.under_replicated, health.under_replicated) == (listed[PartitionCondition.UNDER_REPLICATED],) * 2
    assert counts.under_min_isr == listed[PartitionCondition.UNDER_MIN_ISR]
    assert counts.preferred_imbalanced == listed[PartitionCondition.NOT_PREFERRED_LEADER]


@pytest.mark.parametrize("seed", range(12))
def test_what_changes_between_two_pages_moves_nothing_else(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics come, go and are made anew, partitions get better and worse. A partition that is there and passes in every image
    is listed once, and no partition is listed twice."""
    dice = random.Random(seed)
    monkeypatch.setattr(partition_listing, "PARTITIONS_LOOKED_AT_MAX", 60)
    image, wanted, place = any_image(dice), PartitionFilter((PartitionCondition.UNDER_REPLICATED,)), None
    always = _identified(image, twin(image, wanted))
    listed: list[tuple[bytes, int]] = []
    for new_id in range(100, 1_000):
        page = list_partitions(image, wanted, place, dice.choice((1, 5, 40)))
        always &= _identified(image, twin(image, wanted))
        listed += [(each.topic_id, each.description.record.partition) for each in page.partitions]
        place = page.next_place
        if place is None:
            break
        image = _changed(dice, image, new_id)
    assert place is None
    assert len(listed) == len(set(listed))
    assert always <= set(listed)


def _identified(image: MetadataImage, found: Found) -> set[tuple[bytes, int]]:
    return {(image.topic_ids[name], number) for name, number in found}


def _changed(dice: random.Random, image: MetadataImage, new_id: int) -> MetadataImage:
    name = f"t-{dice.randint(1, 40)}"
    topic = image.topic(name)
    if topic is None:
        return after(image, Topic(name, topic_id(new_id)), _any_partition(dice, new_id, 0))
    if dice.random() < 0.3:
        return after(image, RemoveTopic(name, topic.topic_id))
    number = dice.randrange(topic.partition_count)
    record = topic.partition(number)
    assert record is not None
    isr = tuple(dice.sample(record.replicas, dice.randint(1, len(record.replicas))))
    return after(image, PartitionChange(topic.topic_id, number, isr=isr, leader=isr[0]))


def three_topics() -> MetadataImage:
    records: list[object] = [RegisterBroker(each, bytes(16), (), (), None, False, False, ()) for each in (1, 2, 3)]
    for number in (1, 2, 3):
        records.append(Topic(f"t-{number}", topic_id(number)))
        records += [Partition(topic_id(number), each, (1, 2, 3), (1, 2, 3), (), (), 1, 0, 0, 0) for each in range(100)]
    return after(MetadataImage(), *records)


def test_a_page_without_rows_says_where_the_next_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is bounded, not only rows: nothing of the first 100 partitions is unavailable, and the page ends there."""
    monkeypatch.setattr(partition_listing, "PARTITIONS_LOOKED_AT_MAX", 100)
    image = after(three_topics(), PartitionChange(topic_id(3), 99, leader=NO_LEADER))
    page = list_partitions(image, PartitionFilter((PartitionCondition.UNAVAILABLE,)))
    assert page == ((), TopicPlace("t-2", 0, b""))
    assert all_pages(image, PartitionFilter((PartitionCondition.UNAVAILABLE,)), 10) == [("t-3", 99)]


def test_topics_without_replicas_on_the_broker_are_not_looked_into() -> None:
    """The index of the topic's brokers answers for all partitions of the topic."""
    joined = RegisterBroker(9, bytes(16), (), (), None, False, False, ())
    image = after(three_topics(), joined, PartitionChange(topic_id(2), 7, replicas=(1, 2, 9), isr=(1, 2)))
    assert all_pages(image, PartitionFilter(replica_on=9), 10) == [("t-2", 7)]


def test_a_topic_that_was_made_anew_between_two_pages_begins_anew() -> None:
    """Its partitions are others. A topic that is gone moves no other."""
    image = three_topics()
    first = list_partitions(image, ALL, limit=150)
    assert first.next_place == TopicPlace("t-2", 50, topic_id(2))
    gone = after(image, RemoveTopic("t-2", topic_id(2)))
    assert names(list_partitions(gone, ALL, first.next_place, 2).partitions) == [("t-3", 0), ("t-3", 1)]
    anew = after(gone, Topic("t-2", topic_id(8)), Partition(topic_id(8), 0, (1, 2, 3), (1, 2, 3), (), (), 1, 0, 0, 0))
    assert names(list_partitions(anew, ALL, first.next_place, 2).partitions) == [("t-2", 0), ("t-3", 0)]
