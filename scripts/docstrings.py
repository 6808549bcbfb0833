"""Reads the docstrings below the names in a class, for the generated pages."""

import ast
import inspect
from itertools import pairwise


def docstrings(cls: type) -> dict[str, str]:
    """Return the docstring below each assignment in the body of `cls`, in one line, by the assigned name."""
    [definition] = ast.parse(inspect.getsource(cls)).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for first, second in pairwise(definition.body):
        target = first.targets[0] if isinstance(first, ast.Assign) else getattr(first, "target", None)
        if isinstance(target, ast.Name) and isinstance(second, ast.Expr) and isinstance(second.value, ast.Constant):
            found[target.id] = " ".join(str(second.value.value).split())
    return found
