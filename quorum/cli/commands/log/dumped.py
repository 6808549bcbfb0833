"""The rows of log files: batches with their records, and damaged places."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from quorum.cli.errors import CliError
from quorum.cli.output import Column
from quorum.wire.words import time_text

RECORDS = (
    Column("OFFSET", "offset"),
    Column("EPOCH", "epoch"),
    Column("TIME", "time"),
    Column("TYPE", "type"),
    Column("DATA", "data_text"),
)

_KAFKAS: Final = "__cluster_metadata-0"
"""The directory of the metadata log of an Apache Kafka controller."""


def rows_in(paths: Iterable[Path], *, with_records: bool) -> Iterator[dict[str, Any]]:
    """Lists the batches and the damage in the files that the paths stand for. Raises CliError."""
    from quorum.cli.commands.log.log_files import files_of, rows_of

    for path in paths:
        if path.name == _KAFKAS or (path / _KAFKAS).is_dir():
            raise CliError(
                f"{path} has a log of Apache Kafka; nothing was shown: `quorum-offline dump {path}` shows it"
            )
        try:
            files = files_of(path)
            if not files:
                raise CliError(
                    f"{path} holds neither segments nor snapshots; name a node's data directory, or such files"
                )
            for file in files:
                yield from rows_of(file, with_records=with_records)
        except OSError as e:
            raise CliError(f"{e.filename or path}: {e.strerror}") from e


def record_rows(
    rows: Iterator[dict[str, Any]], from_offset: int = 0, to_offset: int | None = None
) -> Iterator[dict[str, Any]]:
    """A row for each record. The time is the time of the record's batch: one append writes all its records at once."""
    for row in rows:
        if row["kind"] == "damage":
            yield {"type": "DAMAGE", "data_text": f"{row['file']} at byte {row['position']}: {row['reason']}"}
            continue
        batch = {"epoch": row["epoch"], "time": time_text(row["last_timestamp_ms"])}
        if "reason" in row:
            yield {**batch, "offset": row["base_offset"], "type": "DAMAGE", "data_text": row["reason"]}
        for record in row["records"]:
            if record["offset"] < from_offset or (to_offset is not None and record["offset"] >= to_offset):
                continue
            text = json.dumps(record["data"], ensure_ascii=False)
            shown = {"offset": record["offset"], "type": record["type"], "data": record["data"], "data_text": text}
            yield {**batch, **shown}
