"""The end of the epochs: no message takes a node there, and a node near the end reports the problem."""

from collections.abc import Callable

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import EPOCH_MAX
from quorum.core.protocol.effects import ElectionState, Reply, SaveElectionState, SendRequest
from quorum.core.protocol.epochs import EPOCHS_AHEAD_MAX, EPOCHS_AHEAD_OF_REPLY_MAX, problem, reach, reach_of_reply
from quorum.core.protocol.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchResponse,
    Request,
    VoteRequest,
    VoteResponse,
)
from quorum.core.roles import Role
from tests.core.cluster import Cluster
from tests.core.solo import Solo, fetch_in, key, none_of, only, problem_texts


def standing_in(epoch: int, **kwargs: object) -> Solo:
    """A voter of three, unattached, with an empty log."""
    return Solo(election=ElectionState(epoch, None, None), **kwargs)  # type: ignore[arg-type]


def forged(solo: Solo, epoch: int) -> VoteRequest:
    return VoteRequest(key(2), solo.core.me, epoch, 0, 0, pre_vote=False)


def test_the_table_of_reach() -> None:
    """As in the head of `epochs`: after any allowed raise, a next epoch stays within reach, except after the very last."""
    assert reach(0) == reach(7) == reach(EPOCH_MAX - 2 * EPOCHS_AHEAD_MAX) == EPOCHS_AHEAD_MAX
    assert [reach(EPOCH_MAX - left) for left in range(7)] == [0, 0, 1, 1, 2, 2, 3]
    assert reach_of_reply(7) == EPOCHS_AHEAD_OF_REPLY_MAX
    for left in (2, 3, 10, EPOCHS_AHEAD_MAX, 1 << 40):
        assert EPOCH_MAX - left + reach_of_reply(EPOCH_MAX - left) < EPOCH_MAX


def test_forged_votes_past_32_bits_end_no_elections() -> None:
    """With 32 bits, 2,148 requests, each a million ahead, ended all elections for ever."""
    solo = standing_in(3)
    for _ in range(2_200):
        solo.request(forged(solo, solo.core.epoch + EPOCHS_AHEAD_MAX))
    assert solo.core.epoch == 3 + 2_200 * EPOCHS_AHEAD_MAX > 1 << 31
    solo.elect()
    assert solo.core.is_leading and solo.log.epoch_below(solo.log.end) > 1 << 31 and problem_texts(solo.core) == ""


REQUESTS: dict[str, Callable[[int], Request]] = {
    "vote": lambda epoch: VoteRequest(key(2), key(1), epoch, 0, 0, pre_vote=False),
    "pre-vote": lambda epoch: VoteRequest(key(2), key(1), epoch, 0, 0, pre_vote=True),
    "begin": lambda epoch: BeginQuorumEpochRequest(key(2), key(1), epoch),
    "end": lambda epoch: EndQuorumEpochRequest(key(2), epoch, ()),
}


@pytest.mark.parametrize("left", [0, 1, 2, 5, 1_000, 3 * EPOCHS_AHEAD_MAX])
@pytest.mark.parametrize("kind", REQUESTS)
def test_no_request_takes_more_than_half_of_what_is_left(kind: str, left: int) -> None:
    """A request beyond is refused without a write; a request within reach is accepted.

    No node ever reaches the last epoch.
    """
    mine = EPOCH_MAX - left
    farthest = mine + reach(mine)
    for epoch in [each for each in (farthest + 1, EPOCH_MAX - 1, EPOCH_MAX) if farthest < each <= EPOCH_MAX]:
        solo = standing_in(mine)
        effects = solo.request(REQUESTS[kind](epoch))
        assert only(Reply, effects).response.error is ErrorCode.INVALID_REQUEST, epoch
        assert none_of(SaveElectionState, effects) and solo.core.epoch == mine
    if farthest > mine and kind != "pre-vote":
        solo = standing_in(mine)
        solo.request(REQUESTS[kind](farthest))
        assert solo.core.epoch == farthest < EPOCH_MAX


