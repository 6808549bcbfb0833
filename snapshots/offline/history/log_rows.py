"""The rows that tasks read from a log for its history: batches, and the records of entities, in one pass.

    batch          one for each batch: offset, step (its end), time, size, chain; or an error
    control        one for each control record
    marker         one for each beginning or end of a transaction
    undecodable    one for each batch that this release cannot decode; an operator may have had it skipped
    a topic        one for many records of the topic (`topic_packs`)
    an entity      one for each other record and entity that it changes, with the principal of the batch

The outcome of a request is the memory of the quorum, and not a change: its principal and id go to the other rows of its batch.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from metadata_log.format.batch import FORMAT_VERSION, Batch
from metadata_log.format.codec import DATA_RECORDS, UnknownRecord, decode_batch, decode_record, split_payload
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset, Uuid, parse_uuid, uuid_text
from metadata_log.format.partition_bytes import ID_AT, NUMBER_AT
from metadata_log.format.records import MetadataRecord, Record, RequestOutcome
from metadata_log.image.entities import TRANSACTION_MARKERS, entity_keys
from snapshots.offline.history.topic_packs import TopicPacks
from snapshots.offline.packed.entities import TOPIC_STARTS, is_topic
from snapshots.offline.rows import FROM_LOG, FROM_SNAPSHOT, entity_text
from snapshots.offline.scan import Scanned

BATCH: Final = "batch"
CONTROL: Final = "control"
MARKER: Final = "marker"
UNDECODABLE: Final = "undecodable"
"""The names that stand in the place of an entity. An entity is a JSON list, so none has such a name."""

FROM_TABLES: Final = -1
"""The generation of an open interval of an earlier run: it comes before the records of the state."""

LOG_ROWS: Final = pa.schema(
    [
        pa.field("entity", pa.string(), nullable=False),
        pa.field("generation", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("time_ms", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("payload", pa.binary()),
        pa.field("previous_chain", pa.binary()),
        pa.field("principal", pa.string()),
        pa.field("request_id", pa.string()),
        pa.field("error", pa.string()),
        pa.field("places", pa.binary()),
    ]
)

LogRow = tuple[Any, ...]


def rows_of(places: Iterable[Scanned], since: Offset) -> Iterator[LogRow]:
    """Return the rows of a stretch of the log. Of the batches below `since` only the one that ends there has a row."""
    packs = TopicPacks()
    for scanned in places:
        yield from _rows_of_place(scanned, since, packs)
        if packs.is_full:
            yield from packs.take()
    yield from packs.take()


def _rows_of_place(scanned: Scanned, since: Offset, packs: TopicPacks) -> Iterator[LogRow]:
    batch = scanned.batch
    if batch is None:
        at = -1 if scanned.expected_offset is None else scanned.expected_offset
        yield (BATCH, FROM_LOG, at, at, 0, 0, scanned.length, None, None, None, None, scanned.error, None)
        return
    if batch.end_offset < since:
        return
    yield _batch_row(scanned, batch)
    if batch.end_offset == since:
        return
    try:
        pieces = split_payload(batch.payload, batch.record_count)
        others = _others(batch, pieces)
    except LogFormatError as e:
        yield _undecodable(batch, batch.base_offset, str(e))
        return
    yield from _record_rows(batch, pieces, others, packs)


def _batch_row(scanned: Scanned, batch: Batch) -> LogRow:
    error = None
    if scanned.chain_ok is False:
        error = f"the batch at offset {batch.base_offset} does not continue the chain of the log"
    elif scanned.expected_offset not in (None, batch.base_offset):
        error = f"a batch at offset {batch.base_offset} where {scanned.expected_offset} is expected"
    return (
        BATCH, FROM_LOG, batch.base_offset, batch.end_offset, batch.epoch, batch.last_timestamp_ms, len(batch.data),
        batch.chain, scanned.previous_chain, None, None, error, None,
    )  # fmt: skip


def _undecodable(batch: Batch, offset: Offset, error: str) -> LogRow:
    place = (batch.base_offset, batch.end_offset, batch.epoch, batch.last_timestamp_ms)
    return (UNDECODABLE, FROM_LOG, *place, 0, None, None, None, None, f"the record at offset {offset}: {error}", None)


def _others(batch: Batch, pieces: list[bytes]) -> dict[int, Record | UnknownRecord]:
    """Decode the records whose first bytes do not name a topic; return each under its place in the batch.

    In a batch that is unusual in any way all records are decoded, because `decode_batch` tells what is wrong, and where.

    Raises:
        LogFormatError: the batch cannot be decoded.
    """
    if not batch.is_control and batch.format_version == FORMAT_VERSION:
        with suppress(LogFormatError):
            others = {at: decode_record(piece) for at, piece in enumerate(pieces) if piece[:ID_AT] not in TOPIC_STARTS}
            if DATA_RECORDS.issuperset(map(type, others.values())):
                return others
    return dict(enumerate(decode_batch(batch)))


def _record_rows(
    batch: Batch, pieces: list[bytes], others: dict[int, Record | UnknownRecord], packs: TopicPacks
) -> Iterator[LogRow]:
    unknown = next((each for each in others.items() if isinstance(each[1], UnknownRecord)), None)
    if unknown is not None:
        at, record = unknown
        assert isinstance(record, UnknownRecord)
        kind = f"type {record.type_number}, version {record.version}"
        yield _undecodable(
            batch,
            batch.base_offset + at,
            f"it is of {kind}, which this release does not know: use the release that wrote it, or a later one",
        )
        return
    outcome = next((each for each in reversed(others.values()) if isinstance(each, RequestOutcome)), None)
    by = (None, None) if outcome is None else (outcome.principal, uuid_text(outcome.request_id))
    place = (batch.end_offset, batch.epoch, batch.last_timestamp_ms, 0)
    for at, packed in enumerate(pieces):
        offset, other = batch.base_offset + at, others.get(at)
        if other is None:
            packs.add(packed[ID_AT:NUMBER_AT], offset, packed, batch, by)
            continue
        assert not isinstance(other, UnknownRecord)
        for name in _names(batch, other):
            if isinstance(name, str):
                yield (name, FROM_LOG, offset, *place, packed, None, *by, None, None)
            else:
                packs.add(name, offset, packed, batch, by)


def _names(batch: Batch, record: Record) -> Iterable[str | Uuid]:
    """Return the names of what the record changes. The name of a topic is its id."""
    if batch.is_control:
        return (CONTROL,)
    if type(record) in TRANSACTION_MARKERS:
        return (MARKER,)
    if isinstance(record, RequestOutcome):
        return ()
    return [parse_uuid(key[1]) if is_topic(key) else entity_text(key) for key in entity_keys(record)]


def snapshot_rows(records: Iterable[tuple[MetadataRecord, bytes]]) -> Iterator[LogRow]:
    """Return the rows of the canonical records of a snapshot, each with its bytes."""
    for place, (record, payload) in enumerate(records):
        if not isinstance(record, RequestOutcome):
            for key in entity_keys(record):
                yield (entity_text(key), FROM_SNAPSHOT, place, 0, 0, 0, 0, payload, None, None, None, None, None)
