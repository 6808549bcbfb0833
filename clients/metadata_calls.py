"""The calls of a client's metadata: `ClusterMetadataService` of one broker, in pages, over gRPC.

All pages of an answer come from one broker. Each page is as of its own offset, at least that of the page before:

    1. The client asks broker 1 for orders and payments. The first page is as of offset 100, and ends inside of orders.
    2. Orders is deleted and created anew. The next page, as of offset 104, begins with partition 0 of the new orders.
    3. The two parts have different topic ids: the client drops the first part.

A broker may restart between two pages after `quorum recover`. Then the pages have different generations: the client drops all
pages and asks again.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import grpc
from quorum_rpc.v1 import broker_pb2, client_pb2, client_pb2_grpc

from clients.errors import why_not
from clients.metadata.cluster import ClusterNode, PartitionView
from clients.metadata.refresher import Problem, ProblemKind
from clients.metadata.seen import ViewVersion
from clients.metadata.updates import MetadataRequestPlan, MetadataUpdate, TopicUpdate
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId
from service_kit.process.endpoints import HostPort
from service_kit.rpc.dial import Dialer, was_never_sent
from service_kit.rpc.refusals import Refusal

R = TypeVar("R")

NAMES_MAX: Final = 10_000
"""Maximum number of topics or resources in one request. For more the client sends several requests."""
CATCH_UP_MS: Final = 1_000
"""How long a broker may wait for the offset of the page before. Only a broker that has restarted meanwhile is behind it."""

_REFUSED: Final = frozenset(
    (
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_READY,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
)
"""The refusals of one broker: another broker may answer. Every broker would send any other refusal."""
_S: Final = grpc.StatusCode


class MetadataProblem(Exception):
    """No answer came. `problem` says why, and what the client does next."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class BrokerDescription(NamedTuple):
    """A registered broker. `state` is FENCED, ONLINE or STOPPING; `endpoints` has host and port by listener."""

    broker_id: NodeId
    state: str
    endpoints: Mapping[str, HostPort]
    rack: str | None


class ClusterDescription(NamedTuple):
    """The cluster as one broker knows it. `features` has the level of each feature that is on."""

    cluster_id: str
    controller_id: NodeId | None
    brokers: tuple[BrokerDescription, ...]
    features: Mapping[str, int]
    topics: int
    partitions: int


class OwnConfigs(NamedTuple):
    """The configs that were set on one resource itself, by key; or the error of the resource."""

    values: Mapping[str, str]
    error: ErrorCode = ErrorCode.NONE


ConfigResource: TypeAlias = tuple[int, str]
"""A type (TOPIC_RESOURCE or BROKER_RESOURCE) and a name; the name "" of type BROKER_RESOURCE stands for all brokers."""


class MetadataCalls(Protocol):
    """Asks one node for metadata."""

    async def fetch(
        self, node: ClusterNode, plan: MetadataRequestPlan, page_came: Callable[[], None]
    ) -> MetadataUpdate:
        """Returns the whole answer; calls `page_came` after each part. Raises MetadataProblem."""

    async def describe(self, node: ClusterNode) -> ClusterDescription:
        """Returns the description of the cluster. Raises MetadataProblem."""

    async def configs(self, node: ClusterNode, resources: Sequence[ConfigResource]) -> dict[ConfigResource, OwnConfigs]:
        """Returns the configs that were set on each resource. Raises MetadataProblem."""

    async def close(self) -> None:
        """Closes what this object has opened."""


