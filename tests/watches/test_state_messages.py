"""The messages of a RESET: pieces that leave the event loop free, and a client that takes nothing costs little."""

import tracemalloc
from collections.abc import Callable

import pytest
from quorum_rpc.v1 import watch_pb2

from tests.watches.client import Client
from tests.watches.fake_log import FakeLog
from tests.watches.test_watch_service import LOCKS, lock, log, service
from watches.service import hub
from watches.service.watch_service import WatchService

__all__ = ["log", "service"]


async def test_a_large_state_comes_in_pieces(log: FakeLog, service: WatchService) -> None:
    """Each message has 64 KiB and the rest of an event, all but the last are not whole, and all of them belong to the RESET."""
    for number in range(90):
        log.append(lock(f"{number:02}", bytes(200_000 if number < 2 else 20_000)))
    clients = [Client(service, filter=LOCKS) for _ in range(3)]
    for client in clients:
        await client.until(log.image.offset)
        assert len(client.messages) == 24
        assert [message.is_whole for message in client.messages] == [False] * 23 + [True]
        assert all(message.reset == watch_pb2.NO_POSITION for message in client.messages)
        assert all(message.ByteSize() <= (64 << 10) + 20_000 for message in client.messages[2:])
        assert len(client.state) == 90
        await client.stop()


async def test_a_client_that_takes_nothing_holds_one_small_message(log: FakeLog, service: WatchService) -> None:
    """A stalled client held its whole next MiB, encoded for it alone: 200 of them held 0.9 GB."""
    for number in range(300):
        log.append(lock(f"{number:03}", bytes(20_000)))
    tracemalloc.start()
    try:
        clients = [Client(service, filter=LOCKS) for _ in range(20)]
        for client in clients:
            client.gate.clear()
        for client in clients:
            await client.offered.wait()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < len(clients) * (300 << 10)
    for client in clients:
        client.gate.set()
        await client.until(log.image.offset)
        assert len(client.state) == 300
        await client.stop()


async def test_a_state_of_few_large_values_leaves_the_event_loop_free(
    log: FakeLog, service: WatchService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """150 values of 64 KiB: few events, and 10 MiB. One slice is encoded on the event loop, and each other one on the thread."""
    for number in range(150):
        log.append(lock(f"{number:03}", bytes(64 << 10)))
    slices: list[tuple[int, int]] = []

    async def work(size: int, work: Callable[[], list[bytes]]) -> list[bytes]:
        made = work()
        slices.append((size, sum(map(len, made))))
        return made

    monkeypatch.setattr(service._hub, "work", work)
    client = Client(service, filter=LOCKS)
    await client.until(log.image.offset)
    assert len(client.state) == 150
    assert max(made for _, made in slices) <= 400 << 10
    assert sum(size <= hub.INLINE_BYTES for size, _ in slices) == 1
    await client.stop()
