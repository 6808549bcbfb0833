"""Locks on real daemons: a holder whose process is killed, and a leader that is killed, under the recipes of the client."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from metaquorum import EntityClient, EntityDeleted, EntityWritten, Lock, NotHeld, PutEntity, Session, Token, Watch
from tests.processes.conftest import Cluster, running, until

pytestmark = [pytest.mark.processes, pytest.mark.slow]

TIMEOUT_MS = 2_000
HOLDER = """
import asyncio, sys
from metaquorum import EntityClient, Lock

async def main():
    async with EntityClient(sys.argv[1].split(",")) as client:
        async with client.session("holder", 2_000) as session, Lock(session, "jobs/7") as lock:
            print(lock.token, flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_lock_goes_on_after_its_holder_and_after_the_leader_were_killed(tmp_path: Path) -> None:
    """The holder's process dies by kill -9: its session ends, and the first of two waiting clients holds. Then the leader of the
    quorum dies: the holder's session and lock go on, and the second client holds after it."""
    async with running(tmp_path / "cluster", brokers=0) as cluster:
        endpoints = [node.endpoint for node in cluster.controllers.values()]
        holder = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLDER, ",".join(endpoints), stdout=PIPE)
        try:
            await _hold_in_turn(cluster, endpoints, holder)
        finally:
            with suppress(ProcessLookupError):
                holder.kill()
            await holder.wait()


async def _hold_in_turn(cluster: Cluster, endpoints: list[str], holder: Process) -> None:
    assert holder.stdout is not None
    generation, _, offset = (await holder.stdout.readline()).decode().strip().partition(":")
    first = Token(int(generation), int(offset))
    async with (
        asyncio.timeout(40),
        EntityClient(endpoints, timeout_s=15) as one,
        EntityClient(endpoints[::-1], timeout_s=15) as two,
        one.session("one", TIMEOUT_MS) as session_one,
        two.session("two", TIMEOUT_MS) as session_two,
        two.watch("lock") as watch,
    ):
        watching = asyncio.create_task(_holders(watch, 3))
        lock_one, lock_two = Lock(session_one, "jobs/7"), Lock(session_two, "jobs/7")
        waiting_one = asyncio.create_task(lock_one.acquire())
        await until(partial(_is_queue_of_two, one))
        waiting_two = asyncio.create_task(lock_two.acquire())
        holder.send_signal(signal.SIGKILL)
        second = await waiting_one
        assert second > first
        assert not waiting_two.done()

        cluster.dev.kill((await cluster.leader()).name)
        assert (await lock_one.transact([], [PutEntity("job", "7", b"one")])).succeeded
        await until(partial(_is_kept, session_one))
        assert not session_one.lost.is_set()
        assert lock_one.is_held
        former = lock_one.condition
        await lock_one.release()
        third = await waiting_two
        assert third > second
        assert not (await one.transact([former], [PutEntity("job", "7", b"late")])).succeeded
        with pytest.raises(NotHeld):
            await lock_one.transact([], [PutEntity("job", "7", b"late")])
        assert await watching == [first.offset, second.offset, third.offset]
        job = await two.get("job", "7")
        assert job is not None
        assert job.value == b"one"


async def _is_queue_of_two(client: EntityClient) -> bool | None:
    return True if await client.count("lock", "jobs/7/") == 2 else None


async def _is_kept(session: Session) -> bool | None:
    return True if session.safe_ms > TIMEOUT_MS // 2 else None


async def _holders(watch: Watch, count: int) -> list[int]:
    """Returns the offsets of the first places, as a watch over the deaths shows them."""
    places, holders, last = dict[str, int](), list[int](), -1
    async for batch in watch:
        for event in batch.events:
            assert event.offset == 0 if batch.is_state else event.offset > last, "each change once, in order"
            last = max(last, event.offset)
            if isinstance(event, EntityWritten):
                places[event.entity.name] = event.entity.created
            elif isinstance(event, EntityDeleted):
                del places[event.name]
        if places and min(places.values()) not in holders:
            holders.append(min(places.values()))
        if len(holders) == count:
            break
    return holders
