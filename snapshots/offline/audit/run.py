"""The audit of one cluster's logs, of one node or of all: the search for damaged, rewritten and differing logs.

    1  batches      every byte below the durable end: checksum, chain, offsets, epochs, time; equal on all nodes
    2  punctuation  one leader per epoch
    3  snapshots    each intact, in order, on the log's chain, and the same file everywhere
    4  fold         one healthy log is folded entity by entity: its state must equal each snapshot

The audit may read the directories of running nodes. It ignores everything above a node's durable end. It also has to
ignore what a node changes during the audit. Example:
  1. the audit reads `flushed` of node 2: 60; then node 2 truncates to 50 and appends other records;
  2. the audit reads the batches of node 2, old ones and new ones, and sees a broken chain at 50;
  3. `flushed` or `log-start` has changed, so the audit reads all batches again, and keeps only findings at the same
     places.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Epoch, NodeId, Offset
from metadata_log.format.records import LeaderChange
from metadata_log.store.log_notes import LogStart, read_flushed, read_start
from snapshots.format import snapshot_name
from snapshots.offline.audit.batch_checks import NodeBatches, check_skips
from snapshots.offline.audit.batches import Batches, read_batches
from snapshots.offline.audit.findings import Finding, Severity, error
from snapshots.offline.audit.note_checks import check_notes
from snapshots.offline.audit.result import Activity, AuditResult, Leadership
from snapshots.offline.audit.snapshot_checks import CheckedSnapshot, check_snapshots, verify_snapshots
from snapshots.offline.audit.summary import lines_of, summary
from snapshots.offline.compaction import CannotCompact, base_of
from snapshots.offline.fold import FoldResult, fold_digests, read_entities
from snapshots.offline.inputs import NodeLog, find_logs
from snapshots.offline.survey import NO_PUNCTUATION, Punctuation, read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIME_BUCKETS: Final = 96
_RACY: Final = frozenset(
    {"offset-gap", "segment-chain", "chain-broken", "epoch-regression", "time-regression", "damaged-batch", "log-too-short",
     "flushed-chain", "start-chain", "no-snapshot", "snapshot-boundary"}
)  # fmt: skip
"""Rules that a node can seem to break because it truncates or retires segments during the audit."""

__all__ = ["Activity", "AuditResult", "Leadership", "audit", "lines_of", "summary"]

Progress = Callable[[str], None]


def audit(spark: "SparkSession", paths: Sequence[str], progress: Progress = lambda _: None) -> AuditResult:
    """Audit the logs in `paths`, data directories or `@metadata` directories of one cluster.

    Raises:
        LogFormatError: a directory has no log, or its `meta.properties` cannot be read.
    """
    return _Audit(spark, find_logs(paths), progress).run()


def read_all_batches(spark: "SparkSession", paths: Sequence[str]) -> tuple[dict[str, NodeBatches], list[Finding]]:
    """Check only the batches and the notes of the logs in `paths`: the first step of the audit. Return numbers and findings."""
    look = _Audit(spark, find_logs(paths), lambda _: None).look()
    look.batches.unpersist()
    return look.nodes, look.findings


class _Look(NamedTuple):
    """All batches, and the findings in them."""

    batches: Batches
    nodes: dict[str, NodeBatches]
    findings: list[Finding]


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
        look = self.look()
        if any(finding.rule in _RACY and self._has_moved(finding.node) for finding in look.findings):
            # A tail that was truncated and written again between two reads looks like damage, but not twice at the same
            # place.
            self._progress("reading every batch again, where logs were written to meanwhile")
            look.batches.unpersist()
            before = {_place(finding) for finding in look.findings}
            look = self.look()
            twice = [
                f for f in look.findings if _place(f) in before or f.rule not in _RACY or not self._has_moved(f.node)
            ]
            look = look._replace(findings=twice)
        try:
            self._findings += look.findings
            return self._go_on(look.batches, look.nodes)
        finally:
            look.batches.unpersist()

    def look(self) -> "_Look":
        """Check all batches once."""
        batches = read_batches(self._spark, tuple(self._logs.values()), self._until, self._progress)
        findings = [*batches.findings, *check_notes(self._logs.values(), batches, batches.nodes)]
        return _Look(batches, batches.nodes, findings)

    def _has_moved(self, node: str | None) -> bool:
        """Return True if the node has flushed, truncated or retired anything since the audit began."""
        log = self._logs.get(node or "")
        return log is not None and (read_flushed(log.directory), self._start_now(log)) != (log.flushed, log.start)

    @staticmethod
    def _start_now(log: NodeLog) -> LogStart | None:
        try:
            return read_start(log.directory)
        except LogFormatError:
            return log.start

    def _go_on(self, batches: Batches, nodes: dict[str, NodeBatches]) -> AuditResult:
        self._progress("who led")
        punctuation = batches.punctuation()
        leaders = self._check_leaders(batches, punctuation)
        self._findings += check_skips(punctuation)
        self._progress("verifying snapshots")
        snapshots = verify_snapshots(self._spark, self._logs.values())
        chains = batches.chains_at({snapshot.end for snapshot in snapshots})
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

    def _forget_races(self) -> None:
        """Drop findings at places that the node has truncated or retired since."""
        cut: dict[str, tuple[Offset, Offset]] = {}
        for log in self._logs.values():
            flushed, start = read_flushed(log.directory), self._start_now(log)
            low = start.start.offset if start is not None and start != log.start else -1
            high = flushed.end if flushed is not None and log.flushed is not None else 1 << 63
            if start is not None and start != log.start and start.start.offset >= (log.durable_end or 0):
                high = -1  # the log was reset: everything that the audit read was deleted
            cut[log.node] = (low, high if log.flushed is None or high < log.flushed.end else 1 << 63)

        def is_moot(finding: Finding) -> bool:
            if finding.node is None or finding.rule not in _RACY or finding.offset is None:
                return False
            low, high = cut[finding.node]
            return finding.offset <= low or finding.offset >= high

        self._findings = [finding for finding in self._findings if not is_moot(finding)]

    # --- leaders ------------------------------------------------------------------------------------------------------

    def _check_leaders(self, batches: Batches, punctuation: dict[str, Punctuation]) -> tuple[Leadership, ...]:
        """Check that each epoch has one leader on all nodes, and begins with its LeaderChange."""
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
        for first in batches.firsts():
            first_of_log = self._logs[first.node].segments[0].base_offset
            if first.offset not in beginnings[first.node] and not (first.offset == first_of_log > 0):
                detail = f"epoch {first.epoch} begins without a LeaderChange"
                self._findings.append(
                    error("epoch-without-leader", detail, node=first.node, file=first.file,
                          position=first.position, offset=first.offset)
                )  # fmt: skip
        return tuple(sorted(leadership for leaders in seen.values() for _, leadership in leaders.values()))

    @staticmethod
    def _low(leaders: dict[NodeId, tuple[str, Leadership]]) -> Offset:
        return min(leadership.offset for _, leadership in leaders.values())

    # --- state --------------------------------------------------------------------------------------------------------

    def _choose_reference(self, nodes: dict[str, NodeBatches]) -> str | None:
        """Return the node whose log is folded: a node without findings in its log, with the longest history."""
        about_log = {
            f.node for f in self._findings if f.severity is Severity.ERROR and not f.rule.startswith("snapshot")
        }
        healthy = [node for node in nodes if node not in about_log]
        moves = {node: self._has_moved(node) for node in healthy}
        return min(healthy, key=lambda n: (self._base_end(n), moves[n], -nodes[n].end_offset, n), default=None)

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
        every_topic = found.visible_for_every_topic(since, end)
        name = None if base is None else snapshot_name(base)
        entities = read_entities(self._spark, log.path, until=end, since=since, base=name, invisible=invisible)
        return fold_digests(entities, every_topic, cuts)

    def _check_state(
        self,
        batches: Batches,
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
        places = batches.places_of(node, {offset for offset, _, _ in fold.misfits})
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
        for owner, example in sorted(fold.orphans.items()):
            detail = f"{owner} has ended and owns {example}"
            self._findings.append(error("orphaned-entity", detail, node=node, offset=end))
        if self._base_end(node) == 0:
            for broker, example in sorted(fold.replicas.items()):
                if broker not in fold.ever:
                    self._findings.append(
                        error("unknown-broker", f"broker {broker} has a replica of {example}", node=node, offset=end)
                    )

    # --- events -----------------------------------------------------------------------------------------------------

    def _activity(self, node: str, numbers: NodeBatches) -> Activity:
        bucket_ms = max(1, (numbers.last_ms - numbers.first_ms) // TIME_BUCKETS + 1)
        options: dict[str, Any] = {"first_ms": numbers.first_ms, "bucket_ms": bucket_ms, "until": self._until}
        table = read_table(self._spark, [self._logs[node].path], "activity", **options)
        counts: dict[str, dict[int, int]] = defaultdict(dict)
        for row in table.groupBy("kind", "bucket").sum("count").toArrow().to_pylist():
            counts[row["kind"]][row["bucket"]] = row["sum(count)"]
        return Activity(numbers.first_ms, bucket_ms, dict(counts))


def _place(finding: Finding) -> tuple[str, str | None, str | None, int | None]:
    return (finding.rule, finding.node, finding.file, finding.position)


def _rank(finding: Finding) -> tuple[int, str, str, int, int, str]:
    severity = list(Severity).index(finding.severity)
    place = (finding.node or "", finding.file or "", finding.offset or 0, finding.position or 0)
    return (severity, *place, finding.rule)