class GrpcMetadataCalls:
    """The calls over gRPC."""

    def __init__(self, dial: Any = None, *, listener: str = "", page_size: int = 0) -> None:
        """`dial(target) -> Channel`: makes the channels, and closes them in the end; None: channels without TLS, which `close`
        closes. `listener`: the listener of the endpoints that the client wants; "": the listener that the client calls."""
        self._own = Dialer() if dial is None else None
        self._dial: Callable[[str], grpc.aio.Channel] = self._own if self._own is not None else dial
        self._listener = listener
        self._page_size = page_size

    async def close(self) -> None:
        if self._own is not None:
            await self._own.close()

    def _stub(self, node: ClusterNode) -> tuple[Any, str]:
        target = HostPort(node.host, node.port).target
        return client_pb2_grpc.ClusterMetadataServiceStub(self._dial(target)), target  # type: ignore[no-untyped-call]

    async def fetch(
        self, node: ClusterNode, plan: MetadataRequestPlan, page_came: Callable[[], None]
    ) -> MetadataUpdate:
        stub, target = self._stub(node)
        joined = JoinedPages()
        for names in _parts(plan):
            request = client_pb2.MetadataRequest(listener=self._listener, page_size=self._page_size)
            if names is not None:
                request.topics.CopyFrom(client_pb2.TopicNames(names=names))
            while True:
                if joined.as_of is not None:
                    request.min_offset, request.max_wait_ms = joined.as_of.offset, CATCH_UP_MS
                page = await _answer(stub.Metadata(request), target, client_pb2.MetadataResponse)
                joined.add(page, target)
                page_came()
                if not page.next_page_token:
                    break
                request.page_token = page.next_page_token
        return joined.update()

    async def describe(self, node: ClusterNode) -> ClusterDescription:
        stub, target = self._stub(node)
        request = client_pb2.ClusterStatusRequest(page_size=self._page_size)
        brokers: dict[NodeId, BrokerDescription] = {}
        while True:
            page = await _answer(stub.ClusterStatus(request), target, client_pb2.ClusterStatusResponse)
            brokers.update((each.broker_id, _broker(each)) for each in page.brokers)
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        return ClusterDescription(
            page.cluster_id,
            page.controller_id if page.HasField("controller_id") else None,
            tuple(brokers.values()),
            {each.name: each.level for each in page.features},
            page.topics,
            page.partitions,
        )

    async def configs(self, node: ClusterNode, resources: Sequence[ConfigResource]) -> dict[ConfigResource, OwnConfigs]:
        stub, target = self._stub(node)
        found: dict[ConfigResource, OwnConfigs] = {}
        for first in range(0, len(resources), NAMES_MAX):
            part = resources[first : first + NAMES_MAX]
            owners = [client_pb2.ConfigOwner(resource_type=kind, name=name) for kind, name in part]
            request = client_pb2.ConfigsRequest(resources=owners, page_size=self._page_size)
            while True:
                page = await _answer(stub.Configs(request), target, client_pb2.ConfigsResponse)
                for each in page.resources:
                    values = {config.key: config.value for config in each.configs}
                    resource = (each.resource.resource_type, each.resource.name)
                    found[resource] = OwnConfigs(values, ErrorCode.of(each.error.code))
                if not page.next_page_token:
                    break
                request.page_token = page.next_page_token
        return found


class JoinedPages:
    """The pages of one answer, joined."""

    def __init__(self) -> None:
        self.as_of: ViewVersion | None = None
        """The version of the last page."""
        self._first: ViewVersion | None = None
        self._last = client_pb2.MetadataResponse()
        self._topics: dict[str, TopicUpdate] = {}

    def add(self, page: client_pb2.MetadataResponse, target: str) -> None:
        """Adds the next page. Raises MetadataProblem if the page is of another generation."""
        as_of = ViewVersion(page.generation, page.as_of_offset)
        if self.as_of is not None and as_of.generation != self.as_of.generation:
            text = f"{target}: the cluster was recovered while the answer came; the client asks again"
            raise MetadataProblem(Problem(ProblemKind.REFUSED, ErrorCode.NOT_READY, text))
        self._first, self.as_of, self._last = self._first or as_of, as_of, page
        for topic in page.topics:
            told = _topic(topic, as_of)
            known = self._topics.get(told.name)
            if known is not None and known.topic_id == told.topic_id and told.error is ErrorCode.NONE:
                told = known._replace(partitions=known.partitions + told.partitions)
            self._topics[told.name] = told

    def update(self) -> MetadataUpdate:
        page = self._last
        nodes = [
            ClusterNode(node.broker_id, node.host, node.port, node.rack if node.HasField("rack") else None)
            for node in page.nodes
        ]
        controller_id = page.controller_id if page.HasField("controller_id") else None
        return MetadataUpdate(
            page.cluster_id or None, tuple(nodes), tuple(self._topics.values()), controller_id, self._first
        )


