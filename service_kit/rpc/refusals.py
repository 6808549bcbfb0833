"""Refusals of unary calls, as gRPC statuses that programs, service meshes and people can read.

A node that refuses a request ends the call with a status and, in its trailers, a `google.rpc.ErrorInfo`: the reason is an error
code's name, the domain is "metaquorum", and the metadata say where the leader is.

    1. A client asks controller 1 to create a topic. Controller 1 does not lead, and cannot reach the leader, controller 2.
    2. The call ends with UNAVAILABLE, reason NOT_CONTROLLER, leader_id 2, leader_host and leader_port. Nothing was done, so a
       mesh may send the request to another controller by itself.
    3. The client asks controller 2. The connection breaks. The status is UNAVAILABLE too, but has no ErrorInfo: no node has said
       that nothing was done.
    4. In another run controller 1 forwards the request and gets no answer. The status is ABORTED, the reason REQUEST_TIMED_OUT:
       the change may have been made. No mesh repeats ABORTED by itself.

So a refusal always carries ErrorInfo, and a status without it comes from the transport. Errors of single topics, partitions or
resources stand in the results of an answer; streams and the services between nodes refuse in their messages.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NoReturn, Self

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from service_kit.process.endpoints import HostPort

DOMAIN: Final = "metaquorum"
DETAILS: Final = "grpc-status-details-bin"
"""The trailer in which gRPC's libraries look for details (a serialized google.rpc.Status)."""
DETAILS_BYTES_MAX: Final = 16 << 10
"""Maximum size of details that are decoded. gRPC's own limit for all headers is of that order."""
MESSAGE_BYTES_MAX: Final = 1_000
"""Maximum size of a refusal's text. Trailers hold it twice, once with up to three bytes for each, and have 8 KiB together."""

_S: Final = grpc.StatusCode
STATUS: Final[Mapping[str, grpc.StatusCode]] = {
    "UNKNOWN_SERVER_ERROR": _S.INTERNAL,
    "REQUEST_TIMED_OUT": _S.ABORTED,
    # nothing was done, and another node, or this one in a moment, may do it
    "NOT_CONTROLLER": _S.UNAVAILABLE,
    "BROKER_NOT_AVAILABLE": _S.UNAVAILABLE,
    "NOT_READY": _S.UNAVAILABLE,
    "STORAGE_ERROR": _S.UNAVAILABLE,
    "THROTTLING_QUOTA_EXCEEDED": _S.RESOURCE_EXHAUSTED,
    # nothing was done, and the same request will not be done elsewhere
    "CLUSTER_AUTHORIZATION_FAILED": _S.PERMISSION_DENIED,
    "INVALID_REQUEST": _S.INVALID_ARGUMENT,
    "INVALID_CONFIG": _S.INVALID_ARGUMENT,
    "RECORD_BATCH_TOO_LARGE": _S.INVALID_ARGUMENT,
    "RESOURCE_NOT_FOUND": _S.NOT_FOUND,
    "VOTER_NOT_FOUND": _S.NOT_FOUND,
    "BROKER_ID_NOT_REGISTERED": _S.NOT_FOUND,
    "UNKNOWN_TOPIC_OR_PARTITION": _S.NOT_FOUND,
    "DUPLICATE_VOTER": _S.ALREADY_EXISTS,
}
"""The status by reason. The status of any other reason is OTHER."""
OTHER: Final = grpc.StatusCode.FAILED_PRECONDITION


class Refusal(Exception):
    """A node has refused a call. The text is for people, `reason` for programs.

    `metadata` are those of ErrorInfo: `leader_id`, `leader_epoch`, `leader_host` and `leader_port`, each where known.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        metadata: Mapping[str, str] | None = None,
        status: grpc.StatusCode | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})
        self.status = STATUS.get(reason, OTHER) if status is None else status

    @classmethod
    def of(cls, e: grpc.aio.AioRpcError) -> Self | None:
        """The refusal that a failed call ended with; None if no node has refused it, and the transport broke."""
        found = next((value for key, value in e.trailing_metadata() or () if key == DETAILS), b"")
        if not found or len(found) > DETAILS_BYTES_MAX:
            return None
        status, info = status_pb2.Status(), error_details_pb2.ErrorInfo()
        try:
            status.ParseFromString(found)
            is_ours = any(detail.Unpack(info) and info.domain == DOMAIN for detail in status.details)
        except DecodeError:
            return None
        return cls(info.reason, status.message, info.metadata, e.code()) if is_ours else None

    @classmethod
    def in_answer(cls, answer: Any) -> Self | None:
        """The refusal in an answer's own field `error`, as release 0.1.0 gave it; None where there is none."""
        error = getattr(answer, "error", None)
        if error is None or not error.code:
            return None
        code = error.DESCRIPTOR.fields_by_name["code"].enum_type.values_by_number.get(error.code)
        leader = getattr(answer, "leader", None)
        metadata = {}
        if leader is not None:
            leader_id = leader.leader_id if leader.HasField("leader_id") else None
            metadata = leader_metadata(leader_id, leader.epoch, leader.endpoint.host, leader.endpoint.port)
        return cls("UNKNOWN_SERVER_ERROR" if code is None else code.name, error.message, metadata)

    @property
    def leader(self) -> HostPort | None:
        """The leader's address; None if the node did not know it."""
        host, port = self.metadata.get("leader_host", ""), self.metadata.get("leader_port", "")
        return HostPort(host, int(port)) if host and _is_number(port) else None

    def number(self, key: str) -> int | None:
        """`leader_id` or `leader_epoch`; None where it is not given."""
        text = self.metadata.get(key, "")
        return int(text) if _is_number(text) else None

    async def end(self, context: Any) -> NoReturn:
        """Ends the call of `context` with this refusal. A forwarder passes on another node's refusal in this way."""
        text = shortened(self.message, MESSAGE_BYTES_MAX)
        status = status_pb2.Status(code=self.status.value[0], message=text)
        status.details.add().Pack(
            error_details_pb2.ErrorInfo(reason=self.reason, domain=DOMAIN, metadata=self.metadata)
        )
        try:
            await context.abort(self.status, text, ((DETAILS, status.SerializeToString()),))
        except grpc.aio.InternalError:
            # The client has gone meanwhile, so nobody is left to tell. grpc.aio would log a traceback for each such call;
            # a cancelled call ends without a line.
            raise asyncio.CancelledError from None
        raise AssertionError("abort raises")


def leader_metadata(leader_id: int | None, epoch: int, host: str, port: int) -> dict[str, str]:
    """The metadata that name a leader; an empty `host` where it is not known."""
    found = {} if leader_id is None else {"leader_id": str(leader_id), "leader_epoch": str(epoch)}
    return found | ({"leader_host": host, "leader_port": str(port)} if host else {})


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19


def shortened(text: str, bytes_max: int) -> str:
    """Returns `text`, or its beginning with "...", so that it has at most `bytes_max` bytes."""
    data = text.encode()
    return text if len(data) <= bytes_max else data[: bytes_max - 3].decode(errors="ignore") + "..."
