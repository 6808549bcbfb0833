"""The counts of partitions that lack something, for every image as if it were the first."""

import random

from metadata_log.format.ids import NO_LEADER
from metadata_log.format.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    Config,
    Partition,
    PartitionChange,
    RegisterBroker,
    RemoveTopic,
    Topic,
)
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import MetadataImage, Provenance
from quorum.controller.partitions.listing.partition_counts import PartitionCounter, PartitionCounts


def after(image: MetadataImage, *records: object) -> MetadataImage:
    delta = MetadataDelta(image)
    for offset, record in enumerate(records, image.offset):
        delta.replay(record, offset)  # type: ignore[arg-type]
    return delta.finish(Provenance(image.offset + len(records), 1, 0))


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def partition(topic: int, number: int) -> Partition:
    return Partition(topic_id(topic), number, (1, 2, 3), (1, 2, 3), (), (), 1, 0, 0, 0)


def topics(count: int, partitions: int = 2) -> MetadataImage:
    records: list[object] = [RegisterBroker(each, bytes(16), (), (), None, False, False, ()) for each in (1, 2, 3)]
    for number in range(1, count + 1):
        records.append(Topic(f"t-{number}", topic_id(number)))
        records.extend(partition(number, each) for each in range(partitions))
    return after(MetadataImage(), *records)


def test_each_kind_of_lack_is_counted() -> None:
    """An offline partition is imbalanced, too: its preferred replica does not lead it."""
    image = after(
        topics(1, partitions=4),
        PartitionChange(topic_id(1), 1, isr=(1, 3)),
        PartitionChange(topic_id(1), 2, isr=(2,), leader=2),
        PartitionChange(topic_id(1), 3, isr=(3,), leader=NO_LEADER),
    )
    assert PartitionCounter().count(image) == PartitionCounts(4, 1, 3, 0, 2)
    demanding = after(image, Config(TOPIC_RESOURCE, "t-1", "min.insync.replicas", "2"))
    assert PartitionCounter().count(demanding) == PartitionCounts(4, 1, 3, 2, 2)
    for_all = after(image, Config(BROKER_RESOURCE, "", "min.insync.replicas", "2"))
    assert PartitionCounter().count(for_all).under_min_isr == 2


def test_a_partition_with_fewer_replicas_than_the_minimum_is_as_well_as_it_can_be() -> None:
    """As in Kafka: three replicas in sync of three are enough where four are demanded."""
    image = after(topics(1), Config(TOPIC_RESOURCE, "t-1", "min.insync.replicas", "4"))
    assert PartitionCounter().count(image).under_min_isr == 0


def test_only_topics_that_changed_are_looked_at_again() -> None:
    """A page of metrics must not cost a walk over all partitions."""
    counter, image = PartitionCounter(), topics(300)
    assert counter.count(image).partitions == counter.looked_at == 600
    changed = after(image, PartitionChange(topic_id(7), 1, isr=(1,)))
    assert counter.count(changed).under_replicated == 1 and counter.looked_at == 602
    configured = after(changed, Config(TOPIC_RESOURCE, "t-9", "min.insync.replicas", "2"))
    assert counter.count(configured).under_min_isr == 0 and counter.looked_at == 604
    assert counter.count(configured) and counter.looked_at == 604


def test_after_any_history_the_counts_are_those_of_a_fresh_count() -> None:
    """Topics come and go, ISRs shrink and grow, configs change."""
    dice, counter, image, alive = random.Random(1), PartitionCounter(), topics(140), set(range(1, 141))
    for number in range(200, 350):
        each = dice.choice(sorted(alive))
        isr = tuple(sorted(dice.sample((1, 2, 3), dice.randint(1, 3))))
        match dice.randrange(5):
            case 0:
                image, alive = after(image, RemoveTopic(f"t-{each}", topic_id(each))), alive - {each}
            case 1:
                image = after(image, Topic(f"t-{number}", topic_id(number)), partition(number, 0), partition(number, 1))
                alive.add(number)
            case 2:
                value = str(dice.randint(1, 3))
                image = after(image, Config(TOPIC_RESOURCE, f"t-{each}", "min.insync.replicas", value))
            case _:
                leader = dice.choice((isr[0], NO_LEADER))
                image = after(image, PartitionChange(topic_id(each), dice.randrange(2), isr=isr, leader=leader))
        assert counter.count(image) == PartitionCounter().count(image)
