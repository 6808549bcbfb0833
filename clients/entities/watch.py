"""Watch: the committed changes that a filter names, in order, each once.

    async for batch in client.watch(kind="shard", prefix="a/"):
        for event in batch.events:
            ...
        remember(batch.position)

A watch goes on at another node when its node dies, and begins again at a position that a program has remembered: on another
machine, after a failover, after `quorum recover`. When the log has no changes for the position any more, the batch is the whole
state (`batch.is_state`); with `keep_state` the watch shows the difference instead. A batch is all that one transaction has done:

    1. A transaction moves shard 7 from broker 1 to broker 2: it deletes `1/7` and writes `2/7`. The watch is at controller 3.
    2. Controller 3 is killed. The watch opens a stream at controller 1, at the last position.
    3. The program gets one batch with both events, once.

`clients.entities.core.watch_core` decides; this file has the streams. A watch without a reader holds the stream back, and a node
cuts a stream that stands still for too long: the watch then goes on from the last position.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Self

import grpc
from quorum_rpc.v1 import watch_pb2

from clients.calls import ASK_ELSEWHERE, BACKOFF_FIRST_S, BACKOFF_MAX_S, Calls
from clients.entities.core.watch_core import StreamUnusable, WatchCore
from clients.entities.core.watch_values import WatchBatch, WatchPosition
from clients.entities.targets import Targets
from clients.entities.watch_messages import message_of, position_message
from clients.errors import AdminError, NotReached, error_of_call
from metadata_log.format.errors import ErrorCode
from service_kit.rpc.dial import was_never_sent
from service_kit.rpc.refusals import Refusal

logger: Final = logging.getLogger(__name__)

BOOKMARK_INTERVAL_MS: Final = 5_000
_AGAIN: Final = frozenset((*ASK_ELSEWHERE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.FENCED_BROKER))
_BROKEN: Final = frozenset(
    (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.ABORTED,
    )
)
"""The statuses of a transport that broke. Any other status without a refusal would come again at the next node."""


class Watch(AsyncIterator[WatchBatch]):
    """The batches of one watch: `async for batch in watch`. `async with` ends the stream at once at the end of the block."""

    def __init__(
        self,
        client: Calls,
        watch_filter: watch_pb2.WatchFilter,
        *,
        position: WatchPosition | None = None,
        from_now: bool = False,
        keep_state: bool = False,
        bookmarks: bool = False,
        bookmark_interval_ms: int = BOOKMARK_INTERVAL_MS,
    ) -> None:
        """`bookmarks`: the watch also yields batches without events, which tell that all is seen below their position.

        Raises:
            ValueError: `keep_state` with a position, with `from_now`, or with a filter for more than entities.
        """
        if keep_state and (position is not None or from_now):
            raise ValueError("keep_state needs the whole state first: give neither a position nor from_now")
        if keep_state and (not watch_filter.entities or _shows_more(watch_filter)):
            raise ValueError("keep_state is for entities only: give a kind, and no topics, brokers, sessions or others")
        self._core = WatchCore(position, keep_state=keep_state)
        self._client = client
        self._filter = watch_filter
        self._from_now = from_now
        self._bookmarks = bookmarks
        self._interval_ms = bookmark_interval_ms
        self._targets = Targets(client.endpoints)
        self._call: Any = None
        self._backoff_s = BACKOFF_FIRST_S
        self._is_closed = self._was_answered = False
        self._early: WatchBatch | None = None
        """A batch that came before the program has asked for the first one."""

    @property
    def position(self) -> WatchPosition | None:
        """Everything below was yielded. None: nothing was yielded yet."""
        return self._core.position

    async def __aenter__(self) -> Self:
        """With `from_now` the watch shows what changes from here on: it waits for the node's word."""
        while self._from_now and self._core.position is None and not self._is_closed:
            self._early = await self._next()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the watch. `position` stays."""
        self._is_closed = True
        self._drop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchBatch:
        """Returns the next batch. A caller that is cancelled meanwhile, for example by a timeout, may ask again.

        Raises:
            NotReached: no node answered at all within the timeout of the client. (A watch that was answered once goes on for
            ever.) AdminError: a node has refused the watch for a reason that holds at each node.
        """
        early, self._early = self._early, None
        while True:
            batch = await self._next() if early is None else early
            early = None
            if batch is None:
                raise StopAsyncIteration
            if batch.events or batch.is_state or self._bookmarks:
                return batch

    async def _next(self) -> WatchBatch | None:
        """Returns the next batch, which may be a bookmark. None: the watch is closed."""
        until_s = asyncio.get_running_loop().time() + self._client.timeout_s
        while not self._is_closed:
            try:
                batch = await self._take()
            except AdminError as e:
                self._drop()
                if e.code not in _AGAIN:
                    raise
                if not self._was_answered and asyncio.get_running_loop().time() >= until_s:
                    text = (
                        f"no node has served the watch within {self._client.timeout_s:g} s; the last one: {e.message}"
                    )
                    raise NotReached(ErrorCode.BROKER_NOT_AVAILABLE, text) from e
                logger.debug("the watch goes on elsewhere: %s", e)
                self._targets.go(None, elsewhere=True)
                await asyncio.sleep(self._backoff_s)
                self._backoff_s = min(2 * self._backoff_s, BACKOFF_MAX_S)
                continue
            except BaseException:  # gRPC ends the stream of a cancelled read
                self._drop()
                raise
            if batch is not None:
                return batch
        return None

    async def _take(self) -> WatchBatch | None:
        """Reads one message. Raises AdminError if the stream has ended."""
        target = self._targets.current
        try:
            if self._call is None:
                self._open(target)
            # A client's own limit is long: each node sends a bookmark at least every interval.
            async with asyncio.timeout(2 * self._interval_ms / 1_000 + 1):
                message = await self._call.read()
        except TimeoutError:
            raise AdminError(ErrorCode.REQUEST_TIMED_OUT, f"{target}: no message came, not even a bookmark") from None
        except grpc.aio.AioRpcError as e:
            raise _error_of(target, e) from e
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._is_closed and task is not None and not task.cancelling():
                return None  # not the caller was cancelled, but the stream, by `close`
            raise
        if message is grpc.aio.EOF or message is None:
            raise AdminError(ErrorCode.REQUEST_TIMED_OUT, f"{target} has ended the stream")
        self._was_answered = True
        try:
            batch = self._core.take(message_of(message))
        except StreamUnusable as e:
            logger.warning("%s: %s", target, e)
            raise AdminError(ErrorCode.REQUEST_TIMED_OUT, f"{target}: {e}") from e
        self._backoff_s = BACKOFF_FIRST_S
        return batch

    def _open(self, target: str) -> None:
        self._core.opened()
        position = self._core.position
        request = watch_pb2.WatchRequest(
            cluster_id=self._client.cluster_id,
            filter=self._filter,
            position=None if position is None else position_message(position),
            from_now=self._from_now and position is None,
            bookmark_interval_ms=self._interval_ms,
        )
        self._call = self._client.stub(target, "WatchService").Watch(request)

    def _drop(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None


def watch_filter(
    kind: str | None,
    prefix: str,
    kinds: Sequence[tuple[str, str]],
    topics: Sequence[str],
    all_topics: bool,
    brokers: Sequence[int],
    all_brokers: bool,
    sessions: bool,
    others: bool,
) -> watch_pb2.WatchFilter:
    """Returns the filter of a watch.

    Raises:
        ValueError: a prefix without a kind.
    """
    if prefix and not kind:
        raise ValueError("a prefix without a kind: give the kind, too")
    if any(its_prefix and not each for each, its_prefix in kinds):
        raise ValueError("a prefix without a kind among `kinds`: give the kind, too")
    chosen = [] if kind is None else [(kind, prefix)]
    return watch_pb2.WatchFilter(
        entities=[watch_pb2.WatchFilter.Entities(kind=each, name_prefix=its) for each, its in (*chosen, *kinds)],
        topics=topics,
        all_topics=all_topics,
        brokers=brokers,
        all_brokers=all_brokers,
        sessions=sessions,
        others=others,
    )


def _shows_more(chosen: watch_pb2.WatchFilter) -> bool:
    return any(field.name != "entities" for field, _ in chosen.ListFields())


def _error_of(target: str, e: grpc.aio.AioRpcError) -> AdminError:
    refusal = Refusal.of(e)
    if refusal is not None:
        return AdminError.of_refusal(refusal, target, is_read=True)
    error = error_of_call(target, e, sent=not was_never_sent(e), size=0, is_read=True)
    return AdminError(ErrorCode.REQUEST_TIMED_OUT, error.message) if e.code() in _BROKEN else error
