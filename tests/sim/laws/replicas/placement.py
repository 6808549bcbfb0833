"""The laws of placement (M17): how many replicas a new partition has, and on which racks.

    ReplicasAsAsked   a new topic has as many partitions, and each of them as many replicas, as its client has asked for;
                      a partition that is added has as many replicas as partition 0 has, or shall have
    RacksBalanced     the numbers of a partition's replicas in two racks differ by one at most, unless the rack with fewer
                      has no further broker that may get replicas

A broker with a mode gets no replicas, and neither does a broker that is being drained, which no image shows. So the second law
says nothing about racks with a broker that a client has ever asked to drain.

Example: brokers 101 and 103 are in rack a, broker 102 is in rack b. A partition with two replicas on 101 and 103 breaks
RacksBalanced; a partition with three replicas has two of them in rack a.
"""

from collections import Counter

from metadata_log.format.ids import NodeId, Uuid
from metadata_log.format.partition_state import REMOVING, REPLICAS
from metadata_log.format.records import Partition, Topic
from metadata_log.image.metadata_image import MetadataImage
from tests.sim.coverage import Coverage
from tests.sim.history import Step
from tests.sim.laws.broken import hold


class PlacementLaws:
    """Checks every committed batch, in order."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._asked: dict[str, tuple[int, int]] = {}
        self._may_be_drained: set[NodeId] = set()

    def asked(self, topic: str, count: int, factor: int) -> None:
        """Notes a request for a new topic, whose name nobody else uses."""
        self._asked[topic] = count, factor

    def may_be_drained(self, broker_id: NodeId) -> None:
        """Notes that a client asks to drain the broker. The request may arrive at any later time."""
        self._may_be_drained.add(broker_id)

    def committed(self, step: Step) -> None:
        """Checks a newly committed batch."""
        law = "M17 ReplicasAsAsked"
        counts: Counter[Uuid] = Counter()
        factors: dict[Uuid, int] = {}
        for record in step.records:
            if isinstance(record, Topic) and record.name in self._asked:
                factors[record.topic_id] = self._asked[record.name][1]
            if isinstance(record, Partition):
                counts[record.topic_id] += 1
                factor = factors.get(record.topic_id) or _factor(step.before, record)
                text = f"partition {record.partition} at {step.batch.base_offset} is on {record.replicas}"
                hold(len(record.replicas) == factor, law, f"{text}; asked for are {factor} replicas")
                self._check_racks(step.before, record, text)
        for record in step.records:
            if isinstance(record, Topic) and record.name in self._asked:
                wanted, got = self._asked[record.name][0], counts[record.topic_id]
                hold(wanted == got, law, f"topic {record.name} has {got} partitions; asked for are {wanted}")

    def _check_racks(self, image: MetadataImage, record: Partition, text: str) -> None:
        brokers = {broker.broker_id: broker.rack for broker in image.brokers.values()}
        used = Counter(brokers[each] for each in record.replicas if each in brokers)
        left = {
            rack
            for broker_id, rack in brokers.items()
            if broker_id not in record.replicas and broker_id not in image.broker_modes
        }
        uncertain = {brokers.get(each) for each in self._may_be_drained}
        for rack in left - uncertain:
            uneven = {other: count for other, count in used.items() if count > used[rack] + 1}
            hold(not uneven, "M17 RacksBalanced", f"{text}; rack {rack} has {used[rack]} of them, and {uneven}")
        self._coverage["partition spread over racks"] += len(used) > 1


def _factor(image: MetadataImage, record: Partition) -> int:
    """How many replicas partition 0 of the topic has, or shall have."""
    topic = image.topic_by_id(record.topic_id)
    first = None if topic is None else topic.state(0)
    return len(record.replicas if first is None else set(first[REPLICAS]) - set(first[REMOVING]))
