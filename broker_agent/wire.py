"""What clients ask of a broker: `ClusterMetadataService`, answered from the metadata cache.

Any broker answers for the whole cluster. One that is fenced, or whose lease has lapsed, answers no client: it says
BROKER_NOT_AVAILABLE and why, and the client asks another. `BrokerStatus` is for operators and probes, and always answers.

One server per listener, so that a client that names none is told the addresses of the one that it called.
"""

import asyncio
from typing import Any, Protocol

from quorum_rpc.v1 import client_pb2, client_pb2_grpc

from broker_agent import convert
from broker_agent.cache import MetadataCache, MetadataView
from broker_agent.lifecycle import BrokerState
from metadata_log.errors import ErrorCode
from metadata_log.ids import NodeId, Offset, Uuid
from metadata_log.topic_names import TOPIC_NAME_CHARS_MAX, topic_name_problem

MAX_WAIT_MS = 60_000
"""No client waits longer for an offset, whatever it asks for."""


class BrokerStanding(Protocol):
    """What this service needs to know of the broker that it runs in."""

    @property
    def cache(self) -> MetadataCache: ...

    @property
    def cluster_id(self) -> str: ...

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

    def __init__(self, broker: BrokerStanding, listener: str) -> None:
        self._broker = broker
        self._listener = listener

    async def Metadata(self, request: client_pb2.MetadataRequest, context: Any) -> client_pb2.MetadataResponse:  # noqa: N802
        """Nodes and topics as of one offset, at least `min_offset`."""
        await self._wait_for(request)
        broker = self._broker
        if not broker.may_serve():
            return _refusal(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker.broker_id} {describe(broker)}")
        view = broker.cache.current
        if view.offset < request.min_offset:
            return _refusal(ErrorCode.NOT_READY, f"applied up to {view.offset}, not yet to {request.min_offset}")
        listener = request.listener or self._listener
        names = request.topics.names if request.HasField("topics") else view.all_topics()
        return client_pb2.MetadataResponse(
            error=convert.error(ErrorCode.NONE),
            cluster_id=broker.cluster_id,
            as_of_offset=view.offset,
            controller_id=view.controller_id(),
            nodes=[convert.node(node) for node in view.alive_nodes(listener)],
            topics=[_topic(view, name, listener) for name in names],
        )

    async def _wait_for(self, request: client_pb2.MetadataRequest) -> None:
        wait_ms = min(max(request.max_wait_ms, 0), MAX_WAIT_MS)
        if wait_ms and self._broker.cache.current.offset < request.min_offset:
            try:
                await asyncio.wait_for(self._broker.applied(request.min_offset), wait_ms / 1_000)
            except TimeoutError:
                return  # what is there decides the answer

    async def BrokerStatus(  # noqa: N802
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


def _topic(view: MetadataView, name: str, listener: str) -> client_pb2.TopicMetadata:
    found = view.topic_info(name, listener)
    if found is not None:
        return convert.topic_metadata(found)
    why = topic_name_problem(name)
    if why is not None:
        return convert.topic_error(name[:TOPIC_NAME_CHARS_MAX], ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    return convert.topic_error(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
