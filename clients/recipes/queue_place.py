"""A place in a queue: the first place holds. Locks and elections are queues.

A place is an ephemeral entity below the queue's name. The place with the lowest `created` is the first. A place waits for the
place just before it, and for no other, so a place that goes wakes one client. Example:

    1. Clients 1, 2 and 3 have the places created at 1,000, 1,010 and 1,020. Client 1 holds; 2 watches the place of 1, 3 that of
       2.
    2. Client 2 gives up. Client 3 lists the queue, finds the place of client 1 before its own, and watches this place.
    3. The session of client 1 ends, and the place vanishes in the same batch. Client 3 lists the queue, and is the first.

No two places have the same `created`, and each later holder has a greater one, so (generation, created) is the fencing token.

A request without an answer may still arrive. A place whose request was lost is therefore left with a mark that bars the request:

    4. The request for the place of client 4 is lost on a slow path. The client asks anew, gets a place, holds, and releases.
    5. Without the mark, the first request would now create the place again, and nobody would ever release it.
"""

import logging
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, TypeVar

from clients.calls import NEVER_REPEATED
from clients.entities.client import EntityClient
from clients.entities.core.transactions import (
    Condition,
    DeleteEntity,
    Operation,
    PutEntity,
    Transacted,
    absent,
    version_is,
)
from clients.entities.core.values import Entity, Token
from clients.entities.core.watch_values import EntityDeleted, EntityWritten
from clients.entities.errors import NotHeld, SessionLost
from clients.entities.session import Session
from clients.errors import AdminError, MayHaveHappened
from metadata_log.format.errors import ErrorCode

T = TypeVar("T")

logger: Final = logging.getLogger(__name__)

PLACE_CHARS: Final = 32
GONE: Final = "/gone"
LAG_MS: Final = 1_000
"""How often a node says how far its changes are seen: a place waits so long for a node that lags."""


def checked_name(name: str) -> str:
    """Returns the name of a lock, an election, a group or a barrier.

    Raises:
        ValueError: the name is empty, or begins or ends with a slash.
    """
    if not name or name.startswith("/") or name.endswith("/"):
        raise ValueError(f"a name that is not empty and has no slash at either end expected, not {name!r}")
    return name


def is_place(queue: str, name: str) -> bool:
    """Tells whether `name` is a place of this queue, and not one of a queue with a longer name, or a mark."""
    place = name.removeprefix(f"{queue}/")
    return len(place) == PLACE_CHARS and len(name) == len(queue) + 1 + PLACE_CHARS and "/" not in place


async def places(client: EntityClient, kind: str, queue: str, *, with_values: bool = False) -> list[Entity]:
    """Returns the places of a queue, the first one first."""
    found = [each async for each in client.list(kind, f"{queue}/", names_only=not with_values)]
    return sorted((each for each in found if is_place(queue, each.name)), key=lambda each: each.created)


