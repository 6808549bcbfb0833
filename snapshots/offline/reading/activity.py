"""The table `activity`: how many events of each kind a log has in each part of its time.

An event is a record of a type, or what a record says, for example that a broker is fenced. Nearly all records are changes of
partitions, and their last bytes repeat: the same bytes are the same events, and are decoded once. Example:
  1. `isr=(1, 2)` of orders-0 is decoded: the events are `type:PartitionChange` and `isr change`;
  2. orders-7 gets the same bytes behind its topic and number: the events are known;
  3. a record of another type is known by its first bytes, unless the type has events of its own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from metadata_log.format.batch import Batch
from metadata_log.format.codec import UnknownRecord, decode_record, split_payload
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import NO_LEADER
from metadata_log.format.partition_bytes import CHANGE_MARK, ID_AT, NUMBER_AT, NUMBER_SIZES
from metadata_log.format.records import (
    RECORD_VERSION,
    TYPE_NUMBERS,
    BrokerRegistrationChange,
    PartitionChange,
    Record,
)

_KNOWN_MAX: Final = 20_000
"""How many different changes a task remembers."""
_ARRAY: Final = 0x90
"""The upper half of the first byte of a packed record with up to 15 fields."""
_BY_TYPE: Final = {
    number: (f"type:{cls.__name__}",)
    for cls, number in TYPE_NUMBERS.items()
    if cls not in (PartitionChange, BrokerRegistrationChange)
}
"""Type number -> events, for the types whose records are one event."""

Kinds = tuple[str, ...]


def activity(batches: Iterable[Batch], first_ms: int, bucket_ms: int) -> Counter[tuple[str, int]]:
    """Return the number of events of each kind in each time bucket. A record that cannot be read is no event."""
    events: Counter[tuple[Kinds, int]] = Counter()
    known: dict[bytes, Kinds] = {}
    for batch in batches:
        bucket = max(0, batch.last_timestamp_ms - first_ms) // bucket_ms
        try:
            pieces = split_payload(batch.payload, batch.record_count)
        except LogFormatError:
            continue
        for piece in pieces:
            events[_kinds_of(piece, known), bucket] += 1
    counts: Counter[tuple[str, int]] = Counter()
    for (kinds, bucket), count in events.items():
        for kind in kinds:
            counts[kind, bucket] += count
    return counts


def _kinds_of(piece: bytes, known: dict[bytes, Kinds]) -> Kinds:
    if piece[1:ID_AT] == CHANGE_MARK and len(piece) > NUMBER_AT:
        fields = piece[NUMBER_AT + NUMBER_SIZES.get(piece[NUMBER_AT], 0) :]
        kinds = known.get(fields)
        if kinds is None:
            if len(known) >= _KNOWN_MAX:
                known.clear()
            kinds = known[fields] = _decoded_kinds(piece)
        return kinds
    if piece[0] & 0xF0 == _ARRAY and len(piece) > 2 and piece[2] == RECORD_VERSION:
        kinds = _BY_TYPE.get(piece[1])
        if kinds is not None:
            return kinds
    return _decoded_kinds(piece)


def _decoded_kinds(piece: bytes) -> Kinds:
    try:
        return tuple(_kinds(decode_record(piece)))
    except LogFormatError:
        return ()


def _kinds(record: Record | UnknownRecord) -> Iterator[str]:
    if isinstance(record, UnknownRecord):
        yield f"type:Unknown({record.type_number})"
        return
    yield f"type:{type(record).__name__}"
    if isinstance(record, PartitionChange):
        if record.isr is not None:
            yield "isr change"
        if record.leader is not None:
            yield "partition lost its leader" if record.leader == NO_LEADER else "partition leader change"
    elif isinstance(record, BrokerRegistrationChange) and record.fenced is not None:
        yield "broker fenced" if record.fenced else "broker unfenced"
