"""Kinds: limits and schemas for entities."""

import json
from typing import Any

import pytest

from metadata_log.format.errors import ErrorCode as E
from metadata_log.format.records import EntityKind, RemoveEntityKind
from quorum.controller.entities import entity_views, schemas
from quorum.controller.entities.entity_views import Filter
from quorum.controller.entities.schemas import Budget, check_value, schema_problem
from quorum.controller.protocol.entity_commands import KIND_CHANGES_MAX, AlterKinds, PutEntity, Transact
from tests.quorum.controller.entities.embedder import Embedder

WORKER = json.dumps(
    {"type": "object", "required": ["host"], "properties": {"host": {"type": "string"}, "port": {"type": "integer"}}}
)


def _kind(name: str = "worker", schema: str = "", count: int = 0) -> EntityKind:
    return EntityKind(name, schema, count, 0, 0)


def test_a_declaration_is_written_once_and_removed_once() -> None:
    me = Embedder()
    assert me.cluster.run(AlterKinds((_kind(schema=WORKER),))).records == [_kind(schema=WORKER)]
    assert me.cluster.run(AlterKinds((_kind(schema=WORKER),))).records == []
    assert me.cluster.run(AlterKinds((_kind("b"),), ("worker", "nothing"))).records == [
        _kind("b"),
        RemoveEntityKind("worker"),
    ]


@pytest.mark.parametrize(
    "command",
    [
        AlterKinds((_kind("Worker"),)),
        AlterKinds((_kind(), _kind())),
        AlterKinds((_kind(),), ("worker",)),
        AlterKinds((_kind(count=-1),)),
        AlterKinds((EntityKind("worker", "", 0, 0, (256 << 10) + 1),)),
        AlterKinds((_kind(schema="{"),)),
        AlterKinds((), tuple(f"k{number}" for number in range(KIND_CHANGES_MAX + 1))),
    ],
)
def test_one_impossible_declaration_refuses_all(command: AlterKinds) -> None:
    me = Embedder()
    assert me.refused(command)[0] is E.INVALID_REQUEST


def test_the_schema_of_a_kind_is_enforced_on_write() -> None:
    me = Embedder()
    me.put("worker", "old", b"no JSON")
    me.cluster.run(AlterKinds((_kind(schema=WORKER),)))
    me.put("worker", "a", b'{"host": "a", "port": 1}')
    assert me.refused_put("worker", "b", b'{"port": 1}') is E.INVALID_ENTITY
    _, text = me.refused(Transact((), (PutEntity(("worker", "a"), b'{"host": "a", "port": "x"}'),)))
    assert text.startswith("the schema of kind worker refuses the value: at $.port: 'x' is not of type 'integer'")
    assert me.names("worker") == ["a", "old"], "what was written before stays"
    assert me.refused_put("worker", "old", b"no JSON still") is E.INVALID_ENTITY


@pytest.mark.parametrize(
    ("schema", "part"),
    [
        ({"pattern": "(a+)+$"}, "'pattern' is not allowed"),
        ({"properties": {"a": {"patternProperties": {}}}}, "'patternProperties' is not allowed"),
        ({"propertyNames": {"pattern": "a"}}, "'pattern' is not allowed"),
        ({"uniqueItems": True}, "'uniqueItems' is not allowed"),
        ({"$ref": "https://example.org/schema"}, "must begin with #"),
        ({"$ref": "#/properties/a"}, "names no part"),
        ({"$ref": "#/$defs/missing"}, "names no part"),
        ({"$dynamicRef": "#x"}, "'$dynamicRef' is not allowed"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "$schema must be"),
        ({"type": "text"}, "no JSON Schema"),
        ({"allOf": {}}, "'allOf' is not allowed here"),
        ([], "a schema is an object"),
        ({"not": 3}, "a schema is an object"),
    ],
)
def test_a_schema_that_is_not_allowed(schema: Any, part: str) -> None:
    problem = schema_problem(json.dumps(schema))
    assert problem is not None
    assert part in problem


def test_a_schema_has_a_size_and_a_depth() -> None:
    deep: Any = {}
    for _ in range(schemas.SCHEMA_DEPTH_MAX + 1):
        deep = {"not": deep}
    assert "inside of each other" in (schema_problem(json.dumps(deep)) or "")
    assert "at most" in (schema_problem(json.dumps({"description": "x" * (16 << 10)})) or "")
    assert schema_problem("[" * 16_000) is not None
    assert schema_problem('{"minimum": NaN}') is not None


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 310, "-" + "9" * 310, "9" * 5_000, "1" + "0" * 400 + ".5"])
def test_a_number_beyond_floating_point_is_refused_in_values_and_schemas(number: str) -> None:
    """`multipleOf` divides, and an infinite number or a huge integer made the division fail inside of the controller."""
    for step in ("0.1", "1e308", "3"):
        problem = check_value(f'{{"multipleOf": {step}}}', number.encode(), Budget()) or ""
        assert "beyond 1.8e308" in problem and len(problem) < 120
    assert "beyond 1.8e308" in (schema_problem(f'{{"multipleOf": {number}}}') or "")


@pytest.mark.parametrize("number", ["1.7976931348623157e308", "-1e308", "1" + "0" * 308, "1e-400", "0", "-0.5"])
def test_the_largest_numbers_are_checked_by_each_step(number: str) -> None:
    for step in ("0.1", "1e-308", "1e308", "3", "1" + "0" * 308):
        schema = f'{{"anyOf": [{{"multipleOf": {step}}}, true]}}'
        assert schema_problem(schema) is None
        assert check_value(schema, number.encode(), Budget()) is None


