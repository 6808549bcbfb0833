"""What a client counts: versions of the view, versions of the request, the age of the view, and the last use of a topic."""

import pytest

from metadata_log.format.errors import ErrorCode
from metaquorum import ClientMetadata, Cluster, Waited, WaitOnMetadata
from tests.clients.test_client_metadata import A0, Client, answer, topic, view


def test_each_accepted_answer_raises_the_update_version_by_one_and_a_failure_does_not() -> None:
    """A full and a partial answer count alike: a caller waits for a larger number, and looks at the view again."""
    client = Client()
    versions = [client.metadata.update_version]
    client.metadata.add("a", client.now_ms)
    client.refresh(topic("a"))
    versions.append(client.metadata.update_version)
    client.metadata.add("b", client.now_ms)
    assert client.ask().is_partial
    client.refresh(topic("b"))
    versions.append(client.metadata.update_version)
    client.metadata.failed_update(client.now_ms, "nobody listens there")
    versions.append(client.metadata.update_version)
    client.refresh_again(topic("a"), topic("b"))
    assert [*versions, client.metadata.update_version] == [0, 1, 2, 2, 3]


def test_each_added_topic_raises_the_request_version_and_a_known_topic_does_not() -> None:
    """A topic that is used again needs no answer of its own."""
    client = Client()
    versions = [client.metadata.request_version]
    for name in ("a", "b", "a", "b", "c"):
        client.metadata.add(name, client.now_ms)
        versions.append(client.metadata.request_version)
    assert versions == [0, 1, 2, 2, 2, 3]
    assert client.ask().request_version == 3


def test_the_age_counts_from_the_last_answer_and_a_failure_makes_no_view_younger() -> None:
    """1. An answer comes at time 0: the view is old at 300 s.  2. An update is forced at 200 s, and the request fails: the next
    one may leave 100 ms later.  3. Its answer comes at 250 s: the view is old at 550 s."""
    client = Client().knows("a")
    begun_ms, metadata = client.now_ms, client.metadata
    client.now_ms += 200_000
    metadata.failed_update(client.now_ms)
    assert metadata.next_update_ms(client.now_ms) == begun_ms + 300_000, "nothing was forced: the age alone counts"

    metadata.request_update()
    assert metadata.next_update_ms(client.now_ms) == begun_ms + 200_100
    client.now_ms = begun_ms + 250_000
    client.refresh(topic("a"))
    assert metadata.next_update_ms(client.now_ms) == begun_ms + 550_000


def test_a_partial_answer_makes_no_view_younger() -> None:
    """It says nothing of the topics that were known before, whose leaders may have changed since."""
    client = Client().knows("a")
    begun_ms = client.now_ms
    client.now_ms += 299_000
    client.metadata.add("b", client.now_ms)
    client.refresh(topic("b"))
    assert client.metadata.next_update_ms(client.now_ms) == begun_ms + 300_000
    client.now_ms = begun_ms + 300_000
    assert client.ask().topics == ("a", "b")


def test_a_reader_keeps_the_view_that_it_took() -> None:
    """Each update replaces the view as a whole. Two questions to one view never get answers from two updates."""
    client = Client().knows("a")
    taken = client.metadata.cluster
    before = (dict(taken.partitions), taken.partitions_by_topic, dict(taken.topic_ids), dict(taken.nodes))
    client.refresh_again(topic("a", view("a", 0, 2, 6), view("a", 1, 1, 0)))
    client.metadata.add("b", client.now_ms)
    client.refresh(topic("b"))

    assert client.metadata.cluster is not taken
    assert (taken.partitions, taken.partitions_by_topic, taken.topic_ids, taken.nodes) == before
    assert taken.partition_count("a") == 1 and client.metadata.cluster.partition_count("a") == 2
    assert taken.partition_count("b") is None


def test_a_wait_that_finds_the_topic_at_once_is_a_use_of_the_topic() -> None:
    """A producer that sends to "a" every minute never loses it, although no request is needed for its waits. "b" is not used
    any more, and goes."""
    client = Client().knows("a", "b")
    for _ in range(11):
        client.now_ms += 60_000
        assert isinstance(WaitOnMetadata(client.metadata, "a", 0, client.now_ms).poll(client.now_ms), Waited)
        if client.metadata.next_request(client.now_ms) is not None:
            client.refresh(topic("a"), topic("b"))
    assert client.metadata.topics == {"a"}


def test_an_update_wakes_a_wait_and_a_failure_does_not() -> None:
    """The wait looks at the view again only if its version has grown past the one that was found wanting."""
    client, looks = Client(), list[Cluster]()
    wait = WaitOnMetadata(client.metadata, "a", 1, client.now_ms)
    assert wait.poll(client.now_ms) is None
    client.metadata.subscribe(looks.append)
    client.metadata.failed_update(client.now_ms)
    client.now_ms += 100
    assert wait.poll(client.now_ms) is None and looks == []
    client.refresh(topic("a"))
    assert wait.poll(client.now_ms) is None and len(looks) == 1, "one partition is there, and partition 1 is not"
    client.now_ms += 100
    client.refresh(topic("a", view("a", 0), view("a", 1)))
    assert wait.poll(client.now_ms) == Waited(client.metadata.cluster, 200)


@pytest.mark.parametrize("error", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE])
def test_a_partition_without_a_leader_counts_for_its_topic_and_is_not_available(error: ErrorCode) -> None:
    """A wait for it ends: only a send needs the leader. The partitioner passes it over, because it is not available."""
    client = Client()
    wait = WaitOnMetadata(client.metadata, "a", 0, client.now_ms)
    assert wait.poll(client.now_ms) is None
    client.refresh(topic("a", view("a", 0, None, 5, error=error), view("a", 1, 2)))
    assert isinstance(wait.poll(client.now_ms), Waited)
    cluster = client.metadata.cluster
    assert [each.partition for each in cluster.available_by_topic["a"]] == [1]
    assert cluster.leader_of(A0) is None and cluster.partition_count("a") == 2
    assert client.metadata.update_requested == (error is not ErrorCode.NONE)


def test_no_topic_of_interest_is_lost_when_the_client_begins_again() -> None:
    """The bootstrap view has no topics. Interest and epochs stay, so the next full request names the same topics."""
    client = Client().knows("a", "b")
    client.metadata.rebootstrap()
    assert client.metadata.cluster.is_bootstrap and client.metadata.cluster.topics == frozenset()
    client.now_ms += 100
    plan = client.ask()
    assert (plan.topics, plan.is_partial) == (("a", "b"), False)
    client.metadata.update(plan, answer(topic("a", view("a", 0, 2, 4)), topic("b")), client.now_ms)
    assert A0 not in client.metadata.cluster.partitions, "epoch 5 was seen: epoch 4 is older"


def test_a_new_client_asks_at_once() -> None:
    """There is no age and no back-off before the first answer."""
    metadata = ClientMetadata([("boot", 9092)])
    assert metadata.next_update_ms(0) == 0
    plan = metadata.next_request(0)
    assert plan is not None and not plan.is_partial
