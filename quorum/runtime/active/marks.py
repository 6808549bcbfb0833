"""The snapshot marks of an active controller: the records at which every node writes a snapshot of the same offset.

    due             the snapshotter says so: enough bytes, or enough time, since the last mark
    asked for       by an operator, or because the only snapshot is damaged
    pending         appended, and not committed: no second mark is appended meanwhile, unless an operator asks
    wanted          not appended, because a transaction is open: no snapshot may be inside of a transaction

Example with leader 1, whose log ends at 900:
    1. a mark is due; leader 1 appends the mark at 900 and notes that it is pending;
    2. the mark is committed; controllers 1, 2 and 3 write the snapshot of [0, 901), and leader 1 looks for the next due mark.
"""

import contextlib

from metadata_log.format.ids import Offset
from quorum.runtime.active.decisions import Deciding
from quorum.runtime.active.transactions import OpenDecision
from quorum.runtime.parts import Parts
from quorum.runtime.protocol.requests import Refused

MARK_REASON_CHARS_MAX = 1_000
"""Maximum length of a mark's reason. A mark must fit into a batch, and stays in the log for ever."""


class Marks:
    """Appends the marks of one active controller. The methods that append raise DecisionFailed if the node must resign."""

    def __init__(self, parts: Parts, deciding: Deciding, transaction: OpenDecision) -> None:
        self._state, self._snapshotter = parts.state, parts.snapshotter
        self._deciding = deciding
        self._transaction = transaction
        self._pending = False
        self._wanted: str | None = None
        """The reason of a mark that could not be appended, because a transaction was open."""

    def begin(self) -> None:
        """Begins a leadership: no mark is pending or wanted."""
        self._pending, self._wanted = False, None

    def append(self, reason: str, now_ms: int, *, is_asked: bool) -> Offset:
        """Appends a mark, and returns its end. Raises Refused: nothing was done."""
        end = self._deciding.mark(reason, now_ms, is_asked=is_asked)
        self._pending = True
        return end

    def append_if_due(self, now_ms: int, wall_ms: int) -> None:
        if self._pending or self._transaction.is_open:
            return
        if self._wanted is not None:
            self.make(self._wanted, now_ms)
            return
        due = self._snapshotter.mark_due(self._state, wall_ms)
        if due is not None:
            self.make(due.reason, now_ms)

    def make(self, reason: str, now_ms: int) -> None:
        """Appends a mark, so that every node writes a snapshot at the log's end, unless a mark is pending.

        While a transaction is open the mark waits, because no snapshot may be inside of the transaction.
        """
        self._wanted = reason if self._transaction.is_open else None
        if not self._pending and not self._transaction.is_open:
            with contextlib.suppress(Refused):  # the disk is full; the next leader finds the mark due, too
                self.append(reason, now_ms, is_asked=False)

    def passed(self) -> None:
        """Takes note that the pending mark is committed."""
        self._pending = False
