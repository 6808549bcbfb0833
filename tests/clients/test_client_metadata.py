"""What a producer-side client keeps: when it asks, what an answer changes, and how long anybody waits."""

import random
from dataclasses import FrozenInstanceError

import pytest

from clients.metadata.backoff import ExponentialBackoff
from metadata_log.format.errors import ErrorCode
from metaquorum import (
    ClientMetadata,
    Cluster,
    ClusterNode,
    ClusterResource,
    MetadataRequestPlan,
    MetadataUpdate,
    NotThere,
    PartitionView,
    TopicPartition,
    TopicUpdate,
    ViewVersion,
    Waited,
    WaitOnMetadata,
    least_loaded_node,
)

NODES = (ClusterNode(1, "b1", 9092), ClusterNode(2, "b2", 9092))
A0 = TopicPartition("a", 0)


def view(
    topic: str, partition: int = 0, leader: int | None = 1, epoch: int | None = 5, **fields: object
) -> PartitionView:
    return PartitionView(topic, partition, leader, epoch, **fields)  # type: ignore[arg-type]


def topic(name: str, *views: PartitionView, topic_id: bytes | None = None, **fields: object) -> TopicUpdate:
    return TopicUpdate(name, topic_id or name.encode().ljust(16), views or (view(name),), **fields)  # type: ignore[arg-type]


def answer(*topics: TopicUpdate, as_of: tuple[int, int] | None = None) -> MetadataUpdate:
    return MetadataUpdate(
        "cluster", NODES, topics, controller_id=2, as_of=None if as_of is None else ViewVersion(*as_of)
    )


class Client:
    """Metadata, and a clock."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.metadata = ClientMetadata([("boot", 9092)])

    def ask(self) -> MetadataRequestPlan:
        plan = self.metadata.next_request(self.now_ms)
        assert plan is not None
        return plan

    def refresh(self, *topics: TopicUpdate, as_of: tuple[int, int] | None = None) -> None:
        self.metadata.update(self.ask(), answer(*topics, as_of=as_of), self.now_ms)

    def refresh_again(self, *topics: TopicUpdate, as_of: tuple[int, int] | None = None) -> None:
        """A full refresh that somebody forced."""
        self.metadata.request_update(has_news=True)
        self.now_ms += 100
        self.refresh(*topics, as_of=as_of)

    def knows(self, *names: str) -> "Client":
        for name in names:
            self.metadata.add(name, self.now_ms)
        self.refresh(*[topic(name) for name in names])
        return self


# --- the view --------------------------------------------------------------------------------------------------------


def test_before_the_first_answer_only_the_configured_addresses_are_known() -> None:
    """Their ids are negative, so that no broker's id is ever mistaken for one."""
    cluster = ClientMetadata([("one", 1), ("two", 2)]).cluster

    assert cluster.is_bootstrap
    assert [tuple(node)[:3] for node in cluster.nodes.values()] == [(-1, "one", 1), (-2, "two", 2)]


def test_the_views_of_a_cluster_agree_with_each_other() -> None:
    """By topic, available, by node, controller, ids and names."""
    client = Client()
    client.metadata.add("a", client.now_ms)
    client.metadata.add("__consumer_offsets", client.now_ms)
    client.refresh(topic("a", view("a", 1, 2), view("a", 0, None)), topic("__consumer_offsets", is_internal=True))
    cluster = client.metadata.cluster

    assert [each.partition for each in cluster.partitions_by_topic["a"]] == [0, 1]
    assert [each.partition for each in cluster.available_by_topic["a"]] == [1]
    assert [each.key for each in cluster.partitions_by_node[2]] == [TopicPartition("a", 1)]
    assert cluster.leader_of(TopicPartition("a", 1)) == NODES[1]
    assert cluster.leader_of(A0) is None
    assert cluster.controller == NODES[1]
    assert cluster.topic_names[b"a".ljust(16)] == "a"
    assert cluster.internal_topics == {"__consumer_offsets"}
    assert cluster.partition_count("a") == 2
    assert cluster.partition_count("b") is None
    with pytest.raises(FrozenInstanceError):
        cluster.cluster_id = "other"  # type: ignore[misc]


