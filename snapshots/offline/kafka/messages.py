"""Decoders of Kafka's messages (flexible versions), made once for each message and version from the facts in `tables`.

A struct is its plain fields in order, then its tagged fields: a count, and for each a tag, a length and a value. A string, an
array or bytes begin with their length plus 1 as an unsigned varint; 0 is null. A decoder is a list of steps, and neighbours of
fixed length are one step. Example, PartitionChangeRecord version 0:
  1. `partitionId` and `topicId` are one step: `struct.unpack_from(">i16s")`.
  2. The tagged fields are the second step. Tag 1 is there, `leader`; all other fields get their defaults.
  3. A later Kafka wrote tag 9 as well. Its bytes are kept in the dictionary under `UNKNOWN_TAGS`.
"""

import struct
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

from snapshots.offline.kafka.errors import KafkaFormatError, cut_short
from snapshots.offline.kafka.primitives import unsigned_varint
from snapshots.offline.kafka.schema import BYTES, STRING, Array, Field, Message, Scalar, Struct, Type

Fields: TypeAlias = dict[str, Any]
"""The fields of a message or a struct by name; every field that `tables` names, whatever the version. Arrays are tuples."""
UNKNOWN_TAGS: Final = "_tags"
"""The key of tagged fields that `tables` does not name: their bytes by tag. No field of Kafka has this name."""

_Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
_Step: TypeAlias = Callable[[bytes, int, Fields], int]
_SHORT_ARRAY: Final = 16


def decoder(message: Message, version: int) -> Callable[[bytes, int], Fields]:
    """Make the decoder of one version of a message. It reads from a position on to the end of the bytes.

    The decoder raises KafkaFormatError if the bytes are not such a message.
    """
    assert 0 <= version <= message.latest
    read = _struct(message.fields, version)

    def decode(data: bytes, at: int) -> Fields:
        try:
            fields, end = read(data, at)
        except (IndexError, struct.error):
            raise cut_short() from None
        except UnicodeDecodeError as e:
            raise KafkaFormatError(f"a string is not UTF-8: {e.reason}") from None
        if end != len(data):
            raise KafkaFormatError(f"{len(data) - end} bytes follow the last field")
        found: Fields = fields
        return found

    return decode


def _struct(fields: Sequence[Field], version: int) -> _Read:
    template = {field.name: field.default_value for field in fields}
    present = [field for field in fields if field.since <= version]
    steps: list[_Step] = []
    for is_fixed, group in groupby((field for field in present if field.tag is None), _is_fixed):
        neighbours = tuple(group)
        steps += [_fixed(neighbours)] if is_fixed else [_variable(field, version) for field in neighbours]
    steps.append(_tagged(tuple(field for field in present if field.tag is not None), version))

    def read(data: bytes, at: int) -> tuple[Fields, int]:
        found = template.copy()
        for step in steps:
            at = step(data, at, found)
        return found, at

    return read


def _is_fixed(field: Field) -> bool:
    return isinstance(field.type, Scalar) and field.type.is_fixed


def _fixed(fields: tuple[Field, ...]) -> _Step:
    """Make one step for neighbours of fixed length."""
    names = [field.name for field in fields]
    packed = struct.Struct(">" + "".join(_code(field.type) for field in fields))
    unpack, size = packed.unpack_from, packed.size
    if len(names) == 1:
        return _one_fixed(names[0], packed)

    def step(data: bytes, at: int, found: Fields) -> int:
        found.update(zip(names, unpack(data, at)))  # noqa: B905 (as many names as codes; `strict` costs time here)
        return at + size

    return step


def _one_fixed(name: str, packed: struct.Struct) -> _Step:
    unpack, size = packed.unpack_from, packed.size

    def step(data: bytes, at: int, found: Fields) -> int:
        found[name] = unpack(data, at)[0]
        return at + size

    return step


def _code(kind: Type) -> str:
    assert isinstance(kind, Scalar)
    return kind.value


def _variable(field: Field, version: int) -> _Step:
    name, read = field.name, _reader(field, version)

    def step(data: bytes, at: int, found: Fields) -> int:
        found[name], at = read(data, at)
        return at

    return step


