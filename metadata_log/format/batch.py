"""A batch: the unit in which records are appended, hashed, fetched, flushed and truncated.

All records of one append are one batch, so an append is all or nothing everywhere: on disk, on the wire, at replay and
in snapshots. After encoding, a batch is copied from disk to wire to disk without being decoded and encoded again.

Layout, big-endian, 80 bytes of header and then the records:

    offset  size  field
         0     1  format version (1; 2 in the log of a replicated partition)
         1     1  flags (bit 0: control batch)
         2     2  reserved, zero
         4     4  length of the whole batch, header included
         8     4  CRC-32C over everything from byte 12 on
        12     4  epoch, its lower half
        16     8  base offset
        24     4  record count
        28     4  epoch, its upper half
        32     8  first timestamp, ms since 1970
        40     8  last timestamp
        48    32  chain
        80     -  records, MessagePack arrays end to end

*The chain* is SHA-256 over the previous batch's chain and this batch without its CRC and chain fields. Two logs with
the same chain at one offset therefore have the same bytes before that offset. Example:
  1. Leader 1 appends records [5, 10), and loses its leadership before a majority has them. The chain of node 1 at 10 is A.
  2. The new leader, node 2, appends other records [5, 10). The chain of node 2 at 10 is B.
  3. Node 2 sends the batch [10, 13), which continues B. Node 1 checks the batch with A and refuses it: the histories
     differ somewhere below 10.
The chain before the first batch is the genesis chain: a hash of the cluster id and the bootstrap voters. So nodes of
two clusters refuse each other's batches at the first fetch.

*The epoch* has 64 bits, and the first bit is zero. The upper half uses four bytes that earlier releases reserved and
wrote as zero. So old batches are read correctly, and a batch of an epoch below 2^32 has the same bytes in every
release: logs, chains and snapshots of older and newer nodes stay equal. A release that knows 32 bits only refuses
batches of higher epochs.

*The CRC does not cover the first twelve bytes.* Version and reserved bits have only one valid value, and with a wrong
length the CRC is taken over other bytes and does not match. Only the control flag remains: the chain covers it, and
`codec.decode_batch` compares it with the type of each record. Code that checks neither must not trust the flag.

*A batch of format version 2* belongs to a replicated partition, and holds records of clients. Its header is the same, without
flags, and `data_batch` describes the bytes behind. This file and the store carry both versions. A log has batches of one version
only, so a batch that comes to the wrong log is refused.
"""

import hashlib
import re
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import google_crc32c

from metadata_log.format.errors import BatchTooLarge, LogFormatError
from metadata_log.format.ids import EPOCH_MAX, Epoch, Offset, OffsetAndEpoch

FORMAT_VERSION: Final = 1
"""The format version of the batches of `@metadata` and of snapshots."""
DATA_FORMAT_VERSION: Final = 2
"""The format version of the batches of replicated partitions."""
HEADER_BYTES: Final = 80
BATCH_BYTES_MAX: Final = 1 << 20
"""Maximum size of a batch, header included."""
BATCH_RECORDS_MAX: Final = 12_000
"""Maximum number of records in a batch. A request may create 10,000 partitions in one batch; the rest is for their topics,
configs and the request's outcome. Larger operations, for example a fencing, are sliced into several batches."""
CONTROL_FLAG: Final = 1
CHAIN_BYTES: Final = 32
STAMP_BYTES: Final = 16
"""How many bytes a batch of format version 2 has between its header and its records."""

_HEADER = struct.Struct(">BBHIIIQIIQQ32s")
_CRC_AT: Final = 8
_CRC_START: Final = 12
_CHAIN_START: Final = 48
_HALF: Final = 0xFFFFFFFF
_EPOCH_ABOVE_MAX: Final = EPOCH_MAX >> 32

assert _HEADER.size == HEADER_BYTES

