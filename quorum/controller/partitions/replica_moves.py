"""The sum of the partition changes that follow from a broker's change of state, for one line in the log.

Example. Broker 7 holds 100,000 replicas, and its session ends.
    1  The controller changes the partitions in 113 batches. Each batch is added to the sum.
    2  The last batch has the fence record. Its decision tells `BrokerFenced` and one `ReplicasMoved` with the whole sum.

If the work is cut short, because the leadership ends or the broker registers anew, the sum so far is not told.
"""

from collections.abc import Sequence

from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.records import RECOVERING, PartitionChange
from quorum.controller.protocol.happenings import ReplicasMoved, StateReason


class ReplicaMoves:
    """Counts changes of partitions over several batches."""

    __slots__ = ("_changes", "_isr_changed", "_leaders_moved", "_unclean", "_without_leader")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._changes = self._leaders_moved = self._without_leader = self._isr_changed = self._unclean = 0

    def add(self, changes: Sequence[PartitionChange]) -> None:
        """Adds the changes of one batch."""
        elected = [change.leader for change in changes if change.leader is not None]
        without_leader = elected.count(NO_LEADER)
        self._changes += len(changes)
        self._leaders_moved += len(elected) - without_leader
        self._without_leader += without_leader
        self._isr_changed += sum([change.isr is not None for change in changes])
        self._unclean += sum([change.leader_recovery_state == RECOVERING for change in changes])

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
        )
        self._clear()
        return (told,)
