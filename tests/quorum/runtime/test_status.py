"""What a controller says of itself and of the others: nothing that it only remembers, and no voter is well unheard."""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ReplicaKey
from quorum.core.protocol.messages import BeginQuorumEpochRequest, FetchResponse
from quorum.runtime.protocol.peer_answers import answered
from quorum.runtime.protocol.requests import NodeStatus, Refused, ReplicaView
from quorum.runtime.protocol.world import RaftRequest, Read
from quorum.runtime.status import node_status
from tests.quorum.runtime.lone_node import LoneNode, directory_id, formatted_disk, voters_of

ME, SECOND = ReplicaKey(1, directory_id(1)), ReplicaKey(2, directory_id(2))


def leading() -> LoneNode:
    """Node 1, elected by two others of whom it has heard nothing since."""
    lone = LoneNode(formatted_disk(voters_of([1, 2, 3])))
    lone.elect()
    lone.run_until_idle()
    return lone


def following() -> LoneNode:
    """Node 1, whose leader 2 has just answered it."""
    lone = LoneNode(formatted_disk(voters_of([1, 2, 3])))
    lone.turn(RaftRequest(BeginQuorumEpochRequest(SECOND, ME, 3), lone.new_reply_to()))
    _, fetch = lone.sent[-1]
    lone.turn(answered(2, fetch, FetchResponse(ErrorCode.NONE, 3, 2, fetch.number, 0)))  # type: ignore[union-attr]
    return lone


def pass_time(lone: LoneNode, duration_ms: int) -> None:
    end_ms = lone.now_ms + duration_ms
    while (due_ms := lone.node.next_deadline_ms()) is not None and due_ms <= end_ms:
        lone.now_ms = max(lone.now_ms, due_ms)
        lone.turn()
    lone.now_ms = end_ms


def hears(lone: LoneNode, replica: ReplicaKey) -> None:
    """It holds all that the leader holds, also what that writes as soon as it can commit."""
    for _ in range(2):
        lone.fetched_by(replica, lone.node.log.end)
        lone.run_until_idle()


def said(lone: LoneNode) -> NodeStatus:
    return node_status(lone.node, lone.now_ms)


def of(status: NodeStatus, node_id: int) -> ReplicaView:
    return next(each for each in status.replicas if each.node_id == node_id)


def test_a_voter_that_its_leader_has_not_heard_lacks_everything() -> None:
    """Since the epoch began; and it is no follower once the leader has waited for as long as it gives its quorum."""
    lone = leading()
    pass_time(lone, 600)
    hears(lone, SECOND)
    end = lone.node.log.end
    second, third = of(said(lone), 2), of(said(lone), 3)
    assert (second.lag, second.behind_for_ms, second.status) == (0, 0, "follower")
    assert (third.log_end_offset, third.lag, third.behind_for_ms) == (None, end, 600)
    assert third.status == "follower", "elected a moment ago, it does not know better yet"

    pass_time(lone, 399)
    assert of(said(lone), 3).status == "follower"
    pass_time(lone, 1)
    assert of(said(lone), 3).status == "silent" and of(said(lone), 2).status == "follower"


def test_a_voter_that_dies_is_silent_and_its_lag_grows() -> None:
    lone = leading()
    hears(lone, SECOND)
    pass_time(lone, 700)
    hears(lone, ReplicaKey(3, directory_id(3)))
    pass_time(lone, 700)
    second, third = of(said(lone), 2), of(said(lone), 3)
    assert (second.status, second.behind_for_ms) == ("silent", 1_400)
    assert (third.status, third.behind_for_ms) == ("follower", 700)


def test_the_survivor_of_three_knows_no_leader() -> None:
    """Within a fetch timeout; not in its status, nor in what it refuses; it says why, and since when. It still asks for votes."""
    lone = following()
    assert said(lone).leader.leader_id == 2 and said(lone).no_leader_for_ms is None
    pass_time(lone, 701)
    for _ in range(40):
        pass_time(lone, 50)
        status = said(lone)
        assert status.leader.leader_id is None and status.leader.endpoint is None
        assert "it no longer hears controller 2" in status.no_leader_reason
        assert [each.status for each in status.replicas][1:] == ["unknown", "unknown"]
    assert status.no_leader_for_ms == 701 + 40 * 50
    asked = lone.new_reply_to()
    lone.turn(Read(asked, lone.now_ms + 1_000))
    refused = lone.answers[asked]
    assert isinstance(refused, Refused) and refused.hint is not None and refused.hint.leader_id is None
    assert lone.node.addresses.named_leader().leader_id == 2, "for finding one it remembers"


def test_a_leader_nobody_has_followed_lately_does_not_call_itself_one() -> None:
    """It was paused, say: before its timers run it might be asked."""
    lone = leading()
    assert said(lone).leader.leader_id == 1
    lone.now_ms += 1_000
    status = said(lone)
    assert (status.role, status.leader.leader_id, of(status, 1).status) == ("leader", None, "unconfirmed")
    assert "no majority" in status.no_leader_reason
