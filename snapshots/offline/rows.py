"""Convert scanned batches to rows of the tables in `schema`. This file does not import Spark: `dump` works without Spark.

A batch or record that cannot be decoded becomes a row with an error in the tables `batches` and `records`. The table
`entities` leaves the batch or record out, so a job that folds `entities` to an image checks the table `batches` first.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from metadata_log.format.batch import Batch
from metadata_log.format.codec import UnknownRecord, decode_batch, record_to_json, split_payload
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Epoch, Offset, uuid_text
from metadata_log.format.records import (
    RECORD_VERSION,
    TYPE_NUMBERS,
    MetadataRecord,
)
from metadata_log.image.entities import entity_keys
from metadata_log.image.entity_key import EntityKey
from snapshots.offline.scan import Scanned

Row = tuple[object, ...]

TIME_MIN_MS: Final = -62_135_596_800_000
TIME_MAX_MS: Final = 253_402_300_799_999
"""The first moment of the year 1, and the last one of the year 9999: the times that Python and Spark can show."""
_TYPE_AT: Final = {**dict.fromkeys(range(0x90, 0xA0), 1), 0xDC: 3}
"""The place of a record's type behind each head of MessagePack for an array of up to 15, or of up to 65,535 items."""
FROM_SNAPSHOT: Final = 0
FROM_LOG: Final = 1


def time_us(time_ms: int) -> int:
    """Return a time in microseconds, as the tables have it. A forged batch may have any time of 64 bits: if no calendar has it,
    the nearest time that a calendar has stands for it.
    """
    return min(max(time_ms, TIME_MIN_MS), TIME_MAX_MS) * 1_000


class RecordRow(NamedTuple):
    """One row of `records`: a record, or a damaged place, which has an error and no record."""

    node: str
    file: str
    position: int
    offset: Offset | None
    epoch: Epoch | None = None
    timestamp: int | None = None
    """In microseconds."""
    type: int | None = None
    type_name: str | None = None
    version: int | None = None
    entities: tuple[str, ...] = ()
    topic_id: str | None = None
    broker_id: int | None = None
    payload: bytes | None = None
    json: str | None = None
    error: str | None = None


def entity_text(key: EntityKey) -> str:
    """Convert a key to one string, for grouping and for people: `["topic", "..."]`, compact."""
    return json.dumps(key, ensure_ascii=False, separators=(",", ":"))


def entity_of(text: str) -> EntityKey:
    """Convert the result of `entity_text` back to a key."""
    return tuple(json.loads(text))


def batch_row(node: str, file: str, scanned: Scanned) -> Row:
    """Return one row of `batches`."""
    batch = scanned.batch
    place = (node, file, scanned.position, scanned.length)
    if batch is None:
        nothing = (None, None, scanned.expected_offset, None, None, None, None, None)
        return (*place, *nothing, False, None, scanned.previous_chain, None, scanned.error)
    return (
        *place, batch.base_offset, batch.end_offset, scanned.expected_offset, batch.epoch, batch.is_control,
        batch.record_count, time_us(batch.first_timestamp_ms), time_us(batch.last_timestamp_ms),
        True, batch.chain, scanned.previous_chain, scanned.chain_ok, scanned.error,
    )  # fmt: skip


def peek_type(packed: bytes) -> int:
    """Return the type number of a packed record without decoding the record; -1 if that is not possible."""
    at = _TYPE_AT.get(packed[0])
    if at is None:
        return -1
    return packed[at] if len(packed) > at and packed[at] < 0x80 else -1


def record_rows(node: str, file: str, scanned: Scanned, types: frozenset[int] | None = None) -> Iterator[RecordRow]:
    """Return the rows of `records` for one batch; with `types`, only records of these types."""
    batch = scanned.batch
    if batch is None:
        if types is None:
            yield _error_row(node, file, scanned, scanned.error)
        return
    try:
        packed = split_payload(batch.payload, batch.record_count)
        if types is not None and not any(peek_type(each) in types or peek_type(each) < 0 for each in packed):
            return
        records = decode_batch(batch)
    except LogFormatError as e:
        yield _error_row(node, file, scanned, str(e))
        return
    timestamp = time_us(batch.last_timestamp_ms)
    for offset, record, payload in zip(range(batch.base_offset, batch.end_offset), records, packed, strict=True):
        number, version = (
            (record.type_number, record.version)
            if isinstance(record, UnknownRecord)
            else (TYPE_NUMBERS[type(record)], RECORD_VERSION)
        )
        if types is not None and number not in types:
            continue
        as_json = record_to_json(record)
        keys = () if isinstance(record, UnknownRecord) else map(entity_text, entity_keys(record))
        topic_id, broker_id = getattr(record, "topic_id", None), getattr(record, "broker_id", None)
        shown_id = None if topic_id is None else uuid_text(topic_id)
        yield RecordRow(
            node, file, scanned.position, offset, batch.epoch, timestamp, number, str(as_json["type"]), version, tuple(keys),
            shown_id, broker_id, payload, json.dumps(as_json["data"], ensure_ascii=False),
        )  # fmt: skip


def _error_row(node: str, file: str, scanned: Scanned, error: str | None) -> RecordRow:
    offset = scanned.batch.base_offset if scanned.batch is not None else scanned.expected_offset
    return RecordRow(node, file, scanned.position, offset, error=error)


def entity_rows(
    batch: Batch, since: Offset, until: Offset, invisible: Iterable[tuple[Offset, Offset]]
) -> Iterator[Row]:
    """Return the rows of `entities` for one batch; see `visible_records`."""
    for key, offset, payload in visible_records(batch, since, until, invisible):
        yield (entity_text(key), FROM_LOG, offset, payload)


def visible_records(
    batch: Batch, since: Offset, until: Offset, invisible: Iterable[tuple[Offset, Offset]]
) -> Iterator[tuple[EntityKey, Offset, bytes]]:
    """Return key, offset and bytes of the records of one batch, in [since, until) and not in `invisible` ranges.

    Raises:
        LogFormatError: the batch cannot be decoded.
    """
    if batch.is_control or batch.end_offset <= since or batch.base_offset >= until:
        return
    ranges = tuple(invisible)
    if any(begin <= batch.base_offset and batch.end_offset <= end for begin, end in ranges):
        return  # a skipped batch may be one that no release can decode
    packed = split_payload(batch.payload, batch.record_count)
    for offset, record, payload in zip(
        range(batch.base_offset, batch.end_offset), decode_batch(batch), packed, strict=True
    ):
        if not since <= offset < until or any(begin <= offset < end for begin, end in ranges):
            continue
        if isinstance(record, UnknownRecord):
            raise LogFormatError(
                f"the record at offset {offset} is of type {record.type_number}, version {record.version}, which this release "
                "does not know: use the release that wrote it, or a later one"
            )
        for key in entity_keys(record):
            yield key, offset, payload


def snapshot_entity_rows(records: Iterable[tuple[MetadataRecord, bytes]]) -> Iterator[Row]:
    """Return the rows of `entities` for the canonical records of a snapshot, each with its bytes."""
    for place, (record, payload) in enumerate(records):
        for key in entity_keys(record):
            yield (entity_text(key), FROM_SNAPSHOT, place, payload)
