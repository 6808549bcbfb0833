"""Translates between protobuf and changes of the voter set (KIP-853). Decides nothing."""

from typing import Final

from quorum_rpc.v1 import admin_pb2, common_pb2, voter_pb2

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset, ReplicaKey
from metadata_log.format.records import Endpoint, FeatureRange, Voter
from quorum.core.protocol.messages import (
    AddVoterRequest,
    QuorumChangeResponse,
    RegisterControllerRequest,
    RegisterControllerResponse,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    UpdateVoterRequest,
)
from quorum.runtime.protocol.requests import LeaderHint, Refused
from quorum.wire.convert.errors import BadMessage, wire_code
from quorum.wire.convert.parts import at_most, from_endpoint, from_replica, to_endpoint, to_replica
from service_kit.process.endpoints import HOST_CHARS_MAX, PORT_MAX

ENDPOINTS_MAX: Final = 16
"""Maximum number of endpoints of one voter. The log and every snapshot contain all endpoints."""
LISTENER_CHARACTERS_MAX: Final = 64
FEATURES_MAX: Final = 1_000


# --- parts of messages ---------------------------------------------------------------------------------------------


def endpoint(message: common_pb2.Endpoint, what: str) -> Endpoint:
    """Returns an endpoint that can be called, or raises BadMessage: an unreachable voter would count in every majority."""
    found = from_endpoint(message)
    if not found.host or len(found.host) > HOST_CHARS_MAX:
        raise BadMessage(f"{what}: a host has 1 to {HOST_CHARS_MAX} characters, and this one has {len(found.host)}")
    if not 0 < found.port <= PORT_MAX:
        raise BadMessage(f"{what}: a port is 1 to {PORT_MAX}, and this one is {found.port}")
    if len(found.listener) > LISTENER_CHARACTERS_MAX:
        raise BadMessage(f"{what}: a listener's name has at most {LISTENER_CHARACTERS_MAX} characters")
    return found


def from_voter(message: voter_pb2.Voter) -> Voter:
    at_most(ENDPOINTS_MAX, len(message.endpoints), "endpoints of a voter")
    if not message.endpoints:
        raise BadMessage("the voter has no endpoint: name the address at which other voters reach it")
    key = from_replica(message.replica)
    if key.node_id < 0:
        raise BadMessage(f"node id {key.node_id}; ids begin at 0")
    return Voter(
        key.node_id,
        key.directory_id,
        tuple(endpoint(each, f"voter {key.node_id}") for each in message.endpoints),
        message.kraft_version_min,
        message.kraft_version_max,
    )


def to_voter(voter: Voter) -> voter_pb2.Voter:
    return voter_pb2.Voter(
        replica=to_replica(ReplicaKey(voter.node_id, voter.directory_id)),
        endpoints=[to_endpoint(each) for each in voter.endpoints],
        kraft_version_min=voter.kraft_version_min,
        kraft_version_max=voter.kraft_version_max,
    )


# --- between controllers -------------------------------------------------------------------------------------------


def from_add_voter(message: voter_pb2.AddVoterRequest) -> AddVoterRequest:
    return AddVoterRequest(from_voter(message.voter), message.ack_when_committed, message.timeout_ms)


def to_add_voter(request: AddVoterRequest, me: voter_pb2.Sender) -> voter_pb2.AddVoterRequest:
    return voter_pb2.AddVoterRequest(
        sender=me,
        voter=to_voter(request.voter),
        ack_when_committed=request.ack_when_committed,
        timeout_ms=request.timeout_ms,
    )


def from_remove_voter(message: voter_pb2.RemoveVoterRequest) -> RemoveVoterRequest:
    return RemoveVoterRequest(from_replica(message.voter), message.timeout_ms)


def to_remove_voter(request: RemoveVoterRequest, me: voter_pb2.Sender) -> voter_pb2.RemoveVoterRequest:
    return voter_pb2.RemoveVoterRequest(sender=me, voter=to_replica(request.voter), timeout_ms=request.timeout_ms)


def from_update_voter(message: voter_pb2.UpdateVoterRequest) -> UpdateVoterRequest:
    return UpdateVoterRequest(from_voter(message.voter), message.epoch, message.timeout_ms)


