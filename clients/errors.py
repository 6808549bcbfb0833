"""The errors of a call. Each class tells the caller something else to do.

AdminError           refused, with a code; nothing was done
  NotReached         no connection; nothing was done
  NoLeader           no controller led before the deadline; nothing was done, unless `last` is a MayHaveHappened
  Unanswered         the answer of a read is missing; nothing was changed, so ask again
    Incomplete       pages of a list are missing; nothing was changed, so ask for a part of the list, or give more time
    MayHaveHappened  the answer of a change is missing, so look before you repeat the change
"""

from collections.abc import Mapping
from typing import Any, Final, Self

import grpc
from quorum_rpc.v1 import common_pb2

from metadata_log.format.errors import ErrorCode
from service_kit.rpc.refusals import Refusal


class AdminError(Exception):
    """A refusal. `hint`: `host:port` of the leader, if the node named one."""

    def __init__(self, code: ErrorCode, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    @classmethod
    def of(cls, error: common_pb2.Error) -> "AdminError":
        """Returns the error of one item of an answer."""
        return cls.of_refusal(Refusal(ErrorCode.of(error.code).name, error.message))

    @classmethod
    def of_refusal(cls, refusal: Refusal, target: str = "", *, is_read: bool = False) -> "AdminError":
        """Returns the error that a refused call ended with."""
        code = ErrorCode.__members__.get(refusal.reason, ErrorCode.UNKNOWN_SERVER_ERROR)
        message = refusal.message or refusal.reason
        if code is ErrorCode.REQUEST_TIMED_OUT:
            return _missing(is_read)(code, f"{target}: {message}" if target else message)
        return AdminError(code, message, None if refusal.leader is None else refusal.leader.target)


class NotReached(AdminError):
    """No connection came about, so nothing was done."""


class NoLeader(AdminError):
    """No active controller answered within the whole timeout. `last`: the last error of an attempt."""

    last: AdminError | None = None

    @classmethod
    def after(cls, timeout_s: float, last: AdminError, tried: Mapping[str, AdminError]) -> Self:
        """Returns the error of a call that found no leader in `timeout_s`. `tried`: the last error of each node."""
        if last.code is ErrorCode.NOT_READY:  # a leader's word: it waited in vain for a condition
            error = cls(last.code, f"not done within {timeout_s:g} s; the last answer: {last.message}")
        else:
            error = cls(last.code, f"no active controller answered within {timeout_s:g} s; {_attempts(last, tried)}")
        error.last = last
        return error


class Unanswered(AdminError):
    """The answer is missing. A read without an answer changed nothing."""


class Incomplete(Unanswered):
    """A list was not complete at the deadline of the lists. The pages that came are a part of the list."""


class MetadataError(AdminError):
    """The metadata client has no view with the topic or partition. Nothing was changed."""


class MayHaveHappened(Unanswered):
    """The change may have been made or not. Look (list, describe) before repeating it."""


def _attempts(last: AdminError, tried: Mapping[str, AdminError]) -> str:
    if len(tried) < 2:
        return f"the last attempt: {last.message}"
    return f"the last attempt at each: {error_of_each(tried).message}"


def error_of_each(tried: Mapping[str, AdminError]) -> AdminError:
    """Returns the last error, with the text of each node's error, which names the node."""
    last = list(tried.values())[-1]
    texts = (each.message if target in each.message else f"{target}: {each.message}" for target, each in tried.items())
    return type(last)(last.code, "; ".join(texts), last.hint)


def _missing(is_read: bool) -> type[Unanswered]:
    return Unanswered if is_read else MayHaveHappened


def target_of(leader: common_pb2.LeaderHint) -> str | None:
    """Returns `host:port` of the leader, or None where the answering node did not know it."""
    if not leader.HasField("endpoint") or not leader.endpoint.host:
        return None
    host = leader.endpoint.host
    return f"[{host}]:{leader.endpoint.port}" if ":" in host else f"{host}:{leader.endpoint.port}"


def error_of_call(target: str, e: grpc.aio.AioRpcError, *, sent: bool, size: int, is_read: bool = False) -> AdminError:
    """Returns the typed error of a call that no node has answered or refused.

    `sent`: bytes of the request may have left this process. `size`: how many bytes the request has.
    """
    code, details, missing = e.code(), e.details() or "", _missing(is_read)
    match code:
        # One status has three meanings, and only the texts differ.
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "CLIENT: " in details:
            text = "its answer is larger than a client accepts: ask for fewer items at a time"
            return missing(ErrorCode.RECORD_BATCH_TOO_LARGE, f"{target}: {text} ({details})")
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "limit exceeded" in details:
            return NotReached(ErrorCode.BROKER_NOT_AVAILABLE, f"{target} has too many calls to answer: {details}")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            text = f"the request has {size:,} bytes, more than a controller takes at once: send it in smaller parts"
            return AdminError(ErrorCode.RECORD_BATCH_TOO_LARGE, f"{target}: {text} ({details})")
        case grpc.StatusCode.UNIMPLEMENTED:
            text = "does not know this admin call, and did nothing; is it a controller or broker of a release that has the call?"
            return AdminError(ErrorCode.UNSUPPORTED_VERSION, f"{target} {text} ({details})")
        case grpc.StatusCode.UNAVAILABLE if not sent:
            return NotReached(ErrorCode.BROKER_NOT_AVAILABLE, f"{target} cannot be reached: {why_not(details, target)}")
        case grpc.StatusCode.UNAVAILABLE:
            text = "the connection broke before the answer came"
            return missing(ErrorCode.REQUEST_TIMED_OUT, f"{target}: {text} ({_short(details)})")
        case grpc.StatusCode.CANCELLED:
            return missing(ErrorCode.REQUEST_TIMED_OUT, f"{target} stopped before the answer came")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return missing(ErrorCode.REQUEST_TIMED_OUT, f"{target} did not answer in time")
        case grpc.StatusCode.UNKNOWN:
            text = (
                "the server failed on this request, and its log has the reason; the client does not repeat the request"
            )
            return missing(ErrorCode.UNKNOWN_SERVER_ERROR, f"{target}: {text} ({_short(details)})")
        case _:
            name = getattr(code, "name", str(code))
            return missing(ErrorCode.REQUEST_TIMED_OUT, f"{target}: {name}: {_short(details)}")


def error_of_garbage(target: str, *, is_read: bool) -> AdminError:
    """Returns the error of a call whose answer is no message of its method. gRPC gives None in place of such an answer."""
    text = "sent an answer that cannot be decoded; is it a node of metaquorum?"
    return _missing(is_read)(ErrorCode.REQUEST_TIMED_OUT, f"{target} {text}")


_CLOSED: Final = (
    "it closed the connection: it requires TLS and a client certificate of its own authority, or it has as many connections as "
    "its limit of open files allows"
)
_MEANINGS: Final = (
    ("errors resolving", "its name cannot be resolved"),
    ("DNS resolution failed", "its name cannot be resolved"),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not of the authority that is trusted here"),
    (
        "Hostname Verification Check failed",
        "its certificate is not for this host; use an address that the certificate names",
    ),
    ("Too many open files", "this process has as many files open as its limit allows; see `ulimit -n`"),
    ("Socket closed", _CLOSED),
)
"""Parts of gRPC's texts about connections that did not come about, each with its meaning in plain words."""


def why_not(details: str, target: str) -> str:
    """Says why there is no connection. A server that demands a certificate closes a connection that shows none."""
    text = _short(details).removeprefix(f"ipv4:{target}: ").removeprefix("Failed to connect to remote host: ")
    meaning = next((meaning for sign, meaning in _MEANINGS if sign in text), None)
    return text if meaning is None else f"{meaning} ({text})"


def _short(details: Any) -> str:
    """Returns gRPC's text without the list of tried addresses."""
    text = str(details)
    for marker in ("last error: UNKNOWN: ", "last error: "):
        if marker in text:
            return text.split(marker, 1)[1]
    return text
