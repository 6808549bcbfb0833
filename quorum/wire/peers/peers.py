"""The connections to the other controllers: one call for each rare request, one stream for fetches.

`fetch_stream` is the stream of a follower's fetches.

Fast failover begins here:

    1. The process of controller 2, the leader, is killed. The fetch stream of controller 1 breaks.
    2. Controller 1 opens a TCP connection to controller 2 at once. The machine refuses the connection: no process listens, so the
       process is gone. `on_peer_refused` is called, and controller 1 stands for election.
    3. Had the leader been paused, slow or unreachable, or had its certificate been replaced, no connection would be refused, and
       the fetch timeout would decide.

Each request ends with exactly one call of `on_response` or `on_failure`, after `send` has returned. A peer that has moved, or
that votes no longer, fails its open requests. `close` alone ends requests without a call.

`peer_addresses` chooses a peer's address when several sources disagree.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, get_args

import grpc
from quorum_rpc.v1 import common_pb2, voter_pb2, voter_pb2_grpc

from metadata_log.disk.identity import Identity
from metadata_log.format.ids import NodeId
from metadata_log.format.records import Endpoint
from quorum.core.protocol.inputs import Failure
from quorum.core.protocol.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    ChainRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    PeerRequest,
    PeerResponse,
    ReadLogRequest,
    ReadSnapshotRequest,
    RegisterControllerRequest,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    UpdateVoterRequest,
    VoteRequest,
)
from quorum.wire.convert import convert_membership, parts
from quorum.wire.convert import convert_raft as convert
from quorum.wire.convert.errors import BadMessage
from quorum.wire.peers.fetch_stream import Asked, FetchStream, OnFailure, OnResponse
from quorum.wire.peers.peer_addresses import NOWHERE, PeerAddresses
from service_kit.rpc.dial import is_wrong_server

logger = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 0.25
"""How long the probe waits for a connection. A slower connection is no refusal."""

Dial = Callable[[NodeId, Endpoint], grpc.aio.Channel]
"""Makes the channel to a controller at an endpoint. The channel sends nothing to another process there
(`service_kit.rpc.dial`)."""


class _Call(NamedTuple):
    """The method of one kind of request, with the translations of request and answer."""

    method: str
    to_message: Callable[[Any, voter_pb2.Sender], Any]
    from_response: Callable[[Any], PeerResponse]


_CALLS: Mapping[type[PeerRequest], _Call] = {
    VoteRequest: _Call("Vote", convert.to_vote, convert.from_vote_response),
    BeginQuorumEpochRequest: _Call("BeginQuorumEpoch", convert.to_begin, convert.from_begin_response),
    EndQuorumEpochRequest: _Call("EndQuorumEpoch", convert.to_end, convert.from_end_response),
    FetchSnapshotRequest: _Call("FetchSnapshot", convert.to_fetch_snapshot, convert.from_fetch_snapshot_response),
    ReadLogRequest: _Call("ReadLog", convert.to_read_log, convert.from_read_log_response),
    ReadSnapshotRequest: _Call("ReadSnapshot", convert.to_read_snapshot, convert.from_read_snapshot_response),
    ChainRequest: _Call("DescribeChain", convert.to_chain, convert.from_chain_response),
    AddVoterRequest: _Call("AddVoter", convert_membership.to_add_voter, convert_membership.from_quorum_change_response),
    RemoveVoterRequest: _Call(
        "RemoveVoter", convert_membership.to_remove_voter, convert_membership.from_quorum_change_response
    ),
    RegisterControllerRequest: _Call(
        "RegisterController",
        convert_membership.to_register_controller,
        convert_membership.from_register_controller_response,
    ),
    UpdateVoterRequest: _Call(
        "UpdateVoter", convert_membership.to_update_voter, convert_membership.from_quorum_change_response
    ),
}
"""The calls by request. Fetch has a stream, and only operators ask for TransferLeadership."""
assert {FetchRequest, TransferLeadershipRequest, *_CALLS} == set(get_args(PeerRequest)), (
    "a request without an RPC would never get an answer"
)


class Peers:
    """The other controllers, by node id. Use on one event loop."""

    def __init__(self, identity: Identity, dial: Dial, configured: Collection[NodeId] = ()) -> None:
        """`configured`: the controllers whose addresses are in this node's configuration."""
        self._me = convert.sender(identity)
        self._dial = dial
        self._addresses = PeerAddresses({*configured, identity.node_id})
        self._peers: dict[NodeId, _Peer] = {}
        self._refused: Callable[[NodeId], None] = lambda node_id: None
        self._tasks: set[asyncio.Task[None]] = set()

    def set_endpoints(
        self, endpoints: Mapping[NodeId, Endpoint], last_named: Mapping[NodeId, Endpoint] = NOWHERE
    ) -> None:
        """Takes the addresses of all voters, including this node's. Connects anew to a moved voter, and drops a missing one.

        `last_named`: old addresses of controllers that are no voters any more and are still needed.
        """
        if self._addresses.record(endpoints, last_named):
            self._dial_all()

    def learn(self, node_id: NodeId, endpoint: Endpoint) -> None:
        """Takes the address of the leader `node_id` from another controller's answer."""
        if self._addresses.hear(node_id, endpoint):
            self._dial_all()

    def told_by(self, leader_id: NodeId, endpoint: Endpoint) -> None:
        """Takes the leader's address from the leader itself."""
        if self._addresses.tell(leader_id, endpoint):
            self._dial_all()

    def _dial_all(self) -> None:
        endpoints = dict(self._addresses.endpoints)
        endpoints.pop(self._me.replica.node_id, None)
        for node_id, peer in list(self._peers.items()):
            if endpoints.get(node_id) != peer.endpoint:
                del self._peers[node_id]
                self._start(peer.close(Failure.BROKEN))
        for node_id, endpoint in endpoints.items():
            if node_id not in self._peers:
                self._peers[node_id] = _Peer(node_id, endpoint, self._dial(node_id, endpoint), self)

    def on_peer_refused(self, listener: Callable[[NodeId], None]) -> None:
        """Calls `listener` with the id of each peer whose stream broke and whose machine then refused a connection."""
        self._refused = listener

    def send(
        self, destination: NodeId, request: PeerRequest, timeout_ms: int, on_response: OnResponse, on_failure: OnFailure
    ) -> None:
        """Sends `request` to `destination`, and later calls one of the two functions (see the head of this file)."""
        peer = self._peers.get(destination)
        if peer is None:
            asyncio.get_running_loop().call_soon(on_failure, Failure.BROKEN)
        elif isinstance(request, FetchRequest):
            peer.fetch(Asked(request, on_response, on_failure), timeout_ms)
        else:
            self._start(peer.call(request, timeout_ms, on_response, on_failure))

    async def close(self) -> None:
        """Ends every stream and call, without a call of `on_failure`."""
        peers, self._peers = list(self._peers.values()), {}
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for peer in peers:
            await peer.close(None)

    @property
    def me(self) -> voter_pb2.Sender:
        """The sender of this node's requests."""
        return self._me

    @property
    def my_endpoint(self) -> Endpoint | None:
        """The endpoint at which others reach this node; None while unknown."""
        return self._addresses.endpoints.get(self._me.replica.node_id)

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def probe(self, node_id: NodeId, endpoint: Endpoint) -> None:
        """Opens a connection to find out whether a process still listens there."""
        self._start(self._probe(node_id, endpoint))

    async def _probe(self, node_id: NodeId, endpoint: Endpoint) -> None:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        except ConnectionRefusedError:
            logger.info(
                "controller %d is not running: %s:%d refuses connections", node_id, endpoint.host, endpoint.port
            )
            self._refused(node_id)
        except OSError:
            return  # unreachable or too slow: the timers decide, as for a paused node
        else:
            writer.close()


