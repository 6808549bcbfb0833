"""A data batch: records of clients in the log of a replicated partition. It is format version 2 of `batch`.

Layout, big-endian, after the 80 bytes of the header:

    offset  size  field
        80     8  producer id, or -1
        88     4  producer epoch, or -1
        92     4  base sequence, or -1
        96     -  records, MessagePack arrays `[timestamp_ms, key, value, headers]` end to end

The header's epoch is the partition's leader epoch. Its first timestamp is the smallest one of the batch's records. Its last
timestamp is the largest one of *all* records of the log up to here, so these timestamps never decrease: retention and the search
for a time need the header of one batch only. CRC and chain cover everything, as in version 1.

*The stamp* (producer id, epoch, sequence) makes a repeated append harmless (KIP-98). Example:
  1. Producer 7 sends 10 records with base sequence 40 to leader 1. Leader 1 appends them at offset 500, and its answer is lost.
  2. Producer 7 sends the same records again. Leader 1 finds sequences 40 to 49 of producer 7 at offset 500, appends nothing, and
     answers 500.
Batches without a stamp have -1 in all three fields.

*A producer packs its records once*, with `pack_records`. The leader checks the packed records (`check_records`), and appends them
unchanged.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack

from metadata_log.format.batch import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    DATA_FORMAT_VERSION,
    HEADER_BYTES,
    STAMP_BYTES,
    Batch,
    check_format,
    encode,
)
from metadata_log.format.errors import BatchTooLarge, LogFormatError
from metadata_log.format.ids import Epoch, Offset

RECORDS_BYTES_MAX: Final = BATCH_BYTES_MAX - HEADER_BYTES - STAMP_BYTES
"""Maximum size of the packed records of one batch."""
HEADERS_MAX: Final = 128
"""Maximum number of headers of one record."""
HEADER_NAME_BYTES_MAX: Final = 1_024
"""Maximum length of the name of a header, in UTF-8."""
TIMESTAMP_MAX: Final = (1 << 63) - 1
"""Maximum timestamp of a record, in ms since 1970."""
SEQUENCE_MAX: Final = (1 << 31) - 1
"""Maximum sequence number. Sequence 0 follows."""

_STAMP: Final = struct.Struct(">qii")
_RECORD_BYTES_MIN: Final = 5
_RECORD_FIELDS: Final = 4

assert _STAMP.size == STAMP_BYTES

Header: TypeAlias = tuple[str, bytes | None]
"""Name and value of a header."""


class DataRecord(NamedTuple):
    """One record of a client."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class RecordSet(NamedTuple):
    """The packed records of one batch. Made by `pack_records` or `check_records` only."""

    packed: bytes
    record_count: int
    first_timestamp_ms: int
    """The smallest timestamp of the records."""
    last_timestamp_ms: int
    """The largest timestamp of the records."""


class ProducerStamp(NamedTuple):
    """Which producer made a batch, and the sequence number of the first record."""

    producer_id: int
    epoch: int
    base_sequence: int

    @property
    def is_idempotent(self) -> bool:
        """True if the batch has a producer id."""
        return self.producer_id >= 0

    def last_sequence(self, count: int) -> int:
        """The sequence number of the last of `count` records."""
        return (self.base_sequence + count - 1) & SEQUENCE_MAX


NO_STAMP: Final = ProducerStamp(-1, -1, -1)
"""The stamp of a batch whose producer is not idempotent."""


def pack_records(records: Sequence[DataRecord]) -> RecordSet:
    """Pack `records` for one batch.

    Raises:
        BatchTooLarge: the records do not fit one batch.
        LogFormatError: a record is not valid: a wrong type, a negative timestamp, too many headers.
    """
    try:
        packed = b"".join([msgpack.packb(each) for each in records])
    except (TypeError, ValueError, OverflowError) as e:
        raise LogFormatError(f"a record cannot be packed: {e!r:.80}. Nothing was packed") from e
    if len(packed) > RECORDS_BYTES_MAX:
        raise BatchTooLarge(
            f"records of {len(packed)} bytes; one batch has at most {RECORDS_BYTES_MAX}. Nothing was packed"
        )
    return check_records(packed, len(records))


def pack_record(record: DataRecord) -> bytes:
    """Pack one record, as a producer does that collects packed records for a batch.

    Raises:
        LogFormatError: the record is not valid: a wrong type, a negative timestamp, too many headers.
    """
    timestamp_ms, key, value, headers = record
    if type(headers) is not tuple or len(headers) > HEADERS_MAX:
        raise LogFormatError(f"the headers are not a tuple, or more than {HEADERS_MAX}. Nothing was packed")
    _record((timestamp_ms, key, value, headers))
    for name, _ in headers:
        if len(name.encode()) > HEADER_NAME_BYTES_MAX:
            raise LogFormatError(
                f"the header {name!r:.40} has more than {HEADER_NAME_BYTES_MAX} bytes. Nothing was packed"
            )
    packed: bytes = msgpack.packb(record)
    return packed


