"""The result of an audit: values for the report, the summary and the command line."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple

from metadata_log.format.ids import Epoch, NodeId, Offset
from snapshots.offline.audit.baseline import Baseline
from snapshots.offline.audit.batch_checks import NodeBatches
from snapshots.offline.audit.findings import Finding, Severity
from snapshots.offline.audit.snapshot_checks import CheckedSnapshot
from snapshots.offline.inputs import NodeLog
from snapshots.offline.shares.replayed import Replayed

TIME_BUCKETS: Final = 96
"""Into how many parts the time of a log is divided for counts."""


class Leadership(NamedTuple):
    """The leader of an epoch, and the offset at which the epoch begins."""

    epoch: Epoch
    leader_id: NodeId
    offset: Offset
    timestamp_ms: int


class Activity(NamedTuple):
    """The number of events of each kind in each time bucket of `bucket_ms`, from `first_ms` on."""

    first_ms: int
    bucket_ms: int
    counts: dict[str, dict[int, int]]

    def total(self, kind: str) -> int:
        return sum(self.counts.get(kind, {}).values())


def bucket_ms_of(numbers: NodeBatches) -> int:
    """Return the length of a time bucket, so that the log's time has about TIME_BUCKETS of them."""
    return max(1, (numbers.last_ms - numbers.first_ms) // TIME_BUCKETS + 1)


def by_kind(counts: Mapping[tuple[str, int], int]) -> dict[str, dict[int, int]]:
    """Return the counts of an `Activity` from those of kinds and buckets."""
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for (kind, bucket), count in counts.items():
        found[kind][bucket] = count
    return dict(found)


class Compared(NamedTuple):
    """The audit and its baseline."""

    before: Baseline | None
    """The baseline of the audit before; None if there is none."""
    after: Baseline | None
    """The baseline for the next audit; None if the old one stays as it is."""
    reason: str
    """Why `after` is None, for people."""
    same_on: tuple[str, ...]
    """The nodes whose log has the old baseline."""
    read_from: dict[str, Offset]
    """For each node, the snapshot on which the audit stood; 0: the audit read the log from its start."""
    segments_left_out: int
    """How many segments, of all nodes together, were not read."""


class AuditResult(NamedTuple):
    """The complete result of an audit."""

    logs: tuple[NodeLog, ...]
    nodes: dict[str, NodeBatches]
    findings: tuple[Finding, ...]
    leaders: tuple[Leadership, ...]
    snapshots: tuple[CheckedSnapshot, ...]
    reference: str | None
    """The node whose log was replayed; None if no log is healthy enough."""
    fold: Replayed | None
    activity: Activity | None
    baseline: Compared | None = None
    """None if the audit was asked for none."""

    def count(self, severity: Severity) -> int:
        return sum(1 for finding in self.findings if finding.severity is severity)

    @property
    def is_clean(self) -> bool:
        """True if the audit found no error and no warning."""
        return all(finding.severity is Severity.INFO for finding in self.findings)
