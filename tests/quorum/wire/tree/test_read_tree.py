"""ReadTree over gRPC: a stream of rows, from the leader or through a follower, no faster than its client takes them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

import grpc
import pytest
from quorum_rpc.v1 import admin_pb2

import service_kit.rpc.answer_streams
from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import Endpoint
from metadata_log.tree.queries import (
    Changed,
    Differences,
    Find,
    History,
    Named,
    Names,
    Outline,
    Outlined,
    Place,
    Query,
    Row,
    Value,
    Values,
)
from metaquorum import AdminClient, AdminError, Unanswered
from quorum.controller.protocol.topic_commands import CreateTopics, NewTopic
from quorum.runtime.protocol.requests import LeaderHint, Refused
from quorum.runtime.protocol.tree_question import TreeQuestion
from quorum.wire.convert.convert_tree import ROW_BYTES_MAX, before_of, from_request, from_row, to_request, to_row
from quorum.wire.convert.errors import BadMessage
from quorum.wire.server import serve
from service_kit.rpc.dial import Dialer
from service_kit.rpc.grpc_options import MESSAGE_BYTES_MAX
from service_kit.rpc.server import serving
from snapshots.history.wanted import Wanted
from tests.quorum.runtime.image.inline_tree import InlineTree
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode

QUERIES: list[Query] = [
    Place("/"),
    Names(("/topics", "/brokers/*"), "ord"),
    Values(("/topics/%2F/id",)),
    Outline("/topics"),
    Find("*x*", "/"),
    Differences("/topics"),
    History("/topics"),
    History("/topics", 0),
]
ROWS: list[Row] = [
    Named("/topics", "topics", is_branch=True),
    Value("/a", {"b": [1, None, "ü\x00"], "c": 1 << 62, "d": 0.5}, is_only=True),
    Value("/a", None, is_only=False),
    Outlined("/a", "... and 3 more", 2),
    Changed("/a", "added", None, [1]),
    Changed("/a", "removed", "x", None, 0, 0),
    Changed("/a", "changed", None, False, 7, 1_000),
]


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_a_query_comes_back_from_the_wire(query: Query) -> None:
    assert from_request(to_request(query)) == query
    assert before_of(to_request(query)) is None


@pytest.mark.parametrize("before", [Wanted(0), Wanted(None, 0), Wanted(7, 8)])
def test_the_other_position_of_a_comparison_comes_back(before: Wanted) -> None:
    assert before_of(to_request(Differences("/"), before)) == before


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row_comes_back_from_the_wire(row: Row) -> None:
    message, size = to_row(row)
    assert (from_row(message), size) == (row, message.ByteSize())


def test_a_row_that_is_none_is_told() -> None:
    for bad in (admin_pb2.TreeRow(), admin_pb2.TreeRow(value=admin_pb2.TreeValue(value_json="{"))):
        with pytest.raises(BadMessage):
            from_row(bad)


def test_the_largest_rows_fit_into_a_message() -> None:
    """An entity of 256 KiB whose JSON is six times as long, before and after a change."""
    largest = "\x00" * (256 << 10)
    _, size = to_row(Changed("/entities/a/b", "changed", {"value": largest}, {"value": largest}))
    assert 3 << 20 < size < ROW_BYTES_MAX < MESSAGE_BYTES_MAX - (100 << 10)
    with pytest.raises(Refused, match="more than a message holds") as refused:
        to_row(Value("/a", "x" * ROW_BYTES_MAX, is_only=True))
    assert refused.value.code is ErrorCode.RECORD_BATCH_TOO_LARGE


# --- over gRPC ---------------------------------------------------------------------------------------------------------


def create(node: FakeNode, *names: str) -> int:
    node.images.append(node.cluster.image)
    node.cluster.run(CreateTopics(tuple(NewTopic(name, 1, 1) for name in names)))
    node.images.append(node.cluster.image)
    return node.cluster.image.offset


async def asked(client: AdminClient, query: Query, before: Wanted | None = None) -> tuple[int, list[Row]]:
    """The offset and the rows of an answer."""
    messages = [each async for each in client.read_tree(to_request(query, before))]
    assert not messages[0].rows, "the first message has no rows"
    assert len({each.as_of_offset for each in messages}) == 1
    return messages[0].as_of_offset, [from_row(row) for each in messages for row in each.rows]


async def test_the_leader_answers_now_and_then(node: FakeNode, client: AdminClient) -> None:
    first = create(node, "orders")
    second = create(node, "payments")
    query = Names(("/topics",))
    orders, payments = Named("/topics/orders", "orders", True), Named("/topics/payments", "payments", True)
    assert await asked(client, query) == (second, [orders, payments])
    assert await asked(client.at(offset=first), query) == (first, [orders])
    offset, changed = await asked(client, Differences("/topics/payments/id"), Wanted(offset=first))
    assert offset == second and [row.change for row in changed if isinstance(row, Changed)] == ["added"]
    assert (await asked(client.at(offset=first), Differences("/"), Wanted(offset=first))) == (first, [])


async def test_a_local_answer_says_whose_it_is(node: FakeNode, target: str) -> None:
    create(node, "orders")
    async with AdminClient([target], local=True) as client:
        assert await asked(client, Place("/topics"))
        assert client.local_view is not None and client.local_view.node_id == 1


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (Place("/nothing"), ErrorCode.RESOURCE_NOT_FOUND),
        (Place("/*"), ErrorCode.INVALID_REQUEST),
        (Place("topics"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_query_without_an_answer_is_refused(client: AdminClient, query: Query, code: ErrorCode) -> None:
    with pytest.raises(AdminError) as refused:
        await asked(client, query)
    assert refused.value.code is code


@pytest.fixture
async def follower(target: str) -> AsyncIterator[str]:
    """Where a controller is served that does not lead, and knows that `node` leads."""
    node = FakeNode()
    host, _, port = target.rpartition(":")
    hint = LeaderHint(1, 1, Endpoint("CONTROLLER", host, int(port)))
    node.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "node 1 leads", hint)
    async with (
        Dialer() as dialer,
        serve(node, IDENTITY._replace(node_id=2), ANY_PORT, grace_s=0, dial=dialer) as at,
    ):
        yield f"127.0.0.1:{at}"


async def test_a_follower_hands_the_leaders_answer_on(node: FakeNode, follower: str) -> None:
    """Its rows, and its refusals."""
    create(node, "orders")
    async with AdminClient([follower], timeout_s=2.0) as client:
        assert (await asked(client, Find("orders", "/")))[1] == [Named("/topics/orders", "orders", is_branch=True)]
        assert client.target == follower, "the client needs no second connection"
        with pytest.raises(AdminError, match="there is no /nothing") as refused:
            await asked(client, Place("/nothing"))
        assert refused.value.code is ErrorCode.RESOURCE_NOT_FOUND


class Endless(InlineTree[Any]):
    """Rows without end. `made` counts the portions."""

    made = 0

    async def portion(self) -> list[Any]:
        self.made += 1
        return [to_row(Value("/a", "x" * 60_000, is_only=False))[0]]


@pytest.fixture
def endless(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Endless]]:
    """All answers of `node`, none of which ends by itself."""
    opened: list[Endless] = []

    def read_tree(question: TreeQuestion, encode: Any) -> Any:
        opened.append(Endless(question, encode, lambda history, end: ()))
        return opened[-1]

    monkeypatch.setattr(node, "read_tree", read_tree)
    yield opened
    assert all(each.is_closed for each in opened), "the work goes on"


async def until_closed(answer: Endless) -> None:
    async with asyncio.timeout(10):
        while not answer.is_closed:
            await asyncio.sleep(0)


@pytest.mark.parametrize("way", ["leader", "follower"])
async def test_the_end_of_the_client_s_interest_ends_the_work(
    endless: list[Endless], target: str, follower: str, way: str
) -> None:
    async with AdminClient([target if way == "leader" else follower], timeout_s=2.0) as client:
        async with aclosing(client.read_tree(to_request(Place("/")))) as messages:
            for _ in range(3):
                await anext(messages)
        await until_closed(endless[0])


@pytest.mark.parametrize("way", ["leader", "follower"])
async def test_a_client_that_takes_nothing_is_cut_off(
    endless: list[Endless], target: str, follower: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC holds the writer back when its buffers are full, a few megabytes on each connection. Then no more rows are made, and
    after a while the place is free."""
    monkeypatch.setattr(service_kit.rpc.answer_streams, "STALLED_S", 0.1)
    async with AdminClient([target if way == "leader" else follower], timeout_s=2.0) as client:
        messages = client.read_tree(to_request(Place("/")))
        await anext(messages)
        await until_closed(endless[0])
        assert endless[0].made < 1_000, "60 MB would wait in memory"
        with pytest.raises(AdminError, match="no part of the answer was taken"):
            async for _ in messages:
                pass


