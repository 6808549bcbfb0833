"""The programs about a client's metadata, as a user copies them: in docs/client-metadata.md and in examples/."""

import asyncio
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from metadata_log.format.records import PartitionChange
from tests.broker_agent.test_cache import topic_id
from tests.clients.test_metadata_calls import two_brokers

ROOT = Path(__file__).resolve().parents[2]
(PROGRAM,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "client-metadata.md").read_text(), re.DOTALL)
EXAMPLE = ROOT / "examples" / "watch_leaders.py"


async def test_the_program_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Only the addresses differ."""
    async with two_brokers() as brokers:
        brokers.create("orders", 3)
        program = PROGRAM.replace("127.0.0.1:9092,127.0.0.1:9093", ",".join(brokers.bootstrap))
        names: dict[str, Any] = {}
        exec(program.removesuffix("asyncio.run(main())\n"), names)
        await names["main"]()
    assert capsys.readouterr().out == "3 partitions; broker 1 leads orders-0\n"


async def test_the_example_prints_every_change_of_a_leader(capsys: pytest.CaptureFixture[str]) -> None:
    """In at most 40 lines. A topic that does not exist ends it with the reason."""
    assert len(EXAMPLE.read_text().splitlines()) <= 40
    main = runpy.run_path(str(EXAMPLE))["main"]
    async with two_brokers() as brokers:
        brokers.create("orders", 2)
        task = asyncio.ensure_future(main(brokers.bootstrap[0], "orders"))
        printed = ""
        for changed in (None, PartitionChange(topic_id("orders"), 1, leader=2)):
            if changed is not None:
                brokers.cluster.write(changed)
            before = printed
            while printed == before:
                assert not task.done(), task.exception()
                await asyncio.sleep(0)
                printed += capsys.readouterr().out
        task.cancel()
        ports = [node.port for node in brokers.nodes]
        assert printed.splitlines() == [
            f"orders-0: 127.0.0.1:{ports[0]}",
            f"orders-1: 127.0.0.1:{ports[0]}",
            f"orders-1: 127.0.0.1:{ports[1]}",
        ]
