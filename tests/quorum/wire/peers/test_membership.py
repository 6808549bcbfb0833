"""Who votes, over real gRPC: what is asked for arrives as it was said, and peers are found where they are now."""

from collections.abc import AsyncIterator

import grpc
import pytest
from quorum_rpc.v1 import admin_pb2, common_pb2, voter_pb2, voter_pb2_grpc

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ReplicaKey
from metadata_log.format.records import Endpoint, Voter
from metaquorum import AdminClient, AdminError, MayHaveHappened, NoLeader
from quorum.core.protocol.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    QuorumChangeResponse,
    RemoveVoterRequest,
    Request,
    TransferLeadershipRequest,
    UpdateVoterRequest,
)
from quorum.wire.convert import convert_membership
from quorum.wire.convert import convert_raft as convert
from quorum.wire.convert.errors import BadMessage
from quorum.wire.peers.peers import Peers
from quorum.wire.server import serve
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode
from tests.quorum.wire.peers.test_peers import ME, THEM, ask, at, dial

VOTER = Voter(4, bytes([4]) * 16, (Endpoint("CONTROLLER", "c4", 9001), Endpoint("OTHER", "::1", 9002)), 0, 1)


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    peers = Peers(IDENTITY._replace(node_id=ME.node_id, directory_id=ME.directory_id), dial)
    yield peers
    await peers.close()


async def test_what_controllers_ask_of_each_other_arrives_as_it_was_said(peers: Peers, node: FakeNode) -> None:
    """Add, remove and update; and the answer comes back whole, with and without an offset."""
    requests: tuple[Request, ...] = (
        AddVoterRequest(VOTER, ack_when_committed=False, timeout_ms=700),
        RemoveVoterRequest(ReplicaKey(4, VOTER.directory_id), timeout_ms=700),
        UpdateVoterRequest(VOTER._replace(node_id=ME.node_id, directory_id=ME.directory_id), epoch=3, timeout_ms=700),
    )
    answers = iter(
        (
            QuorumChangeResponse(ErrorCode.NONE, 3, 1, "done", 42),
            QuorumChangeResponse(ErrorCode.VOTER_NOT_FOUND, 3, 1, "there is none"),
            QuorumChangeResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 4, None, "who knows"),
        )
    )
    expected = list(answers)
    node.answer_change = lambda request: expected[len(node.asked) - 1]
    async with serve(node, IDENTITY, ANY_PORT, grace_s=0) as port:
        peers.set_endpoints({1: at(port)})
        assert [await ask(peers, request) for request in requests] == expected
    assert node.asked == list(requests)


async def test_an_operators_wishes_reach_the_quorum(client: AdminClient, node: FakeNode) -> None:
    """Through AdminService, acknowledged when committed, with the offset; and with what is left of the call's time."""
    answer = await client.add_voter(convert_membership.to_voter(VOTER))
    assert answer.offset == 43, "the end of the record at offset 42"
    await client.remove_voter(4, VOTER.directory_id)
    await client.transfer_leadership()
    await client.transfer_leadership(0)
    add, remove, anybody, node_0 = node.asked
    assert isinstance(add, AddVoterRequest) and (add.voter, add.ack_when_committed) == (VOTER, True)
    assert isinstance(remove, RemoveVoterRequest) and remove.voter == ReplicaKey(4, VOTER.directory_id)
    assert isinstance(anybody, TransferLeadershipRequest) and anybody.target is None
    assert isinstance(node_0, TransferLeadershipRequest) and node_0.target == 0
    assert all(each.since is not None for each in (add, remove, anybody, node_0)), "each is repeated if need be"
    assert all(0 < each.timeout_ms <= 2_000 for each in (add, remove, anybody, node_0))


async def test_a_refusal_keeps_its_code_and_its_words(client: AdminClient, node: FakeNode) -> None:
    """As it is said to a person; and "may have happened" only where a record may stand in some log."""
    for code, offset, kind in (
        (ErrorCode.DUPLICATE_VOTER, None, AdminError),
        (ErrorCode.REQUEST_TIMED_OUT, 42, MayHaveHappened),
        (ErrorCode.REQUEST_TIMED_OUT, None, NoLeader),
    ):
        answer = QuorumChangeResponse(code, 1, 1, "because of the moon", offset)
        node.answer_change = lambda request, answer=answer: answer  # type: ignore[misc]
        with pytest.raises(AdminError, match="because of the moon") as caught:
            await client.remove_voter(4, VOTER.directory_id)
        assert type(caught.value) is kind