HEADER_PATTERN: Final = re.compile(
    rb"[\x01\x02][\x00\x01]\x00\x00"  # version, flags, reserved
    rb"\x00[\x00-\x10].{18}"  # no longer than BATCH_BYTES_MAX; then CRC, the epoch's lower half and base offset
    rb"\x00\x00..[\x00-\x7f].{51}",  # no more than BATCH_RECORDS_MAX; the epoch's upper half; then timestamps and chain
    re.DOTALL,
)
"""Pattern of all headers that `batch_length` accepts; few other bytes match. Used to search for batches behind
damage."""


class Batch(NamedTuple):
    """One encoded batch: the header's fields and all bytes. Made by `encode` or `decode` only.

    A NamedTuple, because reading a log makes millions of batches, and a frozen dataclass of eight fields takes three
    times as long.
    """

    base_offset: Offset
    epoch: Epoch
    record_count: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    is_control: bool
    chain: bytes
    data: bytes

    @property
    def end_offset(self) -> Offset:
        """One past the last record."""
        return self.base_offset + self.record_count

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.epoch)

    @property
    def format_version(self) -> int:
        return self.data[0]

    @property
    def payload(self) -> bytes:
        """Everything behind the header: in format version 1 the packed records."""
        return self.data[HEADER_BYTES:]

    def __str__(self) -> str:
        kind = "control" if self.is_control else "data"
        return f"[{self.base_offset},{self.end_offset})@{self.epoch} {kind} {len(self.data)}B"


def genesis_chain(cluster_id: str, bootstrap_voters: bytes) -> bytes:
    """Return the chain before a cluster's first batch. Two clusters have different genesis chains, so their logs never
    mix.
    """
    return hashlib.sha256(b"metaquorum genesis 1\x00" + cluster_id.encode() + b"\x00" + bootstrap_voters).digest()


def _chain(previous_chain: bytes, head: bytes, payload: bytes) -> bytes:
    """Compute the chain. `head` begins with the packed header, whose CRC (8..12) and chain (48..80) are not hashed."""
    digest = hashlib.sha256(b"".join((previous_chain, head[:_CRC_AT], head[_CRC_START:_CHAIN_START])))
    digest.update(payload)
    return digest.digest()


def encode(
    payload: bytes,
    *,
    base_offset: Offset,
    epoch: Epoch,
    record_count: int,
    first_timestamp_ms: int,
    last_timestamp_ms: int,
    is_control: bool,
    previous_chain: bytes,
    format_version: int = FORMAT_VERSION,
) -> Batch:
    """Encode `payload` (packed records) as a batch that continues `previous_chain`.

    Raises:
        BatchTooLarge: the batch would pass BATCH_BYTES_MAX or BATCH_RECORDS_MAX.
    """
    length = HEADER_BYTES + len(payload)
    if length > BATCH_BYTES_MAX:
        raise BatchTooLarge(f"a batch of {length} bytes; the limit is {BATCH_BYTES_MAX}. Nothing was appended")
    if not 0 < record_count <= BATCH_RECORDS_MAX:
        raise BatchTooLarge(f"a batch of {record_count} records; at least 1 and at most {BATCH_RECORDS_MAX}")
    assert len(previous_chain) == CHAIN_BYTES
    assert 0 <= epoch <= EPOCH_MAX, epoch
    flags = CONTROL_FLAG if is_control else 0
    head = _HEADER.pack(
        format_version, flags, 0, length, 0, epoch & _HALF, base_offset, record_count, epoch >> 32,
        first_timestamp_ms, last_timestamp_ms, b"",
    )  # fmt: skip
    chain = _chain(previous_chain, head, payload)
    summed = b"".join((head[_CRC_START:_CHAIN_START], chain, payload))
    data = b"".join((head[:_CRC_AT], google_crc32c.value(summed).to_bytes(4, "big"), summed))
    return Batch(base_offset, epoch, record_count, first_timestamp_ms, last_timestamp_ms, is_control, chain, data)


