"""The encoding of records: each record is one MessagePack array `[type, version, field, field, ...]`, without gaps in a
batch.

*Equal records have equal bytes.* Trailing fields that have their default values are left out. Example: release 2
appends a field `rack` with the default None to a record type.
  1. A node of release 2 writes the record without a rack: the bytes are the same as those of release 1.
  2. A node of release 1 reads these bytes, and both nodes make the same snapshot and the same digest.
  3. A node of release 2 reads an old record: the missing field has its default. Old bytes need no rule of their own.

*Every element is checked when read*: the exact type of every field, and the length of every id. MessagePack does not
know NamedTuples, so nested ones (`Endpoint`, `Voter`, ...) are rebuilt from the annotations of the record classes.
These annotations are the only schema (`metadata_log.format.shapes`); they also mark the bytes that no tool may show
(`Secret`).

A type or version that this code does not know belongs to a newer release. The record becomes an `UnknownRecord`: tools
show it, and replay stops at it. Too many fields for the version, or a field of a wrong type, are damage:
`LogFormatError`.
"""

import typing
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, NamedTuple, cast

import msgpack

from metadata_log.format.batch import BATCH_BYTES_MAX, FORMAT_VERSION, Batch, check_format
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
"""Maximum length of an array inside a record."""
_REDACTED: Final = "[redacted]"


class UnknownRecord(NamedTuple):
    """A record of a type or version that this code does not know, with the fields as in the log."""

    type_number: int
    version: int
    fields: tuple[object, ...]


_SHAPES: Final = {number: Shape(cls) for number, cls in RECORD_TYPES.items()}
_SHAPES_BY_CLASS: Final = {cls: (number, _SHAPES[number]) for cls, number in TYPE_NUMBERS.items()}

DATA_RECORDS: Final = frozenset(cls for cls, number in TYPE_NUMBERS.items() if number < FIRST_CONTROL_TYPE)


def encode_record(record: Record) -> bytes:
    """Return the bytes of one record. Equal records have the same bytes on every node, for ever."""
    number, shape = _SHAPES_BY_CLASS[type(record)]
    # A field of a wrong type would make a record that no node can read back; in a committed log, such a record stays
    # for ever.
    shape.check_signature(record)
    if type(record) is Partition:
        return encode_partition(record.topic_id, record.partition, record[2:])
    return pack((number, RECORD_VERSION, *shape.shortest(record)))


def encode_valid(record: Record) -> bytes:
    """Encode like `encode_record`, without checking the types: the record was decoded or encoded before."""
    number, shape = _SHAPES_BY_CLASS[type(record)]
    return pack((number, RECORD_VERSION, *shape.shortest(record)))


def encode_records(records: Iterable[Record]) -> bytes:
    """Return the payload of a batch of `records`."""
    return b"".join(map(encode_record, records))


def record_unpacker(payload: bytes) -> Any:
    """Return an unpacker over `payload` that allocates no more than a batch may have."""
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
    """Decode the `count` records in `payload`.

    Raises:
        LogFormatError: too few records, more bytes after them, or a record that does not match its type.
    """
    if len(payload) > BATCH_BYTES_MAX:
        raise LogFormatError(f"a payload of {len(payload)} bytes; no batch is larger than {BATCH_BYTES_MAX}")
    unpacker = record_unpacker(payload)
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


def decode_record(packed: bytes) -> Record | UnknownRecord:
    """Decode one record from its bytes, as `split_payload` returns them.

    Raises:
        LogFormatError: the bytes are not one record that matches its type.
    """
    try:
        return _decode(msgpack.unpackb(packed, raw=False, use_list=False, max_map_len=0, max_ext_len=0))
    except LogFormatError:
        raise
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as e:
        raise LogFormatError(f"a record is not MessagePack: {e!r:.80}") from e


def split_payload(payload: bytes, count: int) -> list[bytes]:
    """Return the bytes of each of the `count` records in `payload`, undecoded. Used to hash records as they were
    packed.

    Raises:
        LogFormatError: too few MessagePack values, or more bytes after them.
    """
    if len(payload) > BATCH_BYTES_MAX:
        raise LogFormatError(f"a payload of {len(payload)} bytes; no batch is larger than {BATCH_BYTES_MAX}")
    unpacker = record_unpacker(payload)
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
    """Decode the records of `batch`.

    Raises:
        LogFormatError: as `decode_records`; also a control record in a data batch, or a data record in a control batch; also
            a batch of a replicated partition.
    """
    check_format(batch, FORMAT_VERSION)
    records = decode_records(batch.payload, batch.record_count)
    if not batch.is_control and DATA_RECORDS.issuperset(map(type, records)):
        return records
    for record in records:
        number = record.type_number if type(record) is UnknownRecord else TYPE_NUMBERS[type(record)]
        if (number >= FIRST_CONTROL_TYPE) is not batch.is_control:
            kind = "control" if batch.is_control else "data"
            raise LogFormatError(f"a record of type {number} in the {kind} batch at offset {batch.base_offset}")
    return records


def record_to_json(record: Record | UnknownRecord) -> dict[str, object]:
    """Convert the record for people and tools: `{"type": "Topic", "version": 0, "data": {...}}`.

    Ids become 22 characters, other bytes hexadecimal, NO_LEADER becomes null, and secrets are redacted.
    """
    if isinstance(record, UnknownRecord):
        data: dict[str, object] = {"fields": _plain("", None, record.fields)}
        return {"type": f"Unknown({record.type_number})", "version": record.version, "data": data}
    return {"type": type(record).__name__, "version": RECORD_VERSION, "data": _plain("", None, record)}


def field_to_json(cls: type[tuple[Any, ...]], name: str, value: object) -> object:
    """Convert one field of a record of the type `cls` as `record_to_json` does."""
    return _plain(name, dict(_fields_to_show(cls))[name], value)


@cache
def _fields_to_show(cls: type[tuple[Any, ...]]) -> tuple[tuple[str, object], ...]:
    """Return each field's name, and the kind of its bytes (or of the bytes in its list): `Secret`, `Uuid` or None."""
    return tuple((name, _mark(hint)) for name, hint in hints_of(cls).items())


def _mark(annotation: Any) -> object:
    kinds = alternatives_of(annotation)
    kinds += tuple(item for kind in kinds if typing.get_origin(kind) is tuple for item in typing.get_args(kind))
    return Secret if Secret in kinds else Uuid if Uuid in kinds else None


def has_secrets(packed: bytes) -> bool:
    """Return True if `packed` begins like a record of a type with secrets. The bytes need not be a whole record."""
    head = packed[1:2] if packed[:1] < b"\xa0" else packed[3:4]  # behind a short or a long array's length
    cls = RECORD_TYPES.get(head[0]) if head else None
    return cls is not None and any(mark is Secret for _, mark in _fields_to_show(cls))


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
