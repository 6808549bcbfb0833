"""Records to bytes and back: each is one MessagePack array `[type, version, field, field, ...]`, end to end in a batch.

*One value, one encoding.* Fields at the end that have their default values are left out. So a record that does not use a
field that was appended later has the same bytes as before that field existed, and nodes of two releases make the same
snapshot and the same digest of it. The shorter array is also what an old writer would have written, so reading old bytes
needs no rule of its own: fields that are not there have their defaults.

*What is read is checked to the last element*: the exact type of every field, the length of every id. MessagePack knows no
NamedTuples, so nested ones (`Endpoint`, `Voter`, ...) are rebuilt by the annotations of the record classes, which are the only
schema there is (`metadata_log.format.shapes`), and which say too what bytes no tool shows (`Secret`).

A type or version that this code does not know is a record from the future: it becomes an `UnknownRecord`, which tools show
and replay stops at. More fields than the version has, or a wrong type, is not the future but damage: `LogFormatError`.
"""

import typing
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, NamedTuple, cast

import msgpack

from metadata_log.format.batch import BATCH_BYTES_MAX, Batch
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import NO_LEADER, Uuid, uuid_text
from metadata_log.format.partition_bytes import PARTITION_MARK, StatesSeen, encode_partition, pack
from metadata_log.format.records import (
    FIRST_CONTROL_TYPE,
    RECORD_TYPES,
    RECORD_VERSION,
    TYPE_NUMBERS,
    Partition,
    Record,
    Secret,
)
from metadata_log.format.shapes import UUID_BYTES, Shape, alternatives_of, hints_of

ARRAY_ITEMS_MAX: Final = 10_000
"""No array inside a record is longer."""
_REDACTED: Final = "[redacted]"


class UnknownRecord(NamedTuple):
    """A record of a type or version that this code does not know, as it stands in the log."""

    type_number: int
    version: int
    fields: tuple[object, ...]


_SHAPES: Final = {number: Shape(cls) for number, cls in RECORD_TYPES.items()}
_SHAPES_BY_CLASS: Final = {cls: (number, _SHAPES[number]) for cls, number in TYPE_NUMBERS.items()}

_DATA_RECORDS: Final = frozenset(cls for cls, number in TYPE_NUMBERS.items() if number < FIRST_CONTROL_TYPE)


def encode_record(record: Record) -> bytes:
    """The bytes of one record: the same for equal records, on every node, for ever."""
    number, shape = _SHAPES_BY_CLASS[type(record)]
    # A field of a wrong type would be a record that no node can read back: in a committed log, that is for ever.
    shape.check_signature(record)
    if type(record) is Partition:
        return encode_partition(record.topic_id, record.partition, record[2:])
    return pack((number, RECORD_VERSION, *shape.shortest(record)))


def encode_valid(record: Record) -> bytes:
    """As `encode_record`, for a record that was decoded or encoded before: its types are not looked at once more."""
    number, shape = _SHAPES_BY_CLASS[type(record)]
    return pack((number, RECORD_VERSION, *shape.shortest(record)))


def encode_records(records: Iterable[Record]) -> bytes:
    """The payload of a batch of `records`."""
    return b"".join(map(encode_record, records))


def _unpacker(payload: bytes) -> Any:
    unpacker = msgpack.Unpacker(
        raw=False,
        use_list=False,
        strict_map_key=True,
        max_buffer_size=BATCH_BYTES_MAX,
        max_str_len=BATCH_BYTES_MAX,
        max_bin_len=BATCH_BYTES_MAX,
        max_array_len=ARRAY_ITEMS_MAX,
        max_map_len=0,
        max_ext_len=0,
    )
    unpacker.feed(payload)
    return unpacker


def decode_records(payload: bytes, count: int) -> list[Record | UnknownRecord]:
    """The `count` records that lie end to end in `payload`, and nothing else.

    Raises:
        LogFormatError: not that many records, bytes after them, or a record that is not what its type says.
    """
    if len(payload) > BATCH_BYTES_MAX:
        raise LogFormatError(f"a payload of {len(payload)} bytes; no batch is larger than {BATCH_BYTES_MAX}")
    unpacker = _unpacker(payload)
    records: list[Record | UnknownRecord] = []
    seen = StatesSeen(payload)
    try:
        for _ in range(count):
            start = unpacker.tell()
            if not (seen.is_useful and payload.startswith(PARTITION_MARK, start + 1)):
                records.append(_decode(unpacker.unpack()))
            elif partition := seen.partition_at(start):
                unpacker.skip()
                records.append(partition)
            else:
                records.append(_decode(unpacker.unpack()))
                seen.note(start, unpacker.tell(), records[-1])
    except LogFormatError as e:
        raise LogFormatError(f"record {len(records)} of the batch: {e}") from None
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as e:
        raise LogFormatError(f"record {len(records)} of the batch is not MessagePack: {e!r:.80}") from e
    if unpacker.tell() != len(payload):
        raise LogFormatError(f"{len(payload) - unpacker.tell()} bytes after the {count} records of the batch")
    return records


