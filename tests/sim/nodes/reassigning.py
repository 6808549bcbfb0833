"""A simulated operator of replicas: begins, replaces and cancels reassignments of partitions."""

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
LARGE_CHANCE = 0.3
PARTITIONS_MAX = 4
LARGE_PARTITIONS = 15
"""How many partitions a large request names. Some of them may not exist."""
REPLICAS_MAX = 3


def reassign(client: "SimClient", topic: str, dice: random.Random) -> None:
    """Some partitions of the topic shall have replicas on other brokers, or again those they had; some brokers may be gone."""
    cluster, laws = client.cluster, client.cluster.laws
    brokers = sorted(cluster.brokers)
    wanted: list[Reassignment] = []
    is_large = cluster.options.large_topic_chance > 0 and dice.random() < LARGE_CHANCE
    for partition in range(LARGE_PARTITIONS if is_large else dice.randint(1, PARTITIONS_MAX)):
        target = tuple(dice.sample(brokers, dice.randint(1, min(REPLICAS_MAX, len(brokers)))))
        wanted.append(Reassignment(topic, partition, None if dice.random() < CANCEL_CHANCE else target))
    for each in wanted:
        laws.reassignments.asked(each)

    def answered(answer: Answer, floor: Offset) -> None:
        if isinstance(answer, AlterPartitionReassignmentsReply):
            results = answer.results
            is_forgotten = (
                not results and len(wanted) > PARTITIONS_MAX
            )  # a large answer is remembered without its results
            text = f"{len(results)} results of {len(wanted)}"
            hold(len(results) == len(wanted) or is_forgotten, "C1 Answered", text)
            done = [each for each, result in zip(wanted, results, strict=False) if result.error is ErrorCode.NONE]
            cluster.coverage["reassignment answered"] += len(done)
            laws.clients.answered(answer.offset, floor)
            laws.reassignments.answered(done, answer.offset)

    client.submit(AlterPartitionReassignments(tuple(wanted)), answered)
