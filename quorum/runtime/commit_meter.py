"""How long the active controller waits for its records to be committed.

    turn 1  appends the records 10..14     the meter notes: end 15, at 0.000 s
    turn 2  appends the records 15..16     the meter notes: end 17, at 0.001 s
    turn 3  has applied 15                 the meter observes 0.004 s, for turn 1

One observation stands for all records of a turn, so the cost of the meter does not grow with the number of records.
"""

from collections import deque

from metadata_log.format.ids import Offset
from service_kit.process.tallies import Histogram

WAITING_MAX = 1_000
"""Maximum number of turns that the meter remembers. A leader without its majority appends on, and gets no commit."""


class CommitMeter:
    """Measures the time between two turns: a turn appends records, and a later turn applies these records."""

    def __init__(self, seconds: Histogram) -> None:
        self._seconds = seconds
        self._end: Offset | None = None
        """The log's end after the last turn; None: the node was not active."""
        self._waiting: deque[tuple[Offset, int]] = deque()

    def note(self, is_active: bool, end: Offset, applied: Offset, now_us: int) -> None:
        """Called after each turn that took events."""
        if not is_active:
            self._end = None
            self._waiting.clear()
            return
        waiting = self._waiting
        if self._end is not None and end > self._end and len(waiting) < WAITING_MAX:
            waiting.append((end, now_us))
        self._end = end
        while waiting and waiting[0][0] <= applied:
            self._seconds.observe((now_us - waiting.popleft()[1]) / 1e6)
