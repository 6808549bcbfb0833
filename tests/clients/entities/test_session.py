"""A session over real streams: kept alive, moved to another node, lost, closed."""

import asyncio
from contextlib import suppress

import pytest

from metadata_log.format.ids import uuid_text
from metaquorum import SessionLost
from tests.clients.fake_entities import FakeCluster, client_of, nodes, one_client

SHORT_MS = 1_200
"""A keep-alive leaves every 400 ms."""


async def until_calls(cluster: FakeCluster, name: str, count: int) -> None:
    """Waits until the cluster was called so often."""
    async with asyncio.timeout(5):
        while cluster.calls[name] < count:
            await asyncio.sleep(0.005)


@pytest.mark.slow
async def test_a_session_is_opened_kept_alive_and_closed_with_its_entities() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client:
        async with client.session("worker a", SHORT_MS) as session:
            await client.put("worker", "a", b"ready", session=session)
            await until_calls(cluster, "KeepAlive", 2)
            assert session.is_safe()
            assert 0 < session.safe_ms <= SHORT_MS
            assert [each.name async for each in client.sessions()] == ["worker a"]
            entity = await client.get("worker", "a")
            assert entity is not None
            assert entity.owner == session.owner
        assert cluster.names("worker") == []
        assert cluster.sessions == {}
        assert session.lost.is_set()
        assert not session.is_safe()
        await session.close()


@pytest.mark.slow
async def test_a_session_goes_on_at_another_node() -> None:
    cluster = FakeCluster()
    async with nodes(cluster, 2) as running, client_of(running) as client, client.session("", SHORT_MS) as session:
        await until_calls(cluster, "KeepAlive", 1)
        await running[0].stop()
        await until_calls(cluster, "KeepAlive", 2)
        async with asyncio.timeout(5):
            while session.safe_ms < SHORT_MS - 200:
                await asyncio.sleep(0.005)
        assert not session.lost.is_set()


@pytest.mark.slow
async def test_a_node_that_does_not_lead_sends_the_keeper_to_the_leader() -> None:
    cluster = FakeCluster()
    async with nodes(cluster, 2) as running, client_of(running[:1]) as client:
        running[0].node.leader = running[1].target
        async with client.session("", SHORT_MS) as session:
            await until_calls(cluster, "KeepAlive", 2)
            async with asyncio.timeout(1):
                while session.safe_ms < SHORT_MS - 200:
                    await asyncio.sleep(0.005)


async def test_a_session_that_has_ended_is_lost_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """The id is the one of `quorumctl sessions list`."""
    cluster = FakeCluster()
    async with one_client(cluster) as client, client.session("i2", SHORT_MS) as session:
        session.check()
        cluster.end_session(session.session_id)
        async with asyncio.timeout(5):
            await session.lost.wait()
        assert not session.is_safe()
        with pytest.raises(SessionLost, match="its ephemeral entities with it: somebody has closed it"):
            session.check()
        assert f"session {uuid_text(session.session_id)} (i2) has ended: somebody has closed it" in caplog.text


@pytest.mark.slow
async def test_without_a_lease_a_session_is_not_safe_and_not_lost() -> None:
    """A controller that cannot confirm its leadership gives no lease: 1,200 ms after the opening the promise is over."""
    cluster = FakeCluster()
    async with nodes(cluster) as running, client_of(running) as client:
        running[0].node.lease_ms = 0
        async with client.session("", 1_000) as session:
            async with asyncio.timeout(5):
                while session.is_safe():
                    await asyncio.sleep(0.01)
            assert not session.lost.is_set()
            running[0].node.lease_ms = None
            async with asyncio.timeout(5):
                while not session.is_safe():
                    await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_a_session_that_cannot_be_closed_ends_after_its_timeout(caplog: pytest.LogCaptureFixture) -> None:
    """The block ends without an error: the cluster ends the session by itself."""
    cluster = FakeCluster()
    async with nodes(cluster) as running, client_of(running, timeout_s=0.3) as client:
        async with client.session("", SHORT_MS):
            await running[0].stop()
        assert "ends after its timeout" in caplog.text
    assert len(cluster.sessions) == 1


async def test_a_keeper_that_is_cancelled_leaves_no_task_behind() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client:
        before = asyncio.all_tasks()
        with suppress(RuntimeError):
            async with client.session("", SHORT_MS):
                raise RuntimeError
        await asyncio.sleep(0)
        ours = [task for task in asyncio.all_tasks() - before if "session" in str(task.get_name())]
        assert ours == []
