"""Print a log as lines, damage included. Reads the files without Spark or Java."""

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from metadata_log.format.ids import Offset
from snapshots.offline.inputs import NodeLog, find_log
from snapshots.offline.rows import record_rows
from snapshots.offline.scan import FileRange, Scanned, scan

OnDamage: TypeAlias = Callable[[], object]
"""Called for each damaged place, before its line."""


def _nothing() -> None:
    """Takes no notice of damage."""


def batch_lines(
    path: str, since: Offset, to: Offset | None, beyond: bool, as_json: bool, on_damage: OnDamage = _nothing
) -> Iterator[str]:
    """Return one line per batch."""
    for name, scanned in _scan(find_log(path), since, to, beyond):
        batch = scanned.batch
        if batch is None or scanned.chain_ok is False:
            on_damage()
        if as_json:
            yield json.dumps(_batch_json(name, scanned))
        elif batch is None:
            yield f"{name}:{scanned.position}  DAMAGE  {scanned.error}"
        else:
            chain = batch.chain.hex()[:16] + ("" if scanned.chain_ok is not False else "  CHAIN BROKEN")
            yield f"{name}:{scanned.position}  {batch}  {batch.last_timestamp_ms}  {chain}"


def record_lines(
    path: str, since: Offset, to: Offset | None, beyond: bool, as_json: bool, on_damage: OnDamage = _nothing
) -> Iterator[str]:
    """Return one line per record."""
    for name, scanned in _scan(find_log(path), since, to, beyond):
        for row in record_rows("", name, scanned):
            _, file, position, offset, epoch, timestamp, _, type_name, version, *_, data, error = row
            if isinstance(offset, int) and error is None and (offset < since or (to is not None and offset >= to)):
                continue
            if error is not None:
                on_damage()
            if as_json:
                yield _record_json(file, position, offset, epoch, timestamp, type_name, version, data, error)
            elif error is not None:
                yield f"{offset}  DAMAGE  {file}:{position}  {error}"
            else:
                yield f"{offset}  {epoch}  {type_name}  {data}"


def _scan(log: NodeLog, since: Offset, to: Offset | None, beyond: bool) -> Iterator[tuple[str, Scanned]]:
    ends = [end for end in (to, None if beyond else log.durable_end) if end is not None]
    until = min(ends) if ends else None
    for segment in log.segments_needed(since, until):
        file = log.directory.open(segment.name)
        try:
            for scanned in scan(file, FileRange(segment.name, 0, file.size(), None, None), until):
                if scanned.batch is None or scanned.batch.end_offset > since:
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


def _record_json(
    file: object,
    position: object,
    offset: object,
    epoch: object,
    timestamp_us: object,
    type_name: object,
    version: object,
    data: object,
    error: object,
) -> str:
    found = {
        "file": file,
        "position": position,
        "offset": offset,
        "epoch": epoch,
        "timestamp_ms": timestamp_us // 1_000 if isinstance(timestamp_us, int) else None,
        "type": type_name,
        "version": version,
        "data": json.loads(data) if isinstance(data, str) else None,
        "error": error,
    }
    return json.dumps(found, ensure_ascii=False)
