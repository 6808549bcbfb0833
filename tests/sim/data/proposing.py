"""The ISR proposals of one broker: on their way to the real controllers, and their answers.

`NO_ANSWER` is told only when the request can no longer arrive: longer than any message is under way, plus the controller's
deadline, and not while the controller sleeps.
"""

from typing import TYPE_CHECKING

from broker_agent.partitions.effects import SendProposal
from broker_agent.replica.isr import NO_ANSWER, IsrAnswer
from quorum.controller.protocol.commands import AlterPartition, AlterPartitionReply, IsrMember, PartitionAlteration
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.world import Answer, Submission
from tests.sim.world.network import SLOW_MAX_MS

if TYPE_CHECKING:
    from tests.sim.data.plane import DataPlane

TIMEOUT_MS = 500
GIVE_UP_MS = SLOW_MAX_MS + 1.1 * TIMEOUT_MS + 50.0
LOOK_AGAIN_MS = 50.0


class Proposing:
    """Sends what the manager's leaders propose."""

    def __init__(self, plane: "DataPlane") -> None:
        self._plane = plane

    def send(self, send: SendProposal) -> None:
        """Asks the controller that the broker asks now."""
        plane, cluster = self._plane, self._plane.cluster
        target, boot, proposal = plane.broker.target, plane.boot, send.proposal
        epoch = plane.broker.session.broker_epoch
        settled = False
        cluster.coverage["data: ISR proposed"] += 1

        def settle(answer: IsrAnswer) -> None:
            nonlocal settled
            if plane.boot == boot and not settled:
                settled = True
                cluster.coverage[f"data: proposal {answer.code.name}"] += 1
                plane.later(
                    0.0, lambda manager: manager.proposal_answered(send, answer, plane.now_ms()), "proposal answer"
                )

        if epoch is not None:
            members = tuple(IsrMember(each.broker_id, each.broker_epoch) for each in proposal.isr)
            topic_id, partition = send.place
            epochs = proposal.leader_epoch, proposal.partition_epoch
            command = AlterPartition(
                plane.broker_id, epoch, (PartitionAlteration(topic_id, partition, *epochs, members),)
            )
            cluster.network.carry(
                plane.name,
                target.name,
                lambda: target.ask(
                    lambda reply_to, now_ms: Submission(command, reply_to, now_ms + TIMEOUT_MS),
                    lambda answer: cluster.network.carry(
                        target.name, plane.name, lambda: settle(_answer(answer)), repeats=False
                    ),
                    f"AlterPartition {plane.name}",
                ),
                repeats=False,
            )

        def give_up() -> None:
            if settled or plane.boot != boot:
                return
            if target.paused:
                cluster.schedule(LOOK_AGAIN_MS, give_up)
            else:
                settle(NO_ANSWER)

        cluster.schedule(GIVE_UP_MS, give_up)


def _answer(answer: Answer) -> IsrAnswer:
    if isinstance(answer, AlterPartitionReply):
        (result,) = answer.results
        return IsrAnswer(result.error, result.leader_epoch, result.partition_epoch, result.isr)
    assert isinstance(answer, Refused)
    return IsrAnswer(answer.code)
