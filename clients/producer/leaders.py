"""The leader of a partition for a producer: by the metadata, or by a later hint of a broker (KIP-951).

1. The view says that broker 101 leads orders-0 with epoch 5. Broker 101 refuses a batch, and names broker 102 with epoch 6.
2. The producer sends the batch to broker 102 at once, and asks for metadata meanwhile.
3. Metadata with epoch 6 arrive: the hint is forgotten. A hint that has led to a failure is forgotten, too.
"""

from typing import NamedTuple

from clients.metadata.cluster import Cluster
from clients.partition_values import Appended
from clients.producer.effects import NoteLeaderEpoch, ProducerEffects
from clients.producer.partition_queue import PartitionQueue
from metadata_log.format.ids import Epoch, NodeId


class Leader(NamedTuple):
    """The leader to send to, and the leader epoch to send along; None: any."""

    node_id: NodeId
    leader_epoch: Epoch | None


def leader_of(queue: PartitionQueue, cluster: Cluster) -> Leader | None:
    """Returns the leader to send to, or None. The queue meets the topic that now has its name."""
    view = cluster.partitions.get(queue.key)
    topic_id = cluster.topic_ids.get(queue.key.topic)
    if view is None or topic_id is None:
        return None
    queue.meet_topic(topic_id)
    if queue.topic_id != topic_id:
        return None  # a batch for the deleted topic is in flight
    hint = queue.hint
    if hint is not None and hint.leader_epoch > _known(view.leader_epoch):
        if hint.leader_id is not None and _is_reachable(hint.leader_id, cluster):
            return Leader(hint.leader_id, hint.leader_epoch)
    else:
        queue.hint = None
    if view.leader_id is None or not _is_reachable(view.leader_id, cluster):
        return None
    return Leader(view.leader_id, view.leader_epoch)


def meet_hint(queue: PartitionQueue, result: Appended, leader_epoch: Epoch | None) -> ProducerEffects:
    """Takes the leader that an error names, if the leader is later than that of the attempt."""
    hint = result.current_leader
    if hint is None or result.place.topic_id != queue.topic_id or hint.leader_epoch <= _known(leader_epoch):
        return []
    if queue.hint is None or hint.leader_epoch > queue.hint.leader_epoch:
        queue.hint = hint
    return [NoteLeaderEpoch(queue.key, hint.leader_epoch, queue.topic_id)]


def doubt_hint(queue: PartitionQueue, leader_epoch: Epoch | None) -> None:
    """Forgets a hint that has led to a failure: the next attempt goes by the view. After `quorum recover` leader epochs begin
    anew, and the view would never reach the epoch of an old hint."""
    if queue.hint is not None and queue.hint.leader_epoch == leader_epoch:
        queue.hint = None


def _is_reachable(node_id: NodeId, cluster: Cluster) -> bool:
    """Returns True if the view has the broker's address for this client."""
    node = cluster.nodes.get(node_id)
    return node is not None and node.has_address


def _known(epoch: Epoch | None) -> Epoch:
    """Returns an epoch to compare with others; an unknown epoch is older than any other."""
    return -1 if epoch is None else epoch
