"""Hunting the seeded bugs: every mutant, each until a seed finds it, several at a time; and the table of who was caught."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.sim.mutants import MUTANTS
from tests.sim.runner import Hunt, on_all_cores, run_hunt

BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
"""Between these two lines of a page stands the table."""


class Catch(NamedTuple):
    """What became of one mutant."""

    name: str
    law: str | None
    """What it broke; None: no seed has found it."""
    seed: int
    """The one that found it, or the last that did not."""

    @property
    def row(self) -> str:
        """A line of the table."""
        law = self.law or "**not found**"
        return f"| `{self.name}` | {MUTANTS[self.name].what} | {law} | {self.seed} |"


def hunt_all(first: int, count: int, events: int, page: Path | None = None) -> int:
    """Every mutant must be found within `count` seeds. Puts the table into `page`, if there is one to put it into."""
    caught: dict[str, Catch] = {}
    for catch in _catches(first, count, events):
        caught[catch.name] = catch
        verdict = f"seed {catch.seed}" if catch.law else f"NOT FOUND by seed {catch.seed}"
        print(f"{catch.name:<36} {verdict:<24} {catch.law or ''}", flush=True)
    survivors = [name for name, catch in caught.items() if catch.law is None]
    rows = [caught[name].row for name in MUTANTS]
    if page is not None:
        _write_between(page, ["| mutant | what it does | breaks | found by seed |", "|---|---|---|--:|", *rows])
    print(f"{len(caught) - len(survivors)} passed, {len(survivors)} failed")
    return 1 if survivors else 0


def _catches(first: int, count: int, events: int) -> Iterator[Catch]:
    for hunt, outcome in on_all_cores(run_hunt, [Hunt(name, first, count, events) for name in MUTANTS]):
        law = None if outcome.failure is None else law_of(outcome.failure)
        yield Catch(hunt.mutant, law, outcome.seed)


def law_of(failure: str) -> str:
    """The law that a failure speaks of, or, where something else was raised first, that."""
    head = failure.splitlines()[0]
    kind, _, rest = head.partition(": ")
    return rest.partition(":")[0] if kind == "LawBroken" else kind


def _write_between(page: Path, lines: list[str]) -> None:
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{page} has no lines {BEGIN} and {END}"
    page.write_text("\n".join((before + BEGIN, "", *lines, "", END + after)))


def rows_of(page: Path) -> list[str]:
    """The mutants that the table of `page` names."""
    inside = page.read_text().partition(BEGIN)[2].partition(END)[0]
    return [line.split("`")[1] for line in inside.splitlines() if line.startswith("| `")]
