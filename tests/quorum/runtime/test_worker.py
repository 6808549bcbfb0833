"""Long jobs beside the turns: a load gives the event loop back after each slice, and every end of a job is an event."""

import asyncio
from unittest.mock import patch

from quorum.runtime.protocol.jobs import Job, LoadSnapshotJob, WriteSnapshotJob
from quorum.runtime.protocol.world import JobDone
from quorum.runtime.worker import REST_S, SLICE_US, Worker
from service_kit.process.clock import RealClock
from snapshots.format import SnapshotCorrupt, part_name, snapshot_name
from snapshots.store import SnapshotStore
from snapshots.writer import SnapshotWriter, write_image
from tests.sim.world.disk import MemoryDirectory
from tests.snapshots.images import image_at, meta_of


class SliceClock(RealClock):
    """Every look at the clock finds that a whole slice has passed, so each slice is one record."""

    def __init__(self) -> None:
        self._us = 0

    def elapsed_us(self) -> int:
        self._us += SLICE_US
        return self._us


class Desk:
    """A worker and the events that it reports."""

    def __init__(self) -> None:
        self.counted: list[Job] = []
        self.rest_s = REST_S
        self.done: asyncio.Queue[JobDone] = asyncio.Queue()
        self.worker = Worker(
            SliceClock(), lambda job, seconds: self.counted.append(job), self.done.put_nowait, lambda: self.rest_s
        )


def snapshot() -> tuple[SnapshotStore, LoadSnapshotJob]:
    disk, image = MemoryDirectory("/d"), image_at(500)
    info = write_image(disk, meta_of(image), image)
    store = SnapshotStore(disk)
    return store, LoadSnapshotJob(store, info.end, install=False)


async def test_other_work_runs_between_two_slices() -> None:
    desk, (_, job) = Desk(), snapshot()
    turns = 0
    desk.worker.start(job)
    while desk.done.empty():
        turns += 1
        await asyncio.sleep(0)
    assert await desk.done.get() == JobDone(job)
    assert job.image == image_at(500) and desk.counted == [job]
    assert turns > image_at(500).record_count / 2, "partitions of one topic are one slice, other records one each"
    await desk.worker.stop()


async def test_a_load_that_fails_is_an_event() -> None:
    """The begin of the load reads header and footer only, so a slice meets the damage."""
    desk, (store, job) = Desk(), snapshot()
    file = store.directory.open(snapshot_name(job.end))
    file.write_at(file.size() // 2, b"damage")
    desk.worker.start(job)
    done = await desk.done.get()
    assert isinstance(done.error, SnapshotCorrupt) and job.image is None and desk.counted == []
    await desk.worker.stop()


async def test_a_node_that_stops_ends_a_load() -> None:
    desk, (_, job) = Desk(), snapshot()
    desk.worker.start(job)
    await asyncio.sleep(0)
    await desk.worker.stop()
    await asyncio.sleep(0)
    assert desk.done.empty() and job.image is None


async def test_other_work_runs_while_a_snapshot_is_written() -> None:
    """The bytes are those of a writer that takes no rest."""
    desk, (store, _) = Desk(), snapshot()
    image, alone = image_at(600), MemoryDirectory("/alone")
    writing = WriteSnapshotJob(store, meta_of(image), image)
    turns = 0
    desk.worker.start(writing)
    while desk.done.empty():
        turns += 1
        await asyncio.sleep(0)
    assert (await desk.done.get()).error is None and turns > 20
    info = write_image(alone, meta_of(image), image)
    assert writing.written == info and desk.counted == [writing]
    assert store.read_chunk(info.end, 0, info.size)[1] == alone.read(snapshot_name(info.end), info.size)
    await desk.worker.stop()


async def test_a_snapshot_that_the_disk_refuses_is_an_event() -> None:
    desk, (store, _) = Desk(), snapshot()
    image = image_at(600)
    store.directory.open(part_name(meta_of(image).end), create=True)
    writing = WriteSnapshotJob(store, meta_of(image), image)
    with patch.object(SnapshotWriter, "write", side_effect=OSError(28, "No space left on device")):
        desk.worker.start(writing)
        done = await desk.done.get()
    assert isinstance(done.error, OSError) and writing.written is None and desk.counted == []
    await desk.worker.stop()


async def test_a_load_rests_as_long_as_it_is_told() -> None:
    """The node may become the leader while it loads, so the worker asks after each slice."""
    desk, (_, job) = Desk(), snapshot()
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        desk.rest_s = seconds / 2

    with patch("quorum.runtime.worker.asyncio.sleep", rest):
        desk.worker.start(job)
        assert (await desk.done.get()).error is None
    assert rests[:3] == [REST_S, REST_S / 2, REST_S / 4]
    await desk.worker.stop()


def test_a_load_without_a_loop_is_the_same_load() -> None:
    """The simulator runs a job at once. The image is that of the slices."""
    _, job = snapshot()
    job.run()
    assert job.image == image_at(500)