def test_words_of_a_schema_are_names_and_data_elsewhere() -> None:
    """A property called "pattern" is no keyword, and neither is one inside of an enum."""
    assert schema_problem(json.dumps({"properties": {"pattern": {"type": "string"}}, "enum": [{"pattern": 1}]})) is None


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (b"\xff", "no UTF-8"),
        (b"", "no JSON"),
        (b"NaN", "no JSON"),
        (b"1" * 5_000, "beyond 1.8e308"),
        (b"[" * 20_000, "too deep"),
        (b"[" * 100_000, "steps"),
        (b"[" * 40 + b"]" * 40, "32 levels"),
        (json.dumps([1] * 3_000).encode(), "steps"),
        (b'"' + b"x" * 600_000 + b'"', "steps"),
    ],
)
def test_a_value_that_would_cost_too_much_is_refused(value: bytes, part: str) -> None:
    problem = check_value('{"items": {"type": "integer"}}', value, Budget())
    assert problem is not None
    assert part in problem


@pytest.mark.parametrize("value", [b'{"host": "a", "host": "b"}', b'[{"a": {"x": 1, "y": 2, "x": 3}}]'])
def test_a_value_that_names_a_key_twice_is_refused(value: bytes) -> None:
    """Two readers may take different values out of it: the schema would check one of them only."""
    problem = check_value("{}", value, Budget())
    assert problem is not None and problem.startswith("an object has the key ") and problem.endswith(" twice")
    assert "twice" in (schema_problem('{"type": "object", "type": "number"}') or "")
    assert check_value("{}", b'[{"a": 1}, {"a": 1}]', Budget()) is None


def test_a_number_without_a_fraction_is_an_integer() -> None:
    """JSON Schema says so: 2.0 is the integer 2."""
    assert check_value('{"type": "integer"}', b"2.0", Budget()) is None
    assert check_value('{"type": "integer"}', b"2.5", Budget()) is not None


def test_a_small_schema_may_ask_for_many_steps() -> None:
    """Each level doubles the work of the level below: 2^16 steps, from a schema of 1 KB."""
    levels = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(16)}
    schema = json.dumps({"$defs": {**levels, "l16": {"type": "integer"}}, "$ref": "#/$defs/l0"})
    assert schema_problem(schema) is None
    assert "steps" in (check_value(schema, b"1", Budget()) or "")
    assert "deep" in (check_value('{"$ref": "#"}', b"1", Budget()) or "")


def test_all_values_of_a_transaction_share_the_steps() -> None:
    me = Embedder()
    me.cluster.run(AlterKinds((_kind("list", '{"items": {"type": "integer"}}'),)))
    value = json.dumps([1] * 800).encode()
    puts = [PutEntity(("list", str(number)), value) for number in range(3)]
    me.transact(*puts[:2])
    code, text = me.refused(Transact((), tuple(puts)))
    assert code is E.INVALID_ENTITY
    assert "operation 2" in text


# --- views ---------------------------------------------------------------------------------------------------------


def _many(me: Embedder) -> list[str]:
    names = [f"{letter}/{number}" for letter in "ab" for number in range(5)]
    me.transact(*(PutEntity(("job", name), name.encode()) for name in names))
    me.transact(PutEntity(("jab", "z"), b""), PutEntity(("joc", "a"), b""))
    return names


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Filter("job"), slice(0, 10)),
        (Filter("job", prefix="b/"), slice(5, 10)),
        (Filter("job", from_name="a/3", to_name="b/2"), slice(3, 7)),
        (Filter("job", prefix="b/", to_name="b/2"), slice(5, 7)),
        (Filter("job", prefix="b/", from_name="a"), slice(5, 10)),
        (Filter("job", from_name="b", to_name="a"), slice(0, 0)),
        (Filter("none"), slice(0, 0)),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 0])
def test_a_range_in_pages(wanted: Filter, expected: slice, size: int) -> None:
    me = Embedder()
    names = _many(me)
    image, found, begin = me.cluster.image, [], ""
    while True:
        page = entity_views.list_entities(image, wanted, begin, size, names_only=False)
        found += [entity.name for entity in page.items]
        assert not size or len(page.items) <= size
        if page.next is None:
            break
        begin = page.next
    assert found == names[expected]
    assert entity_views.count_entities(image, wanted) == len(found)


def test_a_page_is_cut_by_its_size_too() -> None:
    me = Embedder()
    for number in range(20):
        me.put("blob", f"{number:02}", bytes(60 << 10))
    image = me.cluster.image
    page = entity_views.list_entities(image, Filter("blob"), "", 0, names_only=False)
    assert (len(page.items), page.next) == (17, "17")
    assert len(entity_views.list_entities(image, Filter("blob"), "", 0, names_only=True).items) == 20
    names = [("blob", f"{number:02}") for number in range(20)]
    found, missing = entity_views.get_entities(image, [("blob", "no"), *names])
    assert (len(found), missing) == (17, [0])


def test_kinds_are_described_with_limits_and_use() -> None:
    me = Embedder()
    me.cluster.run(AlterKinds((_kind("worker", WORKER, 7), _kind("unused"))))
    me.put("job", "1", b"1234")
    page = entity_views.describe_kinds(me.cluster.image, "", 2)
    job, unused = page.items
    assert page.next == "worker"
    assert (job.kind, job.is_declared, job.usage, job.limits.entities) == ("job", False, (1, 5), 100_000)
    assert (unused.kind, unused.is_declared, unused.usage) == ("unused", True, (0, 0))
    (worker,) = entity_views.describe_kinds(me.cluster.image, "worker", 0).items
    assert (worker.schema, worker.limits.entities) == (WORKER, 7)
