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

The files of a run are flushed to the disk before its baseline names them, so a power cut loses no rows either.

One run at a time writes, under a lock. A staging directory has a random name, because Spark's tasks of a killed driver may write
on for some seconds: they must not write into the files of the next run.
"""

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from metadata_log.disk.failures import DirectoryInUse
from metadata_log.disk.files import LOCK_NAME, RealDirectory
from metadata_log.format.batch import CHAIN_BYTES
from metadata_log.format.ids import OFFSET_MAX, Epoch, NodeId, Offset
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
        if path.stat().st_size > BASELINE_BYTES_MAX:
            raise ValueError(f"more than {BASELINE_BYTES_MAX} bytes")
        found = json.loads(path.read_bytes())
        version = found.pop("schema_version")
        if version != SCHEMA_VERSION:
            raise HistoryRefused(
                f"{path}: version {version}, and this release reads {SCHEMA_VERSION}; use a new directory"
            )
        return _parsed(found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise HistoryRefused(f"{path} is damaged ({e!r:.80}); make the tables anew in another directory") from None


def _parsed(found: dict[str, Any]) -> Baseline:
    """Return the baseline of a document that a run, or anybody, has written.

    Raises:
        ValueError, KeyError, TypeError: the document is no baseline.
    """
    node, names, growth, brokers = found["node"], found["tables"], found["growth"], found["brokers"]
    if not isinstance(node, str) or not isinstance(growth, dict) or not isinstance(names, list):
        raise ValueError("node, growth or tables")
    if not all(name in TABLES for name in names):
        raise ValueError("an unknown table")
    if not isinstance(brokers, list) or not all(isinstance(row, dict) for row in brokers):
        raise ValueError("brokers")
    chain = None if found["chain"] is None else bytes.fromhex(found["chain"])
    if chain is not None and len(chain) != CHAIN_BYTES:
        raise ValueError("chain")
    return Baseline(
        run=_number(found["run"]),
        node=node,
        tables=tuple(names),
        since=_number(found["since"]),
        end=_step(*found["end"]),
        chain=chain,
        election=None if found["election"] is None else _pair(*map(_number, found["election"])),
        growth=growth,
        brokers=tuple(brokers),
        state_rows=_number(found["state_rows"]),
    )


def _step(offset: Any, time_ms: Any, epoch: Any, principal: Any = None, request_id: Any = None) -> Step:
    if not all(text is None or isinstance(text, str) for text in (principal, request_id)):
        raise ValueError("the end's principal or request")
    return Step(_number(offset), _number(time_ms), _number(epoch), principal, request_id)


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= OFFSET_MAX:
        raise ValueError(f"{value!r:.40} is no number from 0 on")
    return value


def _pair(epoch: Epoch, leader: NodeId) -> tuple[Epoch, NodeId]:
    return epoch, leader


def write_baseline(out: Path, baseline: Baseline) -> None:
    """Make the run of this baseline the last complete one."""
    found: dict[str, Any] = baseline._asdict()
    found["end"] = list(baseline.end)
    found["chain"] = None if baseline.chain is None else baseline.chain.hex()
    text = json.dumps({"schema_version": SCHEMA_VERSION, **found}, ensure_ascii=False, indent=1)
    RealDirectory(out).write_atomic(BASELINE_NAME, text.encode())


def _ours() -> set[str]:
    return {BASELINE_NAME, f"{BASELINE_NAME}.tmp", STAGING, STATE, LOCK_NAME, *TABLES}


@contextmanager
def locked(out: Path, last: Baseline | None) -> Iterator[None]:
    """Let only this run write. `last`: the baseline on which the run builds.

    Raises:
        HistoryRefused: another run writes, or has written since `last` was read.
    """
    out.mkdir(parents=True, exist_ok=True)
    directory = RealDirectory(out)
    try:
        directory.lock()
    except DirectoryInUse:
        raise HistoryRefused(
            f"another run writes the tables in {out}; wait for its end, and run the job again"
        ) from None
    try:
        if read_baseline(out) != last:
            raise HistoryRefused(f"another run has written {out} meanwhile; run the job again")
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
    mine = staging / secrets.token_hex(8)
    mine.mkdir(parents=True)
    return mine


def publish(out: Path, staging: Path, tables: Iterable[str]) -> None:
    """Move the staged files beside those of earlier runs, durably. Each table gets a directory, also if it has no rows."""
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
    shutil.rmtree(out / STAGING)


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
