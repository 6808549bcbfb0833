"""The counters and histograms of a running controller. `quorum.wire.reporting.metric_table` gives each tally its name.

A node owns one `Tallies` (`node.tallies`); the node, its active controller and the loop add to its fields. The pure rooms count
nothing: their results say what happened, and the runtime counts. To add a metric: `docs/recipes.md`, *A metric*.
"""

from quorum.controller.protocol.happenings import KINDS
from quorum.core.roles import Role, Transition
from quorum.runtime.protocol.jobs import FlushJob, Job, WriteSnapshotJob
from service_kit.process.tallies import LATENCY_BUCKETS_S, LONG_BUCKETS_S, WORK_BUCKETS_S, Counter, Histogram


class Tallies:
    """The counters and histograms of one controller, since its process started."""

    def __init__(self) -> None:
        self.turn_seconds = Histogram(WORK_BUCKETS_S)
        """CPU time of each turn of the event loop."""
        self.flush_seconds = Histogram(LATENCY_BUCKETS_S)
        """Duration of each flush (fsync) of the log."""
        self.commit_seconds = Histogram(LATENCY_BUCKETS_S)
        """Time from the turn in which the active controller appended records to the turn in which those records were applied."""
        self.snapshot_write_seconds = Histogram(LONG_BUCKETS_S)
        """Duration of writing each snapshot."""
        self.fetch_seconds = Histogram(LATENCY_BUCKETS_S, "voter", "broker")
        """From the arrival of each fetch to its answer, by the fetching node's role; the wait for records counts, too."""
        self.elections = Counter()
        """How many times the node became a candidate."""
        self.elections_won = Counter()
        """How many times the node became leader."""
        self.brokers_fenced = Counter.by_labels()
        """Brokers that the node has fenced, by broker id and reason. With the id in a label, the metrics page answers "why was
        broker 7 fenced?"; there are at most as many series as brokers times reasons."""
        self.outside_elections = Counter("elr", "unclean")
        """Partitions that got a leader from outside the ISR: from the eligible leader replicas, or uncleanly."""
        self.happenings = Counter(*[kind.replace(" ", "_") for kind in KINDS])
        """Committed happenings that the node has decided, by kind. Each kind is shown from the start, because Prometheus'
        `increase` does not see the first value of a series."""

        self.transactions = Counter("begun", "ended", "aborted")
        """Metadata transactions that the node has begun, ended and aborted as active controller, as appended to its log. A node
        also aborts the open transaction of an earlier leader."""

    def count_transition(self, change: Transition) -> None:
        """Counts a change of role that is part of an election."""
        if change.role is Role.CANDIDATE:
            self.elections.add()
        elif change.role is Role.LEADER:
            self.elections_won.add()

    def count_job(self, job: Job, seconds: float) -> None:
        """Counts a job that ended well, on the job's thread. `Node._finish` learns of all jobs, also of jobs that failed."""
        if isinstance(job, FlushJob):
            self.flush_seconds.observe(seconds)
        elif isinstance(job, WriteSnapshotJob):
            self.snapshot_write_seconds.observe(seconds)
