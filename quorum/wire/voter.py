"""The service between controllers: checks who the sender is and of which cluster, translates, asks the node, translates back.

Every id in a request that says "I am" has to be in the certificate of whoever sends it (`service_kit.rpc.doors`): the
sender's, and that
of the voter who lets itself in or out. Operators ask for other voters in AdminService.

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
from quorum.wire.convert import convert_membership
from quorum.wire.convert import convert_raft as convert
from quorum.wire.convert.errors import BadMessage, wire_code
from quorum.wire.timeouts import timeout_of
from service_kit.rpc.doors import Caller, Doors, NotAuthorized
from service_kit.security.node_identity import CONTROLLER

Q = TypeVar("Q")
R = TypeVar("R")
Learn = Callable[[NodeId, Endpoint], None]


class _OtherVoter(Exception):
    """Only a voter itself says where it is to be reached: what another says of it may be long over, or a slip."""


class VoterService(voter_pb2_grpc.VoterServiceServicer):
    """One controller, as other controllers see it."""

    def __init__(
        self, node: ControllerNode, identity: Identity, learn: Learn | None = None, doors: Doors | None = None
    ) -> None:
        """`learn` is told where a new leader is reached, when that leader says so. Without `doors` all are open."""
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
        """Whether what `node_id` says of itself counts, as far as this node knows: a late word of an older leader does not.

        To be asked before the node is: as soon as it knows its leader it fetches, and where that is no more it takes it for gone.
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
            if convert.from_replica(message.sender.replica) != (change.voter.node_id, change.voter.directory_id):
                raise _OtherVoter
            return change

        return await self._change(request, request.voter.replica, translate, context)

    async def _change(
        self, message: Any, voter: common_pb2.ReplicaKey, translate: Callable[[Any], PeerRequest], context: Any
    ) -> voter_pb2.QuorumChangeResponse:
        """A voter changes its own vote only: `voter` is the one that the change is about, and has to be the sender."""
        message.timeout_ms = timeout_of(message.timeout_ms, context)
        reply = convert_membership.to_quorum_change_response
        caller = self._doors.caller(context)
        return await self._answer(
            message, caller, translate, reply, voter_pb2.QuorumChangeResponse, also=(voter.node_id,)
        )

    async def Fetch(self, request_iterator: Any, context: Any) -> None:
        """One fetch after the other, until the follower goes away."""
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
        """The node's answer to `message`; a refusal is a standing that says nothing but its error.

        `also` are ids beside the sender's that have to be the caller's own.
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
        except BadMessage:
            return _refusal(response_type, ErrorCode.INVALID_REQUEST)
        except Refused:
            # A node refuses Raft's requests only when it stops: whoever asked may try again later, as after a break.
            return _refusal(response_type, ErrorCode.BROKER_NOT_AVAILABLE)

    def _name_leader(self, standing: voter_pb2.Standing) -> None:
        """Beside an error, where the leader is: whoever was refused may not have read of it yet."""
        if standing.error and standing.HasField("leader_id"):
            hint = self._node.named_leader()
            if hint.leader_id == standing.leader_id and hint.endpoint is not None:
                standing.leader_endpoint.CopyFrom(convert.to_endpoint(hint.endpoint))

    def _stranger(self, message: Any, caller: Caller, also: tuple[NodeId, ...]) -> ErrorCode:
        """Why the sender is none of ours; NONE if it is."""
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
