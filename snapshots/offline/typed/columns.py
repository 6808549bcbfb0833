"""The columns of each record type, made from the one definition of the record (`metadata_log.format.records`).

    node, offset, epoch, timestamp      the place of the record
    one column for each field           in the order of the record's definition

| field | column |
|---|---|
| `int`, `bool`, `float`, `str` | long, boolean, double, string |
| `Uuid` | a string of 22 characters, as people type and read ids |
| `bytes` | binary |
| `Secret` | the string "[redacted]" |
| `tuple[X, ...]` | an array of X |
| a nested part, such as `Endpoint` | a struct |
| `X or None` | X, nullable |

A field with the name of a place column has the prefix `record_`. Example: `RequestOutcome.offset` is the column `record_offset`,
because `offset` is the place of the record. A leader of -1 (NO_LEADER) stays -1: null in a `PartitionChange` means "unchanged".
"""

import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from metadata_log.format.ids import Uuid, uuid_text
from metadata_log.format.records import RECORD_TYPES, Secret
from metadata_log.format.shapes import alternatives_of, hints_of
from snapshots.offline.typed.arrow_schema import TIMESTAMP, list_of

PLACE: Final = (
    pa.field("node", pa.string(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("epoch", pa.int64(), nullable=False),
    pa.field("timestamp", TIMESTAMP, nullable=False),
)
"""The columns that every table has."""

CLASSES: Final = {cls.__name__: cls for cls in RECORD_TYPES.values()}
"""The record types by name: the modes of the typed view."""

_REDACTED: Final = "[redacted]"
_PLAIN: Final[dict[Any, pa.DataType]] = {
    int: pa.int64(),
    bool: pa.bool_(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
}

Convert: TypeAlias = Callable[[Any], Any]


class _Column(NamedTuple):
    """The Arrow type of an annotation, and the function that converts a value; None: a value stays as it is."""

    arrow: pa.DataType
    convert: Convert | None


@cache
def schema_of(cls: type[tuple[Any, ...]]) -> pa.Schema:
    """Return the columns of a record type."""
    taken = {field.name for field in PLACE}
    fields = [_field(f"record_{name}" if name in taken else name, hint) for name, hint in hints_of(cls).items()]
    return pa.schema([*PLACE, *fields])


@cache
def converter_of(cls: type[tuple[Any, ...]]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return the function that converts a record to the values of its own columns."""
    converts = [_column(hint).convert for hint in hints_of(cls).values()]

    def convert(record: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([_converted(value, each) for value, each in zip(record, converts, strict=True)])

    return convert


def _converted(value: Any, convert: Convert | None) -> Any:
    return value if value is None or convert is None else convert(value)


def _field(name: str, annotation: Any) -> pa.Field:
    return pa.field(name, _column(annotation).arrow, nullable=types.NoneType in alternatives_of(annotation))


@cache
def _column(annotation: Any) -> _Column:
    (kind,) = (each for each in alternatives_of(annotation) if each is not types.NoneType)
    if kind == Uuid:
        return _Column(pa.string(), uuid_text)
    if kind == Secret:
        return _Column(pa.string(), _redact)
    if typing.get_origin(kind) is tuple:
        item = _column(typing.get_args(kind)[0])
        return _Column(list_of(item.arrow), _list_converter(item.convert))
    if hasattr(kind, "_fields"):
        return _Column(
            pa.struct([_field(name, hint) for name, hint in hints_of(kind).items()]), _struct_converter(kind)
        )
    return _Column(_PLAIN[kind], None)


def _redact(value: bytes) -> str:
    return _REDACTED


def _list_converter(convert: Convert | None) -> Convert:
    return list if convert is None else lambda values: [convert(each) for each in values]


def _struct_converter(cls: type[tuple[Any, ...]]) -> Convert:
    names, convert = tuple(hints_of(cls)), converter_of(cls)
    return lambda value: dict(zip(names, convert(value), strict=True))
