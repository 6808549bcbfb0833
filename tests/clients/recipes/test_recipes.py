"""Election, members, barrier and live settings, against a cluster in memory."""

import asyncio
from dataclasses import dataclass

import pytest

from metaquorum import (
    Barrier,
    ConditionFailed,
    Config,
    Election,
    Joined,
    Left,
    Lock,
    Members,
    NotHeld,
    PutEntity,
    SessionLost,
    Token,
    Updated,
    exists,
    leader_of,
    observe_leaders,
)
from tests.clients.fake_entities import FakeCluster, one_client
from tests.clients.recipes.test_locks import sessions, waits

# --- election --------------------------------------------------------------------------------------------------------


async def test_the_next_candidate_leads_when_the_leader_resigns_or_dies() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client, sessions(client, 3) as workers:
        a, b, c = (
            Election(session, "scheduler", name) for session, name in zip(workers, (b"a", b"b", b"c"), strict=True)
        )
        assert await leader_of(client, "scheduler") is None
        first = await a.campaign()
        campaigns = []
        for number, candidate in enumerate((b, c), 2):
            campaigns.append(asyncio.create_task(candidate.campaign()))
            await waits(cluster, "election", number)
        leader = await leader_of(client, "scheduler")
        assert leader == await b.leader() == (b"a", first)
        async with asyncio.timeout(5):
            await a.resign()
            second = await campaigns[0]
            assert b.is_leader
            cluster.end_session(workers[1].session_id)
            third = await campaigns[1]
        assert first < second < third
        with pytest.raises(NotHeld):
            await b.transact([], [PutEntity("job", "7", b"late")])
        with pytest.raises(NotHeld, match="campaign first"):
            _ = a.token


async def test_observers_see_each_leader_and_its_new_words() -> None:
    async with one_client(FakeCluster()) as client, sessions(client, 1) as (session,):
        seen = observe_leaders(client, "scheduler")
        async with asyncio.timeout(5):
            assert await anext(seen) is None
            election = Election(session, "scheduler", b"a:1")
            token = await election.campaign()
            assert await anext(seen) == (b"a:1", token)
            await election.proclaim(b"a:2")
            assert await anext(seen) == (b"a:2", token), "a proclamation is no election"
            done = await election.transact([election.condition], [PutEntity("job", "7", b"")])
            assert done.succeeded
            await election.resign()
            assert await anext(seen) is None
        await seen.aclose()  # type: ignore[attr-defined]


async def test_a_candidate_that_gives_up_is_no_candidate_any_more() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client, sessions(client, 2) as (first, second):
        await Election(first, "scheduler").campaign()
        tired = Election(second, "scheduler")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await tired.campaign()
        assert len(cluster.names("election")) == 1
        assert not tired.is_leader


# --- members ---------------------------------------------------------------------------------------------------------


async def test_a_group_shows_its_members_and_each_change_in_order() -> None:
    cluster = FakeCluster()
    async with (
        one_client(cluster) as client,
        sessions(client, 2) as (first, second),
        Members(client, "workers") as group,
    ):
        changes = group.changes()
        a = await group.join(first, "a", b"1")
        b = await group.join(second, "b", b"2")
        assert a.token < b.token
        assert group.data == {"a": b"1", "b": b"2"}
        assert await group.wait_for(2) == ["a", "b"]
        async with asyncio.timeout(5):
            assert [await anext(changes), await anext(changes)] == [Joined("a", b"1"), Joined("b", b"2")]
            await a.update(b"3")
            await b.leave()
            await b.leave()
            cluster.end_session(first.session_id)
            assert [await anext(changes) for _ in range(3)] == [Updated("a", b"3"), Left("b"), Left("a")]
        with pytest.raises(ConditionFailed):
            await a.update(b"4")
        await changes.aclose()  # type: ignore[attr-defined]


async def test_a_name_is_given_once_and_a_former_member_does_not_remove_its_successor() -> None:
    cluster = FakeCluster()
    async with (
        one_client(cluster) as client,
        sessions(client, 2) as (first, second),
        Members(client, "workers") as group,
    ):
        former = await group.join(first, "a")
        with pytest.raises(ConditionFailed):
            await group.join(second, "a")
        with pytest.raises(ValueError, match="slash"):
            await group.join(second, "a/b")
        cluster.delete("member", "workers/a")
        successor = await group.join(second, "a")
        await former.leave()
        assert group.names == ["a"]
        write = [PutEntity("job", "7", b"")]
        assert (await client.transact([successor.condition, exists("member", "workers/a")], write)).succeeded
        assert not (await client.transact([former.condition], write)).succeeded


# --- barrier ---------------------------------------------------------------------------------------------------------


