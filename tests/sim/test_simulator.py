"""A fixed slice of the simulator's seeds; `make sim SEEDS=20000` runs as many as you have time for."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from metadata_log.format.ids import uuid_text
from quorum.core.raft import RaftCore
from tests.sim import hunting
from tests.sim.__main__ import main
from tests.sim.balance import Balance
from tests.sim.cluster import Cluster
from tests.sim.coverage import REQUIRED, Coverage
from tests.sim.data.ending import DataEnding
from tests.sim.healing import Healing
from tests.sim.laws import (
    Laws,
    brokers,
    clients,
    damage,
    deaths,
    eligible,
    features,
    following,
    hold,
    metadata,
    modes,
    policies,
    proposals,
    quorum,
    requests,
    snapshots,
    story,
    transactions,
)
from tests.sim.laws.entities import ephemerals, past, registers, sessions, watches
from tests.sim.laws.partitions import PartitionLaws, committed, leading
from tests.sim.laws.replicas import directories, placement, reassignments
from tests.sim.moves import Moves
from tests.sim.mutants import MUTANTS, put_in
from tests.sim.mutants.patching import Mutant, patched
from tests.sim.nodes.controllers import SimController
from tests.sim.nodes.poisoning import Poisoning
from tests.sim.report import FIGURES, Report, write_figures
from tests.sim.runner import Hunt, Job, Outcome, on_all_cores, run, run_hunt, run_job, seeds
from tests.sim.skips import Skips
from tests.sim.slow_links import SlowLinks

PAGE = Path(__file__).parents[2] / "docs" / "simulator.md"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_slice_of_seeds_keeps_every_law() -> None:
    """Under crashes, cuts, lost and repeated messages, pauses and broken disks, every law holds after every event.

    A broken law makes the run a failure of the report (`test_a_seeded_bug_is_found` shows that laws break). A fault that no seed
    met is missing in the report.
    """
    report = Report()
    rare = [*seeds(207, 1, 2_000), *seeds(225, 1, 2_000)]  # events that a seed in a hundred meets
    for outcome in run([*seeds(101, 100, 2_000), *rare]):
        report.add(outcome)

    assert report.failures == []
    assert report.coverage.missing() == []
    assert report.seeds == 102 and report.least_events >= 2_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4174, 9995, 11422, 230])
def test_the_innocent_are_not_accused(seed: int) -> None:
    """Runs seeds in which a law once accused right code. The test fails if a law is broken: `run` raises `SimulationFailed`.
    A seed has another history as soon as clients or faults do something new, so these are the stories of then.

    * 4174: a node repairs its lost end in a turn that a power cut ends; the same loss is no new loss.
    * 9995: a leader commits a record by one voter set, and appends the next set in the same turn.
    * 11422: a node falls by an fsync that failed before the faults stopped; the node is started again.
    * 230: a drain takes several batches, and the log forgets other requests between its first batch and its last.
    """
    Cluster(seed).run(2_000)


@pytest.mark.slow
def test_one_seed_is_one_history() -> None:
    """The same seed gives the same run, event by event; without that no failure could be seen again."""
    first, second = Cluster(7), Cluster(7)
    first.run(500)
    second.run(500)

    assert (first.now_ms, first.events, first.coverage) == (second.now_ms, second.events, second.coverage)
    assert str(first.picture) == str(second.picture)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "mutant",
    [
        "leader-counts-itself-before-fsync",
        "vote-not-persisted",
        "commit-of-older-epoch",
        "lease-counted-from-receiving",
        "request-horizon-one-too-low",
        "snapshot-digest-not-verified",
    ],
)
def test_a_seeded_bug_is_found(mutant: str) -> None:
    """The laws have teeth: a bug that was put in on purpose breaks one of them.

    The hunt begins with the seed that the page names, which still finds the bug as long as its history is the same.
    """
    (seed,) = [row.seed for row in hunting.rows_of(PAGE) if row.name == mutant]
    _, outcome = run_hunt(Hunt(mutant, seed, 1_000, 2_000))

    assert outcome.by in ("law", "assert")


def _slip(self: Any) -> None:
    """A mutant's own mistake: what it works with is another thing now."""
    len(7)  # type: ignore[arg-type]


def _complaint(self: Any) -> None:
    raise AssertionError("of the mutant, or of a fake")


