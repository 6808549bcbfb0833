"""A program that is told to stop leaves its blocks: real child processes, and a cluster in memory."""

import asyncio
import signal
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

import metaquorum
from tests.clients.fake_entities import FakeCluster, nodes
from tests.ctrl_c import ctrl_c_ends_a_process

PROGRAM = """
import asyncio, sys
import metaquorum
from metaquorum import Election, EntityClient

async def main(bootstrap):
    async with EntityClient([bootstrap]) as client, client.session("a", 60_000) as session:
        election = Election(session, "cleaner")
        await election.campaign()
        print("leads", flush=True)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(asyncio.Event().wait())
        finally:
            print("leaves", flush=True)
            HOLDS

try:
    metaquorum.run(main(sys.argv[1]))
finally:
    print("ends", flush=True)
"""


@asynccontextmanager
async def started(target: str, holds: str = "pass") -> AsyncIterator[Process]:
    program = PROGRAM.replace("HOLDS", holds)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, target, stdout=PIPE, stderr=PIPE, preexec_fn=ctrl_c_ends_a_process
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"leads\n"
            yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "returncode"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)], ids=["SIGTERM", "SIGINT"]
)
async def test_a_signal_ends_the_blocks_and_closes_the_session(number: signal.Signals, returncode: int) -> None:
    """The session would go on for a minute, and with it the leadership."""
    cluster = FakeCluster()
    async with nodes(cluster) as (node,), started(node.target) as process:
        assert len(cluster.sessions) == 1
        process.send_signal(number)
        out, err = await process.communicate()
        assert (process.returncode, out) == (returncode, b"leaves\nends\n")
        assert b"Traceback" not in err or number == signal.SIGINT
        assert (cluster.sessions, cluster.names("election")) == ({}, [])


@pytest.mark.slow
async def test_a_second_signal_ends_a_program_that_does_not_leave() -> None:
    cluster = FakeCluster()
    async with nodes(cluster) as (node,), started(node.target, "await asyncio.Event().wait()") as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGTERM)
        assert await process.stdout.readline() == b"leaves\n"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == -signal.SIGTERM


def test_a_program_that_is_not_told_to_stop_returns_and_raises_as_usual() -> None:
    async def work(wrong: bool) -> int:
        await asyncio.sleep(0)
        if wrong:
            raise KeyError("wrong")
        return 7

    assert metaquorum.run(work(False)) == 7
    with pytest.raises(KeyError):
        metaquorum.run(work(True))
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_outside_of_the_main_thread_and_beside_another_handler_no_signal_is_handled() -> None:
    async def handler() -> object:
        await asyncio.sleep(0)
        return signal.getsignal(signal.SIGTERM)

    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.append(metaquorum.run(handler())))
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]
    former = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert metaquorum.run(handler()) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, former)
