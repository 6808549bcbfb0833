"""A proof that was stopped goes on where it was, and only while the code is the same."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import journal as journals
from tests.journal import PROVEN, ROOT, Journal, digest_of_code
from tests.sim.runner import on_all_cores


class Square(NamedTuple):
    number: int


def squared(task: Square) -> int:
    return task.number**2


def never(task: Square) -> int:
    raise AssertionError(f"{task} was run again")


@pytest.mark.slow
def test_tasks_of_an_earlier_run_are_not_run_again(tmp_path: Path) -> None:
    """The first run is stopped after tasks 0, 1 and 2. The second runs 3 and 4, the third nothing at all."""
    path = tmp_path / "squares"
    tasks = [Square(number) for number in range(5)]
    assert sorted(on_all_cores(squared, tasks[:3], Journal(path))) == [0, 1, 4]
    assert sorted(on_all_cores(squared, tasks, Journal(path))) == [0, 1, 4, 9, 16]
    assert len(Journal(path)) == 5
    assert sorted(on_all_cores(never, tasks, Journal(path))) == [0, 1, 4, 9, 16]


def test_a_pair_that_was_cut_off_is_forgotten(tmp_path: Path) -> None:
    """The journal ends, after task 1, with the first bytes of a pair. Task 2 is noted in their place."""
    path = tmp_path / "squares"
    journal = Journal(path)
    journal.note(Square(1), 1)
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes() + pickle.dumps((Square(2), 4))[:-3])
    journal = Journal(path)
    assert len(journal) == 1 and path.stat().st_size == whole
    journal.note(Square(2), 4)
    assert Journal(path).result_of(Square(2)) == 4


def test_other_code_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal of the old code is deleted. The journal of another proof stays."""
    Journal.of(tmp_path, "sim").note(Square(1), 1)
    Journal.of(tmp_path, "fuzz").note(Square(1), 1)
    assert len(Journal.of(tmp_path, "sim")) == 1
    monkeypatch.setattr(journals, "digest_of_code", lambda: "other")
    assert len(Journal.of(tmp_path, "sim")) == 0
    assert [file.name.split("-")[0] for file in sorted(tmp_path.iterdir())] == ["fuzz", "sim"]


def test_the_digest_depends_on_every_byte_of_the_code(tmp_path: Path) -> None:
    core = tmp_path / "quorum" / "core"
    core.mkdir(parents=True)
    (core / "votes.py").write_text("LIMIT = 1\n")
    before = digest_of_code(tmp_path)
    assert digest_of_code(tmp_path) == before
    (core / "votes.py").write_text("LIMIT = 2\n")
    assert digest_of_code(tmp_path) != before


IMPORTED = """
import sys
import tests.fuzz.__main__, tests.sim.__main__
print(*(file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))), sep="\\n")
"""


@pytest.mark.slow
def test_the_digest_covers_every_file_that_a_proof_imports() -> None:
    """The fuzzer mutates the requests of `tests/quorum/wire/good_requests.py`: with other requests its tasks are others."""
    run = subprocess.run([sys.executable, "-c", IMPORTED], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [Path(line) for line in run.stdout.splitlines()]
    files = [path.relative_to(ROOT) for path in paths if path.is_relative_to(ROOT / "tests")]
    assert len(files) > 50
    uncovered = [str(file) for file in files if not any(file.is_relative_to(room) for room in PROVEN)]
    assert [file for file in uncovered if not file.endswith("__init__.py")] == ["tests/journal.py"]
