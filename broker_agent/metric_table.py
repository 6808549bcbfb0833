"""The table of a broker's metrics: name, kind, help, reader. `docs/metrics.md` is generated from it."""

from typing import Final

from broker_agent.agent import Agent
from service_kit.process.metrics import Kind, Metric, Metrics


def add_metrics(metrics: Metrics, agent: Agent) -> None:
    """Shows the broker's table on the page of `metrics`."""
    metrics.add_table(BROKER_METRICS, lambda: agent)


_Row = Metric[Agent]

BROKER_METRICS: Final = (
    _Row(
        "broker_state",
        Kind.GAUGE,
        "State of the broker: 1 offline, 2 fenced, 3 online, 4 stopping.",
        lambda agent: agent.state.value,
    ),
    _Row("broker_serving", Kind.GAUGE, "1 while the broker serves clients, else 0.", lambda agent: agent.may_serve()),
    _Row(
        "broker_lease_lapsed",
        Kind.GAUGE,
        "1 while no controller confirms this broker's lease, else 0.",
        lambda agent: agent.lease_lapsed,
    ),
    _Row(
        "broker_leases_lapsed_total",
        Kind.COUNTER,
        "Times that the lease has lapsed.",
        lambda agent: agent.leases_lapsed,
    ),
    _Row(
        "broker_stores_dropped_total",
        Kind.COUNTER,
        "Times that the broker dropped its copy of the metadata and fetched everything anew.",
        lambda agent: agent.stores_dropped,
    ),
    _Row(
        "snapshot_loads_total",
        Kind.COUNTER,
        "Snapshots that the broker fetched and loaded.",
        lambda agent: agent.snapshots_loaded,
    ),
    _Row(
        "last_applied_offset",
        Kind.GAUGE,
        "Offset below which every record is in this broker's image.",
        lambda agent: agent.cache.current.offset,
    ),
    _Row(
        "high_watermark",
        Kind.GAUGE,
        "Offset below which every record is committed, as far as this broker knows.",
        lambda agent: agent.high_watermark,
    ),
    _Row(
        "metadata_lag_offsets",
        Kind.GAUGE,
        "Committed records that this broker has not applied yet.",
        lambda agent: max(0, agent.high_watermark - agent.cache.current.offset),
    ),
)
