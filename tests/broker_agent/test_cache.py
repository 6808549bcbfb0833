"""The metadata cache against a twin that is too dumb to be wrong: plain dictionaries, rebuilt from nothing each time."""

import random
from typing import Any

from broker_agent import convert
from broker_agent.cache import MetadataCache, MetadataView, Node
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, ZERO_UUID
from metadata_log.format.records import (
    FROM_OFFSET,
    RECOVERED,
    BrokerRegistrationChange,
    Endpoint,
    FeatureLevel,
    MetadataRecord,
    Partition,
    PartitionChange,
    RegisterBroker,
    RemoveTopic,
    Topic,
)
from metadata_log.image.changes import Changes
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance


class Cluster:
    """A log of its own: records in, cache swapped."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.cache = MetadataCache()

    def write(self, *records: MetadataRecord) -> Any:
        delta = MetadataDelta(self.image)
        offset = self.image.offset
        for record in records:
            delta.replay(record, offset)
            offset += 1
        self.image = delta.finish(Provenance(offset, 1, 1_000 + offset))
        return self.cache.swap(self.image, delta.changed)

    def view(self) -> MetadataView:
        return self.cache.current


def broker(broker_id: int, *listeners: str, fenced: bool = False, log_dirs: tuple[bytes, ...] = ()) -> RegisterBroker:
    endpoints = tuple(Endpoint(listener, f"b{broker_id}", 9092 + index) for index, listener in enumerate(listeners))
    incarnation = bytes([broker_id % 256]) * 16
    return RegisterBroker(
        broker_id, incarnation, endpoints, (), f"r{broker_id % 2}", fenced, False, log_dirs, FROM_OFFSET
    )


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")


def partition(name: str, number: int, replicas: tuple[int, ...], leader: int, **fields: Any) -> Partition:
    isr = fields.pop("isr", replicas)
    directories = fields.pop("directories", ())
    return Partition(topic_id(name), number, replicas, isr, (), (), leader, RECOVERED, 0, 0, directories)


def three_brokers() -> Cluster:
    cluster = Cluster()
    cluster.write(broker(1, "PLAIN", "TLS"), broker(2, "PLAIN"), broker(3, "PLAIN", "TLS", fenced=True))
    cluster.write(Topic("a", topic_id("a")), partition("a", 0, (1, 2, 3), 1), partition("a", 1, (2, 3), 2))
    return cluster


def test_a_fenced_broker_is_left_out_of_everything_that_clients_are_told() -> None:
    """No node, no endpoint, its replicas offline."""
    view = three_brokers().view()

    assert list(view.alive_brokers()) == [1, 2]
    assert view.alive_nodes("PLAIN") == (Node(1, "b1", 9092, "r1"), Node(2, "b2", 9092, "r0"))
    assert view.node(3, "PLAIN") is None
    assert view.replica_endpoints("a", 0, "PLAIN").keys() == {1, 2}
    assert view.offline_replicas("a", 0) == (3,)


def test_eligible_leaders_are_told_with_their_partition() -> None:
    """KIP-966: a client sees who may lead a partition that has no leader, and who led it last."""
    cluster = three_brokers()
    cluster.write(FeatureLevel("metadata.version", 2))
    change = PartitionChange(topic_id("a"), 0, isr=(), leader=NO_LEADER, elr=(2, 3), last_known_elr=(1,))
    cluster.write(change)
    info = cluster.view().partition_info("a", 0, "PLAIN")
    assert info is not None
    assert (info.leader_id, info.isr, info.elr, info.last_known_elr) == (None, (), (2, 3), (1,))
    told = convert.partition(info)
    assert (list(told.elr), list(told.last_known_elr)) == ([2, 3], [1])
    assert told.partition_epoch == info.partition_epoch == 1


def test_why_a_leader_cannot_be_reached_is_told_apart() -> None:
    """No leader, or a dead one: LEADER_NOT_AVAILABLE. A live one without that listener: LISTENER_NOT_FOUND."""
    cluster = three_brokers()
    assert cluster.view().leader_endpoint("a", 0, "TLS") == (ErrorCode.NONE, Node(1, "b1", 9093, "r1"))
    assert cluster.view().leader_endpoint("a", 1, "TLS") == (ErrorCode.LISTENER_NOT_FOUND, None)
    assert cluster.view().leader_endpoint("b", 0, "TLS") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)

    cluster.write(PartitionChange(topic_id("a"), 1, leader=NO_LEADER))
    assert cluster.view().leader_endpoint("a", 1, "PLAIN") == (ErrorCode.LEADER_NOT_AVAILABLE, None)

    epoch = cluster.image.brokers[1].broker_epoch
    cluster.write(BrokerRegistrationChange(1, epoch, fenced=True))
    assert cluster.view().leader_endpoint("a", 0, "PLAIN") == (ErrorCode.LEADER_NOT_AVAILABLE, None)


def test_a_replica_in_a_directory_that_its_broker_lost_is_offline() -> None:
    """KIP-858. A replica that was not assigned to a directory yet is not."""
    good, lost = b"g" * 16, b"l" * 16
    cluster = Cluster()
    cluster.write(FeatureLevel("metadata.version", 2))
    cluster.write(broker(1, "PLAIN", log_dirs=(good,)), broker(2, "PLAIN", log_dirs=(good,)))
    cluster.write(Topic("a", topic_id("a")), partition("a", 0, (1, 2), 1, directories=(good, lost)))
    cluster.write(Topic("b", topic_id("b")), partition("b", 0, (1, 2), 1, directories=(ZERO_UUID, good)))

    assert cluster.view().offline_replicas("a", 0) == (2,)
    assert cluster.view().offline_replicas("b", 0) == ()


def test_a_reader_keeps_what_it_began_with() -> None:
    """Two questions to one view are never answered from two versions, whatever was swapped in between."""
    cluster = three_brokers()
    view = cluster.view()
    cluster.write(RemoveTopic("a", topic_id("a")))

    assert view.contains("a", 1)
    assert not cluster.view().contains("a")


def test_deleted_partitions_are_reported_once_and_with_their_topics_id() -> None:
    """A topic that was deleted and created again under its name is another topic."""
    cluster = three_brokers()
    swapped = cluster.write(RemoveTopic("a", topic_id("a")), Topic("a", topic_id("a2")), partition("a2", 0, (1,), 1))

    assert [tuple(each) for each in swapped.deleted] == [("a", topic_id("a"), 0), ("a", topic_id("a"), 1)]
    assert cluster.view().topic_id("a") == topic_id("a2")


def test_listeners_that_differ_are_warned_of_when_a_broker_changes() -> None:
    """Clients of TLS would not reach leaders on broker 2."""
    cluster = Cluster()
    swapped = cluster.write(broker(1, "PLAIN", "TLS"), broker(2, "PLAIN"))
    assert swapped.listeners_that_differ == {"TLS": (2,)}

    swapped = cluster.write(Topic("a", topic_id("a")), partition("a", 0, (1,), 1))
    assert swapped.listeners_that_differ == {}


def test_the_controller_that_clients_see_stays_the_same_while_it_lives() -> None:
    """It is a live broker; another one coming or going changes nothing."""
    cluster = three_brokers()
    assert cluster.view().controller_id() == 1
    cluster.write(broker(4, "PLAIN"))
    assert cluster.view().controller_id() == 1

    cluster.write(BrokerRegistrationChange(1, cluster.image.brokers[1].broker_epoch, fenced=True))
    assert cluster.view().controller_id() == 2
    assert MetadataCache().current.controller_id() is None


def test_a_view_costs_what_changed() -> None:
    """The next view shares everything with its predecessor, also what was gathered over all brokers. A change of brokers alone
    keeps the partitions."""
    cluster = three_brokers()
    alive = cluster.view().alive_brokers()
    cluster.write(PartitionChange(topic_id("a"), 0, isr=(1, 2)))
    assert cluster.view().alive_brokers() is alive

    before = cluster.view()
    cluster.write(broker(5, "PLAIN"))
    assert 5 in cluster.view().alive_brokers()
    assert cluster.view().partition_info("a", 0, "PLAIN") == before.partition_info("a", 0, "PLAIN") is not None


def twin(image: MetadataImage, listener: str) -> dict[str, Any]:
    """What clients must be told, worked out from the canonical records alone."""
    brokers = {each.broker_id: each for each in image.canonical_records() if isinstance(each, RegisterBroker)}
    alive = {broker_id for broker_id, each in brokers.items() if not each.fenced}
    reachable = {
        broker_id: (endpoint.host, endpoint.port)
        for broker_id in alive
        for endpoint in brokers[broker_id].endpoints
        if endpoint.listener == listener
    }
    names = {each.topic_id: each.name for each in image.canonical_records() if isinstance(each, Topic)}
    partitions = {}
    for each in image.canonical_records():
        if isinstance(each, Partition):
            if each.leader not in alive:
                error = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                error = ErrorCode.NONE if each.leader in reachable else ErrorCode.LISTENER_NOT_FOUND
            offline = tuple(replica for replica in each.replicas if replica not in alive)
            partitions[names[each.topic_id], each.partition] = (
                error,
                each.leader,
                (each.leader_epoch, each.partition_epoch),
                each.isr,
                offline,
            )
    return {"topics": sorted(names.values()), "nodes": reachable, "partitions": partitions}


def as_told(view: MetadataView, listener: str) -> dict[str, Any]:
    partitions = {}
    for name in view.all_topics():
        head, told = view.topic_head(name), [*view.partition_infos(name, 0, listener)]
        assert head is not None and head.partition_count == len(told)
        for each in told:
            leader = NO_LEADER if each.leader_id is None else each.leader_id
            epochs = (each.leader_epoch, each.partition_epoch)
            partitions[name, each.partition] = (each.error, leader, epochs, each.isr, each.offline_replicas)
            assert view.partition_info(name, each.partition, listener) == each
    nodes = {node.broker_id: (node.host, node.port) for node in view.alive_nodes(listener)}
    return {"topics": [*view.all_topics()], "nodes": nodes, "partitions": partitions}


def check_look_ups(view: MetadataView, image: MetadataImage, listener: str) -> None:
    """Each question about one topic or partition, also about those that are not there, against the twin's records."""
    reachable = twin(image, listener)["nodes"]
    alive = {
        each.broker_id for each in image.canonical_records() if isinstance(each, RegisterBroker) and not each.fenced
    }
    assert view.alive_brokers().keys() == alive
    for record in image.canonical_records():
        match record:
            case Topic(name, its_id):
                count = view.partition_count(name)
                assert count is not None and view.contains(name)
                assert (view.topic_id(name), view.topic_name(its_id)) == (its_id, name)
                assert not any(view.contains(name, number) for number in (-1, count))
                assert view.partition_info(name, count, listener) is None
                assert view.replica_endpoints(name, count, listener) == {}
            case Partition(its_id, number, replicas):
                of = view.topic_name(its_id)
                assert of is not None and view.contains(of, number)
                found = view.replica_endpoints(of, number, listener)
                assert {each: (node.host, node.port) for each, node in found.items()} == {
                    each: reachable[each] for each in replicas if each in reachable
                }
                assert view.offline_replicas(of, number) == tuple(each for each in replicas if each not in alive)
    assert not view.contains("nowhere") and view.partition_info("nowhere", 0, listener) is None
    assert view.topic_id("nowhere") is None and view.topic_name(b"n" * 16) is None
    assert view.partition_count("nowhere") is None


