"""The deadlines of sessions, beside a dumb twin that looks at all of them."""

import random

import pytest

from quorum.controller.sessions.deadlines import Deadlines


class Twin:
    """The same, by looking at every key."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}

    def first_passed(self, now_ms: int) -> int | None:
        passed = [(deadline_ms, key) for key, deadline_ms in self.of.items() if deadline_ms <= now_ms]
        return min(passed)[1] if passed else None


@pytest.mark.parametrize("seed", range(20))
def test_the_heap_and_a_look_at_all_find_the_same_session(seed: int) -> None:
    rng, heap, twin, now_ms = random.Random(seed), Deadlines[int](), Twin(), 0
    for _ in range(2_000):
        now_ms += rng.randrange(30)
        key = rng.randrange(12)
        match rng.randrange(6):
            case 0:
                heap.set(key, now_ms + rng.randrange(200))
                twin.of[key] = heap.of(key)
            case 1 | 2 if key in twin.of:
                heard_ms = now_ms + 100
                heap.lengthen(key, heard_ms)
                twin.of[key] = max(twin.of[key], heard_ms)
            case 3:
                heap.remove(key)
                twin.of.pop(key, None)
            case 4 if rng.random() < 0.1:
                heap.credit(50)
                twin.of = {each: deadline_ms + 50 for each, deadline_ms in twin.of.items()}
            case _:
                next_ms = heap.next_ms()
                assert next_ms is None or not twin.of or next_ms <= min(twin.of.values())
                found = heap.first_passed(now_ms)
                assert found == twin.first_passed(now_ms)
                if found is not None:
                    heap.remove(found)
                    del twin.of[found]
    assert {key: heap.of(key) for key in twin.of} == twin.of
    assert len(heap) == len(twin.of)


def test_a_session_that_is_heard_costs_one_look_for_each_timeout() -> None:
    heap = Deadlines[int]()
    for key in range(100):
        heap.set(key, 9_000)
    for now_ms in range(0, 9_000, 100):
        for key in range(100):
            heap.lengthen(key, now_ms + 9_000)
    assert len(heap._heap) == 100, "a contact adds nothing to the heap"
    assert heap.next_ms() == 9_000
    assert heap.first_passed(9_000) is None
    assert heap.next_ms() == 8_900 + 9_000


def test_a_key_that_may_not_end_now_is_left_out_for_a_while() -> None:
    heap = Deadlines[int]()
    heap.set(1, 100)
    heap.set(2, 150)
    heap.look_again(1, 300)
    assert heap.first_passed(200) == 2
    heap.remove(2)
    assert heap.first_passed(299) is None
    assert heap.first_passed(300) == 1
    heap.look_again(1, 400)
    heap.set(1, 350)
    assert heap.first_passed(350) == 1


def test_coarse_looks_end_a_session_a_little_later_and_never_earlier() -> None:
    heap = Deadlines[int](coarse_ms=50)
    heap.set(1, 1_001)
    heap.set(2, 1_050)
    assert heap.next_ms() == 1_050
    assert heap.first_passed(1_049) is None
    assert heap.first_passed(1_050) == 1
    heap.remove(1)
    assert heap.first_passed(1_050) == 2


def test_sessions_that_come_and_go_leave_nothing_behind() -> None:
    """A session of a day that is closed at once must not stay in the heap for a day."""
    heap = Deadlines[int]()
    for key in range(10_000):
        heap.set(key, 86_400_000)
        heap.remove(key)
    assert len(heap._heap) <= 1_001
