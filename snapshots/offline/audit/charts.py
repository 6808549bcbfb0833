"""The report's charts, as SVG text: no script, colours by CSS class, and a title for each mark."""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 960
LABEL_WIDTH: Final = 190
_PLOT: Final = WIDTH - LABEL_WIDTH - 70
_ROW: Final = 26
_SERIES: Final = 6
"""How many colours leaders have: the CSS classes s0 to s5."""


class Bar(NamedTuple):
    label: str
    value: int


class Span(NamedTuple):
    """A bar on a timeline: in row `row`, from one time to another."""

    row: str
    from_ms: int
    to_ms: int
    title: str


class Series(NamedTuple):
    """Counts by time bucket, drawn as one row of small bars."""

    label: str
    counts: dict[int, int]
    is_trouble: bool = False


def time_text(ms: int) -> str:
    """Format a time for people, in UTC."""
    return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def bars(rows: Sequence[Bar]) -> str:
    """Draw horizontal bars, each with its number at the end."""
    top = max((row.value for row in rows), default=1) or 1
    parts = []
    for number, row in enumerate(rows):
        y = number * _ROW
        width = max(2.0, _PLOT * row.value / top)
        parts.append(
            f"<g><title>{escape(row.label)}: {row.value:,}</title>"
            f'<text class="label" x="{LABEL_WIDTH - 10}" y="{y + 17}" text-anchor="end">{_text(row.label)}</text>'
            f'<rect class="bar" x="{LABEL_WIDTH}" y="{y + 5}" width="{width:.1f}" height="16" rx="3"/>'
            f'<text class="value" x="{LABEL_WIDTH + width + 7:.1f}" y="{y + 17}">{row.value:,}</text></g>'
        )
    return _svg("".join(parts), len(rows) * _ROW, "bar chart")


def timeline(spans: Sequence[Span], first_ms: int, last_ms: int) -> str:
    """Draw one row for each leader, with bars for the times of leadership."""
    names = sorted({span.row for span in spans})
    scale = _PLOT / max(1, last_ms - first_ms)
    parts = []
    for number, name in enumerate(names):
        y = number * _ROW
        parts.append(f'<text class="label" x="{LABEL_WIDTH - 10}" y="{y + 18}" text-anchor="end">{_text(name)}</text>')
        parts.append(f'<line class="grid" x1="{LABEL_WIDTH}" x2="{LABEL_WIDTH + _PLOT}" y1="{y + 13}" y2="{y + 13}"/>')
        for span in spans:
            if span.row == name:
                x = LABEL_WIDTH + (span.from_ms - first_ms) * scale
                width = max(2.0, (span.to_ms - span.from_ms) * scale - 1)
                parts.append(
                    f'<rect class="s{number % _SERIES}" x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="18" rx="3">'
                    f"<title>{escape(span.title)}</title></rect>"
                )
    height = len(names) * _ROW
    return _svg("".join(parts) + _axis(first_ms, last_ms, height), height + 26, "timeline of leaders")


def activity(rows: Sequence[Series], first_ms: int, bucket_ms: int, buckets: int) -> str:
    """Draw small charts over one time axis. Each row has its own scale, with the maximum at the right."""
    step = _PLOT / max(1, buckets)
    row_height = 44
    parts = []
    for number, row in enumerate(rows):
        base = number * row_height + 36
        top = max(row.counts.values(), default=0)
        parts.append(
            f'<text class="label" x="{LABEL_WIDTH - 10}" y="{base - 8}" text-anchor="end">{_text(row.label)}</text>'
        )
        parts.append(f'<line class="grid" x1="{LABEL_WIDTH}" x2="{LABEL_WIDTH + _PLOT}" y1="{base}" y2="{base}"/>')
        for bucket, count in sorted(row.counts.items()):
            height = max(1.5, 28 * count / top)
            title = f"{time_text(first_ms + bucket * bucket_ms)}: {count:,} × {row.label}"
            parts.append(
                f'<rect class="{"trouble" if row.is_trouble else "bar"}" x="{LABEL_WIDTH + bucket * step:.1f}" '
                f'y="{base - height:.1f}" width="{max(1.0, step - 1):.1f}" height="{height:.1f}">'
                f"<title>{escape(title)}</title></rect>"
            )
        parts.append(f'<text class="value" x="{LABEL_WIDTH + _PLOT + 8}" y="{base - 8}">max {top:,}</text>')
    height_all = len(rows) * row_height
    last_ms = first_ms + buckets * bucket_ms
    return _svg("".join(parts) + _axis(first_ms, last_ms, height_all), height_all + 26, "activity over time")


def _axis(first_ms: int, last_ms: int, y: int) -> str:
    ticks = []
    for number in range(4):
        ms = first_ms + (last_ms - first_ms) * number // 3
        x = LABEL_WIDTH + _PLOT * number / 3
        anchor = ("start", "middle", "middle", "end")[number]
        ticks.append(f'<text class="tick" x="{x:.1f}" y="{y + 18}" text-anchor="{anchor}">{time_text(ms)}</text>')
    return f'<line class="axis" x1="{LABEL_WIDTH}" x2="{LABEL_WIDTH + _PLOT}" y1="{y + 2}" y2="{y + 2}"/>' + "".join(
        ticks
    )


def _text(label: str) -> str:
    return escape(label if len(label) <= 28 else label[:27] + "…")


def _svg(content: str, height: int, what: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {max(height, 1)}" role="img" aria-label="{what}">{content}</svg>'
