"""The directory of a history, and its baseline: how a run adds to the tables so that a crash leaves no half of it.

    OUT/_history.json                          the baseline: where the tables end, and how the next run goes on
    OUT/_state/run-2-*.parquet                 canonical records and open intervals at the baseline
    OUT/leadership/day=2026-11-24/run-1-*.parquet
    OUT/leadership/day=__HIVE_DEFAULT_PARTITION__/run-2-*.parquet      intervals that are open

Each file carries the number of its run, and the baseline names the last run that is complete. Example: run 2 dies.
  1. The files of run 2 are in `_staging`, or some of them beside those of run 1. The baseline still says 1.
  2. The next run removes all files of runs above 1, and does the work again as run 2.
  3. Its baseline says 2. From now on the open rows and the state of run 1 are old, and are removed.
If the run dies between the steps 2 and 3 of the above, the next run removes what is old.

The files of a run are flushed to the disk before its baseline names them, so a power cut loses no rows either. The run holds the
lock of the directory: a second run is refused.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from metadata_log.disk.failures import DirectoryInUse
from metadata_log.disk.files import LOCK_NAME, RealDirectory
from metadata_log.format.ids import Epoch, NodeId, Offset
from snapshots.offline.history.folding.steps import Step
from snapshots.offline.history.tables import STATE, TABLES, Row

BASELINE_NAME: Final = "_history.json"
STAGING: Final = "_staging"
STATE_FILES: Final = "run-{run}-*.parquet"
OPEN_DAY: Final = "day=__HIVE_DEFAULT_PARTITION__"
SCHEMA_VERSION: Final = 1
BASELINE_BYTES_MAX: Final = 64 << 20
"""Maximum size of a baseline. It has a row for each broker."""
_FILE: Final = re.compile(r"run-(\d+)-.*\.parquet")


class HistoryRefused(Exception):
    """No history can be made, or the tables cannot go on. The text says why, and what to do."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}. The tables were not changed")


class Baseline(NamedTuple):
    """The place where the tables end."""

    run: int
    node: str
    tables: tuple[str, ...]
    since: Offset
    end: Step
    chain: bytes | None
    """The chain of the log at the end; None if the log was empty."""
    election: tuple[Epoch, NodeId] | None
    """The epoch and the leader of the last election."""
    growth: Row
    """The sizes at the end, and the row of the newest day."""
    brokers: tuple[Row, ...]
    """The open intervals of brokers."""
    state_rows: int
    """The number of rows in the files of `_state`."""


def place_of(out_dir: str) -> Path:
    """Return the directory of the tables.

    Raises:
        HistoryRefused: the text is the URL of an object store.
    """
    path = out_dir.removeprefix("file://")
    if "://" in path:
        raise HistoryRefused(
            f"{out_dir} is an object store, and the tables grow in place: name a directory that driver and workers "
            "share, and copy it"
        )
    return Path(path)


def read_baseline(out: Path) -> Baseline | None:
    """Return the baseline in the directory; None if there is none.

    Raises:
        HistoryRefused: the file is damaged or of a later release, or the directory has other files.
    """
    path = out / BASELINE_NAME
    if not path.exists():
        strange = [entry.name for entry in out.iterdir() if entry.name not in _ours()] if out.exists() else []
        if strange:
            raise HistoryRefused(f"{out} has files that no history has, such as {strange[0]}; choose another directory")
        return None
    try:
        found = json.loads(RealDirectory(out).read(BASELINE_NAME, BASELINE_BYTES_MAX))
        version = found.pop("schema_version")
        if version != SCHEMA_VERSION:
            raise HistoryRefused(
                f"{path}: version {version}, and this release reads {SCHEMA_VERSION}; use a new directory"
            )
        return Baseline(
            run=found["run"],
            node=found["node"],
            tables=tuple(found["tables"]),
            since=found["since"],
            end=Step(*found["end"]),
            chain=None if found["chain"] is None else bytes.fromhex(found["chain"]),
            election=None if found["election"] is None else tuple(found["election"]),
            growth=found["growth"],
            brokers=tuple(found["brokers"]),
            state_rows=int(found["state_rows"]),
        )
    except (ValueError, KeyError, TypeError) as e:
        raise HistoryRefused(f"{path} is damaged ({e!r:.80}); make the tables anew in another directory") from None


def write_baseline(out: Path, baseline: Baseline) -> None:
    """Make the run of this baseline the last complete one."""
    found: dict[str, Any] = baseline._asdict()
    found["end"] = list(baseline.end)
    found["chain"] = None if baseline.chain is None else baseline.chain.hex()
    text = json.dumps({"schema_version": SCHEMA_VERSION, **found}, ensure_ascii=False, indent=1)
    RealDirectory(out).write_atomic(BASELINE_NAME, text.encode())


def _ours() -> set[str]:
    return {BASELINE_NAME, LOCK_NAME, STAGING, STATE, *TABLES}


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold the lock of the directory, which is made unless it exists.

    Raises:
        HistoryRefused: another run holds the lock.
    """
    out.mkdir(parents=True, exist_ok=True)
    directory = RealDirectory(out)
    try:
        directory.lock()
    except DirectoryInUse:
        raise HistoryRefused(f"another run is writing to {out}; wait until it has ended") from None
    try:
        yield
    finally:
        directory.unlock()


def prepare(out: Path, complete_run: int) -> Path:
    """Remove what an incomplete run has left, and return an empty staging directory."""
    staging = out / STAGING
    if staging.exists():
        shutil.rmtree(staging)
    for path, run in _files(out):
        if run > complete_run:
            path.unlink()
    remove_old(out, complete_run)
    staging.mkdir(parents=True)
    return staging


def publish(out: Path, tables: Iterable[str]) -> None:
    """Move the staged files beside those of earlier runs. Each table gets a directory, also if it has no rows."""
    staging = out / STAGING
    directories = {out}
    for table in tables:
        (out / table).mkdir(exist_ok=True)
        directories.add(out / table)
    for path in sorted(staging.rglob("*.parquet")):
        target = out / path.relative_to(staging)
        target.parent.mkdir(parents=True, exist_ok=True)
        _flush(path)
        path.replace(target)  # the baseline, and not this move, makes the rows count
        directories |= {target.parent, target.parent.parent}
    for directory in directories:
        _flush(directory)
    shutil.rmtree(staging)


def _flush(path: Path) -> None:
    """Flush a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_old(out: Path, run: int) -> None:
    """Remove the open rows, and the state, of runs before `run`."""
    for path, found in _files(out):
        if found < run and (path.parent.name == OPEN_DAY or path.parent.name == STATE):
            path.unlink()


def files_that_count(out: Path, table: str, run: int) -> list[Path]:
    """Return the files of a table after `run` is complete: final rows of all runs, and the open rows of this run."""
    found = [
        (path, int(match[1]))
        for path in sorted((out / table).rglob("*.parquet"))
        if (match := _FILE.fullmatch(path.name))
    ]
    return [path for path, number in found if number == run or (number < run and path.parent.name != OPEN_DAY)]


def _files(out: Path) -> Iterator[tuple[Path, int]]:
    for table in (*TABLES, STATE):
        for path in sorted((out / table).rglob("*.parquet")):
            match = _FILE.fullmatch(path.name)
            if match is not None:
                yield path, int(match[1])
