"""What comes from the network: every request of every service, fed to a whole controller; and what it and brokers are answered.

An input of a service is one byte, which chooses the controller's role, and the message. The controller is a real node on a disk
in memory; only gRPC is missing. A stranger's message never stops it; a voter's may.
"""

import random
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any, Final

from google.protobuf.message import DecodeError
from quorum_rpc.v1 import broker_pb2, common_pb2, voter_pb2

from broker_agent import convert as broker_convert
from broker_agent.session.lifecycle import (
    EMPTY_POSITION,
    Applied,
    Fetch,
    FetchAnswered,
    FetchFailed,
    Position,
    Register,
    Registered,
    RegisterFailed,
    StoreRecovered,
    TimerFired,
)
from broker_agent.session.session import Session
from broker_agent.session.session_config import SessionConfig
from metadata_log.disk.identity import Identity
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.partition_state import ISR, LEADER, LEADER_EPOCH, PARTITION_EPOCH
from metadata_log.format.records import SUPPORTED, Endpoint
from quorum.core.protocol.inputs import ShutDown
from quorum.core.protocol.messages import (
    BeginQuorumEpochRequest,
    ChainRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    PeerRequest,
    PeerResponse,
    RegisterControllerRequest,
    UpdateVoterRequest,
    VoteRequest,
)
from quorum.runtime.node import Node
from quorum.runtime.protocol.peer_answers import answered
from quorum.runtime.protocol.world import RaftRequest
from quorum.wire.admin import AdminService
from quorum.wire.broker import BrokerService
from quorum.wire.convert import convert_membership, parts
from quorum.wire.convert import convert_raft as convert
from quorum.wire.convert.errors import BadMessage
from quorum.wire.entity import EntityService
from quorum.wire.voter import VoterService
from tests.fuzz.disk_targets import packed, unpacked
from tests.fuzz.mutation import Mutate, messages_mutated, mutated
from tests.fuzz.sealing import sealed
from tests.fuzz.target import Target
from tests.quorum.runtime.lone_controller import LoneController, elected, follower, key, leader, unattached
from tests.quorum.runtime.lone_node import CLUSTER_ID, LoneNode, directory_id, formatted_disk, voters_of
from tests.quorum.wire.calling import METHODS, call, codes_of
from tests.quorum.wire.good_requests import good_requests, register, sender, voter
from watches.service.watch_service import WatchService

IDENTITY = Identity(CLUSTER_ID, 1, directory_id(1), 1, "controller")
CALLS_MAX: Final = 100
USES_MAX: Final = 50
"""A node that an input has not changed takes the next one too, but not for ever."""


# --- controllers -----------------------------------------------------------------------------------------------------


@cache
def busy_disk() -> bytes:
    """Of a sole voter with two brokers, the topic `orders`, and the topic `moved`, led by broker 0 though it prefers 1.

    A third broker, 2, has registered and was never heard again.
    """
    disk = formatted_disk(voters_of((1,)))
    controller = LoneController(_started(LoneNode(disk)))
    brokers = BrokerService(controller, IDENTITY)
    admin = AdminService(controller, IDENTITY)
    for broker_id in (0, 1):
        call(brokers, "RegisterBroker", register(broker_id))
        _contact(controller, brokers, broker_id)
    request = good_requests()["AdminService.CreateTopics"]
    request.topics[0].name = "orders"
    request.context.request_id = b""
    assert codes_of(call(admin, "CreateTopics", request)) == []
    request.topics[0].name = "moved"
    request.topics[0].partitions = request.topics[0].replication_factor = -1
    request.topics[0].assignment.add(broker_ids=[1, 0])
    assert codes_of(call(admin, "CreateTopics", request)) == []
    _contact(controller, brokers, 1, wants_fence=True)
    _contact(controller, brokers, 1)
    _take_back(controller, brokers)
    call(admin, "CreateSnapshot", good_requests()["AdminService.CreateSnapshot"])
    call(brokers, "RegisterBroker", register(2))  # behind the snapshot's mark: this batch may be skipped
    return packed(disk)


def _contact(controller: LoneController, brokers: BrokerService, broker_id: int, *, wants_fence: bool = False) -> None:
    """The broker fetches, caught up: it is unfenced then, or fenced if it wants that."""
    image, log = controller.lone.node.state.committed, controller.lone.node.log
    registered = image.brokers[broker_id]
    fetch = good_requests(registered.broker_epoch, offset=0)["BrokerService.MetadataFetchOnce"]
    fetch.broker_id, fetch.incarnation_id, fetch.wants_fence = broker_id, registered.incarnation_id, wants_fence
    fetch.offset, fetch.epoch, fetch.chain = image.offset, log.shape.last_epoch, log.chain_at(image.offset) or b""
    call(brokers, "MetadataFetchOnce", fetch)