def _invariant(self: Any) -> None:
    uuid_text(b"not sixteen bytes")


def _law(self: Any) -> None:
    hold(False, "R0 Example", "is broken")


@pytest.mark.parametrize(
    ("bug", "by"), [(_slip, "error"), (_complaint, "error"), (_invariant, "assert"), (_law, "law")]
)
def test_who_has_found_a_bug(bug: Any, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A law or an assert of production finds a bug, and no other exception does. After the run the bug is gone."""
    monkeypatch.setitem(MUTANTS, "example", Mutant("an example", lambda: patched(RaftCore, "next_deadline_ms", bug)))

    assert run_job(Job(1, 50, "example")).by == by
    assert run_job(Job(1, 50)).by is None


def test_a_mutant_that_is_broken_itself_is_no_catch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The hunt took a TypeError for a find: when the code under a mutant changed, the mutant proved nothing any more."""
    monkeypatch.setitem(MUTANTS, "slip", Mutant("raises", lambda: patched(RaftCore, "next_deadline_ms", _slip)))
    monkeypatch.setattr(hunting, "on_all_cores", lambda work, tasks, _: map(work, tasks))
    page = tmp_path / "page.md"
    page.write_text(f"{hunting.MARKS.begin}\n{hunting.MARKS.end}\n")

    assert hunting.hunt_all(["slip"], 1, 100, 50, page) == 1
    said = capsys.readouterr().out
    assert "slip is broken itself, which shows nothing: TypeError: object of type 'int' has no len()\n" in said
    assert "    python -m tests.sim --seed 1 --events 50 --mutant slip\n" in said
    assert "The last events:" in said
    assert said.endswith("0 passed, 1 failed\n")
    assert hunting.rows_of(page) == []


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_workers_leave_with_whoever_has_started_them() -> None:
    """A process that is killed cannot stop its workers.

    A worker that did not watch its parent would wait for work for ever, and keep the pipe open.
    """
    endless = "from tests.sim.runner import *\nfor _ in on_all_cores(abs, iter(int, 1)): print(flush=True)"
    with subprocess.Popen([sys.executable, "-c", endless], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        process.kill()
        process.stdout.read()  # ends when nobody is left who could write


def test_the_page_of_laws_names_what_there_is() -> None:
    """docs/simulator.md: its table of laws names what is there."""
    laws = [
        line.split(" | ")
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ") and line.count(" | ") == 3 and "`" in line
    ]
    rooms: dict[str, Any] = {
        "quorum": quorum,
        "damage": damage,
        "following": following,
        "snapshots": snapshots,
        "directories": directories,
        "deaths": deaths,
        "eligible": eligible,
        "features": features,
        "metadata": metadata,
        "modes": modes,
        "placement": placement,
        "policies": policies,
        "transactions": transactions,
        "proposals": proposals,
        "requests": requests,
        "brokers": brokers,
        "clients": clients,
        "story": story,
        "reassignments": reassignments,
        "committed": committed,
        "leading": leading,
        "registers": registers,
        "ephemerals": ephemerals,
        "sessions": sessions,
        "past": past,
        "watches": watches,
    }
    rooms |= {
        "SimController": SimController,
        "Healing": Healing,
        "Laws": Laws,
        "SlowLinks": SlowLinks,
        "Balance": Balance,
        "Moves": Moves,
        "Poisoning": Poisoning,
        "Skips": Skips,
        "DataEnding": DataEnding,
        "PartitionLaws": PartitionLaws,
    }
    checked = 0
    for law, _, checks, mutants in laws:
        named = re.findall(r"`([a-z-]+)`", mutants)
        assert named and set(named) <= MUTANTS.keys(), law
        for path in re.findall(r"`([A-Za-z_.]+\.[A-Za-z_.]+)`", checks):
            room, *rest = path.split(".")
            found = rooms[room]
            for name in rest:
                found = getattr(found, name)
            checked += 1
    assert checked > 40


@pytest.mark.parametrize("name", MUTANTS)
def test_a_seeded_bug_fits_where_it_is_put_in(name: str) -> None:
    """Each mutant finds the function that it replaces, with the same parameters.

    The test fails in `patched`, which asserts both; otherwise only the next hunt would notice.
    """
    with put_in(name):
        pass


def test_the_table_of_seeded_bugs_has_each_once() -> None:
    """docs/simulator.md: every mutant has one row, with the law that it breaks and the seed that found it."""
    rows = hunting.rows_of(PAGE)

    assert [row.name for row in rows] == list(MUTANTS)
    for row in rows:
        assert row.row in PAGE.read_text(), "what it does is said as in the code"
        assert re.fullmatch(r"[A-Z]\d* [A-Z][A-Za-z]+|AssertionError", row.law), row
        assert 1 <= row.seed <= 1_000 and row.events > 0, row


def test_rows_are_put_into_a_page_by_hand(tmp_path: Path) -> None:
    """A hunt for one mutant writes its row, and leaves the others' alone; a mutant that is no more loses its row."""
    first, second = list(MUTANTS)[:2]
    page = tmp_path / "page.md"
    gone = "| `gone` | was a bug | R1 ElectionSafety | 1 | 2 |"
    page.write_text(f"before\n{hunting.MARKS.begin}\n{gone}\n{hunting.MARKS.end}\nafter\n")

    hunting.write_rows(page, {second: hunting.Catch(second, "R2 VoteOnce", 3, 40)})
    hunting.write_rows(page, {first: hunting.Catch(first, "R3 EpochBeforeSpeech", 5, 60)})

    assert [row.name for row in hunting.rows_of(page)] == [first, second]
    assert hunting.rows_of(page)[1] == hunting.Catch(second, "R2 VoteOnce", 3, 40)
    assert page.read_text().startswith("before\n") and page.read_text().endswith("\nafter\n")


def test_the_figures_of_a_run_are_put_into_a_page(tmp_path: Path) -> None:
    """Each number stands under a name that the coverage counts, and the rest of the page stays."""
    report = Report()
    report.add(Outcome(1, 2_000, 3_600_000.0, Coverage(dict.fromkeys(REQUIRED, 1234)), None, None))
    page = tmp_path / "page.md"
    page.write_text(f"before\n{FIGURES.begin}\nold\n{FIGURES.end}\nafter\n")

    write_figures(page, "make sim SEEDS=1", report)

    text = page.read_text()
    assert text.startswith(f"before\n{FIGURES.begin}\n\n`make sim SEEDS=1`: 1 seeds, 2,000 events ")
    assert "| election, truncation | 1,234, 1,234 |" in text and "old" not in text
    assert not re.search(r"[|,] 0\b", text.partition("| event |")[2]), "each name is counted"
    assert text.endswith("\nafter\n") and FIGURES.begin in PAGE.read_text()


@pytest.mark.slow
def test_a_seed_with_a_bug_is_one_history() -> None:
    """As without a bug: the same law, after as many events, in this process or another."""
    hunt = Hunt("unknown-called-refused", 3, 1, 2_000)
    here, elsewhere = run_hunt(hunt)[1], next(on_all_cores(run_hunt, [hunt]))[1]

    assert here.failure is not None
    assert here == elsewhere


@pytest.mark.slow
def test_a_failure_says_how_to_see_it_again() -> None:
    """A report begins with the law, and has the command, the options and the last events in it."""
    job = Job(1, 2_000, "vote-not-persisted")
    failure = run_job(job).failure

    assert failure is not None
    assert failure.startswith("LawBroken: R2")
    assert "    python -m tests.sim --seed 1 --events 2000 --mutant vote-not-persisted\n" in failure
    assert "The last events:" in failure
    assert "c1 " in failure.splitlines()[-1]


def test_no_seeded_bug_that_is_named_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--mutants` hunts every bug that is named. A run takes one bug at most, and `--hours` none."""
    first, second = list(MUTANTS)[:2]
    hunted: list[list[str]] = []

    def hunt_all(names: list[str], *_: object) -> int:
        hunted.append(names)
        return 0

    monkeypatch.setattr(hunting, "hunt_all", hunt_all)
    assert main(["--mutants", "--mutant", first, "--mutant", second]) == 0
    assert main(["--mutants"]) == 0
    assert hunted == [[first, second], list(MUTANTS)]
    for words in (["--seed", "1", "--mutant", first, "--mutant", second], ["--hours", "0", "--mutant", first]):
        with pytest.raises(SystemExit, match="2"):
            main(words)
        assert "--mutant" in capsys.readouterr().err.splitlines()[-1]
