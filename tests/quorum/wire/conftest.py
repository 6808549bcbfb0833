"""A served fake node, and clients of it, over real gRPC on a free port."""

from collections.abc import AsyncIterator

import grpc
import pytest

from metadata_log.records import Endpoint
from quorum.runtime.facade import ControllerNode
from quorum.wire.client import AdminClient
from quorum.wire.server import serve
from tests.quorum.wire.fake_node import IDENTITY, FakeNode


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
async def target(node: FakeNode) -> AsyncIterator[str]:
    face: ControllerNode = node
    server, bound = await serve(face, IDENTITY, Endpoint("CONTROLLER", "127.0.0.1", 0))
    yield f"{bound.host}:{bound.port}"
    await server.stop(0)


@pytest.fixture
async def channel(target: str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(target) as channel:
        yield channel


@pytest.fixture
async def client(target: str) -> AsyncIterator[AdminClient]:
    async with AdminClient([target], timeout_s=2.0) as client:
        yield client