def check_records(packed: bytes, count: int) -> RecordSet:
    """Check packed records from the network.

    Raises:
        BatchTooLarge: the records do not fit one batch.
        LogFormatError: the bytes are not exactly `count` valid records.
    """
    first, last = TIMESTAMP_MAX, 0
    for record in unpack_records(packed, count):
        timestamp_ms = record.timestamp_ms
        if timestamp_ms < first:
            first = timestamp_ms
        if timestamp_ms > last:
            last = timestamp_ms
    return RecordSet(packed, count, first, last)


def unpack_records(packed: bytes, count: int) -> list[DataRecord]:
    """Unpack the `count` records in `packed`. Every length is checked before memory is allocated for it.

    Raises:
        BatchTooLarge: more bytes or records than one batch may have.
        LogFormatError: the bytes are not exactly `count` valid records.
    """
    if len(packed) > RECORDS_BYTES_MAX or not 0 < count <= BATCH_RECORDS_MAX:
        raise BatchTooLarge(
            f"{count} records in {len(packed)} bytes; one batch has 1 to {BATCH_RECORDS_MAX} records in {RECORDS_BYTES_MAX} bytes"
        )
    if count * _RECORD_BYTES_MIN > len(packed):
        raise LogFormatError(f"{count} records in {len(packed)} bytes: too few bytes")
    unpacker = msgpack.Unpacker(
        raw=False,
        use_list=False,
        max_buffer_size=BATCH_BYTES_MAX,
        max_str_len=HEADER_NAME_BYTES_MAX,
        max_bin_len=len(packed),
        max_array_len=HEADERS_MAX,
        max_map_len=0,
        max_ext_len=0,
    )
    unpacker.feed(packed)
    records: list[DataRecord] = []
    try:
        while len(records) < count:
            records.append(_record(unpacker.unpack()))
    except LogFormatError as e:
        raise LogFormatError(f"record {len(records)}: {e}") from None
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as e:
        raise LogFormatError(f"record {len(records)} is not MessagePack: {e!r:.80}") from e
    if unpacker.tell() != len(packed):
        raise LogFormatError(f"{len(packed) - unpacker.tell()} bytes after the {count} records")
    return records


def _record(array: Any) -> DataRecord:
    if type(array) is not tuple or len(array) != _RECORD_FIELDS:
        raise LogFormatError("not an array of timestamp, key, value and headers")
    timestamp_ms, key, value, headers = array
    if type(timestamp_ms) is not int or not 0 <= timestamp_ms <= TIMESTAMP_MAX:
        raise LogFormatError(f"{timestamp_ms!r:.40} is not a timestamp")
    if not ((key is None or type(key) is bytes) and (value is None or type(value) is bytes)):
        raise LogFormatError("key or value is neither bytes nor nil")
    if type(headers) is not tuple:
        raise LogFormatError("the headers are not an array")
    for header in headers:
        if not (
            type(header) is tuple
            and len(header) == 2
            and type(header[0]) is str
            and (header[1] is None or type(header[1]) is bytes)
        ):
            raise LogFormatError(f"{header!r:.40} is not a header: a name, and bytes or nil")
    return DataRecord(timestamp_ms, key, value, headers)


def data_payload(records: RecordSet, stamp: ProducerStamp) -> bytes:
    """Return everything behind the header of a data batch.

    Raises:
        LogFormatError: the stamp is not valid.
    """
    _check_stamp(stamp)
    return _STAMP.pack(*stamp) + records.packed


def encode_data(
    records: RecordSet,
    stamp: ProducerStamp,
    *,
    base_offset: Offset,
    epoch: Epoch,
    previous_chain: bytes,
    previous_timestamp_ms: int = 0,
) -> Batch:
    """Encode `records` as a data batch that continues a log with `previous_chain`, and with `previous_timestamp_ms` as its
    largest timestamp.
    """
    return encode(
        data_payload(records, stamp),
        base_offset=base_offset,
        epoch=epoch,
        record_count=records.record_count,
        first_timestamp_ms=records.first_timestamp_ms,
        last_timestamp_ms=max(records.last_timestamp_ms, previous_timestamp_ms),
        is_control=False,
        previous_chain=previous_chain,
        format_version=DATA_FORMAT_VERSION,
    )


def stamp_of(batch: Batch) -> ProducerStamp:
    """Return the stamp of a data batch, without reading the records.

    Raises:
        LogFormatError: not a data batch, or an impossible stamp.
    """
    check_format(batch, DATA_FORMAT_VERSION)
    stamp = ProducerStamp(*_STAMP.unpack_from(batch.data, HEADER_BYTES))
    _check_stamp(stamp)
    return stamp


def _check_stamp(stamp: ProducerStamp) -> None:
    lowest = min(stamp)
    if not (lowest >= 0 or stamp == NO_STAMP):
        raise LogFormatError(f"an impossible stamp: {stamp}. All fields are 0 or more, or all are -1")


def decode_data(batch: Batch) -> list[DataRecord]:
    """Decode the records of a data batch; the first has the offset `batch.base_offset`.

    Raises:
        LogFormatError: not a data batch, or the bytes are not valid records.
    """
    check_format(batch, DATA_FORMAT_VERSION)
    return unpack_records(batch.data[HEADER_BYTES + STAMP_BYTES :], batch.record_count)
