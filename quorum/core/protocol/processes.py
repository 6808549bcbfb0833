"""One process per replica key: how a leader detects that a voter's disk was cloned.

A cloned machine starts with an existing voter's node id and directory id. Each of the two processes would acknowledge
and vote in the other's name, so that two of three voters might be one. The identity is the same, but the behavior
differs: every process draws a random `incarnation` at start and sends it in each fetch.

    A A A | B B B B          a restart: A never returns
    A A A | B | A | B | A    two processes alive at the same time

A new incarnation takes over at once, because a restart must not wait. The leader counts each return of a superseded
incarnation. A late fetch of a dead process also looks like a return, but rarely: such fetches left before the new
process started, one at a time. After `RETURNS_MAX` returns the leader refuses both processes with INVALID_VOTER_KEY,
and a refused replica stops, because neither deserves more trust. An operator then starts the right process again, as a
new incarnation.

Until the decision, the leader answers both processes and counts neither: records acknowledged by one may be missing at
the other. A living process fetches again within its wait, so without a return for a fetch timeout no doubt remains.

Example:

    1. An operator clones voter 2's machine for a test and starts the copy. Incarnation B fetches as voter 2.
    2. Original A fetches again: one return. Copy B fetches: two returns. Leader 1 counts neither.
    3. After six returns leader 1 refuses both with INVALID_VOTER_KEY, and both processes stop.
"""

from dataclasses import dataclass, field
from typing import Final

RETURNS_MAX: Final = 6
"""How many returns of superseded incarnations prove that two processes are alive."""
PROCESSES_REMEMBERED: Final = 8
"""Maximum number of incarnations remembered per key."""


@dataclass(slots=True)
class Processes:
    """The incarnations which have fetched under one key in this epoch, the current one last, each with its newest
    number.
    """

    newest_number: dict[int, int] = field(default_factory=dict)
    returns: int = 0
    returned_ms: int | None = None
    """When a superseded incarnation last returned."""

    def are_in_doubt(self, since_ms: int) -> bool:
        """True if an incarnation has returned after `since_ms`, so that two processes may be alive."""
        return self.returned_ms is not None and self.returned_ms > since_ms

    def are_several(self, incarnation: int, number: int, now_ms: int) -> bool:
        """Notes a fetch. Returns True if several processes use this key."""
        seen = self.newest_number
        if not seen or incarnation == next(reversed(seen)):
            seen[incarnation] = max(number, seen.get(incarnation, number))
        elif incarnation not in seen:
            self.returns, self.returned_ms = 0, None
            seen[incarnation] = number
            if len(seen) > PROCESSES_REMEMBERED:
                del seen[next(iter(seen))]
        elif number > seen[incarnation]:
            # (A number already seen would be a repeated message of a dead process.)
            del seen[incarnation]
            seen[incarnation] = number
            self.returns, self.returned_ms = self.returns + 1, now_ms
        return self.returns >= RETURNS_MAX
