"""How this controller reaches the others: calls for what is rare, one stream per leader for what is frequent.

A follower's Fetch goes over a bidirectional stream with one request in flight, because a stream's round trip costs half of
a call's. One coroutine per stream writes, reads and delivers; no message gets a task or a timer of its own.

Fast failover begins here. A stream that breaks tells that something happened to the peer, and an immediate TCP connect tells
what: refused means that nobody listens there any more, so the process is gone, while a paused, slow or unreachable peer, a
rotated certificate or a server that sheds connections does not refuse. Only a refusal is reported to `on_peer_refused`.

Every request ends in exactly one of `on_response` and `on_failure`, later than the `send` that it came from, also when the peer
is not asked any more, because it has moved or votes no longer. Only when all is closed is nobody told.

Where a peer is, if not all say the same, `peer_addresses` weighs.
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
    RemoveVoterRequest,
    TransferLeadershipRequest,
    UpdateVoterRequest,
    VoteRequest,
)
from quorum.wire.convert import convert_membership
from quorum.wire.convert import convert_raft as convert
from quorum.wire.convert.errors import BadMessage
from quorum.wire.peer_addresses import NOWHERE, Whereabouts
from service_kit.rpc.dial import is_wrong_server

logger = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 0.25
"""A connect that takes longer is not a refusal."""

Dial = Callable[[NodeId, Endpoint], grpc.aio.Channel]
"""The channel to that controller, at that place; whoever else answers there is not asked (`service_kit.rpc.dial`)."""
OnResponse = Callable[[PeerResponse], None]
OnFailure = Callable[[Failure], None]


class _Call(NamedTuple):
    """How one kind of request is made: the method, and the translation there and back."""

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
    UpdateVoterRequest: _Call(
        "UpdateVoter", convert_membership.to_update_voter, convert_membership.from_quorum_change_response
    ),
}
"""All but Fetch, which has its stream, and TransferLeadership, for which only operators ask."""
assert {FetchRequest, TransferLeadershipRequest, *_CALLS} == set(get_args(PeerRequest)), (
    "whoever asked would wait for ever"
)


class _Asked(NamedTuple):
    """A fetch, and who waits for it."""

    request: FetchRequest
    on_response: OnResponse
    on_failure: OnFailure


class Peers:
    """The other controllers, by node id. Lives on one event loop."""

    def __init__(self, identity: Identity, dial: Dial, configured: Collection[NodeId] = ()) -> None:
        """Of those in `configured` this node's configuration says where they are."""
        self._me = convert.sender(identity)
        self._dial = dial
        self._whereabouts = Whereabouts({*configured, identity.node_id})
        self._peers: dict[NodeId, _Peer] = {}
        self._refused: Callable[[NodeId], None] = lambda node_id: None
        self._tasks: set[asyncio.Task[None]] = set()

    def set_endpoints(
        self, endpoints: Mapping[NodeId, Endpoint], last_named: Mapping[NodeId, Endpoint] = NOWHERE
    ) -> None:
        """Where the voters are, this node too. One that has moved is dialled anew, and one that is not named is forgotten.

        `last_named` is where others were that are needed, unless it is heard where they are.
        """
        if self._whereabouts.record(endpoints, last_named):
            self._dial_all()

    def learn(self, node_id: NodeId, endpoint: Endpoint) -> None:
        """Somebody says that `node_id` leads, and where."""
        if self._whereabouts.hear(node_id, endpoint):
            self._dial_all()

    def told_by(self, leader_id: NodeId, endpoint: Endpoint) -> None:
        """The leader says where it is."""
        if self._whereabouts.tell(leader_id, endpoint):
            self._dial_all()

    def _dial_all(self) -> None:
        endpoints = dict(self._whereabouts.endpoints)
        endpoints.pop(self._me.replica.node_id, None)
        for node_id, peer in list(self._peers.items()):
            if endpoints.get(node_id) != peer.endpoint:
                del self._peers[node_id]
                self._start(peer.close(Failure.BROKEN))
        for node_id, endpoint in endpoints.items():
            if node_id not in self._peers:
                self._peers[node_id] = _Peer(node_id, endpoint, self._dial(node_id, endpoint), self)

    def on_peer_refused(self, listener: Callable[[NodeId], None]) -> None:
        """`listener` is called when a peer's stream broke and an immediate connect was refused."""
        self._refused = listener

    def send(
        self, destination: NodeId, request: PeerRequest, timeout_ms: int, on_response: OnResponse, on_failure: OnFailure
    ) -> None:
        """Asks `destination`; see the file's head for what follows."""
        peer = self._peers.get(destination)
        if peer is None:
            asyncio.get_running_loop().call_soon(on_failure, Failure.BROKEN)
        elif isinstance(request, FetchRequest):
            peer.fetch(_Asked(request, on_response, on_failure), timeout_ms)
        else:
            self._start(peer.call(request, timeout_ms, on_response, on_failure))

    async def close(self) -> None:
        """Ends every stream and call; nobody who waits is told any more."""
        peers, self._peers = list(self._peers.values()), {}
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for peer in peers:
            await peer.close(None)

    @property
    def me(self) -> voter_pb2.Sender:
        """How this node introduces itself."""
        return self._me

    @property
    def my_endpoint(self) -> Endpoint | None:
        """Where others reach this node, as far as is known."""
        return self._whereabouts.endpoints.get(self._me.replica.node_id)

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def probe(self, node_id: NodeId, endpoint: Endpoint) -> None:
        """Finds out whether anybody still listens there."""
        self._start(self._probe(node_id, endpoint))

    async def _probe(self, node_id: NodeId, endpoint: Endpoint) -> None:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        except ConnectionRefusedError:
            logger.info("controller %d is gone: %s:%d refuses connections", node_id, endpoint.host, endpoint.port)
            self._refused(node_id)
        except OSError:
            return  # unreachable, or too slow to say: the timers judge, as they do of a paused node
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
        self._stream: _FetchStream | None = None
        self._told: set[object] = set()

    async def call(self, request: PeerRequest, timeout_ms: int, on_response: OnResponse, on_failure: OnFailure) -> None:
        """One request, one answer."""
        try:
            response = await self._call(request, timeout_ms / 1_000)
        except grpc.aio.AioRpcError as e:
            on_failure(self.failure_of(e))
        except BadMessage as e:
            logger.warning("controller %d answered nonsense: %s", self.node_id, e)
            on_failure(Failure.BROKEN)
        except (asyncio.CancelledError, grpc.aio.UsageError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # all is being closed
            # This peer's channel was closed under the call. A damaged node that asked a voter who was removed meanwhile would
            # wait for it for ever, and ask nobody else.
            on_failure(Failure.BROKEN)
        else:
            on_response(response)

    async def _call(self, request: PeerRequest, timeout_s: float) -> PeerResponse:
        call = _CALLS[type(request)]
        message = call.to_message(request, self._peers.me)
        mine = self._peers.my_endpoint
        if isinstance(request, BeginQuorumEpochRequest) and mine is not None:
            message.endpoint.CopyFrom(convert.to_endpoint(mine))
        answer = await getattr(self.stub, call.method)(message, timeout=timeout_s)
        self.heard(answer.standing)
        return call.from_response(answer)

    def heard(self, standing: voter_pb2.Standing) -> None:
        """Takes in where the leader is, if the answer says so; and what only a person can mend, which a person must hear."""
        if standing.error == common_pb2.INVALID_CONTROL_GENERATION:
            self._tell_once(
                standing.error,
                f"controller {self.node_id} is of another generation: the cluster was recovered without a majority. If it was "
                "this node that was left behind, give it an empty directory, formatted with `quorumctl storage format --from`",
            )
        if standing.error == common_pb2.CLUSTER_AUTHORIZATION_FAILED:
            self._tell_once(
                standing.error,
                f"controller {self.node_id} refuses this node: the certificate that this node showed is not that of "
                f"controller {self._peers.me.replica.node_id}. The log of controller {self.node_id} says which DNS name it lacks",
            )
        if standing.HasField("leader_id") and standing.HasField("leader_endpoint"):
            self._peers.learn(
                standing.leader_id, convert_membership.endpoint(standing.leader_endpoint, "the leader's endpoint")
            )

    def failure_of(self, e: grpc.aio.AioRpcError) -> Failure:
        """What a failed call says about this peer; a person must hear that somebody else is in its place."""
        if is_wrong_server(e):
            self._tell_once(
                "wrong server",
                f"whoever answers at {self.endpoint.host}:{self.endpoint.port} does not show the certificate of controller "
                f"{self.node_id}, and is asked nothing: {e.details()}",
            )
        return failure_of(e)

    def _tell_once(self, kind: object, text: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            logger.warning("%s", text)

    def fetch(self, asked: _Asked, timeout_ms: int) -> None:
        """Asks on the open stream, or opens one."""
        stream = self._stream
        if stream is not None and stream.is_busy:
            # The one that asks has stopped waiting for the earlier answer, and on this stream the next one queues behind it.
            stream.abandon(Failure.BROKEN)
            stream = None
        if stream is None or stream.is_over:
            stream = self._stream = _FetchStream(self, self._peers)
        stream.send(asked, timeout_ms)

    async def close(self, failure: Failure | None) -> None:
        """Who waits is told why, unless `failure` is None: then nobody is left who would hear it."""
        if self._stream is not None:
            self._stream.abandon(failure)
        await self._channel.close()


class _FetchStream:
    """One stream, from its opening to its end; it is never opened again."""

    def __init__(self, peer: _Peer, peers: Peers) -> None:
        self._peer = peer
        self._peers = peers
        self._loop = asyncio.get_running_loop()
        self._asked: _Asked | None = None
        self._waker: asyncio.Future[None] | None = None
        self._deadline_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._answered = False
        self.is_over = False
        self._call: Any = peer.stub.Fetch()
        self._task = self._loop.create_task(self._run())

    @property
    def is_busy(self) -> bool:
        """A fetch is in flight."""
        return self._asked is not None

    def send(self, asked: _Asked, timeout_ms: int) -> None:
        """Asks; not while a fetch is in flight."""
        assert self._asked is None and not self.is_over
        self._asked = asked
        self._deadline_s = self._loop.time() + timeout_ms / 1_000
        if self._timer is None or self._timer.when() > self._deadline_s:
            # One timer watches over many fetches: when it fires early, it is set to the deadline of the one in flight.
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(self._deadline_s, self._timer_fired)
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def _run(self) -> None:
        failure = Failure.BROKEN
        try:
            await self._converse()
        except grpc.aio.AioRpcError as e:
            failure = self._peer.failure_of(e)
        except BadMessage as e:
            logger.warning("controller %d answered nonsense: %s", self._peer.node_id, e)
        except (asyncio.InvalidStateError, grpc.aio.UsageError):
            failure = Failure.BROKEN  # the call ended between two of our operations on it
        if self._answered and not self.is_over:
            self._peers.probe(self._peer.node_id, self._peer.endpoint)
            failure = Failure.BROKEN
        self.abandon(failure)

    async def _converse(self) -> None:
        """Request, answer, request, answer, until the stream ends."""
        call, me = self._call, self._peers.me
        while True:
            if self._asked is None:
                self._waker = self._loop.create_future()
                await self._waker
            assert self._asked is not None
            await call.write(convert.to_fetch(self._asked.request, me))
            message = await call.read()
            if message is grpc.aio.EOF:
                return
            self._peer.heard(message.standing)
            response = convert.from_fetch_response(message)
            self._answered = True
            asked, self._asked = self._asked, None
            asked.on_response(response)

    def abandon(self, failure: Failure | None) -> None:
        """The stream is over; who waits is told why, unless `failure` is None."""
        if self.is_over:
            return
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._call.cancel()
        if asyncio.current_task() is not self._task:
            self._task.cancel()
        asked, self._asked = self._asked, None
        if asked is not None and failure is not None:
            self._loop.call_soon(asked.on_failure, failure)

    def _timer_fired(self) -> None:
        self._timer = None
        if self._asked is None:
            return
        if self._loop.time() < self._deadline_s:
            self._timer = self._loop.call_at(self._deadline_s, self._timer_fired)
        else:
            self.abandon(Failure.TIMED_OUT)


def failure_of(e: grpc.aio.AioRpcError) -> Failure:
    """What a failed call says about the peer."""
    if e.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Failure.TIMED_OUT
    if e.code() is grpc.StatusCode.UNAVAILABLE and "Connection refused" in (e.details() or ""):
        return Failure.REFUSED
    return Failure.BROKEN
