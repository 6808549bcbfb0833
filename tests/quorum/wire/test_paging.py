"""Lists in pages: one way for all methods, and the client asks for all pages by itself."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import grpc
import pytest
from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc, client_pb2, entity_pb2

from metadata_log.format.records import ConfigDefinition, QuotaEntity
from metaquorum import AdminClient, Incomplete
from quorum.controller.protocol.config_commands import AlterConfigKeys
from quorum.controller.protocol.label_commands import AlterLabels, LabelAlteration
from quorum.controller.protocol.reassignment_commands import AlterPartitionReassignments, Reassignment
from quorum.controller.protocol.rights.acl_commands import AclBinding, CreateAcls
from quorum.controller.protocol.rights.quota_commands import AlterClientQuotas, QuotaAlteration, QuotaOperation
from quorum.controller.protocol.rights.scram_commands import AlterUserScramCredentials, ScramAlteration, ScramSecrets
from quorum.controller.protocol.topic_commands import NewTopic
from quorum.controller.topics.described_configs import EFFECTIVE_PAGE_MAX, RESOURCES_PAGE_MAX
from service_kit.rpc.api_methods import ADMIN, API, Kind
from tests.quorum.wire.fake_node import FakeNode
from tests.quorum.wire.refusing import refusal_of

SERVICES = (
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"],
    client_pb2.DESCRIPTOR.services_by_name["ClusterMetadataService"],
    entity_pb2.DESCRIPTOR.services_by_name["EntityService"],
)
SMALL = {
    "DescribeCluster",
    "DescribeFeatures",
    "DescribePartitionHealth",
    "DescribeQuorum",
    "CanRestart",
    "ListSnapshots",
    "BrokerStatus",
    "GetEntities",
}
"""The reads without pages, because the answer never exceeds 1,000 items in a list, or 1 MiB."""


def test_every_read_is_paged_in_one_way() -> None:
    """`page_size` and `page_token`, answered with `next_page_token`; a new read is paged, or is named above as small."""
    found = {}
    for service in SERVICES:
        for method in service.methods:
            if API[service.name][method.name] is Kind.READ and method.name not in SMALL and not method.server_streaming:
                fields, answered = method.input_type.fields_by_name, method.output_type.fields_by_name
                is_paged = {"page_size", "page_token"} <= set(fields.keys()) and "next_page_token" in answered
                assert is_paged, (
                    f"{method.name}: give it page_size, page_token and next_page_token, or, if the answer never "
                    "exceeds 1,000 items in a list, or 1 MiB, name it in SMALL of this file"
                )
                types = (fields["page_size"].type, fields["page_token"].type, answered["next_page_token"].type)
                found[method.name] = types
    assert set(found) == {
        "ListTopics",
        "DescribeTopics",
        "DescribeConfigs",
        "DescribeConfigKeys",
        "ListLabels",
        "ListBrokers",
        "ListPartitions",
        "ListPartitionReassignments",
        "DescribeClientQuotas",
        "DescribeAcls",
        "DescribeUserScramCredentials",
        "Metadata",
        "ClusterStatus",
        "Configs",
        "ListEntities",
        "DescribeKinds",
        "ListSessions",
    }
    assert len(set(found.values())) == 1, found
    assert not SMALL - {*ADMIN, *API["ClusterMetadataService"], *API["EntityService"]}


def _topic(name: str) -> admin_pb2.ConfigResource:
    return admin_pb2.ConfigResource(resource_type=2, name=name)


NAMES = ("a", "b", "c", "d", "e")
LISTS: dict[str, Callable[[AdminClient, int], AsyncIterator[Any]]] = {
    "topics": lambda client, size: client.topics(size),
    "topics with partitions": lambda client, size: client.described_topics(NAMES, size),
    "partitions": lambda client, size: client.partitions(page_size=size),
    "configs": lambda client, size: client.described_configs([*map(_topic, NAMES)], size),
    "config keys": lambda client, size: client.config_keys(size),
    "labels": lambda client, size: client.labels(page_size=size),
    "topics with a label": lambda client, size: client.topics(size, label="team"),
    "brokers": lambda client, size: client.brokers(size),
    "reassignments": lambda client, size: client.reassignments(size),
    "quotas": lambda client, size: client.client_quotas(page_size=size),
    "users": lambda client, size: client.scram_users(size),
    "ACLs": lambda client, size: client.acls(page_size=size),
}


@pytest.mark.parametrize("what", LISTS)
async def test_pages_of_any_size_together_are_the_whole_list(client: AdminClient, node: FakeNode, what: str) -> None:
    for name in NAMES:
        node.cluster.create(name, 3, 3)
    node.cluster.register(7)
    moved = [Reassignment(name, number, (0, 1, 2, 7)) for name, number in zip("bbdae", (2, 0, 1, 0, 2), strict=True)]
    node.cluster.run(AlterPartitionReassignments(tuple(moved)))
    quota = (QuotaOperation("producer_byte_rate", 1.0),)
    node.cluster.run(AlterClientQuotas(tuple(QuotaAlteration((QuotaEntity("user", name),), quota) for name in NAMES)))
    node.cluster.run(CreateAcls(tuple(AclBinding(2, name, 3, "User:alice", "*", 3, 3) for name in NAMES)))
    definitions = [ConfigDefinition(4 - 2 * (name > "b"), f"acme.{name}", False, "text", "") for name in NAMES]
    node.cluster.run(AlterConfigKeys(tuple(definitions)))
    labelled = [
        LabelAlteration(2, "a"),
        LabelAlteration(2, "b"),
        LabelAlteration(2, "b", 0),
        LabelAlteration(2, "b", 2),
    ]
    labelled += [LabelAlteration(4, "1"), *(LabelAlteration(2, name) for name in "cde")]
    changes = (("team", "x"), ("tier", ""))
    node.cluster.run(AlterLabels(tuple(replace(each, changes=changes) for each in labelled)))
    secrets = ScramSecrets(4_096, b"salt", bytes(32), bytes(32))
    node.cluster.run(AlterUserScramCredentials(tuple(ScramAlteration(name, 1, secrets) for name in NAMES)))
    whole = [each.SerializeToString() async for each in LISTS[what](client, 0)]
    assert len(whole) == {"brokers": 4, "partitions": 15, "labels": 8}.get(what, 5)
    for page_size in (1, 2, 3, 4, 7, 1 << 30):
        assert [each.SerializeToString() async for each in LISTS[what](client, page_size)] == whole


async def test_a_page_is_no_larger_than_its_maximum(client: AdminClient, node: FakeNode) -> None:
    """A client that wants more gets the maximum, and a token."""
    resources = [_topic("a")] * (RESOURCES_PAGE_MAX + 1)
    page = await client.describe_configs(resources, page_size=1 << 30)
    assert (len(page.resources), page.next_page_token) == (RESOURCES_PAGE_MAX, b"1000")
    assert len([each async for each in client.described_configs(resources)]) == len(resources)

    several = [_topic("a")] * (EFFECTIVE_PAGE_MAX + 1)
    request = admin_pb2.DescribeConfigsRequest(resources=several, with_defaults=True)
    page = await client.call(request, admin_pb2.DescribeConfigsResponse)
    assert len(page.resources) == EFFECTIVE_PAGE_MAX
    assert len([each async for each in client.described_configs(several, with_defaults=True)]) == len(several)


async def test_a_page_of_configs_ends_where_it_has_enough_keys(client: AdminClient, node: FakeNode) -> None:
    """A resource may have 200 values of keys that an embedder has defined: six such topics are two pages."""
    node.cluster.run(AlterConfigKeys((ConfigDefinition(2, "acme.", True, "text", ""),)))
    configs = tuple((f"acme.k{number}", "") for number in range(200))
    for number in range(6):
        assert node.cluster.create_one(NewTopic(f"t{number}", 1, 1, configs=configs)).message == ""
    resources = [_topic(f"t{number}") for number in range(6)]
    page = await client.describe_configs(resources)
    assert len(page.resources) == 5 and page.next_page_token
    assert len([each async for each in client.described_configs(resources)]) == 6


async def test_a_topic_that_goes_between_two_pages_moves_no_other(client: AdminClient, node: FakeNode) -> None:
    """The token is the last name, which need not exist any more."""
    for name in NAMES:
        node.cluster.create(name, 1, 3)
    seen = []
    async for topic in client.topics(2):
        seen.append(topic.name)
        if topic.name == "b":
            await client.delete_topics(["a", "b"])
    assert seen == list(NAMES)


async def test_a_topic_that_is_made_anew_between_two_pages_is_described_anew(
    client: AdminClient, node: FakeNode
) -> None:
    """Halves of two topics are no topic."""
    node.cluster.create("a", 5, 3)
    first = await client.describe_topics(["a"], page_size=3)
    await client.delete_topics(["a"])
    node.cluster.create("a", 4, 3)
    second = await client.describe_topics(["a"], page_token=first.next_page_token)
    assert first.topics[0].topic_id != second.topics[0].topic_id
    assert [each.partition for each in second.topics[0].partitions] == [0, 1, 2, 3]


async def test_a_bad_page_size_is_refused_by_name(channel: grpc.aio.Channel) -> None:
    stub: Any = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
    refusal = await refusal_of(stub.ListTopics(admin_pb2.ListTopicsRequest(page_size=-7)))
    assert (refusal.reason, "page_size is -7" in refusal.message) == ("INVALID_REQUEST", True)


async def test_a_token_of_another_list_is_refused_by_name(channel: grpc.aio.Channel) -> None:
    stub: Any = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
    refusal = await refusal_of(stub.ListBrokers(admin_pb2.ListBrokersRequest(page_token=b"orders")))
    assert (refusal.reason, "page_token" in refusal.message) == ("INVALID_REQUEST", True)


async def test_a_client_of_0_1_0_finds_the_next_page(channel: grpc.aio.Channel, node: FakeNode) -> None:
    """It reads `more`, and sends the last name, or the number of the next partition, where this release has tokens."""
    for name in NAMES:
        node.cluster.create(name, 3, 3)
    stub: Any = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
    page = await stub.ListTopics(admin_pb2.ListTopicsRequest(page_size=2))
    assert page.more
    rest = await stub.ListTopics(admin_pb2.ListTopicsRequest(page_token=page.topics[-1].name.encode()))
    assert ([each.name for each in rest.topics], rest.more) == (["c", "d", "e"], False)
    half = await stub.DescribeTopics(admin_pb2.DescribeTopicsRequest(names=["a"], first_partition=2))
    assert [each.partition for each in half.topics[0].partitions] == [2]


async def test_a_page_of_0_1_0_has_a_next_one(client: AdminClient, node: FakeNode) -> None:
    """Such a controller sends no token. It takes the last name for one, and the number of the next partition."""
    for name in NAMES:
        node.cluster.create(name, 1, 3)
    call = client.call

    async def without_token(request: Any, response_type: Any, *, repeatable: bool = True) -> Any:
        page = await call(request, response_type, repeatable=repeatable)
        page.ClearField("next_page_token")
        return page

    client.call = without_token  # type: ignore[method-assign]
    assert [each.name async for each in client.topics(2)] == list(NAMES)
    node.cluster.create("large", 5, 3)
    (large,) = [each async for each in client.described_topics(["large"], 2)]
    assert [each.partition for each in large.partitions] == [0, 1, 2, 3, 4]


async def test_a_list_has_one_deadline_for_all_of_its_pages(client: AdminClient, node: FakeNode) -> None:
    """1. Three topics, one on a page.  2. After the first page the time is over: the client raises, and asks for no second page.
    3. Without `lists_until_s` each page has its own time."""
    for name in ("a", "b", "c"):
        node.cluster.create(name, 1, 1)
    loop = asyncio.get_running_loop()
    client.lists_until_s = loop.time() + 60
    found = []
    with pytest.raises(Incomplete, match="the list was not complete in time: 1 of its pages came"):
        async for topic in client.topics(page_size=1):
            found.append(topic.name)
            client.lists_until_s = loop.time()
    assert found == ["a"]
    client.lists_until_s = None
    assert [topic.name async for topic in client.topics(page_size=1)] == ["a", "b", "c"]
