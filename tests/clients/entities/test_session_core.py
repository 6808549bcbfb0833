"""The keeper of a session: when it sends, where it goes on, and how long the session is safe."""

from hypothesis import given
from hypothesis import strategies as st

from clients.entities.core.session_core import (
    BACKOFF_FIRST_MS,
    Effect,
    OpenStream,
    SendKeepAlive,
    SessionCore,
    SessionEnded,
)

TIMEOUT_MS = 9_000
OPENED_MS = 7_200
"""How long a session is safe by its opening: a fifth is left for clocks that run apart."""


def opened_at_0() -> SessionCore:
    core = SessionCore(TIMEOUT_MS, 0)
    assert core.step(0) == [OpenStream(1, None, False), SendKeepAlive(1, 1)]
    return core


def test_a_keep_alive_leaves_every_third_of_the_timeout() -> None:
    core = opened_at_0()
    core.kept(1, 1, TIMEOUT_MS, 40)
    assert core.next_ms() == 3_000
    assert core.step(2_999) == []
    assert core.step(3_000) == [SendKeepAlive(1, 2)]
    core.kept(1, 2, TIMEOUT_MS, 3_040)
    assert core.next_ms() == 6_000


def test_the_lease_counts_from_the_time_of_sending() -> None:
    """The controller may have renewed the session when the message had just left, so a slow answer does not lengthen the
    lease."""
    core = opened_at_0()
    core.kept(1, 1, TIMEOUT_MS, 10)
    core.step(3_000)
    core.kept(1, 2, TIMEOUT_MS, 4_900)
    assert core.safe_until_ms == 3_000 + TIMEOUT_MS
    assert core.is_safe(11_999)
    assert not core.is_safe(12_000)


def test_a_shorter_lease_does_not_take_back_a_longer_promise() -> None:
    core = opened_at_0()
    core.kept(1, 1, TIMEOUT_MS, 10)
    core.step(3_000)
    core.kept(1, 2, 1_000, 3_010)
    assert core.safe_until_ms == TIMEOUT_MS


def test_the_end_says_whether_the_session_was_silent_or_was_closed() -> None:
    """Between the sending of the last message that was answered and the end lies more than the timeout, or the session was
    closed."""
    silent, closed = opened_at_0(), opened_at_0()
    for core in (silent, closed):
        core.kept(1, 1, TIMEOUT_MS, 10)
        core.step(3_000)
        core.kept(1, 2, TIMEOUT_MS, 3_010)
        core.step(6_000)
    closed.unknown(6_010)
    assert closed.ended == "somebody has closed it: the controllers had kept it alive 3 s before"
    silent.unknown(14_500)
    assert silent.ended == "no keep-alive was answered for 11.5 s, and its timeout is 9 s"
    silent.unknown(20_000)
    assert silent.ended is not None and "11.5 s" in silent.ended


def test_an_answer_without_a_lease_is_asked_for_again_soon() -> None:
    """A controller that has not confirmed its leadership says 0: the session is not lost, and not safer than before."""
    core = opened_at_0()
    core.kept(1, 1, 0, 10)
    assert core.safe_until_ms == OPENED_MS
    assert core.next_ms() == 260
    assert core.step(260) == [SendKeepAlive(1, 2)]


def test_an_overdue_answer_sends_the_keeper_to_the_next_node() -> None:
    core = opened_at_0()
    assert core.next_ms() == 2_000
    assert core.step(2_000) == []
    assert core.next_ms() == 2_000 + BACKOFF_FIRST_MS
    assert core.step(2_020) == [OpenStream(2, None, True), SendKeepAlive(2, 2)]
    core.kept(1, 1, TIMEOUT_MS, 2_030)  # the answer of the former stream came late
    assert core.safe_until_ms == OPENED_MS
    core.kept(2, 2, TIMEOUT_MS, 2_040)
    assert core.safe_until_ms == 2_020 + TIMEOUT_MS


def test_a_named_leader_is_asked_at_once_and_two_nodes_that_name_each_other_after_a_pause() -> None:
    core = opened_at_0()
    core.refused(1, "c2:1", 5)
    assert core.step(5) == [OpenStream(2, "c2:1", False), SendKeepAlive(2, 2)]
    core.refused(2, "c1:1", 10)
    assert core.step(10) == []
    assert core.step(10 + BACKOFF_FIRST_MS) == [OpenStream(3, "c1:1", False), SendKeepAlive(3, 3)]


def test_a_cluster_without_a_leader_is_asked_node_by_node_with_growing_pauses() -> None:
    core, times, now_ms = opened_at_0(), list[int](), 0
    for _ in range(6):
        core.refused(core._stream, None, now_ms)
        now_ms = core.next_ms() or 0
        times.append(now_ms)
        assert core.step(now_ms)[0] == OpenStream(core._stream, None, True)
    assert times == [20, 60, 140, 300, 500, 700]


def test_a_lapsed_lease_is_not_the_end_of_the_session() -> None:
    """Nobody answers for a minute. A new leader gives each session its whole timeout anew, so it may still be there."""
    core, now_ms = opened_at_0(), 0
    while now_ms < 60_000:
        core.step(now_ms)
        now_ms = core.next_ms() or 60_000
    assert not core.is_safe(60_000)
    assert core.ended is None
    effects = core.step(now_ms) or core.step(core.next_ms() or 0)
    sent = next(effect for effect in effects if isinstance(effect, SendKeepAlive))
    core.kept(sent.number, sent.message_id, TIMEOUT_MS, now_ms + 30)
    assert core.is_safe(now_ms + 30)


def test_only_a_controller_ends_a_session_and_the_owner_hears_it_once() -> None:
    core = opened_at_0()
    core.end("expired")
    assert not core.is_safe(1)
    assert core.step(1) == [SessionEnded("expired")]
    assert core.step(2) == []
    assert core.next_ms() is None


@given(
    st.lists(st.tuples(st.sampled_from(["kept", "zero", "hint", "refused", "broke", "nothing"]), st.integers(0, 4_000)))
)
def test_in_any_history_the_session_is_never_safe_beyond_the_last_promise(news: list[tuple[str, int]]) -> None:
    """The dumb twin: a session is safe until its opening plus four fifths, or a kept message plus its lease. There is
    at most one message in flight, and always a next time."""
    core, now_ms, promise_ms = SessionCore(TIMEOUT_MS, 0), 0, OPENED_MS
    in_flight: tuple[SendKeepAlive, int] | None = None
    for kind, wait_ms in news:
        in_flight = _sent(core.step(now_ms), now_ms) or in_flight
        now_ms += wait_ms
        stream = core._stream
        match kind:
            case "kept" if in_flight is not None and core._sent_ms is not None:
                core.kept(in_flight[0].number, in_flight[0].message_id, TIMEOUT_MS, now_ms)
                promise_ms = max(promise_ms, in_flight[1] + TIMEOUT_MS)
            case "zero" if in_flight is not None:
                core.kept(in_flight[0].number, in_flight[0].message_id, 0, now_ms)
            case "hint":
                core.refused(stream, "c9:1", now_ms)
            case "refused":
                core.refused(stream, None, now_ms)
            case "broke":
                core.broke(stream, now_ms)
        assert core.safe_until_ms == promise_ms
        assert core.next_ms() is not None


def _sent(effects: list[Effect], now_ms: int) -> tuple[SendKeepAlive, int] | None:
    sent = [effect for effect in effects if isinstance(effect, SendKeepAlive)]
    assert len(sent) <= 1
    return (sent[0], now_ms) if sent else None
