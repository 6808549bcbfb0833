"""A follower which fetches and still falls behind: its leader reports the problem, without flickering."""

from quorum.core.protocol.pace import WINDOW_MS
from tests.core.solo import Solo, problem_texts

EVERY_MS = 500


def working_leader() -> Solo:
    """A working leader with two followers, of which node 3 has every record."""
    solo = Solo()
    solo.elect()
    solo.fetch(2)
    solo.fetch(3)
    return solo


def live(solo: Solo, duration_ms: int, *, written: int, taken: int, at: int) -> int:
    """Every 500 ms, `written` records are written and follower 2 advances by `taken`, from `at` on.

    Returns the follower's end.
    """
    for _ in range(duration_ms // EVERY_MS):
        for _ in range(written):
            solo.append()
        at = min(solo.log.end, at + taken)
        solo.fetch(2, at, wait_ms=0)
        solo.fetch(3, wait_ms=0)
        solo.wait(EVERY_MS)
    return at


def test_a_follower_that_lacks_more_and_more_is_named_until_it_catches_up() -> None:
    """The follower receives one record for every two written; then the writes stop."""
    solo = working_leader()
    at = live(solo, WINDOW_MS, written=2, taken=1, at=solo.log.end)
    assert not problem_texts(solo.core)
    at = live(solo, 4 * EVERY_MS, written=2, taken=1, at=at)
    said = problem_texts(solo.core)
    assert said.startswith("voter 2 falls behind although it fetches")
    at = live(solo, WINDOW_MS // 2, written=2, taken=1, at=at)
    assert problem_texts(solo.core) == said, "the same words, or each of them would be a line in the log"
    live(solo, WINDOW_MS, written=0, taken=1, at=at)
    live(solo, EVERY_MS, written=0, taken=10_000, at=at)
    assert not problem_texts(solo.core)


def test_a_follower_that_is_far_behind_and_catches_up_is_no_problem() -> None:
    """The follower was away for long. The leader reports no problem, however long the catching up takes."""
    solo = working_leader()
    for _ in range(200):
        solo.append()
    live(solo, 5 * WINDOW_MS // 2, written=1, taken=2, at=1)
    assert not problem_texts(solo.core)


def test_bursts_do_not_flicker() -> None:
    """One second of ever larger bursts, then four seconds without writes: in each pause the follower catches up."""
    solo, at = working_leader(), 1
    for burst in range(13):
        at = live(solo, 1_000, written=4 + burst, taken=2, at=at)
        assert at < solo.log.end and not problem_texts(solo.core)
        at = live(solo, 4_000, written=0, taken=6, at=at)
        assert at == solo.log.end and not problem_texts(solo.core)


def test_a_follower_that_keeps_pace_under_constant_writing_is_no_problem() -> None:
    """The follower never has all records, and the write rate grows; but it always has all records reported to it."""
    solo = working_leader()
    for writes in (1, 2, 3):
        for _ in range(WINDOW_MS // EVERY_MS + 1):
            told = solo.log.end
            for _ in range(writes):
                solo.append()
            solo.fetch(2, told, wait_ms=0)
            solo.fetch(3, wait_ms=0)
            solo.wait(EVERY_MS)
            assert not problem_texts(solo.core)


def test_one_that_falls_silent_does_not_fall_behind() -> None:
    """A silent follower is reported as another problem."""
    solo = working_leader()
    live(solo, 2 * WINDOW_MS, written=2, taken=1, at=solo.log.end)
    assert problem_texts(solo.core)
    for _ in range(WINDOW_MS // EVERY_MS + 1):
        solo.fetch(3, wait_ms=0)
        solo.wait(EVERY_MS)
    assert solo.core.is_leading and not problem_texts(solo.core)


def test_a_new_leader_begins_with_no_opinion() -> None:
    """The former leader's judgement ended with its epoch."""
    solo = working_leader()
    live(solo, 2 * WINDOW_MS, written=2, taken=1, at=solo.log.end)
    assert problem_texts(solo.core)
    while solo.core.is_leading:
        solo.wait(1_000)
    assert not problem_texts(solo.core)
