"""Recipes whose changes may have happened: the answer is lost until the deadline, or another task has written meanwhile."""

import asyncio
from typing import Any

import pytest

from clients.errors import MayHaveHappened
from metaquorum import AdminError, Barrier, Election, Lock, Members, PutEntity
from tests.clients.fake_entities import FakeCluster, client_of, nodes, one_client
from tests.clients.recipes.test_locks import sessions, waits

WRITE = [PutEntity("job", "7", b"")]
FOR_EVER = 1_000_000


async def test_a_leader_whose_proclamation_had_no_answer_still_leads() -> None:
    cluster = FakeCluster()
    async with nodes(cluster) as running, client_of(running, 0.3) as client, sessions(client, 1) as (session,):
        election = Election(session, "a")
        token = await election.campaign()
        cluster.lost_answers = FOR_EVER
        with pytest.raises(MayHaveHappened):
            await election.proclaim(b"a:2")
        cluster.lost_answers = 0
        assert (await election.transact([], WRITE)).succeeded
        assert election.is_leader and election.token == token
        await election.proclaim(b"a:3")
        assert [each.value for each in cluster.entities.values() if each.kind == "election"] == [b"a:3"]


async def test_a_proclamation_during_a_transaction_does_not_end_the_leadership() -> None:
    cluster = FakeCluster()
    async with asyncio.timeout(5), one_client(cluster) as client, sessions(client, 1) as (session,):
        election = Election(session, "a")
        await election.campaign()
        for number in range(10):
            await asyncio.gather(election.proclaim(b"%d" % number), election.transact([], WRITE))
        assert election.is_leader


async def test_a_member_whose_update_had_no_answer_leaves_and_updates_all_the_same() -> None:
    cluster = FakeCluster()
    async with (
        nodes(cluster) as running,
        client_of(running, 0.3) as client,
        sessions(client, 1) as (session,),
        Members(client, "servers") as servers,
    ):
        member = await servers.join(session, "a", b"1")
        for how in (member.update(b"4"), member.leave()):
            cluster.lost_answers = FOR_EVER
            with pytest.raises(MayHaveHappened):
                await member.update(b"2")
            cluster.lost_answers = 0
            await how
        assert cluster.names("member") == []


async def test_a_party_that_could_not_leave_may_leave_again() -> None:
    cluster = FakeCluster()
    async with nodes(cluster) as running, client_of(running, 0.3) as client, sessions(client, 1) as (session,):
        barrier = Barrier(session, "nightly", 1)
        await barrier.enter()
        cluster.lost_requests = FOR_EVER
        with pytest.raises(AdminError):
            await barrier.leave()
        cluster.lost_requests = 0
        assert len(cluster.names("barrier")) == 2
        await barrier.leave()
        assert cluster.names("barrier") == ["nightly/round"]


async def test_a_cancelled_party_that_cannot_leave_is_cancelled() -> None:
    """Its place goes with the session; the caller's timeout must not become another error."""
    cluster = FakeCluster()
    async with nodes(cluster) as running, client_of(running, 0.3) as client, sessions(client, 1) as (session,):
        entering = asyncio.create_task(Barrier(session, "nightly", 2).enter())
        await waits(cluster, "barrier", 1)
        cluster.lost_requests = FOR_EVER
        entering.cancel()
        await asyncio.wait([entering])
        assert entering.cancelled()
        cluster.lost_requests = 0


async def test_a_place_that_makes_the_controller_fail_is_asked_for_once() -> None:
    """UNKNOWN_SERVER_ERROR: the same request would fail again, and no pause lies between two attempts."""
    cluster = FakeCluster()

    def fail(request: Any) -> Any:
        raise RuntimeError("a bug in the controller")

    async with asyncio.timeout(5), one_client(cluster) as client, sessions(client, 1) as (session,):
        cluster.transact = fail  # type: ignore[method-assign]
        with pytest.raises(MayHaveHappened):
            await Lock(session, "a").acquire()
        assert cluster.calls["TransactRequest"] == 2, "the place, and its removal"
