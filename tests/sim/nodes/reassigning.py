"""What a simulated operator does to the replicas of partitions: begins, replaces and cancels reassignments."""

import random
from typing import TYPE_CHECKING

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from quorum.controller.protocol.reassignment_commands import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    Reassignment,
)
from quorum.runtime.protocol.world import Answer
from tests.sim.laws.broken import hold

if TYPE_CHECKING:
    from tests.sim.nodes.clients import SimClient

CANCEL_CHANCE = 0.3
PARTITIONS_MAX = 4
REPLICAS_MAX = 3


def reassign(client: "SimClient", topic: str, dice: random.Random) -> None:
    """Some partitions of the topic shall have replicas on other brokers, or again those they had; some brokers may be gone."""
    cluster, laws = client.cluster, client.cluster.laws
    brokers = sorted(cluster.brokers)
    wanted: list[Reassignment] = []
    for partition in range(dice.randint(1, PARTITIONS_MAX)):
        target = tuple(dice.sample(brokers, dice.randint(1, min(REPLICAS_MAX, len(brokers)))))
        wanted.append(Reassignment(topic, partition, None if dice.random() < CANCEL_CHANCE else target))
    for each in wanted:
        laws.reassignments.asked(each)

    def answered(answer: Answer, floor: Offset) -> None:
        if isinstance(answer, AlterPartitionReassignmentsReply):
            results = answer.results
            hold(len(results) == len(wanted), "C1 Answered", f"{len(results)} results of {len(wanted)}")
            cluster.coverage["reassignment answered"] += sum(each.error is ErrorCode.NONE for each in results)
            laws.clients.answered(answer.offset, floor)

    client.submit(AlterPartitionReassignments(tuple(wanted)), answered)
