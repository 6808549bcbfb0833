"""The table of a controller's metrics: name, kind, help, reader, labels. `docs/metrics.md` is generated from it.

To add a metric: one row here. A gauge reads the node's status. A counter or histogram needs a field in
`quorum.runtime.protocol.tallies`, which the code adds to; its row reads `reading.tallies.FIELD`. Then run
`python scripts/metrics_page.py`.

Names follow Prometheus: base units (seconds, bytes) at the end, `_total` after a counter, no abbreviation.
A node shows NaN for a number that it does not know.
"""

from typing import Final, NamedTuple

from quorum.core.protocol.problem import ProblemCode
from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import NodeStatus
from quorum.runtime.protocol.tallies import Tallies
from service_kit.process.metrics import Kind, Metric, Metrics


class ControllerReading(NamedTuple):
    """A controller as one metrics page shows it."""

    status: NodeStatus
    tallies: Tallies


def add_metrics(metrics: Metrics, node: ControllerNode) -> None:
    """Shows the controller's table on the page of `metrics`."""
    metrics.add_table(CONTROLLER_METRICS, lambda: ControllerReading(node.status(), node.tallies))


_Row = Metric[ControllerReading]

QUORUM_ROWS: Final = (
    _Row("current_epoch", Kind.GAUGE, "Epoch that this node is in.", lambda of: of.status.epoch),
    _Row(
        "current_leader",
        Kind.GAUGE,
        "Node id of the leader that this node follows; NaN while it follows none.",
        lambda of: of.status.leader.leader_id,
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
    _Row("flush_seconds", Kind.HISTOGRAM, "Duration of each fsync of the log.", lambda of: of.tallies.flush_seconds),
)
DISK_ROWS: Final = (
    _Row(
        "damage_found_total",
        Kind.COUNTER,
        "Damaged places found in log and snapshots, those found at the start included.",
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
CONTROLLER_METRICS: Final = (*QUORUM_ROWS, *PROBLEM_ROWS, *LOG_ROWS, *DISK_ROWS, *WORK_ROWS)
