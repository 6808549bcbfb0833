"""A watch from a quicker node moves the hub of this node: what happens when it ends, or the node is fenced, in the middle."""

import asyncio
from typing import Any

import pytest

from tests.watches.client import Client
from tests.watches.fake_log import FakeLog
from tests.watches.test_watch_service import LOCKS, at, lock, log, service
from watches.core.watched_log import Stretch
from watches.service import hub
from watches.service.watch_service import WatchService

__all__ = ["log", "service"]


async def test_a_client_that_goes_away_while_its_watch_moves_the_hub_leaves_no_duplicate(
    log: FakeLog, service: WatchService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The readers of the first slices have the change, and the others do not."""
    monkeypatch.setattr(hub, "SLICE", 1)
    clients = [Client(service, filter=LOCKS, from_now=True) for _ in range(5)]
    for client in clients:
        await client.until(4)
    monkeypatch.setattr(hub, "rest_s", lambda pushed: 0.5)
    log.append(lock("a"))
    for client in clients:
        await client.until(5)
    log.append(lock("b"))
    mover = Client(service, filter=LOCKS, position=at(log))
    async with asyncio.timeout(5):
        while not any(client.offset == 6 for client in clients):
            await asyncio.sleep(0)
    assert not all(client.offset == 6 for client in clients)
    await mover.stop()
    log.append(lock("c"))
    for client in clients:
        await client.until(7)
        assert client.offsets == [4, 5, 6]
        await client.stop()


async def test_a_node_that_is_fenced_while_a_watch_moves_the_hub_serves_new_watches_afterwards(
    log: FakeLog, service: WatchService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client is slow to go. The hub must not keep a position that nobody moves."""
    monkeypatch.setattr(hub, "rest_s", lambda pushed: 0.05)
    slow, quick = (Client(service, filter=LOCKS, from_now=True) for _ in range(2))
    for client in (slow, quick):
        await client.until(4)
    slow.gate.clear()
    log.append(lock("a"))
    await quick.until(5)
    log.append(lock("b"))
    reading, go_on, read = asyncio.Event(), asyncio.Event(), log.read

    async def slow_read(*args: Any) -> Stretch:
        reading.set()
        await go_on.wait()
        return await read(*args)

    monkeypatch.setattr(log, "read", slow_read)
    mover = Client(service, filter=LOCKS, position=at(log))
    async with asyncio.timeout(5):
        await reading.wait()
    log.fence()
    await asyncio.sleep(0.1)  # the hub has rested, and looks again
    go_on.set()
    await mover.ended()
    monkeypatch.setattr(log, "read", read)
    log.unavailable = None
    late = Client(service, filter=LOCKS, from_now=True)
    await late.until(6)
    log.append(lock("c"))
    await late.until(7)
    assert late.offsets == [6]
    slow.gate.set()
    for client in (slow, late):
        await client.stop()
