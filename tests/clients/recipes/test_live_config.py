"""Settings that follow by themselves, and the tokens that tell how new they are."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from clients.recipes.config import Config as AnyConfig
from metaquorum import AdminError, Config, Token
from tests.clients.fake_entities import FakeCluster, client_of, deleted, nodes, one_client


@dataclass(frozen=True)
class Settings:
    rate: int = 1
    name: str = "x"


async def until_rate(config: AnyConfig[Settings], rate: int) -> None:
    async with asyncio.timeout(5):
        while config.current.rate != rate:
            await asyncio.sleep(0.001)


async def test_the_settings_follow_by_themselves_until_the_block_ends() -> None:
    """The program awaits nothing of the settings; an operator writes."""
    cluster = FakeCluster()
    async with one_client(cluster) as client:
        async with Config(client, "app", Settings) as config:
            before = config.current
            cluster.put("config", "app/rate", b"7")
            await until_rate(config, 7)
            assert before.rate == 1, "settings that were read stay as they are"
            cluster.put("config", "app/rate", b"fast")
            async with asyncio.timeout(5):
                while not config.problems:
                    await asyncio.sleep(0.001)
            assert config.problems == {"rate": "the stored value is no JSON"}
            assert config.current.rate == 7
        cluster.put("config", "app/rate", b"9")
        assert [task for task in asyncio.all_tasks() if "settings" in task.get_name()] == []
        assert config.current.rate == 7


async def test_changes_come_on_top_of_the_settings_that_follow() -> None:
    cluster = FakeCluster()
    async with asyncio.timeout(5), one_client(cluster) as client, Config(client, "app", Settings) as config:
        changes = config.changes()
        assert (await anext(changes)).rate == 1
        cluster.put("config", "app/rate", b"7")
        await until_rate(config, 7)
        assert (await anext(changes)).rate == 7, "a change that `current` has already is a change all the same"
        await changes.aclose()  # type: ignore[attr-defined]


async def test_settings_that_cannot_follow_any_more_are_an_error_and_not_old_news() -> None:
    cluster = FakeCluster()
    async with nodes(cluster) as running, client_of(running) as client:
        with pytest.raises(AdminError, match="not for you"):
            async with asyncio.timeout(5), Config(client, "app", Settings) as config:
                assert config.current == Settings()
                cluster.refuse_watches("not for you")
                while True:
                    await asyncio.sleep(0.001)
                    _ = config.current
        for read in ("current", "problems", "token"):
            with pytest.raises(AdminError, match="not for you"):
                getattr(config, read)


async def test_a_block_whose_settings_have_failed_unseen_ends_with_the_error() -> None:
    cluster = FakeCluster()
    async with nodes(cluster) as running, client_of(running) as client:
        with pytest.raises(AdminError, match="not for you"):
            async with asyncio.timeout(5), Config(client, "app", Settings) as config:
                cluster.refuse_watches("not for you")
                with pytest.raises(AdminError, match="not for you"):
                    async for _ in config.changes():
                        pass


async def test_a_write_returns_the_token_that_the_settings_have_then() -> None:
    """The batch of a write ends with the outcome of its request, so its last offset is not that of the setting."""
    cluster = FakeCluster()
    async with asyncio.timeout(5), one_client(cluster) as client, Config(client, "app", Settings) as config:
        assert config.token == Token(0, -1)
        token = await config.set(rate=7, name="y")
        assert token == config.token == Token(0, max(entity.version for entity in cluster.entities.values()))


async def test_the_token_never_goes_back_and_covers_a_default_that_is_back() -> None:
    """A program that sends its token after `unset` makes the other program wait for the default."""
    cluster = FakeCluster()
    async with (
        asyncio.timeout(5),
        one_client(cluster) as client,
        Config(client, "app", Settings) as one,
        Config(client, "app", Settings) as two,
    ):
        first = await one.set(rate=7)
        last = await one.unset("rate")
        assert one.token >= last > first
        await two.reach(last)
        assert two.current == Settings()
        assert two.token > first
        await one.set(rate=8)
        cluster.delete("config", "app/rate")
        await until_rate(one, 1)
        await two.reach(one.token)
        assert two.current.rate == 1


async def test_a_value_that_came_and_went_at_once_does_not_stop_a_set() -> None:
    """Another program sets a key and unsets it. The view shows both changes at once, so it never shows the value."""
    cluster = FakeCluster()
    async with asyncio.timeout(5), one_client(cluster) as client, Config(client, "app", Settings) as config:
        transact = cluster.transact

        def first(request: Any) -> Any:
            """The other program is quicker, and takes its value back before the answer leaves."""
            cluster.transact = transact  # type: ignore[method-assign]
            version = cluster.end
            write = cluster.written(version, "config", "app/rate", b"7", None)
            cluster.entities["config", "app/rate"] = write.entity_written.entity
            refused = transact(request)
            cluster.append(lambda _: write, lambda offset: deleted(offset, "config", "app/rate"))
            return refused

        cluster.transact = first  # type: ignore[method-assign]
        await config.set(rate=3)
        assert config.current.rate == 3
