"""Images of the past on a controller: one build at a time, shared by its readers, on a thread that rests."""

import asyncio
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.image.metadata_image import MetadataImage
from quorum.runtime.image.past_images import PastImages
from quorum.runtime.protocol.requests import Refused
from service_kit.process.clock import RealClock
from snapshots.history.kept import PastConfig
from snapshots.history.wanted import Wanted
from tests.snapshots.history.nodes import PastNode, twin


@pytest.fixture
def node(tmp_path: Path) -> PastNode:
    node = PastNode(tmp_path, 1)
    node.elect(1)
    node.run(20)
    node.write_out()
    node.journal.flush()
    node.remember()
    return node


class Clock(RealClock):
    """Counts looks: each look of the thread is one step. A closed gate holds the thread between two steps."""

    def __init__(self) -> None:
        self.looks = 0
        self._gate = threading.Event()
        self._gate.set()

    def elapsed_us(self) -> int:
        self._gate.wait(10)
        self.looks += 1
        return self.looks * 10_000

    @contextmanager
    def held(self) -> Iterator[None]:
        self._gate.clear()
        try:
            yield
        finally:
            self._gate.set()


def images_of(node: PastNode, clock: Clock, config: PastConfig = PastConfig()) -> PastImages:  # noqa: B008 - immutable
    return PastImages(node.metadata, config, clock.elapsed_us)


async def test_readers_of_one_offset_share_one_build(node: PastNode) -> None:
    clock = Clock()
    images, end = images_of(node, clock), node.journal.shape.end
    wanted = Wanted(offset=end - 1)
    with clock.held():
        reads = [asyncio.create_task(images.image(wanted, end, 5_000)) for _ in range(5)]
        await asyncio.sleep(0)
    first, *others = await asyncio.gather(*reads)
    assert first == twin(node.batches, wanted) and all(each is first for each in others)
    looks = clock.looks
    assert await images.image(wanted, end, 5_000) is first, "it is kept"
    assert clock.looks == looks
    await images.stop()


async def test_a_build_takes_longer_than_its_reader_waits_and_is_there_for_the_next(node: PastNode) -> None:
    clock = Clock()
    images, end = images_of(node, clock), node.journal.shape.end
    with clock.held(), pytest.raises(Refused) as refused:
        await images.image(Wanted(offset=end), end, 20)
    assert refused.value.code is ErrorCode.NOT_READY
    assert (await images.image(Wanted(offset=end), end, 5_000)).offset == end
    await images.stop()


async def test_images_that_nobody_reads_any_more_go(node: PastNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorum.runtime.image.past_images.KEPT_FOR_S", 0.0)
    clock = Clock()
    images, end = images_of(node, clock), node.journal.shape.end
    first = weakref.ref(await images.image(Wanted(offset=end), end, 5_000))
    while first() is not None:
        await asyncio.sleep(0)
    looks = clock.looks
    await images.image(Wanted(offset=end), end, 5_000)
    assert clock.looks > looks, "it was made anew"
    await images.stop()


async def test_too_many_builds_are_refused(node: PastNode) -> None:
    clock = Clock()
    images, end = images_of(node, clock, PastConfig(waiting_max=2)), node.journal.shape.end
    with clock.held():
        reads = [asyncio.create_task(images.image(Wanted(offset=end - i), end, 5_000)) for i in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Refused) as refused:
            await images.image(Wanted(offset=end - 2), end, 5_000)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert len(await asyncio.gather(*reads)) == 2
    await images.stop()


async def test_a_position_above_the_committed_records_is_refused(node: PastNode) -> None:
    clock = Clock()
    images, end = images_of(node, clock), node.journal.shape.end
    with pytest.raises(Refused, match=f"the committed records end at {end}") as refused:
        await images.image(Wanted(offset=end + 1), end, 5_000)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE and clock.looks == 0, "no thread was asked"
    await images.stop()


async def test_a_node_that_stops_ends_the_build(node: PastNode) -> None:
    clock = Clock()
    images, end = images_of(node, clock), node.journal.shape.end
    with clock.held():
        read = asyncio.create_task(images.image(Wanted(offset=end), end, 5_000))
        waiting = asyncio.create_task(images.image(Wanted(offset=end - 1), end, 5_000))
        await asyncio.sleep(0)
        stopping = asyncio.create_task(images.stop())
        await asyncio.sleep(0)
    await stopping
    assert isinstance(await _outcome(read), Refused)
    assert isinstance(await _outcome(waiting), Refused)


async def _outcome(read: "asyncio.Task[MetadataImage]") -> MetadataImage | Refused:
    try:
        return await read
    except Refused as e:
        return e
