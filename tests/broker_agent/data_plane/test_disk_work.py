"""The threads for disk work: which work waits behind which other work."""

import asyncio
import threading
from pathlib import Path
from typing import Any, cast

from broker_agent.data_plane.disk_work import DiskWorkers, Ended
from broker_agent.partitions.effects import FindTime, OpenLog, WriteHighWatermarks
from broker_agent.replica.high_watermarks import read_high_watermarks
from broker_agent.replica.leader import PartitionLeader
from broker_agent.replica.log_directory import LogDirectory, ReplicaPlace
from broker_agent.replica.partition_log_config import PartitionLogConfig
from broker_agent.replica.time_search import TimeSearch
from metadata_log.disk.files import RealDirectory
from tests.broker_agent.replica.partition_logs import NOW_MS, TOPIC_ID

DIRECTORY = b"d" * 16


class StuckDirectory:
    """A log directory whose openings last until `released`."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def open(self, *_: Any, **__: Any) -> None:
        self.released.wait()


class StuckSearch:
    """A search that lasts until `released`."""

    def __init__(self, released: threading.Event) -> None:
        self._released = released

    def run(self) -> None:
        self._released.wait()


async def test_high_watermarks_are_written_while_logs_are_opened(tmp_path: Path) -> None:
    """A broker with a thousand new replicas stops: the stop waits for the high watermarks, and not for a thousand logs."""
    ends: asyncio.Queue[Ended] = asyncio.Queue()
    workers = DiskWorkers(ends.put_nowait, lambda: NOW_MS, threads_per_directory=1)
    place, stuck = ReplicaPlace(TOPIC_ID, 0), StuckDirectory()
    files = RealDirectory(tmp_path)
    opening = OpenLog(place, DIRECTORY, cast(LogDirectory, stuck), PartitionLogConfig())
    writing = WriteHighWatermarks(DIRECTORY, files, {place: 7})
    try:
        workers.begin(opening)
        workers.begin(writing)
        async with asyncio.timeout(10):
            ended = await ends.get()
        assert (ended.work, ended.error) == (writing, None)
        assert read_high_watermarks(files) == {place: 7}
    finally:
        stuck.released.set()
        workers.close()


async def test_a_log_is_opened_while_many_clients_search_for_a_time(tmp_path: Path) -> None:
    """A search may read 64 MiB, and any number of clients may ask. New replicas must not wait behind them."""
    ends: asyncio.Queue[Ended] = asyncio.Queue()
    workers = DiskWorkers(ends.put_nowait, lambda: NOW_MS, threads_per_directory=1)
    place, released = ReplicaPlace(TOPIC_ID, 0), threading.Event()
    search, leader = cast(TimeSearch, StuckSearch(released)), cast(PartitionLeader, None)
    logs = LogDirectory(RealDirectory(tmp_path))
    try:
        for token in range(20):
            workers.begin(FindTime(place, DIRECTORY, search, leader, token))
        opening = OpenLog(place, DIRECTORY, logs, PartitionLogConfig())
        workers.begin(opening)
        async with asyncio.timeout(10):
            ended = await ends.get()
        assert (ended.work, ended.error) == (opening, None)
    finally:
        released.set()
        workers.close()
