"""The records of a batch for people, decoded as far as possible.

A batch with a right CRC may have bytes that this release cannot read: a bug of the writer, or a newer release. Then the
rows show each record that can be decoded, and the bytes of the others in hexadecimal. Example: a batch of three records
at 40, whose second record has a field of a wrong type:
  1. the rows of 40 and 42 are records;
  2. the row of 41 has the type `Undecodable`, the reason, and the bytes of the record.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgpack

from metadata_log.format.batch import Batch
from metadata_log.format.codec import decode_record, has_secrets, record_to_json, record_unpacker
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset

UNDECODABLE: Final = "Undecodable"
HEX_BYTES_MAX: Final = 4_096
"""Maximum number of bytes that a row shows in hexadecimal."""


class RecordRow(NamedTuple):
    """One record, or bytes that are none."""

    offset: Offset
    type: str
    data: Any
    """Plain values, for JSON."""


def rows_of(batch: Batch) -> Iterator[RecordRow]:
    """Return a row for each record of `batch`, and one for bytes that cannot be split into records."""
    payload = batch.payload
    unpacker = record_unpacker(payload)
    start = 0
    for offset in range(batch.base_offset, batch.end_offset):
        try:
            unpacker.skip()
        except (ValueError, TypeError, msgpack.UnpackException) as e:
            yield _undecodable(offset, f"not MessagePack: {e!r:.80}", payload[start:])
            return
        packed, start = payload[start : unpacker.tell()], unpacker.tell()
        try:
            row = record_to_json(decode_record(packed))
        except LogFormatError as e:
            yield _undecodable(offset, str(e), packed)
        else:
            yield RecordRow(offset, str(row["type"]), row["data"])
    if start < len(payload):
        yield _undecodable(batch.end_offset, "bytes behind the last record", payload[start:])


def _undecodable(offset: Offset, reason: str, data: bytes) -> RecordRow:
    """Show the bytes, unless they may be those of a secret."""
    shown = "redacted" if has_secrets(data) else data[:HEX_BYTES_MAX].hex()
    return RecordRow(offset, UNDECODABLE, {"reason": reason, "bytes": len(data), "hex": shown})
