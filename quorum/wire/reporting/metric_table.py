"""The table of a controller's metrics: name, kind, help, reader, labels. `docs/metrics.md` is generated from it.

Names follow Prometheus: base units (seconds, bytes) at the end, `_total` after a counter, no abbreviation.
A node shows NaN for an unknown number. To add a metric: `docs/recipes.md`, *A metric*.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from metadata_log.format.ids import uuid_text
from quorum.controller.brokers.contact import BrokerState
from quorum.core.protocol.problem import ProblemCode
from quorum.core.roles import Role
from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import NodeStatus
from quorum.runtime.protocol.tallies import Tallies
from quorum.wire.reporting.cluster_figures import ClusterFigures, Figures
from service_kit.process.metrics import Kind, Metric, Metrics
from service_kit.process.tallies import Labels
from service_kit.rpc.call_tallies import CallTallies
from service_kit.rpc.daemon_metrics import DAEMON_ROWS
from service_kit.security.served_certificate import ServedCertificate
from snapshots.store import SnapshotInfo
from watches.service.metric_rows import WATCH_ROWS
from watches.service.tallies import WatchTallies


class ControllerReading(NamedTuple):
    """The values of one controller at the time of one metrics page."""

    status: NodeStatus
    tallies: Tallies
    calls: CallTallies
    certificate: ServedCertificate | None
    figures: Figures | None
    """None on a node that is not the active controller, and before the first count."""
    snapshots: tuple[SnapshotInfo, ...]
    watches: WatchTallies

    def partitions(self, name: str) -> int | None:
        """Returns a count of partitions by its name."""
        return None if self.figures is None else int(getattr(self.figures.partitions, name))

    @property
    def snapshot(self) -> SnapshotInfo | None:
        """The newest snapshot on this node's disk."""
        return self.snapshots[-1] if self.snapshots else None


def add_metrics(
    metrics: Metrics,
    node: ControllerNode,
    calls: CallTallies,
    figures: ClusterFigures,
    certificate: ServedCertificate | None,
    watches: WatchTallies,
) -> None:
    """Adds the controller's table to the page of `metrics`."""

    def look() -> ControllerReading:
        status = node.status()
        newest = figures.newest if status.is_active else None
        return ControllerReading(status, node.tallies, calls, certificate, newest, node.list_snapshots(), watches)

    metrics.add_table(CONTROLLER_METRICS, look)


def _silent_voters(status: NodeStatus) -> int | None:
    """Without a leader nobody knows, and 0 would look like good news."""
    if status.leader.leader_id is None:
        return None
    return sum(each.status == "silent" for each in status.replicas)


def _lags(status: NodeStatus) -> Mapping[Labels, float]:
    known = ((each, each.lag) for each in status.replicas)
    return {(str(each.node_id), uuid_text(each.directory_id)): lag for each, lag in known if lag is not None}


def _brokers(figures: Figures | None) -> Mapping[Labels, float]:
    if figures is None:
        return {}
    return {(state.value,): figures.brokers[state] for state in BrokerState}


_Row = Metric[ControllerReading]

