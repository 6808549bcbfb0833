"""Kafka's record batches, magic 2: the header, its checksum, and the records in it.

    0            8        12       16     17    21          23               27              35
    base offset | length | epoch | magic | crc | attributes | last offset - | base timestamp | max timestamp |
                                                              base offset
    43            51               53              57       61
    producer id | producer epoch | base sequence | count  | record record ...

`length` counts the bytes behind itself. `crc` is the CRC-32C of everything from `attributes` on. So base offset, length, epoch
and magic lie outside the CRC, and `scan` compares them with the batch before. Example:
  1. Leader 1 appends the batch of 40..49 at epoch 3.
  2. A bit of its record 44 flips on the disk: the CRC differs, and `decode` raises KafkaFormatError.
  3. A bit of its epoch flips: the CRC is right. `scan` sees an epoch that no leader began.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import google_crc32c

from metadata_log.format.ids import Offset
from snapshots.offline.kafka.errors import KafkaFormatError, cut_short
from snapshots.offline.kafka.primitives import varint, varlong

HEADER_BYTES: Final = 61
BATCH_BYTES_MAX: Final = 16 << 20
"""Maximum size of a batch. Kafka's own maximum for the metadata log is 8 MiB of records."""
MAGIC: Final = 2
PREFIX_BYTES: Final = 12
"""The base offset and the length, which the length does not count."""
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, no key, an empty value, no headers: one byte each."""
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_PLACE: Final = struct.Struct(">qiib")
_CRC_START: Final = 21
_COMPRESSION: Final = 0b111
_TRANSACTIONAL: Final = 1 << 4
_CONTROL: Final = 1 << 5
_NO_KEY: Final = 0x01
"""A key of length -1."""
_CODECS: Final = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


class Batch(NamedTuple):
    """One batch whose header and checksum are right. The records are still packed."""

    base_offset: Offset
    epoch: int
    """The epoch of the leader that appended the batch."""
    crc: int
    attributes: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    data: bytes
    """The whole batch."""

    @property
    def end_offset(self) -> Offset:
        """The offset behind the last record."""
        return self.base_offset + self.record_count

    @property
    def is_control(self) -> bool:
        """True for records of the quorum itself, such as a change of the leader."""
        return bool(self.attributes & _CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    def __str__(self) -> str:
        kind = "control" if self.is_control else "data"
        return f"[{self.base_offset},{self.end_offset})@{self.epoch} {kind} {len(self.data)}B"


class RawRecord(NamedTuple):
    """One record of a batch, its key and value not decoded."""

    offset: Offset
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


def batch_length(data: bytes, at: int) -> int:
    """Return the size of the batch at `at`, as its header says. `data` holds `HEADER_BYTES` bytes from `at` on.

    Raises:
        KafkaFormatError: no batch begins here.
    """
    if len(data) - at < HEADER_BYTES:
        raise KafkaFormatError(f"the file ends inside a header: {len(data) - at} bytes of {HEADER_BYTES}")
    base_offset, length, epoch, magic = _PLACE.unpack_from(data, at)
    if magic != MAGIC:
        raise KafkaFormatError(f"the magic byte is {magic}, not {MAGIC}: no batch begins here")
    if not HEADER_BYTES + RECORD_BYTES_MIN <= PREFIX_BYTES + length <= BATCH_BYTES_MAX:
        raise KafkaFormatError(f"the header names an impossible length, {length}")
    if base_offset < 0 or epoch < 0:
        raise KafkaFormatError(f"the header names offset {base_offset} and epoch {epoch}; neither can be negative")
    return PREFIX_BYTES + int(length)


def decode(data: bytes, at: int) -> Batch:
    """Decode the batch at `at`, and check its CRC.

    Raises:
        KafkaFormatError: the bytes are not an intact batch.
    """
    length = batch_length(data, at)
    whole = data[at : at + length]
    if len(whole) < length:
        raise KafkaFormatError(f"the file ends inside the batch: {len(whole)} bytes of {length}")
    (
        base_offset, _, epoch, _, crc, attributes, last_delta, first_ms, max_ms, producer_id, producer_epoch, sequence, count,
    ) = _HEADER.unpack_from(whole)  # fmt: skip
    if google_crc32c.value(whole[_CRC_START:]) != crc:
        raise KafkaFormatError(f"the checksum of the batch is wrong: the header says {crc:08x}")
    if not 1 <= count <= (length - HEADER_BYTES) // RECORD_BYTES_MIN or last_delta != count - 1:
        raise KafkaFormatError(f"the header names {count} records up to offset delta {last_delta}")
    codec = attributes & _COMPRESSION
    if codec:
        raise KafkaFormatError(
            f"the batch is compressed with {_CODECS.get(codec, codec)}; no release of Kafka compresses its metadata log"
        )
    return Batch(
        base_offset, epoch, crc, attributes, first_ms, max_ms, producer_id, producer_epoch, sequence, count, whole
    )


def crc_fits(rest: bytes) -> bool:
    """Return True if `rest` is one whole batch by its checksum, no matter which length its header names."""
    if len(rest) < HEADER_BYTES:
        return False
    crc: int = _HEADER.unpack_from(rest)[4]
    return bool(google_crc32c.value(rest[_CRC_START:]) == crc)


def raw_records(batch: Batch) -> Iterator[RawRecord]:
    """Unpack the records of a batch.

    Raises:
        KafkaFormatError: the records do not fill the batch, or are damaged. The records before the damage were returned.
    """
    data, at = batch.data, HEADER_BYTES
    key: bytes | None
    try:
        for index in range(batch.record_count):
            length, at = varint(data, at)
            end = at + length
            if length < RECORD_BYTES_MIN - 1 or end > len(data):
                raise KafkaFormatError(f"record {index} of the batch names an impossible length, {length}")
            at += 1
            if data[at] < 0x80 and data[at + 1] < 0x80 and data[at + 2] == _NO_KEY:  # almost every record
                delta_ms, delta = (data[at] >> 1) ^ -(data[at] & 1), (data[at + 1] >> 1) ^ -(data[at + 1] & 1)
                key, at = None, at + 3
            else:
                delta_ms, at = varlong(data, at)
                delta, at = varint(data, at)
                key, at = _nullable(data, at)
            value, at = _nullable(data, at)
            headers: tuple[tuple[bytes, bytes | None], ...] = ()
            if data[at] == 0:
                at += 1
            else:
                headers, at = _headers(data, at)
            if at != end or delta != index:
                raise KafkaFormatError(f"record {index} of the batch has a wrong length or offset delta")
            yield RawRecord(batch.base_offset + index, batch.first_timestamp_ms + delta_ms, key, value, headers)
    except IndexError:
        raise cut_short() from None
    if at != len(data):
        raise KafkaFormatError(f"{len(data) - at} bytes follow the last record of the batch")


def _nullable(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = varint(data, at)
    if size < 0:
        if size != -1:
            raise KafkaFormatError(f"a field has the impossible length {size}")
        return None, at
    end = at + size
    if end > len(data):
        raise cut_short()
    return data[at:end], end


def _headers(data: bytes, at: int) -> tuple[tuple[tuple[bytes, bytes | None], ...], int]:
    count, at = varint(data, at)
    if not 0 <= count <= (len(data) - at) // 2:
        raise KafkaFormatError(f"a record has the impossible number of {count} headers")
    headers = []
    for _ in range(count):
        name, at = _nullable(data, at)
        value, at = _nullable(data, at)
        if name is None:
            raise KafkaFormatError("a header of a record has no name")
        headers.append((name, value))
    return tuple(headers), at