async def test_an_answer_that_breaks_off_is_no_whole_answer(endless: list[Endless], node: FakeNode) -> None:
    """The controller stops in the middle."""
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(serve(node, IDENTITY, ANY_PORT, grace_s=0))
        async with AdminClient([f"127.0.0.1:{port}"], timeout_s=2.0) as client:
            messages = client.read_tree(to_request(Place("/")))
            await anext(messages)
            stopping = asyncio.create_task(stack.aclose())
            with pytest.raises(Unanswered, match="the answer was cut off"):
                async for _ in messages:
                    pass
            await stopping


async def test_a_controller_that_dies_before_the_first_row_is_passed_over(node: FakeNode, target: str) -> None:
    create(node, "orders")
    async with AdminClient(["127.0.0.1:1", target], timeout_s=5.0) as client:
        assert (await asked(client, Place("/topics/orders")))[1]


async def test_a_controller_of_an_older_release_is_told_from_one_that_failed(target: str) -> None:
    async with (
        serving(ANY_PORT, lambda server: None, grace_s=0) as port,
        AdminClient([f"127.0.0.1:{port}"], timeout_s=2.0) as client,
    ):
        with pytest.raises(AdminError, match="of a release that has the call") as refused:
            await asked(client, Place("/"))
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


async def test_an_older_leader_behind_a_new_follower_is_told_too() -> None:
    """While the controllers are upgraded one by one."""
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(serving(ANY_PORT, lambda server: None, grace_s=0))
        node = FakeNode()
        hint = LeaderHint(1, 1, Endpoint("CONTROLLER", "127.0.0.1", old))
        node.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "node 1 leads", hint)
        dialer = await stack.enter_async_context(Dialer())
        serving_new = serve(node, IDENTITY._replace(node_id=2), ANY_PORT, grace_s=0, dial=dialer)
        client = AdminClient([f"127.0.0.1:{await stack.enter_async_context(serving_new)}"], timeout_s=2.0)
        await stack.enter_async_context(client)
        with pytest.raises(AdminError, match="older release without this call") as refused:
            await asked(client, Place("/"))
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


async def test_the_status_of_a_missing_path_is_not_found(channel: grpc.aio.Channel) -> None:
    """Every gRPC client understands it, without ErrorInfo."""
    method = channel.unary_stream(
        "/quorum_rpc.v1.AdminService/ReadTree",
        admin_pb2.ReadTreeRequest.SerializeToString,
        admin_pb2.ReadTreeResponse.FromString,
    )
    call = method(to_request(Place("/nothing")))
    with pytest.raises(grpc.aio.AioRpcError):
        async for _ in call:
            pass
    assert await call.code() is grpc.StatusCode.NOT_FOUND
