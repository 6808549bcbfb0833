"""The memory of deleted partitions and entities is released bit by bit."""

from metadata_log.format.records import ClientSession, Entity, FeatureLevel, Partition, Topic
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from metadata_log.image.replay import loading_delta
from quorum.runtime.image import leftovers
from quorum.runtime.image.leftovers import Leftovers


def image_of(*partition_counts: int) -> MetadataImage:
    """An image with a topic for each count."""
    delta = loading_delta()
    for number, count in enumerate(partition_counts, 1):
        topic_id = number.to_bytes(16, "little")
        delta.replay(Topic(f"t{number}", topic_id), 0)
        for partition in range(count):
            delta.replay(Partition(topic_id, partition, (1,), (1,), (), (), 1, 0, 0, 0), 0)
    return delta.finish(Provenance(1, 1, 1))


def turns_until_released(dropped: MetadataImage, image: MetadataImage) -> int:
    kept, turns = Leftovers(), 0
    kept.keep(dropped, image)
    while kept:
        kept.release()
        turns += 1
    return turns


def test_a_turn_lets_go_of_a_bounded_number() -> None:
    """Of one large topic as of many small ones. A few partitions are not kept at all."""
    per_turn = leftovers.RELEASED_A_TURN
    assert turns_until_released(image_of(3 * per_turn - 100), EMPTY_IMAGE) == 3
    assert turns_until_released(image_of(*[per_turn // 10] * 35), EMPTY_IMAGE) == 4
    assert turns_until_released(image_of(leftovers.KEPT_FROM - 1), EMPTY_IMAGE) == 0


def test_what_another_image_shares_is_not_kept() -> None:
    """Nothing was deleted, so both images have the same map of topics."""
    image = image_of(2_000)
    kept = Leftovers()
    kept.keep(image, image)
    assert not kept


def embedded(entities: int, sessions: int) -> MetadataImage:
    """An image with so many entities and sessions."""
    delta = loading_delta()
    delta.replay(FeatureLevel("metadata.version", 3), 0)
    for number in range(sessions):
        delta.replay(ClientSession(number.to_bytes(16, "big"), "", "CN=a", 9_000, 1), 0)
    for number in range(entities):
        delta.replay(Entity("job", f"{number:06}", b"", None, 1, 1), 0)
    return delta.finish(Provenance(1, 1, 1))


def test_a_turn_lets_go_of_a_bounded_number_of_entities_and_sessions() -> None:
    per_turn = leftovers.RELEASED_A_TURN
    assert turns_until_released(embedded(2 * per_turn, per_turn), EMPTY_IMAGE) in (3, 4)
    assert turns_until_released(embedded(leftovers.KEPT_FROM - 1, 0), EMPTY_IMAGE) == 0
    assert turns_until_released(embedded(0, leftovers.KEPT_FROM), EMPTY_IMAGE) == 1


def test_entities_that_another_image_shares_are_not_kept() -> None:
    image = embedded(5_000, 0)
    kept = Leftovers()
    kept.keep(image, image)
    assert not kept
