"""Protobuf messages of SkipBatch, and the node's values."""

import json
from collections.abc import Iterable, Iterator
from itertools import chain as joined
from itertools import islice
from typing import Final

from quorum_rpc.v1 import admin_pb2

from metadata_log.format.batch import Batch
from metadata_log.format.record_rows import rows_of
from quorum.runtime.protocol.requests import BatchSkipped, SkipRequest
from quorum.wire.convert.errors import BadMessage
from quorum.wire.convert.parts import chain

RECORDS_MAX: Final = 100
"""Maximum number of records in an answer."""
DATA_CHARS_MAX: Final = 1_000
"""Maximum length of a record's text in an answer."""


def from_skip_request(message: admin_pb2.SkipBatchRequest) -> SkipRequest:
    if min(message.offset, message.epoch) < 0:
        raise BadMessage("offset and epoch must not be negative")
    return SkipRequest(
        offset=message.offset,
        epoch=message.epoch,
        chain=chain(message.chain, "chain"),
        although_applied=message.although_applied,
        validate_only=message.validate_only,
    )


def to_skip_response(skipped: BatchSkipped) -> admin_pb2.SkipBatchResponse:
    return admin_pb2.SkipBatchResponse(
        offset=skipped.offset,
        dropped_start=skipped.dropped_start,
        dropped_end=skipped.dropped_end,
        reason=skipped.reason,
        records=islice(_records(skipped.batches), RECORDS_MAX),
    )


def _records(batches: Iterable[Batch]) -> Iterator[admin_pb2.SkippedRecord]:
    for row in joined.from_iterable(map(rows_of, batches)):
        data = json.dumps(row.data, ensure_ascii=False)
        yield admin_pb2.SkippedRecord(offset=row.offset, type=row.type, data=data[:DATA_CHARS_MAX])
