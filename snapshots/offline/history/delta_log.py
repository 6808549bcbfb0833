"""The tables of a history as Delta tables, on demand: `_delta_log` in the directory of a table names the files that count.

    OUT/leadership/_delta_log/00000000000000000000.json     protocol, schema, and the files of the first run
    OUT/leadership/_delta_log/00000000000000000001.json     the files that the second run has added and removed

No row is copied, because a Delta table *is* Parquet files with such a log. Readers of Delta see a run as a whole: open intervals
never come twice. Example: run 1 has left `open-1`, and run 2 has written `closed-2` and `open-2`.
  1. The baseline says 2. A reader of Delta still sees the files of run 1, which are all there.
  2. One commit adds `closed-2` and `open-2`, and removes `open-1`: the reader sees run 2.
  3. The job deletes `open-1`. If the job dies between these steps, the next run begins with step 2.

The protocol is that of Delta Lake, reader version 1 and writer version 2. There are no checkpoints: a history has one commit for
each run.
"""

import json
import re
import uuid
from collections.abc import Iterable
from typing import Any, Final

import pyarrow.parquet as pq

from snapshots.offline.history.output import HistoryRefused, day_of, files_that_count
from snapshots.offline.history.storage.directory import TablesDirectory
from snapshots.offline.history.tables import TABLES, schema_of_table
from snapshots.offline.readonly import location_of
from snapshots.offline.typed.arrow_schema import spark_schema_of

LOG_NAME: Final = "_delta_log"
COMMIT_BYTES_MAX: Final = 256 << 20
"""Maximum size of a commit. The first one has a line for each file."""
_COMMIT: Final = re.compile(r"(\d{20})\.json")


def has_log(out: TablesDirectory) -> bool:
    """Return True if the tables in the directory are Delta tables."""
    return any(out.exists(f"{table}/{LOG_NAME}") for table in TABLES)


def commit(out: TablesDirectory, tables: Iterable[str], run: int) -> None:
    """Let the logs name the files that count after `run`. A log that names them already stays as it is.

    Raises:
        HistoryRefused: a log is damaged.
    """
    for table in tables:
        wanted = {name.removeprefix(f"{table}/"): name for name in files_that_count(out, table, run)}
        version, known = _replayed(out, table)
        actions = [{"add": _added(out, name, wanted[name])} for name in sorted(set(wanted) - known)]
        actions += [{"remove": {"path": name, "dataChange": True}} for name in sorted(known - set(wanted))]
        if version is None:
            actions = [_PROTOCOL, {"metaData": _metadata(out, table)}, *actions]
        if actions:
            number = 0 if version is None else version + 1
            text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
            out.write_atomic(f"{table}/{LOG_NAME}/{number:020}.json", text.encode())


def named_files(out: TablesDirectory, table: str) -> set[str]:
    """Return the files that the log of a table names, relative to its directory."""
    return _replayed(out, table)[1]


_PROTOCOL: Final = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def _replayed(out: TablesDirectory, table: str) -> tuple[int | None, set[str]]:
    """Return the version of a table, and its files; (None, nothing) without a log."""
    names: set[str] = set()
    version: int | None = None
    log = out.below(f"{table}/{LOG_NAME}")
    for name in sorted(filter(_COMMIT.fullmatch, log.names())):
        try:
            for line in (log.content(name, COMMIT_BYTES_MAX) or b"").splitlines():
                action: dict[str, Any] = json.loads(line)
                if "add" in action:
                    names.add(action["add"]["path"])
                elif "remove" in action:
                    names.discard(action["remove"]["path"])
        except (ValueError, KeyError, TypeError) as e:
            raise HistoryRefused(
                f"{log}/{name} is damaged ({e!r:.80}); make the tables anew in another directory"
            ) from None
        version = int(name.removesuffix(".json"))
    return version, names


def _metadata(out: TablesDirectory, table: str) -> dict[str, Any]:
    return {
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{location_of(str(out))}/{table}")),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": spark_schema_of(schema_of_table(table)).json(),
        "partitionColumns": ["day"],
        "configuration": {},
    }


def _added(out: TablesDirectory, name: str, path: str) -> dict[str, Any]:
    """Return what a commit says about a file: `name` is relative to the table, and `path` to the directory of the tables."""
    size, changed_ms = out.status(path)
    with out.source(path) as source:
        rows = pq.read_metadata(source).num_rows
    return {
        "path": name,
        "partitionValues": {"day": day_of(path)},
        "size": size,
        "modificationTime": changed_ms,
        "dataChange": True,
        "stats": json.dumps({"numRecords": rows}),
    }
