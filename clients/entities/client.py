"""EntityClient: metadata of your own in the log of the cluster.

    async with EntityClient(["127.0.0.1:9001"]) as client:
        token = await client.put("shard", "7", b"broker 1", if_absent=True)
        await client.put("shard", "7", b"broker 2", if_version=token)
        async for shard in client.list("shard"):
            print(shard.name, shard.value, shard.version)

Each write has a request id, so a lost answer is asked for again, and the write is made once. Example:

    1. Client 1 writes shard 7 on condition of version 1,244. Controller 1 commits the write as version 1,300, and dies.
    2. The client repeats the request at controller 2, which finds the id in the log and returns the first answer: 1,300.
    3. Without the id, controller 2 would find version 1,300 in the way of the condition, and refuse the client's own write.

`session` and `watch` return the two streams: `clients.entities.session` and `clients.entities.watch`.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Protocol

from quorum_rpc.v1 import entity_pb2

from clients.calls import Calls
from clients.entities.core.transactions import (
    Condition,
    DeleteEntity,
    Operation,
    PutEntity,
    Transacted,
    absent,
    version_is,
)
from clients.entities.core.values import (
    DescribedKind,
    Entity,
    EntityOwner,
    KindLimits,
    SessionListing,
    Token,
    Version,
)
from clients.entities.core.watch_values import WatchPosition
from clients.entities.errors import ConditionFailed
from clients.entities.live_view import LiveView
from clients.entities.messages import (
    described_kind_of,
    entity_of,
    kind_message,
    name_message,
    session_listing_of,
    transact_request,
    transacted_of,
)
from clients.entities.session import TIMEOUT_MS, Session
from clients.entities.watch import BOOKMARK_INTERVAL_MS, Watch, watch_filter
from clients.metadata_client import ClientClock

NAMES_MAX = 128
"""Maximum number of entities in one request."""


class Owning(Protocol):
    """A session that entities can belong to."""

    @property
    def owner(self) -> EntityOwner: ...


class EntityClient(Calls):
    """A client of one cluster's entities. Use it on one event loop. Every method raises AdminError."""

    def _small_read(self) -> Any:
        return entity_pb2.DescribeKindsRequest(page_size=1)

    # --- reads -----------------------------------------------------------------------------------------------------

    async def get(self, kind: str, name: str) -> Entity | None:
        """Returns the entity, or None if there is none."""
        return (await self.get_many([(kind, name)]))[0]

    async def get_many(self, names: Iterable[tuple[str, str]]) -> Sequence[Entity | None]:
        """Returns the entities of these kinds and names, in their order. All entities of one answer are as of one offset; an
        answer has at most 128 entities and 1 MiB."""
        wanted = [*names]
        found: dict[tuple[str, str], Entity | None] = {}
        while left := [each for each in dict.fromkeys(wanted) if each not in found]:
            asked = left[:NAMES_MAX]
            request = entity_pb2.GetEntitiesRequest(entities=[name_message(*each) for each in asked])
            response = await self.call(request, entity_pb2.GetEntitiesResponse)
            found |= {asked[place]: None for place in response.missing}
            found |= {(each.kind, each.name): entity_of(each, response.generation) for each in response.entities}
            assert response.missing or response.entities, "a controller has answered for no entity"
        return [found[each] for each in wanted]

    async def list(
        self,
        kind: str,
        prefix: str = "",
        *,
        from_name: str = "",
        to_name: str = "",
        names_only: bool = False,
        page_size: int = 0,
    ) -> AsyncIterator[Entity]:
        """Yields entities of a kind by name: all, or those with a prefix, from `from_name` (inclusive) to `to_name` (exclusive).
        Each page is as of its own offset. `names_only`: the entities come without values."""
        request = entity_pb2.ListEntitiesRequest(
            kind=kind,
            prefix=prefix,
            from_name=from_name,
            to_name=to_name,
            names_only=names_only,
            page_size=page_size,
        )
        async for page in self.pages(request, entity_pb2.ListEntitiesResponse):
            for message in page.entities:
                yield entity_of(message, page.generation)

    async def count(self, kind: str, prefix: str = "", *, from_name: str = "", to_name: str = "") -> int:
        """Returns how many entities `list` would yield."""
        request = entity_pb2.ListEntitiesRequest(
            kind=kind, prefix=prefix, from_name=from_name, to_name=to_name, count_only=True
        )
        return (await self.call(request, entity_pb2.ListEntitiesResponse)).count

    # --- writes ----------------------------------------------------------------------------------------------------

    async def put(
        self,
        kind: str,
        name: str,
        value: bytes,
        *,
        if_version: Version | None = None,
        if_absent: bool = False,
        session: "Owning | None" = None,
        ttl_ms: int = 0,
        keep_owner: bool = False,
    ) -> Token:
        """Writes an entity, and returns the token of the write. `session`: the entity vanishes with this session. `ttl_ms`: the
        entity vanishes when it is not written again for so long.

        Raises:
            ConditionFailed: the entity has another version than `if_version`, or exists although `if_absent`. Nothing was done.
            ValueError: `if_version` and `if_absent` together.
        """
        if if_absent and if_version is not None:
            raise ValueError("if_absent and if_version contradict each other: give one of them")
        conditions = [absent(kind, name)] if if_absent else _same_version(kind, name, if_version)
        operation = PutEntity(kind, name, value, None if session is None else session.owner, ttl_ms, keep_owner)
        return (await self.must_transact(conditions, [operation])).token()

    async def delete(self, kind: str, name: str, *, if_version: Version | None = None) -> Token | None:
        """Deletes an entity. Returns the token that it had, or None if there was none.

        Raises:
            ConditionFailed: the entity does not have `if_version`. Nothing was done.
        """
        conditions = _same_version(kind, name, if_version)
        done = await self.must_transact(conditions, [DeleteEntity(kind, name)])
        return None if done.results[0].version < 0 else done.token()

    async def transact(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Transacted:
        """Does all operations if all conditions hold, else nothing: look at `succeeded`. At most 128 of each; no entity, topic or
        resource may be in two operations."""
        response = await self.call(transact_request(conditions, operations), entity_pb2.TransactResponse)
        return transacted_of(response)

    async def must_transact(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Transacted:
        """As `transact`, but a condition that does not hold is an error.

        Raises:
            ConditionFailed: nothing was done.
        """
        done = await self.transact(conditions, operations)
        if not done.succeeded:
            assert done.failed is not None, "a controller did nothing and named no condition"
            raise ConditionFailed(conditions[done.failed.place], done.failed.entity)
        return done

    # --- kinds -----------------------------------------------------------------------------------------------------

    async def declare_kinds(self, *kinds: KindLimits) -> None:
        """Declares kinds with limits and schemas, or changes their declarations: all or none."""
        request = entity_pb2.AlterKindsRequest(declare=[kind_message(limits) for limits in kinds])
        await self.call(request, entity_pb2.AlterKindsResponse)

    async def remove_kinds(self, *kinds: str) -> None:
        """Removes declarations. The entities stay, under the limits of the cluster."""
        await self.call(entity_pb2.AlterKindsRequest(remove=kinds), entity_pb2.AlterKindsResponse)

    async def kinds(self, page_size: int = 0) -> AsyncIterator[DescribedKind]:
        """Yields all kinds that are declared or have entities, by name."""
        request = entity_pb2.DescribeKindsRequest(page_size=page_size)
        async for page in self.pages(request, entity_pb2.DescribeKindsResponse):
            for message in page.kinds:
                yield described_kind_of(message)

    # --- sessions --------------------------------------------------------------------------------------------------

    async def sessions(self, page_size: int = 0) -> AsyncIterator[SessionListing]:
        """Yields the open sessions of all clients, by id."""
        request = entity_pb2.ListSessionsRequest(page_size=page_size)
        async for page in self.pages(request, entity_pb2.ListSessionsResponse):
            for message in page.sessions:
                yield session_listing_of(message)

    def session(self, name: str = "", timeout_ms: int = TIMEOUT_MS, *, clock: ClientClock | None = None) -> Session:
        """Returns a session for `async with`. `name`: for people. `timeout_ms`: how long the session lasts without a
        keep-alive."""
        return Session(self, name, timeout_ms, clock=clock)

    async def close_session(self, session_id: bytes, epoch: int) -> int:
        """Ends a session at once, with its entities, and returns the offset of the end. A session that has ended is no error."""
        request = entity_pb2.CloseSessionRequest(session_id=session_id, epoch=epoch)
        return (await self.call(request, entity_pb2.CloseSessionResponse)).offset

    # --- changes ---------------------------------------------------------------------------------------------------

    def watch(
        self,
        kind: str | None = None,
        prefix: str = "",
        *,
        kinds: Sequence[tuple[str, str]] = (),
        topics: Sequence[str] = (),
        all_topics: bool = False,
        brokers: Sequence[int] = (),
        all_brokers: bool = False,
        sessions: bool = False,
        others: bool = False,
        position: WatchPosition | None = None,
        from_now: bool = False,
        keep_state: bool = False,
        bookmarks: bool = False,
        bookmark_interval_ms: int = BOOKMARK_INTERVAL_MS,
    ) -> Watch:
        """Returns the batches of changes for `async for`. `kind` "": entities of every kind. `kinds`: further kinds, each with a
        prefix. Without any filter: everything.

        The watch begins with the state, or at `position`, or with `from_now` at what changes from now on: from the begin of
        `async with`, or else of the first answer.

        Raises:
            ValueError: the options contradict each other, or this client reads the past.
        """
        self.check_present()
        chosen = watch_filter(kind, prefix, kinds, topics, all_topics, brokers, all_brokers, sessions, others)
        return Watch(
            self,
            chosen,
            position=position,
            from_now=from_now,
            keep_state=keep_state,
            bookmarks=bookmarks,
            bookmark_interval_ms=bookmark_interval_ms,
        )

    def live(self, kind: str, prefix: str = "") -> LiveView:
        """Returns the entities of a kind as a dictionary that follows the cluster, for `async with`."""
        return LiveView(self.watch(kind, prefix, keep_state=True, bookmarks=True))


def _same_version(kind: str, name: str, version: Version | None) -> Sequence[Condition]:
    return () if version is None else [version_is(kind, name, version)]
