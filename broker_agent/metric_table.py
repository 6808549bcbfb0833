"""The table of a broker's metrics: name, kind, help, reader. `docs/metrics.md` is generated from it."""

from typing import Final, NamedTuple

from broker_agent.agent import AgentLoop
from broker_agent.problems import PROBLEM_CODES
from service_kit.process.metrics import Kind, Metric, Metrics
from service_kit.rpc.call_tallies import CallTallies
from service_kit.rpc.daemon_metrics import DAEMON_ROWS
from service_kit.security.served_certificate import ServedCertificate
from watches.service.metric_rows import WATCH_ROWS
from watches.service.tallies import WatchTallies


class BrokerReading(NamedTuple):
    """A broker as one metrics page shows it."""

    agent: AgentLoop
    calls: CallTallies
    certificate: ServedCertificate | None
    watches: WatchTallies


def add_metrics(
    metrics: Metrics,
    agent: AgentLoop,
    calls: CallTallies,
    certificate: ServedCertificate | None,
    watches: WatchTallies,
) -> None:
    """Shows the broker's table on the page of `metrics`."""
    metrics.add_table(BROKER_METRICS, lambda: BrokerReading(agent, calls, certificate, watches))


_Row = Metric[BrokerReading]

BROKER_METRICS: Final[tuple[Metric[BrokerReading], ...]] = (
    _Row(
        "broker_state",
        Kind.GAUGE,
        "State of the broker: 1 offline, 2 fenced, 3 online, 4 stopping.",
        lambda of: of.agent.state.value,
    ),
    _Row("broker_serving", Kind.GAUGE, "1 while the broker serves clients, else 0.", lambda of: of.agent.may_serve()),
    _Row(
        "broker_lease_lapsed",
        Kind.GAUGE,
        "1 while no controller confirms this broker's lease, else 0.",
        lambda of: of.agent.lease_lapsed,
    ),
    _Row(
        "broker_leases_lapsed_total",
        Kind.COUNTER,
        "Times that the lease has lapsed.",
        lambda of: of.agent.leases_lapsed,
    ),
    _Row(
        "broker_stores_dropped_total",
        Kind.COUNTER,
        "Times that the broker dropped its copy of the metadata and fetched everything anew.",
        lambda of: of.agent.stores_dropped,
    ),
    _Row(
        "snapshot_loads_total",
        Kind.COUNTER,
        "Snapshots that the broker fetched and loaded.",
        lambda of: of.agent.snapshots_loaded,
    ),
    _Row(
        "last_applied_offset",
        Kind.GAUGE,
        "Offset below which every record is in this broker's image.",
        lambda of: of.agent.cache.current.offset,
    ),
    _Row(
        "feature_level",
        Kind.GAUGE,
        "Level of each feature in this broker's image, for example of metadata.version.",
        lambda of: {(name,): level for name, level in of.agent.cache.current.features().items()},
        ("feature",),
    ),
    _Row(
        "high_watermark",
        Kind.GAUGE,
        "Offset below which every record is committed, as far as this broker knows.",
        lambda of: of.agent.high_watermark,
    ),
    _Row(
        "metadata_lag_offsets",
        Kind.GAUGE,
        "Committed records that this broker has not applied yet.",
        lambda of: max(0, of.agent.high_watermark - of.agent.cache.current.offset),
    ),
    _Row(
        "problem",
        Kind.GAUGE,
        "1 while the broker has this problem, although it may serve, else 0.",
        lambda of: {(code,): any(each.code == code for each in of.agent.problems) for code in PROBLEM_CODES},
        ("code",),
    ),
    _Row(
        "publisher_failing",
        Kind.GAUGE,
        "1 while a subscriber in the embedding process has not taken the newest metadata because it failed, else 0.",
        lambda of: (
            dict.fromkeys(of.agent.publishers.failures, 0) | {(each.name,): 1 for each in of.agent.publishers.problems}
        ),
        ("publisher",),
    ),
    _Row(
        "publisher_failures_total",
        Kind.COUNTER,
        "Times that a subscriber in the embedding process has failed to take a change of the metadata.",
        lambda of: of.agent.publishers.failures,
        ("publisher",),
    ),
    *WATCH_ROWS,
    *DAEMON_ROWS,
)
