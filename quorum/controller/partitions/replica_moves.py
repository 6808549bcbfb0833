"""The sum of the partition changes that follow from a broker's change of state, for one line in the log.

Example. Broker 7 holds 100,000 replicas, and its session ends.
    1  The controller changes the partitions in 113 batches. Each batch is added to the sum.
    2  The last batch has the fence record. Its decision tells `BrokerFenced` and one `ReplicasMoved` with the whole sum.

If the work is cut short, because the leadership ends or the broker registers anew, the sum so far is not told.
"""

from collections.abc import Iterable, Sequence

from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.partition_state import ELR
from metadata_log.format.records import RECOVERING, PartitionChange
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.brokers.broker_happenings import ReplicasMoved
from quorum.controller.protocol.brokers.state_reason import StateReason


def elected_from_elr(image: MetadataImage, changes: Iterable[PartitionChange]) -> int:
    """Counts the changes whose new leader is an eligible leader replica in `image`, the image before the changes."""
    count = 0
    for topic_id, partition, leader in [(each.topic_id, each.partition, each.leader) for each in changes]:
        if leader is not None and leader != NO_LEADER:
            topic = image.topic_by_id(topic_id)
            state = None if topic is None else topic.state(partition)
            count += state is not None and leader in state[ELR]
    return count


class ReplicaMoves:
    """Counts changes of partitions over several batches."""

    __slots__ = ("_changes", "_from_elr", "_isr_changed", "_leaders_moved", "_unclean", "_without_leader")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._changes = self._leaders_moved = self._without_leader = self._isr_changed = self._unclean = 0
        self._from_elr = 0

    def add(self, image: MetadataImage, changes: Sequence[PartitionChange]) -> None:
        """Adds the changes of one batch, which are not yet in `image`."""
        elected = [change.leader for change in changes if change.leader is not None]
        without_leader = elected.count(NO_LEADER)
        self._changes += len(changes)
        self._leaders_moved += len(elected) - without_leader
        self._without_leader += without_leader
        self._isr_changed += sum([change.isr is not None for change in changes])
        self._unclean += sum([change.leader_recovery_state == RECOVERING for change in changes])
        self._from_elr += elected_from_elr(image, changes)

    def take(self, broker_id: NodeId, why: StateReason) -> tuple[ReplicasMoved, ...]:
        """The happening that sums up all changes since the last call; none if there were no changes."""
        if not self._changes:
            return ()
        told = ReplicasMoved(
            broker_id,
            why,
            leaders_moved=self._leaders_moved,
            without_leader=self._without_leader,
            isr_changed=self._isr_changed,
            unclean=self._unclean,
            from_elr=self._from_elr,
        )
        self._clear()
        return (told,)
