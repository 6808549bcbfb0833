"""The end of eligible leader replicas (ELR, KIP-966), if what made them safe changes: `min.insync.replicas`, or the feature.

Each partition that has an ELR gets a `PartitionChange`, in the same batch or transaction as the change. So no image has the
new config beside an ELR of the old one. Example: `min.insync.replicas` of orders falls from 2 to 1.

    orders-0    ISR 101, ELR 102, leader 101    ELR -: the high watermark moves with 101 alone now, so 102 may lack records
    orders-1    ISR 101,102, ELR -, leader 101  no record: most partitions have no ELR
    orders-2    ISR -, ELR 101,102, no leader   ISR 101,102, ELR -

A partition without a leader, such as orders-2, keeps its safe replicas as members of the ISR: nobody writes to it, so these still
have every record below the high watermark. Otherwise no clean election could give the partition a leader again. When one of them
leads, the absent members leave the ISR (`partition_changes`).

The format has a record `ClearElr` for a whole topic or for all topics, with Kafka's number. Nothing writes it: its replay would
look at all partitions of the cluster in one turn, and cannot keep the safe replicas of orders-2. Its effect is that of 0.1.0.
"""

from collections.abc import Iterable, Iterator

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, Uuid
from metadata_log.format.partition_state import ELR, ISR, LAST_KNOWN_ELR, LEADER, REPLICAS, PartitionState
from metadata_log.format.records import MetadataRecord, PartitionChange
from metadata_log.image.topic_image import CHUNK_PARTITIONS, TopicImage
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.pieces import Piece


def cleared(topics: Iterable[TopicImage], records_max: int) -> Iterator[Piece]:
    """The pieces of a clearing: one for each chunk of partitions, although most have no record.

    Raises:
        ControllerError: POLICY_VIOLATION: there are more than `records_max` partitions with an ELR.
    """
    total = 0
    for topic in topics:
        for first, chunk in zip(range(0, topic.partition_count, CHUNK_PARTITIONS), topic.chunks, strict=True):
            changes: list[MetadataRecord] = [
                _without_elr(topic.topic_id, number, state)
                for number, state in enumerate(chunk, first)
                if state[ELR] or (state[LAST_KNOWN_ELR] and state[LEADER] != NO_LEADER)
            ]
            total += len(changes)
            if total > records_max:
                raise ControllerError(
                    ErrorCode.POLICY_VIOLATION,
                    f"more than {records_max:,} partitions have eligible leader replicas, which the request clears in one "
                    f"transaction; nothing was done: change fewer topics in one request, or wait until replicas are in sync",
                )
            yield Piece(changes, 1 + len(changes))


def _without_elr(topic_id: Uuid, partition: int, state: PartitionState) -> PartitionChange:
    if state[LEADER] != NO_LEADER:
        return PartitionChange(topic_id, partition, elr=(), last_known_elr=() if state[LAST_KNOWN_ELR] else None)
    isr = tuple([replica for replica in state[REPLICAS] if replica in state[ISR] or replica in state[ELR]])
    return PartitionChange(topic_id, partition, isr=isr, elr=(), last_known_elr=() if state[LAST_KNOWN_ELR] else None)