def _header(data: bytes, position: int) -> tuple[Any, ...]:
    """Return the fields of the header at `position`, checked against all limits before memory is allocated.

    Raises:
        LogFormatError: the bytes are not a header of this format.
    """
    if len(data) - position < HEADER_BYTES:
        raise LogFormatError(f"{max(0, len(data) - position)} bytes where a header of {HEADER_BYTES} should be")
    header = _HEADER.unpack_from(data, position)
    version, flags, reserved, length, _, _, _, count, epoch_above, _, _, _ = header
    if version != FORMAT_VERSION:
        _check_data_header(version, flags, length)
    if flags & ~CONTROL_FLAG or reserved:
        raise LogFormatError(f"flags {flags:#x} or reserved bits that this format does not have")
    if not HEADER_BYTES < length <= BATCH_BYTES_MAX:
        raise LogFormatError(f"a batch length of {length}; at most {BATCH_BYTES_MAX}")
    if not 0 < count <= BATCH_RECORDS_MAX:
        raise LogFormatError(f"a record count of {count}; at least 1 and at most {BATCH_RECORDS_MAX}")
    if epoch_above > _EPOCH_ABOVE_MAX:
        raise LogFormatError(f"an epoch beyond {EPOCH_MAX}, the last one")
    return header


def _check_data_header(version: int, flags: int, length: int) -> None:
    if version != DATA_FORMAT_VERSION:
        raise LogFormatError(
            f"batch format version {version}; this code reads {FORMAT_VERSION} and {DATA_FORMAT_VERSION}"
        )
    if flags or length <= HEADER_BYTES + STAMP_BYTES:
        raise LogFormatError(f"flags {flags:#x} and length {length}, which format version {version} does not have")


def check_format(batch: Batch, format_version: int) -> None:
    """Raise LogFormatError unless `batch` has the format version of its log."""
    if batch.data[0] != format_version:
        raise LogFormatError(
            f"the batch at offset {batch.base_offset} has format version {batch.data[0]}, and the batches of this log have "
            f"{format_version}: a log of metadata and a log of a partition never mix. The batch was not used"
        )


def batch_length(data: bytes, position: int = 0) -> int:
    """Return the batch length in the header at `position`, checked against the limits.

    Raises:
        LogFormatError: the bytes are not a header of this format.
    """
    return int(_header(data, position)[3])


class BatchHead(NamedTuple):
    """The header of a batch whose checksum was not computed."""

    base_offset: Offset
    end_offset: Offset
    epoch: Epoch
    is_control: bool
    last_timestamp_ms: int
    length: int
    chain: bytes


def head_of(data: bytes, position: int = 0) -> BatchHead:
    """Return the header at `position`, checked against the limits. The CRC is not checked: for hops over batches that were
    checked before, or that are checked later.

    Raises:
        LogFormatError: the bytes are not a header of this format.
    """
    _, flags, _, length, _, epoch, base_offset, count, epoch_above, _, last_ms, chain = _header(data, position)
    epoch |= epoch_above << 32
    return BatchHead(base_offset, base_offset + count, epoch, bool(flags & CONTROL_FLAG), last_ms, length, chain)


def decode(data: bytes, position: int = 0) -> Batch:
    """Decode the batch at `position` of `data`. Check the CRC; `verify_chain` checks the chain.

    Raises:
        LogFormatError: the bytes are not a whole, intact batch.
    """
    _, flags, _, length, crc, epoch, base_offset, count, epoch_above, first_ms, last_ms, chain = _header(data, position)
    whole = data[position : position + length]
    if len(whole) < length:
        raise LogFormatError(f"a batch of {length} bytes, of which only {len(whole)} exist")
    if google_crc32c.value(whole[_CRC_START:]) != crc:
        raise LogFormatError(f"CRC-32C mismatch in the batch at offset {base_offset}")
    if epoch_above:
        epoch |= epoch_above << 32
    return Batch(base_offset, epoch, count, first_ms, last_ms, bool(flags & CONTROL_FLAG), chain, whole)


def decode_all(data: bytes) -> Iterator[Batch]:
    """Decode all batches in `data`, which follow each other without a gap.

    Raises:
        LogFormatError: at the first position without an intact batch.
    """
    position = 0
    while position < len(data):
        batch = decode(data, position)
        yield batch
        position += len(batch.data)


def verify_chain(batch: Batch, previous_chain: bytes) -> bool:
    """Return True if `batch` continues the history with the chain `previous_chain`."""
    return _chain(previous_chain, batch.data, batch.payload) == batch.chain
