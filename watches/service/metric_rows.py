"""The rows about watches that the metric tables of controllers and brokers share."""

from typing import Final, Protocol

from service_kit.process.metrics import Kind, Metric
from watches.service.tallies import WatchTallies


class WatchReading(Protocol):
    """The readings for the shared rows."""

    @property
    def watches(self) -> WatchTallies:
        """The counters of this node's watches."""
        ...


_Row = Metric[WatchReading]

WATCH_ROWS: Final = (
    _Row("watches_open", Kind.GAUGE, "Watches that are open at this node.", lambda of: of.watches.open),
    _Row(
        "watch_events_total",
        Kind.COUNTER,
        "Events that this node has sent, over all watches.",
        lambda of: of.watches.events,
    ),
    _Row(
        "watch_resets_total",
        Kind.COUNTER,
        "Times that a watch has begun, or gone on, with the state, by reason.",
        lambda of: of.watches.resets,
        ("reason",),
    ),
    _Row(
        "watches_cut_total",
        Kind.COUNTER,
        "Watches that this node has ended because their client was too slow.",
        lambda of: of.watches.cut,
    ),
    _Row(
        "watch_batches_total",
        Kind.COUNTER,
        "Batches that this node has decoded for its watches, each once for all of them.",
        lambda of: of.watches.batches,
    ),
)
