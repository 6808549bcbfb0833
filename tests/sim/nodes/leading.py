"""A simulated broker as the leader of partitions: it takes replicas back into its ISRs (KIP-497).

Without it ISRs would only ever shrink, and soon nothing would be left for a fencing to move.

Now and then a broker proposes what no controller may grant, as one of another version or with a bug would: for example that
replicas 102 and 103 be the ISR of a partition that it leads itself as 101. The laws judge the result.
"""

import random
from dataclasses import replace
from typing import Final

from metadata_log.format.ids import NodeId
from metadata_log.format.partition_state import ISR, LEADER, LEADER_EPOCH, PARTITION_EPOCH, REPLICAS
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.commands import AlterPartition, IsrMember, PartitionAlteration

PROPOSALS_MAX = 8
CALM_PROPOSALS_MAX = 100
"""After the faults, when a reassignment must be finished in seconds, and hundreds of partitions wait for their replicas."""
STRANGER_ID: Final = 998
WRONG_KINDS: Final = ("without its leader", "twice", "a stranger", "member of an earlier life", "as of an earlier life")


def isr_proposal(
    image: MetadataImage, broker_id: NodeId, broker_epoch: int, rng: random.Random, *, is_calm: bool
) -> AlterPartition | None:
    """The proposal of `broker_id`, made from its own image, which may be old; None if it finds nothing to mend."""
    proposals_max = CALM_PROPOSALS_MAX if is_calm else PROPOSALS_MAX
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
            if len(alterations) >= proposals_max:
                break
    return AlterPartition(broker_id, broker_epoch, tuple(alterations)) if alterations else None


def wrong_proposal(
    image: MetadataImage, broker_id: NodeId, broker_epoch: int, rng: random.Random
) -> AlterPartition | None:
    """One of the `WRONG_KINDS`, right in all else, for a partition that it leads by its own image; None where it leads none."""
    led = [
        (topic_id, partition, state)
        for topic_id in sorted(image.topics_of_broker(broker_id))
        for topic in (image.topics_by_id[topic_id],)
        for partition in topic.partitions_on(broker_id)
        for state in (topic.state(partition),)
        if state is not None and state[LEADER] == broker_id
    ]
    if not led:
        return None
    topic_id, partition, state = rng.choice(led)
    live = [each for each in state[REPLICAS] if not image.brokers[each].fenced]
    members = [IsrMember(each, image.brokers[each].broker_epoch) for each in sorted({broker_id, *live})]
    match rng.choice(WRONG_KINDS):
        case "without its leader":
            members = [each for each in members if each.broker_id != broker_id]
        case "twice":
            members.append(members[0])
        case "a stranger":
            members.append(IsrMember(STRANGER_ID))
        case "member of an earlier life":
            chosen = rng.randrange(len(members))
            members[chosen] = replace(members[chosen], broker_epoch=members[chosen].broker_epoch - 1)
        case _:
            broker_epoch -= 1
    if not members:
        return None
    epochs = state[LEADER_EPOCH], state[PARTITION_EPOCH]
    return AlterPartition(broker_id, broker_epoch, (PartitionAlteration(topic_id, partition, *epochs, tuple(members)),))
