"""The words in which `tables` states the facts of Kafka's messages: fields, their types, and the versions that have them.

Kafka states the same facts in JSON files, from which it generates its classes. In all messages of a metadata log a field that a
version has is in every later version too, so one number, `since`, is enough. Example:
  1. `Field("logDirs", Array(UUID), since=3, tag=0)` of RegisterBrokerRecord is in version 3 and later.
  2. A field with a tag is written only if its value differs from `default`; the tag and a length stand before the value.
  3. `decode` of version 1 gives `logDirs` its default, the empty array. So a reader asks no version.
"""

from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias


class Scalar(Enum):
    """A type without parts. The value is the code of `struct`, or None for a type of variable length."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    INT64 = "q"
    FLOAT64 = "d"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"

    @property
    def is_fixed(self) -> bool:
        """True if every value has the same number of bytes."""
        return self not in (Scalar.STRING, Scalar.BYTES)


BOOL: Final = Scalar.BOOL
INT8: Final = Scalar.INT8
INT16: Final = Scalar.INT16
UINT16: Final = Scalar.UINT16
INT32: Final = Scalar.INT32
INT64: Final = Scalar.INT64
FLOAT64: Final = Scalar.FLOAT64
UUID: Final = Scalar.UUID
STRING: Final = Scalar.STRING
BYTES: Final = Scalar.BYTES


class Struct(NamedTuple):
    """A group of fields inside a message."""

    fields: "tuple[Field, ...]"


class Array(NamedTuple):
    """Any number of values of one type."""

    element: "Scalar | Struct"


Type: TypeAlias = "Scalar | Struct | Array"

_ZERO: Final[dict[Scalar, Any]] = {
    BOOL: False,
    FLOAT64: 0.0,
    UUID: bytes(16),
    STRING: "",
    BYTES: b"",
}
_BY_TYPE: Final = object()


class Field(NamedTuple):
    """One field: `since` is the first version that has it, `tag` its number if it is a tagged field."""

    name: str
    type: Type
    since: int = 0
    tag: int | None = None
    nullable: bool = False
    default: Any = _BY_TYPE

    @property
    def default_value(self) -> Any:
        """The value of the field in a version without it, and of a tagged field that was not written."""
        if self.default is not _BY_TYPE:
            return self.default
        if isinstance(self.type, Array):
            return ()
        if isinstance(self.type, Struct):
            return {field.name: field.default_value for field in self.type.fields}
        return _ZERO.get(self.type, 0)


class Message(NamedTuple):
    """One type of record: Kafka's name for it, its number, and its latest version. All versions from 0 on can be read."""

    name: str
    key: int
    latest: int
    fields: tuple[Field, ...]
    is_control: bool = False
