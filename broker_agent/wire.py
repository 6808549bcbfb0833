"""`ClusterMetadataService`: a broker's answers to clients, from the metadata cache.

Any broker answers for the whole cluster. A broker that is fenced, or whose lease has lapsed, refuses clients with
BROKER_NOT_AVAILABLE and the reason, and the client asks another broker. `BrokerStatus` is for operators and probes: every broker
answers it in every state.

    1. A client asks broker 101 for the topic orders. Broker 101 answers for the whole cluster: broker 103 leads orders-0.
    2. The network between broker 101 and the controllers fails. After 5 s the lease lapses. Broker 101 refuses the next request,
       and the client asks broker 102.
    3. An operator asks broker 101 for `BrokerStatus`. The answer says: online, lease lapsed, and the reason.

Answers about topics have pages, and pages are built in slices (`metadata_pages`). The size of the cluster and of the request
decides only the number of pages.

Each listener has a server of its own, so that a client that names no listener gets the addresses of the listener that it called.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol, TypeAlias

from google.protobuf.message import DecodeError
from quorum_rpc.v1 import client_pb2, client_pb2_grpc

from broker_agent.cache import MetadataCache, MetadataView
from broker_agent.cluster_pages import after_broker, configs_steps, first_resource, status_steps
from broker_agent.metadata_pages import CURSOR_NAME_CHARS_MAX, Page, Turns, cursor_name
from broker_agent.problems import BrokerProblem
from broker_agent.session.lifecycle import BrokerState
from broker_agent.topic_order import TopicOrder
from metadata_log.format.ids import NodeId, Offset, Uuid
from metadata_log.format.records import FENCED_MODE
from service_kit.rpc.refusals import Refusal

MAX_WAIT_MS = 60_000
"""Maximum time that a request waits for an offset, whatever the client asks for."""
NAMES_MAX = 10_000
"""Maximum number of topics in one request."""
"""The code of a publisher's problem."""
_UUID_BYTES: Final = 16
_UNKNOWN_TOKEN: Final = (
    "page_token is not from an answer to this request: send `next_page_token` of the page before, unchanged"
)


Request: TypeAlias = client_pb2.MetadataRequest | client_pb2.ClusterStatusRequest | client_pb2.ConfigsRequest
"""The requests that name an offset which the answer must have."""


class ServingBroker(Protocol):
    """The view of the broker that this service needs."""

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

    @property
    def problems(self) -> Sequence[BrokerProblem]: ...

    def may_serve(self) -> bool:
        """Tells whether clients may be answered at this moment."""

    async def applied(self, offset: Offset) -> None:
        """Returns once the cache has applied everything below `offset`."""


class ClusterMetadata(client_pb2_grpc.ClusterMetadataServiceServicer):
    """The service for one listener."""

    def __init__(self, broker: ServingBroker, listener: str, turns: Turns | None = None) -> None:
        """`turns` are shared by all listeners of this broker."""
        self._broker = broker
        self._listener = listener
        self._turns = Turns() if turns is None else turns
        self._order = TopicOrder()

    async def Metadata(self, request: client_pb2.MetadataRequest, context: Any) -> client_pb2.MetadataResponse:
        """Returns a page of nodes and topics as of one offset, at least `min_offset`."""
        try:
            return await self._page(request)
        except Refusal as e:
            return await e.end(context)

    async def _page(self, request: client_pb2.MetadataRequest) -> client_pb2.MetadataResponse:
        cursor = _cursor(request)
        problem = _problem(request, cursor)
        if problem is not None:
            raise Refusal("INVALID_REQUEST", problem)
        view, generation = await self._view_for(request)
        page = Page(view, request.listener or self._listener, request.page_size, cursor)
        await self._build(self._steps(page, view, request, cursor))
        response = page.response
        response.cluster_id, response.generation, response.as_of_offset = (
            self._broker.cluster_id,
            generation,
            view.offset,
        )
        controller_id = view.controller_id()
        if controller_id is not None:
            response.controller_id = controller_id
        return response

    async def _view_for(self, request: Request) -> tuple[MetadataView, int]:
        """Returns the view to answer from, and its generation. Raises Refusal."""
        await self._wait_for(request)
        broker = self._broker
        if not broker.may_serve():
            raise self._not_available()
        view = broker.cache.current
        if view.offset < request.min_offset:
            raise Refusal(
                "NOT_READY", f"applied all below {view.offset}, not yet all below {request.min_offset}: ask again"
            )
        return view, broker.generation

    async def _build(self, steps: Iterator[int]) -> None:
        """Takes all `steps` of an answer. Raises Refusal if the lease has lapsed meanwhile."""
        await self._turns.take(steps)
        if not self._broker.may_serve():
            raise self._not_available()

    def _steps(
        self,
        page: Page,
        view: MetadataView,
        request: client_pb2.MetadataRequest,
        cursor: client_pb2.MetadataCursor | None,
    ) -> Iterator[int]:
        wanted: Iterator[str | Uuid]
        if request.HasField("topics"):
            wanted = _named(request, cursor)
        elif request.HasField("topic_ids"):
            wanted = _with_ids(request, cursor)
        else:
            start = "" if cursor is None else cursor.topic
            wanted = yield from self._order.names_from(view.image.topic_ids, start)
        yield from page.steps(wanted)

    def _not_available(self) -> Refusal:
        broker = self._broker
        return Refusal("BROKER_NOT_AVAILABLE", f"broker {broker.broker_id} {describe(broker)}; ask another node")

    async def _wait_for(self, request: Request) -> None:
        wait_ms = min(max(request.max_wait_ms, 0), MAX_WAIT_MS)
        if wait_ms and self._broker.cache.current.offset < request.min_offset:
            try:
                async with asyncio.timeout(wait_ms / 1_000):
                    await self._broker.applied(request.min_offset)
            except TimeoutError:
                return  # the caller compares the offset again

    async def ClusterStatus(
        self, request: client_pb2.ClusterStatusRequest, context: Any
    ) -> client_pb2.ClusterStatusResponse:
        """Returns a page of brokers, and the cluster's features and size, as of one offset, at least `min_offset`."""
        try:
            after = after_broker(request)
            view, generation = await self._view_for(request)
            response = client_pb2.ClusterStatusResponse(
                cluster_id=self._broker.cluster_id,
                as_of_offset=view.offset,
                generation=generation,
                controller_id=view.controller_id(),
                topics=view.image.topic_count,
                partitions=view.image.partition_count,
            )
            await self._build(status_steps(view, request, after, response))
            return response
        except Refusal as e:
            return await e.end(context)

    async def Configs(self, request: client_pb2.ConfigsRequest, context: Any) -> client_pb2.ConfigsResponse:
        """Returns a page of configs as of one offset, at least `min_offset`."""
        try:
            first = first_resource(request)
            view, generation = await self._view_for(request)
            response = client_pb2.ConfigsResponse(as_of_offset=view.offset, generation=generation)
            await self._build(configs_steps(view, request, first, response))
            return response
        except Refusal as e:
            return await e.end(context)

    async def BrokerStatus(
        self, request: client_pb2.BrokerStatusRequest, context: Any
    ) -> client_pb2.BrokerStatusResponse:
        """Returns this broker's state, as the broker itself knows it."""
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
            reason=_reason(broker),
            problems=[client_pb2.BrokerProblem(code=each.code, text=each.text) for each in broker.problems],
        )