QUORUM_ROWS: Final = (
    _Row(
        "current_state",
        Kind.GAUGE,
        "1 for the Raft role that this node has, 0 for the others.",
        lambda of: {(role.value,): role.value == of.status.role for role in Role},
        ("role",),
    ),
    _Row("current_epoch", Kind.GAUGE, "Epoch that this node is in.", lambda of: of.status.epoch),
    _Row(
        "current_leader",
        Kind.GAUGE,
        "Node id of the leader that this node follows; NaN while it follows none.",
        lambda of: of.status.leader.leader_id,
    ),
    _Row(
        "current_vote",
        Kind.GAUGE,
        "Node id of the voter that this node voted for in its epoch; NaN if it has not voted.",
        lambda of: None if of.status.voted_for is None else of.status.voted_for.node_id,
    ),
    _Row(
        "voters",
        Kind.GAUGE,
        "Voters in the newest voter set that this node knows.",
        lambda of: sum(each.is_voter for each in of.status.replicas),
    ),
    _Row(
        "observers",
        Kind.GAUGE,
        "Controllers that fetch and do not vote; 0 on a node that does not lead.",
        lambda of: sum(not each.is_voter for each in of.status.replicas),
    ),
    _Row(
        "silent_voters",
        Kind.GAUGE,
        "Voters from which the leader has received no fetch for the check-quorum timeout; 0 on others; NaN without a leader.",
        lambda of: _silent_voters(of.status),
    ),
    _Row(
        "replica_lag_records",
        Kind.GAUGE,
        "Records that a voter or observer lacks, as the leader knows; no series on other nodes.",
        lambda of: _lags(of.status),
        ("node_id", "directory_id"),
    ),
    _Row("elections_total", Kind.COUNTER, "Times that this node became a candidate.", lambda of: of.tallies.elections),
    _Row(
        "elections_won_total", Kind.COUNTER, "Times that this node became leader.", lambda of: of.tallies.elections_won
    ),
    _Row(
        "active_controller",
        Kind.GAUGE,
        "1 while this node is the active controller, else 0.",
        lambda of: of.status.is_active,
    ),
    _Row(
        "high_watermark",
        Kind.GAUGE,
        "Offset below which every record is committed, as far as this node knows.",
        lambda of: of.status.high_watermark,
    ),
)
FEATURE_ROWS: Final = (
    _Row(
        "feature_level",
        Kind.GAUGE,
        "Level of each feature in this node's image, for example of metadata.version.",
        lambda of: {(name,): level for name, level in of.status.features},
        ("feature",),
    ),
)
PROBLEM_ROWS: Final = (
    _Row(
        "problem",
        Kind.GAUGE,
        "1 while this node has the problem with this code, else 0. The runbook has a row for each code.",
        lambda of: {(code.value,): any(each.code is code for each in of.status.problems) for code in ProblemCode},
        ("code",),
    ),
)
LOG_ROWS: Final = (
    _Row(
        "log_start_offset", Kind.GAUGE, "Offset of the first record in the log.", lambda of: of.status.log_start_offset
    ),
    _Row("log_end_offset", Kind.GAUGE, "Offset after the last record in the log.", lambda of: of.status.log_end_offset),
    _Row(
        "flushed_end_offset",
        Kind.GAUGE,
        "Offset below which every record is durable on this node's disk.",
        lambda of: of.status.flushed_end_offset,
    ),
    _Row(
        "last_applied_offset",
        Kind.GAUGE,
        "Offset below which every record is in this node's image.",
        lambda of: of.status.applied_offset,
    ),
    _Row("log_size_bytes", Kind.GAUGE, "Size of all segments of the log.", lambda of: of.status.disk.log_bytes),
    _Row(
        "snapshot_size_bytes",
        Kind.GAUGE,
        "Size of the newest snapshot on this node's disk; NaN if there is none.",
        lambda of: None if of.snapshot is None else of.snapshot.size,
    ),
    _Row(
        "snapshot_timestamp_seconds",
        Kind.GAUGE,
        "Time of the newest record in the newest snapshot, in seconds since 1970 UTC; NaN if there is none.",
        lambda of: None if of.snapshot is None else of.snapshot.timestamp_ms / 1_000,
    ),
    _Row(
        "snapshot_end_offset",
        Kind.GAUGE,
        "Offset after the last record that the newest snapshot contains; NaN if there is none.",
        lambda of: None if of.snapshot is None else of.snapshot.end.offset,
    ),
    _Row(
        "snapshot_write_seconds",
        Kind.HISTOGRAM,
        "Duration of writing each snapshot.",
        lambda of: of.tallies.snapshot_write_seconds,
    ),
    _Row(
        "commit_seconds",
        Kind.HISTOGRAM,
        "On the active controller: time from the turn that appended records to the turn that applied them.",
        lambda of: of.tallies.commit_seconds,
    ),
    _Row(
        "fetch_seconds",
        Kind.HISTOGRAM,
        "Time from each fetch's arrival to its answer; the wait for new records is part of it.",
        lambda of: of.tallies.fetch_seconds,
        ("by",),
    ),
    _Row("flush_seconds", Kind.HISTOGRAM, "Duration of each fsync of the log.", lambda of: of.tallies.flush_seconds),
)
DISK_ROWS: Final = (
    _Row(
        "damage_found_total",
        Kind.COUNTER,
        "Damaged places found in log and snapshots, and a lost end of the log; those found at the start included.",
        lambda of: of.status.disk.damage_found,
    ),
    _Row(
        "damage_mended_total",
        Kind.COUNTER,
        "Damaged ranges of the log that were repaired.",
        lambda of: of.status.disk.damage_mended,
    ),
    _Row(
        "damaged_records",
        Kind.GAUGE,
        "Records of the log that cannot be read now.",
        lambda of: of.status.disk.damaged_records,
    ),
    _Row(
        "scrubbed_bytes_total",
        Kind.COUNTER,
        "Bytes of the log that were read again and found intact.",
        lambda of: of.status.disk.scrubbed_bytes,
    ),
)
WORK_ROWS: Final = (
    _Row(
        "turn_seconds", Kind.HISTOGRAM, "CPU time of each turn of the event loop.", lambda of: of.tallies.turn_seconds
    ),
    _Row(
        "failed_decisions_total",
        Kind.COUNTER,
        "Decisions of the active controller that an internal error ended.",
        lambda of: of.status.failed_decisions,
    ),
)
CLUSTER_ROWS: Final = (
    _Row(
        "brokers",
        Kind.GAUGE,
        "Registered brokers by state (offline: shut down in order); only the active controller shows them.",
        lambda of: _brokers(of.figures),
        ("state",),
    ),
    _Row(
        "topics",
        Kind.GAUGE,
        "Topics of the cluster; NaN on a controller that is not active.",
        lambda of: None if of.figures is None else of.figures.topics,
    ),
    _Row(
        "entities",
        Kind.GAUGE,
        "Entities of the cluster; NaN on a controller that is not active.",
        lambda of: None if of.figures is None else of.figures.entities,
    ),
    _Row(
        "entities_bytes",
        Kind.GAUGE,
        "Size of all names and values of entities; NaN on a controller that is not active.",
        lambda of: None if of.figures is None else of.figures.entity_bytes,
    ),
    _Row(
        "client_sessions",
        Kind.GAUGE,
        "Open sessions of clients, and of entities with a TTL; NaN on a controller that is not active.",
        lambda of: None if of.figures is None else of.figures.sessions,
    ),
    _Row(
        "partitions",
        Kind.GAUGE,
        "Partitions of the cluster; NaN on a controller that is not active.",
        lambda of: of.partitions("partitions"),
    ),
    _Row(
        "offline_partitions",
        Kind.GAUGE,
        "Partitions that no broker leads; NaN on a controller that is not active.",
        lambda of: of.partitions("offline"),
    ),
    _Row(
        "under_replicated_partitions",
        Kind.GAUGE,
        "Partitions with fewer replicas in sync than assigned; NaN on a controller that is not active.",
        lambda of: of.partitions("under_replicated"),
    ),
    _Row(
        "under_min_isr_partitions",
        Kind.GAUGE,
        "Partitions with fewer replicas in sync than min.insync.replicas; NaN on a controller that is not active.",
        lambda of: of.partitions("under_min_isr"),
    ),
    _Row(
        "preferred_imbalanced_partitions",
        Kind.GAUGE,
        "Partitions that the first assigned replica does not lead; NaN on a controller that is not active.",
        lambda of: of.partitions("preferred_imbalanced"),
    ),
    _Row(
        "reassigning_partitions",
        Kind.GAUGE,
        "Partitions whose reassignment is in progress; NaN on a controller that is not active.",
        lambda of: of.partitions("reassigning"),
    ),
)
HAPPENING_ROWS: Final = (
    _Row(
        "brokers_fenced_total",
        Kind.COUNTER,
        "Brokers that this node has fenced as active controller, by broker and reason. The log has a line for each.",
        lambda of: of.tallies.brokers_fenced,
        ("broker_id", "why"),
    ),
    _Row(
        "transactions_total",
        Kind.COUNTER,
        "Metadata transactions that this node has begun, ended and aborted, as active controller, by result.",
        lambda of: of.tallies.transactions,
        ("result",),
    ),
    _Row(
        "elections_outside_isr_total",
        Kind.COUNTER,
        "Partitions to which this node gave a leader outside the ISR: elr without a loss, unclean with a possible loss.",
        lambda of: of.tallies.outside_elections,
        ("how",),
    ),
    _Row(
        "happenings_total",
        Kind.COUNTER,
        "Committed happenings that this node has decided, as active controller, by kind. The log has lines about them.",
        lambda of: of.tallies.happenings,
        ("kind",),
    ),
)
CONTROLLER_METRICS: Final[tuple[Metric[ControllerReading], ...]] = (
    *QUORUM_ROWS,
    *CLUSTER_ROWS,
    *FEATURE_ROWS,
    *PROBLEM_ROWS,
    *LOG_ROWS,
    *DISK_ROWS,
    *WORK_ROWS,
    *HAPPENING_ROWS,
    *WATCH_ROWS,
    *DAEMON_ROWS,
)
