"""An audit's result as JSON, its findings as CSV, and as lines for a terminal."""

import csv
import io
from collections.abc import Iterator
from typing import Any

from snapshots.offline.audit.baseline import Baseline
from snapshots.offline.audit.findings import Finding, Severity
from snapshots.offline.audit.result import AuditResult, Compared
from snapshots.offline.audit.snapshot_checks import CheckedSnapshot
from snapshots.offline.inputs import NodeLog
from snapshots.offline.shares.replayed import Replayed


def summary(result: AuditResult) -> dict[str, Any]:
    """Return the audit as JSON, for machines and archives."""
    return {
        "verdict": "clean" if result.is_clean else "findings",
        "errors": result.count(Severity.ERROR),
        "warnings": result.count(Severity.WARNING),
        "reference": result.reference,
        "nodes": [_node_summary(result, log) for log in result.logs],
        "leaders": [leadership._asdict() for leadership in result.leaders],
        "snapshots": [_snapshot_summary(snapshot) for snapshot in result.snapshots],
        "state": None if result.fold is None else _state_summary(result.fold),
        "activity": {} if result.activity is None else {k: result.activity.total(k) for k in result.activity.counts},
        "baseline": None if result.baseline is None else _baseline_summary(result.baseline),
        "findings": [finding.as_json() for finding in result.findings],
    }


def _node_summary(result: AuditResult, log: NodeLog) -> dict[str, Any]:
    numbers = result.nodes.get(log.node)
    found: dict[str, Any] = {
        "node": log.node,
        "path": log.path,
        "cluster_id": log.identity.cluster_id if log.identity else None,
        "start_offset": log.start_offset,
        "durable_end": log.durable_end,
        "snapshots": len(log.snapshots),
        "findings": sum(1 for f in result.findings if f.node == log.node and f.severity is not Severity.INFO),
    }
    if numbers is not None:
        as_json = {key: value.hex() if isinstance(value, bytes) else value for key, value in numbers._asdict().items()}
        found |= as_json
    return found


def _snapshot_summary(snapshot: CheckedSnapshot) -> dict[str, Any]:
    return {
        "node": snapshot.node,
        "file": snapshot.name,
        "end_offset": snapshot.end,
        "epoch": snapshot.epoch,
        "bytes": snapshot.size,
        "sha256": snapshot.sha256.hex(),
        "digest": snapshot.digest.hex(),
        "chain": snapshot.chain.hex(),
        "records": snapshot.records,
        "timestamp_ms": snapshot.timestamp_ms,
        "error": snapshot.error,
    }


def _state_summary(fold: Replayed) -> dict[str, Any]:
    end = max(fold.digests)
    digest, count = fold.digests[end]
    return {"offset": end, "digest": digest.hex(), "records": count, "by_type": dict(sorted(fold.record_types.items()))}


def _baseline_summary(compared: Compared) -> dict[str, Any]:
    before, after = compared.before, compared.after
    return {
        "before": None if before is None else _baseline_end(before),
        "after": None if after is None else _baseline_end(after),
        "not_moved_because": compared.reason or None,
        "same_on": [*compared.same_on],
        "read_from": compared.read_from,
        "segments_left_out": compared.segments_left_out,
    }


def _baseline_end(baseline: Baseline) -> dict[str, Any]:
    return {
        "offset": baseline.end, "epoch": baseline.epoch, "chain": baseline.chain.hex(), "digest": baseline.digest.hex(),
    }  # fmt: skip


def baseline_lines(result: AuditResult, file: str) -> Iterator[str]:
    """Return what was read, what was compared with the baseline in `file`, and the next baseline."""
    compared = result.baseline
    if compared is None:
        return
    before, after = compared.before, compared.after
    if before is None:
        yield f"baseline: {file} does not exist yet, so nothing was compared"
    elif compared.same_on:
        yield f"baseline: the history below {_baseline_text(before)} is the same on {', '.join(compared.same_on)}"
    else:
        yield f"baseline: the history below {_baseline_text(before)} was found on no node"
    read = sum(numbers.segments for numbers in result.nodes.values())
    if compared.segments_left_out:
        yield (
            f"read: {read} segments; {compared.segments_left_out} segments below proven snapshots were not read "
            "(--full reads them)"
        )
    else:
        yield f"read: all {read} segments"
    if after is None:
        yield f"baseline: not moved, because {compared.reason}"
    else:
        verb = (
            "noted" if before is None else "moved" if after.end > before.end else "not moved, because nothing is newer"
        )
        yield f"baseline: {verb}: {_baseline_text(after)}"


def _baseline_text(baseline: Baseline) -> str:
    return f"offset {baseline.end}, epoch {baseline.epoch}, chain {baseline.chain.hex()[:16]}"


def findings_csv(result: AuditResult) -> str:
    """Return the findings as a table, one row each. The records around a finding are in the JSON only."""
    columns = [name for name in Finding._fields if name != "records"]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([getattr(finding, name) for name in columns] for finding in result.findings)
    return text.getvalue()


def lines_of(result: AuditResult) -> Iterator[str]:
    """Return the findings as lines for a terminal, each with the records around it. Of one fault on several nodes, only the first
    finding shows the records.
    """
    shown: set[tuple[str, int | None]] = set()
    for finding in result.findings:
        place = ", ".join(
            text
            for text in (
                finding.node,
                finding.file,
                None if finding.position is None else f"byte {finding.position}",
                None if finding.offset is None else f"offset {finding.offset}",
                finding.entity,
            )
            if text
        )
        yield f"{finding.severity.upper():7} {finding.rule}: {place}: {finding.detail}"
        if (finding.rule, finding.offset) not in shown:
            shown.add((finding.rule, finding.offset))
            for near in finding.records:
                mark = ">" if near.offset == finding.offset else " "
                yield f"      {mark} {near.offset}  {near.type}  {near.data}"
