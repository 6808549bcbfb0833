"""Clients of locks: production's `Lock` on production's `Session`, and an entity that only the holder may write.

Some holders stop to keep their session alive for about as long as the session lasts, as a machine does that stands still. Then
they go on, and write under the token that they had. Example:

    1. Lock client 2 holds `m` under the token 1,200, and sends no keep-alives for 4 s. Its session ends at offset 1,290.
    2. Lock client 1 holds `m` under 1,250: its place in the queue was created there. It writes the guarded entity at 1,310.
    3. Lock client 2 goes on, and writes with the token 1,200. The transaction must do nothing.
"""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from clients.entities.session import Session
from clients.metadata_client import LoopClock
from clients.recipes.lock import Lock
from clients.recipes.queue_place import is_place
from metadata_log.format.ids import Offset
from metadata_log.format.records import Owner
from metaquorum import AdminError, NotHeld, PutEntity
from tests.chaos.entities.recorder import RecordedClient
from tests.chaos.entities.truce import LOOK_S, Truce

KIND: Final = "lock"
LOCKS: Final = ("m", "n")
GUARDED: Final = "guarded"
"""The kind of the entities that only holders write. Each has the name of its lock."""
TIMEOUT_MS: Final = 3_000
PATIENCE_S: Final = 15.0
"""How long a client waits for a lock."""
KNOWS_S: Final = 1.0
"""How long a client that has lost its lock waits for the word that its session has ended."""
PAUSE_EVERY: Final = 6
"""A client stands still under every lock of so many that it gets."""

Connect = Callable[[int, random.Random], RecordedClient]


class Hold(NamedTuple):
    """A lock as its client has held it. Times are this process's monotonic nanoseconds."""

    number: int
    client: int
    lock: str
    token: Offset
    owner: Owner
    called_ns: int
    returned_ns: int
    as_of: Offset
    """The offset of the answer that made the client believe that it holds."""
    trusted_ns: int = -1
    """When the client believed for the last time that it surely held; -1: never."""

    def __str__(self) -> str:
        return f"lock client {self.client} held {self.lock} under {self.token} as of {self.as_of}"


def guarded_value(lock: str, token: Offset, number: int) -> bytes:
    """The value of a write that a holder makes."""
    return f"{lock} {token} {number}".encode()


def token_in(value: bytes) -> tuple[str, Offset]:
    """The lock and the token under which a guarded entity was written."""
    lock, token, _ = value.decode().split(" ")
    return lock, int(token)


def lock_of(name: str) -> str | None:
    """The lock that the place belongs to; None: this is no place."""
    return next((lock for lock in LOCKS if is_place(lock, name)), None)


class PausedClock(LoopClock):
    """A clock that can stand still under one session's keeper."""

    def __init__(self) -> None:
        super().__init__()
        self.goes = asyncio.Event()
        self.goes.set()

    async def wait(self, event: asyncio.Event, until_ms: int) -> None:
        await super().wait(event, until_ms)
        await self.goes.wait()


class LockClients:
    """Several clients of the same locks. `connect(number, dice)` makes a client's connection."""

    def __init__(self, connect: Connect, seed: int, count: int, pause_s: float, truce: Truce) -> None:
        self.holds: list[Hold] = []
        self.lost: list[Owner] = []
        """The sessions of which a client was told that they have ended."""
        self._connect = connect
        self._seed = seed
        self._count = count
        self._pause_s = pause_s
        self._truce = truce
        self._until = asyncio.Event()
        self._writes = 0
        self._asked = 0

    async def run(self, until: asyncio.Event) -> None:
        """All clients at work until the event is set; then each ends what it has begun."""
        self._until = until
        async with asyncio.TaskGroup() as tasks:
            for client in range(1, self._count + 1):
                tasks.create_task(self._one(client))

    @property
    def _must_rest(self) -> bool:
        return self._until.is_set() or self._truce.is_wanted

    async def _one(self, client: int) -> None:
        dice = random.Random(f"{self._seed} lock client {client}")
        while not self._until.is_set():
            if self._truce.is_wanted:
                await asyncio.sleep(LOOK_S)
                continue
            with self._truce.working():
                async with self._connect(client, dice) as connection:
                    try:
                        await self._session(client, connection, dice)
                    except AdminError:
                        await asyncio.sleep(LOOK_S)  # nobody leads, or the session has ended

    async def _session(self, client: int, connection: RecordedClient, dice: random.Random) -> None:
        clock = PausedClock()
        async with connection.session(f"lock client {client}", TIMEOUT_MS, clock=clock) as session:
            try:
                for count in range(1, dice.randint(3, 20)):
                    if self._must_rest or session.lost.is_set():
                        return
                    await self._hold(client, connection, session, clock if count % PAUSE_EVERY == 2 else None, dice)
                    await asyncio.sleep(dice.random() * 2 * self._pause_s)
            finally:
                clock.goes.set()
                if session.lost.is_set():
                    self.lost.append(Owner(session.session_id, None, session.epoch))

    async def _hold(
        self, client: int, connection: RecordedClient, session: Session, stops: PausedClock | None, dice: random.Random
    ) -> None:
        """Takes a lock, writes under it, and gives it up. `stops`: the client stands still meanwhile."""
        self._asked += 1
        lock, number, called_ns = Lock(session, dice.choice(LOCKS), kind=KIND), self._asked, time.monotonic_ns()
        if not await self._acquired(lock):
            return
        owner = Owner(session.session_id, None, session.epoch)
        hold = Hold(
            number, client, lock.name, lock.token.offset, owner, called_ns, time.monotonic_ns(), connection.as_of
        )
        place = len(self.holds)
        self.holds.append(hold)
        try:
            for count in range(dice.randint(2, 5)):
                if count == 1 and stops is not None:
                    stops.goes.clear()
                    await self._wait(place, lock, TIMEOUT_MS / 1_000 * dice.uniform(0.8, 1.6))
                    stops.goes.set()
                self._writes += 1
                value = guarded_value(lock.name, hold.token, self._writes)
                await lock.transact([], [PutEntity(GUARDED, lock.name, value)])
                await self._wait(place, lock, dice.random() * 4 * self._pause_s)
        except NotHeld:
            with suppress(TimeoutError):  # then the client closes its session without knowing that it has ended
                async with asyncio.timeout(KNOWS_S):
                    await session.lost.wait()
        finally:
            await lock.release()

    async def _wait(self, place: int, lock: Lock, seconds: float) -> None:
        """Looks all the time if the client believes that it holds."""
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s and not self._must_rest:
            looked_ns = time.monotonic_ns()
            if lock.is_held:
                self.holds[place] = self.holds[place]._replace(trusted_ns=looked_ns)
            await asyncio.sleep(LOOK_S / 2)

    async def _acquired(self, lock: Lock) -> bool:
        """False: the client has lost its patience, or must rest."""
        acquiring = asyncio.ensure_future(lock.acquire())
        deadline_s = time.monotonic() + PATIENCE_S
        try:
            while not acquiring.done() and time.monotonic() < deadline_s and not self._must_rest:
                await asyncio.wait({acquiring}, timeout=LOOK_S)
            if acquiring.done():
                await acquiring
                return True
            return False
        finally:
            acquiring.cancel()
            await asyncio.gather(acquiring, return_exceptions=True)
