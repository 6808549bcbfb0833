"""Columns: many numbers, or many lists of numbers, as a few bytes.

    numbers    [ size of a number: 1, 2, 4 or 8 | number | number | ... ]      big-endian, signed
               one number only, if all are equal; no bytes at all, if all are zero
    lists      two columns: the size of each list, and the numbers of all lists one after the other

Example: three partitions have the replicas (101, 102, 103), (102, 103, 101) and (103, 101, 102). The sizes are 3, 3 and 3, so
their column is `01 03`. The ids need two bytes each, because 128 is the first number that does not fit into one byte with a sign,
but 103 fits: so their column is `01` and nine bytes. The leader epochs are all zero, and their column has no bytes.

Reading a column costs one call for all its numbers, and a list costs one step of `zip`. Numbers and lists in the middle of a
column are read without the others (`numbers_between`, `lists_between`).
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final

from metadata_log.format.errors import LogFormatError
from metadata_log.format.records.topics import ListColumn

_TYPE_CODES: Final = {1: "b", 2: "h", 4: "i", 8: "q"}
"""The code of `array` for each size of a number."""
assert all(array(code).itemsize == size for size, code in _TYPE_CODES.items())

ALL_ZERO: Final = b"\x01\x00"
"""A column of zeros with bytes, where no bytes mean something else."""


def pack_numbers(numbers: Sequence[int]) -> bytes:
    """Pack the numbers in the shortest form, so that equal numbers have equal bytes."""
    low, high = min(numbers, default=0), max(numbers, default=0)
    if low == high == 0:
        return b""
    size = next((size for size in _TYPE_CODES if -1 << 8 * size - 1 <= low and high < 1 << 8 * size - 1), 0)
    assert size, f"numbers from {low} to {high}: 63 bits and a sign are possible"
    packed = array(_TYPE_CODES[size], (low,) if low == high else numbers)
    if sys.byteorder == "little":
        packed.byteswap()
    return bytes((size,)) + packed.tobytes()


def unpack_numbers(data: bytes, count: int) -> Sequence[int]:
    """Return the `count` numbers of a column.

    Raises:
        LogFormatError: the column has another number of numbers, or its first byte is no size.
    """
    if not data:
        return [0] * count
    code = _TYPE_CODES.get(data[0])
    if code is None:
        raise LogFormatError(f"a column with numbers of {data[0]} bytes; 1, 2, 4 and 8 are possible")
    if len(data) == 1 + data[0]:
        return [int.from_bytes(data[1:], "big", signed=True)] * count
    if len(data) != 1 + data[0] * count:
        raise LogFormatError(f"a column of {len(data)} bytes where {count} numbers of {data[0]} bytes are expected")
    numbers = array(code, data[1:])
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def check_numbers(data: bytes, count: int) -> None:
    """Check that the column has `count` numbers, without reading them.

    Raises:
        LogFormatError: as `unpack_numbers`.
    """
    size = data[0] if data else 0
    if data and (size not in _TYPE_CODES or len(data) not in (1 + size, 1 + size * count)):
        unpack_numbers(data, count)


def numbers_between(data: bytes, start: int, stop: int) -> Sequence[int]:
    """Return the numbers `start` to `stop` (exclusive) of a column that `check_numbers` has accepted."""
    if not data:
        return [0] * (stop - start)
    size = data[0]
    if len(data) == 1 + size:
        return [int.from_bytes(data[1:], "big", signed=True)] * (stop - start)
    numbers = array(_TYPE_CODES[size], data[1 + size * start : 1 + size * stop])
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def number_at(data: bytes, place: int) -> int:
    """Return one number of a column that `check_numbers` has accepted."""
    if not data:
        return 0
    size = data[0]
    start = 1 if len(data) == 1 + size else 1 + size * place
    return int.from_bytes(data[start : start + size], "big", signed=True)


def pack_lists(lists: Sequence[Sequence[int]]) -> ListColumn:
    """Pack lists of numbers."""
    return ListColumn(pack_numbers([*map(len, lists)]), pack_numbers([*chain.from_iterable(lists)]))


def unpack_lists(
    column: ListColumn, count: int, numbers_max: int, shared: Callable[[Sequence[int]], Iterable[int]] = iter
) -> Iterable[tuple[int, ...]]:
    """Return the `count` lists of a column. `shared` replaces the numbers by equal ones, all numbers at once.

    Raises:
        LogFormatError: the two columns do not fit each other, or the lists have more than `numbers_max` numbers.
    """
    sizes = unpack_numbers(column.sizes, count)
    total = sum(sizes)
    if min(sizes, default=0) < 0 or total > numbers_max:
        raise LogFormatError(_bad_sizes(total, numbers_max))
    numbers = iter(shared(unpack_numbers(column.numbers, total)))
    if count and total == count * sizes[0] == count * max(sizes):
        return zip(*[numbers] * sizes[0], strict=True) if total else [()] * count
    return _cut(numbers, sizes)


def check_lists(column: ListColumn, count: int, numbers_max: int) -> int:
    """Check that the column has `count` lists, without making them, and return how many numbers they have together.

    Raises:
        LogFormatError: as `unpack_lists`.
    """
    data = column.sizes
    if data and len(data) == 1 + data[0] and data[0] in _TYPE_CODES:
        least = int.from_bytes(data[1:], "big", signed=True)
        total = least * count
    else:
        sizes = unpack_numbers(data, count)
        least, total = min(sizes, default=0), sum(sizes)
    if least < 0 or total > numbers_max:
        raise LogFormatError(_bad_sizes(total, numbers_max))
    check_numbers(column.numbers, total)
    return total


def are_below(data: bytes, count: int, bound: int) -> bool:
    """Return True if all numbers of a column that `check_numbers` has accepted are from 0 to `bound` (exclusive)."""
    if bound <= 1 << 7 and len(data) == 1 + count and data[0] == 1:
        return max(data[1:], default=-1) < bound  # one byte each; a negative number is a byte from 128 on
    numbers = numbers_between(data, 0, count)
    return min(numbers, default=0) >= 0 and max(numbers, default=-1) < bound


def may_have(data: bytes, number: int) -> bool:
    """Return False if the number is not in a column that `check_numbers` has accepted. The search compares bytes, so True may be
    wrong: two halves of larger numbers look like the number.
    """
    if not data:
        return number == 0
    size = data[0]
    if not -1 << 8 * size - 1 <= number < 1 << 8 * size - 1:
        return False  # too large for the numbers of this column
    return data.find(number.to_bytes(size, "big", signed=True), 1) >= 0


def lists_between(
    column: ListColumn, start: int, stop: int, shared: Callable[[Sequence[int]], Iterable[int]] = iter
) -> Iterable[tuple[int, ...]]:
    """Return the lists `start` to `stop` (exclusive) of a column that `check_lists` has accepted."""
    data = column.sizes
    if not data or len(data) == 1 + data[0]:
        size = int.from_bytes(data[1:], "big")
        if not size:
            return [()] * (stop - start)
        return zip(*[iter(shared(numbers_between(column.numbers, start * size, stop * size)))] * size, strict=True)
    first = sum(numbers_between(data, 0, start))
    sizes = numbers_between(data, start, stop)
    return _cut(iter(shared(numbers_between(column.numbers, first, first + sum(sizes)))), sizes)


def list_at(column: ListColumn, place: int) -> tuple[int, ...]:
    """Return one list of a column that `check_lists` has accepted."""
    data = column.sizes
    if not data:
        return ()
    size = number_at(data, place)
    first = place * size if len(data) == 1 + data[0] else sum(numbers_between(data, 0, place))
    return tuple(numbers_between(column.numbers, first, first + size))


def _bad_sizes(total: int, numbers_max: int) -> str:
    return f"lists with {total} numbers, or with a negative size; {numbers_max} are possible"


def _cut(numbers: Iterator[int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    return [tuple(islice(numbers, size)) for size in sizes]
