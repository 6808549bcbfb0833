"""What the check of a schema may cost: it runs on the thread that decides everything."""

import json
import time
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from quorum.controller.entities.schema_forms import PLAIN
from quorum.controller.entities.schemas import STEPS_MAX, Budget, check_value, schema_problem

MUCH_S: Final = 2.0
"""Far more than any check takes on a busy machine, and far less than the checks of this file took without bounds."""


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


@pytest.mark.parametrize("place", ["default", "const", "examples", "properties/x"])
def test_a_ref_names_a_whole_definition(place: str) -> None:
    """The keywords below `default` are not checked: a `pattern` of exponential time was hidden there."""
    inside = {"default": {"pattern": "(a+)+$"}, "const": {"pattern": "(a+)+$"}, "properties": {"x": {}}}
    problem = schema_problem(_text({"$ref": f"#/$defs/a/{place}", "$defs": {"a": inside}}))
    assert problem is not None and "names no part of the schema: it must be # or #/$defs/NAME" in problem


@pytest.mark.parametrize("name", ["a%25", "a%2Fb", "a/b", "a~2", "a~1b", "a\tb", "a\nb", "a b", "a#b"])
def test_a_definition_whose_name_a_url_reads_otherwise_is_refused(name: str) -> None:
    """The name `a%25` was found by the check of the schema, and not by the check of a value: every put failed then."""
    problem = schema_problem(_text({"$ref": f"#/$defs/{name}", "$defs": {name: True}}))
    assert problem is not None and "give the definition another name" in problem


@pytest.mark.parametrize("name", ["a", "A.b-c_d", "é", "", "\ud800", "a?b", "a:b", "ａ"])
def test_a_definition_that_is_allowed_is_found(name: str) -> None:
    schema = json.dumps({"$ref": f"#/$defs/{name}", "$defs": {name: {"type": "integer"}}})
    assert schema_problem(schema) is None
    assert check_value(schema, b"1", Budget()) is None
    assert "not of type" in (check_value(schema, b'"x"', Budget()) or "")


_SMALL: Final = {"$ref": "#/$defs/c"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"allOf": [{"items": {}}] * 1_100}, [0] * 30_000),
        ({"allOf": [{"items": {"title": "x"}}] * 500}, [0] * 30_000),
        ({"allOf": [{"additionalProperties": {"then": {}}}] * 300}, {str(each): 0 for each in range(5_000)}),
        ({"allOf": [{"propertyNames": True}] * 700}, {str(each): 0 for each in range(5_000)}),
        ({"allOf": [{"contains": True}] * 700}, [0] * 30_000),
        ({"allOf": [_SMALL] * 300, "$defs": {"c": {"oneOf": [True] + [False] * 1_000}}}, 1),
        ({"allOf": [_SMALL] * 300, "$defs": {"c": {"allOf": [True] * 1_500}}}, 1),
        ({"allOf": [_SMALL] * 300, "$defs": {"c": {"properties": {f"p{each}": True for each in range(600)}}}}, {}),
        ({"items": {"enum": [*range(2_500)]}}, [2_499] * 1_900),
        ({"anyOf": [*[_SMALL] * 300, True], "$defs": {"c": {"const": [*[0] * 3_000, 1]}}}, [0] * 3_001),
        ({"anyOf": [*[{"type": "string"}] * 700, True]}, [0] * 30_000),
        ({"anyOf": [*[_SMALL] * 300, True], "$defs": {"c": {"required": [f"p{each}" for each in range(900)]}}}, {}),
    ],
)
def test_what_is_looked_at_counts_as_steps(schema: Any, value: Any) -> None:
    """Each of these took seconds to minutes for fewer than STEPS_MAX keywords."""
    text = _text(schema)
    begin = time.perf_counter()
    assert schema_problem(text) is None
    assert f"more than {STEPS_MAX:,} steps" in (check_value(text, _text(value).encode(), Budget()) or "")
    assert time.perf_counter() - begin < MUCH_S


@pytest.mark.parametrize("value", [[1] * 20_000, [{}] * 10_000])
def test_reading_many_members_counts_as_steps(value: Any) -> None:
    budget = Budget()
    assert check_value("{}", _text(value).encode(), budget) is None
    assert budget.steps < STEPS_MAX - len(value) // 17


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"items": {}}] * 1_200},
        {"properties": {f"p{each}": {"type": "string"} for each in range(600)}},
        {"anyOf": [{"type": ["string", "null"]}] * 500},
        {"required": [f"p{each}" for each in range(1_500)]},
    ],
)
def test_many_large_schemas_are_declared_in_a_moment(schema: Any) -> None:
    """The meta-schema took a second for one of them."""
    text = _text(schema)
    begin = time.perf_counter()
    for _ in range(20):
        assert schema_problem(text) is None
    assert time.perf_counter() - begin < MUCH_S


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from((0.0, 2.0, 2.5, -1.5, 1e308, "", "a", "integer", "null"))
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)


@settings(max_examples=300, deadline=None)
@given(keyword=st.sampled_from(sorted(PLAIN - {"$ref", "$schema"})), value=_VALUES)
def test_the_forms_of_keywords_are_those_of_the_meta_schema(keyword: str, value: Any) -> None:
    schema = {keyword: value}
    try:
        Draft202012Validator.check_schema(schema)
        allowed = True
    except SchemaError:
        allowed = False
    assert (schema_problem(_text(schema)) is None) is allowed, (keyword, value)


def _of_schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("not", "if", "then", "else", "items", "contains", "additionalProperties"), inner),
            **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), several),
            **dict.fromkeys(("properties", "$defs", "dependentSchemas"), named),
            "title": st.just("x"),
            "minContains": st.integers(0, 2),
            "maxContains": st.integers(0, 2),
        },
    )


_LEAVES = st.sampled_from(
    (
        {},
        True,
        False,
        {"title": "x"},
        {"type": "integer"},
        {"const": 1},
        {"enum": ["a", 2]},
        {"minimum": 1},
        {"required": ["a"]},
    )
)


@settings(max_examples=300, deadline=None)
@given(schema=st.recursive(_LEAVES, _of_schemas, max_leaves=8), value=_VALUES)
def test_the_verdict_is_that_of_the_library(schema: Any, value: Any) -> None:
    """What checks nothing is left out before a check, and this must not change a verdict."""
    text = _text(schema)
    if schema_problem(text) is not None:
        return
    ours = check_value(text, _text(value).encode(), Budget())
    assert (ours is None) is Draft202012Validator(schema).is_valid(value)
