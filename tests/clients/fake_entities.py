"""EntityService and WatchService in memory: one cluster, any number of nodes with real gRPC servers.

The semantics are those of entity.proto and watch.proto: versions are offsets, a transaction is one batch, a repeated request id
gets the first answer, a session's end removes its entities in the same batch. Sessions end only when a test says so.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
from quorum_rpc.v1 import common_pb2, entity_pb2, entity_pb2_grpc, watch_pb2, watch_pb2_grpc

from metaquorum import EntityClient
from service_kit.rpc.refusals import Refusal

Name = tuple[str, str]


class Batch(NamedTuple):
    """A batch of the log."""

    base: int
    end: int
    events: list[watch_pb2.WatchEvent]


def deleted(offset: int, kind: str, name: str) -> watch_pb2.WatchEvent:
    gone = watch_pb2.EntityDeleted(entity=entity_pb2.EntityName(kind=kind, name=name))
    return watch_pb2.WatchEvent(offset=offset, entity_deleted=gone)


class FakeCluster:
    """The committed state, and the log."""

    def __init__(self) -> None:
        self.generation = 0
        self.end = 100
        self.log_start = 0
        self.history = b"history"
        self.entities: dict[Name, entity_pb2.Entity] = {}
        self.kinds: dict[str, entity_pb2.Kind] = {}
        self.sessions: dict[bytes, entity_pb2.Session] = {}
        self.batches: list[Batch] = []
        self.outcomes: dict[bytes, Any] = {}
        self.changed = asyncio.Event()
        self.watch_events_per_message = 1_000
        self.lost_answers = 0
        """So many answers of changes are lost after the change was made."""
        self.lost_requests = 0
        """So many changes are lost before they arrive."""
        self.late: list[entity_pb2.TransactRequest] = []
        """The transactions among the lost requests, which may still arrive."""
        self.calls: Counter[str] = Counter()
        self.open_watches = 0
        self.refused_watches = ""
        """Why watches are refused; "": they are served."""

    def refuse_watches(self, why: str) -> None:
        """Ends all watches, and refuses them from now on."""
        self.refused_watches = why
        self.append(lambda offset: record(offset, "Config"))

    # --- the log -----------------------------------------------------------------------------------------------------

    def position(self, offset: int) -> watch_pb2.WatchPosition:
        chain = hashlib.sha256(self.history + str(offset).encode()).digest()
        return watch_pb2.WatchPosition(generation=self.generation, offset=offset, epoch=1, chain=chain)

    def append(self, *make: Callable[[int], watch_pb2.WatchEvent]) -> Batch:
        batch = Batch(self.end, self.end + len(make), [each(self.end + place) for place, each in enumerate(make)])
        for event in batch.events:
            self._apply(event)
        self.end = batch.end
        self.batches.append(batch)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()
        return batch

    def _apply(self, event: watch_pb2.WatchEvent) -> None:
        if event.HasField("entity_written"):
            entity = event.entity_written.entity
            self.entities[entity.kind, entity.name] = entity
        elif event.HasField("entity_deleted"):
            gone = event.entity_deleted.entity
            del self.entities[gone.kind, gone.name]

    def put(self, kind: str, name: str, value: bytes, owner: entity_pb2.Owner | None = None) -> int:
        """Writes an entity as another client would. Returns the version."""
        return self.append(lambda offset: self.written(offset, kind, name, value, owner)).base

    def delete(self, kind: str, name: str) -> None:
        self.append(lambda offset: deleted(offset, kind, name))

    def written(
        self, offset: int, kind: str, name: str, value: bytes, owner: entity_pb2.Owner | None
    ) -> watch_pb2.WatchEvent:
        before = self.entities.get((kind, name))
        entity = entity_pb2.Entity(
            kind=kind,
            name=name,
            value=value,
            version=offset,
            created=offset if before is None else before.created,
            owner=owner,
        )
        return watch_pb2.WatchEvent(offset=offset, entity_written=watch_pb2.EntityWritten(entity=entity))

    def trim(self) -> None:
        """The log begins at its end: the position of each watch below is lost."""
        self.log_start, self.batches = self.end, []

    def end_session(self, session_id: bytes) -> None:
        """The session is over, and so are its entities."""
        session = self.sessions.pop(session_id)
        owned = [name for name, entity in self.entities.items() if entity.owner.session_id == session.session_id]
        gone = [lambda offset, name=name: deleted(offset, *name) for name in owned]
        self.append(*gone, lambda offset: record(offset, "EndClientSession"))

    def names(self, kind: str) -> list[str]:
        return sorted(name for each, name in self.entities if each == kind)

    # --- transactions ------------------------------------------------------------------------------------------------

    def transact(self, request: entity_pb2.TransactRequest) -> entity_pb2.TransactResponse:
        for index, condition in enumerate(request.conditions):
            entity = self.entities.get((condition.entity.kind, condition.entity.name))
            if not holds(condition, entity):
                failed = entity_pb2.FailedCondition(index=index)
                if entity is not None:
                    failed.entity.CopyFrom(entity)
                    failed.entity.ClearField("value")
                return entity_pb2.TransactResponse(offset=-1, failed=failed, generation=self.generation)
        make = [self._event(operation) for operation in request.operations]
        before = {name: entity.version for name, entity in self.entities.items()}
        wanted = [each for each in make if each is not None]
        outcome = [lambda offset: record(offset, "RequestOutcome")] if request.context.request_id else []
        batch = self.append(*wanted, *outcome) if wanted else Batch(-1, -1, [])
        offsets = iter(range(batch.base, batch.end))
        results = [
            self._result(operation, before, None if event is None else next(offsets))
            for operation, event in zip(request.operations, make, strict=True)
        ]
        return entity_pb2.TransactResponse(
            offset=batch.end, succeeded=True, results=results, generation=self.generation
        )

    def _event(self, operation: entity_pb2.Operation) -> Callable[[int], watch_pb2.WatchEvent] | None:
        match operation.WhichOneof("operation"):
            case "put":
                put = operation.put
                name = put.entity.kind, put.entity.name
                owner = put.owner if put.HasField("owner") else None
                if put.keep_owner:
                    there = self.entities.get(name)
                    if there is None:
                        raise Refusal("INVALID_REQUEST", "keep_owner, but there is no such entity")
                    owner = there.owner if there.HasField("owner") else None
                elif owner is not None and self.session_of(owner) is None:
                    raise Refusal("UNKNOWN_SESSION", "the session has ended; nothing was done")
                return lambda offset: self.written(offset, *name, put.value, owner)
            case "delete":
                gone = operation.delete.kind, operation.delete.name
                return None if gone not in self.entities else lambda offset: deleted(offset, *gone)
            case "create_topic":
                topic = operation.create_topic.name
                return lambda offset: record(offset, "Topic", topic)
            case "delete_topic":
                return lambda offset: record(offset, "RemoveTopic", operation.delete_topic)
            case _:
                return lambda offset: record(offset, "Config", operation.alter_configs.resource.name)

    def _result(
        self, operation: entity_pb2.Operation, before: dict[Name, int], offset: int | None
    ) -> entity_pb2.OperationResult:
        match operation.WhichOneof("operation"):
            case "put":
                return entity_pb2.OperationResult(version=offset)
            case "delete":
                version = before.get((operation.delete.kind, operation.delete.name), -1)
                return entity_pb2.OperationResult(version=version)
            case "create_topic":
                return entity_pb2.OperationResult(version=-1, topic_id=bytes(16))
            case _:
                return entity_pb2.OperationResult(version=-1)

    def session_of(self, owner: Any) -> entity_pb2.Session | None:
        session = self.sessions.get(owner.session_id)
        return session if session is not None and session.epoch == owner.epoch else None

    def arrive(self) -> None:
        """The lost requests arrive after all, as a slow network may have it."""
        late, self.late = self.late, []
        for request in late:
            if request.context.request_id not in self.outcomes:
                response = self.transact(request)
                if response.succeeded:
                    self.outcomes[request.context.request_id] = response


def record(offset: int, type_: str, topic: str = "") -> watch_pb2.WatchEvent:
    return watch_pb2.WatchEvent(offset=offset, record=watch_pb2.RecordWritten(type=type_, json="{}", topic=topic))


def holds(condition: entity_pb2.Condition, entity: entity_pb2.Entity | None) -> bool:
    match condition.WhichOneof("test"):
        case "exists":
            return (entity is not None) == condition.exists
        case "version":
            return entity is not None and entity.version == condition.version
        case "version_at_most":
            return entity is not None and entity.version <= condition.version_at_most
        case _:
            return entity is not None and entity.value == condition.value


class FakeNode(entity_pb2_grpc.EntityServiceServicer, watch_pb2_grpc.WatchServiceServicer):
    """A node of the cluster. All nodes show the same state."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.leader: str | None = None
        """Not None: this node does not lead, keeps nothing alive, and names this leader."""
        self.lease_ms: int | None = None
        """The lease in answers. None: the timeout of the session."""
        self.streams: set[Any] = set()

    # --- unary calls -------------------------------------------------------------------------------------------------

    async def _change(self, request: Any, context: Any, change: Callable[[Any], Any]) -> Any:
        cluster, request_id = self.cluster, request.context.request_id
        assert len(request_id) == 16, "a change without a request id"
        cluster.calls[type(request).__name__] += 1
        if cluster.lost_requests:
            cluster.lost_requests -= 1
            if isinstance(request, entity_pb2.TransactRequest):
                cluster.late.append(request)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        response = cluster.outcomes.get(request_id)
        if response is None:
            try:
                response = change(request)
            except Refusal as e:
                await e.end(context)
            if getattr(response, "succeeded", True):
                cluster.outcomes[request_id] = response
        if cluster.lost_answers:
            cluster.lost_answers -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        return response

    async def Transact(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._change(request, context, self.cluster.transact)

    async def GetEntities(self, request: Any, context: Any) -> Any:  # noqa: N802
        there = [self.cluster.entities.get((name.kind, name.name)) for name in request.entities]
        return entity_pb2.GetEntitiesResponse(
            as_of_offset=self.cluster.end,
            entities=[entity for entity in there if entity is not None],
            missing=[place for place, entity in enumerate(there) if entity is None],
            generation=self.cluster.generation,
        )

    async def ListEntities(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.cluster.calls["ListEntities"] += 1
        names = [
            name
            for name in self.cluster.names(request.kind)
            if name.startswith(request.prefix)
            and name >= request.from_name
            and (not request.to_name or name < request.to_name)
        ]
        begin = request.page_token.decode()
        page = [name for name in names if name >= begin]
        size = request.page_size or 1_000
        token = page[size].encode() if len(page) > size else b""
        entities = [self.cluster.entities[request.kind, name] for name in page[:size]]
        return entity_pb2.ListEntitiesResponse(
            as_of_offset=self.cluster.end,
            entities=[] if request.count_only else entities,
            count=len(names),
            next_page_token=b"" if request.count_only else token,
            generation=self.cluster.generation,
        )

    async def AlterKinds(self, request: Any, context: Any) -> Any:  # noqa: N802
        def alter(request: Any) -> Any:
            self.cluster.kinds |= {kind.kind: kind for kind in request.declare}
            for kind in request.remove:
                self.cluster.kinds.pop(kind, None)
            return entity_pb2.AlterKindsResponse(offset=self.cluster.append(lambda at: record(at, "EntityKind")).end)

        return await self._change(request, context, alter)

    async def DescribeKinds(self, request: Any, context: Any) -> Any:  # noqa: N802
        kinds = [entity_pb2.DescribedKind(kind=kind, is_declared=True) for kind in self.cluster.kinds.values()]
        return entity_pb2.DescribeKindsResponse(as_of_offset=self.cluster.end, kinds=kinds)

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def OpenSession(self, request: Any, context: Any) -> Any:  # noqa: N802
        def open_(request: Any) -> Any:
            epoch = self.cluster.append(lambda offset: record(offset, "ClientSession")).base
            timeout_ms = request.timeout_ms or 9_000
            self.cluster.sessions[request.session_id] = entity_pb2.Session(
                session_id=request.session_id, name=request.name, timeout_ms=timeout_ms, epoch=epoch
            )
            return entity_pb2.OpenSessionResponse(
                offset=epoch + 1, epoch=epoch, timeout_ms=timeout_ms, generation=self.cluster.generation
            )

        return await self._change(request, context, open_)

    async def CloseSession(self, request: Any, context: Any) -> Any:  # noqa: N802
        def close(request: Any) -> Any:
            if self.cluster.session_of(request) is None:
                return entity_pb2.CloseSessionResponse(offset=-1)
            self.cluster.end_session(request.session_id)
            return entity_pb2.CloseSessionResponse(offset=self.cluster.end)

        return await self._change(request, context, close)

    async def ListSessions(self, request: Any, context: Any) -> Any:  # noqa: N802
        sessions = [self.cluster.sessions[each] for each in sorted(self.cluster.sessions)]
        return entity_pb2.ListSessionsResponse(as_of_offset=self.cluster.end, sessions=sessions)

    async def KeepAlive(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        async for request in requests:
            self.cluster.calls["KeepAlive"] += 1
            response = entity_pb2.KeepAliveResponse(id=request.id)
            if self.leader is not None:
                response.error.code = common_pb2.NOT_CONTROLLER
                response.leader.leader_id = 1
                response.leader.endpoint.host, _, port = self.leader.rpartition(":")
                response.leader.endpoint.port = int(port)
            else:
                response.sessions.extend(self._kept(name) for name in request.sessions)
            yield response

    def _kept(self, name: entity_pb2.SessionName) -> entity_pb2.KeptSession:
        session = self.cluster.session_of(name)
        kept = entity_pb2.KeptSession(session=name)
        if session is None:
            kept.error.code = common_pb2.UNKNOWN_SESSION
            kept.error.message = "the session has ended"
        else:
            kept.lease_ms = session.timeout_ms if self.lease_ms is None else self.lease_ms
        return kept

    # --- watches -----------------------------------------------------------------------------------------------------

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        self.cluster.calls["Watch"] += 1
        self.cluster.open_watches += 1
        try:
            async for message in self._watched(request, context):
                yield message
        finally:
            self.cluster.open_watches -= 1

    async def _watched(self, request: Any, context: Any) -> AsyncIterator[Any]:
        cluster = self.cluster
        asked = request.position if request.HasField("position") else None
        reason = self._reset_of(asked)
        at = cluster.end if asked is None or reason else asked.offset
        if reason and not request.from_now:
            state = [
                watch_pb2.WatchEvent(entity_written=watch_pb2.EntityWritten(entity=entity))
                for entity in cluster.entities.values()
            ]
            for message in self._messages([each for each in state if shows(request.filter, each)], at, reason):
                yield message
        else:
            yield watch_pb2.WatchResponse(position=cluster.position(at), is_whole=True)
        while True:
            changed = cluster.changed
            if cluster.refused_watches:
                await Refusal("CLUSTER_AUTHORIZATION_FAILED", cluster.refused_watches).end(context)
            if at < cluster.log_start:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the log has lost the place of this watch")
            for batch in [each for each in cluster.batches if each.base >= at]:
                at = batch.end
                for message in self._messages([e for e in batch.events if shows(request.filter, e)], at):
                    if message.events:
                        yield message
            try:
                async with asyncio.timeout((request.bookmark_interval_ms or 5_000) / 1_000):
                    await changed.wait()
            except TimeoutError:
                yield watch_pb2.WatchResponse(position=cluster.position(at), is_whole=True)

    def _reset_of(self, asked: watch_pb2.WatchPosition | None) -> watch_pb2.ResetReason:
        if asked is None:
            return watch_pb2.NO_POSITION
        if asked.offset < self.cluster.log_start:
            return watch_pb2.BELOW_LOG_START
        if asked.chain != self.cluster.position(asked.offset).chain:
            return (
                watch_pb2.OTHER_HISTORY if asked.generation == self.cluster.generation else watch_pb2.OTHER_GENERATION
            )
        return watch_pb2.NO_RESET

    def _messages(
        self, events: list[watch_pb2.WatchEvent], at: int, reset: watch_pb2.ResetReason = watch_pb2.NO_RESET
    ) -> Iterator[Any]:
        size = self.cluster.watch_events_per_message
        parts = [events[place : place + size] for place in range(0, len(events), size)] or [[]]
        for part in parts[:-1]:
            yield watch_pb2.WatchResponse(events=part, reset=reset)
        yield watch_pb2.WatchResponse(
            position=self.cluster.position(at), events=parts[-1], is_whole=True, reset=reset, timestamp_ms=1
        )


def shows(chosen: watch_pb2.WatchFilter, event: watch_pb2.WatchEvent) -> bool:
    if event.HasField("record"):
        return chosen.all_topics or event.record.topic in chosen.topics
    name = event.entity_written.entity if event.HasField("entity_written") else event.entity_deleted.entity
    return any(each.kind in ("", name.kind) and name.name.startswith(each.name_prefix) for each in chosen.entities)


class Running(NamedTuple):
    """A node with its server."""

    node: FakeNode
    target: str
    server: grpc.aio.Server

    async def stop(self) -> None:
        await self.server.stop(None)


@asynccontextmanager
async def nodes(cluster: FakeCluster, count: int = 1) -> AsyncIterator[list[Running]]:
    """Serves the cluster from so many nodes."""
    running = [await _start(cluster) for _ in range(count)]
    try:
        yield running
    finally:
        for each in running:
            await each.stop()


async def _start(cluster: FakeCluster) -> Running:
    node, server = FakeNode(cluster), grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    entity_pb2_grpc.add_EntityServiceServicer_to_server(node, server)  # type: ignore[no-untyped-call]
    watch_pb2_grpc.add_WatchServiceServicer_to_server(node, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return Running(node, f"127.0.0.1:{port}", server)


@asynccontextmanager
async def client_of(running: list[Running], timeout_s: float = 5) -> AsyncIterator[EntityClient]:
    """A client that knows all nodes."""
    async with EntityClient([each.target for each in running], timeout_s=timeout_s) as client:
        yield client


@asynccontextmanager
async def one_client(cluster: FakeCluster) -> AsyncIterator[EntityClient]:
    """A client of a cluster of one node."""
    async with nodes(cluster) as running, client_of(running) as client:
        yield client
