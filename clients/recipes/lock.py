"""Lock: one holder at a time, in the order of asking.

    async with client.session("worker a") as session, Lock(session, "jobs/7") as lock:
        await lock.transact([], [PutEntity("job", "7", b"done by a")])      # done only if the lock is still held
        storage.write(data, lock.token)                                     # the storage refuses a lower token

It promises: two clients never hold a lock with the same token, each holder's token is greater than the tokens of all holders
before, and waiting clients hold in the order in which they entered. A holder that dies holds until its session ends.

It does not promise that a client which believes to hold the lock holds it still: no lock over a network can. So let the thing
that the lock protects refuse a former holder:

    1. Worker a holds the lock under the token (0, 1,200), and its machine stops for a minute. Its session ends.
    2. Worker b holds the lock under (0, 1,310), and writes to the storage with this token. The storage notes it.
    3. Worker a goes on, and writes with (0, 1,200). The storage refuses it. If the data are entities, `lock.transact` refuses the
       write: it has the condition that the holder's own place is still there.
"""

from collections.abc import Sequence
from typing import Self

from clients.entities.core.transactions import Condition, Operation, Transacted
from clients.entities.core.values import Token
from clients.entities.errors import NotHeld
from clients.entities.session import Session
from clients.recipes.queue_place import QueuePlace, checked_name


class Lock:
    """A lock of one session. `async with` acquires and releases it. It may be acquired again after a release."""

    def __init__(self, session: Session, name: str, *, kind: str = "lock", value: bytes = b"") -> None:
        """`name`: parts may be separated by slashes. `value`: for people who look who holds.

        Raises:
            ValueError: the name is empty, or has a slash at an end.
        """
        self.name = checked_name(name)
        self._session = session
        self._kind = kind
        self._value = value
        self._place: QueuePlace | None = None
        self._is_first = False

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    async def acquire(self) -> Token:
        """Waits until the lock is held; returns the fencing token. A caller that is cancelled leaves the queue.

        Raises:
            SessionLost: the session has ended; the lock is not held.
            NotHeld: somebody has deleted the place of this client from the queue; ask again.
        """
        if self._place is not None and self._place.is_gone:
            await self.release()
        assert self._place is None, f"the lock {self.name} is held or waited for by this object: release it first"
        place = self._place = QueuePlace(self._session, self._kind, self.name, self._value)
        try:
            await place.enter()
            await place.wait_first()
        except BaseException:
            await place.give_up()
            self._place = None
            raise
        self._is_first = True
        return self.token

    async def release(self) -> None:
        """Gives the lock up. A lock that is not held is no error.

        Raises:
            AdminError: the controllers may not know it. Release again, or close the session.
        """
        self._is_first = False
        if self._place is not None:
            await self._place.leave()
            self._place = None

    @property
    def is_held(self) -> bool:
        """True if the lock was acquired, the session is safe at this moment, and no deletion of this client's place is known.
        `transact` and `wait_lost` notice a deletion."""
        return self._is_first and self._place is not None and not self._place.is_gone and self._session.is_safe()

    async def wait_lost(self) -> None:
        """Returns when the lock is not held: the session has ended, an operator has deleted the place of this client, or the lock
        was released. It watches only while somebody waits, and returns at once for a lock that was not acquired."""
        if self._place is not None and self._is_first:
            await self._place.wait_gone()

    @property
    def token(self) -> Token:
        """The fencing token, greater than those of all former holders. Raises NotHeld if the lock is not held."""
        token = self._held_place().token
        assert token is not None
        return token

    @property
    def condition(self) -> Condition:
        """Holds for as long as this client holds the lock: give it to `transact`. Raises NotHeld if the lock is not held."""
        return self._held_place().condition

    async def transact(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Transacted:
        """Does a transaction on condition that the lock is still held.

        Raises:
            NotHeld: the lock is not held any more, so nothing was done; acquire it again.
        """
        return await self._held_place().transact(conditions, operations)

    def _held_place(self) -> QueuePlace:
        if self._place is None or not self._is_first:
            raise NotHeld(f"the lock {self.name} is not held: acquire it first")
        if self._place.is_gone:
            raise self._place.gone("acquire again")
        return self._place
