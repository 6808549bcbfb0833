"""What clients ask of a broker: `ClusterMetadataService`, answered from the metadata cache.

Any broker answers for the whole cluster. One that is fenced, or whose lease has lapsed, answers no client: it says
BROKER_NOT_AVAILABLE and why, and the client asks another. `BrokerStatus` is for operators and probes, and always answers.

Answers about topics come in pages, and are built in slices (`metadata_pages`): how large the cluster is, and how much is asked
for, decides how many pages there are, and nothing else.

One server per listener, so that a client that names none is told the addresses of the one that it called.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Protocol

from quorum_rpc.v1 import client_pb2, client_pb2_grpc

from broker_agent import convert
from broker_agent.cache import MetadataCache, MetadataView
from broker_agent.metadata_pages import CURSOR_NAME_CHARS_MAX, Page, Turns, cursor_name
from broker_agent.session.lifecycle import BrokerState
from broker_agent.topic_order import TopicOrder
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset, Uuid

MAX_WAIT_MS = 60_000
"""No client waits longer for an offset, whatever it asks for."""
NAMES_MAX = 10_000
"""Of topics, in one request."""


class BrokerStanding(Protocol):
    """What this service needs to know of the broker that it runs in."""

    @property
    def cache(self) -> MetadataCache: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def generation(self) -> int: ...

    @property
    def broker_id(self) -> NodeId: ...

    @property
    def incarnation(self) -> Uuid: ...

    @property
    def state(self) -> BrokerState: ...

    @property
    def reason(self) -> str: ...

    @property
    def broker_epoch(self) -> int | None: ...

    @property
    def high_watermark(self) -> Offset: ...

    @property
    def lease_lapsed(self) -> bool: ...

    def may_serve(self) -> bool:
        """Whether clients may be answered at this very moment."""

    async def applied(self, offset: Offset) -> None:
        """Returns once the cache has applied everything below `offset`."""


class ClusterMetadata(client_pb2_grpc.ClusterMetadataServiceServicer):
    """The service behind one listener."""

    def __init__(self, broker: BrokerStanding, listener: str, turns: Turns | None = None) -> None:
        """`turns` are those of all listeners of this broker."""
        self._broker = broker
        self._listener = listener
        self._turns = Turns() if turns is None else turns
        self._order = TopicOrder()

    async def Metadata(self, request: client_pb2.MetadataRequest, context: Any) -> client_pb2.MetadataResponse:
        """A page of nodes and topics as of one offset, at least `min_offset`."""
        problem = _problem(request)
        if problem is not None:
            return _refusal(ErrorCode.INVALID_REQUEST, problem)
        await self._wait_for(request)
        broker = self._broker
        if not broker.may_serve():
            return self._not_available()
        view, generation = broker.cache.current, broker.generation
        if view.offset < request.min_offset:
            return _refusal(ErrorCode.NOT_READY, f"applied up to {view.offset}, not yet to {request.min_offset}")
        cursor = request.cursor if request.HasField("cursor") else None
        page = Page(view, request.listener or self._listener, request.limit, cursor)
        await self._turns.take(self._steps(page, view, request))
        if not broker.may_serve():  # the lease may have lapsed while the page was built
            return self._not_available()
        response = page.response
        response.error.CopyFrom(convert.error(ErrorCode.NONE))
        response.cluster_id, response.generation, response.as_of_offset = broker.cluster_id, generation, view.offset
        controller_id = view.controller_id()
        if controller_id is not None:
            response.controller_id = controller_id
        return response

    def _steps(self, page: Page, view: MetadataView, request: client_pb2.MetadataRequest) -> Iterator[int]:
        if request.HasField("topics"):
            names = _named(request)
        else:
            names = yield from self._order.names_from(view.image.topic_ids, request.cursor.topic)
        yield from page.steps(names)

    def _not_available(self) -> client_pb2.MetadataResponse:
        broker = self._broker
        return _refusal(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker.broker_id} {describe(broker)}")

    async def _wait_for(self, request: client_pb2.MetadataRequest) -> None:
        wait_ms = min(max(request.max_wait_ms, 0), MAX_WAIT_MS)
        if wait_ms and self._broker.cache.current.offset < request.min_offset:
            try:
                await asyncio.wait_for(self._broker.applied(request.min_offset), wait_ms / 1_000)
            except TimeoutError:
                return  # what is there decides the answer

    async def BrokerStatus(
        self, request: client_pb2.BrokerStatusRequest, context: Any
    ) -> client_pb2.BrokerStatusResponse:
        """This broker as it sees itself."""
        broker = self._broker
        image = broker.cache.current.image
        return client_pb2.BrokerStatusResponse(
            broker_id=broker.broker_id,
            broker_epoch=-1 if broker.broker_epoch is None else broker.broker_epoch,
            incarnation_id=broker.incarnation,
            state=broker.state.value,  # type: ignore[arg-type]
            lease_lapsed=broker.lease_lapsed,
            applied_offset=image.offset,
            high_watermark=broker.high_watermark,
            digest=image.digest_bytes,
            reason=broker.reason,
        )


def describe(broker: BrokerStanding) -> str:
    """Why it is as it is, in a few words."""
    lapsed = ", its lease has lapsed" if broker.lease_lapsed else ""
    return f"is {broker.state.name.lower()}{lapsed}: {broker.reason}"


def _refusal(code: ErrorCode, message: str) -> client_pb2.MetadataResponse:
    return client_pb2.MetadataResponse(error=convert.error(code, message))


def _problem(request: client_pb2.MetadataRequest) -> str | None:
    """Why the request cannot be answered, whatever the cluster is like; None where it can."""
    names, cursor = request.topics.names, request.cursor
    if len(names) > NAMES_MAX:
        return f"{len(names):,} topics are asked for, and at most {NAMES_MAX:,} may be: ask several times"
    if request.limit < 0:
        return f"limit is {request.limit}: it must be at least 1, or 0 for as many as a page holds"
    if cursor.partition < 0 or len(cursor.topic) > CURSOR_NAME_CHARS_MAX:
        return "the cursor is not one that a page has given"
    if request.HasField("topics") and request.HasField("cursor") and cursor.topic not in map(cursor_name, names):
        return f"the cursor is of topic {cursor.topic!r}, which is not asked for"
    return None


def _named(request: client_pb2.MetadataRequest) -> Iterator[str]:
    """The topics that are asked for, each once, from the cursor's on."""
    names = iter({cursor_name(name): name for name in request.topics.names}.items())
    begun = not request.HasField("cursor")
    for key, name in names:
        begun = begun or key == request.cursor.topic
        if begun:
            yield name
