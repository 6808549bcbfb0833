"""JSON schemas of kinds: which schemas are allowed, and whether a value meets its schema.

A schema is checked on the thread that decides everything. So neither a schema nor a value may cost much time:

  * a schema has keywords of the tables below only. `pattern` and its relatives may take exponential time, `uniqueItems` quadratic
    time, and a `$ref` to another document would need the network. A `$ref` names a whole definition, because a part below
    `default` or `const` would be a schema with unchecked keywords;
  * the forms of keywords are checked by `schema_forms`, and not by the meta-schema, which takes seconds for 16 KiB;
  * a value under a schema has at most VALUE_DEPTH_MAX levels;
  * each keyword that is applied to a part of a value is one step, and so are MEMBERS_OF_A_STEP members that the keyword looks at;
  * each failure inside of `anyOf` and the like is one step, and so are BYTES_OF_A_STEP characters of its text, which may show the
    value;
  * reading BYTES_OF_A_STEP bytes, or MEMBERS_OF_A_STEP members, of a value is one step, too;
  * a number in a schema or a value is in the range of a 64-bit floating point number;
  * an object has no key twice;
  * all values of one transaction together may take STEPS_MAX steps: 10 to 30 ms at the worst.

Example. The kind "worker" has the schema {"type": "object", "required": ["host"], "properties": {"host": {"type": "string"}}}.
    1  A put of {"host": "a"} takes 4 steps: type, required, properties, and the type of host.
    2  A put of {"port": 1} is refused: 'host' is a required property.
    3  A put of a list with 100,000 members under {"items": {"type": "integer"}} is refused: its members take more than STEPS_MAX
       steps.
    4  A put of a list with 30,000 members under 1,000 times {"items": {}} in `allOf` is refused, though no keyword is in {}.

A compiled schema is kept by its text. `format` and the keywords of descriptions are allowed, and check nothing, as the
standard says.
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.validators import extend

from metadata_log.format.records import KIND_SCHEMA_BYTES_MAX
from quorum.controller.entities.schema_forms import PLAIN, form_problem

SCHEMA_DEPTH_MAX: Final = 16
"""Maximum number of schemas inside of each other."""
VALUE_DEPTH_MAX: Final = 32
"""Maximum number of lists and objects inside of each other, in a value."""
STEPS_MAX: Final = 2_000
"""Maximum number of steps for the values of one transaction."""
BYTES_OF_A_STEP: Final = 256
"""How many bytes of a value are read at the cost of one step."""
MEMBERS_OF_A_STEP: Final = 16
"""How many members of a list or an object are read, or looked at by a keyword, at the cost of one step."""
COMPILED_KEPT: Final = 256
_PROBLEM_CHARS_MAX: Final = 300

_ONE: Final = frozenset(("not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames"))
"""Keywords whose value is a schema."""
_LIST: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
"""Keywords whose value is a list of schemas."""
_MAP: Final = frozenset(("properties", "$defs", "dependentSchemas"))
"""Keywords whose value is an object of schemas."""
_DATA: Final = frozenset(("enum", "const"))
"""Keywords that compare a value with all of their own."""
_MEMBERS: Final = frozenset(("items", "prefixItems", "contains", "additionalProperties", "propertyNames"))
"""Keywords that look at each member of a value."""
_DEAR: Final = frozenset(("contains", "oneOf"))
"""Keywords that make a validator for each thing that they look at, also where its schema is `true`."""
_BESIDE: Final = frozenset(("then", "else", "minContains", "maxContains"))
"""Keywords that count beside another one only."""
_BEGINS: Final = (b",", b"[", b"{")
"""Bytes of which each member of a list or an object in a value needs one."""
_DEFS: Final = "#/$defs/"
_ODD_IN_NAME: Final = re.compile("[\x00-\x20\x7f/~%#]")
"""Characters that URLs and JSON pointers read as something else."""
_DIALECTS: Final = ("https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#")


class Budget:
    """The steps that are left for the values of one transaction."""

    def __init__(self, steps: int = STEPS_MAX) -> None:
        self.steps = steps


class _TooCostly(Exception):
    """No steps are left."""


class _Refused(Exception):
    """A schema or a value is not allowed; the text says why."""


_budget = Budget()
"""The budget of the check that is under way. Checks never interleave: they run on the thread that decides."""


def _take(steps: int) -> None:
    _budget.steps -= steps
    if _budget.steps < 0:
        raise _TooCostly


def _steps_of(keyword: str, wanted: Any, instance: Any) -> int:
    """How many steps it takes to apply a keyword to a place, without the keywords of the schemas inside of it."""
    looked_at = 0
    if keyword in _DATA:
        looked_at = _node_count(wanted)
    elif isinstance(wanted, list | dict):
        looked_at = len(wanted)
    if keyword in _MEMBERS and isinstance(instance, list | dict):
        looked_at += len(instance)
    return 1 + (looked_at if keyword in _DEAR else looked_at // MEMBERS_OF_A_STEP)


def _node_count(value: Any) -> int:
    """How many values are in a value, itself included."""
    count, level = 0, [value]
    while level:
        count += len(level)
        lists = [each for each in level if isinstance(each, list)]
        objects = [[*each.values()] for each in level if isinstance(each, dict)]
        level = [inner for each in (*lists, *objects) for inner in each]
    return count


def _counted(keyword: str, check: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    def step(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        _take(_steps_of(keyword, wanted, instance))
        for error in check(validator, wanted, instance, schema) or ():
            if not error.schema_path:  # the error is new, and its text may show the whole value
                _take(1 + len(error.message) // BYTES_OF_A_STEP)
            yield error

    return step


_Validator: Final = extend(
    Draft202012Validator,
    {keyword: _counted(keyword, check) for keyword, check in Draft202012Validator.VALIDATORS.items()},
)


def schema_problem(text: str) -> str | None:
    """Says why a schema is not allowed; None if it is."""
    if len(text.encode()) > KIND_SCHEMA_BYTES_MAX:
        return f"a schema has at most {KIND_SCHEMA_BYTES_MAX:,} bytes"
    try:
        schema = _parsed(text)
        _check_schema(schema, schema, 0)
    except _Refused as e:
        return str(e)
    except RecursionError:
        return "it is too deep"
    return None


def check_value(schema: str, value: bytes, budget: Budget) -> str | None:
    """Says why the schema refuses the value; None if the value meets the schema. The schema is an allowed one."""
    global _budget
    budget.steps -= len(value) // BYTES_OF_A_STEP + sum(map(value.count, _BEGINS)) // MEMBERS_OF_A_STEP
    try:
        if budget.steps < 0:
            raise _TooCostly
        parsed = _parsed(value.decode())
        _check_depth(parsed)
        _budget = budget
        error = next(_compiled(schema).iter_errors(parsed), None)
    except UnicodeDecodeError:
        return "it is no UTF-8"
    except _Refused as e:
        return str(e)
    except _TooCostly:
        return f"the check takes more than {STEPS_MAX:,} steps; write smaller values, or fewer in one transaction"
    except RecursionError:
        return "it is too deep"
    if error is None:
        return None
    return f"at {error.json_path:.{_PROBLEM_CHARS_MAX}}: {error.message:.{_PROBLEM_CHARS_MAX}}"


@lru_cache(COMPILED_KEPT)
def _compiled(schema: str) -> Any:
    root = json.loads(schema)
    return _Validator(_slim(root, root))


def _slim(schema: Any, root: Any) -> Any:
    """The schema without what checks nothing. A schema that checks nothing is `true`, which takes no time."""
    if isinstance(schema, bool):
        return schema
    slim = {}
    for keyword, value in schema.items():
        if keyword == "$defs":
            if schema is root:  # no $ref names others
                slim[keyword] = {name: _slim(each, root) for name, each in value.items()}
        elif keyword in _Validator.VALIDATORS or keyword in _BESIDE:
            slim[keyword] = _slim_inside(keyword, value, root)
    checks = any(keyword in _Validator.VALIDATORS for keyword in slim)
    return slim if checks or "$defs" in slim else True


def _slim_inside(keyword: str, value: Any, root: Any) -> Any:
    if keyword in _ONE:
        return _slim(value, root)
    if keyword in _LIST:
        return [_slim(each, root) for each in value]
    if keyword in _MAP:
        return {name: _slim(each, root) for name, each in value.items()}
    return value


def _parsed(text: str) -> Any:
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_int=_bounded_int,
            parse_float=_bounded_float,
        )
    except ValueError as e:
        raise _Refused(f"it is no JSON: {e!s:.{_PROBLEM_CHARS_MAX}}") from e


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object; raises _Refused if it has a key twice: readers take the first or the last value, and the schema checks one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set[str]()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _Refused(f"an object has the key {twice!r:.80} twice")
    return found


def _no_constant(name: str) -> Any:
    raise _Refused(f"it is no JSON: {name}")


def _bounded_int(text: str) -> int:
    _bounded_float(text)
    return int(text)


def _bounded_float(text: str) -> float:
    """The number; raises _Refused beyond the range of 64 bits, where `multipleOf` would fail with an OverflowError."""
    number = float(text)
    if math.isinf(number):
        raise _Refused(f"the number {text:.20}... is beyond 1.8e308, the range of a 64-bit floating point number")
    return number


def _check_depth(value: Any) -> None:
    """Raises _Refused: the value has too many levels."""
    level = [value]
    for _ in range(VALUE_DEPTH_MAX + 1):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        level = inner
        if not level:
            return
    raise _Refused(f"it has more than {VALUE_DEPTH_MAX} levels")


def _check_schema(root: Any, schema: Any, depth: int) -> None:
    """Raises _Refused: the schema has a keyword that is not allowed, or too many levels."""
    if depth > SCHEMA_DEPTH_MAX:
        raise _Refused(f"it has more than {SCHEMA_DEPTH_MAX} schemas inside of each other")
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise _Refused("a schema is an object, true or false")
    for keyword, value in schema.items():
        if keyword in PLAIN:
            _check_plain(root, keyword, value)
            continue
        for inner in _inner(keyword, value):
            _check_schema(root, inner, depth + 1)


def _inner(keyword: str, value: Any) -> list[Any]:
    """The schemas inside of a keyword."""
    if keyword in _ONE:
        return [value]
    if keyword in _LIST and isinstance(value, list) and value:
        return value
    if keyword in _MAP and isinstance(value, dict):
        return [*value.values()]
    raise _Refused(f"the keyword {keyword!r:.80} is not allowed here")


def _check_plain(root: Any, keyword: str, value: Any) -> None:
    problem = form_problem(keyword, value)
    if problem is not None:
        raise _Refused(f"it is no JSON Schema: {problem}")
    if keyword == "$schema" and value not in _DIALECTS:
        raise _Refused(f"$schema must be {_DIALECTS[0]}")
    if keyword == "$ref" and value != "#":
        _check_ref(root, value)


def _check_ref(root: Any, ref: str) -> None:
    """Raises _Refused unless the reference names a schema that is checked. A part below `default` would be an unchecked one."""
    if not ref.startswith("#"):
        raise _Refused("a $ref must begin with #: it may name a part of the same schema only")
    defined = root.get("$defs")
    name = ref.removeprefix(_DEFS)
    if name == ref or not isinstance(defined, dict) or name not in defined:
        raise _Refused(f"the $ref {ref!r:.80} names no part of the schema: it must be # or #/$defs/NAME")
    if _ODD_IN_NAME.search(name):
        raise _Refused(
            f"the $ref {ref!r:.80} has a control character or one of / ~ % #: give the definition another name"
        )
