"""The commands of the shell. A command takes words, and returns rows for programs and lines for people; it prints nothing.

mq@2600:/> cd topics/orders
mq@2600:/topics/orders> history partitions/3
mq@2600:/topics/orders> at 15m
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from itertools import islice
from typing import Any, Final, NamedTuple

from metadata_log.image.metadata_image import MetadataImage
from metadata_log.tree.differences import Difference, differences
from metadata_log.tree.layout import tree_of
from metadata_log.tree.nodes import Branch, Leaf, Node
from metadata_log.tree.paths import ROOT, Path, below, fits, matches, name_of, name_text, node_at, path_text, words_of
from quorum.cli.errors import EXIT_NOT_FOUND, EXIT_USAGE
from quorum.cli.output import json_text
from quorum.cli.shell.source import NoImage, Source
from quorum.cli.times import time_ms
from quorum.wire.words import time_text
from snapshots.history.wanted import Wanted

LEAVES_MAX: Final = 10_000
"""Maximum number of values that one `cat` of a branch shows."""
TREE_DEPTH: Final = 3
TREE_NAMES_MAX: Final = 50
"""Maximum depth of `tree`, and maximum number of names that `tree` shows of one branch."""
HELP: Final = {
    "ls": ("ls [PATH...]", "list the names in a branch"),
    "cd": ("cd [PATH]", "go to a branch; without a path to the root"),
    "pwd": ("pwd", "say where the shell is"),
    "cat": ("cat PATH...", "show values, also all values of a branch"),
    "tree": ("tree [PATH]", f"show the names below a branch, {TREE_DEPTH} levels deep"),
    "find": ("find PATTERN [PATH]", "find names that fit a pattern such as 'order*'"),
    "diff": (
        "diff POSITION [POSITION] [PATH]",
        "compare two positions, or a position with the present one of the shell",
    ),
    "history": ("history PATH [OFFSET]", "show each change of a value or a branch, from an offset on"),
    "at": ("at [POSITION]", "go to an offset, a time (15m, 2026-11-24T09:30:00Z) or `end`"),
    "help": ("help", "show this list"),
    "exit": ("exit", "leave the shell"),
}


class Refusal(Exception):
    """A command that cannot be carried out; `exit_code` is that of quorumctl."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Shown(NamedTuple):
    """The result of a command: rows for programs, and lines for people. Both may be read once."""

    rows: Iterator[dict[str, Any]]
    line: Callable[[dict[str, Any]], str]
    """Returns the line of a row."""


