"""A controller's log as its watches see it: committed and applied records only, from memory or from the files."""

import asyncio
from functools import partial

import pytest

from metadata_log.format.batch import HEADER_BYTES, Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.store.log_config import LogConfig
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.world import SnapshotWanted
from quorum.runtime.watched_log import NodeWatchedLog
from tests.quorum.runtime.lone_controller import LoneController, follower, leader
from tests.quorum.runtime.lone_node import LoneNode, formatted_disk, voters_of
from watches.core.position import Position
from watches.core.watched_log import LogUnreadable, PositionLost


def lone_with(batches: int, tail_bytes: int = 8 << 20) -> LoneNode:
    """A sole voter whose log has some batches, most of them on disk only if `tail_bytes` is small."""
    lone = LoneNode(formatted_disk(voters_of((1,))), NodeConfig(log=LogConfig(tail_bytes=tail_bytes)))
    lone.run_until_idle()
    for number in range(batches):
        reason = f"why not {number}"
        LoneController(lone).ask(partial(SnapshotWanted, reason, deadline_ms=lone.now_ms + 1_000))
    return lone


def watched(lone: LoneNode) -> NodeWatchedLog:
    return NodeWatchedLog(lone.node, lambda: None)


def position_of(lone: LoneNode, offset: int) -> Position:
    log = lone.node.log
    return Position(1, offset, log.shape.epoch_below(offset) or 0, log.chain_at(offset) or b"")


def everything(lone: LoneNode) -> list[Batch]:
    log = lone.node.log
    return [*log.read(log.shape.start.offset, 1 << 20)]


@pytest.mark.parametrize("tail_bytes", [8 << 20, 300])
async def test_a_watch_reads_all_that_is_committed_in_pieces(tail_bytes: int) -> None:
    """From memory, and from the files on a thread: the same batches."""
    lone = lone_with(12, tail_bytes)
    log, expected = watched(lone), everything(lone)
    assert lone.node.log.is_in_memory(expected[0].base_offset) == (tail_bytes > 300)
    position, found = position_of(lone, expected[0].base_offset), list[Batch]()
    while position.offset < log.image.offset:
        stretch = await log.read(position, 400, log.image.offset)
        assert sum(len(batch.data) for batch in stretch.batches) <= 400
        found += stretch.batches
        position = position_of(lone, found[-1].end_offset)
    assert found == expected
    assert (await log.read(position, 400, position.offset)).batches == ()


async def test_a_batch_that_is_not_committed_is_not_there() -> None:
    """A leader of three has it on its own disk, and no follower has fetched it."""
    lone = leader()
    log = watched(lone)
    assert lone.node.log.end > log.image.offset
    start = position_of(lone, log.image.offset)
    assert (await log.read(start, 1 << 20, lone.node.log.end)).batches == ()
    place = await log.place_of(lone.node.log.end)
    assert place.end == log.image.offset


async def test_the_place_of_an_offset_is_the_history_below_it() -> None:
    lone = lone_with(3)
    log, batches = watched(lone), everything(lone)
    last = batches[-1]
    place = await log.place_of(last.end_offset)
    assert (place.epoch, place.chain, place.end) == (last.epoch, last.chain, last.end_offset)
    assert (await log.place_of(last.end_offset + 5)).chain is None


async def test_a_position_of_another_history_is_lost() -> None:
    lone = lone_with(3)
    log, first = watched(lone), everything(lone)[0]
    other = position_of(lone, first.end_offset)._replace(chain=bytes(32))
    with pytest.raises(PositionLost):
        await log.read(other, 1 << 20, log.image.offset)


async def test_damage_in_a_file_sends_the_watch_elsewhere_and_begins_the_repair() -> None:
    """Found by a thread that reads for a watch; the node notes it, as if it had found it itself."""
    lone = lone_with(12, 300)
    log, expected = watched(lone), everything(lone)
    start, until = position_of(lone, expected[0].base_offset), log.image.offset
    directory = lone.disk.subdirectory("@metadata")
    (name,) = [each for each in directory.names() if each.endswith(".log")]
    directory.flip_bit(name, directory.read(name, 1 << 26).index(expected[2].data) + HEADER_BYTES + 1)
    with pytest.raises(LogUnreadable):
        await log.read(start, 1 << 20, until)
    assert lone.node.log.damage


async def test_watches_wake_when_the_image_moves_and_only_then() -> None:
    """A node without watches does not even compare."""
    lone = lone_with(1)
    log = watched(lone)
    waiting = asyncio.ensure_future(log.changed())
    await asyncio.sleep(0)
    log.tell()
    await asyncio.sleep(0)
    assert not waiting.done()
    LoneController(lone).ask(lambda reply_to: SnapshotWanted("news", reply_to, lone.now_ms + 1_000))
    log.tell()
    await asyncio.wait_for(waiting, 1)


async def test_a_node_that_stops_or_loads_its_image_serves_no_watch() -> None:
    lone = lone_with(1)
    assert watched(lone).problem() is None
    stopped = NodeWatchedLog(lone.node, lambda: Refused(ErrorCode.BROKER_NOT_AVAILABLE, "stops"))
    problem = stopped.problem()
    assert problem is not None and problem.reason == "BROKER_NOT_AVAILABLE"
    fresh = LoneNode(lone.disk)
    assert fresh.node.is_loading_image
    loading = watched(fresh).problem()
    assert loading is not None and loading.reason == "NOT_READY"
    assert watched(follower()).problem() is None