def _reason(broker: ServingBroker) -> str:
    """The reason for the broker's state. A broker that an operator has fenced names the command that ends the fence."""
    mode = broker.cache.current.image.broker_modes.get(broker.broker_id)
    if broker.state is BrokerState.FENCED and mode is not None and mode.mode == FENCED_MODE:
        why = f" ({mode.reason})" if mode.reason else ""
        return f"an operator keeps it out{why}; `quorumctl brokers unfence {broker.broker_id}` ends that"
    return broker.reason


def describe(broker: ServingBroker) -> str:
    """The broker's state and its reason, in a few words."""
    if broker.lease_lapsed:
        return f"is {broker.state.name.lower()}, and hears no controller: its lease has lapsed"
    return f"is {broker.state.name.lower()}: {_reason(broker)}"


def _cursor(request: client_pb2.MetadataRequest) -> client_pb2.MetadataCursor | None:
    """The place where the page begins; None for the first page. Raises Refusal."""
    if not request.page_token:
        return None
    try:
        return client_pb2.MetadataCursor.FromString(request.page_token)
    except DecodeError as e:
        raise Refusal("INVALID_REQUEST", _UNKNOWN_TOKEN) from e


def _problem(request: client_pb2.MetadataRequest, cursor: client_pb2.MetadataCursor | None) -> str | None:
    """The mistake in a request, independent of the cluster's state; None if there is none."""
    names, ids = request.topics.names, request.topic_ids.ids
    if request.HasField("topics") and request.HasField("topic_ids"):
        return "topics requested by name and by id: send two requests"
    if len(names) + len(ids) > NAMES_MAX:
        return f"{len(names) + len(ids):,} topics requested, but the limit is {NAMES_MAX:,}: send several requests"
    if any(len(topic_id) != _UUID_BYTES for topic_id in ids):
        return f"a topic id does not have {_UUID_BYTES} bytes: send ids as in `TopicMetadata.topic_id`"
    if request.page_size < 0:
        return f"page_size is {request.page_size}: it must be at least 1, or 0 for as many as a page holds"
    if cursor is None:
        return None
    if cursor.partition < 0 or len(cursor.topic) > CURSOR_NAME_CHARS_MAX:
        return _UNKNOWN_TOKEN
    if request.HasField("topics") and cursor.topic not in map(cursor_name, names):
        return f"page_token is for topic {cursor.topic!r}, which is not among the requested topics"
    if request.HasField("topic_ids") and cursor.topic_id not in ids:
        return "page_token is for a topic id that is not among the requested ids"
    return None


def _named(request: client_pb2.MetadataRequest, cursor: client_pb2.MetadataCursor | None) -> Iterator[str]:
    """Yields each requested topic once, from the cursor's topic on."""
    names = iter({cursor_name(name): name for name in request.topics.names}.items())
    begun = cursor is None
    for key, name in names:
        begun = begun or (cursor is not None and key == cursor.topic)
        if begun:
            yield name


def _with_ids(request: client_pb2.MetadataRequest, cursor: client_pb2.MetadataCursor | None) -> Iterator[Uuid]:
    """Yields each requested id once, from the cursor's id on."""
    ids = dict.fromkeys(request.topic_ids.ids)
    begun = cursor is None
    for topic_id in ids:
        begun = begun or (cursor is not None and topic_id == cursor.topic_id)
        if begun:
            yield topic_id