def step(cluster: Cluster, rng: random.Random, names: list[str]) -> MetadataRecord | None:
    """One random change that fits."""
    image = cluster.image
    topics = [*image.topics()]
    match rng.randrange(5):
        case 0:
            listeners = rng.choice([("PLAIN",), ("PLAIN", "TLS")])
            return broker(rng.randrange(8), *listeners, fenced=rng.random() < 0.3)
        case 1 if image.brokers:
            known = image.brokers[rng.choice([*image.brokers])]
            return BrokerRegistrationChange(known.broker_id, known.broker_epoch, fenced=not known.fenced)
        case 2:
            fresh = f"{rng.choice('xyz')}{len(names)}"
            names.append(fresh)
            return Topic(fresh, topic_id(fresh))
        case 3 if topics and image.brokers:
            topic = rng.choice(topics)
            replicas = tuple(rng.sample([*image.brokers], rng.randint(1, len(image.brokers))))
            return partition(topic.name, topic.partition_count, replicas, rng.choice([NO_LEADER, *replicas]))
        case 4 if topics:
            topic = rng.choice(topics)
            if topic.partition_count == 0 or rng.random() < 0.2:
                return RemoveTopic(topic.name, topic.topic_id)
            number = rng.randrange(topic.partition_count)
            found = topic.partition(number)
            assert found is not None
            isr = tuple(rng.sample(found.replicas, rng.randint(1, len(found.replicas))))
            return PartitionChange(topic.topic_id, number, isr=isr, leader=rng.choice([NO_LEADER, *isr]))
    return None


