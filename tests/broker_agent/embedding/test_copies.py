"""The example of a store with copies, `examples/copied_shards.py`: three processes, real controllers, and faults under writes."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes.conftest import BROKER_SETTINGS, Cluster, run, running, until

pytestmark = [pytest.mark.processes, pytest.mark.slow]

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "copied_shards.py"


class Shard:
    """One process of the store."""

    def __init__(self, broker_id: int, directory: Path, controllers: str) -> None:
        self.config = directory / f"broker-{broker_id}.yaml"
        settings = {
            **BROKER_SETTINGS,
            "node.id": broker_id,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "metadata.log.dir": str(directory / f"broker-{broker_id}"),
            "controller.quorum.bootstrap.servers": controllers,
        }
        self.config.write_text(json.dumps(settings))
        done = run("quorum.cli.main", "storage", "format", "--config", str(self.config), "--from", controllers)
        assert done.returncode == 0, done
        self.address: tuple[str, int] | None = None

    async def start(self) -> None:
        command = [sys.executable, str(EXAMPLE), str(self.config)]
        self.process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode()
        assert line.startswith("serves at "), line
        host, _, port = line.removeprefix("serves at ").strip().rpartition(":")
        self.address = host, int(port)

    async def end(self, number: signal.Signals) -> int:
        self.address = None
        os.kill(self.process.pid, number)
        return await asyncio.wait_for(self.process.wait(), 20)


async def ask(address: tuple[str, int], *words: str) -> Any:
    try:
        async with asyncio.timeout(3):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(json.dumps(words).encode() + b"\n")
            line = await reader.readline()
            writer.close()
            return json.loads(line) if line else {"ask": None}
    except (OSError, TimeoutError):
        return {"ask": None}


async def told_by_any(shards: list[Shard], *words: str) -> Any:
    """The answer of the leader, wherever it is."""
    async with asyncio.timeout(20):
        while True:
            for shard in shards:
                answer = {"ask": None} if shard.address is None else await ask(shard.address, *words)
                if not isinstance(answer, dict):
                    return answer
            await asyncio.sleep(0.01)


async def in_sync(cluster: Cluster) -> None:
    """Returns once every partition has both of its replicas in sync."""

    async def probe() -> bool | None:
        partitions = (await cluster.client.describe_topic("shards")).partitions
        return True if all(len(each.isr) == 2 for each in partitions) else None

    await until(probe, 30)


async def test_no_acknowledged_write_is_lost_while_stores_are_killed_and_restarted(tmp_path: Path) -> None:
    """One store is killed, and its death is reported; another is stopped in order. Writes go on all the time, and whatever was
    acknowledged is there at the end, at whichever store leads then."""
    acknowledged: dict[str, str] = {}
    over = asyncio.Event()

    async with running(tmp_path / "cluster", brokers=0) as cluster:
        controllers = cluster.dev.layout.bootstrap
        shards = [Shard(broker_id, tmp_path, controllers) for broker_id in (7, 8, 9)]
        for shard in shards:
            await shard.start()
        await cluster.online(7, 8, 9)
        await cluster.client.create_topic("shards", partitions=8, replication_factor=2)

        async def write() -> None:
            number = 0
            while not over.is_set():
                key, value = f"key-{number}", f"value-{number}"
                assert await told_by_any(shards, "set", key, value) == value
                acknowledged[key] = value
                number += 1

        async def writes(count: int) -> None:
            wanted = len(acknowledged) + count
            async with asyncio.timeout(30):
                while len(acknowledged) < wanted:
                    await asyncio.sleep(0.01)

        writing = asyncio.create_task(write())
        try:
            await writes(50)
            _, killed, stopped = shards
            await killed.end(signal.SIGKILL)
            report = await asyncio.to_thread(run, "broker_agent", "report-death", "--config", str(killed.config))
            assert report.returncode == 0, report
            await writes(50)
            await killed.start()
            await in_sync(cluster)
            assert await stopped.end(signal.SIGTERM) == 0
            await writes(50)
            await stopped.start()
            await in_sync(cluster)
            await writes(50)
            over.set()
            await writing
            found = {key: await told_by_any(shards, "get", key) for key in acknowledged}
        finally:
            writing.cancel()
            for shard in shards:
                if shard.address is not None:
                    await shard.end(signal.SIGKILL)
    assert found == acknowledged
