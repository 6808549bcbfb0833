"""Group commit: at most one flush of each log is under way, and the next one takes all records that came meanwhile.

1. A write appends [0,3) to orders-0, and its flush begins.
2. Two more writes append [3,9). Their flush waits.
3. The first flush ends: records below 3 are durable. One flush for [3,9) begins.
"""

from broker_agent.partitions.effects import Flush
from broker_agent.partitions.hosted_replica import HostedReplica
from broker_agent.partitions.hosting import Hosting


class Flushes:
    """The flushes of all logs."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self.under_way = 0
        """How many flushes have no outcome yet, also those of logs that were closed meanwhile."""

    def need(self, replica: HostedReplica) -> bool:
        """Begin a flush if one is needed and none is under way. Return False if all records are durable."""
        log = replica.log
        assert log is not None
        shape = log.shape
        if shape.flushed_end == shape.end:
            return False
        if replica.flushing is None:
            replica.flushing = Flush(replica.place, replica.directory_id, log, log.begin_flush())
            self.under_way += 1
            self._hosting.emit(replica.flushing)
        return True

    def ended(self, flush: Flush) -> HostedReplica | None:
        """Note that a flush has ended or failed. Return its replica, which may have stopped; None if the log was closed."""
        self.under_way -= 1
        replica = self._hosting.replicas.get(flush.place)
        if replica is None or replica.flushing is not flush:
            return None
        replica.flushing = None
        return None if replica.log is None else replica
