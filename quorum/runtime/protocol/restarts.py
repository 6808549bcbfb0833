"""May a controller be restarted now? What an operator, or Kubernetes, asks before each step of a rolling restart.

Yes, if the voters that remain and have kept up are a majority by themselves: then every write goes on being acknowledged
while it is away. Only the leader knows who has kept up.
"""

from typing import NamedTuple

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId
from quorum.runtime.protocol.requests import NodeStatus, Refused, ReplicaView


class RestartAdvice(NamedTuple):
    """The answer, and why."""

    can_restart: bool
    reason: str


def restart_advice(
    status: NodeStatus, node_id: NodeId, keeps_majority: bool | None, caught_up_within_ms: int
) -> RestartAdvice:
    """Whether `node_id` may be restarted: the core's verdict (`RaftCore.keeps_majority_without`; None: no leader), in words.

    Raises:
        Refused: NOT_CONTROLLER where this node does not lead; VOTER_NOT_FOUND for a node that nobody has heard of.
    """
    if keeps_majority is None:
        text = f"node {status.node_id} does not lead, and only the leader knows who has kept up"
        raise Refused(ErrorCode.NOT_CONTROLLER, text, status.leader)
    voters = [replica for replica in status.replicas if replica.is_voter]
    if node_id not in [replica.node_id for replica in voters]:
        if node_id not in [replica.node_id for replica in status.replicas]:
            text = f"controller {node_id} is neither voter nor observer"
            raise Refused(ErrorCode.VOTER_NOT_FOUND, text, status.leader)
        return RestartAdvice(True, f"controller {node_id} is an observer, and nobody counts on it")

    def is_behind(replica: ReplicaView) -> bool:
        age_ms = replica.last_caught_up_age_ms
        return replica.node_id != status.node_id and (age_ms is None or age_ms >= caught_up_within_ms)

    majority = len(voters) // 2 + 1
    behind = [str(replica.node_id) for replica in voters if replica.node_id != node_id and is_behind(replica)]
    away = f"; behind or silent: {', '.join(behind)}" if behind else ""
    if keeps_majority:
        return RestartAdvice(True, f"{majority} of {len(voters)} voters are needed, and remain{away}")
    return RestartAdvice(False, f"{majority} of {len(voters)} voters are needed, and fewer would remain{away}")
