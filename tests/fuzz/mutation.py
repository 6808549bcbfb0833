"""Bad bytes from good ones: what a rotten disk, a broken peer or somebody with bad intentions might send.

Everything is thrown with the dice that are handed in, so an input follows from its seed. Two kinds:

    bytes      bits flip, ends go, spans are inserted, doubled, moved or zeroed, numbers become extreme, two samples are joined
    messages   a field of a protobuf message, anywhere inside, becomes extreme, absent or many: what bytes at random hardly
               ever get past the parser
"""

import json
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

EXTREMES: Final = (
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)
_WIDTHS: Final = (1, 2, 4, 8)
_SPAN_MAX: Final = 64

Mutate = Callable[[Random, Sequence[bytes]], bytes]


# --- bytes -----------------------------------------------------------------------------------------------------------


def mutated(rng: Random, samples: Sequence[bytes]) -> bytes:
    """One of the samples, hurt in one place, or in a few."""
    data = bytearray(rng.choice(samples))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        rng.choice(_HURTS)(rng, data, samples)
    return bytes(data)


def _flip(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _truncate(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[rng.randint(0, len(data)) :]


def _behead(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[: min(rng.randint(0, _SPAN_MAX), len(data))]


def _insert(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = rng.randbytes(rng.randint(1, _SPAN_MAX))


def _double(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    first, last = _span(rng, data)
    at = rng.randint(0, len(data))
    data[at:at] = data[first:last] * rng.choice((1, 1, 2, 20))


def _remove(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    first, last = _span(rng, data)
    del data[first:last]


def _zero(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    first, last = _span(rng, data)
    data[first:last] = bytes(last - first)


def _number(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    width = rng.choice(_WIDTHS)
    if len(data) >= width:
        at = rng.randint(0, len(data) - width)
        data[at : at + width] = (rng.choice(EXTREMES) % (1 << 8 * width)).to_bytes(width, rng.choice(("big", "little")))


def _splice(rng: Random, data: bytearray, samples: Sequence[bytes]) -> None:
    other = rng.choice(samples)
    data[rng.randint(0, len(data)) :] = other[rng.randint(0, len(other)) :]


def _span(rng: Random, data: bytearray) -> tuple[int, int]:
    first = rng.randint(0, len(data))
    return first, min(len(data), first + rng.randint(1, _SPAN_MAX))


_HURTS: Final[Sequence[Callable[[Random, bytearray, Sequence[bytes]], None]]] = (
    _flip, _flip, _number, _number, _truncate, _behead, _insert, _double, _remove, _zero, _splice,
)  # fmt: skip


# --- JSON ------------------------------------------------------------------------------------------------------------

_ODD_VALUES: Final[Sequence[Any]] = (
    None, True, -1, 0, 1, 1 << 31, 1 << 63, 1 << 64, -(1 << 63), 1e308, float("inf"), float("nan"), 0.5, "", "1", "x" * 300,
    [], [1], {}, {"a": {}}, "AAAAAAAAAAAAAAAAAAAAAA",
)  # fmt: skip


def json_mutated(rng: Random, text: bytes) -> bytes:
    """The JSON of `text` with one value in it replaced, gone, or of another kind."""
    value = json.loads(text)
    inside = value
    while isinstance(inside, dict) and inside:
        name = rng.choice(sorted(inside))
        if isinstance(inside[name], dict) and rng.random() < 0.7:
            inside = inside[name]
            continue
        if rng.random() < 0.2:
            del inside[name]
        else:
            inside[name] = rng.choice(_ODD_VALUES)
        break
    return json.dumps(value, sort_keys=True).encode()


# --- messages --------------------------------------------------------------------------------------------------------

_LENGTHS: Final = (0, 1, 15, 16, 17, 31, 32, 33, 250, 5_000)
_TEXTS: Final = (
    "", ".", "..", "a/b", "\x00", "\u2028", "zoë", "orders", "-1", "retention.ms", "x" * 249, "x" * 250, "x" * 70_000,
    "999999999999999999999", "PLAINTEXT",
)  # fmt: skip
_MANY: Final = (2, 2, 3, 17, 101, 1_001, 10_001)
_LIST_BYTES_MAX: Final = 1 << 20
"""gRPC lets no more than 4 MiB through in one message."""


def message_mutated(rng: Random, message: Any) -> None:
    """Makes one field, or a few, of `message` odd, in it or anywhere below."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _make_odd(rng, message)


def _make_odd(rng: Random, message: Any) -> None:
    fields = message.DESCRIPTOR.fields
    if not fields:
        return
    field = rng.choice(fields)
    if field.is_repeated:
        _make_list_odd(rng, message, field)
    elif field.message_type is None:
        if rng.random() < 0.1:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, _odd(rng, field))
    elif rng.random() < 0.1:
        message.ClearField(field.name)
    else:
        inside = getattr(message, field.name)
        inside.SetInParent()
        _make_odd(rng, inside)


def _make_list_odd(rng: Random, message: Any, field: Any) -> None:
    items = getattr(message, field.name)
    choice = rng.random()
    if choice < 0.1:
        message.ClearField(field.name)
    elif choice < 0.2:
        kept = list(items) or ([field.message_type._concrete_class()] if field.message_type else [_odd(rng, field)])
        size = max(1, kept[0].ByteSize() if field.message_type else len(str(kept[0])))
        items.extend(kept[:1] * min(rng.choice(_MANY), max(1, _LIST_BYTES_MAX // size)))
    elif field.message_type is None:
        if items and rng.random() < 0.7:
            items[rng.randrange(len(items))] = _odd(rng, field)
        else:
            items.append(_odd(rng, field))
    else:
        if not items or rng.random() < 0.1:
            items.add()
        _make_odd(rng, items[rng.randrange(len(items))])


def _odd(rng: Random, field: Any) -> Any:
    match field.cpp_type:
        case field.CPPTYPE_INT32 | field.CPPTYPE_ENUM:
            return rng.choice((0, 1, 2, 3, 7, -1, 100, 10_001, (1 << 31) - 1, -(1 << 31)))
        case field.CPPTYPE_INT64:
            return rng.choice((0, 1, 2, 3, -1, 1 << 31, (1 << 63) - 1, -(1 << 63)))
        case field.CPPTYPE_UINT64:
            return rng.choice((0, 1, 1 << 63, (1 << 64) - 1))
        case field.CPPTYPE_DOUBLE:
            return rng.choice((0.0, -0.0, 0.5, -1.0, 1e-300, 1e300, math.inf, -math.inf, math.nan))
        case field.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case _ if field.type == field.TYPE_BYTES:
            return rng.randbytes(rng.choice(_LENGTHS))
        case _:
            return rng.choice(_TEXTS)


def messages_mutated(message_type: Callable[[], Any]) -> Mutate:
    """Mutates serialized messages of one type: mostly as messages, sometimes as bytes, sometimes both."""

    def mutate(rng: Random, samples: Sequence[bytes]) -> bytes:
        if rng.random() < 0.25:
            return mutated(rng, samples)
        message = message_type()
        message.ParseFromString(rng.choice(samples))
        message_mutated(rng, message)
        data: bytes = message.SerializeToString(deterministic=True)
        return mutated(rng, (data,)) if rng.random() < 0.05 else data

    return mutate
