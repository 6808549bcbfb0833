"""Hunting the seeded bugs: every mutant, until a seed finds it; and the table of who was caught, by which law.

A few seeds of each mutant that is still at large, then the next few of those, and so on: most are found by their first seeds,
and the cores that this leaves free are all put on the last ones. The table does not depend on which core was quicker: it
always has the lowest seed that finds the bug.

Found is what breaks a law, or an assert of production's. Any other exception is the mutant's own: it no longer fits the code that
it replaces, and would fall whatever the laws say. Then the hunt fails, as it does for a bug that nothing finds.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.journal import Journal
from tests.sim.mutants import MUTANTS
from tests.sim.report import Marks, written_between
from tests.sim.runner import Hunt, Outcome, on_all_cores, progress_bar, run_hunt

SEEDS_A_HUNT = 5

MARKS = Marks.of("mutants")
"""Between these two lines of a page stands the table."""

_HEAD = ("| mutant | what it does | breaks | seed | events |", "|---|---|---|--:|--:|")


class Catch(NamedTuple):
    """One mutant, and the seed that has found it."""

    name: str
    law: str
    """The law that it broke."""
    seed: int
    events: int
    """How many the seed took for that."""

    @property
    def row(self) -> str:
        """A line of the table in a page."""
        return f"| `{self.name}` | {MUTANTS[self.name].what} | {self.law} | {self.seed} | {self.events} |"

    @classmethod
    def of_row(cls, row: str) -> "Catch":
        """The catch that a line of the table tells of."""
        name, _, law, seed, events = (cell.strip() for cell in row.strip("|").split("|"))
        return cls(name.strip("`"), law, int(seed), int(events))


def hunt_all(
    names: Sequence[str],
    first: int,
    count: int,
    events: int,
    page: Path | None = None,
    journal: Journal | None = None,
) -> int:
    """Each of these mutants must be found within `count` seeds. Puts what was found into the table of `page`, if one is given."""
    fallen: dict[str, Outcome] = {}
    with progress_bar("mutants") as bar:
        task = bar.add_task("mutants", total=len(names))
        for hunt, outcome in on_all_cores(run_hunt, _hunts(names, first, count, events, fallen), journal):
            known = fallen.get(hunt.mutant)
            if outcome.failure is not None and (known is None or outcome.seed < known.seed):
                fallen[hunt.mutant] = outcome
                line = _line(hunt.mutant, _catch(hunt.mutant, outcome))
                bar.console.print(line, highlight=False, markup=False, soft_wrap=True)
            bar.update(task, completed=len(fallen))
    caught = {name: catch for name, outcome in fallen.items() if (catch := _catch(name, outcome)) is not None}
    for name in names:
        if name in fallen and name not in caught:
            print(f"{name} is broken itself, which shows nothing: {fallen[name].failure}\n")
    print("\n".join(_line(name, caught.get(name)) for name in names))
    if page is not None:
        write_rows(page, caught)
    survivors = [name for name in names if name not in caught]
    print(f"{len(caught)} passed, {len(survivors)} failed")
    return 1 if survivors else 0


def _hunts(names: Sequence[str], first: int, count: int, events: int, fallen: Mapping[str, Outcome]) -> Iterator[Hunt]:
    """A few seeds of each that has not `fallen` by then."""
    for begin in range(first, first + count, SEEDS_A_HUNT):
        for name in names:
            if name not in fallen:
                yield Hunt(name, begin, min(SEEDS_A_HUNT, first + count - begin), events)


def _catch(name: str, outcome: Outcome) -> Catch | None:
    """None: the seed did not find the mutant, but broke off over it."""
    if outcome.failure is None or outcome.by == "error":
        return None
    return Catch(name, law_of(outcome.failure), outcome.seed, outcome.events)


def _line(name: str, catch: Catch | None) -> str:
    """A line of the table on a terminal."""
    seed, event, law = ("-", "-", "NOT FOUND") if catch is None else (catch.seed, catch.events, catch.law)
    return f"{name:<38} seed {seed:>4} event {event:>5}  {law:<24} {MUTANTS[name].what}"


def law_of(failure: str) -> str:
    """The law that a failure speaks of, or, where something else was raised first, that."""
    head = failure.splitlines()[0]
    kind, _, rest = head.partition(": ")
    return rest.partition(":")[0] if kind == "LawBroken" else kind


# --- the page --------------------------------------------------------------------------------------------------------


def rows_of(page: Path) -> list[Catch]:
    """The table of `page`."""
    inside = page.read_text().partition(MARKS.begin)[2].partition(MARKS.end)[0]
    return [Catch.of_row(line) for line in inside.splitlines() if line.startswith("| `")]


def write_rows(page: Path, caught: Mapping[str, Catch]) -> None:
    """Rows that `caught` knows nothing of stay as they are; those of mutants that are no more go."""
    rows = {catch.name: catch for catch in rows_of(page)} | dict(caught)
    lines = [*_HEAD, *(rows[name].row for name in MUTANTS if name in rows)]
    page.write_text(written_between(page.read_text(), MARKS, lines))
