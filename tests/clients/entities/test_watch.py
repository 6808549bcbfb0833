"""A watch and a live view over real streams."""

import asyncio

import pytest

from metadata_log.format.errors import ErrorCode
from metaquorum import (
    AdminError,
    EntityClient,
    EntityDeleted,
    EntityWritten,
    NotReached,
    PutEntity,
    RecordWritten,
    ResetReason,
    Watch,
    WatchBatch,
)
from tests.clients.fake_entities import FakeCluster, client_of, nodes, one_client


async def next_of(watch: Watch) -> WatchBatch:
    async with asyncio.timeout(5):
        return await anext(watch)


def told(batch: WatchBatch) -> list[str]:
    """The events in short: +name of a written entity, -name of a deleted one."""
    words = []
    for event in batch.events:
        match event:
            case EntityWritten():
                words.append(f"+{event.entity.name}")
            case EntityDeleted():
                words.append(f"-{event.name}")
            case RecordWritten():
                words.append(event.type)
    return words


async def test_a_watch_shows_the_state_and_then_each_transaction_as_one_batch() -> None:
    cluster = FakeCluster()
    cluster.put("shard", "a/1", b"x")
    cluster.put("shard", "b/1", b"x")
    async with one_client(cluster) as client, client.watch("shard", "a/") as watch:
        first = await next_of(watch)
        assert (told(first), first.reset) == (["+a/1"], ResetReason.NO_POSITION)
        await client.put("shard", "b/2", b"not shown")
        await client.transact([], [PutEntity("shard", "a/2", b""), PutEntity("shard", "a/3", b"")])
        await client.delete("shard", "a/1")
        assert told(await next_of(watch)) == ["+a/2", "+a/3"]
        last = await next_of(watch)
        assert told(last) == ["-a/1"]
        assert last.position.offset == cluster.end
        assert not last.is_state


async def test_one_watch_shows_several_kinds_in_the_order_of_the_log() -> None:
    cluster = FakeCluster()
    kinds = [("member", "store/"), ("lock", "")]
    async with one_client(cluster) as client, client.watch("shard", kinds=kinds, keep_state=True) as watch:
        assert told(await next_of(watch)) == []
        for kind, name in (("shard", "7"), ("member", "others/a"), ("member", "store/a"), ("lock", "x")):
            await client.put(kind, name, b"")
        assert [told(await next_of(watch)) for _ in range(3)] == [["+7"], ["+store/a"], ["+x"]]
        with pytest.raises(ValueError, match="without a kind among `kinds`"):
            client.watch(kinds=[("", "a/")])