async def test_a_change_is_asked_of_whoever_leads(client: AdminClient, node: FakeNode) -> None:
    """A node that does not lead names the leader, and the client goes there."""
    leader = FakeNode()
    async with serve(leader, IDENTITY, ANY_PORT, grace_s=0) as port:
        node.leader = at(port)
        node.answer_change = lambda request: QuorumChangeResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 1, "not me")
        await client.add_voter(convert_membership.to_voter(VOTER))
    assert len(leader.asked) == 1


@pytest.mark.parametrize(
    ("endpoints", "why"),
    [
        ([], "the voter has no endpoint"),
        ([("CONTROLLER", "", 9001)], "characters, and this one has 0"),
        ([("CONTROLLER", "h" * 254, 9001)], "characters, and this one has 254"),
        ([("CONTROLLER", "c4", 0)], "a port is 1 to 65535, and this one is 0"),
        ([("CONTROLLER", "c4", 65_536)], "a port is 1 to 65535, and this one is 65536"),
        ([("L" * 65, "c4", 9001)], "at most 64"),
        ([("CONTROLLER", "c4", 9001)] * 17, "at most 16"),
    ],
)
async def test_a_voter_that_nobody_could_reach_is_refused(
    client: AdminClient, node: FakeNode, endpoints: list[tuple[str, str, int]], why: str
) -> None:
    """It would count in every majority all the same."""
    key = common_pb2.ReplicaKey(node_id=4, directory_id=VOTER.directory_id)
    listed = [common_pb2.Endpoint(listener=name, host=host, port=port) for name, host, port in endpoints]
    with pytest.raises(AdminError, match=why) as caught:
        await client.add_voter(voter_pb2.Voter(replica=key, endpoints=listed))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert node.asked == []


def test_a_voter_with_a_broken_id_is_refused() -> None:
    """Fifteen bytes are no directory id."""
    message = voter_pb2.Voter(replica=common_pb2.ReplicaKey(node_id=4, directory_id=bytes(15)))
    with pytest.raises(BadMessage):
        convert_membership.from_voter(message)


