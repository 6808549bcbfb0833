"""Labels of topics, partitions and brokers: changed all together or not at all, listed, and gone with what they belong to."""

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.labels import LABELS_MAX
from metadata_log.format.records import (
    BROKER_RESOURCE,
    METADATA_VERSION,
    TOPIC_RESOURCE,
    WHOLE_RESOURCE,
    FeatureLevel,
    Label,
)
from quorum.controller import views
from quorum.controller.protocol.commands import UnregisterBroker
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.feature_commands import FeatureUpdate, UpdateFeatures, UpgradeType
from quorum.controller.protocol.happenings import LabelsChanged
from quorum.controller.protocol.label_commands import AlterLabels, LabelAlteration
from quorum.controller.protocol.topic_commands import DeleteTopics
from quorum.controller.topics import labels
from quorum.controller.topics.labels import CHANGES_MAX, list_labels
from tests.quorum.controller.cluster import Cluster, Run


@pytest.fixture
def cluster() -> Cluster:
    """Topics orders, with three partitions, and sales, on two brokers."""
    cluster = Cluster(2)
    cluster.create("orders", 3, 2)
    cluster.create("sales", 1, 2)
    return cluster


def of_topic(topic: str, number: int = WHOLE_RESOURCE, /, **changes: str | None) -> LabelAlteration:
    return LabelAlteration(TOPIC_RESOURCE, topic, number, tuple(changes.items()))


def of_broker(broker_id: int, **changes: str | None) -> LabelAlteration:
    return LabelAlteration(BROKER_RESOURCE, str(broker_id), WHOLE_RESOURCE, tuple(changes.items()))


def alter(cluster: Cluster, *alterations: LabelAlteration) -> Run:
    return cluster.run(AlterLabels(alterations))


def refused(cluster: Cluster, *alterations: LabelAlteration) -> str:
    """The code and the text of a refusal, after which the image is as before."""
    before = cluster.image
    with pytest.raises(ControllerError) as refusal:
        alter(cluster, *alterations)
    assert cluster.image == before and "nothing was done" in refusal.value.message
    return f"{refusal.value.code.name}: {refusal.value.message}"


def test_labels_of_one_request_are_written_together_and_told_without_values(cluster: Cluster) -> None:
    run = alter(cluster, of_topic("orders", team="a"), of_topic("orders", 1, hot=""), of_broker(0, zone="b"))
    assert run.records == [
        Label(TOPIC_RESOURCE, "orders", WHOLE_RESOURCE, "team", "a"),
        Label(TOPIC_RESOURCE, "orders", 1, "hot", ""),
        Label(BROKER_RESOURCE, "0", WHOLE_RESOURCE, "zone", "b"),
    ]
    first = ("topic 'orders': team", "partition 1 of topic 'orders': hot", "broker '0': zone")
    assert run.happenings == [LabelsChanged(3, first)]
    assert alter(cluster, of_topic("orders", team="a", never=None)).records == []
    dry = cluster.run(AlterLabels((of_topic("orders", team="b"),), validate_only=True))
    assert dry.records == []
    alter(cluster, of_topic("orders", team="b", tier="gold"), of_broker(0, zone=None))
    assert cluster.image.labels_of(TOPIC_RESOURCE, "orders") == {"team": "b", "tier": "gold"}
    assert cluster.image.label_count == 3


