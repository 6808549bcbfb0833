"""What a simulated broker does as the leader of partitions: it takes replicas back into its ISRs (KIP-497).

Without it ISRs would only ever shrink, and soon nothing would be left for a fencing to move.
"""

import random

from metadata_log.ids import NodeId
from metadata_log.image import MetadataImage
from metadata_log.partition_state import ISR, LEADER, LEADER_EPOCH, PARTITION_EPOCH, REPLICAS
from quorum.controller.commands import AlterPartition, IsrMember, PartitionAlteration

PROPOSALS_MAX = 8


def isr_proposal(
    image: MetadataImage, broker_id: NodeId, broker_epoch: int, rng: random.Random
) -> AlterPartition | None:
    """What `broker_id` proposes, judging by its own image, which may be old; None where it finds nothing to mend."""
    alterations: list[PartitionAlteration] = []
    for topic_id in image.topics_of_broker(broker_id):
        topic = image.topics_by_id[topic_id]
        for partition in topic.partitions_on(broker_id):
            state = topic.state(partition)
            assert state is not None
            missing = [replica for replica in state[REPLICAS] if replica not in state[ISR]]
            joining = [replica for replica in missing if not image.brokers[replica].fenced]
            if state[LEADER] != broker_id or not joining:
                continue
            isr = (*state[ISR], rng.choice(joining))
            members = tuple(IsrMember(replica, image.brokers[replica].broker_epoch) for replica in isr)
            alterations.append(
                PartitionAlteration(topic_id, partition, state[LEADER_EPOCH], state[PARTITION_EPOCH], members)
            )
            if len(alterations) >= PROPOSALS_MAX:
                break
    return AlterPartition(broker_id, broker_epoch, tuple(alterations)) if alterations else None
