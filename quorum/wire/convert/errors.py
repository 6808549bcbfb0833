"""Refusals on their way to the wire: `Refused` becomes an `Error` and a `LeaderHint`, and a bad message becomes `Refused`.

Three things are never mixed up, because a client does something else in each case:
  * NOT_CONTROLLER (and BROKER_NOT_AVAILABLE): nothing was done here; the hint says who to ask;
  * REQUEST_TIMED_OUT: it may have happened, and a client looks before it repeats it;
  * every other code: it has not happened, and asking again changes nothing.
"""

from typing import Any

from quorum_rpc.v1 import common_pb2

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import Endpoint
from quorum.runtime.protocol.requests import LeaderHint, Refused
from service_kit.rpc.doors import NotAuthorized
from service_kit.rpc.refusals import Refusal, leader_metadata


class BadMessage(ValueError):
    """What came from the network cannot be what it says; the message tells which field. Nothing was done."""


def wire_code(code: ErrorCode) -> Any:
    """The code as generated messages take it: their stubs ask for their own enum, which has the same numbers."""
    return int(code)


def error(code: ErrorCode, message: str = "") -> common_pb2.Error:
    """One error as it travels."""
    return common_pb2.Error(code=wire_code(code), message=message)


def leader_hint(hint: LeaderHint | None) -> common_pb2.LeaderHint | None:
    """Whom to ask instead; None where nothing is known."""
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
    """The refusal that a bad message earns."""
    return Refused(ErrorCode.INVALID_REQUEST, str(problem))


def not_authorized(problem: NotAuthorized) -> Refused:
    """The refusal of whoever shows another certificate than the door wants."""
    return Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, str(problem))


def wrong_cluster(theirs: str, ours: str) -> Refused:
    """The refusal of a request that was meant for another cluster."""
    return Refused(
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        f"this is cluster {ours}; the request is for cluster {theirs or '(none named)'}",
    )


def to_refusal(refused: Refused, hint: LeaderHint) -> Refusal:
    """The refusal of a unary call, with the leader that `refused` names, or else `hint`."""
    leader = refused.hint or hint
    host, port = ("", 0) if leader.endpoint is None else (leader.endpoint.host, leader.endpoint.port)
    metadata = leader_metadata(leader.leader_id, leader.epoch, host, port)
    return Refusal(refused.code.name, refused.message, metadata)


def from_refusal(refusal: Refusal) -> Refused:
    """What another node has refused; a code that a newer node invented is UNKNOWN_SERVER_ERROR here."""
    code = ErrorCode.__members__.get(refusal.reason, ErrorCode.UNKNOWN_SERVER_ERROR)
    leader_id, epoch, at = refusal.number("leader_id"), refusal.number("leader_epoch"), refusal.leader
    endpoint = None if at is None else Endpoint("", at.host, at.port)
    return Refused(code, refusal.message, LeaderHint(leader_id, epoch or 0, endpoint))
