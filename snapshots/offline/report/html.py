"""The pieces of the report's page: sections, tables, pills and numbers.

A table is read on a phone, too: each cell carries the heading of its column, and `report.css` shows the cells of a row below each
other where the screen is narrow. Every text from a log is escaped, because names in a log can contain anything.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

_DURATIONS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_TIME_END_MS: Final = 253_402_300_800_000
"""The beginning of the year 10000."""
_SIZES: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


class Section(NamedTuple):
    """A part of the page that the table of contents names."""

    anchor: str
    title: str
    note: str
    """A sentence below the title, as HTML."""
    content: str
    """HTML."""

    def html(self) -> str:
        """Return the section, with a link to itself behind the title."""
        link = f'<a class="self" href="#{self.anchor}" aria-label="link to this section">#</a>'
        heading = f'<h2>{self.title} {link}</h2><p class="note">{self.note}</p>'
        return f'<section id="{self.anchor}">{heading}{self.content}</section>'


def contents(sections: Iterable[Section]) -> str:
    """Return the table of contents."""
    links = "".join(f'<a href="#{section.anchor}">{section.title}</a>' for section in sections)
    return f'<nav aria-label="contents">{links}</nav>'


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. A heading that begins with # marks a column of numbers; the cells are HTML."""
    names = [heading.removeprefix("#") for heading in headings]
    classes = [' class="n"' if heading.startswith("#") else "" for heading in headings]
    head = "".join(f"<th{kind}>{name}</th>" for name, kind in zip(names, classes, strict=True))
    labels = [f' data-label="{escape(name, quote=True)}"' if name else "" for name in names]
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}{label}>{cell}</td>" for cell, kind, label in zip(row, classes, labels, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def tiles(numbers: Iterable[tuple[str, str]]) -> str:
    """Return a row of large numbers, each with its name."""
    each = "".join(f'<div class="tile"><b>{value}</b><span>{name}</span></div>' for name, value in numbers)
    return f'<div class="tiles">{each}</div>'


def pill(kind: str, text: str) -> str:
    """Return a small coloured word; `kind` is ok, info, warning or error."""
    return f'<span class="pill {kind}">{escape(text)}</span>'


def code(text: str | None) -> str:
    return f"<code>{escape(text)}</code>" if text else "–"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(ms: int | None) -> str:
    """Format a length of time, in the largest unit that fits."""
    if ms is None:
        return "–"
    for unit, length in _DURATIONS:
        if ms >= length:
            return f"{ms / length:.1f} {unit}"
    return f"{ms} ms"


def size(count: int) -> str:
    """Format a number of bytes."""
    for unit, length in _SIZES:
        if count >= length:
            return f"{count / length:.1f} {unit}"
    return f"{count} B"


def time_text(ms: int) -> str:
    """Format a time for people, in UTC. A forged batch may have a time that no calendar has."""
    if not 0 <= ms < _TIME_END_MS:
        return f"{ms:,} ms"
    return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def partition_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"