class _Peer:
    """One other controller."""

    def __init__(self, node_id: NodeId, endpoint: Endpoint, channel: grpc.aio.Channel, peers: Peers) -> None:
        self.node_id = node_id
        self.endpoint = endpoint
        self.stub: Any = voter_pb2_grpc.VoterServiceStub(channel)  # type: ignore[no-untyped-call]
        self._channel = channel
        self._peers = peers
        self._stream: FetchStream | None = None
        self._told: set[object] = set()

    async def call(self, request: PeerRequest, timeout_ms: int, on_response: OnResponse, on_failure: OnFailure) -> None:
        """Sends one request, and passes on the answer or the failure."""
        try:
            response = await self._call(request, timeout_ms / 1_000)
        except grpc.aio.AioRpcError as e:
            on_failure(self.failure_of(e))
        except BadMessage as e:
            self.not_parsed(e)
            on_failure(Failure.BROKEN)
        except (asyncio.CancelledError, grpc.aio.UsageError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # all is being closed
            # This peer's channel was closed during the call. Without a failure, a damaged node that asked a removed voter for
            # its log would wait for ever, and ask no other voter.
            on_failure(Failure.BROKEN)
        else:
            on_response(response)

    async def _call(self, request: PeerRequest, timeout_s: float) -> PeerResponse:
        call = _CALLS[type(request)]
        message = call.to_message(request, self._peers.me)
        mine = self._peers.my_endpoint
        if isinstance(request, BeginQuorumEpochRequest) and mine is not None:
            message.endpoint.CopyFrom(parts.to_endpoint(mine))
        answer = await getattr(self.stub, call.method)(message, timeout=timeout_s)
        if answer is None:  # gRPC gives None for bytes that are no message
            raise BadMessage(f"it is no answer to {call.method}")
        self.heard(answer.standing)
        return call.from_response(answer)

    def heard(self, standing: voter_pb2.Standing) -> None:
        """Takes the leader's address from an answer, and logs refusals that only a person can resolve."""
        if standing.error == common_pb2.INVALID_CONTROL_GENERATION:
            self._tell_once(
                standing.error,
                f"controller {self.node_id} refuses this node, because one of the two has an older generation: the cluster was "
                "recovered without a majority. If this node has the older generation, replace its directory by an empty one, "
                "formatted with `quorumctl storage format --from`",
            )
        if standing.error == common_pb2.CLUSTER_AUTHORIZATION_FAILED:
            self._tell_once(
                standing.error,
                f"controller {self.node_id} refuses this node: this node's certificate is not for controller "
                f"{self._peers.me.replica.node_id}. The log of controller {self.node_id} names the DNS name that is missing",
            )
        if standing.HasField("leader_id") and standing.HasField("leader_endpoint"):
            self._peers.learn(
                standing.leader_id, convert_membership.endpoint(standing.leader_endpoint, "the leader's endpoint")
            )

    def not_parsed(self, e: BadMessage) -> None:
        """Logs an answer that cannot be parsed: the first one only, because a node without a leader asks 14 times a second."""
        self._tell_once(
            "not parsed",
            f"controller {self.node_id} sent an answer that cannot be parsed, and it was ignored, as all further such answers "
            f"will be: {e}. Does it run another release, or is another program at {self.endpoint.host}:{self.endpoint.port}?",
        )

    def failure_of(self, e: grpc.aio.AioRpcError) -> Failure:
        """Returns the kind of failure of a call, and logs that another process answers at the peer's address."""
        if is_wrong_server(e):
            self._tell_once(
                "wrong server",
                f"the server at {self.endpoint.host}:{self.endpoint.port} does not show the certificate of controller "
                f"{self.node_id}; no request was sent to it: {e.details()}",
            )
        return failure_of(e)

    def probe(self) -> None:
        """Finds out if the peer's process still runs (`Peers.probe`)."""
        self._peers.probe(self.node_id, self.endpoint)

    def _tell_once(self, kind: object, text: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            logger.warning("%s", text)

    def fetch(self, asked: Asked, timeout_ms: int) -> None:
        """Sends a fetch on the open stream, or on a new one."""
        stream = self._stream
        if stream is not None and stream.is_busy:
            # The core no longer waits for the earlier answer, and the new fetch would queue behind that answer on this stream.
            stream.abandon(Failure.BROKEN)
            stream = None
        if stream is None or stream.is_over:
            stream = self._stream = FetchStream(self.stub.Fetch(), self._peers.me, self)
        stream.send(asked, timeout_ms)

    async def close(self, failure: Failure | None) -> None:
        """Ends the stream and the channel. An open fetch fails with `failure`; with None no function is called."""
        if self._stream is not None:
            self._stream.abandon(failure)
        await self._channel.close()


def failure_of(e: grpc.aio.AioRpcError) -> Failure:
    """Returns the kind of failure of a call."""
    if e.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Failure.TIMED_OUT
    if e.code() is grpc.StatusCode.UNAVAILABLE and "Connection refused" in (e.details() or ""):
        return Failure.REFUSED
    return Failure.BROKEN
