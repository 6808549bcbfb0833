"""How a bug is put in."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple
from unittest import mock


class Mutant(NamedTuple):
    """One bug: what it is, and how it is put in."""

    what: str
    put_in: Callable[[], AbstractContextManager[None]]


@contextmanager
def patched(target: object, name: str, replacement: object) -> Iterator[None]:
    """`target.name` is `replacement` for as long as the context lasts. A function's must be called as the function is."""
    assert hasattr(target, name), f"{target} has no {name} any more"
    before = inspect.getattr_static(target, name)
    if inspect.isfunction(before) and inspect.isfunction(replacement):
        asked, taken = list(inspect.signature(before).parameters), list(inspect.signature(replacement).parameters)
        assert asked == taken, f"{name} takes {asked} now, and its mutant {taken}"
    with mock.patch.object(target, name, replacement):
        yield
