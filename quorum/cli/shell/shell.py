"""The commands of the shell. A command takes words, and returns rows for programs and lines for people; it prints nothing.

Each command is one query of the tree (`metadata_log.tree.queries`), answered by the files of a node or by a running cluster.

mq@2600:/> cd topics/orders
mq@2600:/topics/orders> history partitions/3
mq@2600:/topics/orders> at 15m
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from inspect import signature
from typing import Any, Final, NamedTuple, TypeVar

from metadata_log.format.ids import OFFSET_MAX, Offset
from metadata_log.tree.paths import name_of, path_text, words_of
from metadata_log.tree.queries import (
    OUTLINE_DEPTH,
    Changed,
    Differences,
    Find,
    History,
    Named,
    Names,
    Outline,
    Outlined,
    Place,
    Query,
    Row,
    Value,
    Values,
)
from quorum.cli.errors import EXIT_USAGE
from quorum.cli.output import json_text
from quorum.cli.shell.source import Refusal, Source
from quorum.cli.times import time_ms
from quorum.wire.words import time_text
from snapshots.history.wanted import Wanted

R = TypeVar("R", bound=Row)

HELP: Final = {
    "ls": ("ls [PATH...]", "list the names in a branch"),
    "cd": ("cd [PATH]", "go to a branch; without a path to the root"),
    "pwd": ("pwd", "say where the shell is"),
    "cat": ("cat PATH...", "show values, also all values of a branch"),
    "tree": ("tree [PATH]", f"show the names below a branch, {OUTLINE_DEPTH} levels deep"),
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


class Shown(NamedTuple):
    """The result of a command: rows for programs, and lines for people. Both may be read once."""

    rows: Iterator[dict[str, Any]]
    line: Callable[[dict[str, Any]], str]
    """Returns the line of a row."""


class Shell:
    """One walk through the metadata of one source."""

    def __init__(self, source: Source, now_ms: Callable[[], int]) -> None:
        self._source = source
        self._now_ms = now_ms
        self._path = "/"
        self._at: Wanted | None = None
        """The position; None: the newest image, at each command anew."""
        self._offset: Offset | None = None
        """The offset of the image that the last command showed; None: no command has shown one."""

    def look(self) -> None:
        """Looks at the newest image, for the prompt. Raises Refusal: there is no image."""
        self._ask(Place("/"), Named)

    @property
    def prompt(self) -> str:
        return f"mq@{'end' if self._offset is None else self._offset}:{self._path}> "

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
        """Returns the paths that begin with `text`; none if the source cannot tell now."""
        head, slash, last = text.rpartition("/")
        branch = path_text(tuple(map(name_of, self._words(head + slash))))
        try:
            found = [*self._source.ask(Names((branch,), last), self._at).rows]
        except Refusal:
            return []
        inside = [row for row in found if isinstance(row, Named) and row.path != branch]
        return [f"{head}{slash}{row.name}{_mark(row)}" for row in inside]

    # --- the commands ------------------------------------------------------------------------------------------------

    def do_help(self) -> Shown:
        return Shown(
            ({"command": usage, "meaning": meaning} for usage, meaning in HELP.values()),
            lambda row: f"{row['command']:<34}{row['meaning']}",
        )

    def do_exit(self) -> Shown:
        return _nothing()

    def do_pwd(self) -> Shown:
        self._ask(Place("/"), Named)
        return Shown(iter([{"path": self._path, "offset": self._offset}]), lambda row: str(row["path"]))

    def do_cd(self, path: str = "/") -> Shown:
        (found,) = self._ask(Place(self._pattern(path)), Named)
        if not found.is_branch:
            raise Refusal(f"{found.path} is a value, and has no names in it", EXIT_USAGE)
        self._path = found.path
        return _nothing()

    def do_at(self, position: str = "end") -> Shown:
        wanted = self._wanted(position)
        self._offset = self._source.ask(Place("/"), wanted).offset
        self._at = wanted
        return Shown(iter([{"path": self._path, "offset": self._offset}]), lambda row: str(row["path"]))

    def do_ls(self, *paths: str) -> Shown:
        rows = self._ask(Names(self._patterns(paths or (".",))), Named)
        shown = ({"path": row.path, "kind": _kind(row), "line": row.name + _mark(row)} for row in rows)
        return Shown(shown, lambda row: str(row["line"]))

    def do_cat(self, *paths: str) -> Shown:
        if not paths:
            raise Refusal(f"usage: {HELP['cat'][0]}", EXIT_USAGE)
        rows = self._ask(Values(self._patterns(paths)), Value)
        return Shown(({"path": row.path, "value": row.value, "line": _value_line(row)} for row in rows), _own_line)

    def do_tree(self, path: str = ".") -> Shown:
        rows = self._ask(Outline(self._pattern(path)), Outlined)
        shown = ({"path": row.path, "depth": row.depth, "name": row.name} for row in rows)
        return Shown(shown, lambda row: f"{'  ' * row['depth']}{row['name']}")

    def do_find(self, pattern: str, path: str = ".") -> Shown:
        rows = self._ask(Find(pattern, self._pattern(path)), Named)
        return Shown(({"path": row.path} for row in rows), lambda row: str(row["path"]))

    def do_diff(self, first: str, *rest: str) -> Shown:
        *positions, last = rest or (".",)
        if not last.startswith((".", "/")):
            positions, last = [*positions, last], "."
        if len(positions) > 1:
            raise Refusal(f"usage: {HELP['diff'][0]}; a path begins with / or .", EXIT_USAGE)
        before = self._wanted(first)
        after = self._wanted(positions[0]) if positions else self._at
        rows = _of(Changed, self._source.ask(Differences(self._pattern(last)), after, before).rows)
        return Shown(map(_row, rows), _line)

    def do_history(self, path: str, since: str | None = None) -> Shown:
        if since is not None and not since.isdecimal():
            raise Refusal(f"usage: {HELP['history'][0]}; {since!r} is no offset", EXIT_USAGE)
        query = History(self._pattern(path), None if since is None else _offset(since))
        rows = _of(Changed, self._source.ask(query).rows)
        shown = ({"offset": row.offset, "timestamp_ms": row.timestamp_ms, **_row(row)} for row in rows)
        return Shown(shown, lambda row: f"{row['offset']}  {time_text(row['timestamp_ms'])}  {_line(row)}")

    # --- inside ------------------------------------------------------------------------------------------------------

    def _ask(self, query: Query, kind: type[R]) -> Iterator[R]:
        """Asks at the position of the shell. Returns the rows, which are of one kind."""
        answer = self._source.ask(query, self._at)
        self._offset = answer.offset
        return _of(kind, answer.rows)

    def _words(self, path: str) -> tuple[str, ...]:
        return words_of(path, tuple(map(name_of, words_of(self._path))))

    def _pattern(self, path: str) -> str:
        return "/" + "/".join(self._words(path))

    def _patterns(self, paths: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(self._pattern, paths))

    def _wanted(self, position: str) -> Wanted | None:
        if position == "end":
            return None
        if position.isdecimal():
            return Wanted(offset=_offset(position))
        try:
            return Wanted(time_ms=time_ms(position, self._now_ms()))
        except ValueError as e:
            raise Refusal(f"{e}; or an offset, or `end`", EXIT_USAGE) from e


def _offset(text: str) -> Offset:
    """Returns the offset. One above all offsets that a log can have becomes the highest."""
    return int(text) if len(text) < len(str(OFFSET_MAX)) else OFFSET_MAX


def _nothing() -> Shown:
    return Shown(iter(()), lambda _: "")


def _of(kind: type[R], rows: Iterator[Row]) -> Iterator[R]:
    for row in rows:
        assert isinstance(row, kind), row
        yield row


def _kind(row: Named) -> str:
    return "branch" if row.is_branch else "value"


def _mark(row: Named) -> str:
    return "/" if row.is_branch else ""


def _own_line(row: dict[str, Any]) -> str:
    return str(row["line"])


def _value_line(row: Value) -> str:
    return _pretty(row.value) if row.is_only else f"{row.path}  {json_text(row.value)}"


def _row(row: Changed) -> dict[str, Any]:
    return {"path": row.path, "change": row.change, "before": row.before, "after": row.after}


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
