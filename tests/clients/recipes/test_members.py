"""A server that comes back finds its former self in the group; conditions name one incarnation; changes are not missed."""

import asyncio

import pytest

from metaquorum import ConditionFailed, Members, PutEntity, SessionLost
from tests.clients.fake_entities import FakeCluster, one_client
from tests.clients.recipes.test_locks import sessions

WRITE = [PutEntity("job", "7", b"")]


async def until_refused(cluster: FakeCluster, before: int) -> None:
    async with asyncio.timeout(5):
        while cluster.calls["TransactRequest"] == before:
            await asyncio.sleep(0.001)


async def test_a_server_that_was_restarted_waits_until_its_former_self_is_gone() -> None:
    cluster = FakeCluster()
    async with (
        asyncio.timeout(5),
        one_client(cluster) as client,
        sessions(client, 2) as (former, next_),
        Members(client, "servers") as servers,
    ):
        await servers.join(former, "a", b"1")
        before = cluster.calls["TransactRequest"]
        joining = asyncio.create_task(servers.join(next_, "a", b"2", wait=True))
        await until_refused(cluster, before)
        assert not joining.done()
        cluster.end_session(former.session_id)
        again = await joining
        assert servers.data == {"a": b"2"}
        assert (await client.transact([again.condition], WRITE)).succeeded
        with pytest.raises(ConditionFailed, match="member servers/a exists already"):
            await servers.join(next_, "a", wait=True)  # of this very session: nobody else will leave


async def test_a_wait_for_a_former_self_ends_with_the_session() -> None:
    cluster = FakeCluster()
    async with (
        one_client(cluster) as client,
        sessions(client, 1) as (former,),
        client.session("b", 1_000) as next_,
        Members(client, "servers") as servers,
    ):
        await servers.join(former, "a")
        before = cluster.calls["TransactRequest"]
        joining = asyncio.create_task(servers.join(next_, "a", wait=True))
        await until_refused(cluster, before)
        cluster.end_session(next_.session_id)
        with pytest.raises(SessionLost):
            async with asyncio.timeout(5):
                await joining


async def test_a_condition_is_about_one_incarnation_of_a_member() -> None:
    cluster = FakeCluster()
    async with (
        asyncio.timeout(5),
        one_client(cluster) as client,
        sessions(client, 2) as (former, next_),
        Members(client, "servers") as servers,
    ):
        with pytest.raises(KeyError):
            servers.condition("a")
        await servers.join(former, "a")
        condition = servers.condition("a")
        assert (await client.transact([condition], WRITE)).succeeded
        seen = servers.position
        cluster.end_session(former.session_id)
        await servers.changed(since=seen)
        await servers.join(next_, "a")
        assert not (await client.transact([condition], WRITE)).succeeded
        assert (await client.transact([servers.condition("a")], WRITE)).succeeded


async def test_a_change_during_another_wait_is_not_missed() -> None:
    cluster = FakeCluster()
    async with asyncio.timeout(5), one_client(cluster) as client, client.live("shard") as shards:
        seen = shards.position
        cluster.put("shard", "7", b"")
        await shards.wait_for(lambda: "7" in shards)  # stands for any other await of the program
        await shards.changed(since=seen)
        waiting = asyncio.create_task(shards.changed(since=shards.position))
        await asyncio.sleep(0)
        assert not waiting.done()
        cluster.put("shard", "8", b"")
        await waiting
        assert "8" in shards
