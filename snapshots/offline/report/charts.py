"""The report's charts: HTML and CSS, without a script. Places and lengths are percentages, so a chart fits any screen.

    label   [====   ====  =]   value        on a desktop: one row
    label                      value        on a phone: the label above the track
    [====   ====  =]

The colours are classes of `report.css`, and each mark has a title. Example: the log covers 10 days, and broker 3 was fenced for
the fourth of them. Its track has a mark of class `fenced` with `left:30%;width:10%`.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, NamedTuple

from snapshots.offline.report.html import time_text

_COLOURS: Final = 8
"""How many colours leaders have: the CSS classes s0 to s7."""

POINTS_MAX: Final = 400
"""Maximum number of points of a curve: more would not be seen."""


class Bar(NamedTuple):
    label: str
    value: int


class Span(NamedTuple):
    """A mark on a timeline: in row `row`, from one time to another."""

    row: str
    from_ms: int
    to_ms: int
    title: str
    kind: str | None = None
    """The colour; None: that of the row."""


class Series(NamedTuple):
    """Counts by time bucket, drawn as one row of small columns."""

    label: str
    counts: dict[int, int]
    is_trouble: bool = False


class Curve(NamedTuple):
    """A number over time."""

    label: str
    points: Sequence[tuple[int, float]]
    """Times and values, in order."""
    value: str
    """The number at the end, as text."""


def colour(number: int) -> str:
    """Return the class of the n-th leader."""
    return f"s{number % _COLOURS}"


def bars(rows: Sequence[Bar]) -> str:
    """Draw horizontal bars, each with its number at the end."""
    top = max((row.value for row in rows), default=0) or 1
    return _chart(
        "bars",
        (
            _row(row.label, f'<i class="bar" style="width:{100 * row.value / top:.2f}%"></i>', f"{row.value:,}")
            for row in rows
        ),
    )


def timeline(spans: Sequence[Span], first_ms: int, last_ms: int, rows: Sequence[tuple[str, str]] | None = None) -> str:
    """Draw one row for each name in `rows`, with its value at the right; without `rows`, for each name that a span has."""
    named = [(name, "") for name in sorted({span.row for span in spans})] if rows is None else rows
    marks: dict[str, list[str]] = {name: [] for name, _ in named}
    numbers = {name: colour(number) for number, (name, _) in enumerate(named)}
    length = max(1, last_ms - first_ms)
    for span in spans:
        if span.row in marks:
            begin = max(0.0, 100 * (span.from_ms - first_ms) / length)
            width = min(100 - begin, 100 * (span.to_ms - max(span.from_ms, first_ms)) / length)
            kind = span.kind or numbers[span.row]
            style = f"left:{begin:.3f}%;width:{max(0.0, width):.3f}%"
            marks[span.row].append(f'<i class="{kind}" style="{style}" title="{escape(span.title, quote=True)}"></i>')
    drawn = (_row(name, "".join(marks[name]), value) for name, value in named)
    return _chart("timeline", drawn) + _axis(first_ms, last_ms)


def activity(rows: Sequence[Series], first_ms: int, bucket_ms: int, buckets: int) -> str:
    """Draw small columns over one time axis. Each row has its own scale, with the maximum at the right."""
    step = 100 / max(1, buckets)
    drawn = []
    for row in rows:
        top = max(row.counts.values(), default=0) or 1
        marks = "".join(
            f'<i class="{"trouble" if row.is_trouble else "bar"}" style="left:{bucket * step:.3f}%;width:{step * 0.85:.3f}%;'
            f'height:{max(5.0, 100 * count / top):.1f}%" '
            f'title="{escape(f"{time_text(first_ms + bucket * bucket_ms)}: {count:,} × {row.label}", quote=True)}"></i>'
            for bucket, count in sorted(row.counts.items())
        )
        drawn.append(_row(row.label, marks, f"max {max(row.counts.values(), default=0):,}"))
    return _chart("columns", drawn) + _axis(first_ms, first_ms + buckets * bucket_ms)


def curves(rows: Sequence[Curve], first_ms: int, last_ms: int) -> str:
    """Draw numbers over one time axis, each from 0 to its maximum."""
    drawn = []
    length = max(1, last_ms - first_ms)
    for row in rows:
        points = [*row.points[:: -(-len(row.points) // POINTS_MAX) or 1]]
        points += [(last_ms, row.points[-1][1])] if row.points else []  # the newest value holds up to the end
        top = max((value for _, value in points), default=0) or 1
        line = " ".join(f"{100 * (at - first_ms) / length:.2f},{40 - 38 * value / top:.2f}" for at, value in points)
        drawing = (
            '<svg viewBox="0 0 100 40" preserveAspectRatio="none" aria-hidden="true">'
            f'<polyline vector-effect="non-scaling-stroke" points="{line}"/></svg>'
        )
        drawn.append(_row(row.label, drawing, row.value))
    return _chart("curves", drawn) + _axis(first_ms, last_ms)


def legend(kinds: Iterable[tuple[str, str]]) -> str:
    """Explain colours: pairs of class and meaning."""
    keys = "".join(f'<span><i class="{kind}"></i>{escape(meaning)}</span>' for kind, meaning in kinds)
    return f'<p class="legend">{keys}</p>'


def _chart(kind: str, rows: Iterable[str]) -> str:
    return f'<div class="chart {kind}">{"".join(rows)}</div>'


def _row(label: str, track: str, value: str) -> str:
    name = f'<span class="label" title="{escape(label, quote=True)}">{escape(label)}</span>'
    return f'<div class="row">{name}<span class="track">{track}</span><span class="value">{escape(value)}</span></div>'


def _axis(first_ms: int, last_ms: int) -> str:
    times = (first_ms + (last_ms - first_ms) * number // 3 for number in range(4))
    ticks = "".join(f"<span>{time_text(ms)}</span>" for ms in times)
    return f'<div class="row axis"><span class="label"></span><span class="ticks">{ticks}</span><span class="value"></span></div>'
