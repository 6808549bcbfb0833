"""What a running controller counts and measures. `quorum.wire.metric_table` says under which name each tally is shown.

A node owns one `Tallies` (`node.tallies`); its parts, the loop around it and the gRPC server add to it. To count
something new: add a field here, add to it where it happens, and give it a row in the table. The pure rooms count nothing: they
return what happened, and the runtime counts that.
"""

from service_kit.process.tallies import LATENCY_BUCKETS_S, WORK_BUCKETS_S, Histogram


class Tallies:
    """The counters and histograms of one controller, since its process started."""

    def __init__(self) -> None:
        self.turn_seconds = Histogram(WORK_BUCKETS_S)
        """CPU time of each turn of the event loop."""
        self.flush_seconds = Histogram(LATENCY_BUCKETS_S)
        """Duration of each flush (fsync) of the log."""
