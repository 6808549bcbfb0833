"""The laws of ISR proposals accuse a wrong answer, and no right one."""

from dataclasses import replace

import pytest

from metadata_log.format.batch import Batch
from metadata_log.format.codec import UnknownRecord
from metadata_log.format.records import Record
from quorum.controller.protocol.commands import (
    AlterPartition,
    AlterPartitionReply,
    Command,
    IsrMember,
    PartitionAlteration,
)
from quorum.controller.protocol.election_commands import ElectionType, ElectLeaders, TopicPartition
from quorum.controller.protocol.reassignment_commands import AlterPartitionReassignments, Reassignment
from tests.quorum.controller.cluster import Cluster
from tests.sim.coverage import Coverage
from tests.sim.history import Step
from tests.sim.laws import LawBroken
from tests.sim.laws.proposals import ProposalLaws


def committed(laws: ProposalLaws, cluster: Cluster, command: Command) -> object:
    """The answer to `command`; what it wrote is committed."""
    before = cluster.image
    done = cluster.run(command)
    records: tuple[Record | UnknownRecord, ...] = tuple(done.records)
    batch = Batch(before.offset, 1, len(records), 0, 0, False, b"", b"")
    laws.committed(Step(before, batch, records, cluster.image, cluster.image.offset))
    return done.reply


def test_a_proposal_may_finish_a_reassignment_and_leave_the_isr_as_it_was() -> None:
    """1. The target of t-0 is broker 1 alone, and broker 1 was elected uncleanly. 2. Broker 1 proposes the ISR 1,2. 3. The answer
    is the ISR 1, as before: broker 2 was removed. 4. The law accepts the answer, but none from another process of broker 1."""
    cluster, laws = Cluster(3), ProposalLaws(Coverage())
    cluster.assign("t", (0, 1, 2))
    begun = cluster.partitions("t")[0]

    def proposal(leader: int, *isr: int) -> AlterPartition:
        now = cluster.partitions("t")[0]
        epochs = now.leader_epoch, now.partition_epoch
        change = PartitionAlteration(begun.topic_id, 0, *epochs, tuple(IsrMember(each) for each in isr))
        return AlterPartition(leader, cluster.image.brokers[leader].broker_epoch, (change,))

    committed(laws, cluster, proposal(0, 0))
    committed(laws, cluster, AlterPartitionReassignments((Reassignment("t", 0, (1,)),)))
    cluster.contact(0, wants_fence=True)
    committed(laws, cluster, ElectLeaders((TopicPartition("t", 0),), ElectionType.UNCLEAN))

    asked = proposal(1, 1, 2)
    reply = committed(laws, cluster, asked)

    assert isinstance(reply, AlterPartitionReply) and reply.results[0].isr == (1,)
    laws.answered(asked, reply)
    with pytest.raises(LawBroken, match="StaleEpoch"):
        laws.answered(replace(asked, broker_epoch=asked.broker_epoch - 1), reply)
