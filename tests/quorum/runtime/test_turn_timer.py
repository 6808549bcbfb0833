"""The timer of the turns: seldom asked, and never late by more than its slack."""

import asyncio

from quorum.runtime.turn_timer import SLACK_MS, TurnTimer
from service_kit.process.clock import RealClock


class Deadlines:
    """The node's side: one deadline, and how often the timer has asked for it."""

    def __init__(self, deadline_ms: int | None) -> None:
        self.deadline_ms = deadline_ms
        self.asked = 0
        self.due = asyncio.Event()
        self.timer = TurnTimer(RealClock(), self.next_ms, self.due.set)

    def next_ms(self) -> int | None:
        self.asked += 1
        return self.deadline_ms


async def test_a_deadline_is_served_after_a_turn() -> None:
    """The deadline lies beyond the slack: the timer is set again, and then calls."""
    clock = RealClock()
    node = Deadlines(clock.now_ms() + 2 * SLACK_MS)
    node.timer.turn_ended(clock.now_ms())
    await asyncio.wait_for(node.due.wait(), 5)

    assert node.deadline_ms is not None and clock.now_ms() >= node.deadline_ms


async def test_many_turns_cost_one_question() -> None:
    """A hundred turns in a moment leave the timer as it is."""
    clock = RealClock()
    node = Deadlines(0)
    for _ in range(100):
        node.timer.turn_ended(clock.now_ms())
    assert node.asked == 0
    await asyncio.wait_for(node.due.wait(), 5)

    assert node.asked == 1


async def test_a_delay_is_reported_once() -> None:
    """The process was paused for ten minutes: the turn after the pause sees the delay, and the next turn does not."""
    clock = RealClock()
    node = Deadlines(None)
    node.timer.turn_ended(clock.now_ms())
    later_ms = clock.now_ms() + 600_000
    assert node.timer.late_ms(later_ms) > 599_000

    node.timer.turn_ended(later_ms)
    assert node.timer.late_ms(later_ms) == 0
    node.timer.cancel()
