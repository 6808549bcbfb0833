"""Watches over real gRPC: the stream, its end, and the refusals as statuses."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from quorum_rpc.v1 import watch_pb2, watch_pb2_grpc

from metadata_log.format.records import FeatureLevel
from quorum.wire.server import serve
from service_kit.rpc.refusals import Refusal
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode
from tests.watches.test_watch_service import LOCKS, lock
from watches.service.tallies import WatchTallies


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
async def tallies(node: FakeNode) -> WatchTallies:
    node.log.append(FeatureLevel("metadata.version", 3))
    return WatchTallies()


@pytest.fixture
async def port(node: FakeNode, tallies: WatchTallies) -> AsyncIterator[int]:
    async with serve(node, IDENTITY, ANY_PORT, grace_s=0, watches=tallies, watches_max=2) as port:
        yield port


def watching(channel: grpc.aio.Channel, **fields: Any) -> Any:
    request = watch_pb2.WatchRequest(filter=LOCKS, **fields)
    return watch_pb2_grpc.WatchServiceStub(channel).Watch(request)  # type: ignore[no-untyped-call]


async def next_of(call: Any) -> watch_pb2.WatchResponse:
    async with asyncio.timeout(5):
        message: watch_pb2.WatchResponse = await call.read()
    return message


async def refusal_of(call: Any) -> Refusal:
    async with asyncio.timeout(5):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while await call.read() is not grpc.aio.EOF:
                continue
    refusal = Refusal.of(caught.value)
    assert refusal is not None, caught.value
    return refusal


async def test_a_watch_streams_what_is_committed(node: FakeNode, port: int, tallies: WatchTallies) -> None:
    """Joined messages are one message to every protobuf library."""
    node.log.append(lock("a", b"1"))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = watching(channel)
        state = await next_of(call)
        assert (state.reset, state.is_whole, [each.entity_written.entity.name for each in state.events]) == (
            1,
            True,
            ["a"],
        )
        node.log.append(lock("b"), lock("c"))
        node.log.append(lock("d"))
        names: list[str] = []
        while len(names) < 3:
            message = await next_of(call)
            names += [each.entity_written.entity.name for each in message.events]
            assert message.is_whole
        assert names == ["b", "c", "d"]
        assert message.position.offset == node.log.image.offset
        assert message.position.chain == node.log.batches[-1].chain
        assert tallies.events.total == 4
        call.cancel()
        async with asyncio.timeout(5):
            while tallies.open:
                await asyncio.sleep(0)


async def test_a_refused_watch_ends_with_a_status_and_a_reason(node: FakeNode, port: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert (await refusal_of(watching(channel, cluster_id="another"))).status is grpc.StatusCode.FAILED_PRECONDITION
        refusal = await refusal_of(watching(channel, bookmark_interval_ms=5))
        assert (refusal.reason, refusal.status) == ("INVALID_REQUEST", grpc.StatusCode.INVALID_ARGUMENT)
        calls = [watching(channel) for _ in range(2)]
        for call in calls:
            await next_of(call)
        refusal = await refusal_of(watching(channel))
        assert (refusal.reason, refusal.status) == ("THROTTLING_QUOTA_EXCEEDED", grpc.StatusCode.RESOURCE_EXHAUSTED)
        for call in calls:
            call.cancel()


async def test_a_controller_that_stops_sends_its_watches_elsewhere(node: FakeNode, tallies: WatchTallies) -> None:
    """With a reason, and not with a broken connection."""
    async with serve(node, IDENTITY, ANY_PORT, grace_s=0.2, watches=tallies) as port:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        call = watching(channel)
        await next_of(call)
    assert (await refusal_of(call)).reason == "BROKER_NOT_AVAILABLE"
    await channel.close()
    assert tallies.open == 0
