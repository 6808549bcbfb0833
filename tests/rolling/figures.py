"""The latencies of appends, phase by phase. A record belongs to the phase in which it was due.

Example: broker 101 is stopped at 5.0 s. A record that was due at 4.9 s and acknowledged at 5.3 s counts before the stop. What was
due before the first phase, while producers met the cluster, does not count.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks.replicas.figures import percentile
from tests.rolling.notes import Append


class Phase(NamedTuple):
    """A part of a run, from its begin to the begin of the next one."""

    name: str
    began_ns: int


class PhaseFigures(NamedTuple):
    """One row of the table. Times of appends are in milliseconds."""

    name: str
    seconds: float
    appends: int
    p50_ms: float
    p99_ms: float
    worst_ms: float


def figures_of(phases: Sequence[Phase], end_ns: int, appends: Sequence[Append]) -> list[PhaseFigures]:
    """A row for each phase with appends, in the order of time."""
    begins = [phase.began_ns for phase in phases]
    took_ms: list[list[float]] = [[] for _ in phases]
    for append in appends:
        at = bisect_right(begins, append.due_ns) - 1
        if at >= 0:
            took_ms[at].append(append.took_ns / 1e6)
    ends = [*begins[1:], end_ns]
    return [
        figures(phase.name, (end - phase.began_ns) / 1e9, took)
        for phase, end, took in zip(phases, ends, took_ms, strict=True)
        if took
    ]


def figures(name: str, seconds: float, took_ms: Sequence[float]) -> PhaseFigures:
    """The figures of some appends, at least one."""
    return PhaseFigures(name, seconds, len(took_ms), percentile(took_ms, 50), percentile(took_ms, 99), max(took_ms))


def table_of(rows: Sequence[PhaseFigures]) -> Table:
    """For people."""
    table = Table(title="appends with acks=all, by the phase in which they were due", title_justify="left")
    for heading in ("phase", "seconds", "appends", "p50 ms", "p99 ms", "worst ms"):
        table.add_column(heading, justify="left" if heading == "phase" else "right")
    for row in rows:
        times = (f"{each:.1f}" for each in (row.p50_ms, row.p99_ms, row.worst_ms))
        table.add_row(row.name, f"{row.seconds:.1f}", f"{row.appends:,}", *times)
    return table


def json_of(rows: Sequence[PhaseFigures]) -> list[dict[str, Any]]:
    """For programs."""
    return [
        {key: round(value, 3) if isinstance(value, float) else value for key, value in row._asdict().items()}
        for row in rows
    ]
