"""The leader a node reports: a leader heard recently, never a merely remembered one."""

from metadata_log.format.errors import ErrorCode
from quorum.core.protocol.config import RaftConfig
from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.inputs import DamageFound, Failure, PeerRefused, RequestFailed
from quorum.core.protocol.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, VoteRequest, VoteResponse
from quorum.core.roles import Role
from tests.core.cluster import Cluster
from tests.core.situations import follower, leader, requests, working_leader
from tests.core.solo import Solo, key


def named(solo: Solo) -> int | None:
    return solo.core.followed(solo.now_ms).leader_id


def test_a_follower_names_the_leader_that_answers_it() -> None:
    """For one fetch timeout after each good answer."""
    solo, fetch = follower(1, 1)
    solo.wait(500)
    solo.good_answer(fetch)
    assert named(solo) == 2
    solo.now_ms += solo.config.fetch_timeout_ms - 1
    assert named(solo) == 2
    solo.now_ms += 1
    assert named(solo) is None


def test_who_cannot_fetch_hears_its_leader_all_the_same() -> None:
    """A voter with a full disk does not fetch, and its leader keeps sending BeginQuorumEpoch.

    Clients of the voter are sent to this leader, whether the voter follows the leader or has given up waiting for
    answers. Other voters' word is not enough.
    """
    solo, _ = follower(1, 1)
    solo.step(DamageFound())
    seen = set()
    for _ in range(20):
        solo.wait(300)
        solo.request(BeginQuorumEpochRequest(key(2), solo.core.me, solo.core.epoch))
        for _ in range(6):
            solo.wait(50)
            seen.add(solo.core.role)
            assert named(solo) == 2
    assert seen == {Role.FOLLOWER, Role.UNATTACHED}
    told_ms = solo.now_ms - 300
    solo.now_ms += solo.config.fetch_timeout_ms
    assert named(solo) is None
    assert solo.core.followed(solo.now_ms).since_ms == told_ms, "it was heard then, though it answered no fetch"
    solo.request(EndQuorumEpochRequest(key(2), solo.core.epoch, ()))
    assert named(solo) is None, "it has said that it leads no more"
    assert solo.core.followed(solo.now_ms).since_ms == solo.now_ms


def test_a_leader_that_only_others_name_is_none_yet() -> None:
    """The leader may be gone for as long as the other voters have not noticed."""
    solo, _ = follower(1, 1)
    asked = requests(solo.wait(solo.config.fetch_timeout_ms + 10), VoteRequest)[0].request
    assert isinstance(asked, VoteRequest)
    solo.respond(3, asked, VoteResponse(ErrorCode.NONE, solo.core.epoch + 1, 2, vote_granted=False))
    assert (solo.core.role, solo.core.leader_id, named(solo)) == (Role.FOLLOWER, 2, None)


def test_a_leader_that_is_only_remembered_is_none() -> None:
    """The survivor of three gives up its leader, asks for pre-votes, waits again, and so on: the survivor follows no
    leader.

    Node 1 heard its leader at 1,000 ms. At 6,000 ms node 1 remembers leader 2, and has followed no leader for 5,000 ms.
    """
    solo, fetch = follower(1, 1)
    solo.good_answer(fetch)
    heard_ms = solo.now_ms
    roles = set()
    solo.wait(solo.config.fetch_timeout_ms)
    for _ in range(100):
        solo.wait(50)
        roles.add(solo.core.role)
        followed = solo.core.followed(solo.now_ms)
        assert followed.leader_id is None and followed.since_ms == heard_ms
        assert followed.reason
    assert roles == {Role.PROSPECTIVE, Role.FOLLOWER}
    assert solo.core.leader_id == 2, "for elections it is still the leader that it knew"


def test_the_reason_names_the_voters_that_do_not_answer() -> None:
    """And the refusing voters: an operator sees the voters missing for a majority."""
    solo, fetch = follower(1, 1)
    solo.good_answer(fetch)
    asked = requests(solo.wait(solo.config.fetch_timeout_ms + 100), VoteRequest)
    assert solo.core.role is Role.PROSPECTIVE
    reason = solo.core.followed(solo.now_ms).reason
    assert "it no longer hears controller 2" in reason and "2, 3 do not answer" in reason

    request = next(each.request for each in asked if each.destination == 3)
    assert isinstance(request, VoteRequest)
    solo.respond(3, request, VoteResponse(ErrorCode.NONE, solo.core.epoch, None, vote_granted=False))
    reason = solo.core.followed(solo.now_ms).reason
    assert "2 does not answer" in reason and "3 refuses" in reason


def test_a_voter_that_answers_with_an_error_is_not_called_silent() -> None:
    """Node 1 has the generation before a recovery. Controller 3 runs, and refuses node 1; only controller 2 is silent. An
    operator who reads that 3 does not answer looks at the network, and not at the log that names the generations.
    """
    solo, fetch = follower(1, 1)
    solo.good_answer(fetch)
    asked = requests(solo.wait(solo.config.fetch_timeout_ms + 100), VoteRequest)
    request = next(each.request for each in asked if each.destination == 3)
    assert isinstance(request, VoteRequest)
    error = ErrorCode.INVALID_CONTROL_GENERATION
    solo.respond(3, request, VoteResponse(error, solo.core.epoch, None, vote_granted=False))
    assert "2 does not answer and 3 answers without a vote" in solo.core.followed(solo.now_ms).reason

    again = next(each.request for each in requests(solo.wait(100), VoteRequest) if each.destination == 3)
    solo.step(RequestFailed(3, again, Failure.TIMED_OUT))
    assert "2, 3 do not answer" in solo.core.followed(solo.now_ms).reason


