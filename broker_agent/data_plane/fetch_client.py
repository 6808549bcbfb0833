"""The calls of this broker to the brokers that it follows.

The metadata have the address of each broker by listener; this broker uses the listener `inter.broker.listener.name`, or its own
first one. Over TLS the server must show the certificate of the broker that it should be (`service_kit.rpc.dial`).

    1. Broker 103 follows orders-0, which broker 101 leads. The image has PLAINTEXT://10.0.0.1:9092 for broker 101.
    2. Broker 103 calls FetchRecords there. The connection is kept for all fetches.
    3. Broker 101 moves to 10.0.0.7. The next image has the new address, and the next call goes there.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import grpc
from quorum_rpc.v1 import partition_pb2, partition_pb2_grpc

from broker_agent.client import UNDECODABLE, CallFailed
from broker_agent.data_plane.fetch_messages import BadAnswer, FetchLimits, answer_of, fetch_request
from broker_agent.replica.fetch_sessions import SessionAnswer, SessionRequest
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId
from metadata_log.image.metadata_image import MetadataImage
from service_kit.process.endpoints import HostPort
from service_kit.process.switches import frequent_switches
from service_kit.rpc.dial import Dial, is_wrong_server
from service_kit.rpc.refusals import Refusal
from service_kit.security.node_identity import BROKER, Node, NodeNames

ANSWER_BYTES_MAX: Final = 16 << 20
"""Maximum size of the answer to a fetch: records, and the heads of up to 100,000 partitions."""
PARTITIONS_MAX: Final = 300
"""Maximum number of partitions that the event loop converts by itself: about a millisecond. A thread converts more."""
BYTES_MAX: Final = 128 << 10
"""The same for the bytes of batches. Each batch costs some 10 us, and 2 MiB may be 15,000 batches."""
_SESSION_ERRORS: Final = {
    code.name: code for code in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
}


class FetchClient:
    """The connections of one broker to others, for one event loop."""

    def __init__(
        self, broker_id: NodeId, dial: Dial, names: NodeNames | None, image: Callable[[], MetadataImage], listener: str
    ) -> None:
        """The owner of `dial` closes the channels. Without `names` (no TLS) any server at an address is believed."""
        self._broker_id = broker_id
        self._dial = dial
        self._names = names
        self._image = image
        self._listener = listener
        self._stubs: dict[tuple[str, str | None], Any] = {}

    def address(self, broker_id: NodeId) -> HostPort:
        """The address of a broker for other brokers.

        Raises:
            CallFailed: the broker is not registered, or has no endpoint of the listener.
        """
        registered = self._image().brokers.get(broker_id)
        if registered is None:
            raise CallFailed(f"broker {broker_id} is not registered")
        for each in registered.endpoints:
            if each.listener == self._listener:
                return HostPort(each.host, each.port)
        raise CallFailed(
            f"broker {broker_id} has no listener {self._listener!r}; give all brokers the same names of listeners, or "
            "name a common one in inter.broker.listener.name"
        )

    async def fetch(
        self, source_id: NodeId, session: SessionRequest, broker_epoch: int, limits: FetchLimits, timeout_s: float
    ) -> SessionAnswer:
        """Fetches from a broker; returns its answer, which may have an error of the session.

        Raises:
            CallFailed: no answer that can be used. Nothing has changed here.
        """
        target = self.address(source_id).target
        name = None if self._names is None else self._names.demanded(Node(BROKER, source_id))
        stub = self._stub(target, name)
        request = await _request(session, self._broker_id, broker_epoch, limits)
        where = f"broker {source_id} at {target}"
        try:
            response: partition_pb2.FetchRecordsResponse | None = await stub.FetchRecords(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as e:
            return _refused(e, where)
        if response is None:
            raise CallFailed(f"{where} {UNDECODABLE}")
        try:
            return await _answer(response)
        except BadAnswer as e:
            raise CallFailed(f"{where} sent an answer that cannot be used: {e}") from e

    def _stub(self, target: str, name: str | None) -> Any:
        stub = self._stubs.get((target, name))
        if stub is None:
            stub = partition_pb2_grpc.PartitionServiceStub(self._dial(target, name))  # type: ignore[no-untyped-call]
            self._stubs[target, name] = stub
        return stub


async def _request(
    session: SessionRequest, broker_id: NodeId, broker_epoch: int, limits: FetchLimits
) -> partition_pb2.FetchRecordsRequest:
    """Converts a request; a large one on a thread."""
    if len(session.fetches) + len(session.forgotten) <= PARTITIONS_MAX:
        return fetch_request(session, broker_id, broker_epoch, limits)
    with frequent_switches():
        return await asyncio.to_thread(fetch_request, session, broker_id, broker_epoch, limits)


async def _answer(response: partition_pb2.FetchRecordsResponse) -> SessionAnswer:
    """Converts an answer, and checks its batches; a large one on a thread. Raises BadAnswer."""
    is_small = len(response.partitions) <= PARTITIONS_MAX
    if is_small and sum(len(each.batches) for each in response.partitions) <= BYTES_MAX:
        return answer_of(response)
    with frequent_switches():
        return await asyncio.to_thread(answer_of, response)


def _refused(e: grpc.aio.AioRpcError, where: str) -> SessionAnswer:
    """The session's error that the call ended with. Raises CallFailed for all others."""
    refusal = Refusal.of(e)
    if refusal is not None and refusal.reason in _SESSION_ERRORS:
        return SessionAnswer(_SESSION_ERRORS[refusal.reason])
    if is_wrong_server(e):
        raise CallFailed(f"{where} does not show that broker's certificate: {e.details()}") from e
    reason = e.code().name if refusal is None else refusal.reason
    raise CallFailed(f"{where}: {reason}: {e.details()}") from e