def test_one_bad_change_refuses_the_request(cluster: Cluster) -> None:
    good = of_topic("orders", team="a")
    for bad, code in (
        (of_topic("nobody", team="a"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (of_topic("orders", 3, team="a"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (of_broker(7, zone="b"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (LabelAlteration(BROKER_RESOURCE, "", changes=(("zone", "b"),)), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (LabelAlteration(BROKER_RESOURCE, "0", 0, (("zone", "b"),)), ErrorCode.INVALID_REQUEST),
        (LabelAlteration(3, "orders", changes=(("zone", "b"),)), ErrorCode.INVALID_REQUEST),
        (LabelAlteration(TOPIC_RESOURCE, "sales", changes=(("Team", "b"),)), ErrorCode.INVALID_REQUEST),
        (LabelAlteration(TOPIC_RESOURCE, "sales", changes=(("k", "x" * 257),)), ErrorCode.INVALID_REQUEST),
        (LabelAlteration(TOPIC_RESOURCE, "sales", changes=(("k", "x"), ("k", None))), ErrorCode.INVALID_REQUEST),
        (good, ErrorCode.INVALID_REQUEST),
    ):
        assert refused(cluster, good, bad).startswith(code.name)
    assert "names no label" in refused(cluster, LabelAlteration(TOPIC_RESOURCE, "orders"))


def test_labels_are_bounded_by_thing_by_topic_and_by_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that removes labels passes, whatever the limits are."""
    monkeypatch.setattr(labels, "TOPIC_LABELS_MAX", LABELS_MAX + 2)
    monkeypatch.setattr(labels, "CLUSTER_LABELS_MAX", LABELS_MAX + 4)
    full = tuple((f"k{number}", "") for number in range(LABELS_MAX))
    alter(cluster, LabelAlteration(TOPIC_RESOURCE, "orders", changes=full))
    assert "33 labels, and may have 32" in refused(cluster, of_topic("orders", more=""))
    alter(cluster, of_topic("orders", k0=None, more=""), of_topic("orders", 0, a="", b=""))
    assert "and its partitions would have 35 labels" in refused(cluster, of_topic("orders", 1, a=""))
    alter(cluster, of_broker(0, a="", b=""))
    assert "the cluster would have 37 labels" in refused(cluster, of_broker(1, a=""))
    alter(cluster, of_broker(0, a=None), of_broker(1, a=""))
    many = tuple((f"k{number}", None) for number in range(CHANGES_MAX + 1))
    too_large = LabelAlteration(TOPIC_RESOURCE, "sales", changes=many)
    assert refused(cluster, too_large).startswith("POLICY_VIOLATION")


def test_labels_end_with_the_topic_and_with_the_broker(cluster: Cluster) -> None:
    alter(cluster, of_topic("orders", team="a"), of_topic("orders", 1, hot=""), of_broker(1, zone="b"))
    cluster.run(DeleteTopics(("orders", "sales")))
    assert cluster.image.label_count == 1
    cluster.contact(1, wants_shut_down=True)
    cluster.run(UnregisterBroker(1))
    assert cluster.image.label_count == 0


def test_the_list_has_topics_before_their_partitions_and_filters_by_key_or_value(cluster: Cluster) -> None:
    alter(
        cluster, of_broker(1, team="a"), of_topic("sales", team="b"), of_topic("orders", 1, team="a", hot=""),
        of_topic("orders", team="a"),
    )  # fmt: skip
    places = [
        (TOPIC_RESOURCE, "orders", -1), (TOPIC_RESOURCE, "orders", 1), (TOPIC_RESOURCE, "sales", -1),
        (BROKER_RESOURCE, "1", -1),
    ]  # fmt: skip

    def found(wanted: str) -> list[tuple[int, str, int]]:
        return [thing.place for thing in list_labels(cluster.image, wanted).things]

    assert found("") == found("team") == places
    assert found("team=a") == [places[0], places[1], places[3]]
    assert found("hot=") == [places[1]] and found("hot=x") == found("none") == []
    page = list_labels(cluster.image, "team=a", limit=1)
    assert page.next_place == places[1]
    assert [thing.place for thing in list_labels(cluster.image, "team=a", page.next_place).things] == places[1::2]


def test_topics_and_brokers_are_listed_by_label_and_described_with_labels(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filtered page looks at a bounded number of topics: it may be empty, and says where to go on."""
    alter(cluster, of_topic("sales", team="a"), of_topic("orders", 1, hot="yes"), of_broker(1, zone="b"))
    image = cluster.image
    assert [each.name for each in views.list_topics(image, label="team=a").topics] == ["sales"]
    assert views.list_topics(image, label="hot").topics == ()
    monkeypatch.setattr(views, "TOPICS_LOOKED_AT_MAX", 1)
    empty = views.list_topics(image, label="team")
    assert (empty.topics, empty.more, empty.last) == ((), True, "orders")
    assert [each.name for each in views.list_topics(image, empty.last, label="team").topics] == ["sales"]

    (orders, sales), _ = views.describe_topics(image, ("orders", "sales"))
    assert [dict(each.labels) for each in orders.partitions] == [{}, {"hot": "yes"}, {}]
    assert dict(sales.labels) == {"team": "a"} and not orders.labels
    (listed,) = views.list_brokers(image, None, label="zone").brokers
    assert listed.registration.broker_id == 1 and dict(listed.labels) == {"zone": "b"}
    assert not views.list_brokers(image, None, label="zone=c").brokers


def test_pages_end_after_enough_labels(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pages together have every partition and every broker once."""
    monkeypatch.setattr(views, "LABELS_PAGE_MAX", 2)
    things = [of_topic("orders", number, a="", b="") for number in range(3)]
    alter(cluster, of_topic("orders", a="", b="", c=""), *things, of_topic("sales", a=""), of_broker(0, a="", b=""))
    seen, place = [], None
    for _ in range(4):
        page = views.describe_topics(cluster.image, ("orders", "sales"), place)
        seen += [(topic.name, each.record.partition) for topic in page.topics for each in topic.partitions]
        place = page.next_place
    assert place is None and seen == [("orders", 0), ("orders", 1), ("orders", 2), ("sales", 0)]
    first = views.list_brokers(cluster.image, None)
    assert len(first.brokers) == 1 and first.more


def test_labels_need_a_level_and_hold_it(cluster: Cluster) -> None:
    alter(cluster, of_topic("orders", team="a"))
    with pytest.raises(ControllerError, match="1 labels"):
        cluster.run(UpdateFeatures((FeatureUpdate(METADATA_VERSION, 2, UpgradeType.SAFE_DOWNGRADE),)))
    alter(cluster, of_topic("orders", team=None))
    cluster.append(FeatureLevel(METADATA_VERSION, 2))
    assert refused(cluster, of_topic("orders", team="a")).startswith("UNSUPPORTED_VERSION")
