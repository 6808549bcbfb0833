"""What an audit comes to: the values that the report, the summary and the command line are made of."""

from typing import NamedTuple

from metadata_log.format.ids import Epoch, NodeId, Offset
from snapshots.offline.audit.batch_checks import NodeBatches
from snapshots.offline.audit.findings import Finding, Severity
from snapshots.offline.audit.snapshot_checks import CheckedSnapshot
from snapshots.offline.fold import FoldResult
from snapshots.offline.inputs import NodeLog


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
