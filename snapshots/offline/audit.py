"""Audits one cluster's logs, of one node or of all: did anything rot, was anything rewritten, do all nodes hold the same.

    1  batches      every byte below what is durable: checksum, chain, offsets, epochs, time; the same history on all nodes
    2  punctuation  one leader per epoch
    3  snapshots    each whole, in order, on the log's chain, and the same file everywhere
    4  fold         one healthy log is folded entity by entity: its state must be what each snapshot holds

It may read the directories of running nodes. What is above a node's durable end does not count, and what a node cut, retired
or replaced while it was being read is no finding: the notes are read again at the end, and have the last word.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metadata_log.errors import LogFormatError
from metadata_log.ids import Epoch, NodeId, Offset
from metadata_log.log_notes import read_start
from metadata_log.records import LeaderChange
from snapshots.format import BOOTSTRAP_END, genesis, snapshot_name
from snapshots.offline.batch_checks import (
    NodeBatches,
    chains_at,
    check_batches,
    compare_nodes,
    places_of,
    summarize,
    with_history,
)
from snapshots.offline.compaction import CannotCompact, base_of
from snapshots.offline.findings import Finding, Severity, error
from snapshots.offline.fold import FoldResult, fold_digests, read_entities
from snapshots.offline.inputs import NodeLog, find_logs, read_flushed
from snapshots.offline.snapshot_checks import CheckedSnapshot, check_snapshots, verify_snapshots
from snapshots.offline.survey import NO_PUNCTUATION, Punctuation, read_punctuation, read_table
from snapshots.reader import read_meta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIME_BUCKETS: Final = 96
_RACY: Final = frozenset(
    {"offset-gap", "segment-chain", "chain-broken", "epoch-regression", "time-regression", "damaged-batch", "log-too-short",
     "flushed-chain", "start-chain", "no-snapshot", "snapshot-boundary"}
)  # fmt: skip
"""Rules that a node's own cutting and retiring, done while it is read, can make look broken."""

Progress = Callable[[str], None]


class Leadership(NamedTuple):
    """Who led an epoch, and from where on."""

    epoch: Epoch
    leader_id: NodeId
    offset: Offset
    timestamp_ms: int


class Activity(NamedTuple):
    """How many things of a kind happened, by stretches of `bucket_ms` from `first_ms` on."""

    first_ms: int
    bucket_ms: int
    counts: dict[str, dict[int, int]]

    def total(self, kind: str) -> int:
        return sum(self.counts.get(kind, {}).values())


class AuditResult(NamedTuple):
    """All that an audit has found."""

    logs: tuple[NodeLog, ...]
    nodes: dict[str, NodeBatches]
    findings: tuple[Finding, ...]
    leaders: tuple[Leadership, ...]
    snapshots: tuple[CheckedSnapshot, ...]
    reference: str | None
    """The node whose log was folded; None where none is healthy enough."""
    fold: FoldResult | None
    activity: Activity | None

    def count(self, severity: Severity) -> int:
        return sum(1 for finding in self.findings if finding.severity is severity)

    @property
    def is_clean(self) -> bool:
        """No errors and no warnings."""
        return all(finding.severity is Severity.INFO for finding in self.findings)


def audit(spark: "SparkSession", paths: Sequence[str], progress: Progress = lambda _: None) -> AuditResult:
    """Audits the logs in `paths`, data directories or `@metadata` ones, which should be of one cluster.

    Raises:
        LogFormatError: one of them holds no log at all, or its `meta.properties` cannot be read.
    """
    return _Audit(spark, find_logs(paths), progress).run()


