"""Makes random records into those of an honest controller: no fenced broker leads a partition, or is in an ISR with others.

Example: the dice fence broker 2, which leads two partitions. Two records move the leaders first, and then the fence comes. So
the law holds wherever the batch ends.
"""

from collections.abc import Iterator

from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.records import (
    BrokerRegistrationChange,
    MetadataRecord,
    Partition,
    PartitionChange,
    RegisterBroker,
    UnregisterBroker,
)
from metadata_log.image.metadata_image import MetadataImage


def serving(image: MetadataImage, record: MetadataRecord) -> Iterator[MetadataRecord]:
    """Return the record, changed if it names a fenced broker as leader, behind the records that have to come first."""
    match record:
        case BrokerRegistrationChange(broker_id=broker_id, fenced=True):
            yield from _moves_from(image, broker_id)
        case RegisterBroker(broker_id=broker_id) | UnregisterBroker(broker_id=broker_id):
            yield from _moves_from(image, broker_id)
        case Partition(isr=isr) | PartitionChange(isr=tuple(isr)):
            isr = tuple(each for each in isr if not _is_fenced(image, each))
            leader = record.leader if record.leader in isr else isr[0] if isr else NO_LEADER
            record = record._replace(isr=isr, leader=leader)
    yield record


def _is_fenced(image: MetadataImage, broker_id: NodeId) -> bool:
    return broker_id not in image.brokers or image.brokers[broker_id].fenced


def _moves_from(image: MetadataImage, broker_id: NodeId) -> Iterator[PartitionChange]:
    """Take the broker out of each ISR. The last member of an ISR stays, and leads no more."""
    for topic_id, topic in image.topics_by_id.items():
        for number in range(topic.partition_count):
            now = image.partition(topic_id, number)
            assert now is not None
            left = tuple(each for each in now.isr if each != broker_id)
            if broker_id in now.isr and (left or now.leader != NO_LEADER):
                leader = now.leader if now.leader in left else left[0] if left else NO_LEADER
                yield PartitionChange(topic_id, number, isr=left or now.isr, leader=leader)
