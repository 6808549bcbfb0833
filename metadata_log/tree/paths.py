"""Paths: texts that name nodes of the tree, `/topics/orders/partitions/0`, and patterns with `*`, `?` and `[...]`.

Names of users and entities may contain any character. In a path the characters `/ % * ? [ \\` and those that cannot be seen are
written as `%2F` and so on, and an empty name or `.` or `..` as `%`-codes too. Example: the entity ("lock", "a/b") is
`/entities/lock/a%2Fb`.
"""

import re
from collections.abc import Iterator
from fnmatch import translate
from functools import lru_cache
from typing import Final, TypeAlias
from urllib.parse import unquote

from metadata_log.tree.nodes import Branch, Node

Path: TypeAlias = tuple[str, ...]
"""The names of the nodes from the root down, as they are."""

ROOT: Final[Path] = ()
EMPTY_NAME: Final = "%"
_SPECIAL: Final = frozenset("/%*?[\\")
_WILD: Final = frozenset("*?[")
_PATTERNS_KEPT: Final = 256
"""How many compiled patterns are kept: on a controller the patterns come from clients."""


def name_text(name: str) -> str:
    """Return a name as it stands in a path."""
    if not name:
        return EMPTY_NAME
    if name in (".", ".."):
        return "%2E" * len(name)
    if name.isprintable() and _SPECIAL.isdisjoint(name):
        return name
    return "".join(each if each.isprintable() and each not in _SPECIAL else _escaped(each) for each in name)


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def path_text(path: Path) -> str:
    """Return a path as text."""
    return "/" + "/".join(map(name_text, path))


def words_of(text: str, at: Path = ROOT) -> tuple[str, ...]:
    """Return the words of a path or pattern, seen from `at`, without `.` and `..`. The words are still written as in paths."""
    words = [] if text.startswith("/") else [name_text(name) for name in at]
    for word in text.split("/"):
        if word == "..":
            del words[-1:]
        elif word not in ("", "."):
            words.append(word)
    return tuple(words)


def name_of(word: str) -> str:
    """Return the name that a word of a path stands for."""
    return "" if word == EMPTY_NAME else unquote(word)


def node_at(root: Branch, path: Path) -> Node | None:
    """Return the node at `path`; None if there is none."""
    node: Node | None = root
    for name in path:
        node = node.child(name) if isinstance(node, Branch) else None
    return node


def matches(root: Branch, words: tuple[str, ...]) -> Iterator[tuple[Path, Node]]:
    """Return the nodes that a path or a pattern names, in order. Only names are matched that a pattern asks for."""
    yield from _matches(root, ROOT, words)


def _matches(node: Node, path: Path, words: tuple[str, ...]) -> Iterator[tuple[Path, Node]]:
    if not words:
        yield path, node
        return
    if not isinstance(node, Branch):
        return
    word, rest = words[0], words[1:]
    names = [name_of(word)] if _WILD.isdisjoint(word) else [name for name in node.names() if fits(name, word)]
    for name in names:
        child = node.child(name)
        if child is not None:
            yield from _matches(child, (*path, name), rest)


def fits(name: str, pattern: str) -> bool:
    """Return True if `name` fits the pattern."""
    return _compiled(pattern).match(name_text(name)) is not None


@lru_cache(_PATTERNS_KEPT)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


def below(node: Node, path: Path = ROOT) -> Iterator[tuple[Path, Node]]:
    """Return `node` and everything below it, parents first."""
    yield path, node
    if isinstance(node, Branch):
        for name in node.names():
            child = node.child(name)
            if child is not None:
                yield from below(child, (*path, name))
