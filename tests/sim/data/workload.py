"""The producers and consumers of one run, and the topic that they work with besides those of the clients."""

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker_agent.replica.purgatory import Acks
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from quorum.controller.partitions.election_rules import MIN_ISR_KEY
from quorum.controller.protocol.topic_commands import CreateTopics, CreateTopicsReply, NewTopic
from quorum.runtime.protocol.world import Answer
from tests.sim.data.consumers import SimConsumer
from tests.sim.data.producers import SimProducer
from tests.sim.laws.partitions.committed import Place

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

TOPIC = "data"
PRODUCE_EVERY_MS = 60.0
CONSUME_EVERY_MS = 80.0
CREATE_EVERY_MS = 500.0
OTHER_CHANCE = 0.2
"""How often a producer writes to a partition of any topic, which may be deleted, or move."""
CONSUMERS_MAX = 6
CALM_CHANCE = 0.2


class Workload:
    """Keeps producers and consumers busy."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._rng = random.Random(f"{cluster.seed} workload")
        self.producers = (
            SimProducer(cluster, "p0", 1, Acks.ALL),
            SimProducer(cluster, "p1", 2, Acks.ALL),
            SimProducer(cluster, "p2", 3, Acks.LEADER),
        )
        min_isr = str(self._rng.choice((1, 2, 2)))
        self._topic = NewTopic(TOPIC, self._rng.randint(1, 3), 3, (), ((MIN_ISR_KEY, min_isr), ("retention.ms", "-1")))
        self.consumers: dict[Place, SimConsumer] = {}
        self.is_writing = True
        """False: nothing new is written."""

    @property
    def names(self) -> list[str]:
        """The addresses of all."""
        return [*(each.name for each in self.producers), "r0"]

    def start(self) -> None:
        self._again(CREATE_EVERY_MS, self._create)
        for producer in self.producers:
            self._again(PRODUCE_EVERY_MS, partial(self._produce, producer))
        self._again(CONSUME_EVERY_MS, self._consume)

    def _again(self, every_ms: float, act: Callable[[], None]) -> None:
        def fire() -> None:
            act()
            self._again(every_ms, act)

        self._cluster.schedule(self._rng.expovariate(1 / every_ms), fire)

    def places(self) -> list[Place]:
        """The partitions of the topic."""
        topic = self._cluster.laws.history.image.topic(TOPIC)
        return [] if topic is None else [(topic.topic_id, each) for each in range(len(list(topic.states())))]

    def _create(self) -> None:
        if self.places() or self._cluster.is_idle:
            return
        clients, topic = self._cluster.laws.clients, self._topic
        self._cluster.laws.placement.asked(TOPIC, topic.partitions, topic.replication_factor)

        def answered(answer: Answer, floor: Offset) -> None:
            if isinstance(answer, CreateTopicsReply) and answer.results[0].error is ErrorCode.NONE:
                clients.answered(answer.offset, floor)

        self._cluster.clients[0].submit(CreateTopics((topic,)), answered)

    def _produce(self, producer: SimProducer) -> None:
        places = self.places()
        more = self.is_writing and bool(places) and (not self._cluster.is_calm or self._rng.random() < CALM_CHANCE)
        place = self._rng.choice(places) if places else (b"", 0)
        if more and self._rng.random() < OTHER_CHANCE:
            topics = sorted(topic.topic_id for topic in self._cluster.laws.history.image.topics())
            place = self._rng.choice(topics), 0
        producer.act(place, more=more)

    def _consume(self) -> None:
        partitions = self._cluster.laws.partitions
        for place in partitions.places():
            if place not in self.consumers and len(self.consumers) < CONSUMERS_MAX and partitions.exists(place):
                self.consumers[place] = SimConsumer(self._cluster, "r0", place)
        for place, consumer in [*self.consumers.items()]:
            if partitions.exists(place):
                consumer.act()
            else:
                del self.consumers[place]