async def test_a_request_that_cannot_be_understood_is_told_where_it_arrives(
    channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    """A voter's answer has a code and no text, so the receiver's log says what is wrong."""
    stub = voter_pb2_grpc.VoterServiceStub(channel)  # type: ignore[no-untyped-call]
    request = voter_pb2.VoteRequest(sender=convert.sender(IDENTITY._replace(node_id=2)), epoch=3)
    assert (await stub.Vote(request)).standing.error == ErrorCode.INVALID_REQUEST
    assert "refused a request of controller 2: directory_id has 0 bytes; an id has 16" in caplog.text


async def test_a_stranger_changes_nothing(channel: grpc.aio.Channel, node: FakeNode) -> None:
    """A controller of another cluster, or of an older generation of this one, is not listened to."""
    stub = voter_pb2_grpc.VoterServiceStub(channel)  # type: ignore[no-untyped-call]
    for identity, code in (
        (IDENTITY._replace(cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (IDENTITY._replace(generation=7), ErrorCode.INVALID_CONTROL_GENERATION),
    ):
        request = AddVoterRequest(VOTER, ack_when_committed=True, timeout_ms=100)
        answer = await stub.AddVoter(convert_membership.to_add_voter(request, convert.sender(identity)))
        assert answer.standing.error == code
    assert node.asked == []


async def test_a_leader_that_the_log_does_not_name_yet_is_reached(peers: Peers, node: FakeNode) -> None:
    """A node that was just formatted asks one of the first voters, which names a leader that joined later, and where it is."""
    leader = FakeNode()
    async with (
        serve(node, IDENTITY, ANY_PORT, grace_s=0) as port,
        serve(leader, IDENTITY, ANY_PORT, grace_s=0) as leaders_port,
    ):
        peers.set_endpoints({1: at(port)})
        node.leader_id, node.leader = 8, at(leaders_port)
        node.answer_fetch = lambda request: FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, 8, request.number)
        request = FetchRequest(ME, 1, 1, 0, 0, b"", 0, 100, 1 << 20)
        answer = await ask(peers, request)
        assert isinstance(answer, FetchResponse) and answer.leader_id == 8
        assert await ask(peers, request, destination=8) == FetchResponse(ErrorCode.NONE, 1, 1, 1)
        assert leader.asked == [request]
        peers.learn(8, at(1))
        peers.set_endpoints({8: at(leaders_port)})
        assert await ask(peers, request, destination=8) == FetchResponse(ErrorCode.NONE, 1, 1, 1), (
            "a later voter set knows better"
        )


async def test_a_leader_that_left_is_where_it_was_unless_it_is_heard_of_elsewhere(peers: Peers, node: FakeNode) -> None:
    """What was heard of it while the log still named it is older than that."""
    request = FetchRequest(ME, 1, 1, 0, 0, b"", 0, 100, 1 << 20)
    async with serve(node, IDENTITY, ANY_PORT, grace_s=0) as port:
        peers.learn(1, at(1))
        peers.set_endpoints({1: at(port)})
        peers.set_endpoints({}, {1: at(port)})
        assert isinstance(await ask(peers, request), FetchResponse)
        peers.set_endpoints({}, {1: at(1)})
        peers.learn(1, at(port))
        assert isinstance(await ask(peers, request), FetchResponse)
        peers.set_endpoints({}, {1: at(1)})
        assert isinstance(await ask(peers, request), FetchResponse)


async def test_a_leader_that_has_moved_is_dialled_where_it_says(peers: Peers, node: FakeNode) -> None:
    """A voter that was away while the leader moved has the old address in its log, and the new one only from the leader."""
    request = FetchRequest(ME, 1, 1, 0, 0, b"", 0, 100, 1 << 20)
    async with serve(node, IDENTITY, ANY_PORT, grace_s=0) as port:
        peers.set_endpoints({1: at(1)})
        peers.told_by(1, at(port))
        assert isinstance(await ask(peers, request), FetchResponse)
        peers.set_endpoints({1: at(1), 2: at(1)})
        assert isinstance(await ask(peers, request), FetchResponse), "the log says nothing newer of it"
        peers.set_endpoints({1: at(2)})
        assert not isinstance(await ask(peers, request), FetchResponse), "a later set knows"


async def test_a_configured_address_outranks_what_the_leader_says(node: FakeNode) -> None:
    """It may be that of a proxy, or of another network, of which the leader knows nothing."""
    request = FetchRequest(ME, 1, 1, 0, 0, b"", 0, 100, 1 << 20)
    peers = Peers(IDENTITY._replace(node_id=ME.node_id, directory_id=ME.directory_id), dial, configured=frozenset({1}))
    async with serve(node, IDENTITY, ANY_PORT, grace_s=0) as port:
        peers.set_endpoints({1: at(port)})
        peers.told_by(1, at(1))
        assert isinstance(await ask(peers, request), FetchResponse)
        await peers.close()


async def test_a_new_leader_says_where_it_is(peers: Peers, node: FakeNode) -> None:
    """BeginQuorumEpoch carries the leader's own endpoint. One that comes late must not move the leader that is there."""
    learned: list[tuple[int, Endpoint]] = []

    def learn(node_id: int, endpoint: Endpoint) -> None:
        learned.append((node_id, endpoint))

    async with serve(node, IDENTITY, ANY_PORT, grace_s=0, learn=learn) as port:
        peers.set_endpoints({1: at(port), ME.node_id: Endpoint("CONTROLLER", "c2", 9001)})
        assert (node.leader_hint().leader_id, node.leader_hint().epoch) == (1, 1)
        for epoch in (0, 1):
            await ask(peers, BeginQuorumEpochRequest(ME, THEM, epoch))
        assert learned == []
        await ask(peers, BeginQuorumEpochRequest(ME, THEM, 3))
    assert learned == [(ME.node_id, Endpoint("CONTROLLER", "c2", 9001))]


async def test_a_restart_is_judged_by_the_leader(client: AdminClient, node: FakeNode) -> None:
    """The other voter was caught up 40 ms ago, but one of two is no majority; an observer may go at any time."""
    assert not (await client.can_restart(2)).can_restart
    assert (await client.can_restart(9)).can_restart
    with pytest.raises(AdminError) as caught:
        await client.can_restart(77)
    assert caught.value.code is ErrorCode.VOTER_NOT_FOUND


async def test_the_quorum_says_how_its_history_began(client: AdminClient, node: FakeNode) -> None:
    """What a node that is to join must be formatted with: the first voters, exactly, and the generation."""
    status: admin_pb2.DescribeQuorumResponse = await client.describe_quorum()
    assert status.generation == IDENTITY.generation
    assert tuple(map(convert_membership.from_voter, status.bootstrap_voters)) == node.status().bootstrap.voters
