"""Refusals on their way to the wire: `Refused` becomes a `Refusal`, or in a stream an `Error` and a `LeaderHint`.

Three cases are never mixed up, because a client does something else in each:
  * NOT_CONTROLLER and BROKER_NOT_AVAILABLE: nothing was done here, and the hint names the node to ask;
  * REQUEST_TIMED_OUT: the change may have happened, and a client looks before a repetition;
  * every other code: nothing was done, and a repetition changes nothing.
"""

from typing import Any, Final

from quorum_rpc.v1 import common_pb2

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import Endpoint
from quorum.runtime.protocol.requests import LeaderHint, Refused
from service_kit.rpc.doors import NotAuthorized
from service_kit.rpc.refusals import Refusal, leader_metadata, shortened

TEXTS_BYTES_MAX: Final = 1 << 20
"""Maximum size of the error texts in one answer."""
CLUSTER_ID_CHARS_MAX: Final = 50
"""How many characters of a foreign cluster id a refusal shows. A cluster id has 22 characters."""
TEXT_BYTES_MIN: Final = 100
"""How many bytes each error text may have, however many texts the answer has."""


class BadMessage(ValueError):
    """A field of a received message has an impossible value. The text names the field. Nothing was done."""


def wire_code(code: ErrorCode) -> Any:
    """Returns the code as generated messages take it: the generated enum has the same numbers, and another type."""
    return int(code)


def error(code: ErrorCode, message: str = "") -> common_pb2.Error:
    """Returns an error message for the wire."""
    return common_pb2.Error(code=wire_code(code), message=message)


def item_error(code: ErrorCode, message: str, items: int) -> common_pb2.Error:
    """Returns the error of one of `items` results. All texts of an answer together have about TEXTS_BYTES_MAX bytes.

    Example: 10,000 unknown topics with names of 249 characters. An answer has each name in its own field, and once more in the
    text; whole texts would make the answer larger than the 4 MiB that a client takes. The texts are cut at 104 bytes.
    """
    return error(code, shortened(message, text_bytes_max(items)))


def text_bytes_max(items: int) -> int:
    """Returns the maximum size of each error text in an answer with `items` results."""
    return max(TEXT_BYTES_MIN, TEXTS_BYTES_MAX // max(1, items))


def leader_hint(hint: LeaderHint | None) -> common_pb2.LeaderHint | None:
    """Returns the leader to ask instead; None where no leader is known."""
    if hint is None:
        return None
    endpoint = hint.endpoint
    return common_pb2.LeaderHint(
        leader_id=hint.leader_id,
        epoch=hint.epoch,
        endpoint=None
        if endpoint is None
        else common_pb2.Endpoint(listener=endpoint.listener, host=endpoint.host, port=endpoint.port),
    )


def bad_request(problem: BadMessage) -> Refused:
    """Returns the refusal of a bad message."""
    return Refused(ErrorCode.INVALID_REQUEST, str(problem))


def not_authorized(problem: NotAuthorized) -> Refused:
    """Returns the refusal of a caller whose certificate does not permit the call."""
    return Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, str(problem))


def wrong_cluster(theirs: str, ours: str) -> Refused:
    """Returns the refusal of a request for another cluster. A stranger may name a cluster of any length, in any characters."""
    named = f"cluster {theirs[:CLUSTER_ID_CHARS_MAX]!r}" if theirs else "no cluster"
    text = f"this is cluster {ours!r}; the request names {named}; nothing was done"
    return Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, text)


def to_refusal(refused: Refused, hint: LeaderHint) -> Refusal:
    """Returns the refusal of a unary call, with the leader that `refused` names, or else `hint`."""
    leader = refused.hint or hint
    host, port = ("", 0) if leader.endpoint is None else (leader.endpoint.host, leader.endpoint.port)
    metadata = leader_metadata(leader.leader_id, leader.epoch, host, port)
    return Refusal(refused.code.name, refused.message, metadata)


def from_refusal(refusal: Refusal) -> Refused:
    """Returns another node's refusal. A code that only newer releases know becomes UNKNOWN_SERVER_ERROR."""
    code = ErrorCode.__members__.get(refusal.reason, ErrorCode.UNKNOWN_SERVER_ERROR)
    leader_id, epoch, at = refusal.number("leader_id"), refusal.number("leader_epoch"), refusal.leader
    endpoint = None if at is None else Endpoint("", at.host, at.port)
    return Refused(code, refusal.message, LeaderHint(leader_id, epoch or 0, endpoint))
