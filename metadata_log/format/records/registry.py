"""The table of record types by number, and parts that records of several files have."""

from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T", bound=tuple[object, ...])

RECORD_TYPES: dict[int, type[tuple[object, ...]]] = {}
"""Type number -> record class."""

TYPE_NUMBERS: dict[type[tuple[object, ...]], int] = {}
"""Record class -> type number."""

FIRST_CONTROL_TYPE = 64

RECORD_VERSION = 0
"""The version that this code writes for every record type. A record with a higher version was written by a newer
release."""


def record(type_number: int) -> Callable[[type[T]], type[T]]:
    """Register the class under its number in the log. Each number is used once."""

    def register(cls: type[T]) -> type[T]:
        assert type_number not in RECORD_TYPES, f"type {type_number} is taken by {RECORD_TYPES[type_number].__name__}"
        RECORD_TYPES[type_number] = cls
        TYPE_NUMBERS[cls] = type_number
        return cls

    return register


Secret: TypeAlias = Annotated[bytes, "secret"]
"""Bytes that give access to something: no tool shows them."""

FROM_OFFSET = -1
"""In `RegisterBroker.broker_epoch`: the broker's epoch is the offset of this record. Used in the log, not in snapshots.
`RequestOutcome.offset` uses the value in the same way."""


class Endpoint(NamedTuple):
    """The address of a node: a listener's name, and a host and port that others can reach."""

    listener: str
    host: str
    port: int


class FeatureRange(NamedTuple):
    """The levels of one feature that a node supports, both inclusive."""

    name: str
    min_level: int
    max_level: int
