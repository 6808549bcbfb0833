"""Each field of the core has one owner: only methods of its own class assign to it."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def foreign_writes(source: str) -> list[str]:
    """The assignments and deletions in `source` whose target is a field of another object than `self`."""
    stored = (
        node for node in ast.walk(ast.parse(source)) if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
    )
    return [ast.unparse(node) for node in stored if _is_foreign(node)]


def _is_foreign(target: ast.AST) -> bool:
    """A chain such as `state.role` or `leadership.parked[key]`; `self.x` and `self.x[key]` are the owner's own."""
    place = target.value if isinstance(target, ast.Subscript) else target
    if not isinstance(place, ast.Attribute):
        return False
    return not (isinstance(place.value, ast.Name) and place.value.id == "self")


def test_no_file_of_the_core_assigns_to_the_fields_of_another_object() -> None:
    """Otherwise a reader of a class would have to search all files for the ways in which its values change."""
    files = sorted((ROOT / "quorum/core").rglob("*.py"))
    found = {path.name: foreign_writes(path.read_text()) for path in files}
    assert len(files) > 30 and {name: writes for name, writes in found.items() if writes} == {}


def test_a_foreign_write_is_found() -> None:
    """Plain, augmented, annotated, in a tuple, through an item, deleted, and through a field of `self`."""
    source = """
state.role = 1
state.number += 1
state.end: int = 3
state.a, rest = 1, 2
leadership.parked[key] = fetch
del leadership.replicas[key]
self.state.role = 2
self.role = role = 4
self.parked[key] = fetch
parked[key] = fetch
"""
    assert foreign_writes(source) == [
        "state.role",
        "state.number",
        "state.end",
        "leadership.parked[key]",
        "leadership.replicas[key]",
        "self.state.role",
        "state.a",
    ]
