"""Checks of records against the annotations of their classes, fast enough for millions of records.

The annotations are the only schema: the exact type of every field, the bytes that are ids, and the items of lists. A
*signature* is the tuple of the types of a record's fields. Example: the first `Topic` in a snapshot has the signature
(str, bytes), which is checked field by field and remembered. For the next million topics one lookup of (str, bytes) is
enough, and only the length of each id is checked.
"""

import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Final, TypeAlias, cast

from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Uuid

UUID_BYTES: Final = 16

Fields: TypeAlias = tuple[Any, ...]
Converter: TypeAlias = Callable[[Any], Any]


class _Mismatch(Exception):
    """A field does not match its annotation. Becomes a LogFormatError with type and field."""


def _uuid(value: bytes) -> bytes:
    if len(value) != UUID_BYTES:
        raise _Mismatch(f"an id of {len(value)} bytes")
    return value


def _tuple_of(item: Any) -> Converter:
    item_type = _runtime_type(item)

    only_type, only_length = frozenset((item_type,)), frozenset((UUID_BYTES,))

    def check(value: Fields) -> Fields:
        if not only_type.issuperset(map(type, value)):
            wrong = next(each for each in value if type(each) is not item_type)
            raise _Mismatch(f"{wrong!r:.40} in a list of {item_type.__name__}")
        return value

    def check_ids(value: Fields) -> Fields:
        if not (only_type.issuperset(map(type, value)) and only_length.issuperset(map(len, value))):
            wrong = next(each for each in value if type(each) is not bytes or len(each) != UUID_BYTES)
            raise _Mismatch(f"{wrong!r:.40} in a list of ids")
        return value

    return check_ids if item == Uuid else check


def _tuple_of_structs(cls: type[tuple[Any, ...]]) -> Converter:
    shape = Shape(cls)

    def rebuild(value: Fields) -> Fields:
        return tuple([shape.rebuild(item) for item in value])

    return rebuild


@cache
def hints_of(cls: type[tuple[Any, ...]]) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


def alternatives_of(annotation: Any) -> tuple[Any, ...]:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return typing.get_args(annotation)
    return (annotation,)


def _runtime_type(annotation: Any) -> type[Any]:
    """Return the type that `type(value)` has: `bytes` for `Uuid`, `tuple` for `tuple[int, ...]`."""
    bare = annotation.__origin__ if typing.get_origin(annotation) is Annotated else annotation
    return cast(type[Any], typing.get_origin(bare) or bare)


def _types_of(annotation: Any) -> frozenset[type[Any]]:
    """Return the types that a field's value has. MessagePack decodes a struct as a tuple, which `rebuild` replaces."""
    types_ = frozenset(map(_runtime_type, alternatives_of(annotation)))
    return types_ | {tuple} if _has_struct(annotation) else types_


def _has_struct(annotation: Any) -> bool:
    return any(hasattr(each, "_fields") for each in alternatives_of(annotation))


def _converter(name: str, annotation: Any) -> Converter | None:
    """Return the check that a field needs beyond its own type; None if it needs none."""
    for alternative in alternatives_of(annotation):
        if typing.get_origin(alternative) is tuple:
            (item, dots) = typing.get_args(alternative)
            assert dots is Ellipsis, f"{name}: only tuples of any length are in the format"
            return _tuple_of_structs(item) if hasattr(item, "_fields") else _tuple_of(item)
        if alternative == Uuid:
            return _uuid
        if hasattr(alternative, "_fields"):
            return Shape(alternative).rebuild
    return None


class Shape:
    """The annotations of one NamedTuple, prepared for checks."""

    def __init__(self, cls: type[tuple[Any, ...]]) -> None:
        self.cls = cls
        self.names: tuple[str, ...] = cast(Any, cls)._fields
        defaults: dict[str, object] = cast(Any, cls)._field_defaults
        self.required = len(self.names) - len(defaults)
        self.defaults = tuple(defaults.values())
        hints = hints_of(cls)
        self.allowed = tuple(_types_of(hints[name]) for name in self.names)
        converters = ((i, _converter(name, hints[name])) for i, name in enumerate(self.names))
        self.converters = tuple((i, convert) for i, convert in converters if convert is not None)
        self.structs = frozenset(i for i, name in enumerate(self.names) if _has_struct(hints[name]))
        """The fields that are a single struct, or none."""
        self.signatures: set[tuple[type, ...]] = set()
        """Signatures that were accepted. At most the product of the fields' alternatives, so the set stays small."""

    def rebuild(self, fields: Fields) -> tuple[Any, ...]:
        """Make the NamedTuple from all its fields, or from the first of them.

        Raises:
            LogFormatError: a field is missing, too many or of a wrong type.
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
        if tuple(map(type, fields)) not in self.signatures:
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
                elif value is not None and i in self.structs:
                    convert(value)  # raises an error: no struct has no fields
        except _Mismatch as e:
            raise LogFormatError(f"{self.cls.__name__}.{self.names[i]}: {e}") from None
        return tuple.__new__(self.cls, fields if changed is None else changed)

    def check_signature(self, fields: Fields) -> None:
        signature = tuple(map(type, fields))
        if signature in self.signatures:
            return
        for name, value, allowed in zip(self.names, fields, self.allowed, strict=True):
            # Exact types: True is an int to isinstance, but would have other bytes on disk.
            if not (type(value) in allowed or (value is None and types.NoneType in allowed)):
                raise LogFormatError(f"{self.cls.__name__}.{name}: {value!r:.40} does not have the type of this field")
        self.signatures.add(signature)

    def shortest(self, record: tuple[Any, ...]) -> Fields:
        """Return the record's fields without trailing defaults."""
        length = len(record) - len(self.defaults)
        if record[length:] == self.defaults:  # of most records; a loop over the defaults takes three times as long
            return record[:length]
        length = len(record)
        for default in reversed(self.defaults):
            if record[length - 1] != default:
                break
            length -= 1
        return record[:length]
