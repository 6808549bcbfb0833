"""A lock or a leadership that is gone: nobody believes in it any more, and a program may wait for its end."""

import asyncio

import pytest

from metaquorum import Election, Lock, NotHeld, PutEntity, Session
from tests.clients.fake_entities import FakeCluster, one_client
from tests.clients.recipes.test_locks import sessions

WRITE = [PutEntity("job", "7", b"")]


async def held(recipe: type[Lock] | type[Election], session: Session) -> Lock | Election:
    """A lock or an election of this session that is held."""
    if recipe is Lock:
        lock = Lock(session, "a")
        await lock.acquire()
        return lock
    election = Election(session, "a")
    await election.campaign()
    return election


def is_held(recipe: Lock | Election) -> bool:
    return recipe.is_held if isinstance(recipe, Lock) else recipe.is_leader


async def again(recipe: Lock | Election) -> None:
    await (recipe.acquire() if isinstance(recipe, Lock) else recipe.campaign())


def delete_place(cluster: FakeCluster) -> None:
    ((kind, name),) = [key for key in cluster.entities if key[0] in ("lock", "election")]
    cluster.delete(kind, name)


@pytest.mark.parametrize("recipe", [Lock, Election])
async def test_after_not_held_nothing_is_held_and_it_may_be_asked_for_again(
    recipe: type[Lock] | type[Election],
) -> None:
    """An operator deletes the place: the session is safe, so only the refusal tells."""
    cluster = FakeCluster()
    async with asyncio.timeout(5), one_client(cluster) as client, sessions(client, 1) as (session,):
        mine = await held(recipe, session)
        former = mine.token
        delete_place(cluster)
        with pytest.raises(NotHeld):
            await mine.transact([], WRITE)
        assert not is_held(mine)
        for refused in ("condition", "token"):
            with pytest.raises(NotHeld, match="somebody has deleted"):
                getattr(mine, refused)
        await again(mine)
        assert is_held(mine) and mine.token > former


async def test_a_proclamation_that_finds_no_candidacy_ends_the_leadership() -> None:
    cluster = FakeCluster()
    async with asyncio.timeout(5), one_client(cluster) as client, sessions(client, 1) as (session,):
        election = Election(session, "a")
        await election.campaign()
        delete_place(cluster)
        with pytest.raises(NotHeld):
            await election.proclaim(b"b:1")
        assert not election.is_leader


async def waiting(cluster: FakeCluster, mine: Lock | Election) -> "asyncio.Task[None]":
    """A wait for the loss, after its watch was opened."""
    before = cluster.calls["Watch"]
    task = asyncio.create_task(mine.wait_lost())
    while cluster.calls["Watch"] == before:
        await asyncio.sleep(0)
    assert not task.done()
    return task


@pytest.mark.parametrize("recipe", [Lock, Election])
@pytest.mark.parametrize("how", ["deleted", "session ended", "given up"])
async def test_a_program_waits_until_the_place_is_gone(recipe: type[Lock] | type[Election], how: str) -> None:
    cluster = FakeCluster()
    async with asyncio.timeout(5), one_client(cluster) as client, client.session("a", 1_000) as session:
        mine = await held(recipe, session)
        task = await waiting(cluster, mine)
        if how == "deleted":
            delete_place(cluster)
        elif how == "session ended":
            cluster.end_session(session.session_id)
        else:
            await (mine.release() if isinstance(mine, Lock) else mine.resign())
        await task
        assert not is_held(mine)
        await mine.wait_lost()


async def test_the_watch_for_the_loss_is_there_only_while_somebody_waits() -> None:
    cluster = FakeCluster()
    async with asyncio.timeout(5), one_client(cluster) as client, sessions(client, 1) as (session,):
        lock = Lock(session, "a")
        await lock.wait_lost()
        assert cluster.calls["Watch"] == 0, "a lock that was not acquired is not held, so the wait ends at once"
        await lock.acquire()
        assert cluster.calls["Watch"] == 0
        task = await waiting(cluster, lock)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() and lock.is_held
        await _until_no_watch(cluster)


async def _until_no_watch(cluster: FakeCluster) -> None:
    while cluster.open_watches:
        await asyncio.sleep(0.001)


async def test_a_lost_lock_leaves_the_locks_of_others_alone() -> None:
    cluster = FakeCluster()
    async with asyncio.timeout(5), one_client(cluster) as client, sessions(client, 2) as (first, second):
        mine, other = Lock(first, "a"), Lock(second, "b")
        await mine.acquire()
        await other.acquire()
        lost = await waiting(cluster, mine)
        kept = await waiting(cluster, other)
        await mine.release()
        await lost
        assert not kept.done() and other.is_held
        kept.cancel()
        await asyncio.wait([kept])
