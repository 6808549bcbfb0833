"""A connection on which nothing comes through any more, though nobody has closed it."""

import asyncio
import random
from typing import Any

import grpc
import pytest
from quorum_rpc.v1 import client_pb2, client_pb2_grpc

from service_kit.rpc.grpc_options import channel_options, server_options
from tests.chaos.network import HOST, Direction, Link, free_port

pytestmark = [pytest.mark.processes, pytest.mark.slow]


class Answering(client_pb2_grpc.ClusterMetadataServiceServicer):
    """Answers."""

    async def BrokerStatus(self, request: Any, context: Any) -> client_pb2.BrokerStatusResponse:  # noqa: N802
        return client_pb2.BrokerStatusResponse()


async def test_short_calls_leave_a_half_open_connection_within_seconds(rng: random.Random) -> None:
    """Also where each call has a shorter deadline than keepalive takes: it was a minute, in which every call was in vain."""
    port = free_port(rng, [])
    link = Link(free_port(rng, [port]), port, Direction(), Direction())
    server = grpc.aio.server(options=server_options())
    client_pb2_grpc.add_ClusterMetadataServiceServicer_to_server(Answering(), server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"{HOST}:{port}")
    await server.start()
    await link.start()
    try:
        async with grpc.aio.insecure_channel(f"{HOST}:{link.port}", options=channel_options()) as channel:
            stub = client_pb2_grpc.ClusterMetadataServiceStub(channel)  # type: ignore[no-untyped-call]
            for _ in range(20):
                await stub.BrokerStatus(client_pb2.BrokerStatusRequest(), timeout=10, wait_for_ready=True)
            link.swallows = True
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.BrokerStatus(client_pb2.BrokerStatusRequest(), timeout=0.5)
            link.swallows = False
            async with asyncio.timeout(30):
                while not await _answers(stub):
                    await asyncio.sleep(0.05)
    finally:
        link.let_go()
        await server.stop(0)
        await link.close()


async def _answers(stub: Any) -> bool:
    try:
        await stub.BrokerStatus(client_pb2.BrokerStatusRequest(), timeout=0.5)
    except grpc.aio.AioRpcError:
        return False
    return True
