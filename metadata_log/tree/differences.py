"""The differences between two trees, leaf by leaf.

Branches that share their content are passed over (`Branch.anchor`). So two images of one replay are compared in the time of their
differences, and two images from two snapshots in the time of their sizes. Example, between 1,244 and 1,250:

    /topics/orders/partitions/3     changed   leader 101, leader epoch 7     ->   leader 102, leader epoch 8
    /users/alice/SCRAM-SHA-512      added                                    ->   salt [redacted], 8192 iterations
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from metadata_log.tree.nodes import Branch, Leaf, Node, is_same
from metadata_log.tree.paths import ROOT, Path, below

LOG: Final = "log"
"""The branch that differs between any two offsets."""


class Difference(NamedTuple):
    """A leaf that only one tree has, or that differs. Values are plain; None stands for no leaf, or for the value null."""

    path: Path
    kind: str
    """added, removed or changed."""
    before: Any
    after: Any


def differences(before: Node | None, after: Node | None, path: Path = ROOT) -> Iterator[Difference]:
    """Return the differences between two nodes of one path, in order. `/log` is left out, unless `path` lies in it."""
    if isinstance(before, Branch) and isinstance(after, Branch):
        if not is_same(before, after):
            yield from _between(before, after, path)
    elif isinstance(before, Leaf) and isinstance(after, Leaf):
        if before.raw != after.raw:
            yield Difference(path, "changed", before.show(), after.show())
    else:
        yield from (Difference(each, "removed", leaf.show(), None) for each, leaf in _leaves(before, path))
        yield from (Difference(each, "added", None, leaf.show()) for each, leaf in _leaves(after, path))


def _between(before: Branch, after: Branch, path: Path) -> Iterator[Difference]:
    names = dict.fromkeys(before.names())
    names.update(dict.fromkeys(after.names()))
    for name in names:
        if path != ROOT or name != LOG:
            yield from differences(before.child(name), after.child(name), (*path, name))


def _leaves(node: Node | None, path: Path) -> Iterator[tuple[Path, Leaf]]:
    for each, found in () if node is None else below(node, path):
        if isinstance(found, Leaf):
            yield each, found