class Shell:
    """One walk through the images of one source."""

    def __init__(self, source: Source, now_ms: Callable[[], int]) -> None:
        """Raises Refusal: there is no image."""
        self._source = source
        self._now_ms = now_ms
        self._at = ROOT
        self._image, self._root = self._go_to(None)

    @property
    def prompt(self) -> str:
        return f"mq@{self._image.offset}:{path_text(self._at)}> "

    def run(self, words: list[str]) -> Shown:
        """Carries out one command. Raises Refusal, also while the rows are read."""
        name, *rest = words
        if name not in HELP:
            raise Refusal(f"there is no command {name!r}; `help` lists the commands", EXIT_USAGE)
        work: Callable[..., Shown] = getattr(self, f"do_{name}")
        try:
            signature(work).bind(*rest)
        except TypeError as e:
            raise Refusal(f"usage: {HELP[name][0]}", EXIT_USAGE) from e
        return work(*rest)

    def completions(self, text: str) -> list[str]:
        """Returns the paths that begin with `text`."""
        head, slash, last = text.rpartition("/")
        branch = node_at(self._root, tuple(map(name_of, words_of(head + slash, self._at))))
        if not isinstance(branch, Branch):
            return []
        found = [name for name in branch.names() if name_text(name).startswith(last)]
        return [f"{head}{slash}{name_text(name)}{_mark(branch.child(name))}" for name in found]

    # --- the commands ------------------------------------------------------------------------------------------------

    def do_help(self) -> Shown:
        return Shown(
            ({"command": usage, "meaning": meaning} for usage, meaning in HELP.values()),
            lambda row: f"{row['command']:<34}{row['meaning']}",
        )

    def do_exit(self) -> Shown:
        return _nothing()

    def do_pwd(self) -> Shown:
        return Shown(iter([{"path": path_text(self._at), "offset": self._image.offset}]), lambda row: str(row["path"]))

    def do_cd(self, path: str = "/") -> Shown:
        found, node = self._only(path)
        if not isinstance(node, Branch):
            raise Refusal(f"{path_text(found)} is a value, and has no names in it", EXIT_USAGE)
        self._at = found
        return _nothing()

    def do_at(self, position: str = "end") -> Shown:
        self._image, self._root = self._go_to(self._wanted(position))
        return self.do_pwd()

    def do_ls(self, *paths: str) -> Shown:
        found = [each for path in paths or (".",) for each in self._named(path)]
        many = len(found) > 1

        def rows() -> Iterator[dict[str, Any]]:
            for path, node in found:
                if isinstance(node, Leaf):
                    yield {"path": path_text(path), "kind": "value", "line": path_text(path)}
                    continue
                for name in node.names():
                    child = node.child(name)
                    line = path_text((*path, name)) if many else name_text(name)
                    kind = "branch" if isinstance(child, Branch) else "value"
                    yield {"path": path_text((*path, name)), "kind": kind, "line": line + _mark(child)}

        return Shown(rows(), lambda row: str(row["line"]))

    def do_cat(self, *paths: str) -> Shown:
        if not paths:
            raise Refusal(f"usage: {HELP['cat'][0]}", EXIT_USAGE)
        found = [each for path in paths for each in self._named(path)]
        leaves = (
            (path, node) for top, each in found for path, node in below(each, top) if isinstance(node, Leaf)
        )  # fmt: skip

        def rows() -> Iterator[dict[str, Any]]:
            for path, leaf in islice(leaves, LEAVES_MAX):
                yield {"path": path_text(path), "value": leaf.show()}
            if next(leaves, None) is not None:
                raise Refusal(f"more than {LEAVES_MAX} values; name a deeper path", EXIT_USAGE)

        alone = len(found) == 1 and isinstance(found[0][1], Leaf)
        return Shown(
            rows(), lambda row: _pretty(row["value"]) if alone else f"{row['path']}  {json_text(row['value'])}"
        )

    def do_tree(self, path: str = ".") -> Shown:
        top, node = self._only(path)
        return Shown(_names_below(node, top, 0), lambda row: f"{'  ' * row['depth']}{row['name']}")

    def do_find(self, pattern: str, path: str = ".") -> Shown:
        top, node = self._only(path)
        found = (each for each, _ in below(node, top) if each != top and fits(each[-1], pattern))
        return Shown(({"path": path_text(each)} for each in found), lambda row: str(row["path"]))

    def do_diff(self, first: str, *rest: str) -> Shown:
        *positions, last = rest or (".",)
        if not last.startswith((".", "/")):
            positions, last = [*positions, last], "."
        if len(positions) > 1:
            raise Refusal(f"usage: {HELP['diff'][0]}; a path begins with / or .", EXIT_USAGE)
        path = tuple(map(name_of, words_of(last, self._at)))
        before = self._image_at(self._wanted(first))
        after = self._image_at(self._wanted(positions[0])) if positions else self._image
        nodes = [node_at(tree_of(image), path) for image in (before, after)]
        if nodes[0] is None and nodes[1] is None:
            raise Refusal(f"neither position has {path_text(path)}", EXIT_NOT_FOUND)
        return Shown((_row(each) for each in differences(nodes[0], nodes[1], path)), _line)

    def do_history(self, path: str, since: str | None = None) -> Shown:
        wanted = tuple(map(name_of, words_of(path, self._at)))
        if since is not None and not since.isdecimal():
            raise Refusal(f"usage: {HELP['history'][0]}; {since!r} is no offset", EXIT_USAGE)

        def rows() -> Iterator[dict[str, Any]]:
            try:
                for batch, before, after in self._source.changes(None if since is None else int(since)):
                    if before is after or before.digest == after.digest:
                        continue
                    for each in differences(node_at(tree_of(before), wanted), node_at(tree_of(after), wanted), wanted):
                        yield {"offset": batch.end_offset, "timestamp_ms": batch.last_timestamp_ms, **_row(each)}
            except NoImage as e:
                raise Refusal(str(e), EXIT_NOT_FOUND) from e

        return Shown(rows(), lambda row: f"{row['offset']}  {time_text(row['timestamp_ms'])}  {_line(row)}")

    # --- inside ------------------------------------------------------------------------------------------------------

    def _wanted(self, position: str) -> Wanted | None:
        if position == "end":
            return None
        if position.isdecimal():
            return Wanted(offset=int(position))
        try:
            return Wanted(time_ms=time_ms(position, self._now_ms()))
        except ValueError as e:
            raise Refusal(f"{e}; or an offset, or `end`", EXIT_USAGE) from e

    def _go_to(self, wanted: Wanted | None) -> tuple[MetadataImage, Branch]:
        image = self._image_at(wanted)
        return image, tree_of(image)

    def _image_at(self, wanted: Wanted | None) -> MetadataImage:
        try:
            return self._source.image(wanted)
        except NoImage as e:
            raise Refusal(str(e), EXIT_NOT_FOUND) from e

    def _named(self, path: str) -> list[tuple[Path, Node]]:
        found = [*matches(self._root, words_of(path, self._at))]
        if not found:
            raise Refusal(f"there is no {path} at offset {self._image.offset}", EXIT_NOT_FOUND)
        return found

    def _only(self, path: str) -> tuple[Path, Node]:
        first, *others = self._named(path)
        if others:
            raise Refusal(f"{path} fits {1 + len(others)} paths, and one is needed", EXIT_USAGE)
        return first


