"""Which node a client asks, when it asks again, and when it begins anew with the bootstrap addresses."""

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from clients.metadata.backoff import ExponentialBackoff
from clients.metadata.bootstrap import parse_bootstrap
from clients.metadata.node_states import NodeStates
from clients.metadata.refresher import Ask, ClientConfig, Problem, ProblemKind, Refresher
from metadata_log.format.errors import ErrorCode
from metaquorum import ClientMetadata, Cluster, ClusterNode, MetadataUpdate, TopicUpdate
from service_kit.process.endpoints import BadEndpoint

CLOSED = Problem(ProblemKind.NOT_CONNECTED, ErrorCode.BROKER_NOT_AVAILABLE, "b1:9092 cannot be reached")
LOST = Problem(ProblemKind.LOST, ErrorCode.REQUEST_TIMED_OUT, "b1:9092: the connection broke")
REFUSED = Problem(ProblemKind.REFUSED, ErrorCode.BROKER_NOT_AVAILABLE, "broker 1 is fenced")
DENIED = Problem(ProblemKind.FATAL, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no such client")


def cluster_of(*node_ids: int) -> Cluster:
    return Cluster(nodes={node_id: ClusterNode(node_id, f"b{node_id}", 9092) for node_id in node_ids})


class Client:
    """A refresher, and a clock. Its brokers are 1 and 2."""

    def __init__(self, **times: int) -> None:
        self.now_ms = 1_000_000
        self.metadata = ClientMetadata([("boot", 9092)])
        self.nodes = NodeStates(ExponentialBackoff(50, 1_000), random.Random(1))
        self.refresher = Refresher(self.metadata, self.nodes, ClientConfig(**times))

    def asks(self) -> Ask:
        """The next request, at its time."""
        for _ in range(3):
            ask = self.refresher.step(self.now_ms)
            if ask is not None:
                return ask
            self.now_ms = max(self.now_ms, self.refresher.next_ms(self.now_ms))
        raise AssertionError("no request was due at its time")

    def answers(self, ask: Ask, *topics: TopicUpdate) -> None:
        nodes = tuple(cluster_of(1, 2).nodes.values())
        self.refresher.answered(ask, MetadataUpdate("cluster", nodes, topics), self.now_ms)

    def fails(self, ask: Ask, problem: Problem = CLOSED) -> None:
        self.refresher.failed(ask, problem, self.now_ms)

    def started(self) -> "Client":
        self.answers(self.asks())
        return self


# --- bootstrap -------------------------------------------------------------------------------------------------------


def test_bootstrap_addresses_are_a_text_or_a_list() -> None:
    """IPv6 has brackets; spaces and repeated addresses do no harm. Names are the same in capitals."""
    assert parse_bootstrap("b1:9092, [::1]:9093,B1:9092") == (("b1", 9092), ("::1", 9093))
    assert parse_bootstrap(["10.0.0.1:9092", "b2.example.org:1"]) == (("10.0.0.1", 9092), ("b2.example.org", 1))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " , ",
        "b1",
        "b1:",
        ":9092",
        "b1:0",
        "b1:65536",
        "b1:x",
        "::1:9092",
        "b1:9092,,b2:9092",
        "b 1:9092",
        "0.0.0.0:1",
    ],
)
def test_a_bad_bootstrap_address_is_refused(text: str) -> None:
    """Before anything is sent, and with the text in the message."""
    with pytest.raises(BadEndpoint):
        parse_bootstrap(text)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({"request_timeout_ms": 0}, "request_timeout_ms is 0"),
        ({"retry_backoff_ms": 2_000}, "more than retry_backoff_max_ms"),
    ],
)
def test_times_that_make_no_sense_are_refused(times: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ClientConfig(**times)


# --- the least loaded node -------------------------------------------------------------------------------------------


def nodes_of(*node_ids: int, seed: int = 1) -> tuple[NodeStates, Cluster]:
    nodes, cluster = NodeStates(ExponentialBackoff(50, 1_000), random.Random(seed)), cluster_of(*node_ids)
    nodes.see(cluster)
    return nodes, cluster


def chosen(nodes: NodeStates, cluster: Cluster, now_ms: int = 0) -> int:
    node = nodes.least_loaded(cluster, now_ms)
    assert node is not None
    return node.node_id


def test_the_node_with_the_fewest_requests_in_flight_is_asked() -> None:
    """A producer's requests count, too: node 1 has two, node 2 one, node 3 three."""
    nodes, cluster = nodes_of(1, 2, 3)
    for node_id in (1, 1, 2, 3, 3, 3):
        nodes.sent(node_id)
    assert chosen(nodes, cluster) == 2
    nodes.finished(1)
    nodes.finished(1)
    assert chosen(nodes, cluster) == 1
    assert [nodes.in_flight(each) for each in (1, 2, 3)] == [0, 1, 3]


def test_among_equals_a_connected_node_is_asked_and_clients_differ() -> None:
    """A hundred clients of three brokers do not all begin with the same broker; each stays with its own."""
    firsts = set()
    for seed in range(100):
        nodes, cluster = nodes_of(1, 2, 3, seed=seed)
        first = chosen(nodes, cluster)
        nodes.connected(first)
        assert chosen(nodes, cluster) == first
        firsts.add(first)
    assert firsts == {1, 2, 3}


def test_a_node_that_failed_is_left_out_and_comes_last_afterwards() -> None:
    """reconnect.backoff.ms is 50, doubled with each failure up to 1 s. Of two nodes that may be tried again, the one whose
    failure is longer ago comes first."""
    nodes, cluster = nodes_of(1, 2)
    pauses, now_ms = [], 0
    for _ in range(7):
        nodes.failed(cluster.nodes[1], now_ms)
        assert chosen(nodes, cluster, now_ms) == 2
        pauses.append(nodes._nodes[1].retry_ms - now_ms)
        now_ms = nodes._nodes[1].retry_ms
    assert pauses == [50, 100, 200, 400, 800, 1_000, 1_000]

    nodes.failed(cluster.nodes[2], now_ms)
    assert chosen(nodes, cluster, now_ms + 1_000) == 1
    nodes.connected(1)
    nodes.failed(cluster.nodes[1], now_ms)
    assert nodes._nodes[1].retry_ms == now_ms + 50


def test_no_node_is_asked_while_all_are_left_out() -> None:
    """The first back-off that ends is the time of the next attempt."""
    nodes, cluster = nodes_of(1, 2)
    nodes.failed(cluster.nodes[1], 0)
    nodes.failed(cluster.nodes[2], 20)
    assert nodes.least_loaded(cluster, 49) is None
    assert nodes.next_try_ms(cluster) == 50
    assert chosen(nodes, cluster, 50) == 1


def test_a_node_that_moved_starts_anew_and_a_late_failure_of_its_old_address_is_ignored() -> None:
    """Broker 1 restarts on another machine: the failures of the former address say nothing about the new one."""
    nodes, cluster = nodes_of(1)
    nodes.failed(cluster.nodes[1], 0)
    assert nodes.least_loaded(cluster, 0) is None
    moved = Cluster(nodes={1: ClusterNode(1, "elsewhere", 9092)})
    assert chosen(nodes, moved) == 1
    nodes.failed(cluster.nodes[1], 0)
    assert chosen(nodes, moved) == 1


# --- requests --------------------------------------------------------------------------------------------------------


def test_one_request_is_in_flight_at_a_time() -> None:
    """The client waits for the answer or for request.timeout.ms (30 s), whatever is asked for meanwhile."""
    client = Client()
    ask = client.asks()
    assert ask.node.node_id == -1
    client.metadata.add("a", client.now_ms)
    assert client.refresher.step(client.now_ms) is None
    assert client.refresher.next_ms(client.now_ms) == client.now_ms + 30_000

    client.answers(ask)
    assert client.asks().plan.topics == ("a",)


def test_a_request_without_an_answer_is_given_up_and_its_late_answer_is_ignored() -> None:
    """After 30 s. A page of a long answer gives the node another 30 s."""
    client = Client().started()
    client.metadata.request_update()
    ask = client.asks()
    client.now_ms += 29_999
    assert client.refresher.late(client.now_ms) is None
    client.refresher.page_came(ask, client.now_ms)
    client.now_ms += 29_999
    assert client.refresher.late(client.now_ms) is None
    client.now_ms += 1
    assert client.refresher.late(client.now_ms) is ask

    client.fails(ask)
    version = client.metadata.update_version
    client.answers(ask)
    assert client.metadata.update_version == version
    assert client.asks().node.node_id != ask.node.node_id


@pytest.mark.parametrize(("problem", "pause_ms"), [(CLOSED, 0), (LOST, 100), (REFUSED, 0), (DENIED, 100)])
def test_every_failure_forces_a_refresh_from_another_node(problem: Problem, pause_ms: int) -> None:
    """The other node is asked for everything: at once without a connection or after a refusal, else after the back-off."""
    client = Client().started()
    client.metadata.request_update()
    first = client.asks()
    client.fails(first, problem)
    assert client.metadata.update_requested
    assert max(client.now_ms, client.refresher.next_ms(client.now_ms)) == client.now_ms + pause_ms
    second = client.asks()
    assert second.node.node_id != first.node.node_id
    assert not second.plan.is_partial


def test_a_broker_that_stops_is_not_asked_again_before_the_others() -> None:
    """Broker 1 stops, and has no requests in flight. It refuses, and broker 2 with its many requests is asked at once."""
    client = Client().started()
    for _ in range(5):
        client.nodes.sent(2)
    client.metadata.request_update()
    first = client.asks()
    assert first.node.node_id == 1
    began_ms = client.now_ms
    client.fails(first, REFUSED)
    second = client.asks()
    assert (second.node.node_id, client.now_ms) == (2, began_ms)


def test_without_a_node_to_ask_the_client_waits_for_the_reconnect_backoff() -> None:
    """Only one address is known, and nobody listens there: the client tries again after 50 ms, 100 ms, 200 ms, and so on."""
    client = Client()
    times = []
    for _ in range(7):
        ask = client.asks()
        times.append(client.now_ms)
        client.fails(ask)
    assert [after - before for before, after in pairwise(times)] == [50, 100, 200, 400, 800, 1_000]


# --- rebootstrap -----------------------------------------------------------------------------------------------------


def node_ids(client: Client) -> Iterator[int]:
    """The nodes of the next requests, which all fail."""
    while True:
        ask = client.asks()
        yield ask.node.node_id
        client.fails(ask)


def test_a_client_without_any_reachable_node_begins_again_with_the_bootstrap_addresses() -> None:
    """KIP-899: both brokers are gone, because the cluster has moved. The topics of interest and the seen epochs stay."""
    client = Client().started()
    client.metadata.add("a", client.now_ms)
    client.metadata.request_update()
    asked = [node_id for node_id, _ in zip(node_ids(client), range(3), strict=False)]
    assert sorted(asked[:2]) == [1, 2]
    assert asked[2] == -1
    assert client.metadata.cluster.is_bootstrap
    assert client.metadata.topics == {"a"}


def test_a_client_keeps_its_view_while_a_broker_refuses() -> None:
    """All leases have lapsed, because no controller leads. The brokers are there: the view stays, and they are asked again."""
    client = Client().started()
    client.metadata.request_update()
    for _ in range(20):
        ask = client.asks()
        assert ask.node.node_id in (1, 2)
        client.fails(ask, REFUSED)
    assert not client.metadata.cluster.is_bootstrap


def test_a_client_that_only_hears_refusals_for_long_begins_again() -> None:
    """KIP-1102: after five minutes without an answer, the known addresses may belong to something else."""
    client = Client(rebootstrap_trigger_ms=10_000).started()
    client.metadata.request_update()
    begun_ms = None
    while not client.metadata.cluster.is_bootstrap:
        client.fails(client.asks(), REFUSED)
        begun_ms = client.now_ms if begun_ms is None else begun_ms
    assert begun_ms is not None and 10_000 <= client.now_ms - begun_ms <= 12_000


def test_an_answer_without_any_broker_is_a_failure() -> None:
    """A broker whose cache is empty knows no broker. The client keeps its view, and asks another broker after the back-off."""
    client = Client().started()
    client.metadata.request_update()
    ask = client.asks()
    client.refresher.answered(ask, MetadataUpdate("cluster", (), ()), client.now_ms)
    assert set(client.metadata.cluster.nodes) == {1, 2}
    assert client.metadata.last_problem == f"broker {ask.node.node_id} at b{ask.node.node_id}:9092 knows no live broker"
    assert client.asks().node.node_id != ask.node.node_id
