"""The audit as one HTML page: self-contained, without scripts, readable on paper and in dark mode.

The page shows the verdict first, then each finding with its place, then the facts: nodes, leaders, records, snapshots,
state. Every text from a log is escaped, because names in a log can contain anything.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Final

from snapshots.offline.audit import charts
from snapshots.offline.audit.charts import Bar, Series, Span, time_text
from snapshots.offline.audit.findings import RULES, Finding, Severity
from snapshots.offline.audit.result import AuditResult
from snapshots.offline.audit.snapshot_checks import CheckedSnapshot

FINDINGS_SHOWN: Final = 300
_STYLE: Final = files(__package__).joinpath("report.css")  # also in the zip of a bundle
_ACTIVITY: Final = (
    ("isr change", "ISR changes", False),
    ("partition leader change", "partition leader changes", False),
    ("partition lost its leader", "partitions without leader", True),
    ("broker fenced", "brokers fenced", True),
    ("broker unfenced", "brokers unfenced", False),
)


def report_html(result: AuditResult) -> str:
    """Return the whole page."""
    sections = [
        _verdict(result),
        _tiles(result),
        _findings(result.findings),
        _nodes(result),
        _leaders(result),
        _activity(result),
        _record_types(result),
        _snapshots(result),
        _state(result),
        _rules(),
    ]
    cluster = next((log.identity.cluster_id for log in result.logs if log.identity), "unknown cluster")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Audit of {escape(cluster)}</title><style>{_STYLE.read_text()}</style></head><body><main>"
        f'<h1>Metadata log audit</h1><p class="subtitle">Cluster <code>{escape(cluster)}</code>{_period(result)}</p>'
        + "".join(sections)
        + "<footer>Times are UTC, and the log's own. Offsets are exclusive at the end.</footer></main></body></html>\n"
    )


def _period(result: AuditResult) -> str:
    if not result.nodes:
        return ""
    first = min(numbers.first_ms for numbers in result.nodes.values())
    last = max(numbers.last_ms for numbers in result.nodes.values())
    return f", from {time_text(first)} to {time_text(last)}"


def _verdict(result: AuditResult) -> str:
    errors, warnings = result.count(Severity.ERROR), result.count(Severity.WARNING)
    if result.is_clean:
        end = max((numbers.end_offset for numbers in result.nodes.values()), default=0)
        nodes = f"{len(result.logs)} nodes agree" if len(result.logs) > 1 else "The log is whole"
        proof = (
            " The state that the log makes is the state in every snapshot." if result.fold and result.snapshots else ""
        )
        text = f"{nodes} up to offset {end:,}: no damage, no gap, no rewritten history.{proof}"
        return f'<section class="verdict"><strong>✓ Clean</strong><br>{text}</section>'
    where = sorted(
        {finding.node for finding in result.findings if finding.node and finding.severity is not Severity.INFO}
    )
    text = f"{_plural(errors, 'error')}, {_plural(warnings, 'warning')}" + (
        f" on {escape(', '.join(where))}" if where else ""
    )
    unproven = "" if result.fold else " No log is healthy enough to replay, so the state could not be checked."
    return f'<section class="verdict bad"><strong>✗ Findings</strong><br>{text}.{unproven}</section>'


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _tiles(result: AuditResult) -> str:
    numbers = result.nodes.values()
    types = result.fold.record_types if result.fold else {}
    tiles = [
        ("nodes", len(result.logs)),
        ("end offset", max((n.end_offset for n in numbers), default=0)),
        ("batches", max((n.batches for n in numbers), default=0)),
        ("last epoch", max((n.last_epoch for n in numbers), default=0)),
        ("snapshots", len({s.name for s in result.snapshots})),
        ("topics", types.get("Topic", 0)),
        ("partitions", types.get("Partition", 0)),
        ("brokers", types.get("RegisterBroker", 0)),
    ]
    return (
        '<div class="tiles">'
        + "".join(f'<div class="tile"><b>{n:,}</b><span>{t}</span></div>' for t, n in tiles)
        + "</div>"
    )


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    rows = [
        (
            f'<span class="pill {finding.severity}">{finding.severity}</span>',
            f"<span title='{escape(RULES[finding.rule].meaning, quote=True)}'>{finding.rule}</span>",
            escape(finding.node or "all"),
            _code(finding.file),
            _number(finding.position),
            _number(finding.offset),
            (_code(finding.entity) + " " if finding.entity else "") + escape(finding.detail) + _records(finding),
        )
        for finding in findings[:FINDINGS_SHOWN]
    ]
    more = f"<p class='note'>and {len(findings) - FINDINGS_SHOWN:,} more</p>" if len(findings) > FINDINGS_SHOWN else ""
    headings = ("", "rule", "node", "file", "#byte", "#offset", "what")
    return _section(
        "Findings",
        "Each with the file and the byte where it begins, and its offset in the log.",
        _table(headings, rows) + more,
    )


def _records(finding: Finding) -> str:
    if not finding.records:
        return ""
    lines = [f"{near.offset}  {near.type}  {near.data}" for near in finding.records]
    return f"<details><summary>the records around it</summary><pre>{escape(chr(10).join(lines))}</pre></details>"


def _nodes(result: AuditResult) -> str:
    ends = {numbers.chain for numbers in result.nodes.values()}
    rows = []
    for log in result.logs:
        numbers = result.nodes.get(log.node)
        bad = sum(1 for f in result.findings if f.node == log.node and f.severity is not Severity.INFO)
        mark = (
            f'<span class="pill error">{_plural(bad, "finding")}</span>'
            if bad
            else '<span class="pill ok">clean</span>'
        )
        if numbers is None:
            rows.append((escape(log.node), mark, *["–"] * 8, _code(log.path)))
            continue
        rows.append(
            (
                escape(log.node), mark, _number(log.start_offset), _number(numbers.end_offset), _number(log.durable_end),
                _number(numbers.last_epoch), _number(numbers.batches), _number(numbers.records), _size(numbers.size),
                _code(numbers.chain.hex()[:16]), _code(log.path),
            )
        )  # fmt: skip
    note = "All nodes end with the same chain: they agree on every byte." if len(ends) == 1 < len(result.nodes) else (
        "Nodes that end at the same offset with the same chain agree on every byte before it."
    )  # fmt: skip
    headings = (
        "node",
        "",
        "#start",
        "#end",
        "#durable to",
        "#epoch",
        "#batches",
        "#records",
        "#size",
        "chain at end",
        "directory",
    )
    return _section("Nodes", note, _table(headings, rows))


def _leaders(result: AuditResult) -> str:
    if not result.leaders or not result.nodes:
        return ""
    last_ms = max(numbers.last_ms for numbers in result.nodes.values())
    starts = [leadership.timestamp_ms for leadership in result.leaders]
    spans = [
        Span(
            f"controller {led.leader_id}",
            led.timestamp_ms,
            until,
            f"epoch {led.epoch} from offset {led.offset:,}: {time_text(led.timestamp_ms)} to {time_text(until)}",
        )
        for led, until in zip(result.leaders, [*starts[1:], last_ms], strict=True)
    ]
    first_ms = min(starts)
    changes = f"{_plural(len(result.leaders), 'epoch')} with a leader, as recorded in the log."
    return _section("Who led", changes, charts.timeline(spans, first_ms, max(last_ms, first_ms + 1)))


def _activity(result: AuditResult) -> str:
    if result.activity is None:
        return ""
    counts = result.activity.counts
    rows = [Series(label, counts[kind], trouble) for kind, label, trouble in _ACTIVITY if kind in counts]
    if not rows:
        return ""
    buckets = 1 + max(bucket for series in counts.values() for bucket in series)
    drawing = charts.activity(rows, result.activity.first_ms, result.activity.bucket_ms, buckets)
    note = f"Each bar is {_duration(result.activity.bucket_ms)} of log time; each row has a scale of its own."
    return _section("Partitions and brokers over time", note, drawing)


def _duration(ms: int) -> str:
    for unit, length in (("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= length:
            return f"{ms / length:.1f} {unit}"
    return f"{ms} ms"


def _record_types(result: AuditResult) -> str:
    if result.activity is None:
        return ""
    totals = [
        (k.removeprefix("type:"), result.activity.total(k)) for k in result.activity.counts if k.startswith("type:")
    ]
    ordered = [Bar(name, total) for name, total in sorted(totals, key=lambda item: (-item[1], item[0]))]
    return _section(
        "Records in the log, by type", f"As {escape(result.reference or '')} has them.", charts.bars(ordered)
    )


def _snapshots(result: AuditResult) -> str:
    if not result.snapshots:
        return _section("Snapshots", "There are none.", "")
    by_name: dict[str, list[CheckedSnapshot]] = defaultdict(list)
    for snapshot in result.snapshots:
        by_name[snapshot.name].append(snapshot)
    rows = []
    for name, copies in sorted(by_name.items()):
        whole = [copy for copy in copies if copy.rule is None]
        one = whole[0] if whole else copies[0]
        same = len({copy.sha256 for copy in copies}) == 1
        state = result.fold.digests.get(one.end) if result.fold else None
        is_proven = state is not None and bool(whole) and state[0] == one.digest
        rows.append(
            (
                _code(name), time_text(one.timestamp_ms) if whole else "–", _number(one.records), _size(one.size),
                _code(one.digest.hex()[:16]), escape(", ".join(copy.node for copy in copies)),
                _pill(same and len(whole) == len(copies), "identical" if len(copies) > 1 else "whole", "differ or damaged"),
                _pill(is_proven, "equals the log", "not proven" if state is None else "not the log's state"),
            )
        )  # fmt: skip
    headings = ("file", "log time", "#records", "#size", "digest", "nodes", "files", "state")
    note = "A snapshot is the same file on every node, and its state is what the log makes of itself."
    return _section("Snapshots", note, _table(headings, rows))


def _state(result: AuditResult) -> str:
    if result.fold is None:
        return ""
    end = max(result.fold.digests)
    digest, count = result.fold.digests[end]
    ordered = [Bar(name, total) for name, total in sorted(result.fold.record_types.items(), key=lambda item: -item[1])]
    note = f"Replayed strictly up to offset {end:,}: {count:,} canonical records, digest <code>{digest.hex()}</code>"
    return _section("State at the end", note, charts.bars(ordered))


def _rules() -> str:
    items = "".join(
        f"<tr><td><code>{name}</code></td><td>{rule.severity}</td><td>{escape(rule.meaning)}</td></tr>"
        for name, rule in RULES.items()
    )
    heading = f"<summary>The {len(RULES)} rules that were checked</summary>"
    return f"<section><details>{heading}<table>{items}</table></details></section>"


# --- pieces -----------------------------------------------------------------------------------------------------------


def _section(title: str, note: str, content: str) -> str:
    return f'<section><h2>{title}</h2><p class="note">{note}</p>{content}</section>'


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. A heading that begins with # marks a column of numbers."""
    classes = [' class="n"' if heading.startswith("#") else "" for heading in headings]
    head = "".join(f"<th{c}>{h.removeprefix('#')}</th>" for h, c in zip(headings, classes, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{c}>{cell}</td>" for cell, c in zip(row, classes, strict=True)) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _pill(is_good: bool, good: str, bad: str) -> str:
    return f'<span class="pill ok">✓ {good}</span>' if is_good else f'<span class="pill warning">{bad}</span>'


def _code(text: str | None) -> str:
    return f"<code>{escape(text)}</code>" if text else "–"


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _size(size: int) -> str:
    for unit, length in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= length:
            return f"{size / length:.1f} {unit}"
    return f"{size} B"
