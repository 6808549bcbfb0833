"""One document, four ways to print it: a table for people, JSON, JSON lines and YAML for programs.

A document is a mapping with `schema_version`, names in snake_case, null for what is not known. A command may be asked for
any of the four, and programs may rely on the names: they change only with `schema_version`.

A row about a change has three fields: `result`, a word such as created or refused; `error`, the error's name, for example
POLICY_VIOLATION, or null; and `message`, a sentence for people, or null.

A terminal may lack characters. People see `\\u65e5` for them, and programs read the same text from JSON and YAML as elsewhere.
"""

import codecs
import io
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

SCHEMA_VERSION: Final = 2
WIDTH_MAX: Final = 1_000
UNKNOWN: Final = "-"
"""The mark for null in a table."""


class Column(NamedTuple):
    """One column: its title, and the key of the rows that it shows."""

    title: str
    key: str


def has_all_characters(stream: Any) -> bool:
    """True if the stream can show each character, because its encoding is UTF-8 or a relative."""
    encoding = getattr(stream, "encoding", None)
    return encoding is None or codecs.lookup(encoding).name.startswith("utf-")


def escape_the_rest(stream: Any) -> None:
    """Makes the stream escape what its encoding lacks. Otherwise one character of one record would end the command."""
    if isinstance(stream, io.TextIOWrapper) and not has_all_characters(stream):
        stream.reconfigure(errors="backslashreplace")


def printable(text: str) -> str:
    """Returns the text with escapes for line ends, tabs and control characters, so that no name plays tricks with a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def json_text(value: Any, indent: int | None = None) -> str:
    """Returns JSON that standard output can show. (The escapes of `escape_the_rest` are not JSON.)"""
    return json.dumps(value, indent=indent, ensure_ascii=not has_all_characters(sys.stdout))


def emit(
    output: str,
    document: Mapping[str, Any],
    *,
    rows: str | None = None,
    columns: Sequence[Column] = (),
    heading: Sequence[str] = (),
) -> None:
    """Prints `document`. `rows` names its list for tables and JSON lines; `heading` is what a table has above it."""
    whole = {"schema_version": SCHEMA_VERSION, **document}
    if output == "json":
        click.echo(json_text(whole, indent=2))
    elif output == "jsonl":
        for row in document[rows] if rows is not None else [whole]:
            click.echo(json_text(row))
    elif output == "yaml":
        import yaml

        text = yaml.safe_dump(whole, sort_keys=False, allow_unicode=has_all_characters(sys.stdout))
        click.echo(text, nl=False)
    else:
        for line in heading:
            click.echo(line)
        if rows is not None:
            _table(document[rows], columns)


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
    """Prints a table: aligned on a terminal, separated by tabs in a pipe or file."""
    cells = [[_cell(row.get(column.key)) for column in columns] for row in rows]
    if not sys.stdout.isatty():
        click.echo("\t".join(column.title for column in columns))
        for line in cells:
            click.echo("\t".join(line))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for index, column in enumerate(columns):
        numeric = bool(cells) and all(line[index].lstrip("-").isdigit() or line[index] == UNKNOWN for line in cells)
        table.add_column(column.title, justify="right" if numeric else "left", no_wrap=True)
    for line in cells:
        table.add_row(*line)
    # As wide as it is: an id that is broken in two cannot be copied. A terminal that is too narrow wraps the line itself.
    # rich believes the width under TERM=dumb only if it is told a height too; else it takes 80 columns, and cuts ids.
    console = Console(width=WIDTH_MAX, height=max(1, len(cells)), markup=False, emoji=False)
    console.print(table, crop=False)


def _cell(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return printable(",".join(f"{key}={item}" for key, item in value.items())) or UNKNOWN
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(_cell(item) for item in value) or UNKNOWN
    return printable(str(value))
