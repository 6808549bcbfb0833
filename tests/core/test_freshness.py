"""How long ago a node heard its leader: whoever reads locally judges by it how old the answer may be."""

from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.messages import BeginQuorumEpochRequest
from tests.core.situations import follower, working_leader
from tests.core.solo import Solo, key


def ages(solo: Solo, duration_ms: int) -> list[int]:
    """What it says while nobody answers anything."""
    said = []
    for _ in range(duration_ms // 50):
        solo.wait(50)
        assert solo.core.leader_heard_ms is not None
        said.append(solo.now_ms - solo.core.leader_heard_ms)
    return said


def test_the_age_grows_as_long_as_nobody_answers() -> None:
    """Cut off, a follower gives up on its leader, asks for votes, and goes back to it, over and over: it hears nobody."""
    solo, fetch = follower(1, 1)
    solo.good_answer(fetch)
    assert ages(solo, 5_000) == list(range(50, 5_050, 50))


def test_a_later_successor_has_heard_no_later() -> None:
    """It waits longer before it gives up, which is another matter."""
    solo, fetch = follower(1, 1)
    solo.good_answer(fetch, successors=(3, 1))
    assert solo.core.leader_heard_ms == solo.now_ms


def test_who_has_just_started_has_heard_nobody() -> None:
    """It follows whom it followed before, and that may be a week ago."""
    solo = Solo(epochs=(1, 1), election=ElectionState(3, None, 2))
    assert solo.core.leader_id == 2 and solo.core.leader_heard_ms is None


def test_a_leader_that_makes_itself_known_has_answered_nothing_yet() -> None:
    """It does so over and over to a voter that does not fetch, because its disk is full, say: nothing new comes with that."""
    solo, fetch = follower(1, 1)
    assert solo.core.leader_heard_ms is None
    solo.good_answer(fetch)
    heard_ms = solo.now_ms
    solo.wait(300)
    solo.request(BeginQuorumEpochRequest(key(2), solo.core.me, solo.core.epoch))
    assert solo.core.leader_heard_ms == heard_ms


def test_a_leader_that_was_cut_off_has_heard_a_majority_last() -> None:
    """Also when it leads no more, and when it had heard nobody before it led."""
    solo = working_leader()
    led_ms = solo.core.leader_heard_ms
    assert led_ms is not None
    assert ages(solo, 5_000)[-1] == solo.now_ms - led_ms
    assert not solo.core.is_leading