def split_payload(payload: bytes, count: int) -> list[bytes]:
    """The bytes of each of the `count` records in `payload`, undecoded: for whoever hashes records as they were packed.

    Raises:
        LogFormatError: not that many MessagePack values, or bytes after them.
    """
    if len(payload) > BATCH_BYTES_MAX:
        raise LogFormatError(f"a payload of {len(payload)} bytes; no batch is larger than {BATCH_BYTES_MAX}")
    unpacker = _unpacker(payload)
    pieces: list[bytes] = []
    start = 0
    try:
        for _ in range(count):
            unpacker.skip()
            end = unpacker.tell()
            pieces.append(payload[start:end])
            start = end
    except (ValueError, TypeError, msgpack.UnpackException) as e:
        raise LogFormatError(f"record {len(pieces)} of the batch is not MessagePack: {e!r:.80}") from e
    if start != len(payload):
        raise LogFormatError(f"{len(payload) - start} bytes after the {count} records of the batch")
    return pieces


def _decode(array: object) -> Record | UnknownRecord:
    if type(array) is not tuple or len(array) < 2:
        raise LogFormatError("not an array of type, version and fields")
    number, version = array[0], array[1]
    if type(number) is not int or type(version) is not int or number < 0 or version < 0:
        raise LogFormatError(f"type {number!r:.40} and version {version!r:.40} are not numbers")
    shape = _SHAPES.get(number)
    if shape is None or version > RECORD_VERSION:
        return UnknownRecord(number, version, array[2:])
    return cast(Record, shape.rebuild(array[2:]))


def decode_batch(batch: Batch) -> list[Record | UnknownRecord]:
    """The records of `batch`.

    Raises:
        LogFormatError: as `decode_records`, or a control record in a batch of data, or data in a control batch.
    """
    records = decode_records(batch.payload, batch.record_count)
    if not batch.is_control and _DATA_RECORDS.issuperset(map(type, records)):
        return records
    for record in records:
        number = record.type_number if type(record) is UnknownRecord else TYPE_NUMBERS[type(record)]
        if (number >= FIRST_CONTROL_TYPE) is not batch.is_control:
            kind = "control" if batch.is_control else "data"
            raise LogFormatError(f"a record of type {number} in the {kind} batch at offset {batch.base_offset}")
    return records


def record_to_json(record: Record | UnknownRecord) -> dict[str, object]:
    """The record for people and tools: `{"type": "Topic", "version": 0, "data": {...}}`.

    Ids as 22 characters, other bytes in hexadecimal, nobody's leadership as null; what could open a door is redacted.
    """
    if isinstance(record, UnknownRecord):
        data: dict[str, object] = {"fields": _plain("", None, record.fields)}
        return {"type": f"Unknown({record.type_number})", "version": record.version, "data": data}
    return {"type": type(record).__name__, "version": RECORD_VERSION, "data": _plain("", None, record)}


@cache
def _fields_to_show(cls: type[tuple[Any, ...]]) -> tuple[tuple[str, object], ...]:
    """The name of each field, and what its bytes, or those in its list, are: `Secret`, `Uuid` or neither."""
    return tuple((name, _mark(hint)) for name, hint in hints_of(cls).items())


def _mark(annotation: Any) -> object:
    kinds = alternatives_of(annotation)
    kinds += tuple(item for kind in kinds if typing.get_origin(kind) is tuple for item in typing.get_args(kind))
    return Secret if Secret in kinds else Uuid if Uuid in kinds else None


def _plain(name: str, mark: object, value: object) -> object:
    if mark is Secret:
        return _REDACTED
    if name == "leader" and value == NO_LEADER:
        return None
    if isinstance(value, bytes):
        return uuid_text(value) if mark is Uuid and len(value) == UUID_BYTES else value.hex()
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            fields = _fields_to_show(type(value))
            return {each: _plain(each, of, item) for (each, of), item in zip(fields, value, strict=True)}
        return [_plain(name, mark, item) for item in value]
    return value