class QueuePlace:
    """One place of one client, from `enter` to `leave`."""

    def __init__(self, session: Session, kind: str, queue: str, value: bytes) -> None:
        self.value = value
        self.kind = kind
        self.name = f"{queue}/{secrets.token_hex(PLACE_CHARS // 2)}"
        self.token: Token | None = None
        """(generation, created) of the place. None: there is no place."""
        self._client = session.client
        self._session = session
        self._queue = queue
        self._version = -1
        self.is_gone = False
        """True: the place was found to be gone, by a refusal or by `wait_gone`. A new place has to be entered."""
        self._is_doubtful = False
        """True: an attempt to create the place was lost, and may still arrive."""

    async def enter(self) -> Token:
        """Takes the last place of the queue; returns its token.

        Raises:
            SessionLost: the session has ended.
            AdminError: no place was taken, or the place vanishes with the session.
        """
        put = PutEntity(self.kind, self.name, self.value, self._session.owner)
        conditions = [absent(self.kind, self.name), absent(self.kind, self.name + GONE)]
        while True:
            self._session.check()
            try:
                done = await self._client.transact(conditions, [put])
                break
            except MayHaveHappened as e:
                self._is_doubtful = True
                if e.code in NEVER_REPEATED:
                    raise
            except AdminError as e:
                if e.code is ErrorCode.UNKNOWN_SESSION:
                    raise SessionLost(e.message) from e
                self._is_doubtful = True
                raise
            except BaseException:
                self._is_doubtful = True
                raise
        if done.succeeded:
            self.token, self._version = done.token(), done.token().offset
            return self.token
        assert self._is_doubtful, f"{self.name} was drawn by this client alone"
        there = await self._client.get(self.kind, self.name)
        if there is None:
            raise self.gone()
        self.token, self._version = Token(there.generation, there.created), there.version
        return self.token

    async def wait_first(self) -> None:
        """Returns when the place is the first.

        Raises:
            SessionLost: the session has ended.
            NotHeld: somebody else has deleted the place.
        """
        while (before := await self._before()) is not None:
            assert self.token is not None
            await self._session.run(self._absent(before.name, self.token))

    async def wait_gone(self) -> None:
        """Returns when the place is gone, or its session has ended. There is a watch only meanwhile."""
        if self.is_gone or self.token is None:
            return
        with suppress(SessionLost):  # the place has vanished with the session
            await self._session.run(self._absent(self.name, self.token))
        self.is_gone = True

    def gone(self, then: str = "enter again") -> NotHeld:
        """Notes that the place is gone, and returns the error that says so."""
        self.is_gone = True
        return NotHeld(f"{self.kind}/{self.name} is gone: its session has ended, or somebody has deleted it; {then}")

    async def leave(self) -> None:
        """Gives the place up. The next place is the first, if this one was. May be called twice.

        Raises:
            AdminError: the place may still be there. It vanishes with the session; or leave again.
        """
        operations: list[Operation] = [DeleteEntity(self.kind, self.name)]
        if self._is_doubtful:
            operations.append(PutEntity(self.kind, self.name + GONE, b"", self._session.owner))
        if not self._session.lost.is_set():
            try:
                await self._client.transact([], operations)
            except AdminError as e:
                if e.code is not ErrorCode.UNKNOWN_SESSION:
                    raise
        self.token = None

    async def give_up(self) -> None:
        """Leaves for a caller that has an error of its own already: an error of leaving is logged."""
        try:
            await self.leave()
        except AdminError as e:
            logger.warning("the place %s/%s stays until its session ends: %s", self.kind, self.name, e)

    async def put(self, value: bytes) -> None:
        """Writes the value of the place.

        Raises:
            NotHeld: the place is gone.
        """
        self.value = value
        done = await self.transact([], [PutEntity(self.kind, self.name, value, keep_owner=True)])
        self._version = done.token().offset

    async def transact(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Transacted:
        """Does a transaction on condition that the place is still there. A place that was written meanwhile is still there:

            1. The leader proclaims a new address, and another task of the leader sends a transaction at the same time.
            2. The proclamation comes first, so the place has another version than the transaction names.
            3. The place was created with the leader's token, so it is the same one: the transaction is sent with its new version.

        Raises:
            NotHeld: the place is gone, so nothing was done.
        """
        assert self.token is not None, "there is no place: enter first"
        created = self.token.offset
        while True:
            mine = version_is(self.kind, self.name, self._version)
            done = await self._client.transact([mine, *conditions], operations)
            if done.failed is None:
                return done
            if done.failed.place > 0:
                failed = done.failed._replace(place=done.failed.place - 1)
                return Transacted(False, done.generation, failed=failed)
            there = done.failed.entity
            if there is None or there.created != created:
                raise self.gone("nothing was done")
            self._version = there.version

    @property
    def condition(self) -> Condition:
        """Holds while the place is there."""
        assert self.token is not None, "there is no place: enter first"
        return version_is(self.kind, self.name, self._version)

    async def _before(self) -> Entity | None:
        """Returns the place just before this one. None: this one is the first."""
        self._session.check()
        assert self.token is not None
        queue = await places(self._client, self.kind, self._queue)
        if all(each.name != self.name for each in queue):
            self._session.check()
            raise self.gone()
        return max(
            (each for each in queue if each.created < self.token.offset), key=lambda each: each.created, default=None
        )

    async def _absent(self, name: str, above: Token) -> None:
        """Returns when there is no place of this name. A node that lags may not show it yet, so only a state above `above`
        counts."""
        is_there = False
        async with self._client.watch(
            self.kind, name, keep_state=True, bookmarks=True, bookmark_interval_ms=LAG_MS
        ) as watch:
            async for batch in watch:
                for event in batch.events:
                    if isinstance(event, EntityWritten) and event.entity.name == name:
                        is_there = True
                    elif isinstance(event, EntityDeleted) and event.name == name:
                        is_there = False
                if not is_there and batch.position.token > above:
                    return
