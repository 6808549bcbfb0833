"""Print a metadata log of Apache Kafka, or one of its files, as lines, damage included."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from metadata_log.disk.files import Directory
from metadata_log.format.ids import Offset
from snapshots.offline.kafka.errors import KafkaFormatError
from snapshots.offline.kafka.log_files import find_kafka_log
from snapshots.offline.kafka.messages import unknown_tags
from snapshots.offline.kafka.records import Placed, Record, UnknownRecord, records, to_json
from snapshots.offline.kafka.scan import Scanned, scan_file, scan_log


class Tally:
    """What the lines have shown so far: damaged places, and records that this release cannot read as a whole."""

    def __init__(self) -> None:
        self.damaged = 0
        self.unknown = 0

    def notes(self) -> Iterator[str]:
        """Return a sentence about each kind that the lines have shown."""
        if self.damaged:
            yield f"{self.damaged} damaged place{'s' * (self.damaged > 1)}; see the lines that say so"
        if self.unknown:
            yield (
                f"{self.unknown} record{'s' * (self.unknown > 1)} of a later Kafka, with a type, a version or a field that this "
                "release does not know; their bytes are shown in base64"
            )


class Range(NamedTuple):
    """The offsets to print; all from `since` on if `until` is None."""

    since: Offset = 0
    until: Offset | None = None

    def has(self, offset: Offset) -> bool:
        return offset >= self.since and (self.until is None or offset < self.until)

    def cuts(self, batch_base: Offset, batch_end: Offset) -> bool:
        """Return True if a part of a batch lies in the range."""
        return batch_end > self.since and (self.until is None or batch_base < self.until)


def scan(directory: Directory, name: str | None, wanted: Range) -> Iterator[Scanned]:
    """Scan the log in a directory, or only its file `name`.

    Raises:
        NoKafkaLogHere: the directory has no log.
    """
    found = scan_log(find_kafka_log(directory), *wanted) if name is None else scan_file(directory, name)
    for scanned in found:
        if scanned.batch is None or wanted.cuts(scanned.batch.base_offset, scanned.batch.end_offset):
            yield scanned


def batch_lines(found: Iterator[Scanned], as_json: bool, tally: Tally) -> Iterator[str]:
    """Return one line per batch, and one per place where a batch should be."""
    for scanned in found:
        tally.damaged += _is_damage(scanned)
        if as_json:
            yield json.dumps(_batch_json(scanned))
            continue
        place, batch = f"{scanned.file}:{scanned.position}", scanned.batch
        if batch is None:
            yield f"{place}  {_word(scanned)}  {scanned.error}"
        else:
            damage = "" if scanned.error is None else f"  DAMAGE  {scanned.error}"
            yield f"{place}  {batch}  {batch.max_timestamp_ms}  {batch.crc:08x}{damage}"


def record_lines(found: Iterator[Scanned], wanted: Range, as_json: bool, tally: Tally) -> Iterator[str]:
    """Return one line per record, and one per damaged place."""
    for scanned in found:
        batch = scanned.batch
        if scanned.error is not None:
            tally.damaged += _is_damage(scanned)
            yield _error_line(scanned, scanned.expected_offset, scanned.error, as_json)
        if batch is None:
            continue
        following = batch.base_offset
        try:
            for placed in records(batch):
                following = placed.offset + 1
                tally.unknown += _is_unknown(placed.record)
                if wanted.has(placed.offset):
                    yield _record_line(scanned, placed, as_json)
        except KafkaFormatError as e:
            tally.damaged += 1
            yield _error_line(scanned._replace(is_torn=False), following, str(e), as_json)


def _is_damage(scanned: Scanned) -> bool:
    return scanned.error is not None and not scanned.is_torn


def _word(scanned: Scanned) -> str:
    return "TORN TAIL" if scanned.is_torn else "DAMAGE"


def _is_unknown(record: Record | UnknownRecord) -> bool:
    return isinstance(record, UnknownRecord) or bool(unknown_tags(record.fields))


def _error_line(scanned: Scanned, offset: Offset | None, error: str, as_json: bool) -> str:
    if not as_json:
        shown = "-" if offset is None else offset
        return f"{shown}  {_word(scanned)}  {scanned.file}:{scanned.position}  {error}"
    place = {"file": scanned.file, "position": scanned.position, "offset": offset}
    return json.dumps({**place, "error": error, "torn": scanned.is_torn})


def _record_line(scanned: Scanned, placed: Placed, as_json: bool) -> str:
    offset, epoch, timestamp_ms, record = placed
    data = to_json(record)
    if not as_json:
        version = f" v{record.version}" if isinstance(record, Record) else ""
        return f"{offset}  {epoch}  {record.name}{version}  {json.dumps(data, ensure_ascii=False)}"
    found = {
        "file": scanned.file,
        "position": scanned.position,
        "offset": offset,
        "epoch": epoch,
        "timestamp_ms": timestamp_ms,
        "type": record.name,
        "version": record.version,
        "data": data,
        "error": None,
    }
    return json.dumps(found, ensure_ascii=False)


def _batch_json(scanned: Scanned) -> dict[str, Any]:
    batch = scanned.batch
    found: dict[str, Any] = {
        "file": scanned.file,
        "position": scanned.position,
        "bytes": scanned.length,
        "error": scanned.error,
        "torn": scanned.is_torn,
    }
    if batch is not None:
        found |= {
            "base_offset": batch.base_offset,
            "end_offset": batch.end_offset,
            "epoch": batch.epoch,
            "control": batch.is_control,
            "transactional": batch.is_transactional,
            "first_timestamp_ms": batch.first_timestamp_ms,
            "last_timestamp_ms": batch.max_timestamp_ms,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "crc": f"{batch.crc:08x}",
        }
    return found
