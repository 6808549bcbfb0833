"""The laws of ISR proposals: the changes granted to a leader of partitions (M2, M4, M5; KIP-497, KIP-903).

A granted proposal changes the ISR exactly as proposed, and nothing else. The proposer led the partition in the named
state, still leads the partition, and is in the ISR. Each member is the very process known to the proposer.

Example:

    1. Broker 101 leads orders-0 with the ISR (101, 102), and proposes (102, 103).
    2. Granted, the proposal would move the leadership without fencing broker 101.
    3. Broker 101 still has a lease, and would serve beside the new leader. The state would look right in every replay.
"""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Uuid
from metadata_log.format.partition_state import ISR, PARTITION_EPOCH
from metadata_log.format.records import PartitionChange
from quorum.controller.protocol.commands import (
    ANY_BROKER_EPOCH,
    AlterPartition,
    AlterPartitionReply,
    PartitionAlteration,
    PartitionAlterationResult,
)
from tests.sim.coverage import Coverage
from tests.sim.history import Step
from tests.sim.laws.broken import LawBroken, hold


class ProposalLaws:
    """Checks every committed batch, in order, and every answer to a proposal."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._epochs: dict[tuple[Uuid, int, int], dict[NodeId, int]] = {}
        """By partition and partition epoch: the members of the ISR, each with its broker epoch at that time."""

        self._reassigned: set[tuple[Uuid, int, int]] = set()
        """The partitions, with their epochs, whose replicas changed too: a proposal has completed a reassignment."""

    def committed(self, step: Step) -> None:
        """Notes the ISR changes of a newly committed batch. A proposal that completes a reassignment may keep the ISR."""
        for record in step.records:
            if not isinstance(record, PartitionChange) or (record.isr is None and record.replicas is None):
                continue
            topic = step.after.topic_by_id(record.topic_id)
            state = None if topic is None else topic.state(record.partition)
            if state is not None:
                place = record.topic_id, record.partition, state[PARTITION_EPOCH]
                if record.replicas is not None or record.adding_replicas is not None:
                    self._reassigned.add(place)
                members = (step.after.brokers.get(each) for each in state[ISR])
                self._epochs[place] = {each.broker_id: each.broker_epoch for each in members if each is not None}

    def answered(self, command: AlterPartition, reply: AlterPartitionReply) -> None:
        """Checks an answer to a leader's proposals."""
        asked = {(each.topic_id, each.partition): each for each in command.partitions}
        for result in reply.results:
            if result.error is ErrorCode.NONE:
                self._coverage["ISR proposal granted"] += 1
                self._check_granted(command, asked[result.topic_id, result.partition], result)

    def _check_granted(
        self, command: AlterPartition, proposal: PartitionAlteration, result: PartitionAlterationResult
    ) -> None:
        who, isr = f"b{command.broker_id}'s ISR", tuple(member.broker_id for member in proposal.new_isr)
        if result.partition_epoch > proposal.partition_epoch + 1:
            text = f"{who} for epoch {proposal.partition_epoch} was taken at {result.partition_epoch - 1}"
            raise LawBroken("M5 CompareAndSet", text)
        leads = result.leader_id == command.broker_id and command.broker_id in isr
        hold(leads, "M4 IsrHasItsLeader", f"{who} {isr} was granted; {result.leader_id} leads now")
        place = result.topic_id, result.partition, result.partition_epoch
        is_as_proposed = set(result.isr) <= set(isr) if place in self._reassigned else result.isr == isr
        hold(is_as_proposed and len(set(isr)) == len(isr), "M4 IsrAsProposed", f"{who} {isr} became {result.isr}")
        epochs = self._epochs.get(place)
        if epochs is None:
            return  # the topic was removed, or the partition had this ISR before
        claimed = {
            member.broker_id: member.broker_epoch for member in proposal.new_isr if member.broker_id in result.isr
        }
        same = all(epoch in (ANY_BROKER_EPOCH, epochs[member]) for member, epoch in claimed.items())
        hold(same, "M5 IsrOfThisLife", f"{who} {claimed} was granted; they are registered as {epochs}")
        own = epochs[command.broker_id]
        hold(own == command.broker_epoch, "M2 StaleEpoch", f"{who}, said by its life {command.broker_epoch}, in {own}")
