"""BlockingClient: entities, sessions, locks and watches for scripts without an event loop.

    with BlockingClient(["127.0.0.1:9001"]) as client:
        client.put("shard", "7", b"broker 1", if_absent=True)
        for shard in client.list("shard"):
            print(shard.name, shard.value)
        with client.session("nightly job") as session, BlockingLock(session, "jobs/nightly", timeout_s=60):
            ...

The methods have the names, arguments, results and errors of `EntityClient`, `Session`, `Lock` and `Watch`. Reads of the past
(`at`) and views (`live`) need an `EntityClient`. One client is for one thread. A session is kept alive on the client's own
thread, also while the script computes:

    1. The script holds the lock `jobs/nightly`, and computes for an hour. The session goes on, so the lock is held.
    2. The process is stopped by a debugger. Nothing is sent any more, the session ends, and the lock goes to the next one.
    3. The script goes on. `lock.is_held` is False.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from clients.blocking.loop_thread import LoopThread
from clients.calls import DEFAULT_TIMEOUT_S
from clients.entities.client import EntityClient
from clients.entities.core.transactions import Condition, Operation, Transacted
from clients.entities.core.values import EntityOwner, Token
from clients.entities.core.watch_values import WatchBatch, WatchPosition
from clients.entities.session import TIMEOUT_MS, Session
from clients.entities.watch import Watch
from clients.recipes.lock import Lock

P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    method: Callable[Concatenate[EntityClient, P], Coroutine[Any, Any, R]],
) -> "Callable[Concatenate[BlockingClient, P], R]":
    @wraps(method)
    def call(self: "BlockingClient", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.loop.run(method(self.client, *args, **kwargs))

    return call


def _iterating(
    method: Callable[Concatenate[EntityClient, P], AsyncIterator[R]],
) -> "Callable[Concatenate[BlockingClient, P], Iterator[R]]":
    @wraps(method)
    def call(self: "BlockingClient", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        return self.loop.iterate(method(self.client, *args, **kwargs))

    return call


def _watching(
    method: Callable[Concatenate[EntityClient, P], Watch],
) -> "Callable[Concatenate[BlockingClient, P], BlockingWatch]":
    @wraps(method)
    def call(self: "BlockingClient", /, *args: P.args, **kwargs: P.kwargs) -> "BlockingWatch":
        return BlockingWatch(self.loop, method(self.client, *args, **kwargs))

    return call


class BlockingClient:
    """An EntityClient whose calls block. Use `with`, from one thread."""

    def __init__(
        self,
        endpoints: Sequence[str],
        cluster_id: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        dial: Any = None,
    ) -> None:
        """As `EntityClient`.

        Raises:
            BadEndpoint: `endpoints` is empty, or an entry is not `host:port`. (A ValueError.)
        """
        self.client = EntityClient(endpoints, cluster_id, timeout_s, dial=dial)
        self.loop = LoopThread()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections. Sessions that are still open end after their timeouts. May be called twice."""
        if self.loop.is_closed:
            return
        try:
            self.loop.run(self.client.close())
        finally:
            self.loop.close()

    get = _blocking(EntityClient.get)
    get_many = _blocking(EntityClient.get_many)
    count = _blocking(EntityClient.count)
    put = _blocking(EntityClient.put)
    delete = _blocking(EntityClient.delete)
    transact = _blocking(EntityClient.transact)
    must_transact = _blocking(EntityClient.must_transact)
    declare_kinds = _blocking(EntityClient.declare_kinds)
    remove_kinds = _blocking(EntityClient.remove_kinds)
    list = _iterating(EntityClient.list)
    kinds = _iterating(EntityClient.kinds)
    sessions = _iterating(EntityClient.sessions)
    close_session = _blocking(EntityClient.close_session)
    watch = _watching(EntityClient.watch)

    def session(self, name: str = "", timeout_ms: int = TIMEOUT_MS) -> "BlockingSession":
        """Returns a session for `with`."""
        return BlockingSession(self.loop, Session(self.client, name, timeout_ms))


class BlockingSession:
    """A session: opened at the begin of a `with` block, and closed at its end."""

    def __init__(self, loop: LoopThread, session: Session) -> None:
        self.loop = loop
        self.session = session

    def __enter__(self) -> Self:
        self.loop.run(self.session.open())
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.run(self.session.__aexit__())

    @property
    def owner(self) -> EntityOwner:
        """The owner to give to ephemeral entities."""
        return self.session.owner

    def is_safe(self) -> bool:
        """True while the session surely lives."""
        return self.session.is_safe()

    @property
    def is_lost(self) -> bool:
        """True if the session has ended."""
        return self.session.lost.is_set()

    def check(self) -> None:
        """Raises SessionLost if the session has ended."""
        self.session.check()


class BlockingLock:
    """A lock for `with`."""

    def __init__(
        self,
        session: BlockingSession,
        name: str,
        *,
        kind: str = "lock",
        value: bytes = b"",
        timeout_s: float | None = None,
    ) -> None:
        """`timeout_s`: how long `acquire` waits; None: as long as it takes."""
        self._loop = session.loop
        self._lock = Lock(session.session, name, kind=kind, value=value)
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> Token:
        """Waits until the lock is held; returns the fencing token.

        Raises:
            TimeoutError: the lock was not held in time; this client has left the queue.
            SessionLost: the session has ended.
        """
        return self._loop.run(self._lock.acquire(), self._timeout_s)

    def release(self) -> None:
        """Gives the lock up."""
        self._loop.run(self._lock.release())

    @property
    def is_held(self) -> bool:
        """True if the lock is surely held at this moment."""
        return self._lock.is_held

    @property
    def token(self) -> Token:
        """The fencing token. Raises NotHeld if the lock was not acquired."""
        return self._lock.token

    @property
    def condition(self) -> Condition:
        """Holds for as long as this client holds the lock."""
        return self._lock.condition

    def transact(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Transacted:
        """Does a transaction on condition that the lock is still held. Raises NotHeld if not: nothing was done."""
        return self._loop.run(self._lock.transact(conditions, operations))


class BlockingWatch(Iterator[WatchBatch]):
    """The batches of a watch: `for batch in watch`. The iteration ends when the watch is closed."""

    def __init__(self, loop: LoopThread, watch: Watch) -> None:
        self._loop = loop
        self._watch = watch

    def __enter__(self) -> Self:
        self._loop.run(self._watch.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> WatchBatch:
        return self.next()

    def next(self, timeout_s: float | None = None) -> WatchBatch:
        """Returns the next batch. Raises TimeoutError after `timeout_s`; the caller may ask again."""
        batch = self._loop.run(self._next(), timeout_s)
        if batch is None:
            raise StopIteration
        return batch

    async def _next(self) -> WatchBatch | None:
        return await anext(self._watch, None)

    @property
    def position(self) -> WatchPosition | None:
        """Everything below was returned."""
        return self._watch.position

    def close(self) -> None:
        """Ends the watch."""
        self._loop.run(self._close())

    async def _close(self) -> None:
        self._watch.close()
