"""What clients are told of the cluster as a whole: brokers, features, and configs, in pages."""

from typing import Any

import pytest
from quorum_rpc.v1 import broker_pb2, client_pb2

from broker_agent.cluster_pages import RESOURCES_MAX
from broker_agent.metadata_pages import PAGE_BYTES_MAX
from broker_agent.session.lifecycle import BrokerState
from broker_agent.wire import ClusterMetadata
from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import (
    BROKER_RESOURCE,
    METADATA_VERSION,
    TOPIC_RESOURCE,
    BrokerRegistrationChange,
    Config,
    FeatureLevel,
    UnregisterBroker,
)
from service_kit.rpc.grpc_options import MESSAGE_BYTES_MAX
from tests.broker_agent.test_cache import Cluster, broker
from tests.broker_agent.test_metadata_pages import LISTENER, Broker, cluster_of
from tests.quorum.wire.calling import Context
from tests.quorum.wire.refusing import code_of, refusal_of


async def status(cluster: Cluster, **fields: Any) -> client_pb2.ClusterStatusResponse:
    request = client_pb2.ClusterStatusRequest(**fields)
    return await ClusterMetadata(Broker(cluster), LISTENER).ClusterStatus(request, Context(request))


async def configs(cluster: Cluster, *resources: tuple[int, str], **fields: Any) -> client_pb2.ConfigsResponse:
    owners = [client_pb2.ConfigOwner(resource_type=kind, name=name) for kind, name in resources]
    request = client_pb2.ConfigsRequest(resources=owners, **fields)
    return await ClusterMetadata(Broker(cluster), LISTENER).Configs(request, Context(request))


# --- the cluster -----------------------------------------------------------------------------------------------------


async def test_the_status_names_every_registered_broker_and_every_feature() -> None:
    """Also brokers that are fenced or stopping, which clients cannot reach; as of one offset, with the size of the cluster."""
    cluster = cluster_of(a=3, b=1)
    cluster.write(broker(7, LISTENER, "TLS", fenced=True), broker(8, LISTENER), FeatureLevel(METADATA_VERSION, 2))
    cluster.write(BrokerRegistrationChange(8, cluster.image.brokers[8].broker_epoch, in_controlled_shutdown=True))
    told = await status(cluster)
    assert (told.cluster_id, told.generation, told.as_of_offset) == ("cluster", 3, cluster.image.offset)
    assert (told.topics, told.partitions, told.controller_id) == (2, 4, 1)
    assert {each.name: each.level for each in told.features} == {METADATA_VERSION: 2}
    assert {each.broker_id: each.state for each in told.brokers} == {
        1: broker_pb2.ONLINE,
        2: broker_pb2.ONLINE,
        7: broker_pb2.FENCED,
        8: broker_pb2.STOPPING,
    }
    fenced = told.brokers[2]
    assert [(each.listener, each.host, each.port) for each in fenced.endpoints] == [
        (LISTENER, "b7", 9092),
        ("TLS", "b7", 9093),
    ]
    assert (fenced.rack, fenced.broker_epoch) == ("r1", cluster.image.brokers[7].broker_epoch)


async def test_the_status_of_a_large_cluster_comes_in_pages() -> None:
    """Every broker once; a broker that is unregistered between two pages is passed over."""
    cluster = Cluster()
    cluster.write(*[broker(each, LISTENER) for each in range(1, 11)])
    for size in (1, 3, 10, 0, 10**6):
        found, token = list[int](), b""
        while True:
            told = await status(cluster, page_size=size, page_token=token)
            found += [each.broker_id for each in told.brokers]
            token = told.next_page_token
            if not token:
                break
        assert found == list(range(1, 11))
    first = await status(cluster, page_size=5)
    cluster.write(UnregisterBroker(5, 4), UnregisterBroker(6, 5))
    assert (await status(cluster, page_size=5, page_token=first.next_page_token)).brokers[0].broker_id == 7


# --- configs ---------------------------------------------------------------------------------------------------------


