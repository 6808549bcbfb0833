"""Reads that any controller answers from what it has applied, leader or not: perhaps of the past, never of another history.

Nobody else is asked, so there is an answer also while nobody leads. It is a state that was committed, as of the offset that
comes with it: a node whose image is known to be the odd one refuses (`agreement`). Monotone within one client: it brings the
highest offset that it was told of (`at_least`), and a node that has not come so far waits until it has, or refuses at the
deadline.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from metadata_log.errors import ErrorCode
from metadata_log.ids import Offset
from quorum.runtime.requests import Refused
from quorum.runtime.waiting import Deadlines
from quorum.runtime.world import LocalRead


@dataclass(slots=True)
class _Waiting:
    event: LocalRead
    done: bool = False


class LocalReads:
    """Those that wait until this node has come as far as they have seen. Few: a node is behind by milliseconds, or cut off."""

    def __init__(self) -> None:
        self._deadlines: Deadlines[_Waiting] = Deadlines()
        self._waiting: list[_Waiting] = []

    def add(self, event: LocalRead) -> None:
        waiting = _Waiting(event)
        self._waiting.append(waiting)
        self._deadlines.add(waiting, event.deadline_ms)

    def ready(self, applied: Offset) -> Iterator[LocalRead]:
        """Those that may be answered now."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if each.done:
                continue
            if each.event.at_least <= applied:
                each.done = True
                yield each.event
            else:
                self._waiting.append(each)

    def expired(self, now_ms: int) -> Iterator[LocalRead]:
        for each in self._deadlines.expired(now_ms):
            yield each.event

    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms()


def too_far_behind(event: LocalRead, applied: Offset) -> Refused:
    """The answer to a read that has waited long enough."""
    return Refused(
        ErrorCode.NOT_READY,
        f"this controller has applied all below {applied}; its client has seen {event.at_least} already",
    )
