"""The numbers of a data plane: what it adds up while it works, and what it counts from time to time.

1. A producer appends 10 records of 1 KiB: `bytes_in` grows by the size of the batch, `records_in` by 10.
2. A follower fetches them: `replication_bytes_out` grows. A consumer fetches them: `bytes_out` grows.
3. Every second `counted` walks over the replicas in slices, because a broker has thousands, and gives new `ReplicaCounts`.
"""

import asyncio
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from broker_agent.partitions.hosted_replica import HostedReplica
from broker_agent.partitions.replica_manager import ReplicaManager
from broker_agent.replica.fetch_sessions import SessionAnswer
from service_kit.process.tallies import Counter

SLICE: Final = 500
"""How many replicas are counted in one turn: a millisecond."""
INTERVAL_S: Final = 1.0
"""How long to rest between two counts."""


@dataclass(slots=True)
class ReplicaCounts:
    """What the replicas of this broker were at the last count."""

    replicas: int = 0
    leaders: int = 0
    offline: int = 0
    """Replicas that serve nothing, because of their logs or their directory."""
    under_replicated: int = 0
    """Partitions that this broker leads, with replicas outside of the ISR."""
    under_min_isr: int = 0
    """Partitions that this broker leads, whose ISR is too small for writes with acks=all."""
    lag_max: int = 0
    """Maximum number of committed records that a replica here lacks."""
    log_bytes: int = 0

    def add(self, replica: HostedReplica) -> None:
        """Counts one replica."""
        self.replicas += 1
        self.offline += replica.failure is not None
        if replica.log is not None:
            self.log_bytes += replica.log.size_bytes
        leader = replica.leader
        if leader is not None:
            self.leaders += 1
            self.under_replicated += len(leader.isr.committed) < len(leader.isr.replicas)
            self.under_min_isr += leader.is_under_min_isr
        elif replica.follower is not None:
            self.lag_max = max(self.lag_max, replica.follower.lag)


@dataclass(slots=True)
class DataPlaneTallies:
    """The counters of one data plane."""

    records_in: Counter = field(default_factory=Counter)
    bytes_in: Counter = field(default_factory=Counter)
    bytes_out: Counter = field(default_factory=Counter)
    replication_bytes_in: Counter = field(default_factory=Counter)
    replication_bytes_out: Counter = field(default_factory=Counter)
    fetches_sent: Counter = field(default_factory=Counter)
    fetches_failed: Counter = field(default_factory=Counter)
    isr_shrinks: Counter = field(default_factory=Counter)
    isr_expands: Counter = field(default_factory=Counter)
    counts: ReplicaCounts = field(default_factory=ReplicaCounts)
    """The last count."""


async def keep_counting(manager: ReplicaManager, tallies: DataPlaneTallies) -> None:
    """Counts the replicas again and again, until the task is cancelled."""
    while True:
        tallies.counts = await counted(manager)
        await asyncio.sleep(INTERVAL_S)


async def counted(manager: ReplicaManager) -> ReplicaCounts:
    """Counts the replicas in slices. A replica that goes meanwhile may be counted."""
    counts = ReplicaCounts()
    rest = iter(tuple(manager.replicas.values()))
    while some := tuple(islice(rest, SLICE)):
        for each in some:
            counts.add(each)
        await asyncio.sleep(0)
    return counts


def bytes_of(answer: SessionAnswer) -> int:
    """The size of the batches in an answer."""
    return sum(len(batch.data) for _, each in answer.answers for batch in each.batches)
