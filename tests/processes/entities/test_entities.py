"""Entities and sessions on real daemons: through a broker, raced for by all nodes, and over a kill -9 of the leader."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from quorum_rpc.v1 import admin_pb2, common_pb2, entity_pb2, entity_pb2_grpc

from tests.processes.conftest import Cluster, running, until

pytestmark = [pytest.mark.processes, pytest.mark.slow]

TIMEOUT_S = 2.0
SILENT, KEPT = b"a silent session", b"a living session"
LOCK = entity_pb2.EntityName(kind="lock", name="backup")


def _put(name: entity_pb2.EntityName, value: bytes, **how: Any) -> entity_pb2.Operation:
    return entity_pb2.Operation(put=entity_pb2.PutEntity(entity=name, value=value, **how))


async def _open(stub: Any, session_id: bytes) -> entity_pb2.Owner:
    """Opens a session that owns a member of the same name."""
    opened = await stub.OpenSession(
        entity_pb2.OpenSessionRequest(session_id=session_id, timeout_ms=int(TIMEOUT_S * 1_000))
    )
    owner = entity_pb2.Owner(session_id=session_id, epoch=opened.epoch)
    member = entity_pb2.EntityName(kind="member", name=session_id.decode())
    await stub.Transact(entity_pb2.TransactRequest(operations=[_put(member, b"", owner=owner)]))
    return owner


async def _members(stub: Any) -> set[str]:
    context = admin_pb2.RequestContext(timeout_ms=5_000)
    request = entity_pb2.ListEntitiesRequest(context=context, kind="member", names_only=True)
    try:
        return {entity.name for entity in (await stub.ListEntities(request)).entities}
    except grpc.aio.AioRpcError:
        return {"nobody knows"}  # while no controller leads


async def _race(stubs: list[Any]) -> None:
    """All write from the same version: one wins, and each loser is told what it lost to."""
    (won,) = (await stubs[0].Transact(entity_pb2.TransactRequest(operations=[_put(LOCK, b"free")]))).results
    is_free = entity_pb2.Condition(entity=LOCK, version=won.version)
    answers = await asyncio.gather(
        *(
            stub.Transact(entity_pb2.TransactRequest(conditions=[is_free], operations=[_put(LOCK, b"%d" % number)]))
            for number, stub in enumerate(stubs * 5)
        )
    )
    (winner,) = [answer for answer in answers if answer.succeeded]
    assert {answer.failed.entity.version for answer in answers if not answer.succeeded} == {winner.results[0].version}
    assert winner.results[0].version > won.version


async def _kept_alive(stub: Any, owner: entity_pb2.Owner, leases: list[int]) -> None:
    """Sends a message every 100 ms on one stream through a broker, until it is cancelled."""
    session = entity_pb2.SessionName(session_id=owner.session_id, epoch=owner.epoch)
    stream = stub.KeepAlive()
    try:
        while True:
            await stream.write(entity_pb2.KeepAliveRequest(sessions=[session]))
            answer = await stream.read()
            for kept in answer.sessions:
                assert kept.error.code == common_pb2.NONE, "a session that is kept alive has ended"
                leases.append(kept.lease_ms)
            await asyncio.sleep(0.1)
    finally:
        stream.cancel()


async def test_entities_and_sessions_outlive_the_leader(tmp_path: Path) -> None:
    """The silent session ends one timeout after the next leader began; the one that is kept alive through a broker does not."""
    async with running(tmp_path / "cluster", brokers=1) as cluster, AsyncExitStack() as stack:
        broker, *controllers = [
            entity_pb2_grpc.EntityServiceStub(  # type: ignore[no-untyped-call]
                await stack.enter_async_context(grpc.aio.insecure_channel(node.endpoint))
            )
            for node in (*cluster.brokers.values(), *cluster.controllers.values())
        ]
        await cluster.online()
        await _race([broker, *controllers])
        leases: list[int] = []
        kept, _ = await _open(broker, KEPT), await _open(broker, SILENT)
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(_kept_alive(broker, kept, leases))
            await asyncio.sleep(0)
            began_s = await _killed(cluster)

            async def ended() -> bool | None:
                return True if await _members(broker) == {KEPT.decode()} else None

            await until(ended)
            took_s = time.monotonic() - began_s
            keeping.cancel()
        assert TIMEOUT_S - 0.1 <= took_s <= TIMEOUT_S + 3.0, took_s
        assert max(leases) > 1_000, leases
        assert max(leases) <= TIMEOUT_S * 800, leases


async def _killed(cluster: Cluster) -> float:
    """Kills the active controller, and returns the time."""
    leader = await cluster.leader()
    began_s = time.monotonic()
    cluster.dev.kill(leader.name)
    return began_s