def _parts(plan: MetadataRequestPlan) -> Iterator[Sequence[str] | None]:
    """Yields the topics of each request; None for all topics. A request without topics asks for the nodes alone."""
    if plan.all_topics:
        yield None
        return
    for first in range(0, max(1, len(plan.topics)), NAMES_MAX):
        yield plan.topics[first : first + NAMES_MAX]


async def _answer(call: Awaitable[Any], target: str, response_type: type[R]) -> R:
    """Returns the answer of a call. Raises MetadataProblem."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as e:
        raise MetadataProblem(_problem(target, e)) from e
    if not isinstance(answer, response_type):  # gRPC gives None in place of bytes that are no such message
        text = f"{target} sent an answer that cannot be decoded; is it a broker of metaquorum?"
        raise MetadataProblem(Problem(ProblemKind.REFUSED, ErrorCode.UNKNOWN_SERVER_ERROR, text))
    refusal = Refusal.in_answer(answer)
    if refusal is not None:
        raise MetadataProblem(_refused(target, refusal))
    return answer


def _refused(target: str, refusal: Refusal) -> Problem:
    code = ErrorCode.__members__.get(refusal.reason, ErrorCode.UNKNOWN_SERVER_ERROR)
    kind = ProblemKind.REFUSED if code in _REFUSED else ProblemKind.FATAL
    return Problem(kind, code, f"{target}: {refusal.message or refusal.reason}")


def _problem(target: str, e: grpc.aio.AioRpcError) -> Problem:
    """Returns the meaning of a call that failed."""
    refusal = Refusal.of(e)
    if refusal is not None:
        return _refused(target, refusal)
    details = e.details() or ""
    match e.code():
        case _S.UNIMPLEMENTED:
            text = f"{target} does not know this call: give the address of a broker, not of a controller ({details})"
            return Problem(ProblemKind.FATAL, ErrorCode.UNSUPPORTED_VERSION, text)
        case _S.PERMISSION_DENIED | _S.UNAUTHENTICATED:
            text = f"{target} does not let this client in: {details}"
            return Problem(ProblemKind.FATAL, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)
        case _S.UNAVAILABLE if was_never_sent(e):
            text = f"{target} cannot be reached: {why_not(details, target)}"
            return Problem(ProblemKind.NOT_CONNECTED, ErrorCode.BROKER_NOT_AVAILABLE, text)
        case _S.RESOURCE_EXHAUSTED | _S.UNKNOWN | _S.INTERNAL:
            return Problem(ProblemKind.REFUSED, ErrorCode.UNKNOWN_SERVER_ERROR, f"{target}: {details}")
        case code:
            name = getattr(code, "name", str(code))
            text = f"{target}: no answer came ({name}: {why_not(details, target)})"
            return Problem(ProblemKind.LOST, ErrorCode.REQUEST_TIMED_OUT, text)


def _broker(each: client_pb2.RegisteredBroker) -> BrokerDescription:
    endpoints = {there.listener: HostPort(there.host, there.port) for there in each.endpoints}
    state = broker_pb2.BrokerState.Name(each.state)
    return BrokerDescription(each.broker_id, state, endpoints, each.rack if each.HasField("rack") else None)


def _topic(topic: client_pb2.TopicMetadata, as_of: ViewVersion) -> TopicUpdate:
    views = tuple(_partition(topic.name, each) for each in topic.partitions)
    code = ErrorCode.of(topic.error.code)
    return TopicUpdate(topic.name, topic.topic_id or None, views, code, topic.is_internal, as_of)


def _partition(topic: str, each: client_pb2.PartitionMetadata) -> PartitionView:
    return PartitionView(
        topic=topic,
        partition=each.partition,
        leader_id=each.leader_id if each.HasField("leader_id") else None,
        leader_epoch=each.leader_epoch,
        replicas=tuple(each.replicas),
        isr=tuple(each.isr),
        offline_replicas=tuple(each.offline_replicas),
        error=ErrorCode.of(each.error.code),
    )
