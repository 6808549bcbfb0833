"""The proxy between two nodes leaves nothing open behind it, whenever it is closed."""

import asyncio
import contextlib
import gc
import random
import socket

import pytest

from tests.chaos.network import HOST, Direction, Link, free_port

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("steps", range(12))
async def test_a_link_closes_what_it_has_accepted_however_far_it_got(rng: random.Random, steps: int) -> None:
    """A connection whose task is ended before its first step had been left to the garbage collector, which complains."""
    port = free_port(rng, [])
    target = await asyncio.start_server(lambda _, writer: writer.transport.abort(), HOST, port)
    link = Link(free_port(rng, [port]), port, Direction(), Direction())
    await link.start()
    async with asyncio.timeout(10):
        near_reader, near_writer = await _connected(link.port)
    near_writer.write(b"and nobody reads this")
    for _ in range(steps):
        await asyncio.sleep(0)
    await link.close()
    async with asyncio.timeout(10):
        with pytest.raises(OSError):
            while await near_reader.read(100):
                pass
            raise ConnectionResetError("an orderly end is as good")
    near_writer.transport.abort()
    target.close()
    await target.wait_closed()


@pytest.mark.parametrize("steps", range(6))
async def test_a_link_that_closes_as_it_accepts_leaves_nothing_open(rng: random.Random, steps: int) -> None:
    """After two steps the connection is accepted and has no transport yet: asyncio had forgotten it when the port was closed."""
    port = free_port(rng, [])
    target = await asyncio.start_server(lambda _, writer: writer.transport.abort(), HOST, port)
    link = Link(free_port(rng, [port]), port, Direction(), Direction())
    await link.start()
    async with asyncio.timeout(10):
        near = await _accepted_by_the_kernel(link.port)
    for _ in range(steps):
        await asyncio.sleep(0)
    await link.close()
    near.setblocking(False)
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionResetError):  # as good as an orderly end
            assert await asyncio.get_running_loop().sock_recv(near, 1) == b""
    near.close()
    target.close()
    await target.wait_closed()
    gc.collect()  # pytest fails a test in which it finds an open socket


async def _accepted_by_the_kernel(port: int) -> socket.socket:
    """A connection that the link has not seen yet."""
    while True:
        try:
            return socket.create_connection((HOST, port))
        except OSError:
            await asyncio.sleep(0)


async def _connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection(HOST, port)
        except OSError:
            await asyncio.sleep(0)