async def test_a_watch_goes_on_at_another_node_without_a_gap_or_a_duplicate() -> None:
    cluster = FakeCluster()
    async with nodes(cluster, 3) as running, client_of(running) as client, client.watch("shard") as watch:
        await next_of(watch)
        seen = []
        for number in range(9):
            cluster.put("shard", str(number), b"")
            if number in (2, 5):
                await running[number // 3].stop()
            if number % 2:
                seen += told(await next_of(watch))
        while len(seen) < 9:
            seen += told(await next_of(watch))
        assert seen == [f"+{number}" for number in range(9)]


async def test_a_watch_begins_at_a_position_that_a_program_has_remembered() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client:
        watch = client.watch("shard")
        position = (await next_of(watch)).position
        watch.close()
        cluster.put("shard", "1", b"")
        cluster.put("shard", "2", b"")
        async with client.watch("shard", position=position) as later:
            assert told(await next_of(later)) == ["+1"]
            assert told(await next_of(later)) == ["+2"]


async def test_a_lost_position_shows_the_state_or_with_kept_state_the_difference() -> None:
    cluster = FakeCluster()
    cluster.put("shard", "1", b"")
    cluster.put("shard", "2", b"")
    cluster.watch_events_per_message = 1
    async with nodes(cluster, 2) as running, client_of(running) as client:
        plain, keeping = client.watch("shard"), client.watch("shard", keep_state=True)
        assert told(await next_of(plain)) == told(await next_of(keeping)) == ["+1", "+2"]
        await running[0].stop()
        cluster.put("shard", "3", b"")
        cluster.delete("shard", "1")
        cluster.trim()
        state, difference = await next_of(plain), await next_of(keeping)
        assert (told(state), state.reset) == (["+2", "+3"], ResetReason.BELOW_LOG_START)
        assert (told(difference), difference.reset) == (["-1", "+3"], ResetReason.BELOW_LOG_START)
        plain.close()
        keeping.close()


async def test_a_caller_that_gives_up_waiting_may_ask_again() -> None:
    """gRPC ends the stream of a cancelled read; the watch opens the next one at its position."""
    cluster = FakeCluster()
    async with one_client(cluster) as client, client.watch("shard") as watch:
        await next_of(watch)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(watch)
        cluster.put("shard", "1", b"")
        assert told(await next_of(watch)) == ["+1"]


async def test_a_watch_of_topics_shows_their_records_and_bookmarks_say_how_far_all_is_seen() -> None:
    cluster = FakeCluster()
    async with (
        one_client(cluster) as client,
        client.watch(topics=["orders"], from_now=True, bookmarks=True, bookmark_interval_ms=100) as watch,
    ):
        bookmark = await next_of(watch)
        assert (bookmark.events, bookmark.position.offset) == ((), cluster.end)
        await client.put("shard", "7", b"not shown")
        while (await next_of(watch)).position.offset < cluster.end:
            pass
        assert watch.position is not None
        assert watch.position.offset == cluster.end


async def test_a_watch_from_now_shows_what_changes_from_the_begin_of_the_block() -> None:
    cluster = FakeCluster()
    cluster.put("shard", "1", b"")
    async with one_client(cluster) as client, client.watch("shard", from_now=True) as watch:
        cluster.put("shard", "2", b"")
        assert told(await next_of(watch)) == ["+2"]


async def test_options_that_contradict_each_other_are_refused() -> None:
    async with EntityClient(["127.0.0.1:1"]) as client:
        with pytest.raises(ValueError, match="neither a position nor from_now"):
            client.watch("shard", keep_state=True, from_now=True)
        with pytest.raises(ValueError, match="for entities only"):
            client.watch("shard", topics=["orders"], keep_state=True)
        with pytest.raises(ValueError, match="give the kind"):
            client.watch(prefix="a/")
        with pytest.raises(ValueError, match="reads the past"):
            client.at(offset=5).watch("shard")


@pytest.mark.slow
async def test_a_watch_that_no_node_has_ever_served_does_not_wait_for_ever() -> None:
    async with EntityClient(["127.0.0.1:1"], timeout_s=0.2) as client:
        with pytest.raises(NotReached, match=r"served the watch within 0\.2 s; the last one: 127\.0\.0\.1:1"):
            await next_of(client.watch("shard"))


async def test_a_view_is_the_kind_as_a_dictionary_and_reaches_the_own_writes() -> None:
    cluster = FakeCluster()
    cluster.put("shard", "1", b"x")
    async with one_client(cluster) as client, client.live("shard") as shards:
        assert dict(shards) == {"1": await client.get("shard", "1")}
        await shards.reach(await client.put("shard", "2", b"y"))
        assert shards["2"].value == b"y"
        waiting = asyncio.create_task(shards.wait_for(lambda: "1" not in shards))
        await client.delete("shard", "1")
        async with asyncio.timeout(5):
            await waiting
        assert list(shards) == ["2"]
        assert len(shards) == 1
        assert shards.position.offset == cluster.end


async def test_a_view_that_is_closed_stays_and_says_so() -> None:
    cluster = FakeCluster()
    cluster.put("shard", "1", b"x")
    async with one_client(cluster) as client:
        async with client.live("shard") as shards:
            waiting = asyncio.create_task(shards.wait_for(lambda: "2" in shards))
            await asyncio.sleep(0)
        with pytest.raises(AdminError, match="the view was closed") as caught:
            await waiting
        assert caught.value.code is ErrorCode.NOT_READY
        assert list(shards) == ["1"]


async def test_a_watch_that_another_task_closes_ends() -> None:
    async with one_client(FakeCluster()) as client:
        watch = client.watch("shard")
        await next_of(watch)
        waiting = asyncio.create_task(anext(watch, None))
        await asyncio.sleep(0.02)
        watch.close()
        async with asyncio.timeout(5):
            assert await waiting is None


async def test_a_watch_that_was_closed_before_its_block_is_empty() -> None:
    """From now on, too: the block waits for no word of a node."""
    async with asyncio.timeout(5), one_client(FakeCluster()) as client:
        for watch in (client.watch("shard", from_now=True), client.watch("shard")):
            watch.close()
            async with watch:
                assert [batch async for batch in watch] == []
