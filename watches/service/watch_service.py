"""`WatchService` of one node: takes requests, checks the caller, and counts the watches.

A message leaves as the bytes that the hub has put together: the method has no serializer of its own.

    1. A client asks node 2 to watch the kind `lock`. The doors of node 2 let the client in, and node 2 has 40 of 5,000 watches.
    2. The watch is the 41st, until its client ends the call, or the node does.
    3. Node 2 stops: all its watches end with BROKER_NOT_AVAILABLE, and their clients go on elsewhere.
"""

from typing import Any, Final

import grpc
from quorum_rpc.v1 import watch_pb2

from service_kit.rpc.doors import Doors, NotAuthorized
from service_kit.rpc.refusals import Refusal
from watches.core.filters import Filter
from watches.core.limits import BOOKMARKS_PER_S_MAX, BUFFER_BYTES, WATCHES_MAX
from watches.core.watched_log import WatchedLog
from watches.service.hub import Hub
from watches.service.request import BOOKMARK_MS_MAX, wanted
from watches.service.tallies import WatchTallies
from watches.service.watch import Watch

SERVICE: Final = watch_pb2.DESCRIPTOR.services_by_name["WatchService"]
CLUSTER_ID_CHARS_MAX: Final = 50
"""How many characters of a foreign cluster id a refusal shows."""


class WatchService(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The watches of one node. Several servers of the node may share it."""

    def __init__(
        self,
        log: WatchedLog,
        tallies: WatchTallies | None = None,
        doors: Doors | None = None,
        watches_max: int = WATCHES_MAX,
        buffer_bytes: int = BUFFER_BYTES,
        bookmarks_per_s_max: int = BOOKMARKS_PER_S_MAX,
    ) -> None:
        """Without `doors` every caller may watch."""
        self.tallies = WatchTallies() if tallies is None else tallies
        self._log = log
        self._doors = doors or Doors()
        self._watches_max = watches_max
        self._buffer_bytes = buffer_bytes
        self._bookmarks_max = bookmarks_per_s_max * BOOKMARK_MS_MAX
        self._bookmarks = 0
        """How many bookmarks the open watches want in BOOKMARK_MS_MAX seconds; an integer, so that none gets lost."""
        self._hub = Hub(log, self.tallies)
        self._handlers = {
            f"/{SERVICE.full_name}/Watch": grpc.unary_stream_rpc_method_handler(
                self.watch, request_deserializer=watch_pb2.WatchRequest.FromString, response_serializer=_as_it_is
            )
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._handlers.get(handler_call_details.method)

    async def watch(self, request: watch_pb2.WatchRequest, context: Any) -> None:
        """Serves one watch until its client or this node ends it."""
        try:
            await self._watch(request, context)
        except Refusal as e:
            await e.end(context)

    async def _watch(self, request: watch_pb2.WatchRequest, context: Any) -> None:
        asked = wanted(request)
        self._check(context, asked.shown)
        if request.cluster_id and request.cluster_id != self._log.cluster_id:
            theirs = request.cluster_id[:CLUSTER_ID_CHARS_MAX]
            text = (
                f"this is cluster {self._log.cluster_id!r}; the request names cluster {theirs!r}; nothing was watched"
            )
            raise Refusal("INCONSISTENT_CLUSTER_ID", text)
        if self.tallies.open >= self._watches_max:
            text = f"this node has {self.tallies.open:,} watches, as many as `watches.max` allows: ask another node"
            raise Refusal("THROTTLING_QUOTA_EXCEEDED", text)
        bookmarks = round(BOOKMARK_MS_MAX / asked.bookmark_s)
        if self._bookmarks + bookmarks > self._bookmarks_max:
            text = (
                f"the watches of this node want {self._bookmarks / BOOKMARK_MS_MAX:,.0f} bookmarks a second, of at most "
                f"{self._bookmarks_max / BOOKMARK_MS_MAX:,.0f}: ask another node, or for a longer bookmark_interval_ms than "
                f"{asked.bookmark_s * 1_000:,.0f}"
            )
            raise Refusal("THROTTLING_QUOTA_EXCEEDED", text)
        self._bookmarks += bookmarks
        try:
            await Watch(self._hub, asked, context, self._buffer_bytes).run()
        finally:
            self._bookmarks -= bookmarks

    def _check(self, context: Any, shown: Filter) -> None:
        """Refuses a caller that may not watch. Embedders may watch everything except `others`: that has the rights of clients."""
        caller = self._doors.caller(context)
        try:
            if shown.others:
                caller.check_operator()
            else:
                caller.check_embedder()
        except NotAuthorized as e:
            raise Refusal("CLUSTER_AUTHORIZATION_FAILED", str(e)) from e

    async def close(self) -> None:
        """Ends all watches. Call `close` before the servers stop."""
        await self._hub.close()


def _as_it_is(data: bytes) -> bytes:
    return data
