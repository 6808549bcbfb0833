"""A refusal survives the wire, and is never mixed up with a transport that broke."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.rpc import error_details_pb2, status_pb2
from quorum_rpc.v1 import admin_pb2

from metadata_log.format.errors import ErrorCode
from metaquorum import AdminError, MayHaveHappened, Unanswered
from service_kit.process.endpoints import HostPort
from service_kit.rpc.dial import Dialer
from service_kit.rpc.refusals import DETAILS, MESSAGE_BYTES_MAX, OTHER, STATUS, Refusal, leader_metadata
from service_kit.rpc.server import serving

METHOD = "/test.Refuser/Refuse"


class Refuser(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Ends each call as its test says."""

    def __init__(self) -> None:
        self.refusal = Refusal("NOT_READY", "wait")
        self.trailers: Any = None

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(self._refuse)

    async def _refuse(self, _: bytes, context: Any) -> bytes:
        if self.trailers is not None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no reason", self.trailers)
        return await self.refusal.end(context)


@pytest_asyncio.fixture
async def refuser() -> AsyncIterator[tuple[Refuser, Any]]:
    handler = Refuser()
    address = HostPort("127.0.0.1", 0)
    async with (
        serving(address, lambda server: server.add_generic_rpc_handlers((handler,)), grace_s=0) as port,
        Dialer() as dialer,
    ):
        yield handler, dialer(f"127.0.0.1:{port}").unary_unary(METHOD)


async def ended(call: Any) -> Any:
    async with asyncio.timeout(5):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call(b"")
    return error.value


async def test_a_refusal_arrives_as_it_left(refuser: tuple[Refuser, Any]) -> None:
    """Reason, text, leader and status; the text is also the status's own, for people without the details."""
    handler, call = refuser
    handler.refusal = Refusal("NOT_CONTROLLER", "node 2 führt", leader_metadata(2, 7, "::1", 9_001))
    e = await ended(call)
    assert (e.code(), e.details()) == (grpc.StatusCode.UNAVAILABLE, "node 2 führt")
    found = Refusal.of(e)
    assert found is not None
    assert (found.reason, found.message) == ("NOT_CONTROLLER", "node 2 führt")
    assert (found.number("leader_id"), found.number("leader_epoch"), found.leader) == (2, 7, HostPort("::1", 9_001))


async def test_a_refusal_is_handed_on_whole(refuser: tuple[Refuser, Any]) -> None:
    """Also with a reason and metadata of a newer release, whose status this one does not know."""
    handler, call = refuser
    handler.refusal = Refusal("OUT_OF_PAPER", "no", {"tray": "2"}, grpc.StatusCode.OUT_OF_RANGE)
    for _ in range(3):  # through three nodes
        found = Refusal.of(await ended(call))
        assert found is not None
        assert (found.reason, found.metadata, found.status) == (
            "OUT_OF_PAPER",
            {"tray": "2"},
            grpc.StatusCode.OUT_OF_RANGE,
        )
        handler.refusal = found


async def test_a_long_text_still_arrives(refuser: tuple[Refuser, Any]) -> None:
    """Trailers of more than 8 KiB would end the call with a status of the transport."""
    handler, call = refuser
    handler.refusal = Refusal("INVALID_CONFIG", "ä" * 100_000)
    found = Refusal.of(await ended(call))
    assert found is not None
    assert found.reason == "INVALID_CONFIG"
    assert found.message.endswith("...")
    assert len(found.message.encode()) <= MESSAGE_BYTES_MAX


def details(domain: str) -> bytes:
    status = status_pb2.Status(code=14)
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="NOT_CONTROLLER", domain=domain))
    return bytes(status.SerializeToString())


@pytest.mark.parametrize(
    "trailers",
    [
        (),
        ((DETAILS, b""),),
        ((DETAILS, b"\xff" * 20),),
        ((DETAILS, status_pb2.Status(code=14).SerializeToString()),),
        ((DETAILS, details("mesh.example")),),
    ],
)
async def test_what_no_node_said_is_no_refusal(refuser: tuple[Refuser, Any], trailers: Any) -> None:
    """A mesh or a proxy on the way also says UNAVAILABLE, perhaps with details of its own. Whether the request was done
    is not known then."""
    handler, call = refuser
    handler.trailers = trailers
    assert Refusal.of(await ended(call)) is None


@pytest.mark.parametrize("port", ["", "http", "-1", "1" * 50, "²"])
def test_a_leader_without_a_port_is_not_known(port: str) -> None:
    assert Refusal("NOT_CONTROLLER", "", {"leader_host": "a", "leader_port": port}).leader is None


def test_statuses_are_of_codes_that_exist() -> None:
    """UNAVAILABLE says that nothing was done: meshes repeat it by themselves. OK is no refusal."""
    assert STATUS.keys() <= ErrorCode.__members__.keys()
    assert STATUS["REQUEST_TIMED_OUT"] not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, OTHER)
    assert grpc.StatusCode.OK not in STATUS.values()
    assert "UNKNOWN_SERVER_ERROR" not in [
        reason for reason, code in STATUS.items() if code is grpc.StatusCode.UNAVAILABLE
    ]


@pytest.mark.parametrize("code", [code for code in ErrorCode if code])
@pytest.mark.parametrize("is_read", [False, True])
def test_the_client_raises_the_same_error_for_a_status_as_for_an_answer(code: ErrorCode, is_read: bool) -> None:
    """0.1.0 refused in its answers, later releases refuse with a status; a caller sees no difference."""
    answer = admin_pb2.CreateTopicsResponse()
    answer.error.code = int(code)  # type: ignore[assignment]
    answer.error.message = "why"
    answer.leader.leader_id, answer.leader.endpoint.host, answer.leader.endpoint.port = 2, "::1", 9_001
    in_answer = Refusal.in_answer(answer)
    assert in_answer is not None
    told = AdminError.of_refusal(in_answer, "c1", is_read=is_read)
    refused = AdminError.of_refusal(
        Refusal(code.name, "why", leader_metadata(2, 1, "::1", 9_001)), "c1", is_read=is_read
    )
    assert (type(told), told.code, told.message, told.hint) == (
        type(refused),
        refused.code,
        refused.message,
        refused.hint,
    )
    assert isinstance(refused, Unanswered) == (code is ErrorCode.REQUEST_TIMED_OUT)
    assert isinstance(refused, MayHaveHappened) == (code is ErrorCode.REQUEST_TIMED_OUT and not is_read)


class _GoneClient:
    """A call whose client is gone: grpc.aio raises this when it cannot send."""

    async def abort(self, *_: object) -> None:
        raise grpc.aio.InternalError("Failed grpc_call_start_batch")


async def test_a_refusal_of_a_client_that_is_gone_is_no_error() -> None:
    """grpc.aio writes a traceback for an exception, as often as clients hang up; a cancelled call leaves no line."""
    with pytest.raises(asyncio.CancelledError):
        await Refusal("NOT_CONTROLLER", "this controller does not lead").end(_GoneClient())