def _nothing() -> Shown:
    return Shown(iter(()), lambda _: "")


def _mark(node: Node | None) -> str:
    return "/" if isinstance(node, Branch) else ""


def _names_below(node: Node, path: Path, depth: int) -> Iterator[dict[str, Any]]:
    name = name_text(path[-1]) if path else ""
    yield {"path": path_text(path), "depth": depth, "name": name + _mark(node)}
    if not isinstance(node, Branch) or depth == TREE_DEPTH:
        return
    names = iter(node.names())
    for each in islice(names, TREE_NAMES_MAX):
        child = node.child(each)
        if child is not None:
            yield from _names_below(child, (*path, each), depth + 1)
    left = sum(1 for _ in names)
    if left:
        yield {"path": path_text(path), "depth": depth + 1, "name": f"... and {left} more"}


def _row(difference: Difference) -> dict[str, Any]:
    return {
        "path": path_text(difference.path),
        "change": difference.kind,
        "before": difference.before,
        "after": difference.after,
    }


def _line(row: dict[str, Any]) -> str:
    """Returns the line of a difference; of a changed value with fields, only the fields that differ."""
    before, after = row["before"], row["after"]
    if row["change"] == "added":
        return f"+ {row['path']}  {json_text(after)}"
    if row["change"] == "removed":
        return f"- {row['path']}  {json_text(before)}"
    if isinstance(before, dict) and isinstance(after, dict):
        names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
        texts = [f"{name}: {json_text(before.get(name))} -> {json_text(after.get(name))}" for name in names]
        return f"~ {row['path']}  {', '.join(texts)}"
    return f"~ {row['path']}  {json_text(before)} -> {json_text(after)}"


def _pretty(value: Any) -> str:
    """Returns a value for people: the fields of a record one below the other."""
    if isinstance(value, dict):
        return "\n".join(f"{name}: {json_text(each)}" for name, each in value.items())
    return value if isinstance(value, str) and value.isprintable() else json_text(value)
