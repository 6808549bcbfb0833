"""The end of a run with data: replicas come together, and everything that was acknowledged is read (L13, L14).

The faults have ended, and nothing new is written. Within `SETTLE_MS` each online replica must be in its ISR, each batch of a
producer be acknowledged, and each consumer have read all that was acknowledged. A replica is online unless its broker is fenced,
or in controlled shutdown, or its directory has failed.
"""

from typing import TYPE_CHECKING

from metadata_log.format.ids import NO_LEADER
from metadata_log.format.partition_state import DIRECTORIES, ISR, LEADER, REPLICAS, PartitionState
from metadata_log.image.log_directories import offline_replicas
from metadata_log.image.metadata_image import MetadataImage
from tests.sim.laws import LawBroken
from tests.sim.laws.partitions.committed import Place

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

SETTLE_MS = 30_000
LOOK_EVERY_MS = 100.0


class DataEnding:
    """Watches one healed cluster."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster

    def run(self) -> None:
        """Raises LawBroken if the replicas do not come together in time."""
        cluster = self._cluster
        assert cluster.workload is not None
        cluster.workload.is_writing = False
        deadline_ms = cluster.now_ms + SETTLE_MS
        while late := self._late():
            if cluster.now_ms > deadline_ms:
                law, text = late
                raise LawBroken(law, f"{text} after {SETTLE_MS} ms of quiet")
            until_ms = cluster.now_ms + LOOK_EVERY_MS
            while cluster.now_ms < until_ms:
                cluster.next()
        cluster.coverage["data: all in sync, all read"] += 1

    def _late(self) -> tuple[str, str] | None:
        """The first thing that is still to come; None: nothing."""
        cluster = self._cluster
        laws, workload = cluster.laws.partitions, cluster.workload
        assert workload is not None
        image = laws.history.image
        for place in laws.places():
            topic = image.topic_by_id(place[0])
            state = None if topic is None else topic.state(place[1])
            if state is None:
                continue
            name = laws.of(place).name
            missing = _missing(image, state)
            if missing:
                return "L13 AllInSync", f"{name}: {missing} are not in the ISR {state[ISR]}, led by {state[LEADER]}"
            consumer, acknowledged = workload.consumers.get(place), laws.acknowledged.get(place, 0)
            if self._is_served(image, state) and consumer is not None and consumer.position < acknowledged:
                return "L14 AllRead", f"{name}: read up to {consumer.position}; {acknowledged} is acknowledged"
        for producer in workload.producers:
            waiting = [each for each in producer.waiting() if self._can_be_acknowledged(image, each)]
            if waiting:
                return "L14 AllAcknowledged", f"{producer.name} waits for {laws.of(waiting[0]).name}"
        return None

    @staticmethod
    def _is_served(image: MetadataImage, state: PartitionState) -> bool:
        return state[LEADER] != NO_LEADER and not image.brokers[state[LEADER]].fenced

    def _can_be_acknowledged(self, image: MetadataImage, place: Place) -> bool:
        topic = image.topic_by_id(place[0])
        state = None if topic is None else topic.state(place[1])
        if topic is None or state is None or not self._is_served(image, state):
            return False
        if self._cluster.laws.partitions.of(place).start_by_retention:
            return False  # its log may have forgotten the producer, which must then begin anew
        return len(state[ISR]) == len(state[REPLICAS])


def _missing(image: MetadataImage, state: PartitionState) -> list[int]:
    """The online replicas that are not in the ISR of a partition with a leader."""
    if state[LEADER] == NO_LEADER:
        return []
    offline = offline_replicas(image.brokers, state[REPLICAS], state[DIRECTORIES])
    return [
        each
        for each in state[REPLICAS]
        if each not in state[ISR]
        and each not in offline
        and not image.brokers[each].fenced
        and not image.brokers[each].in_controlled_shutdown
    ]