def test_a_follower_whose_leader_is_seen_gone_says_so_at_once() -> None:
    """A refused reconnect is enough proof for a report, too."""
    solo, fetch = follower(1, 1)
    solo.good_answer(fetch, successors=(3, 1))
    solo.step(PeerRefused(2))
    assert solo.core.role is Role.FOLLOWER and named(solo) is None
    assert "has stopped" in solo.core.followed(solo.now_ms).reason


def test_a_leader_seen_gone_is_not_named_again_before_it_is_heard_again() -> None:
    """A report must not change to and fro within one fetch timeout: a load balancer would follow each change.

    1. Leader 2 begins epoch 3 at 1,000 ms. At 1,100 ms its port refuses node 1: the process of leader 2 seems to be gone.
    2. Node 1 asks for pre-votes. Voter 3 still trusts leader 2, and refuses.
    3. Node 1 returns to leader 2 at 1,600 ms at the latest, and still names no leader.
    4. The process lives: leader 2 sends BeginQuorumEpoch once more, and node 1 names leader 2.
    """
    solo, fetch = follower(1, 1)
    began_ms = solo.now_ms
    solo.good_answer(fetch, successors=(1, 3))
    solo.wait(100)
    asked = requests([*solo.step(PeerRefused(2)), *solo.wait(1)], VoteRequest)
    request = next(each.request for each in asked if each.destination == 3)
    assert isinstance(request, VoteRequest) and solo.core.role is Role.PROSPECTIVE
    solo.respond(3, request, VoteResponse(ErrorCode.NONE, solo.core.epoch, None, vote_granted=False))
    roles = set()
    while solo.now_ms - began_ms < solo.config.fetch_timeout_ms - 1:
        roles.add(solo.core.role)
        assert named(solo) is None
        solo.wait(1)
    assert roles == {Role.PROSPECTIVE, Role.FOLLOWER}

    solo.request(BeginQuorumEpochRequest(key(2), solo.core.me, solo.core.epoch))
    assert named(solo) == 2


def test_who_has_just_started_follows_nobody() -> None:
    """The leader named on disk may have led a week ago. The node counts from its start."""
    solo = Solo(epochs=(1, 1), election=ElectionState(3, None, 2))
    solo.wait(100)
    followed = solo.core.followed(solo.now_ms)
    assert solo.core.leader_id == 2 and followed.leader_id is None
    assert followed.since_ms == 1_000


def test_a_leader_is_one_while_a_majority_has_lately_followed_it() -> None:
    """A paused leader must not call itself the leader on waking up. A new leader gets some time without proof."""
    solo = leader()
    assert named(solo) == 1, "just elected"
    solo = working_leader()
    began_ms = solo.core.last_quorum_round_began_ms
    assert began_ms is not None and named(solo) == 1
    solo.now_ms = began_ms + solo.config.check_quorum_ms - 1
    assert named(solo) == 1
    solo.now_ms += 1
    followed = solo.core.followed(solo.now_ms)
    assert solo.core.is_leading and followed.leader_id is None and followed.since_ms == began_ms
    assert "majority" in followed.reason


def test_a_lone_leader_needs_nobody() -> None:
    solo = Solo(epochs=(1,), election=ElectionState(1, None, None), voters=1)
    solo.now_ms += 1_000_000
    assert solo.core.is_leading and named(solo) == 1


def test_an_idle_quorum_never_doubts_its_leader() -> None:
    """Long polls of 150 ms are enough proof: in twenty idle seconds, every report names the leader."""
    cluster = Cluster(3).boot_all()
    leader_id = cluster.elect().id
    cluster.run(1_000)
    for _ in range(20_000 // 25):
        cluster.run(25)
        said = {node_id: cluster[node_id].up.followed(cluster.now_ms).leader_id for node_id in (1, 2, 3)}
        assert said == dict.fromkeys((1, 2, 3), leader_id)


def test_a_quorum_that_has_lost_its_majority_soon_says_so_everywhere() -> None:
    """A follower dies, then the leader. Within a fetch timeout the last node reports no leader, and never another."""
    cluster = Cluster(3).boot_all()
    leader_id = cluster.elect().id
    cluster.run(1_000)
    follower_id, last_id = (node_id for node_id in (1, 2, 3) if node_id != leader_id)
    cluster.crash(follower_id)
    cluster.run(2_000)
    assert cluster[last_id].up.followed(cluster.now_ms).leader_id == leader_id
    cluster.crash(leader_id)
    cluster.run(RaftConfig().fetch_timeout_ms)
    for _ in range(200):
        assert cluster[last_id].up.followed(cluster.now_ms).leader_id is None
        cluster.run(25)
