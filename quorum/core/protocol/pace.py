"""Detecting a replica which fetches and still falls behind: its link, disk or processor is too slow for the write rate.

A replica at the last end reported to it keeps pace, whatever the write rate: the replica catches up after each burst. A
replica which has not caught up for a whole `WINDOW_MS` is judged by the number of missing records. If the number has
grown since the window's beginning, the replica falls behind; otherwise the replica keeps pace. Between two judgements
the last one holds, so that a burst does not make the answer flicker.

Example:

    1. Voter 3 receives 100 records a second, and clients write 150. At the window's beginning voter 3 lacks 200 records.
    2. After 30 s voter 3 lacks 1,700 records: voter 3 falls behind.
    3. Clients now write 50 a second. After another 30 s voter 3 lacks 200 records: voter 3 keeps pace again.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from metadata_log.format.ids import NodeId, Offset

WINDOW_MS = 30_000
"""How long a returning replica may lag before a growing lag is reported as a problem."""


@dataclass(slots=True)
class Pace:
    """The pace of one replica, as seen by its leader."""

    falls_behind: bool = False
    _window_began_ms: int | None = None
    _lacked: Offset = 0
    """How many records were missing at the window's beginning."""

    def kept(self) -> None:
        """Notes a fetch at the last end reported to the replica."""
        self.falls_behind, self._window_began_ms = False, None

    def lags(self, lacks: Offset, now_ms: int) -> None:
        """Notes a fetch of a replica lacking `lacks` records, some of them reported to it earlier."""
        if self._window_began_ms is None:
            self._window_began_ms, self._lacked = now_ms, lacks
        elif now_ms - self._window_began_ms >= WINDOW_MS:
            self.falls_behind = lacks > self._lacked
            self._window_began_ms, self._lacked = now_ms, lacks


def problem(voters: Iterable[NodeId]) -> str:
    """The problem of `voters` falling behind, in words; empty: no problem. The same voters always give the same words."""
    return "; ".join(
        f"voter {node_id} falls behind although it fetches: its lag has grown for {WINDOW_MS // 1_000} s. Its link, its "
        "disk or its processor is too slow for the write rate"
        for node_id in voters
    )