def test_the_cache_says_what_the_twin_says_at_every_offset() -> None:
    """Wrapped, shared and gathered lazily: none of that may ever show."""
    for seed in range(20):
        rng = random.Random(seed)
        cluster, names = Cluster(), list[str]()
        for _ in range(60):
            record = step(cluster, rng, names)
            if record is None:
                continue
            gone_before = {(t.name, t.topic_id, n) for t in cluster.image.topics() for n in range(t.partition_count)}
            swapped = cluster.write(record)
            here = {(t.name, t.topic_id, n) for t in cluster.image.topics() for n in range(t.partition_count)}
            assert {tuple(each) for each in swapped.deleted} == gone_before - here
            for listener in ("PLAIN", "TLS"):
                assert as_told(cluster.view(), listener) == twin(cluster.image, listener)
                check_look_ups(cluster.view(), cluster.image, listener)


def test_a_swap_by_difference_is_as_good_as_one_by_deltas() -> None:
    """After a snapshot was loaded nobody has the deltas: the difference is worked out from the two images."""
    cluster = three_brokers()
    later = Cluster()
    later.write(*cluster.image.brokers.values())
    later.write(broker(6, "PLAIN"), broker(7, "PLAIN"), broker(8, "PLAIN"))
    swapped = cluster.cache.swap(later.image, Changes.between(cluster.image, later.image))

    assert [each.topic for each in swapped.deleted] == ["a", "a"]
    assert 6 in cluster.view().alive_brokers()
