"""The time since a node heard its leader: a client judges the age of local reads by this time."""

from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.messages import BeginQuorumEpochRequest
from tests.core.situations import follower, working_leader
from tests.core.solo import Solo, key


def ages(solo: Solo, duration_ms: int) -> list[int]:
    """The reported ages while no node answers."""
    said = []
    for _ in range(duration_ms // 50):
        solo.wait(50)
        assert solo.core.leader_heard_ms is not None
        said.append(solo.now_ms - solo.core.leader_heard_ms)
    return said


def test_the_age_grows_as_long_as_nobody_answers() -> None:
    """A follower which is cut off gives up its leader, asks for pre-votes, and returns, over and over, without any
    contact.
    """
    solo, fetch = follower(1, 1)
    solo.good_answer(fetch)
    assert ages(solo, 5_000) == list(range(50, 5_050, 50))


def test_a_later_successor_has_heard_no_later() -> None:
    """A later successor only waits longer before giving up."""
    solo, fetch = follower(1, 1)
    solo.good_answer(fetch, successors=(3, 1))
    assert solo.core.leader_heard_ms == solo.now_ms


def test_who_has_just_started_has_heard_nobody() -> None:
    """The node follows its former leader, which may be a week old."""
    solo = Solo(epochs=(1, 1), election=ElectionState(3, None, 2))
    assert solo.core.leader_id == 2 and solo.core.leader_heard_ms is None


def test_a_leader_that_makes_itself_known_has_answered_nothing_yet() -> None:
    """A leader keeps sending BeginQuorumEpoch to a voter with a full disk. Such a message brings no records."""
    solo, fetch = follower(1, 1)
    assert solo.core.leader_heard_ms is None
    solo.good_answer(fetch)
    heard_ms = solo.now_ms
    solo.wait(300)
    solo.request(BeginQuorumEpochRequest(key(2), solo.core.me, solo.core.epoch))
    assert solo.core.leader_heard_ms == heard_ms


def test_a_leader_that_was_cut_off_has_heard_a_majority_last() -> None:
    """Also after the leadership, and if the node had heard no leader before."""
    solo = working_leader()
    led_ms = solo.core.leader_heard_ms
    assert led_ms is not None
    assert ages(solo, 5_000)[-1] == solo.now_ms - led_ms
    assert not solo.core.is_leading
