"""Locks: fair, fenced, and given back when their holder is gone; with lost requests and nodes that die."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from metaquorum import EntityClient, Lock, NotHeld, PutEntity, Session, SessionLost, version_is
from tests.clients.fake_entities import FakeCluster, client_of, nodes, one_client


@asynccontextmanager
async def sessions(client: EntityClient, count: int) -> AsyncIterator[list[Session]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(client.session(f"worker {number}")) for number in range(count)]


async def waits(cluster: FakeCluster, kind: str, count: int) -> None:
    """Returns when so many places are there."""
    async with asyncio.timeout(5):
        while len(cluster.names(kind)) < count:
            await cluster.changed.wait()


async def test_waiting_clients_hold_in_the_order_of_asking_with_growing_tokens() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client, sessions(client, 4) as workers:
        locks = [Lock(session, "jobs/7") for session in workers]
        tokens = [await locks[0].acquire()]
        waiting = []
        for number, lock in enumerate(locks[1:], 2):
            waiting.append(asyncio.create_task(lock.acquire()))
            await waits(cluster, "lock", number)
        for lock, task in zip(locks, waiting, strict=False):
            assert not task.done()
            assert lock.is_held
            await lock.release()
            async with asyncio.timeout(5):
                tokens.append(await task)
        assert tokens == sorted(set(tokens))
        assert locks[3].is_held
        await locks[3].release()
        await locks[3].release()
        assert cluster.names("lock") == []


async def test_a_client_that_gives_up_leaves_the_queue_and_wakes_nobody_else() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client, sessions(client, 3) as workers:
        holder, tired, last = (Lock(session, "a") for session in workers)
        await holder.acquire()
        impatient = asyncio.create_task(tired.acquire())
        await waits(cluster, "lock", 2)
        patient = asyncio.create_task(last.acquire())
        await waits(cluster, "lock", 3)
        impatient.cancel()
        await asyncio.wait([impatient])
        assert impatient.cancelled()
        # A client that was cancelled before it knew of its own place leaves a mark behind, too.
        assert len([name for name in cluster.names("lock") if not name.endswith("/gone")]) == 2
        assert not patient.done()
        await holder.release()
        async with asyncio.timeout(5):
            await patient
        assert last.is_held


async def test_the_lock_of_a_lost_session_goes_on_and_its_former_holder_can_do_nothing() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client, sessions(client, 2) as (first, second):
        former, next_ = Lock(first, "a"), Lock(second, "a")
        old = await former.acquire()
        assert (await former.transact([], [PutEntity("job", "7", b"first")])).succeeded
        waiting = asyncio.create_task(next_.acquire())
        await waits(cluster, "lock", 2)
        cluster.end_session(first.session_id)
        async with asyncio.timeout(5):
            new = await waiting
        assert new > old
        with pytest.raises(NotHeld, match="its session has ended, or somebody has deleted it; nothing was done"):
            await former.transact([], [PutEntity("job", "7", b"late")])
        refused = await next_.transact([version_is("job", "7", 1)], [PutEntity("job", "7", b"second")])
        assert refused.failed is not None
        assert refused.failed.place == 0, "the place of the caller's own condition"
        assert cluster.entities["job", "7"].value == b"first"


async def test_a_waiting_client_whose_session_ends_is_told() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client, client.session("a") as first, client.session("b", 1_000) as second:
        await Lock(first, "a").acquire()
        waiting = asyncio.create_task(Lock(second, "a").acquire())
        await waits(cluster, "lock", 2)
        cluster.end_session(second.session_id)
        # The place is gone a moment before the session is told.
        with pytest.raises((SessionLost, NotHeld), match="session has ended"):
            async with asyncio.timeout(5):
                await waiting
        async with asyncio.timeout(5):
            await second.lost.wait()
        with pytest.raises(SessionLost):
            await Lock(second, "b").acquire()


async def test_a_place_that_an_operator_deletes_is_no_lock() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client, sessions(client, 2) as (first, second):
        async with Lock(first, "a") as lock:
            waiting = asyncio.create_task(Lock(second, "a").acquire())
            await waits(cluster, "lock", 2)
            (mine,) = [
                name for name in cluster.names("lock") if cluster.entities["lock", name].created == lock.token.offset
            ]
            (theirs,) = [name for name in cluster.names("lock") if name != mine]
            cluster.delete("lock", theirs)
        with pytest.raises(NotHeld, match="or somebody has deleted it"):
            async with asyncio.timeout(5):
                await waiting


async def test_a_lost_request_that_arrives_after_the_release_makes_no_ghost() -> None:
    """Without the mark of the release, the late request would hold the lock for as long as its session lives."""
    cluster = FakeCluster()
    async with one_client(cluster) as client, sessions(client, 2) as (first, second):
        client.timeout_s = 0.3
        lock = Lock(first, "a")
        cluster.lost_requests = 10_000
        acquiring = asyncio.create_task(lock.acquire())
        async with asyncio.timeout(5):
            while len({request.context.request_id for request in cluster.late}) < 2:
                await asyncio.sleep(0.01)
            ghost = cluster.late[0]  # of a call that has ended: the lock was acquired by another one
            cluster.lost_requests = 0
            await acquiring
        await lock.release()
        cluster.late = [ghost]
        assert ghost.context.request_id not in cluster.outcomes
        cluster.arrive()
        async with asyncio.timeout(5), Lock(second, "a") as other:
            assert other.is_held


async def test_a_lost_answer_of_the_own_place_is_no_second_place() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client, sessions(client, 1) as (session,):
        cluster.lost_answers = 1
        async with Lock(session, "a"):
            assert len(cluster.names("lock")) == 1
        assert cluster.names("lock") == []


async def test_a_waiting_client_goes_on_when_its_node_dies() -> None:
    cluster = FakeCluster()
    async with nodes(cluster, 2) as running, client_of(running) as client, sessions(client, 2) as (first, second):
        lock = Lock(first, "a")
        await lock.acquire()
        waiting = asyncio.create_task(Lock(second, "a").acquire())
        await waits(cluster, "lock", 2)
        await running[0].stop()
        await lock.release()
        async with asyncio.timeout(5):
            await waiting


async def test_two_locks_are_two_queues_even_if_one_name_continues_the_other() -> None:
    async with (
        asyncio.timeout(5),
        one_client(FakeCluster()) as client,
        sessions(client, 2) as (first, second),
        Lock(first, "a/b") as longer,
        Lock(second, "a") as shorter,
    ):
        assert longer.is_held
        assert shorter.is_held


async def test_a_lock_that_is_not_held_has_no_token_and_a_name_has_no_slash_at_its_end() -> None:
    async with one_client(FakeCluster()) as client, sessions(client, 1) as (session,):
        lock = Lock(session, "a")
        with pytest.raises(NotHeld, match="the lock a is not held: acquire it first"):
            _ = lock.token
        with pytest.raises(ValueError, match="no slash at either end"):
            Lock(session, "a/")
