"""What many seeds together have come to: the figures that are published, and whether the runs were worth anything."""

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
        """What so many seeds must have met, and have not."""
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
