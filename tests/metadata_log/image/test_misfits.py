"""A record that does not fit changes nothing, so a tool goes on with the same delta behind it, and each misfit names its law."""

import random

import pytest

from metadata_log.format.codec import decode_record, encode_record
from metadata_log.format.records import (
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    Entity,
    EpochsRaised,
    FeatureLevel,
    MetadataRecord,
    Owner,
    UnregisterBroker,
)
from metadata_log.image.delta import InvalidRecord, MetadataDelta
from metadata_log.image.image_editor import Law
from metadata_log.image.metadata_image import NOWHERE, MetadataImage
from tests.metadata_log.image.histories import History, newest_level
from tests.metadata_log.image.strays import stray


def fits(image: MetadataImage, record: MetadataRecord, offset: int) -> bool:
    try:
        MetadataDelta(image).replay(record, offset)
    except InvalidRecord:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_delta_goes_on_behind_a_record_that_does_not_fit(seed: int) -> None:
    """Strays are tried between the records of a history, all in one delta. The image is that of the history alone."""
    dice, history = random.Random(seed), History(seed).run(60)
    delta, image, refused = MetadataDelta(newest_level()), newest_level(), 0
    for offset, record in enumerate(history.log):
        for each in (stray(dice, history.log) for _ in range(dice.randrange(4))):
            if not fits(image, each, offset):
                with pytest.raises(InvalidRecord):
                    delta.replay(each, offset)
                refused += 1
        delta.replay(record, offset)
        alone = MetadataDelta(image)
        alone.replay(record, offset)
        image = alone.finish(NOWHERE)
        if dice.random() < 0.02:
            delta = MetadataDelta(delta.finish(NOWHERE))
    after = delta.finish(NOWHERE)
    after.check_invariants()
    assert refused > 20
    assert after == image and [*after.canonical_records()] == [*image.canonical_records()]


def test_the_effects_that_check_late_check_before_they_change() -> None:
    """A broker with labels and a mode keeps both, an entity keeps its owner, and no partition of a range is raised alone."""
    history = History(5).run(200)
    image, end = history.image, len(history.log)
    moded = next(iter(image.broker_modes))
    topic = next(each for each in image.topics_by_id.values() if each.partition_count > 2)
    entity = next(iter(image.entities.values()))
    nobody = Owner(b"nobody".ljust(16), None, 1)
    for record in (
        UnregisterBroker(moded, image.brokers[moded].broker_epoch),
        EpochsRaised(topic.topic_id, 0, topic.partition_count, (1 << 63) - 1),
        entity._replace(owner=nobody, version=-1),
        Entity("a", "new", b"", nobody),
    ):
        delta = MetadataDelta(image)
        with pytest.raises(InvalidRecord):
            delta.replay(decode_record(encode_record(record)), end)  # type: ignore[arg-type]
        after = delta.finish(image.provenance)
        after.check_invariants()
        assert [*after.canonical_records()] == [*image.canonical_records()], record


def test_a_misfit_names_its_law() -> None:
    image = newest_level()
    with pytest.raises(InvalidRecord) as refused:
        MetadataDelta(image).replay(Entity("a", "b", b"", Owner(b"x" * 16, None, 3)), 7)
    assert (refused.value.law, refused.value.offset) == (Law.OWNER, 7)
    with pytest.raises(InvalidRecord) as refused:
        MetadataDelta(image).replay(FeatureLevel(METADATA_VERSION, METADATA_VERSION_MAX + 1), 7)
    assert refused.value.law is Law.RECORD