def _reader(field: Field, version: int) -> _Read:
    match field.type:
        case Struct(fields):
            return _struct(fields, version)
        case Array(element):
            return _array(field.name, element, version, field.nullable)
        case Scalar.STRING | Scalar.BYTES:
            return _text(field.name, field.type is STRING, field.nullable)
        case scalar:
            unpack = struct.Struct(f">{_code(scalar)}")
            return lambda data, at: (unpack.unpack_from(data, at)[0], at + unpack.size)


def _text(name: str, is_string: bool, nullable: bool) -> _Read:
    """Make a reader of a string or of bytes."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        size = data[at]
        at += 1
        if size >= 0x80:
            size, at = unsigned_varint(data, at - 1)
        if size == 0:
            _check_nullable(name, nullable)
            return None, at
        end = at + size - 1
        if end > len(data):
            raise cut_short()
        return (data[at:end].decode() if is_string else data[at:end]), end

    return read


def _check_nullable(name: str, nullable: bool) -> None:
    if not nullable:
        raise KafkaFormatError(f"the field {name} is null, which Kafka never writes")


def _array(name: str, element: Scalar | Struct, version: int, nullable: bool) -> _Read:
    if isinstance(element, Struct):
        return _elements(name, _struct(element.fields, version), nullable)
    if element in (STRING, BYTES):
        return _elements(name, _text(name, element is STRING, False), nullable)
    code = element.value
    size = struct.calcsize(f">{code}")
    shorts = [struct.Struct(f">{code * count}").unpack_from for count in range(_SHORT_ARRAY)]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        count = data[at]
        at += 1
        if count >= 0x80:
            count, at = unsigned_varint(data, at - 1)
        if count == 0:
            _check_nullable(name, nullable)
            return None, at
        count -= 1
        end = at + count * size
        if end > len(data):
            raise cut_short()
        return (
            shorts[count](data, at) if count < _SHORT_ARRAY else struct.unpack(f">{code * count}", data[at:end])
        ), end

    return read


def _elements(name: str, read_one: _Read, nullable: bool) -> _Read:
    """Make a reader of an array whose elements have no fixed length, but one byte at least."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        count = data[at]
        at += 1
        if count >= 0x80:
            count, at = unsigned_varint(data, at - 1)
        if count == 0:
            _check_nullable(name, nullable)
            return None, at
        if count - 1 > len(data) - at:
            raise cut_short()
        found = []
        for _ in range(count - 1):
            value, at = read_one(data, at)
            found.append(value)
        return tuple(found), at

    return read


def _tagged(fields: tuple[Field, ...], version: int) -> _Step:
    """Make the step for the tagged fields at the end of a struct."""
    known = {field.tag: (field.name, _reader(field, version)) for field in fields}

    def step(data: bytes, at: int, found: Fields) -> int:
        count = data[at]
        at += 1
        if count == 0:
            return at
        if count >= 0x80:
            count, at = unsigned_varint(data, at - 1)
        last = -1
        for _ in range(count):
            tag, size, at = data[at], data[at + 1], at + 2
            if tag >= 0x80 or size >= 0x80:
                tag, at = unsigned_varint(data, at - 2)
                size, at = unsigned_varint(data, at)
            end = at + size
            if end > len(data):
                raise cut_short()
            if tag <= last:
                raise KafkaFormatError(f"the tagged field {tag} follows the tagged field {last}")
            last = tag
            if tag in known:
                name, read = known[tag]
                found[name], at = read(data, at)
                if at != end:
                    raise KafkaFormatError(f"the tagged field {name} does not fill its {size} bytes")
            else:
                found.setdefault(UNKNOWN_TAGS, {})[tag] = data[at:end]
                at = end
        return at

    return step


def unknown_tags(value: Any) -> list[int]:
    """Return the numbers of all tagged fields in a decoded message that this release does not know."""
    if isinstance(value, tuple):
        if not value or not isinstance(value[0], dict):
            return []  # an array has elements of one type
        return [tag for element in value for tag in unknown_tags(element)]
    if not isinstance(value, dict):
        return []
    inner = [tag for name, each in value.items() if name != UNKNOWN_TAGS for tag in unknown_tags(each)]
    return [*value.get(UNKNOWN_TAGS, ()), *inner]
