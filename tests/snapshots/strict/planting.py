"""Faults planted into a log by a leader with a bug: all sums and chains are right, and one record is another one."""

from collections.abc import Sequence

from metadata_log.format.batch import Batch, encode
from metadata_log.format.codec import split_payload
from metadata_log.format.ids import Epoch, Offset


def resealed(batch: Batch, previous_chain: bytes, payload: bytes | None = None, *, epoch: Epoch | None = None) -> Batch:
    """Seal a batch again, behind another chain, with another payload of as many records, or with another epoch."""
    return encode(
        batch.payload if payload is None else payload, previous_chain=previous_chain, base_offset=batch.base_offset,
        epoch=batch.epoch if epoch is None else epoch, record_count=batch.record_count,
        first_timestamp_ms=batch.first_timestamp_ms, last_timestamp_ms=batch.last_timestamp_ms, is_control=batch.is_control,
    )  # fmt: skip


def planted(batches: Sequence[Batch], start: bytes, offset: Offset, piece: bytes) -> list[Batch]:
    """Return the log with the record `piece` at `offset`. `start` is the chain before the first batch."""
    found: list[Batch] = []
    for batch in batches:
        payload = None
        if batch.base_offset <= offset < batch.end_offset:
            pieces = split_payload(batch.payload, batch.record_count)
            pieces[offset - batch.base_offset] = piece
            payload = b"".join(pieces)
        found.append(resealed(batch, found[-1].chain if found else start, payload))
    return found
