"""A served fake node, and clients of it, over real gRPC on a free port."""

from collections.abc import AsyncIterator

import grpc
import pytest

from metaquorum import AdminClient
from quorum.runtime.facade import ControllerNode
from quorum.wire.server import serve
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
async def target(node: FakeNode) -> AsyncIterator[str]:
    face: ControllerNode = node
    async with serve(face, IDENTITY, ANY_PORT, grace_s=0) as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture
async def channel(target: str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(target) as channel:
        yield channel


@pytest.fixture
async def client(target: str) -> AsyncIterator[AdminClient]:
    async with AdminClient([target], timeout_s=2.0) as client:
        yield client