# --- when it asks ----------------------------------------------------------------------------------------------------


def test_a_new_topic_is_asked_for_at_once_and_alone() -> None:
    """Back-off does not hold it up, and the topics that are known are not fetched again for its sake."""
    client = Client().knows("a")
    client.now_ms += 1
    client.metadata.add("b", client.now_ms)

    assert client.ask() == MetadataRequestPlan(("b",), client.metadata.request_version, True)


def test_an_update_for_one_topic_is_partial_only_while_the_topic_is_new() -> None:
    """1. The client knows "a" and adds "b". An update for "b" asks for "b" alone, without back-off.
    2. An update for "a" asks for both topics.
    """
    client = Client().knows("a")
    client.metadata.add("b", client.now_ms)
    version = client.metadata.request_update_for_topic("b")
    assert version == client.metadata.update_version
    assert (client.ask().topics, client.ask().is_partial) == (("b",), True)

    assert client.metadata.request_update_for_topic("a") == version
    client.now_ms += 100
    assert (client.ask().topics, client.ask().is_partial) == (("a", "b"), False)
    client.refresh(topic("a"), topic("b"))
    assert client.metadata.update_version > version


def test_an_answer_to_an_older_request_does_not_stand_for_a_topic_added_since() -> None:
    """Request versions: the request was under way when the topic was added, so another one is due."""
    client = Client()
    client.metadata.add("a", client.now_ms)
    plan = client.ask()
    client.metadata.add("b", client.now_ms)
    client.metadata.update(plan, answer(topic("a")), client.now_ms)
    client.now_ms += 100

    assert client.ask().topics == ("b",)


def test_metadata_is_refreshed_when_it_is_old_and_after_a_forced_request_backs_off() -> None:
    """metadata.max.age.ms is 5 minutes; forced requests are retry.backoff.ms apart."""
    client = Client().knows("a")
    assert client.metadata.next_update_ms(client.now_ms) == client.now_ms + 300_000

    client.metadata.request_update()
    assert client.metadata.next_request(client.now_ms + 99) is None
    client.now_ms += 100
    assert not client.ask().is_partial

    client.metadata.failed_update(client.now_ms)
    assert client.metadata.next_update_ms(client.now_ms) == client.now_ms + 100


def test_a_topic_that_nobody_asks_for_expires_with_the_next_full_update() -> None:
    """Topic expiry is 5 minutes after the last interest."""
    client = Client().knows("a", "b")
    client.now_ms += 200_000
    client.metadata.add("a", client.now_ms)
    client.now_ms += 100_000
    client.refresh(topic("a"), topic("b"))

    assert client.metadata.topics == {"a"}
    assert client.metadata.cluster.topics == {"a"}


# --- what an answer changes ------------------------------------------------------------------------------------------


def test_a_partial_update_is_merged_and_a_full_one_replaces() -> None:
    """A topic that a full answer leaves out is gone; a partial one says nothing of it."""
    client = Client().knows("a")
    client.metadata.add("b", client.now_ms)
    client.refresh(topic("b"))
    assert client.metadata.cluster.topics == {"a", "b"}

    client.metadata.request_update()
    client.now_ms += 100
    client.refresh(topic("b"))
    assert client.metadata.cluster.topics == {"b"}


def test_leader_epochs_never_go_back() -> None:
    """A broker that lags behind names the old leader with the old epoch: the partition stays as it was."""
    client = Client().knows("a")
    client.metadata.request_update()
    client.now_ms += 100
    client.refresh(topic("a", view("a", 0, 2, 4)))
    assert client.metadata.cluster.partitions[A0].leader_id == 1
    assert client.metadata.last_seen_epoch(A0) == 5

    client.metadata.request_update()
    client.now_ms += 100
    client.refresh(topic("a", view("a", 0, 2, 6)))
    assert client.metadata.cluster.partitions[A0].leader_id == 2


