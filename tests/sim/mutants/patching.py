"""How a bug is put in."""

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
    """`target.name` is `replacement` for as long as the context lasts."""
    assert hasattr(target, name), f"{target} has no {name} any more"
    with mock.patch.object(target, name, replacement):
        yield
