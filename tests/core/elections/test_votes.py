"""Votes as tables: every role, every kind of request, and the code of each refusal."""

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import EPOCH_MAX, OffsetAndEpoch, ReplicaKey
from quorum.core.protocol.effects import Effect, ElectionState, Reply, SaveElectionState, StopNode
from quorum.core.protocol.epochs import EPOCHS_AHEAD_MAX
from quorum.core.protocol.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, VoteRequest, VoteResponse
from quorum.core.roles import Role
from quorum.core.votes import is_up_to_date
from tests.core.cluster import directory
from tests.core.solo import Solo, key, none_of, only


def ask(solo: Solo, *, epoch: int, end: int, last_epoch: int, pre_vote: bool, candidate: int = 2) -> list[Effect]:
    return solo.request(VoteRequest(key(candidate), solo.core.me, epoch, last_epoch, end, pre_vote))


def answer(effects: list[Effect]) -> VoteResponse:
    response = only(Reply, effects).response
    assert isinstance(response, VoteResponse)
    return response


def unattached() -> Solo:
    return Solo(epochs=(1, 1), election=ElectionState(3, None, None))


def voted_for_3() -> Solo:
    return Solo(epochs=(1, 1), election=ElectionState(3, key(3), None))


def voted_for_2() -> Solo:
    return Solo(epochs=(1, 1), election=ElectionState(3, key(2), None))


def prospective() -> Solo:
    solo = unattached()
    solo.wait(500)
    assert solo.core.role in (Role.PROSPECTIVE, Role.UNATTACHED)
    while solo.core.role is not Role.PROSPECTIVE:
        solo.wait(10)
    return solo


def prospective_with_a_leader() -> Solo:
    solo = Solo(epochs=(1, 1), election=ElectionState(3, None, 3))
    solo.wait(solo.config.fetch_timeout_ms)
    assert solo.core.role is Role.PROSPECTIVE
    return solo


def new_follower() -> Solo:
    solo = Solo(epochs=(1, 1), election=ElectionState(3, None, None))
    solo.follow(3)
    return solo


def restarted_follower() -> Solo:
    return Solo(epochs=(1, 1), election=ElectionState(3, None, 3))


def old_follower() -> Solo:
    solo = Solo(epochs=(1, 1), election=ElectionState(3, None, None))
    solo.good_answer(solo.follow(3), leader_id=3)
    assert solo.core.role is Role.FOLLOWER
    return solo


def leader() -> Solo:
    solo = Solo(epochs=(1, 1), election=ElectionState(2, None, None))
    solo.elect()
    assert solo.core.epoch == 3
    return solo


def resigned() -> Solo:
    return Solo(epochs=(1, 1), election=ElectionState(3, key(1), 1))


def observer() -> Solo:
    return Solo(epochs=(1, 1), election=ElectionState(3, None, None), me=ReplicaKey(1, directory(1, generation=7)))


#                     vote   pre-vote
GRANTS = [
    (unattached,      True,  True),
    (voted_for_2,     True,  True),
    (voted_for_3,     False, True),
    (prospective,     True,  True),
    (prospective_with_a_leader, False, True),
    (new_follower,    False, True),
    (restarted_follower, False, False),
    (old_follower,    False, False),
    (leader,          False, False),
    (resigned,        False, True),
    (observer,        True,  True),
]  # fmt: skip


@pytest.mark.parametrize(("make", "vote", "pre_vote"), GRANTS, ids=lambda value: getattr(value, "__name__", ""))
def test_who_grants_what(make: type[Solo], vote: bool, pre_vote: bool) -> None:
    """A candidate with an equal log asks in the node's own epoch: the table at the head of `quorum/core/votes.py`."""
    solo = make()
    # (The leader has appended to its log; the candidate has all records.)
    end, last_epoch = solo.log.end, solo.log.epoch_below(solo.log.end)

    assert answer(ask(make(), epoch=4, end=9, last_epoch=3, pre_vote=False)).vote_granted
    assert answer(ask(solo, epoch=3, end=end, last_epoch=min(last_epoch, 2), pre_vote=False)).vote_granted is vote

    solo = make()
    before = (solo.core.epoch, solo.core.voted_for, solo.core.role)
    effects = ask(solo, epoch=3, end=end, last_epoch=last_epoch, pre_vote=True)
    assert answer(effects).vote_granted is pre_vote
    assert none_of(SaveElectionState, effects)
    assert before == (solo.core.epoch, solo.core.voted_for, solo.core.role)


