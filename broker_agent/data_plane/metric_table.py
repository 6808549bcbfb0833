"""The table of the metrics of a broker with `broker.data.plane: partitions`. `docs/metrics.md` is generated from it."""

from typing import Final

from broker_agent.data_plane.data_plane import DataPlane
from service_kit.process.metrics import Kind, Metric, Metrics


def add_partition_metrics(metrics: Metrics, data_plane: DataPlane) -> None:
    """Shows the data plane's table on the page of `metrics`."""
    metrics.add_table(PARTITION_METRICS, lambda: data_plane)


_Row = Metric[DataPlane]

PARTITION_METRICS: Final[tuple[Metric[DataPlane], ...]] = (
    _Row("replicas", Kind.GAUGE, "Replicas on this broker.", lambda of: of.tallies.counts.replicas),
    _Row("leader_replicas", Kind.GAUGE, "Partitions that this broker leads.", lambda of: of.tallies.counts.leaders),
    _Row(
        "failed_replicas",
        Kind.GAUGE,
        "Replicas that serve nothing, because their log or its directory has failed.",
        lambda of: of.tallies.counts.offline,
    ),
    _Row(
        "led_under_replicated_partitions",
        Kind.GAUGE,
        "Partitions that this broker leads, and of which a replica is not in sync.",
        lambda of: of.tallies.counts.under_replicated,
    ),
    _Row(
        "led_under_min_isr_partitions",
        Kind.GAUGE,
        "Partitions that this broker leads, and whose ISR is too small for writes with acks=all.",
        lambda of: of.tallies.counts.under_min_isr,
    ),
    _Row(
        "replica_max_lag_records",
        Kind.GAUGE,
        "Maximum number of committed records that a following replica of this broker lacks.",
        lambda of: of.tallies.counts.lag_max,
    ),
    _Row("replica_log_bytes", Kind.GAUGE, "Size of the logs of all replicas.", lambda of: of.tallies.counts.log_bytes),
    _Row(
        "isr_shrinks_total",
        Kind.COUNTER,
        "ISRs that this broker has shrunk as leader.",
        lambda of: of.tallies.isr_shrinks,
    ),
    _Row(
        "isr_expands_total",
        Kind.COUNTER,
        "ISRs that this broker has expanded as leader.",
        lambda of: of.tallies.isr_expands,
    ),
    _Row(
        "isr_requests_failed_total",
        Kind.COUNTER,
        "Requests with ISR proposals that no controller has answered.",
        lambda of: of.isr_requests_failed,
    ),
    _Row("records_in_total", Kind.COUNTER, "Records that producers have appended.", lambda of: of.tallies.records_in),
    _Row(
        "records_in_bytes_total",
        Kind.COUNTER,
        "Bytes of the records that producers have appended.",
        lambda of: of.tallies.bytes_in,
    ),
    _Row(
        "records_out_bytes_total",
        Kind.COUNTER,
        "Bytes of the batches that consumers have fetched.",
        lambda of: of.tallies.bytes_out,
    ),
    _Row(
        "replication_in_bytes_total",
        Kind.COUNTER,
        "Bytes of the batches that this broker has fetched as a follower.",
        lambda of: of.tallies.replication_bytes_in,
    ),
    _Row(
        "replication_out_bytes_total",
        Kind.COUNTER,
        "Bytes of the batches that followers have fetched.",
        lambda of: of.tallies.replication_bytes_out,
    ),
    _Row(
        "replica_fetches_total",
        Kind.COUNTER,
        "Fetches that this broker has sent as a follower.",
        lambda of: of.tallies.fetches_sent,
    ),
    _Row(
        "replica_fetches_failed_total",
        Kind.COUNTER,
        "Fetches of this broker as a follower that had no answer.",
        lambda of: of.tallies.fetches_failed,
    ),
    _Row(
        "appends_waiting",
        Kind.GAUGE,
        "Batches that wait until they are durable as asked.",
        lambda of: of.appends_waiting,
    ),
    _Row("fetches_waiting", Kind.GAUGE, "Fetches that wait for records.", lambda of: of.fetches_waiting),
    _Row(
        "disk_work_waiting",
        Kind.GAUGE,
        "Flushes, openings and deletions of logs that are under way.",
        lambda of: of.disk_work,
    ),
)