def test_a_reply_does_not_bring_a_node_to_the_end_either() -> None:
    """A reply may be far ahead, because the node may have been away. A reply naming the last epoch is forged."""
    solo = standing_in(3)
    fetch = solo.follow()
    effects = solo.respond(2, fetch, FetchResponse(ErrorCode.UNKNOWN_LEADER_EPOCH, EPOCH_MAX, 3, fetch.number))
    assert none_of(SaveElectionState, effects) and solo.core.epoch == 3 and solo.core.leader_id == 2

    fetch = fetch_in(solo.wait(solo.config.retry_backoff_ms))
    solo.respond(2, fetch, FetchResponse(ErrorCode.UNKNOWN_LEADER_EPOCH, 1_000_000_003, 3, fetch.number))
    assert (solo.core.epoch, solo.core.leader_id) == (1_000_000_003, 3)


def test_replies_do_not_walk_the_epochs_to_their_end() -> None:
    """Each may raise the epoch by half of what was left: after 62 answers of a stranger at a voter's address there was no
    leader for ever."""
    solo = standing_in(3)
    for step in range(1, 1_001):
        epoch = solo.core.epoch
        vote = VoteRequest(solo.core.me, key(2), epoch, 0, 0, pre_vote=True)
        solo.respond(2, vote, VoteResponse(ErrorCode.NONE, epoch + (EPOCH_MAX - epoch) // 2, None, vote_granted=False))
        assert solo.core.epoch == 3 + step * EPOCHS_AHEAD_OF_REPLY_MAX and solo.core.leader_id is None
    solo.elect()
    assert solo.core.is_leading and problem_texts(solo.core) == ""


def test_a_quorum_meets_again_in_the_epoch_of_a_voter_that_was_led_far_ahead() -> None:
    """The others climb by the replies of that voter, a billion at a time."""
    cluster = Cluster(3)
    cluster[3].election = ElectionState(40 * EPOCHS_AHEAD_OF_REPLY_MAX, None, None)
    leader = cluster.boot_all().elect(120_000)
    assert cluster.run(120_000, until=lambda: len({node.election.epoch for node in cluster.nodes.values()}) == 1)
    assert cluster.elect().election.epoch >= 40 * EPOCHS_AHEAD_OF_REPLY_MAX, leader


@pytest.mark.parametrize("voters", [1, 3])
def test_a_node_that_has_no_next_epoch_does_not_run_and_says_so(voters: int) -> None:
    """The node keeps its epoch, writes nothing, and no timer fires over and over. It would follow any leader."""
    for leader_id in (None, 1):
        solo = Solo(election=ElectionState(EPOCH_MAX - 1, None, leader_id), voters=voters)
        effects = [*solo.started, *solo.wait(60_000)]
        assert none_of(SaveElectionState, effects)
        assert not [e for e in effects if isinstance(e, SendRequest) and isinstance(e.request, VoteRequest)]
        assert solo.core.role is (Role.RESIGNED if leader_id else Role.UNATTACHED)
        assert "no epoch is left, so this node cannot campaign" in problem_texts(solo.core)


def test_the_last_candidate_waits_for_the_votes_that_it_asked_for() -> None:
    """The candidate cannot try a later epoch.

    Asked again in this epoch, a voter back from a failure may still agree.
    """
    solo = standing_in(EPOCH_MAX - 2)
    asked = [e.request for e in solo.wait(600) if isinstance(e, SendRequest) and isinstance(e.request, VoteRequest)]
    solo.respond(2, asked[0], VoteResponse(ErrorCode.NONE, solo.core.epoch, None, vote_granted=True))
    assert solo.core.role is Role.CANDIDATE and solo.core.epoch == EPOCH_MAX - 1

    solo.wait(10_000)
    assert solo.core.role is Role.CANDIDATE and solo.core.epoch == EPOCH_MAX - 1
    vote = VoteRequest(solo.core.me, key(2), EPOCH_MAX - 1, 0, 0, pre_vote=False)
    solo.respond(2, vote, VoteResponse(ErrorCode.NONE, EPOCH_MAX - 1, None, vote_granted=True))
    assert solo.core.is_leading


def test_a_node_complains_as_soon_as_the_end_is_in_sight() -> None:
    assert problem(EPOCH_MAX - 2 * EPOCHS_AHEAD_MAX - 1) == ""
    assert problem(EPOCH_MAX - 2 * EPOCHS_AHEAD_MAX).startswith("the number of epochs left is 1,999,999")
    assert problem(EPOCH_MAX - 2).startswith("the number of epochs left is 1 ")
    assert problem(EPOCH_MAX - 1).startswith("no epoch is left")
