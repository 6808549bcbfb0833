"""Print a log as lines, damage included. Reads the files without Spark or Java."""

import json
from collections.abc import Iterator
from typing import Any

from snapshots.offline.inputs import NodeLog, find_log
from snapshots.offline.kafka.dump import Range, Tally
from snapshots.offline.rows import RecordRow, record_rows
from snapshots.offline.scan import FileRange, Scanned, scan


def batch_lines(path: str, wanted: Range, beyond: bool, as_json: bool, tally: Tally) -> Iterator[str]:
    """Return one line per batch."""
    for name, scanned in _scan(find_log(path), wanted, beyond):
        batch = scanned.batch
        tally.damaged += batch is None or scanned.chain_ok is False
        if as_json:
            yield json.dumps(_batch_json(name, scanned))
        elif batch is None:
            yield f"{name}:{scanned.position}  DAMAGE  {scanned.error}"
        else:
            chain = batch.chain.hex()[:16] + ("" if scanned.chain_ok is not False else "  CHAIN BROKEN")
            yield f"{name}:{scanned.position}  {batch}  {batch.last_timestamp_ms}  {chain}"


def record_lines(path: str, wanted: Range, beyond: bool, as_json: bool, tally: Tally) -> Iterator[str]:
    """Return one line per record."""
    for name, scanned in _scan(find_log(path), wanted, beyond):
        for row in record_rows("", name, scanned):
            if row.error is None and (row.offset is None or not wanted.has(row.offset)):
                continue
            tally.damaged += row.error is not None
            if as_json:
                yield _record_json(row)
            elif row.error is not None:
                yield f"{row.offset}  DAMAGE  {row.file}:{row.position}  {row.error}"
            else:
                yield f"{row.offset}  {row.epoch}  {row.type_name}  {row.json}"


def _scan(log: NodeLog, wanted: Range, beyond: bool) -> Iterator[tuple[str, Scanned]]:
    """Return the batches and damaged places of the log, with the names of their files; above the durable end if `beyond`."""
    ends = [end for end in (wanted.until, None if beyond else log.durable_end) if end is not None]
    until = min(ends) if ends else None
    for segment in log.segments_needed(wanted.since, until):
        file = log.directory.open(segment.name)
        try:
            for scanned in scan(file, FileRange(segment.name, 0, file.size(), None, None), until):
                if scanned.batch is None or scanned.batch.end_offset > wanted.since:
                    yield segment.name, scanned
        finally:
            file.close()


def _batch_json(name: str, scanned: Scanned) -> dict[str, Any]:
    batch = scanned.batch
    found: dict[str, Any] = {
        "file": name,
        "position": scanned.position,
        "bytes": scanned.length,
        "error": scanned.error,
    }
    if batch is not None:
        found |= {
            "base_offset": batch.base_offset,
            "end_offset": batch.end_offset,
            "epoch": batch.epoch,
            "control": batch.is_control,
            "first_timestamp_ms": batch.first_timestamp_ms,
            "last_timestamp_ms": batch.last_timestamp_ms,
            "chain": batch.chain.hex(),
            "chain_ok": scanned.chain_ok,
        }
    return found


def _record_json(row: RecordRow) -> str:
    found = {
        "file": row.file,
        "position": row.position,
        "offset": row.offset,
        "epoch": row.epoch,
        "timestamp_ms": None if row.timestamp is None else row.timestamp // 1_000,
        "type": row.type_name,
        "version": row.version,
        "data": None if row.json is None else json.loads(row.json),
        "error": row.error,
    }
    return json.dumps(found, ensure_ascii=False)