@pytest.mark.parametrize("pre_vote", [False, True])
@pytest.mark.parametrize("make", [unattached, prospective, new_follower, resigned])
def test_nobody_votes_for_a_log_that_lacks_something(make: type[Solo], pre_vote: bool) -> None:
    """Raft 5.4.1: this rule keeps committed records in every later leader's log."""
    assert not answer(ask(make(), epoch=3, end=1, last_epoch=1, pre_vote=pre_vote)).vote_granted


@pytest.mark.parametrize(
    ("candidate", "mine", "expected"),
    [
        ((5, 2), (5, 2), True),
        ((6, 2), (5, 2), True),
        ((4, 2), (5, 2), False),
        ((1, 3), (9, 2), True),
        ((9, 2), (1, 3), False),
        ((0, 0), (0, 0), True),
    ],
)
def test_up_to_date(candidate: tuple[int, int], mine: tuple[int, int], expected: bool) -> None:
    """Raft 5.4.1: the later last epoch wins, then the longer log."""
    assert is_up_to_date(OffsetAndEpoch(*candidate), OffsetAndEpoch(*mine)) is expected


BAD = [
    ("older epoch", VoteRequest(key(2), key(1), 2, 1, 5, False), ErrorCode.FENCED_LEADER_EPOCH),
    ("older epoch, pre-vote", VoteRequest(key(2), key(1), 2, 1, 5, True), ErrorCode.FENCED_LEADER_EPOCH),
    ("negative end", VoteRequest(key(2), key(1), 4, 1, -1, False), ErrorCode.INVALID_REQUEST),
    ("negative last epoch", VoteRequest(key(2), key(1), 4, -1, 5, False), ErrorCode.INVALID_REQUEST),
    ("last epoch is the epoch", VoteRequest(key(2), key(1), 4, 4, 5, False), ErrorCode.INVALID_REQUEST),
    ("last epoch above, pre-vote", VoteRequest(key(2), key(1), 4, 5, 5, True), ErrorCode.INVALID_REQUEST),
    ("negative id", VoteRequest(ReplicaKey(-1, bytes(16)), key(1), 4, 1, 5, False), ErrorCode.INVALID_REQUEST),
    ("from myself", VoteRequest(key(1), key(1), 4, 1, 5, False), ErrorCode.INVALID_REQUEST),
    ("the last epoch of all", VoteRequest(key(2), key(1), EPOCH_MAX, 1, 5, False), ErrorCode.INVALID_REQUEST),
    (
        "an epoch out of reach",
        VoteRequest(key(9), key(1), 4 + EPOCHS_AHEAD_MAX, 1, 5, False),
        ErrorCode.INVALID_REQUEST,
    ),
    ("for another node", VoteRequest(key(2), key(3), 4, 1, 5, False), ErrorCode.INVALID_VOTER_KEY),
    (
        "for my old disk",
        VoteRequest(key(2), ReplicaKey(1, directory(1, 9)), 4, 1, 5, False),
        ErrorCode.INVALID_VOTER_KEY,
    ),
]


@pytest.mark.parametrize(("name", "request_", "error"), BAD, ids=[row[0] for row in BAD])
def test_a_bad_request_is_named_and_changes_nothing(name: str, request_: VoteRequest, error: ErrorCode) -> None:
    """Each refusal has its own code, and the epoch of a refused request is not adopted."""
    solo = unattached()
    effects = solo.request(request_)

    assert answer(effects).error is error
    assert not answer(effects).vote_granted
    assert none_of(SaveElectionState, effects)
    assert (solo.core.epoch, solo.core.voted_for) == (3, None)


STRANGERS = [ReplicaKey(77, bytes(16)), ReplicaKey(1, directory(1, 9)), ReplicaKey(3, directory(3, 9))]


