"""The image: one state, one digest, one order, whatever the history; and old images never change."""

import random
from hashlib import sha256

import pytest

from metadata_log.format.codec import encode_record
from metadata_log.format.records import (
    BROKER_RESOURCE,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    TOPIC_RESOURCE,
    Config,
    FeatureLevel,
    Partition,
    PartitionChange,
    ProducerIds,
    Record,
    RegisterBroker,
    Topic,
)
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.entities import with_order_keys
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from metadata_log.image.replay import Replay, loading_delta
from metadata_log.image.sharded_map import MapEditor, ShardedMap
from tests.metadata_log.image.histories import History, broker, uuid


def image_of(*records: Record) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for offset, record in enumerate(records):
        delta.replay(record, offset)  # type: ignore[arg-type]
    return delta.finish(Provenance(len(records), 1, 1_000))


def partition(number: int, *replicas: int, topic_id: bytes = uuid(7)) -> Partition:
    return Partition(topic_id, number, replicas, replicas, (), (), replicas[0], 0, 0, 0)


def test_an_empty_image_has_digest_zero_and_no_records() -> None:
    """The sum over nothing."""
    assert EMPTY_IMAGE.digest == 0
    assert EMPTY_IMAGE.digest_bytes == bytes(32)
    assert [*EMPTY_IMAGE.canonical_records()] == []
    EMPTY_IMAGE.check_invariants()


def test_the_digest_is_the_sum_of_the_hashes_of_the_encoded_records() -> None:
    """Computed without the code's own helpers: nodes of other releases, and Spark, depend on this sum."""
    image = image_of(
        broker(0), broker(1), Topic("a", uuid(7)), partition(0, 0), FeatureLevel(METADATA_VERSION, METADATA_VERSION_MAX),
        partition(1, 1, 0)._replace(directories=(uuid(1), uuid(2))), PartitionChange(uuid(7), 1, isr=(1,), elr=(0,)),
    )  # fmt: skip
    hashes = [sha256(encode_record(record)).digest() for record in image.canonical_records()]
    assert image.digest_bytes == (sum(int.from_bytes(each, "big") for each in hashes) % 2**256).to_bytes(32, "big")


def test_an_image_answers_what_was_put_in() -> None:
    """Lookups by name, id and number return the records, or nothing if there are none."""
    image = image_of(
        broker(0), broker(1), Topic("orders", uuid(7)), partition(0, 0), partition(1, 1, 0),
        Config(TOPIC_RESOURCE, "orders", "k", "v"), Config(BROKER_RESOURCE, "", "k", "w"), ProducerIds(0, 0, 1000),
    )  # fmt: skip
    topic = image.topic("orders")
    assert topic is not None
    assert topic is image.topic_by_id(uuid(7))
    assert (topic.name, topic.topic_id, topic.partition_count) == ("orders", uuid(7), 2)
    assert topic.partition(1) == partition(1, 1, 0) == image.partition(uuid(7), 1)
    assert topic.partition(2) is None
    assert topic.partition(-1) is None
    assert image.partition(uuid(8), 0) is None
    assert image.topic("order") is None
    assert image.topic_by_id(uuid(8)) is None
    assert [*topic.partitions()] == [partition(0, 0), partition(1, 1, 0)]
    assert image.config(TOPIC_RESOURCE, "orders") == {"k": "v"}
    assert image.config(TOPIC_RESOURCE, "other") == {}
    assert [*image.config_resources()] == [(TOPIC_RESOURCE, "orders"), (BROKER_RESOURCE, "")]
    assert (image.topic_count, image.partition_count, image.record_count) == (1, 2, 8)
    assert image.brokers[1].broker_epoch == 1
    assert image.producer_ids == ProducerIds(0, 0, 1000)


def test_the_index_from_broker_to_topics_counts_replicas() -> None:
    """A broker leaves a topic when its last replica does, and not before."""
    a, b = uuid(7), uuid(8)
    image = image_of(
        broker(0),
        broker(1),
        Topic("a", a),
        partition(0, 0, 1),
        partition(1, 0),
        Topic("b", b),
        partition(0, 1, topic_id=b),
    )
    assert image.topics_of_broker(0) == (a,)
    assert image.topics_of_broker(1) == (a, b)
    assert image.topics_of_broker(2) == ()
    topic = image.topic("a")
    assert topic is not None
    assert [*topic.partitions_on(0)] == [0, 1]
    assert [*topic.partitions_on(1)] == [0]
    delta = MetadataDelta(image)
    delta.replay(PartitionChange(a, 0, isr=(0,), replicas=(0,)), 7)
    moved = delta.finish(Provenance(8, 1, 1_000))
    assert moved.topics_of_broker(1) == (b,)
    assert image.topics_of_broker(1) == (a, b)
    moved.check_invariants()


