"""Labels in the image: they belong to a topic, a partition or a broker, and go with it."""

import pytest

from metadata_log.format.labels import LABELS_MAX, has_label
from metadata_log.format.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    WHOLE_RESOURCE,
    Label,
    MetadataRecord,
    Partition,
    RemoveTopic,
    Topic,
    UnregisterBroker,
)
from metadata_log.image.delta import InvalidRecord, MetadataDelta
from metadata_log.image.metadata_image import MetadataImage, Provenance
from tests.metadata_log.image.histories import broker, newest_level, uuid

ORDERS = (
    broker(7),
    Topic("orders", uuid(1)),
    Partition(uuid(1), 0, (7,), (7,), (), (), 7, 0, 0, 0),
    Partition(uuid(1), 1, (7,), (7,), (), (), 7, 0, 0, 0),
)


def label(key: str = "team", value: str | None = "a", partition: int = WHOLE_RESOURCE, name: str = "orders") -> Label:
    return Label(TOPIC_RESOURCE, name, partition, key, value)


def of_broker(value: str | None, name: str = "7") -> Label:
    return Label(BROKER_RESOURCE, name, WHOLE_RESOURCE, "zone", value)


def after(image: MetadataImage, *records: MetadataRecord) -> tuple[MetadataImage, MetadataDelta]:
    delta = MetadataDelta(image)
    for place, record in enumerate(records):
        delta.replay(record, image.offset + place)
    end = delta.finish(Provenance(image.offset + len(records), 1, 0))
    end.check_invariants()
    return end, delta


@pytest.fixture
def image() -> MetadataImage:
    """Topic orders with two partitions on broker 7."""
    return after(newest_level(), *ORDERS)[0]


def test_labels_are_attached_changed_and_removed(image: MetadataImage) -> None:
    """In one step or in several: an image that was made before keeps its own."""
    first, delta = after(image, label(), label("tier", "gold"), label("hot", "", 1), of_broker("b"))
    assert delta.changed.labels == {(TOPIC_RESOURCE, "orders"), (BROKER_RESOURCE, "7")}
    assert not delta.changed.others
    second, _ = after(first, label(value="b"), label("tier", None), label("hot", None, 1), label("hot", "1", 0))
    assert first.labels_of(TOPIC_RESOURCE, "orders") == {"team": "a", "tier": "gold"}
    assert first.labels_of(TOPIC_RESOURCE, "orders", 1) == {"hot": ""}
    assert second.labels_of(TOPIC_RESOURCE, "orders") == {"team": "b"}
    assert second.labels_of(TOPIC_RESOURCE, "orders", 0) == {"hot": "1"}
    assert second.labels_of(TOPIC_RESOURCE, "orders", 1) == {} == second.labels_of(TOPIC_RESOURCE, "nobody")
    assert second.labels_of(BROKER_RESOURCE, "7") == {"zone": "b"}
    assert (first.label_count, second.label_count) == (4, 3)
    nothing, _ = after(second, label(value=None), label("hot", None, 0), label("never", None), of_broker(None))
    assert nothing.label_count == 0 and not nothing.labels and nothing.digest == image.digest


def test_a_topic_takes_its_labels_along_and_a_new_one_begins_without(image: MetadataImage) -> None:
    labelled, _ = after(image, label(), label("hot", "", 1))
    gone, delta = after(labelled, RemoveTopic("orders", uuid(1)), Topic("orders", uuid(2)))
    assert delta.changed.labels == {(TOPIC_RESOURCE, "orders")}
    assert gone.label_count == 0 and not gone.labels_of(TOPIC_RESOURCE, "orders")
    again, _ = after(labelled, RemoveTopic("orders", uuid(1)), Topic("orders", uuid(2)), label("new"))
    assert again.labels_of(TOPIC_RESOURCE, "orders") == {"new": "a"}


def test_labels_of_a_broker_survive_its_next_process_and_end_with_its_registration(image: MetadataImage) -> None:
    labelled, _ = after(image, of_broker("b"))
    restarted, _ = after(labelled, broker(7, incarnation=2))
    assert restarted.labels_of(BROKER_RESOURCE, "7") == {"zone": "b"}
    gone, delta = after(restarted, UnregisterBroker(7, restarted.brokers[7].broker_epoch))
    assert gone.label_count == 0 and delta.changed.labels == {(BROKER_RESOURCE, "7")}


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (label(name="nobody"), "there is no topic"),
        (label(partition=2), "has no partition 2"),
        (label(partition=-2), "partition -2"),
        (of_broker("b", "8"), "broker '8' is not registered"),
        (of_broker("b", ""), "broker '' is not registered"),
        (of_broker("b", "07"), "is not registered"),
        (of_broker("b", "7" * 5_000), "is not registered"),
        (of_broker("b")._replace(partition=0), "partition 0"),
        (label()._replace(resource_type=3), "resource type 3"),
        (label("Team"), "is no key of a label"),
        (label(""), "is no key of a label"),
        (label("k" * 64), "is no key of a label"),
        (label(value="v" * 257), "257 characters"),
        (label(value="a\nb"), "cannot be printed"),
    ],
)
def test_replay_refuses_a_label_that_does_not_fit(image: MetadataImage, bad: Label, why: str) -> None:
    with pytest.raises(InvalidRecord, match=why) as refusal:
        after(image, bad)
    assert len(str(refusal.value)) < 300


def test_a_thing_has_a_bounded_number_of_labels(image: MetadataImage) -> None:
    """Each partition has its own; a label that changes is no new one."""
    full, _ = after(image, *[label(f"k{number}") for number in range(LABELS_MAX)])
    after(full, label("k0", "other"), label("more", "", 0))
    with pytest.raises(InvalidRecord, match="33 labels"):
        after(full, label("more"))


def test_a_filter_is_a_key_or_a_key_with_its_value() -> None:
    labels = {"team": "a", "empty": "", "eq": "x=y"}
    for wanted in ("team", "team=a", "empty", "empty=", "eq=x=y"):
        assert has_label(labels, wanted)
    for unwanted in ("team=", "team=b", "teams", "", "=a", "eq=x"):
        assert not has_label(labels, unwanted)