class _Audit:
    """One audit."""

    def __init__(self, spark: "SparkSession", logs: tuple[NodeLog, ...], progress: Progress) -> None:
        self._spark = spark
        self._logs = {log.node: log for log in logs}
        self._progress = progress
        self._findings: list[Finding] = []
        self._paths = [log.path for log in logs]
        self._until = json.dumps({log.path: log.durable_end for log in logs if log.durable_end is not None})

    def run(self) -> AuditResult:
        self._check_cluster()
        self._progress("reading every batch")
        batches = read_table(self._spark, self._paths, "batches", until=self._until).cache()
        try:
            return self._run(batches)
        finally:
            batches.unpersist()

    def _run(self, batches: "DataFrame") -> AuditResult:
        nodes = summarize(batches)
        self._findings += check_batches(with_history(batches))
        self._progress("comparing the nodes")
        self._findings += compare_nodes(batches, len(self._logs))
        self._check_notes(batches, nodes)
        self._progress("who led")
        punctuation = read_punctuation(self._spark, self._paths, self._until)
        leaders = self._check_leaders(batches, punctuation)
        self._progress("verifying snapshots")
        snapshots = verify_snapshots(self._spark, self._logs.values())
        chains = chains_at(batches, {snapshot.end for snapshot in snapshots})
        ends = {node: numbers.end_offset for node, numbers in nodes.items()}
        self._findings += check_snapshots(snapshots, self._logs, chains, ends)
        self._forget_races()
        reference = self._choose_reference(nodes)
        fold = activity = None
        if reference is not None:
            self._progress(f"folding the log of {reference}")
            found = punctuation.get(reference, NO_PUNCTUATION)
            fold = self._fold(reference, nodes[reference], found, snapshots)
            self._check_state(batches, reference, fold, snapshots, chains)
            self._progress("counting what happened")
            activity = self._activity(reference, nodes[reference])
        findings = tuple(sorted(self._findings, key=_rank))
        return AuditResult(
            tuple(self._logs.values()), nodes, findings, leaders, tuple(snapshots), reference, fold, activity
        )  # fmt: skip

    # --- the directories themselves -----------------------------------------------------------------------------------

    def _check_cluster(self) -> None:
        clusters = {log.identity.cluster_id for log in self._logs.values() if log.identity is not None}
        if len(clusters) > 1:
            self._findings.append(error("clusters-mixed", "cluster ids: " + ", ".join(sorted(clusters))))

    def _check_notes(self, batches: "DataFrame", nodes: dict[str, NodeBatches]) -> None:
        """What the small files beside the segments say, against the segments."""
        noted: set[Offset] = set()
        for log in self._logs.values():
            noted |= {log.flushed.end} if log.flushed else set()
            noted |= {log.start.start.offset} if log.start else set()
        chains = chains_at(batches, noted)
        for log in self._logs.values():
            numbers = nodes.get(log.node)
            end = numbers.end_offset if numbers else log.start_offset
            if log.flushed is not None and end < log.flushed.end:
                detail = f"the log ends at {end}; all below {log.flushed.end} was durable once"
                self._note("log-too-short", log, end, detail)
            if (
                log.flushed is not None
                and chains.get((log.node, log.flushed.end), log.flushed.chain) != log.flushed.chain
            ):
                self._note("flushed-chain", log, log.flushed.end, "`flushed` notes another chain than the log has")
            start = log.start
            if start is not None and chains.get((log.node, start.start.offset), start.chain) != start.chain:
                self._note("start-chain", log, start.start.offset, "`log-start` notes another chain than the log has")
            if numbers is not None:
                self._check_genesis(log, numbers)

    def _check_genesis(self, log: NodeLog, numbers: NodeBatches) -> None:
        identity = log.identity
        if numbers.first_offset != 0 or identity is None or numbers.first_previous_chain is None:
            return
        expected = identity.genesis_chain
        if not expected and log.has_bootstrap:
            try:
                expected = genesis(identity.cluster_id, read_meta(log.directory, BOOTSTRAP_END).voters)
            except LogFormatError as e:
                self._note("snapshot-damaged", log, 0, str(e))
                return
        if expected and expected != numbers.first_previous_chain:
            self._note(
                "foreign-genesis", log, 0, f"the first batch continues {numbers.first_previous_chain.hex()[:16]}"
            )

    def _note(self, rule: str, log: NodeLog, offset: Offset, detail: str) -> None:
        file = next((s.name for s in reversed(log.segments) if s.base_offset <= offset), None)
        self._findings.append(error(rule, detail, node=log.node, file=file, offset=offset))

    def _forget_races(self) -> None:
        """Takes back what was seen at places that the node has since cut off or retired, and was free to."""
        cut: dict[str, tuple[Offset, Offset]] = {}
        for log in self._logs.values():
            flushed = read_flushed(log.directory)
            try:
                start = read_start(log.directory)
            except LogFormatError:
                start = log.start
            low = start.start.offset if start is not None and start != log.start else -1
            high = flushed.end if flushed is not None and log.flushed is not None else 1 << 63
            if start is not None and start != log.start and start.start.offset >= (log.durable_end or 0):
                high = -1  # the log was reset: nothing of what was read is there any more
            cut[log.node] = (low, high if log.flushed is None or high < log.flushed.end else 1 << 63)

        def is_moot(finding: Finding) -> bool:
            if finding.node is None or finding.rule not in _RACY or finding.offset is None:
                return False
            low, high = cut[finding.node]
            return finding.offset <= low or finding.offset >= high

        self._findings = [finding for finding in self._findings if not is_moot(finding)]

    # --- leaders ------------------------------------------------------------------------------------------------------

    def _check_leaders(self, batches: "DataFrame", punctuation: dict[str, Punctuation]) -> tuple[Leadership, ...]:
        """One leader per epoch, over all nodes; and each epoch begins with its LeaderChange."""
        from pyspark.sql import functions as f

        seen: dict[Epoch, dict[NodeId, tuple[str, Leadership]]] = defaultdict(dict)
        beginnings: dict[str, set[Offset]] = defaultdict(set)
        for node, found in punctuation.items():
            for placed in found.control:
                if isinstance(placed.record, LeaderChange):
                    leader = placed.record.leader_id
                    leadership = Leadership(placed.epoch, leader, placed.offset, placed.timestamp_ms)
                    seen[placed.epoch].setdefault(leader, (node, leadership))
                    beginnings[node].add(placed.offset)
        for epoch, leaders in seen.items():
            if len(leaders) > 1:
                detail = "; ".join(
                    f"{leader} by {node} at {led.offset}" for leader, (node, led) in sorted(leaders.items())
                )
                self._findings.append(error("two-leaders", f"epoch {epoch}: {detail}", offset=self._low(leaders)))
        firsts = (
            batches.where("error IS NULL")
            .groupBy("node", "epoch")
            .agg(
                f.min("base_offset").alias("offset"),
                f.min_by(f.struct("file", "position"), "base_offset").alias("place"),
            )
        )
        for row in firsts.toArrow().to_pylist():
            first_of_log = self._logs[row["node"]].segments[0].base_offset
            if row["offset"] not in beginnings[row["node"]] and not (row["offset"] == first_of_log > 0):
                detail = f"epoch {row['epoch']} begins without a LeaderChange"
                place = row["place"]
                self._findings.append(
                    error("epoch-without-leader", detail, node=row["node"], file=place["file"],
                          position=place["position"], offset=row["offset"])
                )  # fmt: skip
        return tuple(sorted(leadership for leaders in seen.values() for _, leadership in leaders.values()))

    @staticmethod
    def _low(leaders: dict[NodeId, tuple[str, Leadership]]) -> Offset:
        return min(leadership.offset for _, leadership in leaders.values())

    # --- state --------------------------------------------------------------------------------------------------------

    def _choose_reference(self, nodes: dict[str, NodeBatches]) -> str | None:
        """The node whose log is folded: one without findings against its log, the longest history first."""
        about_log = {
            f.node for f in self._findings if f.severity is Severity.ERROR and not f.rule.startswith("snapshot")
        }
        healthy = [node for node in nodes if node not in about_log]
        return min(healthy, key=lambda node: (self._base_end(node), -nodes[node].end_offset, node), default=None)

    def _base_end(self, node: str) -> Offset:
        try:
            base = base_of(self._logs[node])
        except CannotCompact:
            return 1 << 63
        return 0 if base is None else base.offset

    def _fold(
        self, node: str, numbers: NodeBatches, found: Punctuation, snapshots: list[CheckedSnapshot]
    ) -> FoldResult | None:
        log, since = self._logs[node], self._base_end(node)
        if since > numbers.end_offset:
            return None
        base = base_of(log)
        is_bad = any(s.rule is not None for s in snapshots if s.node == node and s.end == since)
        if base is not None and is_bad:
            return None
        end = numbers.end_offset
        cuts = {snapshot.end for snapshot in snapshots if since <= snapshot.end <= end} | {end}
        invisible = found.invisible(end)
        every_topic = [each for each in found.every_topic if since <= each.offset < end]
        name = None if base is None else snapshot_name(base)
        entities = read_entities(self._spark, log.path, until=end, since=since, base=name, invisible=invisible)
        return fold_digests(entities, every_topic, cuts)

    def _check_state(
        self,
        batches: "DataFrame",
        node: str,
        fold: FoldResult | None,
        snapshots: list[CheckedSnapshot],
        chains: dict[tuple[str, Offset], bytes],
    ) -> None:
        if fold is None:
            return
        for snapshot in snapshots:
            digest, count = fold.digests.get(snapshot.end, (snapshot.digest, snapshot.records))
            is_same_history = chains.get((node, snapshot.end)) == snapshot.chain
            if snapshot.rule is None and is_same_history and (digest, count) != (snapshot.digest, snapshot.records):
                detail = (
                    f"{snapshot.records} records, digest {snapshot.digest.hex()[:16]}; "
                    f"the log makes {count}, digest {digest.hex()[:16]}"
                )
                self._findings.append(
                    error("snapshot-state", detail, node=snapshot.node, file=snapshot.name, offset=snapshot.end)
                )
        places = places_of(batches, node, {offset for offset, _, _ in fold.misfits})
        for offset, entity, reason in fold.misfits:
            file, position = places.get(offset, (None, None))
            self._findings.append(
                error("record-misfit", reason, node=node, file=file, position=position, offset=offset, entity=entity)
            )
        end = max(fold.digests)
        for broker, example in sorted(fold.in_isr.items()):
            if fold.brokers.get(broker, False):
                detail = f"broker {broker} is fenced and in the ISR of {example}, at the log's end"
                self._findings.append(error("fenced-in-isr", detail, node=node, offset=end, severity=Severity.WARNING))
        if self._base_end(node) == 0:
            for broker, example in sorted(fold.replicas.items()):
                if broker not in fold.ever:
                    self._findings.append(
                        error("unknown-broker", f"broker {broker} has a replica of {example}", node=node, offset=end)
                    )

    # --- what happened ------------------------------------------------------------------------------------------------

    def _activity(self, node: str, numbers: NodeBatches) -> Activity:
        bucket_ms = max(1, (numbers.last_ms - numbers.first_ms) // TIME_BUCKETS + 1)
        options: dict[str, Any] = {"first_ms": numbers.first_ms, "bucket_ms": bucket_ms, "until": self._until}
        table = read_table(self._spark, [self._logs[node].path], "activity", **options)
        counts: dict[str, dict[int, int]] = defaultdict(dict)
        for row in table.groupBy("kind", "bucket").sum("count").toArrow().to_pylist():
            counts[row["kind"]][row["bucket"]] = row["sum(count)"]
        return Activity(numbers.first_ms, bucket_ms, dict(counts))


def _rank(finding: Finding) -> tuple[int, str, str, int, int, str]:
    severity = list(Severity).index(finding.severity)
    place = (finding.node or "", finding.file or "", finding.offset or 0, finding.position or 0)
    return (severity, *place, finding.rule)


def summary(result: AuditResult) -> dict[str, Any]:
    """The audit as JSON: for machines, and to be kept."""
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
        "findings": [finding._asdict() for finding in result.findings],
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


def _state_summary(fold: FoldResult) -> dict[str, Any]:
    end = max(fold.digests)
    digest, count = fold.digests[end]
    return {"offset": end, "digest": digest.hex(), "records": count, "by_type": dict(sorted(fold.record_types.items()))}


def lines_of(result: AuditResult) -> Iterator[str]:
    """The findings as people read them in a terminal."""
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