def test_a_topic_that_was_created_anew_begins_its_epochs_anew() -> None:
    """Another topic id is another topic, whatever the name says."""
    client = Client().knows("a")
    client.metadata.request_update()
    client.now_ms += 100
    client.refresh(topic("a", view("a", 0, 2, 0), topic_id=b"n" * 16))

    assert client.metadata.cluster.partitions[A0].leader_id == 2
    assert client.metadata.last_seen_epoch(A0) == 0


ANEW = b"n" * 16
"""The id of topic `a` after it was deleted and created again."""


def test_a_topic_that_one_refresh_missed_begins_its_epochs_anew() -> None:
    """Epoch 5, then deleted, then created with another id: epoch 0 of that id is not older than epoch 5 of the first."""
    client = Client().knows("a")
    client.refresh_again(topic("a", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    client.refresh_again(topic("a", view("a", 0, 2, 0), topic_id=ANEW))

    assert client.metadata.cluster.partitions[A0].leader_id == 2
    assert client.metadata.last_seen_epoch(A0) == 0
    assert isinstance(WaitOnMetadata(client.metadata, "a", 0, client.now_ms).poll(client.now_ms), Waited)


def test_a_topic_in_which_interest_ended_is_forgotten_with_its_epochs() -> None:
    """A client that asks for it later begins with the answer that it gets then, of any id."""
    client = Client().knows("a")
    client.now_ms += 300_000
    client.refresh(topic("a"))
    assert client.metadata.last_seen_epoch(A0) is None

    client.metadata.add("a", client.now_ms)
    client.now_ms += 100
    client.refresh(topic("a", view("a", 0, 2, 0), topic_id=ANEW))
    assert client.metadata.cluster.partitions[A0].leader_id == 2


def test_a_refresh_that_missed_a_topic_does_not_let_its_epochs_go_back() -> None:
    """A lagging broker does not know the topic, the next one lags less and has epoch 4: the client has seen epoch 5."""
    client = Client().knows("a")
    client.refresh_again(topic("a", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    client.refresh_again(topic("a", view("a", 0, 2, 4)))

    assert A0 not in client.metadata.cluster.partitions
    assert client.metadata.last_seen_epoch(A0) == 5
    client.refresh_again(topic("a", view("a", 0, 2, 5)))
    assert client.metadata.cluster.partitions[A0].leader_id == 2


def test_an_older_answer_does_not_bring_a_deleted_topic_back() -> None:
    """Offset 20 had the new topic, so an answer as of offset 19 speaks of the deleted one: it changes nothing, and more is
    asked for. An answer as of offset 21 with a third id is the newer one."""
    client = Client()
    client.metadata.add("a", client.now_ms)
    client.refresh(topic("a", view("a", 0, 2, 0), topic_id=ANEW), as_of=(1, 20))
    client.refresh_again(topic("a"), as_of=(1, 19))
    assert client.metadata.cluster.topic_ids["a"] == ANEW
    assert client.metadata.cluster.partitions[A0].leader_id == 2
    assert client.metadata.update_requested

    client.refresh_again(topic("a", view("a", 0, 1, 0), topic_id=b"3" * 16), as_of=(1, 21))
    assert client.metadata.cluster.topic_ids["a"] == b"3" * 16
    assert client.metadata.cluster.partitions[A0].leader_id == 1


def test_a_later_generation_is_newer_at_any_offset() -> None:
    """`quorum recover` may cut the log: offset 5 of generation 2 comes after offset 20 of generation 1, and not before it."""
    client = Client()
    client.metadata.add("a", client.now_ms)
    client.refresh(topic("a", view("a", 0, 2, 7), topic_id=ANEW), as_of=(1, 20))
    client.refresh_again(topic("a", view("a", 0, 1, 0)), as_of=(2, 5))
    assert client.metadata.cluster.partitions[A0].leader_id == 1

    client.refresh_again(topic("a", view("a", 0, 2, 7), topic_id=ANEW), as_of=(1, 21))
    assert client.metadata.cluster.partitions[A0].leader_id == 1


def test_after_a_recovery_the_epochs_of_the_same_topic_begin_anew() -> None:
    """`quorum recover` lost two leader changes. The client refused the new leader until the epochs had passed the lost ones."""
    client = Client().knows("a")
    client.refresh_again(topic("a", view("a", leader=2, epoch=5)), as_of=(1, 140))
    client.refresh_again(topic("a", view("a", leader=1, epoch=3)), as_of=(789_762, 120))
    assert client.metadata.cluster.partitions[A0].leader_id == 1
    assert client.metadata.last_seen_epoch(A0) == 3

    client.refresh_again(topic("a", view("a", leader=2, epoch=5)), as_of=(1, 150))
    assert client.metadata.cluster.partitions[A0].leader_id == 1, "a broker that has not heard of the recovery yet"
    client.refresh_again(topic("a", view("a", leader=2, epoch=4)), as_of=(789_762, 200))
    assert client.metadata.cluster.partitions[A0].leader_id == 2


def test_a_late_epoch_of_the_time_before_a_recovery_does_not_bind_the_client() -> None:
    """A response has no generation. The client noted epoch 5 of the lost time again, and refused the leader of epoch 4."""
    client = Client().knows("a")
    client.refresh_again(topic("a", view("a", leader=2, epoch=5)), as_of=(1, 140))
    client.refresh_again(topic("a", view("a", leader=1, epoch=3)), as_of=(789_762, 120))
    assert client.metadata.note_leader_epoch(A0, 5, topic_id=b"a".ljust(16)), "it asks once more, and no more than that"

    client.refresh_again(topic("a", view("a", leader=2, epoch=4)), as_of=(789_762, 200))
    assert client.metadata.cluster.partitions[A0].leader_id == 2
    assert client.metadata.last_seen_epoch(A0) == 4


def test_an_epoch_of_the_deleted_topic_does_not_bind_the_new_one() -> None:
    """A response to a request that was sent to the deleted topic comes late, with that topic's id: nothing is noted."""
    client = Client().knows("a")
    client.refresh_again(topic("a", view("a", 0, 2, 0), topic_id=ANEW))
    assert not client.metadata.note_leader_epoch(A0, 5, topic_id=b"a".ljust(16))
    assert client.metadata.note_leader_epoch(A0, 1, topic_id=ANEW)

    client.refresh_again(topic("a", view("a", 0, 1, 1), topic_id=ANEW))
    assert client.metadata.cluster.partitions[A0].leader_id == 1


def test_a_newer_epoch_seen_elsewhere_forces_a_refresh() -> None:
    """A produce or fetch response may know of an election before the metadata does."""
    client = Client().knows("a")
    assert not client.metadata.note_leader_epoch(A0, 5)
    assert not client.metadata.update_requested

    assert client.metadata.note_leader_epoch(A0, 7)
    assert client.metadata.update_requested


@pytest.mark.parametrize("error", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_errors_that_better_metadata_may_cure_force_a_refresh(error: ErrorCode) -> None:
    """For a partition without a leader, and for a topic that is not there yet."""
    client = Client()
    client.metadata.add("a", client.now_ms)
    client.refresh(topic("a", view("a", 0, None, 5, error=error)))
    assert client.metadata.update_requested

    client.now_ms += 100
    client.refresh(topic("a", error=error))
    assert client.metadata.update_requested


def test_listeners_hear_of_each_update() -> None:
    """They get the whole new view."""
    client, seen = Client(), list[Cluster]()
    client.metadata.subscribe(seen.append)
    client.knows("a")

    assert seen == [client.metadata.cluster]


def test_the_least_loaded_node_is_asked() -> None:
    """Fewest requests under way; one that cannot be reached is not asked."""
    cluster = Client().knows("a").metadata.cluster

    assert least_loaded_node(cluster, {1: 3, 2: 1}, frozenset()) == 2
    assert least_loaded_node(cluster, {}, frozenset()) == 1
    assert least_loaded_node(cluster, {}, frozenset({1})) == 2
    assert least_loaded_node(cluster, {}, frozenset({1, 2})) is None


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_what_is_known_needs_no_waiting() -> None:
    """No request either."""
    client = Client().knows("a")
    outcome = WaitOnMetadata(client.metadata, "a", 0, client.now_ms).poll(client.now_ms)

    assert outcome == Waited(client.metadata.cluster, 0)
    assert not client.metadata.update_requested


def test_waiting_ends_with_the_update_that_brings_the_topic() -> None:
    """An update that does not bring it asks for another."""
    client = Client()
    wait = WaitOnMetadata(client.metadata, "a", None, client.now_ms)
    assert wait.poll(client.now_ms) is None

    client.refresh(topic("a", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert wait.poll(client.now_ms) is None

    client.now_ms += 100
    client.refresh(topic("a"))
    assert wait.poll(client.now_ms) == Waited(client.metadata.cluster, 100)


def test_the_view_that_was_found_wanting_is_not_looked_at_again() -> None:
    """The version at which more was asked for is no news. A waiter that is woken without an update (its request failed) asks
    nothing anew: the back-off stands, and the requests that are on their way still count."""
    client = Client()
    wait = WaitOnMetadata(client.metadata, "a", None, client.now_ms)
    assert wait.poll(client.now_ms) is None
    plan = client.ask()
    client.metadata.failed_update(client.now_ms)
    assert wait.poll(client.now_ms) is None
    assert client.metadata.next_request(client.now_ms + 99) is None
    assert client.metadata.request_version == plan.request_version

    client.now_ms += 100
    client.refresh(topic("a"))
    assert isinstance(wait.poll(client.now_ms), Waited)


def test_waiting_for_a_partition_that_never_comes_says_so() -> None:
    """The text names partition, topic, how many there are, and the time."""
    client = Client().knows("a")
    wait = WaitOnMetadata(client.metadata, "a", 3, client.now_ms, max_wait_ms=500)
    while (outcome := wait.poll(client.now_ms)) is None:
        client.now_ms = min(client.metadata.next_update_ms(client.now_ms), wait.deadline_ms)
        if client.metadata.next_request(client.now_ms):
            client.refresh(topic("a"))

    assert isinstance(outcome, NotThere)
    assert outcome.code is ErrorCode.REQUEST_TIMED_OUT
    assert outcome.message == "partition 3 of topic 'a' is not in the metadata after 500 ms; the topic has 1 partitions"


def test_waiting_for_a_topic_that_nobody_answers_for_ends_after_a_minute() -> None:
    """max.block.ms is 60 s; nothing arrives, and the wait still ends."""
    client = Client()
    wait = WaitOnMetadata(client.metadata, "a", None, client.now_ms)
    assert wait.poll(client.now_ms) is None
    assert wait.poll(wait.deadline_ms - 1) is None

    outcome = wait.poll(wait.deadline_ms)
    assert outcome == NotThere(
        ErrorCode.REQUEST_TIMED_OUT, "topic 'a' is not in the metadata after 60000 ms; does it exist?"
    )


def test_a_name_that_can_never_be_there_is_not_waited_for() -> None:
    """Invalid and unauthorized topics fail at once."""
    client = Client()
    wait = WaitOnMetadata(client.metadata, "a b", None, client.now_ms)
    assert wait.poll(client.now_ms) is None
    client.refresh(topic("a b", error=ErrorCode.INVALID_TOPIC_EXCEPTION))

    outcome = wait.poll(client.now_ms)
    assert isinstance(outcome, NotThere)
    assert outcome.code is ErrorCode.INVALID_TOPIC_EXCEPTION

    too_long = WaitOnMetadata(client.metadata, "x" * 250, None, client.now_ms).poll(client.now_ms)
    assert isinstance(too_long, NotThere)
    assert too_long.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "x" * 250 not in client.metadata.topics


def test_a_topic_that_the_client_may_not_see_is_not_waited_for() -> None:
    """A later wait asks once more, because the client may have got the right meanwhile."""
    client = Client()
    wait = WaitOnMetadata(client.metadata, "a", None, client.now_ms)
    assert wait.poll(client.now_ms) is None
    client.refresh(topic("a", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert client.metadata.cluster.unauthorized_topics == {"a"}
    assert wait.poll(client.now_ms) == NotThere(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not authorized for topic 'a'")

    wait = WaitOnMetadata(client.metadata, "a", None, client.now_ms)
    assert wait.poll(client.now_ms) is None
    client.refresh_again(topic("a"))
    assert isinstance(wait.poll(client.now_ms), Waited)


def test_the_error_of_a_topic_stays_until_a_full_update_or_another_word_about_the_topic() -> None:
    """A partial update for "b" says nothing about "a"."""
    client = Client()
    client.metadata.add("a", client.now_ms)
    client.refresh(topic("a", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    client.metadata.add("b", client.now_ms)
    client.refresh(topic("b"))
    assert client.metadata.cluster.unauthorized_topics == {"a"}

    client.refresh_again(topic("a"), topic("b"))
    assert client.metadata.cluster.unauthorized_topics == frozenset()


def test_a_negative_maximum_wait_is_refused() -> None:
    """As Kafka does; and a negative partition would be found in any topic."""
    client = Client().knows("a")
    with pytest.raises(ValueError, match="the maximum wait is -1 ms"):
        WaitOnMetadata(client.metadata, "a", None, client.now_ms, max_wait_ms=-1)
    with pytest.raises(ValueError, match="partition -1 of topic 'a'"):
        WaitOnMetadata(client.metadata, "a", -1, client.now_ms)


def test_a_fatal_error_ends_all_present_waits_and_no_later_one() -> None:
    """A refused certificate: two waits end with the reason. After the certificate is renewed, a new wait succeeds."""
    client = Client()
    waits = [WaitOnMetadata(client.metadata, name, None, client.now_ms) for name in ("a", "b")]
    assert [wait.poll(client.now_ms) for wait in waits] == [None, None]
    failure = NotThere(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no such client")
    client.metadata.fail(failure)
    assert [wait.poll(client.now_ms) for wait in waits] == [failure, failure]

    later = WaitOnMetadata(client.metadata, "a", None, client.now_ms)
    assert later.poll(client.now_ms) is None
    client.refresh(topic("a"), topic("b"))
    assert isinstance(later.poll(client.now_ms), Waited)


def test_a_closed_client_asks_nothing_and_ends_every_wait() -> None:
    """Present and later waits, also those for a topic that is in the view."""
    client = Client().knows("a")
    wait = WaitOnMetadata(client.metadata, "b", None, client.now_ms)
    assert wait.poll(client.now_ms) is None
    client.metadata.close()

    for each in (wait, WaitOnMetadata(client.metadata, "a", None, client.now_ms)):
        outcome = each.poll(client.now_ms)
        assert isinstance(outcome, NotThere)
        assert "was closed" in outcome.message
    assert client.metadata.next_request(client.now_ms + 10**9) is None


def test_a_wait_in_vain_names_the_last_failure() -> None:
    """An operator reads why no broker answered, and not only that the topic is missing."""
    client = Client()
    wait = WaitOnMetadata(client.metadata, "a", None, client.now_ms, max_wait_ms=10)
    assert wait.poll(client.now_ms) is None
    client.metadata.failed_update(client.now_ms, "b1:9092 cannot be reached")
    outcome = wait.poll(wait.deadline_ms)
    assert isinstance(outcome, NotThere)
    assert outcome.message == (
        "topic 'a' is not in the metadata after 10 ms; the last request failed: b1:9092 cannot be reached"
    )


# --- pauses ----------------------------------------------------------------------------------------------------------


def test_the_pause_doubles_with_each_failure_and_an_answer_ends_that() -> None:
    """retry.backoff.ms is 100, retry.backoff.max.ms is 1,000 (KIP-580)."""
    client, pauses = Client(), []
    for _ in range(6):
        client.ask()
        client.metadata.failed_update(client.now_ms)
        pauses.append(client.metadata.next_update_ms(client.now_ms) - client.now_ms)
        client.now_ms += pauses[-1]
    assert pauses == [100, 200, 400, 800, 1_000, 1_000]

    client.refresh()
    client.metadata.request_update()
    assert client.metadata.next_update_ms(client.now_ms) == client.now_ms + 100


def test_forced_updates_that_bring_nothing_new_become_rarer() -> None:
    """A partition without a leader forces a refresh with each answer: 100 ms apart, then 200, at most 1,000. A new leader, or
    word of one, begins anew."""
    client, pauses = Client(), []
    client.metadata.add("a", client.now_ms)
    nobody = topic("a", view("a", 0, None, 5, error=ErrorCode.LEADER_NOT_AVAILABLE))
    for _ in range(6):
        client.refresh(nobody)
        pauses.append(client.metadata.next_update_ms(client.now_ms) - client.now_ms)
        client.now_ms += pauses[-1]
    assert pauses == [100, 100, 200, 400, 800, 1_000]

    client.refresh(topic("a", view("a", 0, 2, 6)))
    client.metadata.request_update()
    assert client.metadata.next_update_ms(client.now_ms) == client.now_ms + 100


def test_pauses_have_jitter_from_the_dice() -> None:
    """80 % to 120 %: a thousand clients do not return at the same moment. The same dice give the same pauses."""

    def pauses(seed: int) -> list[int]:
        backoff = ExponentialBackoff(100, 1_000, random.Random(seed))
        return [backoff.pause_ms(attempts) for attempts in range(5)]

    assert pauses(1) == pauses(1) != pauses(2)
    for seed in range(50):
        assert all(min(80 * 2**n, 800) <= pause <= min(120 * 2**n, 1_000) for n, pause in enumerate(pauses(seed)))
    assert ExponentialBackoff(100, 1_000).pause_ms(10**9) == 1_000


# --- interest, all topics, other clusters ----------------------------------------------------------------------------


def test_interest_in_a_topic_that_no_answer_names_ends_too() -> None:
    """A broker left topic "b" out of its answer: the interest in "b" ends after 5 minutes all the same."""
    client = Client().knows("a", "b")
    client.now_ms += 299_999
    client.metadata.add("a", client.now_ms)
    client.refresh_again(topic("a"))
    assert client.metadata.topics == {"a"}


def test_a_new_topic_does_not_expire_before_a_request_has_named_it() -> None:
    """No broker could be reached for six minutes. The topic that a caller waits for is asked for then."""
    client = Client()
    client.metadata.add("a", client.now_ms)
    plan = client.ask()
    client.metadata.add("b", client.now_ms)
    client.now_ms += 360_000
    client.metadata.update(plan, answer(topic("a")), client.now_ms)
    assert client.metadata.topics == {"b"}
    assert client.ask().topics == ("b",)


def test_a_client_of_all_topics_asks_for_all_and_keeps_all() -> None:
    """Without any interest. A topic that a full answer leaves out is gone; a wait for a known topic sends nothing."""
    client = Client()
    client.metadata = ClientMetadata([("boot", 9092)], all_topics=True)
    assert client.ask() == MetadataRequestPlan((), 0, False, True)
    client.refresh(topic("a"), topic("b"))
    assert client.metadata.cluster.topics == {"a", "b"}

    assert isinstance(WaitOnMetadata(client.metadata, "a", 0, client.now_ms).poll(client.now_ms), Waited)
    assert not client.metadata.update_requested
    assert WaitOnMetadata(client.metadata, "c", 0, client.now_ms).poll(client.now_ms) is None
    assert client.ask().topics == ("c",)
    client.refresh(topic("c"))
    assert client.metadata.cluster.topics == {"a", "b", "c"}

    client.refresh_again(topic("b"))
    assert client.metadata.cluster.topics == {"b"}


def test_listeners_of_the_cluster_hear_its_id_with_each_answer() -> None:
    """ClusterResourceListener. The view of the bootstrap addresses has no id, and is not told."""
    client, heard = Client(), list[ClusterResource]()
    client.metadata.subscribe_cluster(heard.append)
    client.metadata.rebootstrap()
    assert heard == []
    client.refresh()
    client.refresh_again()
    assert heard == [ClusterResource("cluster")] * 2


def test_what_was_seen_of_another_cluster_does_not_bind_the_client() -> None:
    """The address now belongs to another cluster, whose generation and epochs are lower: the client believes its answer. A
    partial answer of that cluster forces a full one, because it says nothing of the topics known before."""
    client = Client().knows("a")
    client.refresh_again(topic("a"), as_of=(7, 900))
    client.metadata.add("b", client.now_ms)
    other = answer(topic("b", view("b", 0, 2, 0)), as_of=(1, 10))._replace(cluster_id="other")
    client.metadata.update(client.ask(), other, client.now_ms)
    assert client.metadata.cluster.topics == {"b"}

    client.now_ms += 100
    assert client.ask().topics == ("a", "b")
    full = answer(topic("a", view("a", 0, 2, 0)), topic("b", view("b", 0, 2, 0)), as_of=(1, 11))
    client.metadata.update(client.ask(), full._replace(cluster_id="other"), client.now_ms)
    assert client.metadata.cluster.partitions[A0].leader_id == 2


def test_a_page_of_a_later_moment_has_a_version_of_its_own() -> None:
    """Topic "a" came with the page as of offset 20. An answer as of offset 15 with the former id of "a" is refused, although
    the first page of that request was as of offset 10."""
    client = Client()
    client.metadata.add("a", client.now_ms)
    client.refresh(topic("a", view("a", 0, 2, 0), topic_id=ANEW, as_of=ViewVersion(1, 20)), as_of=(1, 10))
    client.refresh_again(topic("a"), as_of=(1, 15))
    assert client.metadata.cluster.topic_ids["a"] == ANEW


@pytest.mark.parametrize("code", ErrorCode)
def test_an_error_that_points_to_stale_metadata_forces_a_refresh(code: ErrorCode) -> None:
    """A send found no leader, a connection broke, a request timed out, or a broker said that it does not lead. An error of the
    records forces nothing."""
    client = Client().knows("a")
    assert client.metadata.note_stale(code) == client.metadata.update_requested
    stale = {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.STORAGE_ERROR,
    }
    fine = {ErrorCode.NONE, ErrorCode.RECORD_BATCH_TOO_LARGE, ErrorCode.INVALID_REQUEST}
    assert code not in stale | fine or client.metadata.update_requested == (code in stale)


def test_a_partition_can_be_had_with_its_nodes() -> None:
    """Kafka's PartitionInfo: leader, replicas, ISR and offline replicas as nodes. A broker without a known address has none."""
    client = Client()
    client.metadata.add("a", client.now_ms)
    client.refresh(topic("a", view("a", 0, 1, 5, replicas=(1, 2, 3), isr=(1, 2), offline_replicas=(3,))))
    found = client.metadata.cluster.partition_nodes(A0)
    assert found is not None
    away = ClusterNode(3, "", -1)
    assert (found.leader, found.replicas, found.isr) == (NODES[0], (*NODES, away), NODES)
    assert found.offline_replicas == (away,)
    assert [node.has_address for node in found.replicas] == [True, True, False]
    assert client.metadata.cluster.partition_nodes(TopicPartition("a", 1)) is None
