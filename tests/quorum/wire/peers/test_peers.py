"""How a controller reaches the others: answers come once, failures are told apart, a dead process is noticed at once."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import NoReturn

import grpc
import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch, ReplicaKey
from metadata_log.format.records import Endpoint
from quorum.core.protocol.inputs import Failure
from quorum.core.protocol.messages import (
    ChainRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    PeerRequest,
    PeerResponse,
    ReadLogRequest,
    ReadLogResponse,
    ReadSnapshotRequest,
    ReadSnapshotResponse,
    VoteRequest,
)
from quorum.wire.peers.peers import Peers
from quorum.wire.server import serve
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, SNAPSHOT_BYTES, FakeNode

ME = ReplicaKey(2, bytes([2]) * 16)
THEM = ReplicaKey(1, IDENTITY.directory_id)


def dial(node_id: int, endpoint: Endpoint) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"{endpoint.host}:{endpoint.port}")


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    peers = Peers(IDENTITY._replace(node_id=ME.node_id, directory_id=ME.directory_id), dial)
    yield peers
    await peers.close()


@pytest.fixture
async def served(node: FakeNode, peers: Peers) -> AsyncIterator[FakeNode]:
    """The node, served, and known to the peers."""
    async with serve(node, IDENTITY, ANY_PORT, grace_s=0) as port:
        peers.set_endpoints({1: at(port)})
        yield node


async def ask(
    peers: Peers, request: PeerRequest, timeout_ms: int = 2_000, destination: int = 1
) -> PeerResponse | Failure:
    outcome: asyncio.Future[PeerResponse | Failure] = asyncio.get_running_loop().create_future()
    peers.send(destination, request, timeout_ms, outcome.set_result, outcome.set_result)
    return await outcome


def at(port: int) -> Endpoint:
    return Endpoint("CONTROLLER", "127.0.0.1", port)


def fetch(number: int) -> FetchRequest:
    return FetchRequest(ME, 1, number, 0, 0, b"", 0, 100, 1 << 20)


async def test_each_request_brings_its_own_answer(peers: Peers, served: FakeNode) -> None:
    """Calls and fetches; what arrives at the other node is what was sent."""
    vote = VoteRequest(ME, THEM, 3, 1, 10, pre_vote=True)
    answer = await ask(peers, vote)
    assert getattr(answer, "vote_granted", False)
    for number in range(1, 6):
        answer = await ask(peers, fetch(number))
        assert isinstance(answer, FetchResponse) and answer.number == number
    chunk = await ask(peers, FetchSnapshotRequest(ME, 1, 9, OffsetAndEpoch(7, 1), 100, 50))
    assert getattr(chunk, "data", b"") == SNAPSHOT_BYTES[100:150]
    read = await ask(peers, ReadLogRequest(ME, 17, 29, 1 << 20))
    assert read == ReadLogResponse(ErrorCode.NONE, 1, 1, (), 17)
    piece = await ask(peers, ReadSnapshotRequest(ME, OffsetAndEpoch(7, 1), 100, 50))
    assert piece == ReadSnapshotResponse(ErrorCode.NONE, 1, 1, len(SNAPSHOT_BYTES), 100, SNAPSHOT_BYTES[100:150])
    assert getattr(await ask(peers, ChainRequest(ME, 7, 1)), "end_offset", None) == 7
    assert served.asked[0] == vote
    assert served.asked[1:6] == [fetch(number) for number in range(1, 6)]


async def test_nobody_there_is_refused(peers: Peers) -> None:
    """An endpoint that nobody listens on, for calls and for the stream; and a node that nobody knows."""
    peers.set_endpoints({1: Endpoint("CONTROLLER", "127.0.0.1", 1)})
    assert await ask(peers, VoteRequest(ME, THEM, 3, 1, 10, pre_vote=True)) is Failure.REFUSED
    assert await ask(peers, fetch(1)) is Failure.REFUSED
    assert await ask(peers, fetch(2), destination=9) is Failure.BROKEN


async def test_a_silent_peer_is_timed_out_and_asked_anew(peers: Peers, served: FakeNode) -> None:
    """A fetch that is not answered in time fails, and the next one is not stuck behind it."""
    hold = asyncio.Event()
    answer_now = served.raft

    async def silent(request: PeerRequest) -> PeerResponse:
        await hold.wait()
        return await answer_now(request)

    assert isinstance(await ask(peers, fetch(1)), FetchResponse)
    served.raft = silent  # type: ignore[method-assign]
    assert await ask(peers, fetch(2), timeout_ms=50) is Failure.TIMED_OUT
    assert await ask(peers, VoteRequest(ME, THEM, 3, 1, 10, pre_vote=True), timeout_ms=50) is Failure.TIMED_OUT
    served.raft = answer_now  # type: ignore[method-assign]
    answer = await ask(peers, fetch(3))
    assert isinstance(answer, FetchResponse) and answer.number == 3


async def test_a_new_fetch_supersedes_the_one_in_flight(peers: Peers, served: FakeNode) -> None:
    """The first is told that it failed; the second is answered. Nobody is told twice."""
    entered = asyncio.Event()
    answer_now = served.raft

    async def silent(request: PeerRequest) -> NoReturn:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    served.raft = silent  # type: ignore[method-assign]
    first = asyncio.ensure_future(ask(peers, fetch(1)))
    await entered.wait()
    served.raft = answer_now  # type: ignore[method-assign]
    assert isinstance(await ask(peers, fetch(2)), FetchResponse)
    assert await first is Failure.BROKEN


@pytest.mark.parametrize("endpoints", [{}, {1: Endpoint("CONTROLLER", "127.0.0.1", 1)}], ids=["dropped", "moved"])
async def test_whoever_waits_for_a_peer_that_is_left_hears_of_it_once(
    peers: Peers, served: FakeNode, endpoints: dict[int, Endpoint]
) -> None:
    """Who would wait for an answer that never comes would ask nobody else: no mending, no fetch, no step of a dispute."""
    told, outcomes = await asked_of_a_silent_peer(peers, served)
    peers.set_endpoints(endpoints)
    await asyncio.wait_for(told.wait(), 5)
    await peers.close()
    assert outcomes == {1: [Failure.BROKEN], 2: [Failure.BROKEN], 3: [Failure.BROKEN]}


async def test_nobody_is_told_any_more_when_all_is_closed(peers: Peers, served: FakeNode) -> None:
    _, outcomes = await asked_of_a_silent_peer(peers, served)
    await peers.close()
    assert outcomes == {}


async def asked_of_a_silent_peer(
    peers: Peers, served: FakeNode
) -> tuple[asyncio.Event, dict[int, list[PeerResponse | Failure]]]:
    """A fetch and two calls are in flight to node 1, which answers none; what became of each, and when all are told."""
    entered, told = asyncio.Semaphore(0), asyncio.Event()
    outcomes: dict[int, list[PeerResponse | Failure]] = {}

    async def silent(request: PeerRequest) -> NoReturn:
        entered.release()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    def over(number: int, outcome: PeerResponse | Failure) -> None:
        outcomes.setdefault(number, []).append(outcome)
        if len(outcomes) == 3:
            told.set()

    served.raft = silent  # type: ignore[method-assign]
    questions: tuple[PeerRequest, ...] = (
        fetch(1),
        ReadLogRequest(ME, 17, 29, 1 << 20),
        VoteRequest(ME, THEM, 3, 1, 10, pre_vote=True),
    )
    for number, request in enumerate(questions, 1):
        peers.send(1, request, 60_000, partial(over, number), partial(over, number))
    for _ in questions:
        await asyncio.wait_for(entered.acquire(), 5)
    return told, outcomes


async def test_a_dead_process_is_reported_at_once(peers: Peers, node: FakeNode) -> None:
    """The stream breaks, the reconnect is refused: no timer has to pass."""
    refused: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    peers.on_peer_refused(refused.set_result)
    entered = asyncio.Event()

    async def silent(request: PeerRequest) -> NoReturn:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async with serve(node, IDENTITY, ANY_PORT, grace_s=0) as port:
        peers.set_endpoints({1: at(port)})
        assert isinstance(await ask(peers, fetch(1)), FetchResponse)
        node.raft = silent  # type: ignore[method-assign]
        waiting = asyncio.ensure_future(ask(peers, fetch(2), timeout_ms=60_000))
        await entered.wait()
    assert await waiting is Failure.BROKEN
    assert await refused == 1


def _answered(epoch: int, request: FetchRequest) -> FetchResponse:
    return FetchResponse(ErrorCode.NONE, epoch, 1, request.number)


async def test_a_moved_peer_is_dialled_at_its_new_endpoint(peers: Peers, node: FakeNode) -> None:
    """And its old stream is not used any more."""
    for epoch in (5, 6):
        async with serve(node, IDENTITY, ANY_PORT, grace_s=0) as port:
            peers.set_endpoints({1: at(port)})
            node.answer_fetch = partial(_answered, epoch)
            answer = await ask(peers, fetch(epoch))
            assert isinstance(answer, FetchResponse) and answer.epoch == epoch
