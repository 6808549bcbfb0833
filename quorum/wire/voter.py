"""VoterService: checks the sender of another controller's request, translates, asks the node, and translates the answer.

The certificate of the sender must name every controller that the request speaks for (`service_kit.rpc.doors`): the sender, and
the voter that joins, leaves or moves. Operators change other voters with AdminService.

Fetch is a stream with one request in flight, handled in one coroutine without a task or queue of its own: a follower's
round trip is on the path of every commit.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from quorum_rpc.v1 import common_pb2, voter_pb2, voter_pb2_grpc

from metadata_log.disk.identity import Identity
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId
from metadata_log.format.records import Endpoint
from quorum.core.protocol.messages import PeerRequest
from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import Refused
from quorum.wire.convert import convert_membership, parts
from quorum.wire.convert import convert_raft as convert
from quorum.wire.convert.errors import BadMessage, wire_code
from quorum.wire.timeouts import timeout_of
from service_kit.rpc.doors import Caller, Doors, NotAuthorized
from service_kit.security.node_identity import CONTROLLER

Q = TypeVar("Q")
R = TypeVar("R")
Learn = Callable[[NodeId, Endpoint], None]


class _OtherVoter(Exception):
    """The sender gives the address of another voter. Only a voter itself knows its address."""


class VoterService(voter_pb2_grpc.VoterServiceServicer):
    """One controller, as other controllers see it."""

    def __init__(
        self, node: ControllerNode, identity: Identity, learn: Learn | None = None, doors: Doors | None = None
    ) -> None:
        """`learn` gets the address of a new leader from BeginQuorumEpoch. Without `doors` every caller may ask."""
        self._node = node
        self._doors = doors or Doors()
        self._identity = identity
        self._learn = learn

    async def Vote(self, request: voter_pb2.VoteRequest, context: Any) -> voter_pb2.VoteResponse:
        caller = self._doors.caller(context)
        return await self._answer(request, caller, convert.from_vote, convert.to_vote_response, voter_pb2.VoteResponse)

    async def BeginQuorumEpoch(
        self, request: voter_pb2.BeginQuorumEpochRequest, context: Any
    ) -> voter_pb2.BeginQuorumEpochResponse:
        def translate(message: voter_pb2.BeginQuorumEpochRequest) -> PeerRequest:
            begin = convert.from_begin(message)
            if message.HasField("endpoint"):
                where = convert_membership.endpoint(message.endpoint, "the leader's endpoint")
                if self._learn is not None and self._may_lead(begin.leader.node_id, begin.epoch):
                    self._learn(begin.leader.node_id, where)
            return begin

        caller = self._doors.caller(context)
        return await self._answer(
            request, caller, translate, convert.to_begin_response, voter_pb2.BeginQuorumEpochResponse
        )

    def _may_lead(self, node_id: NodeId, epoch: Epoch) -> bool:
        """Returns whether `node_id` may lead `epoch`, as far as this node knows. A late message of an older leader counts for
        nothing.

        Call this method before the node gets the message: a node that knows its leader fetches at once, and would take a leader
        with an old address for dead.
        """
        hint = self._node.named_leader()
        return epoch > hint.epoch or (epoch == hint.epoch and hint.leader_id in (None, node_id))

    async def EndQuorumEpoch(
        self, request: voter_pb2.EndQuorumEpochRequest, context: Any
    ) -> voter_pb2.EndQuorumEpochResponse:
        caller = self._doors.caller(context)
        return await self._answer(
            request, caller, convert.from_end, convert.to_end_response, voter_pb2.EndQuorumEpochResponse
        )

    async def FetchSnapshot(
        self, request: voter_pb2.FetchSnapshotRequest, context: Any
    ) -> voter_pb2.FetchSnapshotResponse:
        caller = self._doors.caller(context)
        return await self._answer(
            request,
            caller,
            convert.from_fetch_snapshot,
            convert.to_fetch_snapshot_response,
            voter_pb2.FetchSnapshotResponse,
        )

    async def ReadLog(self, request: voter_pb2.ReadLogRequest, context: Any) -> voter_pb2.ReadLogResponse:
        caller = self._doors.caller(context)
        return await self._answer(
            request, caller, convert.from_read_log, convert.to_read_log_response, voter_pb2.ReadLogResponse
        )

    async def ReadSnapshot(
        self, request: voter_pb2.ReadSnapshotRequest, context: Any
    ) -> voter_pb2.ReadSnapshotResponse:
        caller = self._doors.caller(context)
        return await self._answer(
            request,
            caller,
            convert.from_read_snapshot,
            convert.to_read_snapshot_response,
            voter_pb2.ReadSnapshotResponse,
        )

    async def DescribeChain(
        self, request: voter_pb2.DescribeChainRequest, context: Any
    ) -> voter_pb2.DescribeChainResponse:
        caller = self._doors.caller(context)
        return await self._answer(
            request, caller, convert.from_chain, convert.to_chain_response, voter_pb2.DescribeChainResponse
        )

    async def AddVoter(self, request: voter_pb2.AddVoterRequest, context: Any) -> voter_pb2.QuorumChangeResponse:
        return await self._change(request, request.voter.replica, convert_membership.from_add_voter, context)

    async def RemoveVoter(self, request: voter_pb2.RemoveVoterRequest, context: Any) -> voter_pb2.QuorumChangeResponse:
        return await self._change(request, request.voter, convert_membership.from_remove_voter, context)

    async def UpdateVoter(self, request: voter_pb2.UpdateVoterRequest, context: Any) -> voter_pb2.QuorumChangeResponse:
        def translate(message: voter_pb2.UpdateVoterRequest) -> PeerRequest:
            change = convert_membership.from_update_voter(message)
            if parts.from_replica(message.sender.replica) != (change.voter.node_id, change.voter.directory_id):
                raise _OtherVoter
            return change

        return await self._change(request, request.voter.replica, translate, context)

    async def RegisterController(
        self, request: voter_pb2.RegisterControllerRequest, context: Any
    ) -> voter_pb2.RegisterControllerResponse:
        caller = self._doors.caller(context)
        return await self._answer(
            request,
            caller,
            convert_membership.from_register_controller,
            convert_membership.to_register_controller_response,
            voter_pb2.RegisterControllerResponse,
        )

    async def _change(
        self, message: Any, voter: common_pb2.ReplicaKey, translate: Callable[[Any], PeerRequest], context: Any
    ) -> voter_pb2.QuorumChangeResponse:
        """Changes the vote of `voter`, which must be the sender: a voter changes its own vote only."""
        message.timeout_ms = timeout_of(message.timeout_ms, context)
        reply = convert_membership.to_quorum_change_response
        caller = self._doors.caller(context)
        return await self._answer(
            message, caller, translate, reply, voter_pb2.QuorumChangeResponse, also=(voter.node_id,)
        )

    async def Fetch(self, request_iterator: Any, context: Any) -> None:
        """Answers one fetch after the other, until the follower closes the stream."""
        caller = self._doors.caller(context)  # once: a connection's certificate does not change
        while True:
            request = await context.read()
            if request is grpc.aio.EOF:
                return
            response = await self._answer(
                request, caller, convert.from_fetch, convert.to_fetch_response, voter_pb2.FetchResponse
            )
            response.number = request.number
            await context.write(response)

    async def _answer(
        self,
        message: Q,
        caller: Caller,
        translate: Callable[[Q], PeerRequest],
        reply: Callable[[Any], R],
        response_type: type[R],
        also: tuple[NodeId, ...] = (),
    ) -> R:
        """Returns the node's answer to `message`. A refusal is a standing with an error only.

        `also`: ids that the caller's certificate must name besides the sender's.
        """
        code = self._stranger(message, caller, also)
        if code is not ErrorCode.NONE:
            return _refusal(response_type, code)
        try:
            answer = reply(await self._node.raft(translate(message)))
            self._name_leader(answer.standing)  # type: ignore[attr-defined]
            return answer
        except _OtherVoter:
            return _refusal(response_type, ErrorCode.INVALID_VOTER_KEY)
        except BadMessage as e:  # the answer has no room for the text
            sender: voter_pb2.Sender = message.sender  # type: ignore[attr-defined]
            self._doors.tell(f"a request of controller {sender.replica.node_id}: {e}. Does it run another release?")
            return _refusal(response_type, ErrorCode.INVALID_REQUEST)
        except Refused:
            # A node refuses Raft's requests only when it stops. The sender may try again later, as after a broken connection.
            return _refusal(response_type, ErrorCode.BROKER_NOT_AVAILABLE)

    def _name_leader(self, standing: voter_pb2.Standing) -> None:
        """Adds the leader's address to an error: a refused controller may have joined lately, and not know the address."""
        if standing.error and standing.HasField("leader_id"):
            hint = self._node.named_leader()
            if hint.leader_id == standing.leader_id and hint.endpoint is not None:
                standing.leader_endpoint.CopyFrom(parts.to_endpoint(hint.endpoint))

    def _stranger(self, message: Any, caller: Caller, also: tuple[NodeId, ...]) -> ErrorCode:
        """Returns why the sender may not ask this node; NONE if it may."""
        sender: voter_pb2.Sender = message.sender
        try:
            caller.check_node(CONTROLLER, sender.replica.node_id, *also)
        except NotAuthorized:
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if sender.cluster_id != self._identity.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if sender.generation != self._identity.generation:
            return ErrorCode.INVALID_CONTROL_GENERATION
        return ErrorCode.NONE


def _refusal(response_type: Callable[..., R], code: ErrorCode) -> R:
    return response_type(standing=voter_pb2.Standing(error=wire_code(code)))
