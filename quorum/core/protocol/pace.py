"""Whether a replica that fetches falls behind all the same: its link, its disk or its processor is too slow for what is written.

A replica that has everything that it was last told of keeps pace, however much is written: after each burst it is there. One
that has not been there for a whole `WINDOW_MS` is judged by what it lacks: more than at the window's beginning, and it falls
behind; less, and it does not. In between the last judgement holds, so that a burst does not make the answer flicker.

Example. Voter 3 receives 100 records a second, and 150 are written. When the window begins it lacks 200 records, 30 s later
1,700: it falls behind. Then 50 a second are written: 30 s later it lacks 200, and does not.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from metadata_log.format.ids import NodeId, Offset

WINDOW_MS = 30_000
"""A replica that was away is given so long before a lag that grows is called a problem."""


@dataclass(slots=True)
class Pace:
    """One replica's, as its leader sees it."""

    falls_behind: bool = False
    _window_began_ms: int | None = None
    _lacked: Offset = 0
    """Records, when the window began."""

    def kept(self) -> None:
        """It has everything that it was last told of."""
        self.falls_behind, self._window_began_ms = False, None

    def lags(self, lacks: Offset, now_ms: int) -> None:
        """It fetches, and lacks so many records, some of which it was told of before."""
        if self._window_began_ms is None:
            self._window_began_ms, self._lacked = now_ms, lacks
        elif now_ms - self._window_began_ms >= WINDOW_MS:
            self.falls_behind = lacks > self._lacked
            self._window_began_ms, self._lacked = now_ms, lacks


def problem(voters: Iterable[NodeId]) -> str:
    """What is to be said of these voters, which fall behind; empty: nothing. For the same voters these are the same words."""
    return "; ".join(
        f"voter {node_id} falls behind although it fetches: what it lacks has grown for {WINDOW_MS // 1_000} s. Its link, its "
        "disk or its processor is too slow for what is written"
        for node_id in voters
    )
