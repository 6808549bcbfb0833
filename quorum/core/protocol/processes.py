"""One key, one process: how a leader notices that a voter's disk was cloned.

A machine that was copied, disk and all, comes up as a voter that exists already: same node id, same directory id. Each of
the two would acknowledge and vote in the other's name, so that two of three might be one. Identity cannot tell them apart,
but behaviour can: every process draws an `incarnation` when it starts and says it in each fetch.

    A A A | B B B B          a restart: A never comes back
    A A A | B | A | B | A    two processes that live at the same time

A new incarnation takes over at once, because a restart must not wait. One that was superseded and comes back is counted; a
late fetch of a process that is gone does that too, but not often: its fetches had left before the new process started, one
at a time. After `RETURNS_MAX` returns both are refused with INVALID_VOTER_KEY, and a replica that is told so stops: neither
is more to be believed than the other. A person starts the right one again, which is a new incarnation.

Until that is decided both are answered, and neither is counted: what the one has acknowledged the other, who may be the one
that votes, need not hold. A living process asks again within its wait, so after a return nothing is in doubt any more when
nobody has returned for the fetch timeout.
"""

from dataclasses import dataclass, field
from typing import Final

RETURNS_MAX: Final = 6
PROCESSES_REMEMBERED: Final = 8


@dataclass(slots=True)
class Processes:
    """The processes that have fetched under one key in this epoch, the current one last, with their newest fetch's number."""

    newest_number: dict[int, int] = field(default_factory=dict)
    returns: int = 0
    returned_ms: int | None = None
    """When one last came back that had been superseded."""

    def are_in_doubt(self, since_ms: int) -> bool:
        """Whether one has come back after `since_ms`, so that two may live."""
        return self.returned_ms is not None and self.returned_ms > since_ms

    def are_several(self, incarnation: int, number: int, now_ms: int) -> bool:
        """Notes a fetch; says whether more than one process lives under this key."""
        seen = self.newest_number
        if not seen or incarnation == next(reversed(seen)):
            seen[incarnation] = max(number, seen.get(incarnation, number))
        elif incarnation not in seen:
            self.returns, self.returned_ms = 0, None
            seen[incarnation] = number
            if len(seen) > PROCESSES_REMEMBERED:
                del seen[next(iter(seen))]
        elif number > seen[incarnation]:
            # (Not a repeated message of a process that is gone.)
            del seen[incarnation]
            seen[incarnation] = number
            self.returns, self.returned_ms = self.returns + 1, now_ms
        return self.returns >= RETURNS_MAX
