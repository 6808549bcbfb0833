"""The sections of the report that come from an audit: the verdict, each finding with its place, and the facts behind them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from snapshots.offline.audit.findings import RULES, Finding, Severity
from snapshots.offline.audit.result import AuditResult
from snapshots.offline.audit.snapshot_checks import CheckedSnapshot
from snapshots.offline.audit.summary import baseline_lines
from snapshots.offline.report import charts
from snapshots.offline.report.charts import Bar, Series, Span
from snapshots.offline.report.html import Section, code, duration, number, pill, plural, size, table, tiles, time_text

FINDINGS_SHOWN: Final = 300
_NODES: Final = (
    "node", "", "#start", "#end", "#durable to", "#epoch", "#batches", "#records", "#size", "chain at end", "directory",
)  # fmt: skip
_ACTIVITY: Final = (
    ("isr change", "ISR changes", False),
    ("partition leader change", "partition leader changes", False),
    ("partition lost its leader", "partitions without leader", True),
    ("broker fenced", "brokers fenced", True),
    ("broker unfenced", "brokers unfenced", False),
)


def verdict(result: AuditResult) -> str:
    """Return the first sentence: whether the logs are sound."""
    errors, warnings = result.count(Severity.ERROR), result.count(Severity.WARNING)
    if result.is_clean:
        end = max((numbers.end_offset for numbers in result.nodes.values()), default=0)
        nodes = f"{len(result.logs)} nodes agree" if len(result.logs) > 1 else "The log is whole"
        compared = sum(each.end in result.fold.digests for each in result.snapshots) if result.fold else 0
        proof = f" The state that the log makes is the state in {plural(compared, 'snapshot')}." if compared else ""
        if result.fold is None:
            proof = " No log has records to replay, so the state was not checked."
        text = f"{nodes} up to offset {end:,}: no damage, no gap, no rewritten history.{proof}"
        return f'<section class="verdict"><strong>✓ Clean</strong><br>{text}</section>'
    where = sorted(
        {finding.node for finding in result.findings if finding.node and finding.severity is not Severity.INFO}
    )
    text = f"{plural(errors, 'error')}, {plural(warnings, 'warning')}" + (
        f" on {escape(', '.join(where))}" if where else ""
    )
    unproven = "" if result.fold else " No log is healthy enough to replay, so the state could not be checked."
    return f'<section class="verdict bad"><strong>✗ Findings</strong><br>{text}.{unproven}</section>'


def headline(result: AuditResult) -> str:
    """Return the sizes of logs and cluster."""
    numbers = result.nodes.values()
    types = result.fold.record_types if result.fold else {}
    counts = (
        ("nodes", len(result.logs)),
        ("end offset", max((n.end_offset for n in numbers), default=0)),
        ("batches", max((n.batches for n in numbers), default=0)),
        ("last epoch", max((n.last_epoch for n in numbers), default=0)),
        ("snapshots", len({s.name for s in result.snapshots})),
        ("topics", types.get("Topic", 0)),
        ("partitions", types.get("Partition", 0)),
        ("brokers", types.get("RegisterBroker", 0)),
    )
    return tiles((name, number(count)) for name, count in counts)


def findings_section(result: AuditResult) -> Iterator[Section]:
    """Return the findings, each with an address of its own."""
    if not result.findings:
        return
    rows = [_finding(index, finding) for index, finding in enumerate(result.findings[:FINDINGS_SHOWN], 1)]
    left = len(result.findings) - FINDINGS_SHOWN
    more = f'<p class="note">and {left:,} more: the JSON and the CSV have them all</p>' if left > 0 else ""
    headings = ("", "", "rule", "node", "file", "#byte", "#offset", "what")
    note = (
        "Each with the file and the byte where it begins, and its offset in the log. The runbook says what to do, in its section "
        "<i>The audit has findings</i>."
    )
    yield Section("findings", "Findings", note, table(headings, rows) + more)


def _finding(index: int, finding: Finding) -> Sequence[str]:
    about = f"<code>{escape(finding.entity)}</code> " if finding.entity else ""
    return (
        f'<a id="finding-{index}" href="#finding-{index}">{index}</a>',
        pill(finding.severity, finding.severity),
        f"<span title='{escape(RULES[finding.rule].meaning, quote=True)}'>{finding.rule}</span>",
        escape(finding.node or "all"),
        code(finding.file),
        number(finding.position),
        number(finding.offset),
        about + escape(finding.detail) + _records(finding),
    )


def _records(finding: Finding) -> str:
    if not finding.records:
        return ""
    lines = [f"{near.offset}  {near.type}  {near.data}" for near in finding.records]
    return f"<details><summary>the records around it</summary><pre>{escape(chr(10).join(lines))}</pre></details>"


def audit_sections(result: AuditResult) -> Iterator[Section]:
    """Return the facts behind the verdict."""
    yield _nodes(result)
    yield from _leaders(result)
    yield from _activity(result)
    yield from _record_types(result)
    yield _snapshots(result)
    yield from _state(result)
    yield from _baseline(result)
    yield _rules()


def _nodes(result: AuditResult) -> Section:
    ends = {numbers.chain for numbers in result.nodes.values()}
    rows = []
    for log in result.logs:
        numbers = result.nodes.get(log.node)
        bad = sum(1 for f in result.findings if f.node == log.node and f.severity is not Severity.INFO)
        mark = pill("error", plural(bad, "finding")) if bad else pill("ok", "clean")
        if numbers is None:
            rows.append((escape(log.node), mark, *["–"] * 8, code(log.path)))
            continue
        rows.append(
            (
                escape(log.node), mark, number(log.start_offset), number(numbers.end_offset), number(log.durable_end),
                number(numbers.last_epoch), number(numbers.batches), number(numbers.records), size(numbers.size),
                code(numbers.chain.hex()[:16]), code(log.path),
            )
        )  # fmt: skip
    agree = len(ends) == 1 < len(result.nodes) == len(result.logs)
    return Section("nodes", "Nodes", _agreement(result, agree=agree), table(_NODES, rows))


def _agreement(result: AuditResult, *, agree: bool) -> str:
    """Say what the ends of the logs prove. A chain is in the headers, so a byte that a disk has changed does not change it."""
    if not agree:
        return (
            "Nodes that end at the same offset with the same chain agree on every byte before it, except for findings."
        )
    if any(finding.severity is not Severity.INFO for finding in result.findings):
        return "All nodes end with the same chain: they agree on the history. The findings say where a node's files do not."
    return "All nodes end with the same chain: they agree on every byte."


def _leaders(result: AuditResult) -> Iterator[Section]:
    if not result.leaders or not result.nodes:
        return
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
    note = f"{plural(len(result.leaders), 'epoch')} with a leader, as recorded in the log."
    yield Section("leaders", "Who led the quorum", note, charts.timeline(spans, first_ms, max(last_ms, first_ms + 1)))


def _activity(result: AuditResult) -> Iterator[Section]:
    if result.activity is None:
        return
    counts = result.activity.counts
    rows = [Series(label, counts[kind], trouble) for kind, label, trouble in _ACTIVITY if kind in counts]
    if not rows:
        return
    buckets = 1 + max(bucket for series in counts.values() for bucket in series)
    drawing = charts.activity(rows, result.activity.first_ms, result.activity.bucket_ms, buckets)
    note = f"Each column is {duration(result.activity.bucket_ms)} of log time; each row has a scale of its own."
    yield Section("activity", "Partitions and brokers over time", note, drawing)


def _record_types(result: AuditResult) -> Iterator[Section]:
    if result.activity is None:
        return
    totals = [
        (k.removeprefix("type:"), result.activity.total(k)) for k in result.activity.counts if k.startswith("type:")
    ]
    ordered = [Bar(name, total) for name, total in sorted(totals, key=lambda item: (-item[1], item[0]))]
    note = f"As {escape(result.reference or '')} has them."
    yield Section("records", "Records in the log, by type", note, charts.bars(ordered))


def _snapshots(result: AuditResult) -> Section:
    if not result.snapshots:
        return Section("snapshots", "Snapshots", "There are none.", "")
    by_name: dict[str, list[CheckedSnapshot]] = defaultdict(list)
    for snapshot in result.snapshots:
        by_name[snapshot.name].append(snapshot)
    rows = []
    for name, copies in sorted(by_name.items()):
        whole = [copy for copy in copies if copy.rule is None]
        one = whole[0] if whole else copies[0]
        same = len({copy.sha256 for copy in copies}) == 1
        is_compared = bool(one.sha256) and len(copies) > 1
        state = result.fold.digests.get(one.end) if result.fold else None
        is_proven = state is not None and bool(whole) and state[0] == one.digest
        rows.append(
            (
                code(name), time_text(one.timestamp_ms) if whole else "–", number(one.records), size(one.size),
                code(one.digest.hex()[:16]), escape(", ".join(copy.node for copy in copies)),
                _judged(same and len(whole) == len(copies), "identical" if is_compared else "whole", "differ or damaged"),
                _judged(is_proven, "equals the log", "not proven" if state is None else "not the log's state"),
            )
        )  # fmt: skip
    headings = ("file", "log time", "#records", "#size", "digest", "nodes", "files", "state")
    same_file = "A snapshot is the same file on every node, and its state is what the log makes of itself."
    same_state = "The state of a snapshot is what the log makes of itself. The files of one state may differ."
    note = same_file if any(snapshot.sha256 for snapshot in result.snapshots) else same_state
    return Section("snapshots", "Snapshots", note, table(headings, rows))


def _judged(is_good: bool, good: str, bad: str) -> str:
    return pill("ok", f"✓ {good}") if is_good else pill("warning", bad)


def _state(result: AuditResult) -> Iterator[Section]:
    if result.fold is None:
        return
    end = max(result.fold.digests)
    digest, count = result.fold.digests[end]
    ordered = [Bar(name, total) for name, total in sorted(result.fold.record_types.items(), key=lambda item: -item[1])]
    note = f"Replayed strictly up to offset {end:,}: {count:,} canonical records, digest <code>{digest.hex()}</code>"
    yield Section("state", "State at the end", note, charts.bars(ordered))


def _baseline(result: AuditResult) -> Iterator[Section]:
    if result.baseline is not None:
        lines = "".join(f"<p>{escape(line)}</p>" for line in baseline_lines(result, "the file"))
        yield Section("baseline", "Baseline", "What an earlier audit has proven, and what this audit has read.", lines)


def _rules() -> Section:
    rows = [(f"<code>{name}</code>", rule.severity, escape(rule.meaning)) for name, rule in RULES.items()]
    heading = f"<summary>The {len(RULES)} rules that were checked</summary>"
    found = f"<details>{heading}{table(('rule', 'severity', 'meaning'), rows)}</details>"
    return Section("rules", "Rules", "The name of a rule never changes, so alerts can use it.", found)
