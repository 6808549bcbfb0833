"""The forms of the keywords of a JSON schema whose value is no schema: `maxLength` is a number of 0 or more, and so on.

These are the rules of the meta-schema of draft 2020-12. A check with the meta-schema itself takes about 1 ms for each schema
inside of a schema, on the thread that decides everything. This check takes about 1 us. Example:
    1  An operator declares 60 kinds. Each has a schema of 16 KiB, with 1,200 schemas inside of it.
    2  The meta-schema would stop the controller for a minute, and another controller would be elected.
    3  This check takes less than 0.2 s for all of them.
"""

from collections.abc import Callable
from typing import Any, Final

_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value) and len(set(value)) == len(value)


def _are_dependencies(value: Any) -> bool:
    return isinstance(value, dict) and all(_are_names(each) for each in value.values())


def _is_type(value: Any) -> bool:
    types = value if isinstance(value, list) else [value]
    return bool(types) and _are_names(types) and all(each in _TYPES for each in types)


def _is_anything(_: Any) -> bool:
    return True


_RULES: Final[tuple[tuple[str, Callable[[Any], bool], tuple[str, ...]], ...]] = (
    ("a text", _is_text, ("$schema", "$ref", "$comment", "title", "description", "format")),
    ("true or false", _is_flag, ("deprecated", "readOnly", "writeOnly")),
    ("any value", _is_anything, ("default", "const")),
    ("a list", _is_list, ("examples", "enum")),
    ("a number", _is_number, ("maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum")),
    ("a number above 0", _is_positive, ("multipleOf",)),
    (
        "an integer of 0 or more",
        _is_count,
        (
            "maxLength", "minLength", "maxItems", "minItems", "maxContains", "minContains", "maxProperties",
            "minProperties",
        ),
    ),
    ("a list of different texts", _are_names, ("required",)),
    ("an object of lists of different texts", _are_dependencies, ("dependentRequired",)),
    (f"one of {', '.join(_TYPES)}, or a list of different ones", _is_type, ("type",)),
)  # fmt: skip
_FORMS: Final = {keyword: (words, rule) for words, rule, keywords in _RULES for keyword in keywords}

PLAIN: Final = frozenset(_FORMS)
"""Keywords whose value is no schema."""


def form_problem(keyword: str, value: Any) -> str | None:
    """Says why the value of a keyword of PLAIN is not allowed; None if it is."""
    words, is_right = _FORMS[keyword]
    return None if is_right(value) else f"{keyword} is {words}, not {value!r:.80}"
