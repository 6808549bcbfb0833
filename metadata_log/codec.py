"""Records to bytes and back: each is one MessagePack array `[type, version, field, field, ...]`, end to end in a batch.

*One value, one encoding.* Fields at the end that have their default values are left out. So a record that does not use a
field that was appended later has the same bytes as before that field existed, and nodes of two releases make the same
snapshot and the same digest of it. The shorter array is also what an old writer would have written, so reading old bytes
needs no rule of its own: fields that are not there have their defaults.

*What is read is checked to the last element*: the exact type of every field, the length of every id. MessagePack knows no
NamedTuples, so nested ones (`Endpoint`, `Voter`, ...) are rebuilt by the annotations of the record classes, which are the only
schema there is, and which say too what bytes are ids (`Uuid`) and what bytes no tool shows (`Secret`). Most records of a type
share a signature (the tuple of their fields' types), so one lookup of that replaces a check per field; only containers and
ids are looked into.

A type or version that this code does not know is a record from the future: it becomes an `UnknownRecord`, which tools show
and replay stops at. More fields than the version has, or a wrong type, is not the future but damage: `LogFormatError`.
"""

import types
import typing
from collections.abc import Callable, Iterable
from functools import cache
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, cast

import msgpack

from metadata_log.batch import BATCH_BYTES_MAX, Batch
from metadata_log.errors import LogFormatError
from metadata_log.ids import NO_LEADER, Uuid, uuid_text
from metadata_log.records import (
    FIRST_CONTROL_TYPE,
    RECORD_TYPES,
    RECORD_VERSION,
    TYPE_NUMBERS,
    Partition,
    Record,
    Secret,
)

ARRAY_ITEMS_MAX: Final = 10_000
"""No array inside a record is longer."""

_UUID_BYTES: Final = 16
_REDACTED: Final = "[redacted]"

Fields: TypeAlias = tuple[Any, ...]
Converter: TypeAlias = Callable[[Any], Any]


class UnknownRecord(NamedTuple):
    """A record of a type or version that this code does not know, as it stands in the log."""

    type_number: int
    version: int
    fields: tuple[object, ...]


class _Mismatch(Exception):
    """A field is not what its annotation says. Becomes a LogFormatError that names type and field."""


def _uuid(value: bytes) -> bytes:
    if len(value) != _UUID_BYTES:
        raise _Mismatch(f"an id of {len(value)} bytes")
    return value


def _tuple_of(item: Any) -> Converter:
    item_type, is_uuid = _runtime_type(item), item == Uuid

    def check(value: Fields) -> Fields:
        for each in value:
            if type(each) is not item_type or (is_uuid and len(each) != _UUID_BYTES):
                raise _Mismatch(f"{each!r:.40} in a list of {'ids' if is_uuid else item_type.__name__}")
        return value

    return check


def _tuple_of_structs(cls: type[tuple[Any, ...]]) -> Converter:
    shape = _Shape(cls)

    def rebuild(value: Fields) -> Fields:
        return tuple([shape.rebuild(item) for item in value])

    return rebuild


@cache
def _hints(cls: type[tuple[Any, ...]]) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return typing.get_args(annotation)
    return (annotation,)


def _runtime_type(annotation: Any) -> type[Any]:
    """What `type(value)` is: `bytes` for `Uuid`, `tuple` for `tuple[int, ...]`."""
    bare = annotation.__origin__ if typing.get_origin(annotation) is Annotated else annotation
    return cast(type[Any], typing.get_origin(bare) or bare)


def _converter(name: str, annotation: Any) -> Converter | None:
    """What must be looked at beyond the field's own type; None where nothing must."""
    for alternative in _alternatives(annotation):
        if typing.get_origin(alternative) is tuple:
            (item, dots) = typing.get_args(alternative)
            assert dots is Ellipsis, f"{name}: only tuples of any length are in the format"
            return _tuple_of_structs(item) if hasattr(item, "_fields") else _tuple_of(item)
        if alternative == Uuid:
            return _uuid
    return None


