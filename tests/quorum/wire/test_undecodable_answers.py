"""A server whose answers are no messages. grpc.aio gives None in their place: the outcome is open, and nobody waits for ever."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, voter_pb2

from broker_agent.client import CallFailed, ControllerClient, SnapshotUnavailable
from broker_agent.session.lifecycle import FetchFailed, Input, RegisterFailed
from clients.streams.submit_stream import SubmitStream
from metadata_log.format.errors import ErrorCode
from metaquorum import AdminClient, MayHaveHappened, Unanswered
from quorum.core.protocol.inputs import Failure
from quorum.core.protocol.messages import VoteRequest
from quorum.wire.peers.peers import Peers
from service_kit.process.endpoints import parse_host_port
from service_kit.rpc.controller_channels import ControllerChannels
from service_kit.rpc.dial import Dialer
from service_kit.rpc.forwarding import Forwarder, NoAnswer
from service_kit.rpc.server import serving
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY
from tests.quorum.wire.peers.test_peers import ME, THEM, ask, at, dial, fetch


async def garbage(request: Any, context: Any) -> bytes:
    return b"\xff" * 20


def add_garbage(server: Any) -> None:
    for file in (admin_pb2, broker_pb2, voter_pb2):
        for service in file.DESCRIPTOR.services_by_name.values():
            methods = {method.name: grpc.unary_unary_rpc_method_handler(garbage) for method in service.methods}
            server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service.full_name, methods)])


@pytest_asyncio.fixture
async def port() -> AsyncIterator[int]:
    async with serving(ANY_PORT, add_garbage, grace_s=0) as port:
        yield port


async def test_a_client_knows_no_outcome(port: int) -> None:
    """A change may have been made; a read is asked again until the deadline."""
    async with AdminClient([f"127.0.0.1:{port}"], timeout_s=0.2) as client:
        context = admin_pb2.RequestContext(client_high_watermark=7)  # so that the client does not read first
        change = admin_pb2.DeleteTopicsRequest(context=context, names=["orders"])
        with pytest.raises(MayHaveHappened, match="cannot be decoded"):
            await client.call(change, admin_pb2.DeleteTopicsResponse)
        with pytest.raises(Unanswered, match="cannot be decoded"):
            await client.describe_quorum()


async def test_the_calls_of_a_submit_stream_have_no_known_outcome(port: int) -> None:
    target = f"127.0.0.1:{port}"
    async with grpc.aio.insecure_channel(target) as channel:
        stub: Any = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
        stream = SubmitStream(stub.Submit(), target, "", 2.0)
        answer = await stream.send(delete_topics=admin_pb2.DeleteTopicsRequest(names=["orders"]))
        with pytest.raises(MayHaveHappened, match="cannot be decoded"):
            await answer
        await stream.close()


async def test_a_forwarder_knows_no_outcome(port: int) -> None:
    async with Dialer() as dialer:
        forwarder = Forwarder(ControllerChannels(dialer), admin_pb2_grpc.AdminServiceStub)
        request = admin_pb2.DeleteTopicsRequest(names=["orders"])
        with pytest.raises(NoAnswer, match="cannot be decoded") as missing:
            await forwarder.ask(f"127.0.0.1:{port}", "DeleteTopics", request, 1.0, "anonymous")
        assert missing.value.may_have_happened


async def test_a_request_to_a_peer_fails(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """Every request of the core ends with an answer or a failure. The log has one line: without a leader a node asks often."""
    peers = Peers(IDENTITY._replace(node_id=ME.node_id, directory_id=ME.directory_id), dial)
    peers.set_endpoints({1: at(port)})
    for _ in range(3):
        assert await ask(peers, VoteRequest(ME, THEM, 3, 1, 10, pre_vote=True)) is Failure.BROKEN
        assert await ask(peers, fetch(1)) is Failure.BROKEN
    assert caplog.text.count("cannot be parsed") == 1
    await peers.close()


async def test_a_fetch_from_a_peer_fails_before_its_timeout(port: int) -> None:
    peers = Peers(IDENTITY._replace(node_id=ME.node_id, directory_id=ME.directory_id), dial)
    peers.set_endpoints({1: at(port)})
    assert await ask(peers, fetch(1)) is Failure.BROKEN
    await peers.close()


async def test_a_brokers_calls_fail(port: int) -> None:
    reports: asyncio.Queue[Input] = asyncio.Queue()
    async with Dialer() as dialer:
        servers = [parse_host_port(f"127.0.0.1:{port}")]
        client = ControllerClient(servers, ControllerChannels(dialer), reports.put_nowait)
        client.register(broker_pb2.RegisterBrokerRequest(), 7, 2_000)
        async with asyncio.timeout(2):
            assert isinstance(await reports.get(), RegisterFailed)
        with pytest.raises(CallFailed, match="cannot be decoded"):
            await client.alter_partition(broker_pb2.AlterPartitionRequest(), 2_000)
        with pytest.raises(SnapshotUnavailable, match="cannot be decoded"):
            await anext(client.snapshot(broker_pb2.FetchMetadataSnapshotRequest()))
        client.fetch(broker_pb2.MetadataFetchRequest(number=8))
        async with asyncio.timeout(2):
            failed = await reports.get()
        assert isinstance(failed, FetchFailed)
        assert (failed.number, failed.code) == (8, ErrorCode.BROKER_NOT_AVAILABLE)
        assert "cannot be decoded" in failed.message
        await client.close()
