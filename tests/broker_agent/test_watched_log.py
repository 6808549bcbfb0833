"""Watches at a broker: out of its own copy of the log, as long as it may serve."""

from collections.abc import Callable
from pathlib import Path

import pytest
from quorum_rpc.v1 import watch_pb2

from broker_agent.own_disk.broker_log import BrokerLog
from broker_agent.session.lifecycle import BrokerState
from broker_agent.watching.log_reading import place_in, read_from
from broker_agent.watching.watched_log import BrokerWatchedLog
from metadata_log.format.batch import decode_all
from metadata_log.format.records import Topic
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from tests.broker_agent.controllers import FakeController, History
from tests.broker_agent.test_agent import Process, controller, start
from tests.sim.world.disk import MemoryDirectory
from tests.watches.client import Client
from watches.core.position import Position
from watches.core.watched_log import LogUnreadable, PositionLost
from watches.service.watch_service import WatchService

__all__ = ["controller", "start"]
Start = Callable[..., Process]
TOPICS = watch_pb2.WatchFilter(all_topics=True)


def watching(process: Process) -> WatchService:
    return WatchService(BrokerWatchedLog(process.agent))


def names(client: Client) -> list[str]:
    return [event.record.topic for event in client.events]


@pytest.mark.slow
async def test_a_broker_shows_what_it_has_applied_until_its_lease_lapses(
    controller: FakeController, start: Start
) -> None:
    """Then the client goes elsewhere. The watch goes on here when the broker may serve again."""
    controller.lease_ms = 400
    process = start()
    await process.reaches(BrokerState.ONLINE)
    service = watching(process)
    client = Client(service, filter=TOPICS, from_now=True)
    await client.until(process.agent.image.offset)
    offset = controller.write(Topic("a", b"a" * 16))
    await client.until(offset + 1)
    assert (names(client), client.offsets) == (["a"], [offset])

    await controller.stop()
    assert (await client.ended()).reason == "BROKER_NOT_AVAILABLE"
    assert "lease has lapsed" in str(client.refusal)
    assert (await Client(service, filter=TOPICS).ended()).reason == "BROKER_NOT_AVAILABLE"

    controller.history.write(Topic("b", b"b" * 16))
    await controller.start()
    await controller.pulse.until(process.agent.may_serve)
    again = Client(service, filter=TOPICS, position=client.position)
    await again.until(controller.history.end)
    assert (names(again), again.resets) == (["b"], [])
    await again.stop()
    await service.close()


@pytest.mark.slow
async def test_a_watch_goes_on_from_a_broker_s_disk_after_a_restart(controller: FakeController, start: Start) -> None:
    """The next process reads everything above the position from its store."""
    first = start(seed=1)
    await first.reaches(BrokerState.ONLINE)
    service = watching(first)
    client = Client(service, filter=TOPICS, from_now=True)
    await client.until(first.agent.image.offset)
    await client.stop()
    for number in range(20):
        controller.write(Topic(f"t{number:02}", bytes([number + 1]) * 16))
    await first.applies(controller.history.end)
    await first.stop()
    with pytest.raises(LogUnreadable):
        await BrokerWatchedLog(first.agent).place_of(0)

    second = start(seed=2)
    await second.reaches(BrokerState.ONLINE)
    again = Client(watching(second), filter=TOPICS, position=client.position)
    await again.until(controller.history.end)
    assert names(again) == [f"t{number:02}" for number in range(20)]
    assert again.offsets == sorted(set(again.offsets))
    await again.stop()


@pytest.mark.slow
async def test_a_recovered_cluster_resets_a_watch_of_the_lost_history(
    controller: FakeController, start: Start, tmp_path: Path
) -> None:
    """The broker drops its copy, so its watches end. A position that the new history lacks gets the state."""
    controller.write(Topic("lost", b"l" * 16))
    process = start()
    await process.reaches(BrokerState.ONLINE)
    service = watching(process)
    client = Client(service, filter=TOPICS)
    await client.until(process.agent.image.offset)

    history = History(tmp_path / "recovered")
    history.write(Topic("kept", b"k" * 16))
    controller.recovered_with(history)
    assert (await client.ended()).reason == "BROKER_NOT_AVAILABLE"
    await controller.pulse.until(lambda: process.agent.cache.current.contains("kept"))
    await process.reaches(BrokerState.ONLINE)
    while controller.history.end <= client.offset:
        controller.write(Topic(f"more-{controller.history.end}", controller.history.end.to_bytes(16, "big")))
    again = Client(service, filter=TOPICS, position=client.position)
    await again.until(client.offset)
    assert again.resets == [watch_pb2.OTHER_GENERATION]
    assert "lost" not in {event.record.topic for event in again.state}
    await again.stop()
    await service.close()


@pytest.mark.slow
async def test_a_store_that_is_dropped_makes_its_watches_wait_or_begin_anew(
    controller: FakeController, start: Start
) -> None:
    """The cache keeps its image meanwhile, and no client sees a gap."""
    process = start()
    await process.reaches(BrokerState.ONLINE)
    service = watching(process)
    client = Client(service, filter=TOPICS, from_now=True)
    await client.until(process.agent.image.offset)
    controller.digest_is_wrong = True
    controller.write(Topic("a", b"a" * 16))
    await controller.pulse.until(lambda: process.agent.stores_dropped > 0)
    controller.digest_is_wrong = False
    end = controller.write(Topic("b", b"b" * 16)) + 1
    clients, position = [client], client.position
    while not await clients[-1].reaches(end):
        await controller.pulse.until(process.agent.may_serve)
        position = clients[-1].position or position
        clients.append(Client(service, filter=TOPICS, position=position))
    shown = [name for each in clients for name in names(each)]
    assert shown == ["a", "b"] or (any(each.resets for each in clients) and shown in (["b"], []))
    offsets = [offset for each in clients for offset in each.offsets]
    assert offsets == sorted(set(offsets))
    client = clients[-1]
    await client.stop()
    await service.close()


def test_the_end_of_the_log_that_waits_for_room_is_watched_too(tmp_path: Path) -> None:
    """Batches on a full disk and batches in memory are one log."""
    history = History(tmp_path / "controllers")
    disk = MemoryDirectory("/broker")
    log = BrokerLog(Log.open(disk, chain=history.chain_at(0), config=LogConfig(archive=False)))
    log.append(tuple(decode_all(history.batches(0))))
    disk.limit_space(64 << 20)
    disk.limit_space((64 << 20) - disk.free_bytes())
    first = history.end
    for number in range(4):
        history.write(Topic(f"{number:04}" + "x" * 70_000, (number + 1).to_bytes(16, "big")))
    log.append(tuple(decode_all(history.batches(first, 1 << 24))))
    assert log.why_full and log.waiting

    position, found = Position(1, 0, 0, history.chain_at(0)), 0
    while position.offset < history.end:
        stretch = read_from(log, position, 1, history.end)
        (batch,) = stretch.batches
        position, found = Position(1, batch.end_offset, batch.epoch, batch.chain), found + 1
        place = place_in(log, position.offset, history.image)
        assert (place.chain, place.epoch, place.end) == (batch.chain, batch.epoch, history.end)
    assert found == 5
    assert read_from(log, position, 1 << 20, history.end).batches == ()
    with pytest.raises(PositionLost):
        read_from(log, Position(1, first, 1, bytes(32)), 1 << 20, history.end)
    assert place_in(log, history.end + 1, history.image).chain is None
