"""Session: the life of a client as the cluster sees it. Ephemeral entities vanish with their session.

    async with client.session("indexer on host a") as session:
        await client.put("worker", "a", b"ready", session=session)
        await session.run(work())           # cancelled when the session ends

The session promises: while `is_safe()` is True, the session has not ended, so its ephemeral entities are there (unless somebody
has deleted them). When it turns False, stop what nobody else may do at the same time. The session may still go on: `lost` is
set only when a controller has said that the session has ended.

`is_safe()` is true at the moment of the call. A process that stops for a minute after the call writes a minute later, so a store
that must not take the writes of a former owner compares tokens, or takes the write in a transaction with a condition:

    1. Worker 1 holds shard 7 with a session. Worker 1 asks `is_safe()`, hears True, and its machine stops for a minute.
    2. The session ends, and worker 2 takes shard 7 with a higher token.
    3. Worker 1 goes on and writes. A `put` with `if_version` of what worker 1 had read does nothing.

The keeping is decided by `clients.entities.core.session_core`; this file has the stream, the clock and the task.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import grpc
from quorum_rpc.v1 import entity_pb2

from clients.entities.core.session_core import OpenStream, SendKeepAlive, SessionCore, SessionEnded
from clients.entities.core.values import EntityOwner
from clients.entities.errors import SessionLost
from clients.entities.targets import Targets
from clients.errors import AdminError, target_of
from clients.metadata_client import ClientClock, LoopClock
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import uuid_text
from service_kit.rpc.refusals import Refusal

if TYPE_CHECKING:
    from clients.entities.client import EntityClient

T = TypeVar("T")

logger: Final = logging.getLogger(__name__)

TIMEOUT_MS: Final = 9_000
FAR_MS: Final = 3_600_000
"""How long the keeper waits at most before it looks again."""


class Session:
    """`async with client.session(...)`: opens the session, keeps it alive, and ends it at the end of the block.

    `name` is for people, and `client` is the client that opened the session.
    """

    def __init__(
        self, client: "EntityClient", name: str = "", timeout_ms: int = TIMEOUT_MS, *, clock: ClientClock | None = None
    ) -> None:
        """`name`: for people, at most 256 characters. `timeout_ms`: how long the session lasts without a keep-alive."""
        self.name = name
        self.client = client
        self._session_id = secrets.token_bytes(16)
        self._epoch, self._generation = -1, 0
        self._lost = asyncio.Event()
        self._timeout_ms = timeout_ms
        self._clock = clock or LoopClock()
        self._core: SessionCore | None = None
        self._wake = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._call: Any = None
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.close()
        except AdminError as e:
            logger.warning("session %s was not closed and ends after its timeout: %s", self, e)

    def __str__(self) -> str:
        """The id as `quorumctl sessions list` shows it, and the name."""
        return f"{uuid_text(self.session_id)} ({self.name})" if self.name else uuid_text(self.session_id)

    async def open(self) -> None:
        """Opens the session, and begins to keep it alive. Raises AdminError; the session may then be open until its timeout."""
        assert self._core is None, "this session has been opened"
        request = entity_pb2.OpenSessionRequest(session_id=self.session_id, name=self.name, timeout_ms=self._timeout_ms)
        opened_ms = self._clock.now_ms()
        response = await self.client.call(request, entity_pb2.OpenSessionResponse)
        self._epoch, self._generation = response.epoch, response.generation
        self._core = SessionCore(response.timeout_ms, opened_ms)
        self._keeper = asyncio.create_task(self._keep(self._core), name=f"keeper of session {self}")

    async def close(self) -> None:
        """Ends the session, with its ephemeral entities. A session that has ended is no error. May be called twice.

        Raises:
            AdminError: the controllers were not told; the session ends after its timeout.
        """
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        self._drop_stream()
        assert self._core is not None
        if self._core.ended is None:
            request = entity_pb2.CloseSessionRequest(session_id=self.session_id, epoch=self.epoch)
            try:
                await self.client.call(request, entity_pb2.CloseSessionResponse)
            finally:
                self._core.end("its client has closed it")
                self.lost.set()

    async def run(self, work: Awaitable[T]) -> T:
        """Awaits `work`, which makes sense only as long as the session lives. The work is cancelled when the session ends.

        Raises:
            SessionLost: the session has ended.
        """
        working = asyncio.ensure_future(work)
        losing = asyncio.ensure_future(self.lost.wait())
        try:
            await asyncio.wait((working, losing), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                self.check()
            return await working
        finally:
            for task in (working, losing):
                task.cancel()
            await asyncio.gather(working, losing, return_exceptions=True)

    # --- state -----------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> bytes:
        """The id, 16 bytes that this client has drawn."""
        return self._session_id

    @property
    def epoch(self) -> int:
        """The offset at which the session was opened; -1 before."""
        return self._epoch

    @property
    def generation(self) -> int:
        """The generation of the cluster when the session was opened."""
        return self._generation

    @property
    def lost(self) -> asyncio.Event:
        """An event that is set when a controller has said that the session has ended, or this client has closed it."""
        return self._lost

    @property
    def owner(self) -> EntityOwner:
        """The owner to give to ephemeral entities."""
        assert self._core is not None, "use `async with client.session(...)`: the session is not open"
        return EntityOwner(self.session_id, None, self.epoch)

    def is_safe(self) -> bool:
        """True while the session surely lives. False: it may have ended."""
        return self._core is not None and self._core.is_safe(self._clock.now_ms())

    @property
    def safe_ms(self) -> int:
        """How long the session surely lives from now on, in milliseconds."""
        if self._core is None or self._core.ended is not None:
            return 0
        return max(0, self._core.safe_until_ms - self._clock.now_ms())

    def check(self) -> None:
        """Raises SessionLost if the session has ended."""
        if self.lost.is_set():
            assert self._core is not None
            raise SessionLost(f"session {self} has ended, and its ephemeral entities with it: {self._core.ended}")

    # --- the keeper ------------------------------------------------------------------------------------------------

    async def _keep(self, core: SessionCore) -> None:
        targets = Targets(self.client.endpoints, self.client.target)
        try:
            while not self.lost.is_set():
                self._wake.clear()
                for effect in core.step(self._clock.now_ms()):
                    match effect:
                        case OpenStream():
                            self._open_stream(core, effect.number, targets.go(effect.hint, elsewhere=effect.elsewhere))
                        case SendKeepAlive():
                            await self._send(effect.number, effect.message_id)
                        case SessionEnded():
                            logger.warning("session %s has ended: %s", self, effect.why)
                            self.lost.set()
                now_ms = self._clock.now_ms()
                await self._clock.wait(self._wake, core.next_ms() or now_ms + FAR_MS)
        except Exception as e:  # a mistake of this client: nobody keeps the session alive any more
            logger.exception("the keeper of session %s has failed", self)
            core.end(f"its keeper has failed: {e!r}")
            self.lost.set()
            raise
        finally:
            self._drop_stream()

    def _open_stream(self, core: SessionCore, number: int, target: str) -> None:
        self._drop_stream()
        self._call = self.client.stub(target, "EntityService").KeepAlive()
        self._reader = asyncio.create_task(self._read(core, number, target, self._call))

    def _drop_stream(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
        if self._call is not None:
            self._call.cancel()
        self._call = self._reader = None

    async def _send(self, number: int, message_id: int) -> None:
        name = entity_pb2.SessionName(session_id=self.session_id, epoch=self.epoch)
        message = entity_pb2.KeepAliveRequest(cluster_id=self.client.cluster_id, id=message_id, sessions=[name])
        assert self._call is not None and self._core is not None
        try:
            # A write to a node that stands still waits for the connection: the reader's news or the core's patience ends it.
            async with asyncio.timeout(max(0, (self._core.next_ms() or 0) - self._clock.now_ms()) / 1_000):
                await self._call.write(message)
        except TimeoutError:
            self._core.broke(number, self._clock.now_ms())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError) as e:
            task = asyncio.current_task()
            if isinstance(e, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            self._core.broke(number, self._clock.now_ms())  # gRPC also cancels a write when the stream ends meanwhile

    async def _read(self, core: SessionCore, number: int, target: str, call: Any) -> None:
        try:
            while (answer := await call.read()) is not grpc.aio.EOF and answer is not None:
                self._take(core, number, target, answer)
            core.broke(number, self._clock.now_ms())
        except grpc.aio.AioRpcError as e:
            refusal = Refusal.of(e)
            logger.debug("session %s: %s: %s", self, target, refusal.message if refusal else e.details())
            if refusal is None:
                core.broke(number, self._clock.now_ms())
            else:
                hint = None if refusal.leader is None else refusal.leader.target
                core.refused(number, hint if hint != target else None, self._clock.now_ms())
        finally:
            self._wake.set()

    def _take(self, core: SessionCore, number: int, target: str, answer: Any) -> None:
        now_ms = self._clock.now_ms()
        kept = answer.sessions[0] if answer.sessions else None
        if answer.error.code or kept is None:
            logger.debug("session %s: %s: %s", self, target, answer.error.message)
            hint = target_of(answer.leader)
            core.refused(number, hint if hint != target else None, now_ms)
        elif kept.error.code == ErrorCode.UNKNOWN_SESSION:
            core.unknown(now_ms)
        elif kept.error.code:
            logger.warning("session %s was not kept alive: %s", self, kept.error.message)
            core.kept(number, answer.id, 0, now_ms)
        else:
            core.kept(number, answer.id, kept.lease_ms, now_ms)
        self._wake.set()
