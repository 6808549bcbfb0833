"""Members: a group of clients, with data about each, that all members and others see alike.

    async with client.session("worker a") as session, Members(client, "workers") as workers:
        await workers.join(session, "a", b"10.0.0.1:7000")
        async for change in workers.changes():
            share_out_work(workers.names)

It promises: a member is in the group until it leaves or its session ends, a view is the group as it was at one offset, and all
views go through the same groups in the same order (a slow view may leave some out). It does not promise that each member in a
view is alive, or that two views are at the same offset. So give work away by a transaction with a condition, not by a view alone:

    1. Workers a and b are members. Worker b's session ends; the view of the scheduler still has b, for some milliseconds.
    2. The scheduler gives job 7 to b in a transaction with `workers.condition("b")`. Nothing is done.
    3. The view shows that b has left. The scheduler gives job 7 to a.

The member b of the group `workers` is the ephemeral entity `workers/b` of the kind `member`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, NamedTuple, Self, TypeAlias, TypeVar

from clients.entities.client import EntityClient
from clients.entities.core.transactions import Condition, version_is
from clients.entities.core.values import Entity, Token
from clients.entities.core.watch_values import EntityDeleted, EntityWritten, WatchEvent, WatchPosition
from clients.entities.errors import ConditionFailed
from clients.entities.session import Session
from clients.recipes.queue_place import checked_name

T = TypeVar("T")

KIND: Final = "member"


class Joined(NamedTuple):
    """A member has joined the group."""

    name: str
    data: bytes


class Updated(NamedTuple):
    """A member has changed its data, or has left and joined again."""

    name: str
    data: bytes


class Left(NamedTuple):
    """A member has left the group, or its session has ended."""

    name: str


MemberChange: TypeAlias = Joined | Updated | Left


class Membership:
    """One member, from `join` to `leave`. The member leaves with its session, too."""

    def __init__(self, session: Session, kind: str, path: str, token: Token) -> None:
        self.name = path.rpartition("/")[2]
        self._token = token
        self._session = session
        self._kind = kind
        self._path = path
        self._version = token.offset

    @property
    def token(self) -> Token:
        """The write with which the member joined: greater than that of each former member of this name."""
        return self._token

    @property
    def condition(self) -> Condition:
        """Holds for as long as this member is in the group, until the next `update`."""
        return version_is(self._kind, self._path, self._version)

    async def update(self, data: bytes) -> None:
        """Changes the data. Raises ConditionFailed if the member is not in the group any more."""
        client, session = self._session.client, self._session
        token = await self._if_here(
            lambda version: client.put(self._kind, self._path, data, if_version=version, session=session)
        )
        self._version = token.offset

    async def leave(self) -> None:
        """Leaves the group. A member that is not in the group any more is no error."""
        if not self._session.lost.is_set():
            client = self._session.client
            try:
                await self._if_here(lambda version: client.delete(self._kind, self._path, if_version=version))
            except ConditionFailed:
                return  # the member has left already: another member may have its name

    async def _if_here(self, change: Callable[[int], Awaitable[T]]) -> T:
        """Makes a change if this member is in the group. An update without an answer may have given it another version:

        1. Member a joins at 1,200. Its update is made at 1,310, and the answer is lost until the deadline: MayHaveHappened.
        2. Member a leaves, on condition of version 1,200. The refusal shows an entity that was created at 1,200.
        3. So it is member a itself: the client asks again, on condition of version 1,310.
        """
        while True:
            try:
                return await change(self._version)
            except ConditionFailed as e:
                if e.entity is None or e.entity.created != self._token.offset:
                    raise
                self._version = e.entity.version


class Members:
    """The live view of one group."""

    def __init__(self, client: EntityClient, group: str, *, kind: str = KIND) -> None:
        """Raises ValueError if the group's name is empty, or has a slash at an end."""
        self.group = checked_name(group)
        self._prefix = f"{group}/"
        self._client = client
        self._kind = kind
        self._view = client.live(kind, self._prefix)

    async def __aenter__(self) -> Self:
        await self._view.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._view.close()

    @property
    def data(self) -> dict[str, bytes]:
        """The members with their data."""
        return {name: entity.value for name, entity in self._members().items()}

    @property
    def names(self) -> list[str]:
        """The members in the order in which they joined."""
        members = self._members()
        return sorted(members, key=lambda name: members[name].created)

    @property
    def position(self) -> WatchPosition:
        """`names` and `data` are those of this position, for `changed`."""
        return self._view.position

    def condition(self, name: str) -> Condition:
        """Holds for as long as the member that the view shows under this name is in the group, with the same data. A later member
        of this name does not count.

        Raises:
            KeyError: the view shows no such member.
        """
        return version_is(self._kind, self._prefix + name, self._members()[name].version)

    async def join(self, session: Session, name: str, data: bytes = b"", *, wait: bool = False) -> Membership:
        """Joins the group, and returns when the view shows it. `wait`: waits until a former member of this name is gone.

        A server that is killed and started again at once finds its former self in the group:

            1. Server a is killed at 0 s. Its session has a timeout of 9 s, so the group has a member a until then.
            2. Server a starts at 2 s, and calls `join(session, "a", wait=True)`, which returns after 9 s.

        Raises:
            ConditionFailed: the group has a member of this name; with `wait`: this session's own.
            SessionLost: the session has ended while it waited.
            ValueError: the name is empty, or has a slash.
        """
        if not name or "/" in name:
            raise ValueError(f"the name of a member must not be empty and must not have a slash: {name!r}")
        path = self._prefix + name
        while True:
            try:
                token = await self._client.put(self._kind, path, data, if_absent=True, session=session)
                break
            except ConditionFailed as e:
                if not wait or e.entity is None or e.entity.owner == session.owner:
                    raise
                await session.run(self._gone(path, e.entity.token))
        await self._view.reach(token)
        return Membership(session, self._kind, path, token)

    async def _gone(self, path: str, token: Token) -> None:
        """Returns when the view, at a state that has this write, does not show the member."""
        await self._view.reach(token)
        await self._view.wait_for(lambda: path not in self._view)

    async def wait_for(self, count: int) -> list[str]:
        """Returns the members as soon as there are so many."""
        await self._view.wait_for(lambda: len(self.names) >= count)
        return self.names

    async def changed(self, since: WatchPosition | None = None) -> None:
        """Returns when `names` and `data` may have changed, from now or from a `position` on. Raises as `LiveView.wait_for`."""
        await self._view.changed(since)

    async def changes(self) -> AsyncIterator[MemberChange]:
        """Yields a `Joined` for each present member, and then each change, in the order of the log. It has a watch of its own,
        so a slow caller delays nobody."""
        known = set[str]()
        async with self._client.watch(self._kind, self._prefix, keep_state=True) as watch:
            async for batch in watch:
                for event in batch.events:
                    change = self._change(event, known)
                    if change is not None:
                        yield change

    def _change(self, event: WatchEvent, known: set[str]) -> MemberChange | None:
        match event:
            case EntityWritten(_, entity) if self._is_member(entity.name):
                name = entity.name.removeprefix(self._prefix)
                was_known = name in known
                known.add(name)
                return Updated(name, entity.value) if was_known else Joined(name, entity.value)
            case EntityDeleted(_, _, path) if path.removeprefix(self._prefix) in known:
                known.discard(path.removeprefix(self._prefix))
                return Left(path.removeprefix(self._prefix))
            case _:
                return None

    def _members(self) -> dict[str, Entity]:
        return {path.removeprefix(self._prefix): entity for path, entity in self._view.items() if self._is_member(path)}

    def _is_member(self, path: str) -> bool:
        return "/" not in path.removeprefix(self._prefix)
