"""Simulated consumers: each reads a partition from its start, each offset once, in order.

1  Consumer k reads at offset 5, and gets the batches [5,8). Its position is 8.
2  The answer arrives a second time: k does not ask for 5 any more, so the answer has no effect.
"""

import random
from typing import TYPE_CHECKING

from broker_agent.replica.fetch_sessions import FULL_EPOCH, NO_SESSION, SessionAnswer, SessionRequest
from broker_agent.replica.follower import PartitionFetch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from tests.sim.data.producers import Router
from tests.sim.laws import hold
from tests.sim.laws.partitions.committed import Place

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

PATIENCE_MS = 1_500.0
MAX_WAIT_MS = 500
MAX_BYTES = 2_000


class SimConsumer:
    """Reads one partition."""

    def __init__(self, cluster: "Cluster", name: str, place: Place) -> None:
        self.cluster = cluster
        self.name = name
        self.place = place
        self.position: Offset = 0
        self._rng = random.Random(f"{cluster.seed} {name} {place[0].hex()} {place[1]}")
        self._router = Router(cluster, self._rng)
        self._number = 0
        self._again_ms = 0.0

    def act(self) -> None:
        """Asks for more, unless an earlier request waits."""
        cluster = self.cluster
        if cluster.now_ms < self._again_ms:
            return
        leader = self._router.leader_of(self.place)
        if leader is None:
            return
        broker = cluster.brokers.get(leader[0])
        if broker is None or broker.data is None:
            return
        self._number += 1
        number, asked, serving = self._number, self.position, broker.data.serving
        self._again_ms = cluster.now_ms + PATIENCE_MS
        epoch = leader[1] if self._rng.random() < 0.8 else -1
        request = SessionRequest(
            NO_SESSION, FULL_EPOCH, ((self.place, PartitionFetch(asked, epoch, -1)),)
        )  # fmt: skip

        def arrive(answer: SessionAnswer) -> None:
            if number == self._number and asked == self.position:
                self._answered(asked, answer)

        cluster.network.carry(
            self.name,
            broker.name,
            lambda: serving.fetch(
                None,
                request,
                MAX_WAIT_MS,
                MAX_BYTES,
                lambda answer: cluster.network.carry(broker.name, self.name, lambda: arrive(answer)),
            ),
        )

    def _answered(self, asked: Offset, answer: SessionAnswer) -> None:
        self._again_ms = self.cluster.now_ms + self._rng.uniform(0.0, 60.0)
        self._number += 1
        for place, each in answer.answers:
            if place != self.place:
                continue
            laws = self.cluster.laws.partitions
            if each.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                # Retention may have deleted what it wants. A committed record is never above the end of a leader's log.
                start = laws.of(place).start_by_retention
                hold(asked < start or not laws.exists(place), "P1 LeaderHasCommitted", f"{self.name}: no {asked}")
                self.position = max(asked, start)
                return
            if each.error is not ErrorCode.NONE:
                return
            laws.consumed(self.name, place, asked, each.batches)
            if each.batches:
                self.position = each.batches[-1].end_offset
                self.cluster.coverage["data: record read"] += self.position - asked