async def test_parties_begin_together_and_end_together_again_and_again() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client, sessions(client, 3) as workers:
        barriers = [Barrier(session, "nightly", 3) for session in workers]
        rounds: list[Token] = []
        for _ in range(2):
            entering = [asyncio.create_task(barrier.enter()) for barrier in barriers[:2]]
            await waits(cluster, "barrier", 2 + len(rounds[:1]))
            assert not any(task.done() for task in entering)
            async with asyncio.timeout(5):
                tokens = {await barriers[2].enter(), *await asyncio.gather(*entering)}
            assert len(tokens) == 1
            rounds += tokens
            leaving = [asyncio.create_task(barrier.leave()) for barrier in barriers[:2]]
            await asyncio.sleep(0.05)
            assert not any(task.done() for task in leaving)
            async with asyncio.timeout(5):
                await asyncio.gather(barriers[2].leave(), *leaving)
        assert rounds == sorted(set(rounds))
        assert cluster.names("barrier") == ["nightly/round"]


async def test_a_party_that_dies_is_not_waited_for_and_not_counted() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client, sessions(client, 3) as workers:
        a, b, c = (Barrier(session, "nightly", 2) for session in workers)
        lost = asyncio.create_task(b.enter())
        await waits(cluster, "barrier", 1)
        cluster.end_session(workers[1].session_id)
        lost.cancel()
        await asyncio.wait([lost])
        entering = asyncio.create_task(a.enter())
        await asyncio.sleep(0.05)
        assert not entering.done(), "one party is not two"
        async with asyncio.timeout(5):
            await c.enter()
            await entering
            cluster.end_session(workers[2].session_id)
            await a.leave()


async def test_a_barrier_for_nobody_is_refused() -> None:
    async with one_client(FakeCluster()) as client, sessions(client, 1) as (session,):
        with pytest.raises(ValueError, match="at least one party"):
            Barrier(session, "nightly", 0)


# --- settings --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    batch_size: int = 100
    ratio: float = 0.5
    name: str = "x"
    verbose: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be positive, not {self.batch_size}")
        if self.verbose and self.name == "x":
            raise ValueError("verbose needs a name")


async def test_settings_are_typed_live_and_have_defaults() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client, Config(client, "indexer", Settings) as config:
        assert config.current == Settings()
        changes = config.changes()
        async with asyncio.timeout(5):
            assert await anext(changes) == Settings()
            token = await config.set(batch_size=200, name="y")
            assert config.current == Settings(batch_size=200, name="y")
            assert config.token == token
            assert await anext(changes) == Settings(batch_size=200, name="y")
            async with Config(client, "indexer", Settings) as other:
                await other.set(ratio=2, verbose=True)
                assert other.current.ratio == 2.0
            assert (await anext(changes)).verbose
            assert await config.reach(await config.unset("batch_size", "verbose")) == Settings(ratio=2.0, name="y")
        await changes.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"batch_size": "many"}, "batch_size must be a int"),
        ({"batch_size": True}, "batch_size must be a int, not True"),
        ({"batch_size": 0}, "must be positive"),
        ({"verbose": True}, "verbose needs a name"),
        ({"colour": "red"}, "no setting 'colour'"),
    ],
)
async def test_a_setting_that_is_not_valid_is_not_written(values: dict[str, object], why: str) -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client, Config(client, "indexer", Settings) as config:
        with pytest.raises(ValueError, match=why):
            await config.set(**values)
        assert cluster.entities == {}


async def test_two_programs_cannot_make_settings_that_are_not_valid_together() -> None:
    """Each of the two writes is valid with the settings that its program has seen; the second one finds other settings."""
    cluster = FakeCluster()
    async with one_client(cluster) as client, Config(client, "indexer", Settings) as config:
        await config.set(name="y")
        cluster.put("config", "indexer/verbose", b"true")
        with pytest.raises(ValueError, match="verbose needs a name"):
            async with asyncio.timeout(5):
                await config.set(name="x")
        assert config.current.name == "y"


async def test_a_stored_value_that_cannot_be_used_changes_nothing_and_is_named() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client, Config(client, "indexer", Settings) as config:
        await config.set(batch_size=200)
        cluster.put("config", "indexer/batch_size", b"many")
        cluster.put("config", "indexer/verbose", b"1")
        token = Token(0, cluster.put("config", "indexer/name", b'"y"'))
        settings = await config.reach(token)
        assert settings == Settings(batch_size=200, name="y")
        assert config.problems == {
            "batch_size": "the stored value is no JSON",
            "verbose": "the stored value is no bool",
        }
        settings = await config.reach(Token(0, cluster.put("config", "indexer/batch_size", b"-1")))
        assert settings == Settings(batch_size=200, name="y")
        assert config.problems[""] == "batch_size must be positive, not -1"


async def test_a_schema_has_simple_types() -> None:
    @dataclass(frozen=True)
    class Wrong:
        sizes: tuple[int, ...] = ()

    async with one_client(FakeCluster()) as client:
        with pytest.raises(ValueError, match="sizes: a setting has one of the types"):
            Config(client, "indexer", Wrong)
        with pytest.raises(ValueError, match="a dataclass expected"):
            Config(client, "indexer", int)


async def test_a_lock_with_a_lost_session_is_not_held() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client, client.session("a", 1_000) as session:
        lock = Lock(session, "a")
        await lock.acquire()
        cluster.end_session(session.session_id)
        async with asyncio.timeout(5):
            await session.lost.wait()
        assert not lock.is_held
        await lock.release()
        with pytest.raises(SessionLost):
            await lock.acquire()