@pytest.mark.parametrize("ahead", [0, 1, EPOCHS_AHEAD_MAX + 1], ids=["now", "next", "far"])
@pytest.mark.parametrize("stranger", STRANGERS, ids=["nobody", "my id", "another's id"])
@pytest.mark.parametrize("make", [unattached, prospective, new_follower, old_follower, leader, resigned])
def test_a_stranger_neither_begins_nor_ends_an_epoch(make: type[Solo], stranger: ReplicaKey, ahead: int) -> None:
    """One packet with a wrong id must not look like a second leader, which would stop the node."""
    solo = make()
    before = (solo.core.epoch, solo.core.leader_id, solo.core.role)
    epoch = solo.core.epoch + ahead
    for request in (
        BeginQuorumEpochRequest(stranger, solo.core.me, epoch),
        EndQuorumEpochRequest(stranger, epoch, (key(1),)),
    ):
        effects = solo.request(request)

        assert none_of(StopNode, effects)
        assert none_of(SaveElectionState, effects)
        wanted = ErrorCode.INVALID_REQUEST if ahead > EPOCHS_AHEAD_MAX else ErrorCode.INVALID_VOTER_KEY
        assert only(Reply, effects).response.error is wanted
        assert before == (solo.core.epoch, solo.core.leader_id, solo.core.role)


def test_a_vote_is_on_disk_before_it_is_spoken() -> None:
    """Raft 5.1, R2: a node which forgets its vote can vote twice. Epoch and vote cost one save."""
    effects = ask(unattached(), epoch=9, end=5, last_epoch=8, pre_vote=False)
    kinds = [type(effect) for effect in effects]

    assert only(SaveElectionState, effects).state == ElectionState(9, key(2), None)
    assert kinds.index(SaveElectionState) < kinds.index(Reply)


def test_a_higher_epoch_is_taken_in_although_the_vote_is_denied() -> None:
    """Raft 5.1: the voter adopts the epoch, and saves the epoch before the answer leaves."""
    solo = unattached()
    effects = ask(solo, epoch=9, end=1, last_epoch=1, pre_vote=False)

    assert only(SaveElectionState, effects).state == ElectionState(9, None, None)
    assert answer(effects) == VoteResponse(ErrorCode.NONE, 9, None, vote_granted=False)


def test_a_vote_gives_the_candidate_its_time() -> None:
    """Raft 5.2: a granted vote restarts the voter's election timer."""
    solo = unattached()
    before = solo.core.next_deadline_ms()
    assert before is not None
    solo.now_ms += 200
    ask(solo, epoch=3, end=5, last_epoch=2, pre_vote=False)

    solo.wait(solo.config.election_timeout_min_ms - 1)
    assert solo.core.role is Role.UNATTACHED


# --- strangers as candidates -----------------------------------------------------------------------------------------

STRANGER = ReplicaKey(4, directory(4))


def test_a_strangers_vote_request_costs_no_healthy_leader_its_term() -> None:
    """Neither the leader nor a follower with contact to the leader adopts the epoch; in KRaft an election follows."""
    for make in (leader, old_follower):
        solo = make()
        end, last_epoch = solo.log.end, solo.log.epoch_below(solo.log.end)
        effects = solo.request(VoteRequest(STRANGER, solo.core.me, 4, last_epoch, end, pre_vote=False))
        assert not answer(effects).vote_granted and none_of(SaveElectionState, effects)
        assert solo.core.epoch == 3


def test_a_voter_may_still_depose_a_leader_once() -> None:
    """The voter is in a higher durable epoch.

    A voter of the set is heard; otherwise the voter would be shut out for ever.
    """
    solo = leader()
    solo.request(VoteRequest(key(2), solo.core.me, 4, 3, 99, pre_vote=False))
    assert solo.core.epoch == 4


def test_a_stranger_gets_a_vote_where_no_leader_answers() -> None:
    """This node's set may be the older one: a voter added later may be the one the others wait for."""
    for make in (unattached, new_follower, prospective):
        solo = make()
        effects = solo.request(VoteRequest(STRANGER, solo.core.me, 4, 3, 99, pre_vote=False))
        assert answer(effects).vote_granted


def test_a_restarted_follower_gives_its_leader_time_before_it_helps_another() -> None:
    """A node without contact to the leader asks a restarted one, which would have agreed to any candidate."""
    solo = restarted_follower()
    end, last_epoch = solo.log.end, solo.log.epoch_below(solo.log.end)
    pre_vote = VoteRequest(key(2), solo.core.me, 3, last_epoch, end, pre_vote=True)
    assert not answer(solo.request(pre_vote)).vote_granted
    solo.wait(solo.config.fetch_timeout_ms)
    assert answer(solo.request(pre_vote)).vote_granted