def _take_back(controller: LoneController, brokers: BrokerService) -> None:
    """Broker 0, which leads the topic `moved`, has broker 1 in the ISR again."""
    image = controller.lone.node.state.committed
    topic = image.topic("moved")
    assert topic is not None
    state = topic.state(0)
    assert state is not None
    assert (state[LEADER], state[ISR]) == (0, (0,))
    request = good_requests(image.brokers[0].broker_epoch, topic.topic_id)["BrokerService.AlterPartition"]
    (alteration,) = request.partitions
    alteration.leader_epoch, alteration.partition_epoch = state[LEADER_EPOCH], state[PARTITION_EPOCH]
    alteration.new_isr.add(broker_id=1, broker_epoch=image.brokers[1].broker_epoch)
    assert codes_of(call(brokers, "AlterPartition", request)) == []


def _started(lone: LoneNode) -> LoneNode:
    lone.run_until_idle()
    return lone


def busy() -> LoneNode:
    return _started(LoneNode(unpacked(busy_disk())))


def followed() -> LoneNode:
    """It leads, of two voters. The other one, 3, and controller 4, which does not vote, have registered, and fetched all it has.

    So a voter can be let in or sent away. Without 3 it commits alone, and with it nothing: nobody fetches while a call lasts.
    """
    lone = elected(LoneNode(formatted_disk(voters_of((1, 3)))), 3)
    for number in range(1, 5):  # what is committed may make it append more
        for node_id in (3, 4):
            shape = lone.node.log.shape
            fetch = FetchRequest(
                key(node_id), lone.node.core.epoch, number, shape.end, shape.last_epoch, shape.chain, 0, 0, 1 << 20
            )
            lone.turn(RaftRequest(fetch, lone.new_reply_to()))
            registered = RegisterControllerRequest(key(node_id), (Endpoint("CONTROLLER", "here", 9_091),), SUPPORTED)
            lone.turn(RaftRequest(registered, lone.new_reply_to()))
            lone.run_until_idle()
    return lone


BUSY, FOLLOWED = 3, 4
ROLES: Final[Sequence[Callable[[], LoneNode]]] = (leader, follower, unattached, busy, followed)
SERVICES: Final[dict[str, Callable[[LoneController], Any]]] = {
    "VoterService": lambda controller: VoterService(controller, IDENTITY, lambda *_: None),
    "BrokerService": lambda controller: BrokerService(controller, IDENTITY),
    "AdminService": lambda controller: AdminService(controller, IDENTITY),
    "EntityService": lambda controller: EntityService(controller, IDENTITY),
    "WatchService": lambda controller: WatchService(controller.watched),
}


class _Pool:
    """Nodes by role. One that an input has changed is not used again."""

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[LoneNode, object, int]] = {}

    def take(self, role: int) -> LoneNode:
        known = self._nodes.pop(role, None)
        return ROLES[role]() if known is None else known[0]

    def put_back(self, role: int, lone: LoneNode, before: object, uses: int) -> None:
        if uses < USES_MAX and lone.stopped is None and _trace(lone) == before:
            self._nodes[role] = lone, before, uses

    def uses(self, role: int) -> int:
        return self._nodes[role][2] if role in self._nodes else 0


def _trace(lone: LoneNode) -> object:
    node = lone.node
    return node.core.describe(), node.log.shape, node.state.committed.digest_bytes, lone.now_ms, len(lone.sent)


_POOL: Final = _Pool()


def _request_taker(name: str) -> Callable[[bytes], str | None]:
    service, method = name.split(".")
    message_type = METHODS[name].input_type._concrete_class

    def take(data: bytes) -> str | None:
        request = message_type()
        request.ParseFromString(data[1:])
        if method == "Submit":
            # (Here each call takes a turn of its own: a thousand of them are a thousand inputs, and no bad one.)
            del request.requests[CALLS_MAX:]
        role = data[0] % len(ROLES) if data else 0
        uses = _POOL.uses(role)
        lone = _POOL.take(role)
        before = _trace(lone)
        answer = call(SERVICES[service](LoneController(lone)), method, request)
        lone.node.core.check_invariants()
        if lone.stopped is not None:
            assert service == "VoterService" and _is_voter(lone, request), f"a stranger has stopped it: {lone.stopped}"
            return "stopped"
        codes = codes_of(answer)
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes, answer
        lone.node.state.committed.check_invariants()
        _POOL.put_back(role, lone, before, uses + 1)
        return codes[0].name if codes else None

    return take