def test_the_digest_tells_one_changed_field_from_another() -> None:
    """Two images that differ in one broker's rack differ in digest; equal ones are equal."""
    one = image_of(broker(0))
    assert one == image_of(broker(0))
    assert hash(one) == hash(image_of(broker(0)))
    assert one != image_of(broker(0)._replace(rack="rack-2"))
    assert one != "an image"


@pytest.mark.parametrize("seed", range(12))
def test_what_is_kept_incrementally_agrees_with_what_is_recomputed(seed: int) -> None:
    """Digest, counts and index after a random history, and after loading the same canonical records."""
    history = History(seed).run(60)
    history.image.check_invariants()
    delta = loading_delta()
    for place, record in enumerate(history.image.canonical_records()):
        delta.replay(record, place)
    loaded = delta.finish(history.image.provenance)
    loaded.check_invariants()
    assert loaded == history.image
    assert [*map(encode_record, loaded.canonical_records())] == [*map(encode_record, history.image.canonical_records())]


@pytest.mark.parametrize("seed", range(6))
def test_the_canonical_order_is_the_order_of_the_keys(seed: int) -> None:
    """Walking the image and sorting by order keys give one order, strictly ascending."""
    keys = [key for key, _ in with_order_keys(History(seed).run(80).image.canonical_records())]
    assert keys == sorted(set(keys))


def test_an_old_image_never_changes() -> None:
    """Later deltas on an image and on its successors do not change that image."""
    history = History(3).run(20)
    kept = history.image
    before = [*kept.canonical_records()]
    history.run(40)
    assert [*kept.canonical_records()] == before
    kept.check_invariants()


def test_two_deltas_on_one_image_do_not_see_each_other() -> None:
    """Proposed and committed are two images over one base."""
    base = image_of(broker(0), Topic("a", uuid(7)), partition(0, 0))
    left, right = MetadataDelta(base), MetadataDelta(base)
    left.replay(PartitionChange(uuid(7), 0, leader=0), 3)
    right.replay(RegisterBroker(5, uuid(1), (), (), None, False, False, ()), 3)
    a, b = left.finish(Provenance(4, 1, 1)), right.finish(Provenance(4, 1, 1))
    assert 5 not in a.brokers
    assert 5 in b.brokers
    assert b.partition(uuid(7), 0) == base.partition(uuid(7), 0)
    a.check_invariants()
    b.check_invariants()


def test_replay_and_load_share_one_image() -> None:
    """`Replay.adopt` uses the given image unchanged."""
    image = History(1).run(10).image
    replay = Replay()
    replay.adopt(image)
    assert replay.image is image
    assert replay.offset == image.offset


@pytest.mark.parametrize("seed", range(5))
def test_a_sharded_map_is_a_dict_in_order(seed: int) -> None:
    """Compared with a plain dict while it grows from one shard to many: keys iterate in order, and old maps do not
    change.
    """
    dice = random.Random(seed)
    twin: dict[int, int] = {}
    current: ShardedMap[int, int] = ShardedMap()
    for _ in range(40):
        editor = MapEditor(current)
        before, twin_before = current, dict(twin)
        for _ in range(dice.randrange(12)):
            key = dice.randrange(400)
            if key in twin and dice.random() < 0.4:
                del editor[key]
                del twin[key]
            else:
                editor[key] = twin[key] = dice.randrange(9)
            assert editor.get(key) == twin.get(key)
            assert len(editor) == len(twin)
        current = editor.finish()
        assert dict(before) == twin_before
        assert [*current.items()] == sorted(twin.items())
        assert sorted(current.unordered_values()) == sorted(twin.values())


def test_an_untouched_map_is_the_same_object() -> None:
    """An editor that changed nothing returns its base, and value changes keep the sorted keys."""
    editor = MapEditor(ShardedMap[str, int]())
    editor["b"] = 1
    editor["a"] = 1
    base = editor.finish()
    assert MapEditor(base).finish() is base
    keys = base.sorted_keys()
    again = MapEditor(base)
    again["a"] = 2
    assert again.finish().sorted_keys() is keys
    with pytest.raises(KeyError):
        base["c"]
