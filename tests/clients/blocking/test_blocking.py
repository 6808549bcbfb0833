"""The client for scripts: the same calls, without an event loop. The cluster runs on a loop thread of its own."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from clients.blocking.loop_thread import LoopThread
from metaquorum import (
    BlockingClient,
    BlockingLock,
    ConditionFailed,
    KindLimits,
    NotHeld,
    PutEntity,
    SessionLost,
    Token,
    absent,
)
from tests.clients.fake_entities import FakeCluster, Running, nodes


@contextmanager
def cluster_and_client(world: LoopThread | None = None) -> Iterator[tuple[FakeCluster, BlockingClient]]:
    world = world or LoopThread()
    cluster = FakeCluster()
    serving = nodes(cluster)
    running: list[Running] = world.run(serving.__aenter__())
    try:
        with BlockingClient([each.target for each in running], timeout_s=5) as client:
            yield cluster, client
    finally:
        world.run(serving.__aexit__(None, None, None))
        world.close()


def test_a_script_reads_and_writes() -> None:
    with cluster_and_client() as (cluster, client):
        token = client.put("shard", "7", b"x", if_absent=True)
        with pytest.raises(ConditionFailed):
            client.put("shard", "7", b"y", if_absent=True)
        assert client.transact([absent("shard", "8")], [PutEntity("shard", "8", b"z")]).succeeded
        assert client.must_transact([], [PutEntity("shard", "9", b"")]).token() > token
        assert [each.name for each in client.list("shard", page_size=1)] == ["7", "8", "9"]
        for shard in client.list("shard"):
            assert shard.name == "7"
            break
        assert client.count("shard") == 3
        assert [each is None for each in client.get_many([("shard", "7"), ("shard", "1")])] == [False, True]
        assert client.delete("shard", "7", if_version=token) == token
        assert client.get("shard", "7") is None
        client.declare_kinds(KindLimits("shard"))
        assert [kind.limits.kind for kind in client.kinds()] == ["shard"]
        client.remove_kinds("shard")
        assert cluster.kinds == {}


def test_a_script_holds_a_lock_with_a_session() -> None:
    with cluster_and_client() as (cluster, client), client.session("nightly") as session:
        assert session.is_safe()
        assert [each.name for each in client.sessions()] == ["nightly"]
        with BlockingLock(session, "jobs/7") as lock:
            assert lock.is_held
            assert lock.token == Token(0, cluster.entities["lock", cluster.names("lock")[0]].created)
            assert lock.transact([lock.condition], [PutEntity("job", "7", b"")]).succeeded
            with pytest.raises(TimeoutError):
                BlockingLock(session, "jobs/7", timeout_s=0.1).acquire()
            assert len(cluster.names("lock")) == 1
        with pytest.raises(NotHeld):
            _ = lock.token
        assert not session.is_lost
        session.check()
    assert cluster.sessions == {}


def test_a_script_whose_session_ends_is_told() -> None:
    world = LoopThread()
    with cluster_and_client(world) as (cluster, client), client.session("nightly", 1_000) as session:

        async def end() -> None:
            cluster.end_session(session.owner.session_id or b"")

        world.run(end())
        with client.watch("shard", bookmarks=True, bookmark_interval_ms=100) as watch:
            while not session.is_lost:
                watch.next(5)
        with pytest.raises(SessionLost):
            session.check()
        assert not session.is_safe()


def test_a_script_watches() -> None:
    with cluster_and_client() as (_, client), client.watch("shard") as watch:
        assert watch.next(5).is_state
        with pytest.raises(TimeoutError):
            watch.next(0.05)
        client.put("shard", "7", b"")
        for batch in watch:
            assert len(batch.events) == 1
            assert watch.position == batch.position
            watch.close()


def test_a_loop_that_is_closed_twice_is_closed() -> None:
    loop = LoopThread()
    loop.close()
    loop.close()


def test_ctrl_c_ends_what_is_iterated_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The iterator is closed on the loop once the interrupted call has ended, so a stream of a server ends, too."""
    waits, ended = threading.Event(), threading.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            yield 1
            waits.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    class Interrupted:
        """The future of a call that Ctrl-C interrupts."""

        def __init__(self, future: Any) -> None:
            self.cancel = future.cancel

        def result(self) -> Any:
            waits.wait(10)
            raise KeyboardInterrupt

    def submit(work: Any, loop: asyncio.AbstractEventLoop) -> Any:
        future = run_coroutine_threadsafe(work, loop)
        calls.append(future)
        return Interrupted(future) if len(calls) == 2 else future

    calls: list[Any] = []
    loop, run_coroutine_threadsafe = LoopThread(), asyncio.run_coroutine_threadsafe
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", submit)
    taken: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        taken.extend(loop.iterate(endless()))
    assert ended.is_set()
    loop.close()


def test_a_client_that_is_closed_inside_of_its_block_is_closed() -> None:
    with cluster_and_client() as (_, client):
        client.put("shard", "7", b"x")
        client.close()