def _is_voter(lone: LoneNode, request: Any) -> bool:
    replica = request.sender.replica
    voters = {(voter.node_id, voter.directory_id) for voter in lone.node.bootstrap.voters}
    return (replica.node_id, replica.directory_id) in voters


def _with_role(mutate: Mutate, roles: Sequence[int]) -> Mutate:
    def with_role(rng: Random, samples: Sequence[bytes]) -> bytes:
        return bytes([rng.choice(roles)]) + mutate(rng, [sample[1:] for sample in samples])

    return with_role


def _know(name: str, request: Any, node: Node) -> None:
    """Makes it the request of somebody who knows how the busy node stands, and that it is the only voter."""
    if "epoch" in request.DESCRIPTOR.fields_by_name:
        request.epoch = node.core.epoch
    match name:
        case "VoterService.Fetch":
            request.chain = node.log.chain_at(request.fetch_offset)
        case "VoterService.UpdateVoter":
            request.sender.CopyFrom(sender(1))
            request.voter.CopyFrom(voter(1))
        case "WatchService.Watch":
            image = node.state.committed
            request.position.offset, request.position.epoch = image.offset, image.provenance.epoch
            request.position.chain = node.log.chain_at(image.offset)
        case "AdminService.TransferLeadership":
            request.target_id = 1
        case "AdminService.SkipBatch":
            batches = node.log.read(node.log.shape.start.offset, 1 << 20)
            last = next(batch for batch in reversed(batches) if not batch.is_control)
            request.offset, request.epoch, request.chain = last.base_offset, last.epoch, last.chain
            request.although_applied = True
        case _:
            pass


def _request_target(name: str) -> Target:
    message_type = METHODS[name].input_type._concrete_class
    is_voters = name.startswith("VoterService")
    roles = (0, 0, 1, 2, BUSY, FOLLOWED) if is_voters else (BUSY, BUSY, BUSY, BUSY, BUSY, BUSY, 0, 1, FOLLOWED)

    def samples() -> list[bytes]:
        node = busy().node
        image = node.state.committed
        topic = image.topic("orders")
        assert topic is not None
        snapshot = node.snapshotter.store.list()[0].end
        request = good_requests(image.brokers[0].broker_epoch, topic.topic_id, image.offset, snapshot)[name]
        samples = [bytes([role]) + request.SerializeToString(deterministic=True) for role in sorted(set(roles))]
        _know(name, request, node)
        return [*samples, bytes([BUSY]) + request.SerializeToString(deterministic=True)]

    return Target(
        name, samples, _request_taker(name), (DecodeError,), _with_role(messages_mutated(message_type), roles)
    )


# --- answers to controllers ------------------------------------------------------------------------------------------


def _sent(lone: LoneNode, kind: type[PeerRequest]) -> tuple[LoneNode, PeerRequest]:
    return lone, next(request for _, request in reversed(lone.sent) if isinstance(request, kind))


def _asks_for_vote() -> tuple[LoneNode, PeerRequest]:
    lone = unattached()
    lone.now_ms += 10_000
    lone.turn()
    return _sent(lone, VoteRequest)


def _resigns() -> tuple[LoneNode, PeerRequest]:
    lone = leader()
    lone.turn(ShutDown())
    return _sent(lone, EndQuorumEpochRequest)


def _loads_snapshot() -> tuple[LoneNode, PeerRequest]:
    lone, fetch = _sent(follower(), FetchRequest)
    assert isinstance(fetch, FetchRequest)
    redirect = FetchResponse(ErrorCode.NONE, 1, 2, fetch.number, snapshot=OffsetAndEpoch(3, 1))
    lone.turn(answered(2, fetch, redirect))
    return _sent(lone, FetchSnapshotRequest)


def _update_request() -> UpdateVoterRequest:
    return convert_membership.from_update_voter(good_requests()["VoterService.UpdateVoter"])


def _standing(leader_id: int = 2) -> voter_pb2.Standing:
    return voter_pb2.Standing(epoch=1, leader_id=leader_id)


@cache
def _history() -> bytes:
    return parts.join(busy().node.log.read(0, 1 << 20))


@cache
def _snapshot() -> bytes:
    store = busy().node.snapshotter.store
    (info,) = store.list()
    return store.read_chunk(info.end, 0, 1 << 20)[1]


