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

OUT may be the URL of an object store, which has no lock. So a run looks again before it moves its files: is the baseline still
the one on which it builds, and does its staging directory still exist? Example: runs 2 of two jobs, A and B.
  1. A begins. B begins, and removes the staging directory of A.
  2. A has done its work, finds no staging directory, and is refused. B goes on.
Between this look and the new baseline nothing guards a run: the operator lets one job at a time write at a URL.
"""

import json
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from metadata_log.disk.failures import DirectoryInUse
from metadata_log.disk.files import LOCK_NAME
from metadata_log.format.batch import CHAIN_BYTES
from metadata_log.format.ids import OFFSET_MAX, Epoch, NodeId, Offset
from snapshots.offline.history.folding.steps import Step
from snapshots.offline.history.storage.directory import LocalTables, StoredTables, TablesDirectory
from snapshots.offline.history.storage.kept_rows import check_brokers, check_growth
from snapshots.offline.history.tables import STATE, TABLES, Row

BASELINE_NAME: Final = "_history.json"
STAGING: Final = "_staging"
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


def place_of(out_dir: str) -> TablesDirectory:
    """Return the directory of the tables, by its local path or URL.

    Raises:
        HistoryRefused: Arrow knows no such URL.
        OSError: the store cannot be opened.
    """
    path = out_dir.removeprefix("file://")
    if "://" not in path:
        return LocalTables(Path(path))
    try:
        return StoredTables(path)
    except (ValueError, NotImplementedError) as e:
        raise HistoryRefused(f"{out_dir} is no URL of a store that can be opened ({e}); name another one") from None


def read_baseline(out: TablesDirectory) -> Baseline | None:
    """Return the baseline in the directory; None if there is none.

    Raises:
        HistoryRefused: the file is damaged or of a later release, or the directory has other files.
    """
    path = f"{out}/{BASELINE_NAME}"
    try:
        content = out.content(BASELINE_NAME, BASELINE_BYTES_MAX)
        if content is None:
            _check_ours(out)
            return None
        found = json.loads(content)
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
    check_growth(growth)
    check_brokers(brokers)
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


def write_baseline(out: TablesDirectory, baseline: Baseline) -> None:
    """Make the run of this baseline the last complete one."""
    found: dict[str, Any] = baseline._asdict()
    found["end"] = list(baseline.end)
    found["chain"] = None if baseline.chain is None else baseline.chain.hex()
    text = json.dumps({"schema_version": SCHEMA_VERSION, **found}, ensure_ascii=False, indent=1)
    out.write_atomic(BASELINE_NAME, text.encode())


def _check_ours(out: TablesDirectory) -> None:
    """Refuse a directory with other files. A run that died may have left its files, and no baseline."""
    ours = {
        BASELINE_NAME,
        *(BASELINE_NAME + suffix for suffix in (".tmp", ".part")),
        STAGING,
        STATE,
        LOCK_NAME,
        *TABLES,
    }
    strange = [name for name in out.names() if name not in ours]
    if strange:
        raise HistoryRefused(f"{out} has files that no history has, such as {strange[0]}; choose another directory")


@contextmanager
def locked(out: TablesDirectory, last: Baseline | None) -> Iterator[None]:
    """Let only this run write; at a store, look whether another one has written. `last`: the baseline on which the run builds.

    Raises:
        HistoryRefused: another run writes, or has written since `last` was read.
    """
    try:
        with out.exclusive():
            _check_last(out, last)
            yield
    except DirectoryInUse:
        raise HistoryRefused(
            f"another run writes the tables in {out}; wait for its end, and run the job again"
        ) from None


def _check_last(out: TablesDirectory, last: Baseline | None) -> None:
    if read_baseline(out) != last:
        raise HistoryRefused(f"another run has written {out} meanwhile; run the job again")


def prepare(out: TablesDirectory, complete_run: int) -> TablesDirectory:
    """Remove what an incomplete run has left, and return an empty staging directory."""
    out.remove_all(STAGING)
    out.remove_files([name for name, run in _files(out) if run > complete_run])
    remove_old(out, complete_run)
    mine = out.below(f"{STAGING}/{secrets.token_hex(8)}")
    mine.create_staging()
    return mine


def check_alone(out: TablesDirectory, staging: TablesDirectory, last: Baseline | None) -> None:
    """Refuse to go on if another run has begun or ended since `prepare`. Only a store lets that happen.

    Raises:
        HistoryRefused: another run has written, or writes.
    """
    _check_last(out, last)
    if not staging.is_staging():
        raise HistoryRefused(
            f"another run writes the tables in {out}; let one job at a time write there, and run it again"
        )


def publish(out: TablesDirectory, staging: TablesDirectory, tables: Iterable[str]) -> None:
    """Move the staged files beside those of earlier runs, durably. Each table gets a directory, also if it has no rows."""
    out.publish(staging, tables)
    out.remove_all(STAGING)


def remove_old(out: TablesDirectory, run: int) -> None:
    """Remove the open rows, and the state, of runs before `run`."""
    out.remove_files([name for name, found in _files(out) if found < run and _folder(name) in (OPEN_DAY, STATE)])


def files_that_count(out: TablesDirectory, table: str, run: int) -> list[str]:
    """Return the files of a table after `run` is complete: final rows of all runs, and the open rows of this run."""
    return [
        name for name, number in _numbered(out, table) if number == run or (number < run and _folder(name) != OPEN_DAY)
    ]


def files_of_state(out: TablesDirectory, run: int) -> list[str]:
    """Return the files of the state that a run has left."""
    return [name for name, number in _numbered(out, STATE) if number == run]


def day_of(name: str) -> str | None:
    """Return the day of a file's rows, such as 2026-11-24; None: they are open."""
    folder = _folder(name)
    return None if folder == OPEN_DAY else folder.removeprefix("day=")


def _folder(name: str) -> str:
    return name.split("/")[-2]


def _files(out: TablesDirectory) -> Iterator[tuple[str, int]]:
    for table in (*TABLES, STATE):
        yield from _numbered(out, table)


def _numbered(out: TablesDirectory, table: str) -> Iterator[tuple[str, int]]:
    """Yield the names of the files of a table, in the directory `out`, each with the number of its run."""
    for name in out.files(table):
        match = _FILE.fullmatch(name.rpartition("/")[2])
        if match is not None:
            yield name, int(match[1])
