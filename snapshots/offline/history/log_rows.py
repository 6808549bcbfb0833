"""The rows that tasks read from a log for its history: batches, and the records of entities, in one pass.

    batch          one for each batch: offset, step (its end), time, size, chain; or an error
    control        one for each control record
    marker         one for each beginning or end of a transaction
    undecodable    one for each batch that this release cannot decode; an operator may have had it skipped
    an entity      one for each record and entity that it changes, with the principal of the batch

The outcome of a request is the memory of the quorum, and not a change: its principal and id go to the other rows of its batch.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from metadata_log.format.batch import Batch
from metadata_log.format.codec import UnknownRecord, decode_batch, split_payload
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset, uuid_text
from metadata_log.format.records import MetadataRecord, Record, RequestOutcome
from metadata_log.image.entities import TRANSACTION_MARKERS, entity_keys
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
    ]
)

LogRow = tuple[Any, ...]


def rows_of(scanned: Scanned, since: Offset) -> Iterator[LogRow]:
    """Return the rows of one place in the log. Of the batches below `since` only the one that ends there has a row."""
    batch = scanned.batch
    if batch is None:
        at = -1 if scanned.expected_offset is None else scanned.expected_offset
        yield (BATCH, FROM_LOG, at, at, 0, 0, scanned.length, None, None, None, None, scanned.error)
        return
    if batch.end_offset < since:
        return
    yield _batch_row(scanned, batch)
    if batch.end_offset == since:
        return
    try:
        records = decode_batch(batch)
        packed = split_payload(batch.payload, batch.record_count)
    except LogFormatError as e:
        yield _undecodable(batch, batch.base_offset, str(e))
        return
    yield from _record_rows(batch, records, packed)


def _batch_row(scanned: Scanned, batch: Batch) -> LogRow:
    error = None
    if scanned.chain_ok is False:
        error = f"the batch at offset {batch.base_offset} does not continue the chain of the log"
    elif scanned.expected_offset not in (None, batch.base_offset):
        error = f"a batch at offset {batch.base_offset} where {scanned.expected_offset} is expected"
    return (
        BATCH, FROM_LOG, batch.base_offset, batch.end_offset, batch.epoch, batch.last_timestamp_ms, len(batch.data),
        batch.chain, scanned.previous_chain, None, None, error,
    )  # fmt: skip


def _undecodable(batch: Batch, offset: Offset, error: str) -> LogRow:
    place = (batch.base_offset, batch.end_offset, batch.epoch, batch.last_timestamp_ms)
    return (UNDECODABLE, FROM_LOG, *place, 0, None, None, None, None, f"the record at offset {offset}: {error}")


def _record_rows(batch: Batch, records: list[Record | UnknownRecord], packed: list[bytes]) -> Iterator[LogRow]:
    unknown = next((each for each in enumerate(records) if isinstance(each[1], UnknownRecord)), None)
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
    outcome = next((each for each in reversed(records) if isinstance(each, RequestOutcome)), None)
    by = (None, None) if outcome is None else (outcome.principal, uuid_text(outcome.request_id))
    place = (batch.end_offset, batch.epoch, batch.last_timestamp_ms, 0)
    for offset, record, payload in zip(range(batch.base_offset, batch.end_offset), records, packed, strict=True):
        assert not isinstance(record, UnknownRecord)
        for entity in _names(batch, record):
            yield (entity, FROM_LOG, offset, *place, payload, None, *by, None)


def _names(batch: Batch, record: Record) -> Iterable[str]:
    if batch.is_control:
        return (CONTROL,)
    if type(record) in TRANSACTION_MARKERS:
        return (MARKER,)
    if isinstance(record, RequestOutcome):
        return ()
    return [entity_text(key) for key in entity_keys(record)]


def snapshot_rows(records: Iterable[tuple[MetadataRecord, bytes]]) -> Iterator[LogRow]:
    """Return the rows of the canonical records of a snapshot, each with its bytes."""
    for place, (record, payload) in enumerate(records):
        if not isinstance(record, RequestOutcome):
            for key in entity_keys(record):
                yield (entity_text(key), FROM_SNAPSHOT, place, 0, 0, 0, 0, payload, None, None, None, None)