def _fetch_answers() -> list[Any]:
    common: dict[str, Any] = {"number": 1, "successors": [1, 3], "read_token": 1}
    return [
        voter_pb2.FetchResponse(standing=_standing(), high_watermark=2, batches=_history(), **common),
        voter_pb2.FetchResponse(standing=_standing(), **common),
        voter_pb2.FetchResponse(standing=_standing(), diverging=common_pb2.OffsetAndEpoch(offset=0, epoch=0), **common),
        voter_pb2.FetchResponse(standing=_standing(), snapshot=common_pb2.SnapshotId(end_offset=9, epoch=1), **common),
        voter_pb2.FetchResponse(standing=voter_pb2.Standing(error=common_pb2.CHAIN_MISMATCH, epoch=1, leader_id=2)),
    ]


def _chunks() -> list[Any]:
    data = _snapshot()
    return [
        voter_pb2.FetchSnapshotResponse(standing=_standing(), number=2, size=len(data), data=data),
        voter_pb2.FetchSnapshotResponse(standing=_standing(), number=2, size=len(data), data=data[:100]),
    ]


_ANSWERS: Final[dict[str, tuple[type[Any], Callable[[], list[Any]], Callable[[Any], PeerResponse], Any]]] = {
    "Vote": (
        voter_pb2.VoteResponse,
        lambda: [voter_pb2.VoteResponse(standing=voter_pb2.Standing(epoch=0), vote_granted=True)],
        convert.from_vote_response,
        _asks_for_vote,
    ),
    "BeginQuorumEpoch": (
        voter_pb2.BeginQuorumEpochResponse,
        lambda: [voter_pb2.BeginQuorumEpochResponse(standing=_standing(1))],
        convert.from_begin_response,
        lambda: _sent(leader(), BeginQuorumEpochRequest),
    ),
    "EndQuorumEpoch": (
        voter_pb2.EndQuorumEpochResponse,
        lambda: [voter_pb2.EndQuorumEpochResponse(standing=_standing(1))],
        convert.from_end_response,
        _resigns,
    ),
    "Fetch": (
        voter_pb2.FetchResponse,
        _fetch_answers,
        convert.from_fetch_response,
        lambda: _sent(follower(), FetchRequest),
    ),
    "FetchSnapshot": (
        voter_pb2.FetchSnapshotResponse,
        _chunks,
        convert.from_fetch_snapshot_response,
        _loads_snapshot,
    ),
    "DescribeChain": (
        voter_pb2.DescribeChainResponse,
        lambda: [voter_pb2.DescribeChainResponse(standing=_standing(), chain=bytes(32), end_offset=3, last_epoch=1)],
        convert.from_chain_response,
        lambda: (follower(), ChainRequest(parts.from_replica(good_requests()["VoterService.Vote"].receiver), 0, 0)),
    ),
    "ReadLog": (
        voter_pb2.ReadLogResponse,
        lambda: [voter_pb2.ReadLogResponse(standing=_standing(), batches=_history())],
        convert.from_read_log_response,
        lambda: (follower(), convert.from_read_log(good_requests()["VoterService.ReadLog"])),
    ),
    "ReadSnapshot": (
        voter_pb2.ReadSnapshotResponse,
        lambda: [voter_pb2.ReadSnapshotResponse(standing=_standing(), size=len(_snapshot()), data=_snapshot())],
        convert.from_read_snapshot_response,
        lambda: (follower(), convert.from_read_snapshot(good_requests()["VoterService.ReadSnapshot"])),
    ),
    "RegisterController": (
        voter_pb2.RegisterControllerResponse,
        lambda: [voter_pb2.RegisterControllerResponse(standing=_standing())],
        convert_membership.from_register_controller_response,
        lambda: (
            follower(),
            convert_membership.from_register_controller(good_requests()["VoterService.RegisterController"]),
        ),
    ),
    "UpdateVoter": (
        voter_pb2.QuorumChangeResponse,
        lambda: [voter_pb2.QuorumChangeResponse(standing=_standing(), message="done", offset=3)],
        convert_membership.from_quorum_change_response,
        lambda: (follower(), _update_request()),
    ),
}


