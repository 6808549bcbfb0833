"""metaquorum's side: entities, conditions on versions, watches, sessions of clients."""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self

import grpc.aio
from quorum_rpc.v1 import admin_pb2, common_pb2, entity_pb2, entity_pb2_grpc, watch_pb2, watch_pb2_grpc

from benchmarks.entities.sides import (
    BROKER,
    FOLLOWERS,
    KEYS,
    LEADER,
    VALUE_BYTES,
    WATCHED_KEYS,
    WatchPoint,
    stamped_value,
)
from benchmarks.load import Call
from benchmarks.ours import NotAcknowledged, OurCluster

KIND = "bench"
VALUE = os.urandom(VALUE_BYTES)
WATCH_PATH = "/quorum_rpc.v1.WatchService/Watch"
WATCHED, OWNED = "watched/", "owned/"
TIMEOUT_MS = 10_000


class OurSide:
    """`async with OurSide(cluster)`: the calls of the benchmark to a running cluster with one broker."""

    def __init__(self, cluster: OurCluster) -> None:
        self._cluster = cluster
        layout = cluster.cluster.layout
        self._targets = [node.endpoint for node in layout.controllers]
        self._brokers = layout.brokers
        self._channels = [grpc.aio.insecure_channel(target) for target in self._targets]
        self.context: admin_pb2.RequestContext = cluster.context(TIMEOUT_MS)
        self.pids = cluster.pids

    async def __aenter__(self) -> Self:
        """Stops the broker: etcd has three servers too. `with_broker` starts it again."""
        await self._cluster.cluster.stop(self._brokers[0].name)
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels:
            await channel.close()

    @contextlib.asynccontextmanager
    async def with_broker(self) -> AsyncIterator[int]:
        """The broker runs during the block, as the process of this id."""
        name = self._brokers[0].name
        pid = self._cluster.cluster.start(name)
        await self._cluster.cluster.wait_until_healthy()
        yield pid
        await self._cluster.cluster.stop(name)

    async def _leader(self) -> grpc.aio.Channel:
        return self._channels[await self._cluster.leader()]

    async def _entities(self) -> Any:
        return entity_pb2_grpc.EntityServiceStub(await self._leader())  # type: ignore[no-untyped-call]

    def put_operation(
        self, name: str, value: bytes = VALUE, owner: entity_pb2.Owner | None = None
    ) -> entity_pb2.Operation:
        entity = entity_pb2.EntityName(kind=KIND, name=name)
        return entity_pb2.Operation(put=entity_pb2.PutEntity(entity=entity, value=value, owner=owner))

    async def transact(
        self, stub: Any, operations: list[entity_pb2.Operation], conditions: list[entity_pb2.Condition] | None = None
    ) -> Any:
        """Sends one transaction. Raises NotAcknowledged: a condition did not hold."""
        request = entity_pb2.TransactRequest(context=self.context, conditions=conditions, operations=operations)
        answer = await stub.Transact(request)
        if not answer.succeeded:
            raise NotAcknowledged(f"a condition did not hold, and nobody else writes the entity: {answer.failed}")
        return answer

    async def put(self) -> Call:
        stub = await self._entities()
        return lambda n: self.transact(stub, [self.put_operation(f"put/{n % KEYS:07d}")])

    async def compare_and_set(self, keys: int) -> Call:
        stub = await self._entities()
        free: deque[tuple[str, int]] = deque()
        for number in range(keys):
            name = f"cas/{number:07d}"
            free.append((name, (await self.transact(stub, [self.put_operation(name)])).results[0].version))

        async def call(_: int) -> object:
            name, version = free.popleft()
            entity = entity_pb2.EntityName(kind=KIND, name=name)
            condition = entity_pb2.Condition(entity=entity, version=version)
            answer = await self.transact(stub, [self.put_operation(name)], [condition])
            free.append((name, answer.results[0].version))
            return answer

        return call

    async def transaction(self, keys: int) -> Call:
        stub = await self._entities()

        def call(n: int) -> Awaitable[object]:
            return self.transact(stub, [self.put_operation(f"txn/{(n * keys + i) % KEYS:07d}") for i in range(keys)])

        return call

    async def stamped_put(self) -> Callable[[int], Awaitable[object]]:
        stub = await self._entities()
        return lambda n: self.transact(stub, [self.put_operation(f"{WATCHED}{n % WATCHED_KEYS:03d}", stamped_value(n))])

    async def watch_points(self, place: str) -> list[WatchPoint]:
        leader = await self._cluster.leader_target()
        targets = {
            LEADER: [leader],
            FOLLOWERS: [target for target in self._targets if target != leader],
            BROKER: [node.endpoint for node in self._brokers[:1]],
        }[place]
        request = self._watch(WATCHED).SerializeToString()
        return [WatchPoint(target, WATCH_PATH, request, is_half_closed=True) for target in targets]

    def _watch(self, prefix: str) -> watch_pb2.WatchRequest:
        entities = watch_pb2.WatchFilter.Entities(kind=KIND, name_prefix=prefix)
        watched = watch_pb2.WatchFilter(entities=[entities])
        return watch_pb2.WatchRequest(cluster_id=self.context.cluster_id, filter=watched, from_now=True)

    @contextlib.asynccontextmanager
    async def sessions(self, timeout_s: int) -> AsyncIterator["OurSessions"]:
        """Sessions with this timeout."""
        channel = await self._leader()
        watch = watch_pb2_grpc.WatchServiceStub(channel).Watch(self._watch(OWNED))  # type: ignore[no-untyped-call]
        keep_alives = entity_pb2_grpc.EntityServiceStub(channel).KeepAlive()  # type: ignore[no-untyped-call]
        sessions = OurSessions(self, await self._entities(), watch, keep_alives, timeout_s)
        await sessions.until_watched()
        yield sessions
        watch.cancel()
        keep_alives.cancel()

    def owned_put(self, number: int, owner: entity_pb2.Owner) -> entity_pb2.Operation:
        """Writes the entity of a session."""
        return self.put_operation(f"{OWNED}{number}", b"", owner)


