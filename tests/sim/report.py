"""The report of many seeds: the figures that are published, and the events that the runs should have met."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from tests.sim.coverage import Coverage
from tests.sim.runner import Outcome

MANY_SEEDS = 200
"""So many seeds must have met everything."""


class Report:
    """The sum of outcomes."""

    def __init__(self) -> None:
        self.coverage = Coverage()
        self.seeds = 0
        self.events = 0
        self.least_events = 0
        self.virtual_ms = 0.0
        self.failures: list[str] = []

    def add(self, outcome: Outcome) -> None:
        self.coverage.update(outcome.coverage)
        self.least_events = outcome.events if self.seeds == 0 else min(self.least_events, outcome.events)
        self.seeds += 1
        self.events += outcome.events
        self.virtual_ms += outcome.virtual_ms
        if outcome.failure is not None:
            self.failures.append(outcome.failure)

    def missing(self) -> list[str]:
        """The events that so many seeds must have met, and have not."""
        return self.coverage.missing() if self.seeds >= MANY_SEEDS else []

    @property
    def is_good(self) -> bool:
        return self.seeds > 0 and not self.failures and not self.missing()

    def figures(self) -> str:
        """One line."""
        return (
            f"{self.seeds:,} seeds, {self.events:,} events (at least {self.least_events:,} a seed), "
            f"{self.virtual_ms / 3_600_000:,.1f} simulated hours, {self.coverage.faults():,} faults, "
            f"{len(self.failures)} failed"
        )

    def __str__(self) -> str:
        lines = [self.coverage.table(), "", self.figures()]
        if missing := self.missing():
            lines.append(f"never met: {', '.join(missing)}")
        lines.append(f"{self.seeds - len(self.failures)} passed, {len(self.failures)} failed")
        return "\n".join(lines)


# --- the page --------------------------------------------------------------------------------------------------------


class Marks(NamedTuple):
    """The two lines of docs/simulator.md between which a run writes."""

    begin: str
    end: str

    @classmethod
    def of(cls, part: str) -> "Marks":
        return cls(f"<!-- {part}: begin -->", f"<!-- {part}: end -->")


FIGURES: Final = Marks.of("figures")

_ROWS: Final = (
    "election, truncation",
    "acknowledged write, unknown outcome",
    "request sent again, answered again, request id expired",
    "linearizable read, local read",
    "voter set changed, came back as another replica",
    "kill, power cut, majority crashes at once",
    "crash inside a turn, crash inside a job, crash inside recovery",
    "flush failure, read failure, lost unflushed records",
    "disk full, slow disk, hanging disk",
    "bit flip, bad sector, log mended",
    "durable end lost, standing restored",
    "snapshot written, log prefix dropped",
    "snapshot installed by a controller, snapshot loaded by a broker",
    "link cut, slow link, caught up over a slow link",
    "message lost, message cut off, message duplicated, message reordered",
    "pause, wall clock step",
    "broker fenced, lease lapsed",
    "partition leader changed, ISR grew",
    "preferred election, designated election",
    "leader elected from the ELR, ELR cleared by a config or feature",
    "reassignment finished, reassignment cancelled",
    "broker drained, broker fenced by hand, mode of a broker ended",
    "transaction ended, transaction aborted",
    "feature level raised, feature level lowered",
)
"""The rows of the figures, each with names in the coverage."""


def figures(command: str, report: Report) -> list[str]:
    """The lines that tell of a run."""
    rows = [f"| {names} | {', '.join(f'{report.coverage[name]:,}' for name in names.split(', '))} |" for names in _ROWS]
    return [f"`{command}`: {report.figures()}.", "", "| event | count |", "|---|--:|", *rows]


def written_between(text: str, marks: Marks, lines: Iterable[str]) -> str:
    """The text of a page, with these lines instead of those between the marks."""
    before, begin, rest = text.partition(marks.begin)
    _, end, after = rest.partition(marks.end)
    assert begin and end, f"the page has no lines {marks.begin} and {marks.end}"
    return "\n".join((before + marks.begin, "", *lines, "", marks.end + after))


def write_figures(page: Path, command: str, report: Report) -> None:
    """Puts the figures of a run into the page."""
    page.write_text(written_between(page.read_text(), FIGURES, figures(command, report)))
