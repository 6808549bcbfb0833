"""The records around a finding, read from the log of its node."""

import json
from collections.abc import Iterable
from typing import Final

from metadata_log.format.batch import BATCH_BYTES_MAX, Batch, decode
from metadata_log.format.codec import decode_record, record_to_json, split_payload
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from snapshots.offline.audit.findings import Neighbour
from snapshots.offline.readonly import ReadOnlyDirectory

AROUND: Final = 2
"""How many records before and behind the record of a finding are shown."""
WITH_RECORDS_MAX: Final = 50
"""Maximum number of findings that show the records around them."""
_DATA_CHARS: Final = 300
"""Maximum length of a record's fields in a finding."""


def neighbours(
    directory: ReadOnlyDirectory, places: Iterable[tuple[str, int]], offset: Offset
) -> tuple[Neighbour, ...]:
    """Return the records around `offset`. `places` has file and position of their batches. A batch that the node has removed
    meanwhile is left out.
    """
    found: list[Neighbour] = []
    for name, position in sorted(set(places)):
        try:
            file = directory.open(name)
        except FileNotFoundError:
            continue
        try:
            batch = decode(file.read_at(position, BATCH_BYTES_MAX))
        except LogFormatError:
            continue
        finally:
            file.close()
        found += _records(batch, offset)
    return tuple(sorted(found))


def _records(batch: Batch, offset: Offset) -> list[Neighbour]:
    wanted = range(max(batch.base_offset, offset - AROUND), min(batch.end_offset, offset + AROUND + 1))
    try:
        pieces = split_payload(batch.payload, batch.record_count)
    except LogFormatError as e:
        return [Neighbour(each, "unreadable", str(e)) for each in wanted[:1]]
    return [_neighbour(each, pieces[each - batch.base_offset]) for each in wanted]


def _neighbour(offset: Offset, piece: bytes) -> Neighbour:
    try:
        as_json = record_to_json(decode_record(piece))
    except LogFormatError as e:
        return Neighbour(offset, "unreadable", str(e))
    return neighbour_of(offset, str(as_json["type"]), as_json["data"])


def neighbour_of(offset: Offset, kind: str, fields: object) -> Neighbour:
    """Return a record as a finding shows it. The fields are cut if they are long."""
    data = json.dumps(fields, ensure_ascii=False)
    return Neighbour(offset, kind, data if len(data) <= _DATA_CHARS else data[:_DATA_CHARS] + "…")
