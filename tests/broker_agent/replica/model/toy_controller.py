"""A controller of one partition, small enough to be checked by eye: registration, fencing, elections, AlterPartition.

It obeys the rules of the real controller, without unclean elections: the last member of the ISR stays in the ISR, and only a
member of the ISR leads. Each state is kept, so that each broker can read them one by one, and late.
"""

from dataclasses import dataclass

from broker_agent.replica.isr import ANY_BROKER_EPOCH, IsrAnswer, PartitionMetadata, ProposeIsr
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, NodeId


@dataclass(frozen=True)
class State:
    """One version of the metadata."""

    partition: PartitionMetadata
    registered: dict[NodeId, int]
    """Broker -> broker epoch."""
    active: frozenset[NodeId]
    """The unfenced brokers."""

    @property
    def candidates(self) -> dict[NodeId, int]:
        return {broker_id: self.registered[broker_id] for broker_id in self.active}


class ToyController:
    """The partition with the replicas 1,2,3; all brokers are registered and active at first."""

    def __init__(self, replicas: tuple[NodeId, ...]) -> None:
        registered = {broker_id: 10 + broker_id for broker_id in replicas}
        first = PartitionMetadata(replicas[0], 1, 0, replicas, replicas)
        self.states = [State(first, registered, frozenset(replicas))]
        self.next_broker_epoch = 100

    @property
    def now(self) -> State:
        return self.states[-1]

    # --- brokers -----------------------------------------------------------------------------------------------------

    def register(self, broker_id: NodeId) -> int:
        """A new process of a broker: it leaves the ISR, and is fenced at first."""
        self.next_broker_epoch += 1
        registered = self.now.registered | {broker_id: self.next_broker_epoch}
        self._leave(broker_id, registered)
        return self.next_broker_epoch

    def fence(self, broker_id: NodeId) -> None:
        self._leave(broker_id, self.now.registered)

    def unfence(self, broker_id: NodeId) -> None:
        """An active member of the ISR leads a partition without a leader."""
        self._write(self.now.partition.isr, self.now.registered, self.now.active | {broker_id})

    def prefer(self, broker_id: NodeId) -> None:
        """An operator moves the leadership to another active member of the ISR."""
        state = self.now
        if broker_id in state.partition.isr and broker_id in state.active and broker_id != state.partition.leader_id:
            self._write(state.partition.isr, state.registered, state.active, leader_id=broker_id)

    def _leave(self, broker_id: NodeId, registered: dict[NodeId, int]) -> None:
        before = self.now.partition.isr
        isr = tuple(member for member in before if member != broker_id) or before
        self._write(isr, registered, self.now.active - {broker_id})

    # --- AlterPartition ----------------------------------------------------------------------------------------------

    def alter(self, sender: NodeId, proposal: ProposeIsr) -> IsrAnswer:
        """Compare and set, in the real controller's order of checks."""
        state, now = self.now, self.now.partition
        if self._is_retry(sender, proposal):
            return self._granted()
        if proposal.leader_epoch > now.leader_epoch or proposal.partition_epoch > now.partition_epoch:
            return IsrAnswer(ErrorCode.NOT_CONTROLLER)
        if proposal.leader_epoch < now.leader_epoch:
            return IsrAnswer(ErrorCode.FENCED_LEADER_EPOCH)
        if now.leader_id != sender:
            return IsrAnswer(ErrorCode.INVALID_REQUEST)
        if proposal.partition_epoch < now.partition_epoch:
            return IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION)
        assert sender in proposal.members
        assert set(proposal.members) <= set(now.replicas)
        for member in proposal.isr:
            same = member.broker_epoch in (ANY_BROKER_EPOCH, state.registered[member.broker_id])
            if not same or member.broker_id not in state.active:
                return IsrAnswer(ErrorCode.INELIGIBLE_REPLICA)
        self._write(proposal.members, state.registered, state.active)
        return self._granted()

    def _is_retry(self, sender: NodeId, proposal: ProposeIsr) -> bool:
        state, now = self.now, self.now.partition
        return (
            (now.leader_id, now.leader_epoch, now.isr) == (sender, proposal.leader_epoch, proposal.members)
            and now.partition_epoch == proposal.partition_epoch + 1
            and all(
                member.broker_epoch in (ANY_BROKER_EPOCH, state.registered[member.broker_id]) for member in proposal.isr
            )
        )

    def _granted(self) -> IsrAnswer:
        now = self.now.partition
        return IsrAnswer(ErrorCode.NONE, now.leader_epoch, now.partition_epoch, now.isr)

    def _write(
        self,
        isr: tuple[NodeId, ...],
        registered: dict[NodeId, int],
        active: frozenset[NodeId],
        leader_id: NodeId | None = None,
    ) -> None:
        before = self.now.partition
        present = [broker_id for broker_id in before.replicas if broker_id in isr and broker_id in active]
        if leader_id is None:
            stays = before.leader_id in present
            leader_id = before.leader_id if stays else next(iter(present), NO_LEADER)
        changed = (leader_id, isr) != (before.leader_id, before.isr)
        epoch = before.leader_epoch + (leader_id != before.leader_id)
        partition = PartitionMetadata(leader_id, epoch, before.partition_epoch + changed, before.replicas, isr)
        self.states.append(State(partition, registered, active))
