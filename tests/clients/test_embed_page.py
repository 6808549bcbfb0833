"""The programs of docs/embed.md and the examples that it names, as a user copies them, against a cluster in memory."""

import asyncio
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from metaquorum import EntityClient, Members, NotHeld, SessionLost
from tests.clients.fake_entities import FakeCluster, nodes

ROOT = Path(__file__).resolve().parents[2]
(PROGRAM,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "embed.md").read_text(), re.DOTALL)
STORE, JOBS = (ROOT / "examples" / name for name in ("sharded_store.py", "job_workers.py"))


def main_of(program: str) -> Any:
    names: dict[str, Any] = {}
    exec(program.replace("metaquorum.run(main(*sys.argv[1:3]))\n", ""), names)
    return names["main"]


async def until(cluster: FakeCluster, task: "asyncio.Task[Any]", holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():
            assert not task.done(), task.exception()
            await cluster.changed.wait()


async def end(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_first_program_stands_by_leads_and_ends_when_it_is_deposed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In at most 30 lines."""
    assert len(PROGRAM.splitlines()) <= 30
    cluster, main = FakeCluster(), main_of(PROGRAM)
    async with nodes(cluster, 2) as running:
        bootstrap = ",".join(each.target for each in running)
        first = asyncio.create_task(main("a", bootstrap))
        await until(cluster, first, lambda: cluster.names("run"))
        second = asyncio.create_task(main("b", bootstrap))
        await until(cluster, second, lambda: len(cluster.names("election")) == 2)
        (leader,) = {
            each.owner.session_id for each in cluster.entities.values() if each.value == b"a" and each.owner.epoch
        }
        cluster.end_session(leader)
        await until(cluster, second, lambda: cluster.entities["run", "cleaner"].value == b"b")
        async with asyncio.timeout(10):
            with pytest.raises((SessionLost, NotHeld)):
                await first
        await end(second)
    printed = capsys.readouterr().out
    assert "a leads under the token" in printed
    assert printed.index("b stands by") < printed.index("b leads under the token")


def shards_of(cluster: FakeCluster) -> dict[str, str]:
    return {name: cluster.entities["shard", name].value.decode() for name in cluster.names("shard")}


async def test_the_store_moves_the_shards_of_a_server_that_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    """In at most 60 lines."""
    assert len(STORE.read_text().splitlines()) <= 60
    cluster, main = FakeCluster(), runpy.run_path(str(STORE))["main"]
    async with nodes(cluster) as (node,):
        first = asyncio.create_task(main("a", node.target))
        await until(cluster, first, lambda: set(shards_of(cluster).values()) == {"a"})
        second = asyncio.create_task(main("b", node.target))
        await until(cluster, second, lambda: sorted(shards_of(cluster).values()) == ["a"] * 4 + ["b"] * 4)
        cluster.end_session(cluster.entities["member", "servers/b"].owner.session_id)
        await until(cluster, first, lambda: set(shards_of(cluster).values()) == {"a"})
        async with asyncio.timeout(10):
            with pytest.raises(ExceptionGroup) as ended:
                await second
            assert ended.value.split((SessionLost, NotHeld))[1] is None
        await end(first)
    assert "a gives shard-1 up" in capsys.readouterr().out


async def test_a_server_that_was_restarted_gets_its_shards_back_under_new_tokens() -> None:
    """Its former self is still a member, and still leads the shards: the new one waits."""
    cluster, main = FakeCluster(), runpy.run_path(str(STORE))["main"]
    async with nodes(cluster) as (node,):
        former = asyncio.create_task(main("a", node.target))
        await until(cluster, former, lambda: set(shards_of(cluster).values()) == {"a"})
        first = cluster.entities["shard", "shard-0"].version
        before = cluster.calls["TransactRequest"]
        again = asyncio.create_task(main("a", node.target))
        async with asyncio.timeout(10):
            while cluster.calls["TransactRequest"] == before:
                await asyncio.sleep(0.001)
        assert not again.done()
        cluster.end_session(cluster.entities["member", "servers/a"].owner.session_id)
        await until(cluster, again, lambda: cluster.entities["shard", "shard-0"].version > first)
        await end(former, again)


async def test_a_failed_condition_of_an_old_view_is_not_asked_for_again_at_once() -> None:
    """The view of the elected server lags: a member is gone, and the view does not know. One transaction fails, and then the
    server waits for its view."""
    cluster, names = FakeCluster(), runpy.run_path(str(STORE))
    async with (
        nodes(cluster) as (node,),
        EntityClient([node.target]) as client,
        client.session("a") as session,
        LaggingMembers(client, "servers") as servers,
    ):
        await servers.join(session, "a")
        cluster.delete("member", "servers/a")
        giving = asyncio.create_task(names["give_out"](session, servers))
        async with asyncio.timeout(10):
            await servers.asked.wait()
        refused = cluster.calls["TransactRequest"]
        for _ in range(100):
            await asyncio.sleep(0)
        assert cluster.calls["TransactRequest"] == refused and not giving.done()
        await end(giving)


class LaggingMembers(Members):
    """A view that stays as it was when the program first looked."""

    asked: asyncio.Event
    """Set when the program waits for a change."""

    async def join(self, *arguments: Any, **keywords: Any) -> Any:
        joined = await super().join(*arguments, **keywords)
        self.asked, self._shown = asyncio.Event(), self._members()
        return joined

    def _members(self) -> Any:
        return getattr(self, "_shown", None) or super()._members()

    async def changed(self, since: Any = None) -> None:
        self.asked.set()
        await asyncio.Event().wait()


async def test_a_job_of_a_worker_that_is_gone_is_done_by_another(capsys: pytest.CaptureFixture[str]) -> None:
    """In at most 60 lines. The first worker does the job too late, and its result is not written."""
    assert len(JOBS.read_text().splitlines()) <= 60
    cluster, program = FakeCluster(), runpy.run_path(str(JOBS))
    async with nodes(cluster) as (node,), program["EntityClient"]([node.target]) as client:
        submitted = asyncio.create_task(program["submit"](client, "report"))
        await until(cluster, submitted, lambda: cluster.names("job") == ["todo/report"])
        first = asyncio.create_task(program["work"](client, "a"))
        await until(cluster, first, lambda: ("job", "claim/report") in cluster.entities)
        cluster.end_session(cluster.entities["job", "claim/report"].owner.session_id)
        second = asyncio.create_task(program["work"](client, "b"))
        async with asyncio.timeout(10):
            await submitted
            with pytest.raises(SessionLost):
                await first
        await end(second)
    assert "report: done by b" in capsys.readouterr().out
