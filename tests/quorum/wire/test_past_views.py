"""Reads of the past: every row that reads the image shows the image that was asked for, and no other call takes a position."""

from typing import Any

import pytest
from quorum_rpc.v1 import admin_pb2

from metadata_log.format.errors import ErrorCode
from metaquorum import AdminClient, AdminError
from quorum.controller.protocol.topic_commands import CreateTopics, NewTopic
from quorum.wire import admin_methods, entity_methods
from quorum.wire.admin import AdminService
from quorum.wire.entity import EntityService
from quorum.wire.table import Counted, Row, Viewed
from tests.fuzz.network_targets import IDENTITY, busy
from tests.quorum.runtime.lone_controller import LoneController
from tests.quorum.runtime.lone_node import LoneNode
from tests.quorum.wire.calling import call
from tests.quorum.wire.fake_node import FakeNode
from tests.quorum.wire.good_requests import good_requests

SERVICES = {"AdminService": (AdminService, admin_methods.TABLE), "EntityService": (EntityService, entity_methods.TABLE)}
ROWS = [(service, row) for service, (_, table) in SERVICES.items() for row in table.rows]
READS = [pytest.param(*each, id=each[1].method) for each in ROWS if isinstance(each[1], Viewed | Counted)]
OTHERS = [pytest.param(*each, id=each[1].method) for each in ROWS if not isinstance(each[1], Viewed | Counted)]


def asked(lone: LoneNode, service: str, row: Row, at_offset: int) -> Any:
    request = good_requests()[f"{service}.{row.method}"]
    request.context.at_offset = at_offset
    return call(SERVICES[service][0](LoneController(lone), IDENTITY), row.method, request)


def create(node: FakeNode, name: str) -> int:
    """Returns the offset of the image with the topic, which the node remembers."""
    node.images.append(node.cluster.image)
    node.cluster.run(CreateTopics((NewTopic(name, 1, 1),)))
    node.images.append(node.cluster.image)
    return node.cluster.image.offset


async def test_a_client_of_the_past_sees_the_topics_of_then(node: FakeNode, client: AdminClient) -> None:
    first = create(node, "orders")
    create(node, "payments")
    past = client.at(offset=first)
    assert [topic.name async for topic in past.topics()] == ["orders"]
    assert (await past.list_topics()).as_of_offset == first
    assert [topic.name async for topic in client.topics()] == ["orders", "payments"]


async def test_the_past_has_no_soft_state(node: FakeNode, client: AdminClient) -> None:
    """The controller remembers when it last heard a broker, and not when it had heard the broker at an earlier offset."""
    at = create(node, "orders")
    now, then = await client.list_brokers(), await client.at(offset=at).list_brokers()
    assert now.brokers[0].HasField("last_contact_age_ms") and not then.brokers[0].HasField("last_contact_age_ms")


async def test_a_position_above_the_log_is_refused(node: FakeNode, client: AdminClient) -> None:
    at = create(node, "orders")
    with pytest.raises(AdminError, match="cannot be shown"):
        await client.at(offset=at + 1).list_topics()


@pytest.mark.parametrize("position", [{"offset": -1}, {"time_ms": -1}])
async def test_an_impossible_position_is_refused(client: AdminClient, position: dict[str, int]) -> None:
    with pytest.raises(AdminError, match="the first one is 0"):
        await client.at(**position).list_topics()


async def test_a_client_of_the_past_changes_nothing(node: FakeNode, client: AdminClient) -> None:
    with pytest.raises(ValueError, match="changes nothing"):
        await client.at(offset=0).delete_topics(["orders"])
    assert node.identities == []


@pytest.mark.parametrize(("service", "row"), READS)
def test_every_read_of_the_image_takes_a_position(service: str, row: Row) -> None:
    """One place swaps the image, so no row can forget to do it."""
    lone = busy()
    now = lone.node.state.committed.offset
    assert 0 < asked(lone, service, row, now - 1).as_of_offset < now


@pytest.mark.parametrize(("service", "row"), OTHERS)
def test_no_other_call_takes_a_position(service: str, row: Row) -> None:
    """A change that named a position would be made now."""
    lone = busy()
    before = lone.node.log.end
    answer = asked(lone, service, row, 1)
    assert answer.code == ErrorCode.INVALID_REQUEST and "for reads of the image" in answer.message
    assert lone.node.log.end == before


async def test_an_answer_of_an_older_controller_is_not_taken_for_the_past(node: FakeNode, client: AdminClient) -> None:
    """The older controller ignores the unknown field, and answers with its newest image."""
    create(node, "orders")
    answer = admin_pb2.ListTopicsResponse(as_of_offset=node.cluster.image.offset)

    async def attempt(*_: Any, **__: Any) -> Any:
        return answer

    past = client.at(offset=1)
    past._attempt = attempt  # type: ignore[method-assign]
    with pytest.raises(AdminError, match="older release"):
        await past.list_topics()