def to_update_voter(request: UpdateVoterRequest, me: voter_pb2.Sender) -> voter_pb2.UpdateVoterRequest:
    return voter_pb2.UpdateVoterRequest(
        sender=me, voter=to_voter(request.voter), epoch=request.epoch, timeout_ms=request.timeout_ms
    )


def from_register_controller(message: voter_pb2.RegisterControllerRequest) -> RegisterControllerRequest:
    at_most(ENDPOINTS_MAX, len(message.endpoints), "endpoints")
    at_most(FEATURES_MAX, len(message.features), "features")
    return RegisterControllerRequest(
        from_replica(message.sender.replica),
        tuple(endpoint(each, "an endpoint") for each in message.endpoints),
        tuple(FeatureRange(each.name, each.min_level, each.max_level) for each in message.features),
    )


def to_register_controller(
    request: RegisterControllerRequest, me: voter_pb2.Sender
) -> voter_pb2.RegisterControllerRequest:
    return voter_pb2.RegisterControllerRequest(
        sender=me,
        endpoints=[to_endpoint(each) for each in request.endpoints],
        features=[
            common_pb2.FeatureRange(name=each.name, min_level=each.min_level, max_level=each.max_level)
            for each in request.features
        ],
    )


def to_register_controller_response(response: RegisterControllerResponse) -> voter_pb2.RegisterControllerResponse:
    standing = voter_pb2.Standing(error=wire_code(response.error), epoch=response.epoch, leader_id=response.leader_id)
    return voter_pb2.RegisterControllerResponse(standing=standing)


def from_register_controller_response(message: voter_pb2.RegisterControllerResponse) -> RegisterControllerResponse:
    standing = message.standing
    leader_id = standing.leader_id if standing.HasField("leader_id") else None
    return RegisterControllerResponse(ErrorCode.of(standing.error), standing.epoch, leader_id)


def to_quorum_change_response(response: QuorumChangeResponse) -> voter_pb2.QuorumChangeResponse:
    standing = voter_pb2.Standing(error=wire_code(response.error), epoch=response.epoch, leader_id=response.leader_id)
    return voter_pb2.QuorumChangeResponse(standing=standing, message=response.message, offset=response.offset)


def from_quorum_change_response(message: voter_pb2.QuorumChangeResponse) -> QuorumChangeResponse:
    standing = message.standing
    return QuorumChangeResponse(
        error=ErrorCode.of(standing.error),
        epoch=standing.epoch,
        leader_id=standing.leader_id if standing.HasField("leader_id") else None,
        message=message.message,
        offset=message.offset if message.HasField("offset") else None,
    )


# --- from operators ------------------------------------------------------------------------------------------------


def from_admin_add(
    message: admin_pb2.AdminAddVoterRequest, timeout_ms: int, since: Offset | None = None
) -> AddVoterRequest:
    return AddVoterRequest(from_voter(message.voter), ack_when_committed=True, timeout_ms=timeout_ms, since=since)


def from_admin_remove(
    message: admin_pb2.AdminRemoveVoterRequest, timeout_ms: int, since: Offset | None = None
) -> RemoveVoterRequest:
    return RemoveVoterRequest(from_replica(message.voter), timeout_ms, since)


def from_transfer(
    message: admin_pb2.TransferLeadershipRequest, timeout_ms: int, since: Offset | None = None
) -> TransferLeadershipRequest:
    return TransferLeadershipRequest(message.target_id if message.HasField("target_id") else None, timeout_ms, since)


def to_mutation_response(response: QuorumChangeResponse, hint: LeaderHint) -> admin_pb2.MutationResponse:
    """Returns the answer for an operator.

    Raises:
        Refused: the quorum has refused. NOT_LEADER_OR_FOLLOWER becomes NOT_CONTROLLER, AdminService's code for "ask the leader".
    """
    match response.error:
        case ErrorCode.NONE:
            return admin_pb2.MutationResponse(offset=-1 if response.offset is None else response.offset + 1)
        case ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise Refused(ErrorCode.NOT_CONTROLLER, response.message or "this controller does not lead", hint)
        case ErrorCode.REQUEST_TIMED_OUT if response.offset is None:
            # Nothing was written. For a client REQUEST_TIMED_OUT would mean that the change may have happened.
            raise Refused(ErrorCode.NOT_READY, response.message, hint)
        case _:
            raise Refused(response.error, response.message or response.error.name, hint)