class OurSessions:
    """Sessions of clients, each with one ephemeral entity."""

    def __init__(self, side: OurSide, stub: Any, watch: Any, keep_alives: Any, timeout_s: int) -> None:
        self._side, self._stub = side, stub
        self._watch, self._keep_alives = watch, keep_alives
        self._timeout_ms = timeout_s * 1_000
        self._owners: dict[int, entity_pb2.Owner] = {}

    async def until_watched(self) -> None:
        """Writes an entity until the watch shows it: the watch shows what changes from now on."""
        first = asyncio.ensure_future(self._watch.read())
        while not first.done():
            await self._side.transact(self._stub, [self._side.put_operation(f"{OWNED}first")])
            await asyncio.wait({first}, timeout=0.05)
        if first.result() is grpc.aio.EOF:
            raise NotAcknowledged("the watch of the owned entities has ended")

    async def open(self, number: int) -> None:
        request = entity_pb2.OpenSessionRequest(
            context=self._side.context, session_id=os.urandom(16), name=f"bench {number}", timeout_ms=self._timeout_ms
        )
        answer = await self._stub.OpenSession(request)
        if answer.timeout_ms != self._timeout_ms:
            raise NotAcknowledged(f"a session of {answer.timeout_ms} ms instead of {self._timeout_ms} ms")
        owner = entity_pb2.Owner(session_id=request.session_id, epoch=answer.epoch)
        self._owners[number] = owner
        await self._side.transact(self._stub, [self._side.owned_put(number, owner)])

    async def keep_alive(self, number: int) -> None:
        owner = self._owners[number]
        name = entity_pb2.SessionName(session_id=owner.session_id, epoch=owner.epoch)
        await self._keep_alives.write(
            entity_pb2.KeepAliveRequest(cluster_id=self._side.context.cluster_id, id=number, sessions=[name])
        )
        answer = await self._keep_alives.read()
        for error in (answer.error, *(each.error for each in answer.sessions)):
            if error.code != common_pb2.NONE:
                raise NotAcknowledged(f"session {number} had ended before its client stopped: {error.message}")

    async def vanished(self) -> AsyncIterator[int]:
        while (message := await self._watch.read()) is not grpc.aio.EOF:
            for event in message.events:
                if event.HasField("entity_deleted"):
                    yield int(event.entity_deleted.entity.name.removeprefix(OWNED))