def _answer_target(name: str) -> Target:
    """Node 2 answers what node 1 has asked; then time passes, and what follows happens."""
    message_type, samples, translate, begin = _ANSWERS[name]

    def take(data: bytes) -> str | None:
        message = message_type()
        message.ParseFromString(data)
        response = translate(message)
        lone, request = begin()
        lone.turn(answered(2, request, response))
        for _ in range(3):
            lone.run_until_idle()
            lone.node.core.check_invariants()
            lone.now_ms += 400
            lone.turn()
        return "stopped" if lone.stopped is not None else None

    mutate = messages_mutated(message_type)

    def with_seals(rng: Random, given: Sequence[bytes]) -> bytes:
        data = mutate(rng, given)
        if "batches" not in message_type.DESCRIPTOR.fields_by_name or rng.random() < 0.5:
            return data
        message = message_type()
        message.ParseFromString(given[0])
        message.batches = sealed(_hurt_batches(rng, message.batches), chain=rng.choice((None, _first_chain())))
        again: bytes = message.SerializeToString(deterministic=True)
        return again

    return Target(
        f"answer.{name}",
        lambda: [message.SerializeToString(deterministic=True) for message in samples()],
        take,
        (DecodeError, BadMessage),
        with_seals,
    )


def _hurt_batches(rng: Random, batches: bytes) -> bytes:
    return mutated(rng, (batches,))


@cache
def _first_chain() -> bytes:
    chain = unattached().node.log.chain_at(0)
    assert chain is not None
    return chain


# --- answers to brokers ----------------------------------------------------------------------------------------------


def _asking_session() -> tuple[Session, Any]:
    session = Session(SessionConfig(), random.Random(1))
    effects = session.step(StoreRecovered(EMPTY_POSITION, ()), 1_000)
    return session, next(effect for effect in effects if isinstance(effect, Register))


def _fetching_session() -> tuple[Session, Any]:
    session, asked = _asking_session()
    effects = session.step(Registered(asked.number, 7), 1_010)
    return session, next(effect for effect in effects if isinstance(effect, Fetch))


def _go_on(session: Session) -> str | None:
    """The store does as it was told, and time passes."""
    session.step(Applied(Position(9, 1, bytes(32), bytes(32))), 1_030)
    for now_ms in range(1_500, 10_000, 500):
        session.step(TimerFired(), now_ms)
        session.may_serve(now_ms)
        session.next_deadline_ms()
    return "exited" if session.exited else None


def _take_registered(data: bytes) -> str | None:
    response = broker_pb2.RegisterBrokerResponse()
    response.ParseFromString(data)
    session, asked = _asking_session()
    code = ErrorCode.of(response.error.code)
    if code is ErrorCode.NONE:
        session.step(Registered(asked.number, response.broker_epoch), 1_020)
    else:
        hint = broker_convert.leader_hint(response.leader)
        session.step(RegisterFailed(asked.number, code, response.error.message, hint), 1_020)
    return _go_on(session)


def _take_fetched(data: bytes) -> str | None:
    response = broker_pb2.MetadataFetchResponse()
    response.ParseFromString(data)
    session, asked = _fetching_session()
    code = ErrorCode.of(response.error.code)
    response.number = asked.request.number
    answer = broker_convert.fetch_answer(response)
    if code is not ErrorCode.NONE or answer is None:
        hint = broker_convert.leader_hint(response.leader)
        session.step(FetchFailed(response.number, code, response.error.message, hint), 1_020)
    else:
        session.step(FetchAnswered(answer), 1_020)
    return _go_on(session)


def _fetched_answers() -> list[bytes]:
    response = broker_pb2.MetadataFetchResponse(
        number=2,
        result=broker_pb2.MetadataFetchResponse.BATCHES,
        batches=b"batches",
        previous_chain=bytes(32),
        end_offset=9,
        high_watermark=9,
        digest=bytes(32),
        digest_offset=9,
        state=broker_pb2.ONLINE,
        lease_ms=5_000,
        controller_epoch=1,
    )
    samples = []
    for result in (1, 2, 3, 4):
        response.result = result  # type: ignore[assignment]
        response.snapshot.end_offset, response.diverging.offset = 9, 3
        samples.append(response.SerializeToString(deterministic=True))
    return samples


TARGETS = (
    *(_request_target(name) for name in METHODS),
    *(_answer_target(name) for name in _ANSWERS),
    Target(
        "answer.RegisterBroker",
        lambda: [broker_pb2.RegisterBrokerResponse(broker_epoch=7).SerializeToString()],
        _take_registered,
        (DecodeError,),
        messages_mutated(broker_pb2.RegisterBrokerResponse),
    ),
    Target(
        "answer.MetadataFetch",
        _fetched_answers,
        _take_fetched,
        (DecodeError,),
        messages_mutated(broker_pb2.MetadataFetchResponse),
    ),
)
