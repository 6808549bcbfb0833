"""Queries of the tree, and their answers row by row: the work behind each command of `quorumctl shell`.

    Names(("/topics",))            -> Named("/topics/orders", "orders", is_branch=True), ...
    Values(("/topics/*/id",))      -> Value("/topics/orders/id", "b29v...", is_only=True)

A shell on a directory answers queries itself, and a controller answers the same queries over gRPC. Both use this file, so the two
shells cannot differ. An answer is made while its reader takes it, and no answer is longer than ROWS_MAX. Example:
  1. An operator asks controller 1, which has 2,000,000 partitions, for `Values(("/topics",))`.
  2. Controller 1 makes one value after the other. `pace` is called at each step, and lets the thread of controller 1 rest.
  3. After 10,000 values the answer ends with QueryRefused: the operator names a deeper path.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, assert_never

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.tree.differences import Difference, differences
from metadata_log.tree.layout import tree_of
from metadata_log.tree.nodes import Branch, Leaf, Node, paced
from metadata_log.tree.paths import Path, below, fits, matches, name_of, name_text, node_at, path_text, words_of

R = TypeVar("R")

ROWS_MAX: Final = 100_000
"""Maximum number of rows in one answer."""
VALUES_MAX: Final = 10_000
"""Maximum number of values in one answer."""
PATH_CHARS_SHOWN: Final = 200
"""Maximum number of characters of a path in a refusal."""
OUTLINE_DEPTH: Final = 3
OUTLINE_NAMES_MAX: Final = 50
"""Maximum depth of an outline, and maximum number of names that an outline shows of one branch."""

# --- queries -----------------------------------------------------------------------------------------------------------
# A path begins with `/`. A pattern is a path that may have `*`, `?` and `[...]`.


class Place(NamedTuple):
    """Finds the one node that the pattern fits. The answer is one `Named`."""

    pattern: str


class Names(NamedTuple):
    """Lists the names in each branch that a pattern fits, and each value that a pattern fits. The answer is of `Named`."""

    patterns: tuple[str, ...]
    prefix: str = ""
    """Only names in branches that begin with this text, as it stands in a path."""


class Values(NamedTuple):
    """Shows each value that a pattern fits, and all values below each branch that a pattern fits. The answer is of `Value`."""

    patterns: tuple[str, ...]


class Outline(NamedTuple):
    """Shows the names below the one branch that the pattern fits, some levels deep. The answer is of `Outlined`."""

    pattern: str


class Find(NamedTuple):
    """Finds the names that `name` fits, below the one node that `pattern` fits. The answer is of `Named`."""

    name: str
    pattern: str


class Differences(NamedTuple):
    """Compares the values at and below a path in two images. The answer is of `Changed`."""

    path: str


class History(NamedTuple):
    """Shows each change of the values at and below a path, batch by batch. The answer is of `Changed`."""

    path: str
    since: Offset | None = None
    """The first batch is the one that holds this offset; None: the oldest batch that can be replayed."""


Query: TypeAlias = Place | Names | Values | Outline | Find | Differences | History

# --- rows --------------------------------------------------------------------------------------------------------------


class Named(NamedTuple):
    """A node."""

    path: str
    name: str
    """The last name; the whole path where the answer lists several branches, or a value itself."""
    is_branch: bool


class Value(NamedTuple):
    """A value, made of what JSON has. Secrets are redacted."""

    path: str
    value: Any
    is_only: bool
    """True if the query names this value, and nothing else."""


class Outlined(NamedTuple):
    """A line of an outline."""

    path: str
    name: str
    """With `/` behind the name of a branch; or `... and 7 more`, for the names of the branch at `path` that are left out."""
    depth: int


class Changed(NamedTuple):
    """A value that was added, removed or changed."""

    path: str
    change: str
    before: Any
    after: Any
    offset: Offset | None = None
    """The end of the batch that made the change; None between two images."""
    timestamp_ms: int | None = None


Row: TypeAlias = Named | Value | Outlined | Changed

# --- answers -----------------------------------------------------------------------------------------------------------


class QueryRefused(Exception):
    """The query has no answer, or no further rows. The text says why, and what to do."""

    def __init__(self, text: str, *, is_missing: bool = False) -> None:
        super().__init__(text)
        self.is_missing = is_missing
        """True if the image does not have the path."""


class BatchChange(Protocol):
    """One replayed batch, and the images around it."""

    @property
    def batch(self) -> Batch: ...

    @property
    def before(self) -> MetadataImage: ...

    @property
    def after(self) -> MetadataImage: ...


class Seen(NamedTuple):
    """The images that a query looks at."""

    image: MetadataImage
    """The image at the position of the query."""
    before: MetadataImage | None = None
    """For `Differences`: the image at the other position."""
    changes: Iterable[BatchChange] = ()
    """For `History`: the batches from `since` on."""


def _at_full_speed() -> None:
    """The pace of a reader that holds up nobody."""


def answer(query: Query, seen: Seen, pace: Callable[[], None] = _at_full_speed) -> Iterator[Row]:
    """Return the rows of the answer, made one by one. `pace` is called at each step, also where no row is made.

    Raises (while the rows are taken):
        QueryRefused: the image does not have the path, or the path has not the kind that the query needs, or the answer is too
            long.
    """
    match query:
        case Differences():
            assert seen.before is not None, "two images are compared"
            return _bounded(_compared(query, seen.before, seen.image, pace), ROWS_MAX, "rows; name a deeper path")
        case History():
            advice = "changes; name a deeper path, or begin at a later offset"
            return _bounded(_history(query, seen.changes, pace), ROWS_MAX, advice)
        case Values():
            return _bounded(_Look(seen.image, pace).values(query), VALUES_MAX, "values; name a deeper path")
        case Place() | Names() | Outline() | Find():
            return _bounded(_Look(seen.image, pace).names(query), ROWS_MAX, "names; name a deeper path")
        case _:
            assert_never(query)


def _bounded(rows: Iterator[R], rows_max: int, what: str) -> Iterator[R]:
    yield from islice(rows, rows_max)
    if next(rows, None) is not None:
        raise QueryRefused(f"more than {rows_max:,} {what}")


class _Look:
    """A look at one image."""

    def __init__(self, image: MetadataImage, pace: Callable[[], None]) -> None:
        self._offset = image.offset
        root = paced(tree_of(image), pace)
        assert isinstance(root, Branch)
        self._root = root

    def names(self, query: Place | Names | Outline | Find) -> Iterator[Row]:
        match query:
            case Place(pattern):
                path, node = self._only(pattern)
                yield _named(path, node)
            case Names(patterns, prefix):
                yield from self._listed(patterns, prefix)
            case Outline(pattern):
                path, node = self._only(pattern)
                yield from _outlined(node, path, 0)
            case Find(name, pattern):
                top, node = self._only(pattern)
                for path, each in below(node, top):
                    if path != top and fits(path[-1], name):
                        yield _named(path, each)
            case _:
                assert_never(query)

    def _listed(self, patterns: tuple[str, ...], prefix: str) -> Iterator[Named]:
        are_many = self._are_many(patterns)
        for path, node in self._matches(patterns):
            if isinstance(node, Leaf):
                yield Named(path_text(path), path_text(path), is_branch=False)
                continue
            for name in node.names():
                if not name_text(name).startswith(prefix):
                    continue
                inside = (*path, name)
                shown = path_text(inside) if are_many else name_text(name)
                yield Named(path_text(inside), shown, isinstance(node.child(name), Branch))

    def values(self, query: Values) -> Iterator[Value]:
        is_one = not self._are_many(query.patterns)
        for top, found in self._matches(query.patterns):
            for path, node in below(found, top):
                if isinstance(node, Leaf):
                    yield Value(path_text(path), node.show(), is_one and node is found)

    # --- nodes that patterns fit. Nothing is kept for later: 2,000,000 nodes would take gigabytes. ---------------------

    def _matches(self, patterns: Iterable[str]) -> Iterator[tuple[Path, Node]]:
        for pattern in patterns:
            yield from matches(self._root, words_of(pattern))

    def _are_many(self, patterns: tuple[str, ...]) -> bool:
        """Return True if the patterns fit more than one node. Raises QueryRefused: a pattern fits no node."""
        counts = [len([*islice(self._matches([pattern]), 2)]) for pattern in patterns]
        for pattern, count in zip(patterns, counts, strict=True):
            if not count:
                raise self._missing(pattern)
        return sum(counts) > 1

    def _only(self, pattern: str) -> tuple[Path, Node]:
        found = [*islice(self._matches([pattern]), 2)]
        if not found:
            raise self._missing(pattern)
        if len(found) > 1:
            raise QueryRefused(f"{_shortened(pattern)} fits more than one path, and one is needed")
        return found[0]

    def _missing(self, pattern: str) -> QueryRefused:
        return QueryRefused(f"there is no {_shortened(pattern)} at offset {self._offset}", is_missing=True)


def _shortened(text: str) -> str:
    """Return a path for a refusal. The text of a refusal has few bytes on the wire."""
    return text if len(text) <= PATH_CHARS_SHOWN else f"{text[:PATH_CHARS_SHOWN]}..."


def _named(path: Path, node: Node) -> Named:
    return Named(path_text(path), name_text(path[-1]) if path else "/", isinstance(node, Branch))


def _outlined(node: Node, path: Path, depth: int) -> Iterator[Outlined]:
    name = name_text(path[-1]) if path else ""
    yield Outlined(path_text(path), name + ("/" if isinstance(node, Branch) else ""), depth)
    if not isinstance(node, Branch) or depth == OUTLINE_DEPTH:
        return
    names = iter(node.names())
    for each in islice(names, OUTLINE_NAMES_MAX):
        child = node.child(each)
        if child is not None:
            yield from _outlined(child, (*path, each), depth + 1)
    left = sum(1 for _ in names)
    if left:
        yield Outlined(path_text(path), f"... and {left} more", depth + 1)


def _compared(
    query: Differences, before: MetadataImage, after: MetadataImage, pace: Callable[[], None]
) -> Iterator[Changed]:
    path = _path_of(query.path)
    nodes = [_node(image, path, pace) for image in (before, after)]
    if nodes[0] is None and nodes[1] is None:
        raise QueryRefused(f"neither position has {_shortened(path_text(path))}", is_missing=True)
    yield from (_changed(each) for each in differences(nodes[0], nodes[1], path))


def _history(query: History, changes: Iterable[BatchChange], pace: Callable[[], None]) -> Iterator[Changed]:
    path = _path_of(query.path)
    for batch, before, after in ((each.batch, each.before, each.after) for each in changes):
        pace()
        if before is after or before.digest == after.digest:
            continue
        for each in differences(_node(before, path, pace), _node(after, path, pace), path):
            yield _changed(each)._replace(offset=batch.end_offset, timestamp_ms=batch.last_timestamp_ms)


def _path_of(text: str) -> Path:
    return tuple(map(name_of, words_of(text)))


def _node(image: MetadataImage, path: Path, pace: Callable[[], None]) -> Node | None:
    found = node_at(tree_of(image), path)
    return None if found is None else paced(found, pace)


def _changed(difference: Difference) -> Changed:
    return Changed(path_text(difference.path), difference.kind, difference.before, difference.after)