class _Shape:
    """What the annotations of one NamedTuple say, made ready for checking many of them."""

    def __init__(self, cls: type[tuple[Any, ...]]) -> None:
        self.cls = cls
        self.names: tuple[str, ...] = cast(Any, cls)._fields
        defaults: dict[str, object] = cast(Any, cls)._field_defaults
        self.required = len(self.names) - len(defaults)
        self.defaults = tuple(defaults.values())
        hints = _hints(cls)
        self.allowed = tuple(frozenset(map(_runtime_type, _alternatives(hints[name]))) for name in self.names)
        converters = ((i, _converter(name, hints[name])) for i, name in enumerate(self.names))
        self.converters = tuple((i, convert) for i, convert in converters if convert is not None)
        self.signatures: set[tuple[type, ...]] = set()
        """Signatures that were found right. At most the product of the fields' alternatives, so it stays small."""

    def rebuild(self, fields: Fields) -> tuple[Any, ...]:
        """The NamedTuple of which `fields` are the first, or all, fields.

        Raises:
            LogFormatError: a field is missing, too many or not of its type.
        """
        if type(fields) is not tuple and type(fields) is not self.cls:
            raise LogFormatError(f"{self.cls.__name__}: {fields!r:.40} where an array should be")
        missing = len(self.names) - len(fields)
        if missing:
            if not 0 < missing <= len(self.defaults):
                raise LogFormatError(
                    f"{self.cls.__name__}: {len(fields)} fields; {self.required} to {len(self.names)} are possible"
                )
            fields += self.defaults[-missing:]
        self.check_signature(fields)
        changed: list[Any] | None = None
        i = 0
        try:
            for i, convert in self.converters:
                value = fields[i]
                if value:
                    converted = convert(value)
                    if converted is not value:
                        changed = changed or list(fields)
                        changed[i] = converted
                elif convert is _uuid and value == b"":
                    raise _Mismatch("an id of 0 bytes")
        except _Mismatch as e:
            raise LogFormatError(f"{self.cls.__name__}.{self.names[i]}: {e}") from None
        return tuple.__new__(self.cls, fields if changed is None else changed)

    def check_signature(self, fields: Fields) -> None:
        signature = tuple(map(type, fields))
        if signature in self.signatures:
            return
        for name, value, allowed in zip(self.names, fields, self.allowed, strict=True):
            # exact types: True is an int to isinstance, and would come back from the disk as another value's bytes
            if not (type(value) in allowed or (value is None and types.NoneType in allowed)):
                raise LogFormatError(f"{self.cls.__name__}.{name}: {value!r:.40} is not what this field holds")
        self.signatures.add(signature)

    def shortest(self, record: tuple[Any, ...]) -> Fields:
        """The record's fields without those at the end that have their defaults."""
        length = len(record)
        for default in reversed(self.defaults):
            if record[length - 1] != default:
                break
            length -= 1
        return record[:length]


_SHAPES: Final = {number: _Shape(cls) for number, cls in RECORD_TYPES.items()}
_SHAPES_BY_CLASS: Final = {cls: (number, _SHAPES[number]) for cls, number in TYPE_NUMBERS.items()}

_PARTITION_TYPE, _PARTITION_SHAPE = _SHAPES_BY_CLASS[Partition]

_packed_states: Final[dict[Fields, tuple[bytes, bytes]]] = {}
_PACKED_STATES_MAX: Final = 1 << 14

_pack: Final = msgpack.Packer(use_bin_type=True, strict_types=False).pack
"""One packer for all: `pack` runs to its end without letting another thread in."""


def encode_record(record: Record) -> bytes:
    """The bytes of one record: the same for equal records, on every node, for ever."""
    number, shape = _SHAPES_BY_CLASS[type(record)]
    # A field of a wrong type would be a record that no node can read back: in a committed log, that is for ever.
    shape.check_signature(record)
    if type(record) is Partition:
        return encode_partition(record.topic_id, record.partition, record[2:])
    return cast(bytes, _pack((number, RECORD_VERSION, *shape.shortest(record))))


def encode_valid(record: Record) -> bytes:
    """As `encode_record`, for a record that was decoded or encoded before: its types are not looked at once more."""
    number, shape = _SHAPES_BY_CLASS[type(record)]
    return cast(bytes, _pack((number, RECORD_VERSION, *shape.shortest(record))))


def encode_partition(topic_id: bytes, partition: int, state: Fields) -> bytes:
    """As `encode_valid` of a `Partition` whose fields from the third on are `state`, without making one: it is the hot path.

    An array's bytes are its head and its items' bytes, so what follows the number is packed once for each state.
    """
    pieces = _packed_states.get(state)
    if pieces is None:
        pieces = _pack_state(state)
    head, tail = pieces
    assert len(topic_id) == _UUID_BYTES
    return b"".join((head, topic_id, _pack(partition), tail))


def _pack_state(state: Fields) -> tuple[bytes, bytes]:
    """What stands before the topic id of a `Partition` in this state, and what after its number."""
    fields = _PARTITION_SHAPE.shortest(state)
    whole: bytes = _pack((_PARTITION_TYPE, RECORD_VERSION, bytes(_UUID_BYTES), 0, *fields))
    number_at = len(whole) - sum([len(_pack(field)) for field in fields]) - len(_pack(0))
    if len(_packed_states) >= _PACKED_STATES_MAX:
        _packed_states.clear()
    pieces = whole[: number_at - _UUID_BYTES], whole[number_at + len(_pack(0)) :]
    return _packed_states.setdefault(state, pieces)


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
    try:
        for _ in range(count):
            records.append(_decode(unpacker.unpack()))  # noqa: PERF401 - the place of an error is worth the loop
    except LogFormatError as e:
        raise LogFormatError(f"record {len(records)} of the batch: {e}") from None
    except (ValueError, TypeError, msgpack.UnpackException) as e:
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
    return tuple((name, _mark(hint)) for name, hint in _hints(cls).items())


def _mark(annotation: Any) -> object:
    kinds = _alternatives(annotation)
    kinds += tuple(item for kind in kinds if typing.get_origin(kind) is tuple for item in typing.get_args(kind))
    return Secret if Secret in kinds else Uuid if Uuid in kinds else None


def _plain(name: str, mark: object, value: object) -> object:
    if mark is Secret:
        return _REDACTED
    if name == "leader" and value == NO_LEADER:
        return None
    if isinstance(value, bytes):
        return uuid_text(value) if mark is Uuid and len(value) == _UUID_BYTES else value.hex()
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            fields = _fields_to_show(type(value))
            return {each: _plain(each, of, item) for (each, of), item in zip(fields, value, strict=True)}
        return [_plain(name, mark, item) for item in value]
    return value
