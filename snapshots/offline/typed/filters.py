"""Filters that Spark pushes down to the data source: a part is answered here, and the rest goes back to Spark.

Spark calls `pushFilters` with a list of filters that must all hold. A filter is answered here if it compares a column that is a
number, a time, a boolean or a text with a value: `=`, `<`, `<=`, `>`, `>=`, `IN`, `IS NOT NULL`, and for texts only `=`, `IN` and
`IS NOT NULL`. All other filters go back, and Spark applies them to the rows. Example: `WHERE offset >= 500 AND leader = 3 AND
size(isr) < 2`
  1. Spark pushes `offset >= 500`, `leader IS NOT NULL` and `leader = 3`; it keeps the filter with a function for itself;
  2. segments that end at or below 500 are not opened, and batches that end there are not decoded;
  3. of the other records only those with leader 3 become rows.

A comparison with null is never true, as in SQL.
"""

import datetime as dt
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from metadata_log.format.ids import OFFSET_MAX, Offset

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "EqualTo": operator.eq,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
}
_FOR_TEXTS: Final = frozenset(("EqualTo", "In", "IsNotNull"))
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_US: Final = dt.timedelta(microseconds=1)
_US_MAX: Final = (1 << 63) - 1


class Condition(NamedTuple):
    """A filter that is answered here. `kind` is the name of Spark's class."""

    column: str
    kind: str
    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Return True if `value` of the column passes the filter."""
        if value is None:
            return False
        if self.kind == "IsNotNull":
            return True
        if self.kind == "In":
            return value in self.values
        return _COMPARE[self.kind](value, self.values[0])


class Bounds(NamedTuple):
    """The offsets and times that can have rows: [since, until), and from `first_us` to `last_us`, both inclusive."""

    since: Offset = 0
    until: Offset = OFFSET_MAX
    first_us: int = 0
    last_us: int = _US_MAX


def split_filters(filters: "Iterable[Filter]", schema: pa.Schema) -> "tuple[tuple[Condition, ...], tuple[Filter, ...]]":
    """Return the conditions that are answered here, and the filters that Spark must still apply."""
    conditions: list[Condition] = []
    rest: list[Filter] = []
    for each in filters:
        condition = _condition(each, schema)
        if condition is None:
            rest.append(each)
        else:
            conditions.append(condition)
    return tuple(conditions), tuple(rest)


def _condition(each: "Filter", schema: pa.Schema) -> Condition | None:
    kind = type(each).__name__
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    if len(attribute) != 1 or schema.get_field_index(attribute[0]) < 0:
        return None
    arrow = schema.field(attribute[0]).type
    is_text = pa.types.is_string(arrow)
    if not (is_text or pa.types.is_integer(arrow) or pa.types.is_boolean(arrow) or pa.types.is_timestamp(arrow)):
        return None
    if kind not in _FOR_TEXTS and (is_text or kind not in _COMPARE):
        return None
    if kind == "IsNotNull":
        return Condition(attribute[0], kind, ())
    given: Any = getattr(each, "value", None)
    values = tuple([_comparable(value, arrow) for value in (given if kind == "In" else (given,))])
    if any(value is None for value in values):
        return None
    return Condition(attribute[0], kind, values)


def _comparable(value: Any, arrow: pa.DataType) -> Any:
    """Return the value as rows have it, times in microseconds; None if it is of another type."""
    if pa.types.is_timestamp(arrow):
        return (value - _EPOCH) // _US if isinstance(value, dt.datetime) and value.tzinfo is not None else None
    expected = str if pa.types.is_string(arrow) else bool if pa.types.is_boolean(arrow) else int
    return value if type(value) is expected else None


def bounds_of(conditions: Iterable[Condition]) -> Bounds:
    """Return the offsets and times outside of which no row passes all conditions."""
    since, until, first, last = 0, OFFSET_MAX, 0, _US_MAX
    for column, kind, values in conditions:
        if kind == "IsNotNull" or column not in ("offset", "timestamp") or not values:
            continue
        low = min(values) + (kind == "GreaterThan") if kind not in ("LessThan", "LessThanOrEqual") else 0
        high = max(values) - (kind == "LessThan") if not kind.startswith("GreaterThan") else _US_MAX
        if column == "offset":
            since, until = max(since, low), min(until, high + 1)
        else:
            first, last = max(first, low), min(last, high)
    return Bounds(since, until, first, last)
