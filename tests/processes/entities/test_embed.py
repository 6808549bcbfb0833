"""The program of docs/embed.md and the store of the examples, as child processes on real daemons."""

import asyncio
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from metaquorum import Config, EntityClient
from tests.processes.conftest import running

pytestmark = [pytest.mark.processes, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
(PROGRAM,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "embed.md").read_text(), re.DOTALL)
STORE = ROOT / "examples" / "sharded_store.py"


@asynccontextmanager
async def started(program: Path, *arguments: str) -> AsyncIterator[Process]:
    """A program whose output is read line by line. It is killed at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", str(program), *arguments, stdout=PIPE, stderr=DEVNULL
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def line(process: Process, wanted: str) -> str:
    """Reads until a line has this text, and returns the line."""
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while True:
            read = (await process.stdout.readline()).decode()
            assert read, f"the program has ended before it said {wanted!r}"
            if wanted in read:
                return read


async def quorumctl(bootstrap: str, *words: str) -> tuple[int, str, str]:
    """Runs a command to its end; returns its exit code and outputs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "quorum.cli.main", "-C", bootstrap, *words, stdout=PIPE, stderr=PIPE
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_the_first_program_takes_the_operator_s_pace_and_leaves_at_sigterm(tmp_path: Path) -> None:
    """A wrong value is refused, and the programs go on. SIGTERM gives the leadership away at once, kill -9 after the timeout."""
    clean = tmp_path / "clean.py"
    clean.write_text(PROGRAM)
    async with running(tmp_path / "cluster", brokers=0) as cluster:
        bootstrap = ",".join(node.endpoint for node in cluster.controllers.values())
        async with started(clean, "a", bootstrap) as a, started(clean, "b", bootstrap) as b:
            names = {a: "a", b: "b"}
            waiting = {asyncio.create_task(line(each, "leads under the token")): each for each in (a, b)}
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            leader = waiting[done.pop()]
            (other,) = {a, b} - {leader}
            (elected,) = (task for task, each in waiting.items() if each is other)
            await line(leader, "has cleaned up")

            code, _, err = await quorumctl(bootstrap, "entities", "put", "setting", "pause", "soon")
            assert (code, "the schema of kind setting refuses the value" in err) == (1, True)
            assert "operation 0" not in err
            assert (await quorumctl(bootstrap, "entities", "put", "setting", "pause", "0.1"))[0] == 0
            _, out, _ = await quorumctl(bootstrap, "entities", "list", "election")
            assert f"session {names[leader]} (" in out

            assert not elected.done()
            leader.send_signal(signal.SIGTERM)
            assert await leader.wait() == 143
            assert names[other] in await elected
            async with EntityClient(bootstrap.split(",")) as client:
                assert await client.count("election") == 1, "the session was closed, and not left to its timeout"
            await line(other, "has cleaned up")
        await previous_values(bootstrap)


async def previous_values(bootstrap: str) -> None:
    """The walk of docs/time-travel.md; and the token of a setting, with the outcome of each request in the log."""
    async with EntityClient(bootstrap.split(",")) as client:
        await client.put("note", "a", b"gone")
        await client.delete("note", "a")
        for value in (b"1", b"2", b"3"):
            await client.put("note", "a", value)
        entity, values = await client.get("note", "a"), list[bytes]()
        while entity is not None:
            values.append(entity.value)
            entity = await client.at(offset=entity.version).get("note", "a")
        assert values == [b"3", b"2", b"1"], "a deletion ends the walk"
        async with Config(client, "app", Pace) as config:
            assert await config.set(rate=7) == config.token
            stored = await client.get("config", "app/rate")
            assert stored is not None and stored.token == config.token
            assert (await config.unset("rate"), config.current.rate) == (config.token, 1)


@dataclass(frozen=True)
class Pace:
    rate: int = 1


async def test_a_killed_server_of_the_store_comes_back_within_its_timeout(tmp_path: Path) -> None:
    async with running(tmp_path / "cluster", brokers=0) as cluster:
        bootstrap = ",".join(node.endpoint for node in cluster.controllers.values())
        async with started(STORE, "a", bootstrap) as former:
            first = await line(former, "a leads shard-0 under the token")
            former.send_signal(signal.SIGKILL)
            await former.wait()
            async with started(STORE, "a", bootstrap) as again:
                second = await line(again, "a leads shard-0 under the token")
                assert offset_of(second) > offset_of(first), "the token of its former self is not its own"
                again.send_signal(signal.SIGTERM)
                assert await again.wait() == 143


def offset_of(said: str) -> int:
    return int(said.rpartition(":")[2])
