"""Shows the records of clients, in the log of a replicated partition, to people."""

from __future__ import annotations

from typing import Any, Final

from metadata_log.format.batch import Batch
from metadata_log.format.data_batch import DataRecord, decode_data, stamp_of

BYTES_SHOWN_MAX: Final = 4_096
"""Maximum number of bytes that are shown of a key, a value or a header."""


def producer_of(batch: Batch) -> dict[str, int] | None:
    """The producer of a data batch; None if the batch has no stamp.

    Raises:
        LogFormatError: the stamp is not valid.
    """
    stamp = stamp_of(batch)
    return stamp._asdict() if stamp.is_idempotent else None


def data_rows(batch: Batch) -> list[dict[str, Any]]:
    """A row for each record of a data batch.

    Raises:
        LogFormatError: the records are not valid.
    """
    return [
        {"offset": offset, "type": "Data", "data": _shown_record(record)}
        for offset, record in enumerate(decode_data(batch), batch.base_offset)
    ]


def _shown_record(record: DataRecord) -> dict[str, Any]:
    headers = {name: _shown(value) for name, value in record.headers}
    shown = {"timestamp_ms": record.timestamp_ms, "key": _shown(record.key), "value": _shown(record.value)}
    return {**shown, "headers": headers} if headers else shown


def _shown(data: bytes | None) -> Any:
    """Text that can be printed as text, other bytes as `{"hex": ...}`."""
    if data is None:
        return None
    data = data[:BYTES_SHOWN_MAX]
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}
    return text if text.isprintable() else {"hex": data.hex()}