async def test_configs_are_those_that_were_set() -> None:
    """By key, for topics, one broker and all brokers. A resource without configs has none; one that cannot be has an error."""
    cluster = cluster_of(a=1, b=1)
    cluster.write(
        Config(TOPIC_RESOURCE, "a", "retention.ms", "60000"),
        Config(TOPIC_RESOURCE, "a", "cleanup.policy", "delete"),
        Config(BROKER_RESOURCE, "", "min.insync.replicas", "2"),
    )
    asked = [(2, "a"), (2, "b"), (4, ""), (4, "1"), (2, "nowhere"), (4, "one"), (9, "a"), (2, "a")]
    told = await configs(cluster, *asked)
    assert (told.generation, told.as_of_offset, told.next_page_token) == (3, cluster.image.offset, b"")
    assert [(each.resource.resource_type, each.resource.name) for each in told.resources] == asked[:-1]
    found = [{each.key: each.value for each in resource.configs} for resource in told.resources]
    assert found == [
        {"cleanup.policy": "delete", "retention.ms": "60000"},
        {},
        {"min.insync.replicas": "2"},
        {},
        {},
        {},
        {},
    ]
    assert list(found[0]) == ["cleanup.policy", "retention.ms"]
    wrong = ErrorCode.INVALID_REQUEST
    codes = [ErrorCode(each.error.code) for each in told.resources]
    assert codes == [ErrorCode.NONE] * 4 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wrong, wrong]


async def test_configs_come_in_pages_bounded_by_number_and_bytes() -> None:
    """Every resource once, in the order of the request, however often it is repeated there."""
    names = [f"t{n}" for n in range(7)]
    cluster = cluster_of(**dict.fromkeys(names, 1))
    for name in names:
        cluster.write(
            Config(TOPIC_RESOURCE, name, "follower.replication.throttled.replicas", "x" * (PAGE_BYTES_MAX // 3))
        )
    asked = [(TOPIC_RESOURCE, name) for name in (*names, *names)]
    for size, pages in ((1, 7), (2, 4), (0, 3)):
        told = [await configs(cluster, *asked, page_size=size)]
        while told[-1].next_page_token:
            told.append(await configs(cluster, *asked, page_size=size, page_token=told[-1].next_page_token))
        assert [each.resource.name for page in told for each in page.resources] == names
        assert len(told) == pages
        assert all(page.ByteSize() < MESSAGE_BYTES_MAX // 2 for page in told)
    assert (await configs(cluster)).resources == []


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields", [{"page_size": -1}, {"page_token": b"x"}, {"page_token": b"9" * 11}, {"page_token": b"-1"}]
)
async def test_a_request_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    for asking in (status(cluster_of(a=1), **fields), configs(cluster_of(a=1), (2, "a"), **fields)):
        assert (await refusal_of(asking)).reason == "INVALID_REQUEST"


async def test_too_many_resources_are_refused() -> None:
    many = [(TOPIC_RESOURCE, "a")] * (RESOURCES_MAX + 1)
    assert "send several requests" in (await refusal_of(configs(cluster_of(a=1), *many))).message


CLIENTS_CALLS = [method.name for method in client_pb2.DESCRIPTOR.services_by_name["ClusterMetadataService"].methods]


def asked(service: ClusterMetadata, name: str, **fields: Any) -> Any:
    """A call of the method with this name."""
    request = getattr(client_pb2, f"{name}Request")(**fields)
    return getattr(service, name)(request, Context(request))


@pytest.mark.parametrize("name", [name for name in CLIENTS_CALLS if name != "BrokerStatus"])
async def test_a_broker_that_may_not_serve_answers_no_client(name: str) -> None:
    """Whatever the client asks, also by a method of tomorrow: a broker that is fenced, or whose lease has lapsed, names its state
    and the reason. It says so before it says that it has not applied the wanted offset."""
    here = Broker(cluster_of(a=1))
    service = ClusterMetadata(here, LISTENER)
    assert (await asked(service, name)).generation == 3
    here.serves = False
    for state in (BrokerState.OFFLINE, BrokerState.FENCED, BrokerState.STOPPING, BrokerState.ONLINE):
        here.state = state
        here.lease_lapsed = state is BrokerState.ONLINE
        refusal = await refusal_of(asked(service, name, min_offset=10**9))
        assert refusal.reason == "BROKER_NOT_AVAILABLE"
        why = ", and hears no controller: its lease has lapsed" if here.lease_lapsed else ": it was told so"
        assert refusal.message == f"broker 1 is {state.name.lower()}{why}; ask another node"
    here.serves = True
    assert await code_of(asked(service, name, min_offset=10**9)) is ErrorCode.NOT_READY


async def test_a_broker_in_any_state_tells_its_own_status() -> None:
    """Operators and probes ask for it when something is wrong."""
    here = Broker(cluster_of(a=1))
    here.serves = False
    for state in BrokerState:
        here.state = state
        assert (await asked(ClusterMetadata(here, LISTENER), "BrokerStatus")).state == state.value
