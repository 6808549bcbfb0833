"""The audit of one cluster's logs, of one node or of all: the search for damaged, rewritten and differing logs.

    1  batches      every byte below the durable end: checksum, chain, offsets, epochs, time; equal on all nodes
    2  punctuation  one leader per epoch, and one voter at a time
    3  snapshots    each intact, in order, on the log's chain, and the same file everywhere
    4  replay       one healthy log is replayed strictly, in shares: each record must fit, and the state must equal each snapshot

The audit may read the directories of running nodes. It ignores everything above a node's durable end. It also has to
ignore what a node changes during the audit. Example:
  1. the audit reads `flushed` of node 2: 60; then node 2 truncates to 50 and appends other records;
  2. the audit reads the batches of node 2, old ones and new ones, and sees a broken chain at 50;
  3. `flushed` or `log-start` has changed, so the audit reads all batches again, and keeps only findings at the same
     places.
"""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.store.log_notes import LogStart, read_flushed, read_start
from snapshots.offline.audit.baseline_checks import AgainstBaseline
from snapshots.offline.audit.batch_checks import NodeBatches, check_skips
from snapshots.offline.audit.batches import Batches, read_batches
from snapshots.offline.audit.findings import Finding, Severity, error, in_order
from snapshots.offline.audit.leader_checks import check_beginnings, check_named_skips, check_voters, leaders_of
from snapshots.offline.audit.note_checks import check_notes
from snapshots.offline.audit.result import Activity, AuditResult, bucket_ms_of, by_kind
from snapshots.offline.audit.snapshot_checks import (
    CheckedSnapshot,
    check_snapshots,
    compare_snapshots,
    verify_snapshots,
)
from snapshots.offline.audit.state_checks import base_end, check_state, placed, replay_log
from snapshots.offline.inputs import NodeLog, find_logs, standing_text
from snapshots.offline.punctuation import NO_PUNCTUATION, read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RACY: Final = frozenset(
    {"offset-gap", "segment-chain", "chain-broken", "epoch-regression", "time-regression", "damaged-batch", "log-too-short",
     "flushed-chain", "start-chain", "no-snapshot", "snapshot-boundary"}
)  # fmt: skip
"""Rules that a node can seem to break because it truncates or retires segments during the audit."""

Progress = Callable[[str], None]


def audit(
    spark: "SparkSession",
    paths: Sequence[str],
    progress: Progress = lambda _: None,
    against: AgainstBaseline | None = None,
) -> AuditResult:
    """Audit the logs in `paths`, data directories or `@metadata` directories of one cluster; or those of `against`.

    Raises:
        LogFormatError: a directory has no log, or its `meta.properties` cannot be read.
    """
    return _Audit(spark, find_logs(paths) if against is None else against.logs, progress, against).run()


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

    def __init__(
        self,
        spark: "SparkSession",
        logs: tuple[NodeLog, ...],
        progress: Progress,
        against: AgainstBaseline | None = None,
    ) -> None:
        self._spark = spark
        self._logs = {log.node: log for log in logs}
        self._progress = progress
        self._against = against
        self._findings: list[Finding] = []
        self._paths = [log.path for log in logs]
        self._until = json.dumps({log.path: log.durable_end for log in logs if log.durable_end is not None})
        self._wanted = set() if against is None else against.wanted

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
        batches = read_batches(self._spark, tuple(self._logs.values()), self._until, self._progress, self._wanted)
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
        leaders, beginnings, two_leaders = leaders_of(punctuation)
        self._findings += [*two_leaders, *check_beginnings(self._logs, batches.firsts(), beginnings)]
        against = self._against
        if against is not None:
            self._findings += against.check_chains(batches, nodes, self._findings)
        self._progress("verifying snapshots")
        snapshots = verify_snapshots(self._spark, self._logs.values())
        if against is not None:
            self._findings += against.check_snapshots(snapshots)
        chains = batches.chains_at({snapshot.end for snapshot in snapshots})
        ends = {node: numbers.end_offset for node, numbers in nodes.items()}
        self._findings += check_snapshots(snapshots, self._logs, chains, ends)
        self._forget_races()
        reference = self._choose_reference(nodes, snapshots)
        self._findings += placed(check_voters(self._logs.values(), punctuation), batches)
        wrong_skips = [*placed(check_named_skips(self._logs, batches, punctuation), batches)]
        self._findings += [*wrong_skips, *check_skips(punctuation, {each.offset or 0 for each in wrong_skips})]
        fold = activity = None
        if reference is not None:
            self._progress(f"replaying the log of {reference}")
            found = punctuation.get(reference, NO_PUNCTUATION)
            end = nodes[reference].end_offset
            fold = replay_log(self._spark, self._logs[reference], end, found, snapshots, self._wanted)
            if fold is not None:
                self._findings += check_state(self._logs, batches, reference, fold, snapshots, chains)
                self._findings += [] if against is None else against.check_state(fold, reference)
            self._progress("counting what happened")
            activity = self._activity(reference, nodes[reference])
        self._findings += [*compare_snapshots(snapshots, self._findings)]
        findings, logs = in_order(self._findings), tuple(self._logs.values())
        result = AuditResult(logs, nodes, findings, leaders, tuple(snapshots), reference, fold, activity)
        return result if against is None else result._replace(baseline=against.compared(result, batches))

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

    # --- state --------------------------------------------------------------------------------------------------------

    def _choose_reference(self, nodes: dict[str, NodeBatches], snapshots: Sequence[CheckedSnapshot]) -> str | None:
        """Return the node whose log is replayed: a node without findings in its log, with the longest history. If another node
        can, the log must reach the next baseline, and must not stand on a damaged snapshot.
        """
        wrong = {(each.node, each.end) for each in snapshots if each.rule is not None}
        about_log = {
            f.node for f in self._findings if f.severity is Severity.ERROR and not f.rule.startswith("snapshot")
        }
        healthy = [node for node in nodes if node not in about_log]
        moves = {node: self._has_moved(node) for node in healthy}

        def rank(node: str) -> tuple[bool, bool, Offset, bool, Offset, str]:
            since, end = base_end(self._logs[node]), nodes[node].end_offset
            falls_short = self._against is not None and not self._against.has_next(node, end)
            return ((node, since) in wrong, falls_short, since, moves[node], -end, node)

        return min(healthy, key=rank, default=None)

    # --- events -----------------------------------------------------------------------------------------------------

    def _activity(self, node: str, numbers: NodeBatches) -> Activity:
        bucket_ms = bucket_ms_of(numbers)
        options: dict[str, Any] = {"first_ms": numbers.first_ms, "bucket_ms": bucket_ms, "until": self._until}
        options["standing"] = standing_text(self._logs.values())
        table = read_table(self._spark, [self._logs[node].path], "activity", **options)
        rows = table.groupBy("kind", "bucket").sum("count").toArrow().to_pylist()
        counts = {(row["kind"], row["bucket"]): row["sum(count)"] for row in rows}
        return Activity(numbers.first_ms, bucket_ms, by_kind(counts))


def _place(finding: Finding) -> tuple[str, str | None, str | None, int | None]:
    return (finding.rule, finding.node, finding.file, finding.position)
