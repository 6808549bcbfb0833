"""A long proof that was stopped goes on where it was: a journal keeps the result of each task that has ended.

A journal belongs to one state of the code, because a result proves nothing about other code. Example with `make sim SEEDS=5000`:
    1. the run is stopped after seed 3,000; `.proofs/sim-<digest of the code>` holds 3,000 results;
    2. the same command reads them, counts them, and runs seeds 3,001 to 5,000;
    3. a file of the product or of the simulator changes, and with it the digest: the next run begins anew at seed 1, and deletes
       the old journal.

A task is a NamedTuple that says all about its work (a seed, a number of events), so that the same task has the same result.
The journal is a sequence of pickled pairs. A stop in the middle of a write leaves a part of the last pair, which the next run
cuts off.
"""

import hashlib
import pickle
import platform
import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROVEN = (
    "metadata_log",
    "quorum",
    "broker_agent",
    "snapshots",
    "clients",
    "service_kit",
    "proto",
    "tests/sim",
    "tests/fuzz",
    "tests/golden",
    "tests/quorum",
    "tests/snapshots/kafka",
    "tests/broker_agent/replica",
)
"""The rooms whose code decides the result of a task; the fuzzer begins with samples of the last two."""


def digest_of_code(root: Path = ROOT) -> str:
    """The digest of every Python file in the rooms, and of the interpreter's version."""
    digest = hashlib.sha256(platform.python_version().encode())
    for room in PROVEN:
        for file in sorted((root / room).rglob("*.py")):
            data = file.read_bytes()
            digest.update(f"{file.relative_to(root)} {len(data)}\n".encode())
            digest.update(data)
    return digest.hexdigest()[:16]


class Journal:
    """The results of earlier runs of one proof, and the file to which this run adds its own."""

    def __init__(self, path: Path) -> None:
        self._results: dict[Hashable, Any] = {}
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            file.seek(0)
            whole = 0
            try:
                while True:
                    task, result = pickle.load(file)
                    self._results[task] = result
                    whole = file.tell()
            except (EOFError, pickle.UnpicklingError):
                file.truncate(whole)

    @classmethod
    def of(cls, directory: Path, proof: str) -> "Journal":
        """The journal of `proof` for the code as it is now; deletes the journals of this proof for other code."""
        path = directory / f"{proof}-{digest_of_code()}"
        for other in directory.glob(f"{proof}-*"):
            if other != path:
                other.unlink()
        return cls(path)

    def __len__(self) -> int:
        return len(self._results)

    def __contains__(self, task: Hashable) -> bool:
        return task in self._results

    def result_of(self, task: Hashable) -> Any:
        return self._results[task]

    def note(self, task: Hashable, result: Any) -> None:
        self._results[task] = result
        with self._path.open("ab") as file:
            pickle.dump((task, result), file)


def opened(directory: Path | None, proof: str) -> Journal | None:
    """The journal of `proof` in `directory`, if a directory is given; tells how many results an earlier run has left."""
    if directory is None:
        return None
    journal = Journal.of(directory, proof)
    if journal:
        told = f"{proof}: {len(journal):,} results of an earlier run of the same code are in {directory}"
        sys.stderr.write(f"{told}\n")
    return journal
