"""The example of an embedder, `examples/shards.py`: as a user runs it, but for the controller."""

import asyncio
import json
import os
import runpy
import signal
from pathlib import Path

import pytest

from metadata_log.format.records import PartitionChange
from tests.broker_agent.controllers import FakeController
from tests.broker_agent.embedding.test_agent import ORDERS, configure, orders
from tests.broker_agent.test_agent import controller as controller  # the fixture

ROOT = Path(__file__).resolve().parents[3]
LINES_MAX = 80
"""Maximum number of lines of the example: a reader takes it in at once."""


async def ask(port: int, line: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{line}\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.decode().strip()


async def until(port: int, line: str, answer: str) -> None:
    """Asks until the broker has heard of the change."""
    async with asyncio.timeout(10):
        while await ask(port, line) != answer:
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_the_sharded_store_serves_what_it_leads(
    controller: FakeController, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes writes, names the leader after a move, keeps its data, and writes them when SIGTERM ends it."""
    example = ROOT / "examples" / "shards.py"
    assert len(example.read_text().splitlines()) <= LINES_MAX
    controller.write(*orders(4, 5))
    configure(tmp_path / "broker", controller.port)
    config = {
        "node.id": 4,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metadata.log.dir": str(tmp_path / "broker"),
        "controller.quorum.bootstrap.servers": [f"127.0.0.1:{controller.port}"],
        "metadata.fetch.max.wait.ms": 200,
    }
    path = tmp_path / "broker-4.yaml"
    path.write_text(json.dumps(config))
    running = asyncio.get_running_loop().create_task(runpy.run_path(str(example))["run"](path))
    printed = ""
    while "serves at" not in printed:
        await asyncio.sleep(0.01)
        assert not running.done(), running.result()
        printed += capsys.readouterr().out
    port = int(printed.strip().rpartition(":")[2])

    await until(port, "put orders 0 colour red", "red")
    assert await ask(port, "get orders 0 colour") == "red"
    assert await ask(port, "get orders 1 colour") == "ask again later"  # broker 5 is fenced
    controller.write(PartitionChange(ORDERS, 0, leader=5))
    await until(port, "get orders 0 colour", "ask again later")
    controller.write(PartitionChange(ORDERS, 0, leader=4))
    await until(port, "get orders 0 colour", "red")

    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, 10)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    kept = json.loads((tmp_path / "broker" / "shards.json").read_text())
    assert kept == [[ORDERS.hex(), 0, {"colour": "red"}]]
