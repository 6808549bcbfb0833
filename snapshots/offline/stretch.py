"""Check one stretch of a log where its task reads it, and tell the result in one row: the jobs' fast path over healthy logs.

    task 1   [0, 40)    whole     begins at 0, chain G;    ends at 40, chain A
    task 2   [40, 90)   whole     begins at 40, chain A;   ends at 90, chain B        the driver compares A with A
    task 3   [90, ...   broken    says nothing else: the driver reads the rows of all batches, and finds what is wrong

A stretch is *whole* if every batch is intact, continues the chain and the offsets, and has no lower epoch and no earlier time
than the batch before. So the driver has to check only the joints between stretches, and gets one row for each stretch.

The row also has the *punctuation* of the stretch, and the ends of some batches. Records are not decoded for that: the
bytes of a batch of data are searched for the types of the punctuation.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from metadata_log.disk.files import File
from metadata_log.format.batch import Batch
from metadata_log.format.codec import decode_records
from metadata_log.format.ids import Epoch, Offset
from metadata_log.format.records import FIRST_CONTROL_TYPE
from snapshots.offline.punctuation import PUNCTUATION, Placed
from snapshots.offline.rows import record_rows
from snapshots.offline.scan import FileRange, Scanned, scan

_DATA_TYPES: Final = bytes(sorted(number for number in PUNCTUATION if number < FIRST_CONTROL_TYPE))
_MAYBE: Final = re.compile(b"[%s][\x00\xcc-\xd3]" % re.escape(_DATA_TYPES))
"""Pattern that each record of these types has: the type, and the version as any encoding of 0. Few other bytes match. A record of
another version is not punctuation, because this release does not know the record."""
_SHORT: Final = frozenset((0x92, 0x93, 0x94))
"""The heads of short arrays of two to four items, as these records are."""
_LONG_MAX: Final = 4
"""The last byte of the head of a longer form, for an array of up to four items."""


class End(NamedTuple):
    """The end of a batch."""

    offset: Offset
    epoch: Epoch
    timestamp_ms: int
    chain: bytes


class Beginning(NamedTuple):
    """The first batch of an epoch in a stretch."""

    epoch: Epoch
    offset: Offset
    position: int


class WholeStretch(NamedTuple):
    """The facts about a whole stretch. A stretch may have no batch."""

    batches: int
    records: int
    size: int
    first_offset: Offset
    first_ms: int
    previous_chain: bytes
    """The chain before the first batch."""
    end: End
    """The end of the last batch."""
    beginnings: tuple[Beginning, ...]
    ends: tuple[End, ...]
    """The wanted ends, and the end of each control batch."""
    placed: tuple[Placed, ...]

    def to_text(self) -> str:
        return json.dumps(_plain(self))

    @classmethod
    def from_text(cls, text: str) -> "WholeStretch":
        batches, records, size, offset, first_ms, chain, end, beginnings, ends, placed = json.loads(text)
        return cls(
            batches, records, size, offset, first_ms, bytes.fromhex(chain), _end(end),
            tuple(Beginning(*each) for each in beginnings), tuple(map(_end, ends)), tuple(map(_placed, placed)),
        )  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, Placed):
        return [*value[:3], value.payload.hex()]
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value.hex() if isinstance(value, bytes) else value


def _end(fields: list[Any]) -> End:
    offset, epoch, timestamp_ms, chain = fields
    return End(offset, epoch, timestamp_ms, bytes.fromhex(chain))


def _placed(fields: list[Any]) -> Placed:
    offset, epoch, timestamp_ms, text = fields
    payload = bytes.fromhex(text)
    return Placed(offset, epoch, timestamp_ms, decode_records(payload, 1)[0], payload)


_NOTHING: Final = WholeStretch(0, 0, 0, 0, 0, b"", End(0, 0, 0, b""), (), (), ())


def read_stretch(
    file: File, stretch: FileRange, until: Offset | None, wanted: frozenset[Offset]
) -> WholeStretch | None:
    """Return the facts about a whole stretch, with the ends that are `wanted`; None if the stretch is not whole."""
    batches = size = 0
    first: Batch | None = None
    last: Batch | None = None
    previous_chain = b""
    beginnings: list[Beginning] = []
    ends: list[End] = []
    placed: list[Placed] = []
    for each in scan(file, stretch, until):
        batch = each.batch
        if (
            batch is None
            or not each.chain_ok
            or batch.base_offset != each.expected_offset
            or not _is_later(batch, last)
        ):
            return None
        if last is None or batch.epoch != last.epoch:
            beginnings.append(Beginning(batch.epoch, batch.base_offset, each.position))
        if first is None:
            assert each.previous_chain is not None, "the batch continues it"
            first, previous_chain = batch, each.previous_chain
        last = batch
        batches += 1
        size += each.length
        if batch.is_control or batch.end_offset in wanted:
            ends.append(_end_of(batch))
        if batch.is_control or may_have_punctuation(batch.data):
            placed += _punctuation(stretch.name, each, batch)
    if first is None or last is None:
        return _NOTHING
    return WholeStretch(
        batches, last.end_offset - first.base_offset, size, first.base_offset, first.first_timestamp_ms, previous_chain,
        _end_of(last), tuple(beginnings), tuple(ends), tuple(placed),
    )  # fmt: skip


def _is_later(batch: Batch, last: Batch | None) -> bool:
    """Return True if epoch and times of a batch are not below those of the batch before."""
    if batch.first_timestamp_ms > batch.last_timestamp_ms:
        return False
    return last is None or (batch.epoch >= last.epoch and batch.first_timestamp_ms >= last.last_timestamp_ms)


def _end_of(batch: Batch) -> End:
    return End(batch.end_offset, batch.epoch, batch.last_timestamp_ms, batch.chain)


def may_have_punctuation(data: bytes) -> bool:
    """Return False if no record in `data` is punctuation. True is a guess, because ids may have any bytes."""
    return any(_may_begin(data, found.start()) for found in _MAYBE.finditer(data))


def _may_begin(data: bytes, at: int) -> bool:
    """Return False if a record's type cannot be at `at`: no head of an array is before. Array and type may have the longer forms
    that MessagePack allows, although no production code writes them.
    """
    before = data[at - 1]
    if before in _SHORT or before in (0xCC, 0xD0):
        return True
    if before == 0:
        return data[at - 2] in (0xCD, 0xD1) or data[at - 4] in (0xCE, 0xD2) or data[at - 8] in (0xCF, 0xD3)
    return before <= _LONG_MAX and (data[at - 3] == 0xDC or data[at - 5] == 0xDD)


def _punctuation(name: str, scanned: Scanned, batch: Batch) -> Iterator[Placed]:
    for row in record_rows("", name, scanned, PUNCTUATION):
        if row.error is None:
            assert row.offset is not None and row.payload is not None, "only a row with an error lacks them"
            record = decode_records(row.payload, 1)[0]
            yield Placed(row.offset, batch.epoch, batch.last_timestamp_ms, record, row.payload)
