"""What an admin is shown: pages, counts, soft state where there is some."""

import random

from metadata_log.format.errors import ErrorCode
from quorum.controller.brokers.contact import BrokerState
from quorum.controller.controller import Controller
from quorum.controller.partitions.listing.partition_listing import TopicPlace
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.topic_commands import NewTopic
from quorum.controller.views import LogDirectory, describe_topics, list_brokers, list_topics
from tests.quorum.controller.cluster import Cluster, registration
from tests.quorum.controller.directories.test_directories import directory, lose, put, with_two_directories


def test_topics_are_listed_in_pages() -> None:
    """By name, each page after the last name of the one before."""
    cluster = Cluster(2)
    for name in ("c", "a", "b"):
        cluster.create(name, 2, 2)
    first = list_topics(cluster.image, limit=2)
    rest = list_topics(cluster.image, after=first.topics[-1].name, limit=2)

    assert [(topic.name, topic.partitions, topic.replication_factor) for topic in first.topics] == [
        ("a", 2, 2),
        ("b", 2, 2),
    ]
    assert (first.more, [topic.name for topic in rest.topics], rest.more) == (True, ["c"], False)
    assert len(list_topics(cluster.image).topics) == 3


NO_PARTITION: list[int | None] = [None]
"""The numbers of a topic that does not exist."""


def test_a_topic_is_described_in_pages() -> None:
    """Its configs are there; replicas on fenced brokers are offline; an unknown one is an error of its own."""
    cluster = Cluster(2)
    cluster.create_one(NewTopic("t", 5, 2, configs=(("retention.ms", "7"),)))
    cluster.contact(1, wants_fence=True)
    (page,), next_place = describe_topics(cluster.image, ("t",), TopicPlace("t", 2), limit=2)

    assert [described.record.partition for described in page.partitions] == [2, 3]
    assert all(described.offline_replicas == (1,) for described in page.partitions)
    assert (page.partition_count, page.configs) == (5, (("retention.ms", "7"),))
    assert next_place == TopicPlace("t", 4, page.topic_id)
    ((missing,), none) = describe_topics(cluster.image, ("ghost",))
    assert (missing.error, missing.message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic 'ghost'")
    assert none is None


def test_several_topics_share_a_page() -> None:
    """The limit is of partitions over all topics, and one that does not exist counts as one. All pages together are everything,
    once."""
    cluster = Cluster(1)
    for name in ("a", "b", "c"):
        cluster.create(name, 3, 1)
    names = ("a", "ghost", "b", "a", "c")
    for limit in range(1, 12):
        seen: list[tuple[str, int | None]] = []
        place: TopicPlace | None = None
        while True:
            topics, place = describe_topics(cluster.image, names, place, limit)
            page = [
                (topic.name, number)
                for topic in topics
                for number in ([each.record.partition for each in topic.partitions] or NO_PARTITION)
            ]
            assert 0 < len(page) <= limit
            seen += page
            if place is None:
                break
        assert seen == [*(("a", n) for n in range(3)), ("ghost", None), *((name, n) for name in "bc" for n in range(3))]


def test_a_topic_that_was_created_anew_between_two_pages_begins_anew() -> None:
    """Its other half would be of another topic."""
    cluster = Cluster(1)
    cluster.create("a", 3, 1)
    _, place = describe_topics(cluster.image, ("a",), limit=2)
    assert place is not None
    ((other,), _) = describe_topics(cluster.image, ("a",), place._replace(topic_id=bytes(16)), limit=2)
    assert [each.record.partition for each in other.partitions] == [0, 1]


def test_brokers_are_listed_in_pages() -> None:
    """By id, each page after the last id of the one before."""
    cluster = Cluster(5)
    first = list_brokers(cluster.image, None, limit=2)
    rest = list_brokers(cluster.image, None, after=first.brokers[-1].registration.broker_id, limit=3)
    assert [each.registration.broker_id for page in (first, rest) for each in page.brokers] == [0, 1, 2, 3, 4]
    assert (first.more, rest.more) == (True, False)


def test_brokers_are_listed_with_what_they_carry() -> None:
    """State, contact and counts; without a controller the soft part is unknown."""
    cluster = Cluster(3)
    cluster.assign("t", (0, 1), (0, 2), (1, 0))
    cluster.contact(2, wants_fence=True)
    listed = list_brokers(cluster.image, cluster.controller).brokers

    assert [(broker.state, broker.led_partitions, broker.replicas) for broker in listed] == [
        (BrokerState.ONLINE, 2, 3),
        (BrokerState.ONLINE, 1, 2),
        (BrokerState.FENCED, 0, 1),
    ]
    assert listed[0].last_contact_ms == cluster.now_ms
    bare = list_brokers(cluster.image, None).brokers
    assert (bare[0].state, bare[0].last_contact_ms, bare[0].metadata_offset) == (BrokerState.ONLINE, None, None)


def test_a_broker_that_shut_down_in_order_is_offline_for_every_leader() -> None:
    """The record has the reason: 0 has shut down, 1 was fenced. A new leader has heard neither of them."""
    cluster = Cluster()
    for broker_id in (0, 1):
        cluster.run(registration(broker_id, reads_reasons=True))
        cluster.lives[broker_id] = 1
        cluster.contact(broker_id)
    cluster.contact(0, wants_shut_down=True)
    cluster.contact(1, wants_fence=True)
    cluster.controller = Controller(ControllerConfig(), random.Random(2))
    cluster.controller.activate(cluster.image, cluster.now_ms)

    states = [broker.state for broker in list_brokers(cluster.image, cluster.controller).brokers]
    assert states == [BrokerState.OFFLINE, BrokerState.FENCED]
    assert [broker.state for broker in list_brokers(cluster.image, None).brokers] == states


def test_brokers_are_listed_with_their_directories() -> None:
    """The online ones, and those that are offline with replicas in them; a partition shows which replicas are offline."""
    cluster = with_two_directories()
    cluster.assign("t", (0, 1), (0, 1), (0, 1))
    put(cluster, 0, directory(0, "A"), 0, 1)
    put(cluster, 0, directory(0, "B"), 2)
    lose(cluster, 0, "A")
    first, second, _ = list_brokers(cluster.image, None).brokers
    assert first.log_dirs == (LogDirectory(directory(0, "B"), True, 1), LogDirectory(directory(0, "A"), False, 2))
    assert second.log_dirs == tuple(LogDirectory(directory(1, name), True, 0) for name in "AB")
    (described,) = describe_topics(cluster.image, ("t",)).topics
    assert [each.offline_replicas for each in described.partitions] == [(0,), (0,), ()]
