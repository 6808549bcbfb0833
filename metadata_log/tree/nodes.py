"""The two kinds of nodes in the tree: a branch has children with names, a leaf has a value.

Nothing is made before it is asked for: a tree over 2,000,000 partitions costs nothing, and the leaf of one partition costs that
partition. Example: `ls /topics` asks the branch `topics` for its names, and makes no topic; `cat /topics/orders/id` makes one
branch and one leaf.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value. `raw` is what two trees compare; `show` makes plain values for JSON, with secrets redacted."""

    raw: Any
    show: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Branch:
    """Children with names. `names` returns them in order, and `child` returns one of them; None: there is no such child.

    `anchor`: if two branches of the same path have the same objects here, they have the same content.
    """

    names: Callable[[], Iterable[str]]
    child: Callable[[str], "Node | None"]
    anchor: tuple[object, ...] = ()


def is_same(one: Branch, other: Branch) -> bool:
    """Return True if the anchors prove that both branches, of the same path, have the same content."""
    if not one.anchor or len(one.anchor) != len(other.anchor):
        return False
    return all(mine is theirs for mine, theirs in zip(one.anchor, other.anchor, strict=True))


Node: TypeAlias = Branch | Leaf


def plain(value: Any) -> Leaf:
    """Return a leaf whose value is plain already."""
    return Leaf(value, lambda: value)


def fixed(children: Mapping[str, Node], anchor: tuple[object, ...] = ()) -> Branch:
    """Return a branch with these children, in this order."""
    return Branch(lambda: children, children.get, anchor)


def mapped(children: Callable[[], Mapping[str, Node]], anchor: tuple[object, ...] = ()) -> Branch:
    """Return a branch whose few children are made together, once, when they are asked for."""
    made: list[Mapping[str, Node]] = []

    def all_children() -> Mapping[str, Node]:
        if not made:
            made.append(children())
        return made[0]

    return Branch(all_children, lambda name: all_children().get(name), anchor)


def paced(node: Node, pace: Callable[[], None]) -> Node:
    """Return the same node. `pace` is called for each name and each child that a reader takes of it, or of nodes below it."""
    if isinstance(node, Leaf):
        return node

    def names() -> Iterator[str]:
        for name in node.names():
            pace()
            yield name

    def child(name: str) -> Node | None:
        pace()
        found = node.child(name)
        return None if found is None else paced(found, pace)

    return Branch(names, child, node.anchor)
