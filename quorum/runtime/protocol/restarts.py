"""The answer to "may this controller be restarted now?", asked before each step of a rolling restart.

The answer is yes if the other voters that have caught up are a majority: then the leader goes on committing while the restarted
controller is away. Only the leader knows which voters have caught up. For example:

    1. Controllers 1, 2 and 3 vote, 1 leads. Controller 3 has been off for a minute.
    2. The operator asks whether controller 2 may be restarted. No: 1 alone is no majority of three.
    3. Controller 3 runs again and catches up. Now the answer is yes: 1 and 3 are a majority.

The leader counts a voter as gone when the voter has not fetched for the check-quorum timeout. So the leader looks twice before it
says yes, one such timeout apart:

    1. The operator restarts controller 3, and asks at once about controller 2. Controller 3 caught up 0.1 s ago: yes, at first.
    2. A second later controller 3 has not fetched. The answer is no.
"""

from typing import NamedTuple

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId
from quorum.runtime.protocol.requests import NodeStatus, Refused, ReplicaView


class RestartAdvice(NamedTuple):
    """The answer and its reason."""

    can_restart: bool
    reason: str


def restart_advice(
    status: NodeStatus, node_id: NodeId, keeps_majority: bool | None, caught_up_within_ms: int
) -> RestartAdvice:
    """Turns the core's verdict on `node_id` (`RaftCore.keeps_majority_without`) into words. None: this node does not lead.

    Raises:
        Refused: NOT_CONTROLLER if this node does not lead; VOTER_NOT_FOUND if `node_id` is neither voter nor observer.
    """
    if keeps_majority is None:
        text = f"node {status.node_id} does not lead, and only the leader knows which voters have caught up; nothing was done"
        raise Refused(ErrorCode.NOT_CONTROLLER, text, status.leader)
    voters = [replica for replica in status.replicas if replica.is_voter]
    if node_id not in [replica.node_id for replica in voters]:
        if node_id not in [replica.node_id for replica in status.replicas]:
            text = f"controller {node_id} is neither voter nor observer"
            raise Refused(ErrorCode.VOTER_NOT_FOUND, text, status.leader)
        return RestartAdvice(True, f"controller {node_id} is an observer: no majority needs it")

    def is_behind(replica: ReplicaView) -> bool:
        age_ms = replica.last_caught_up_age_ms
        return replica.node_id != status.node_id and (age_ms is None or age_ms >= caught_up_within_ms)

    majority = len(voters) // 2 + 1
    behind = [str(replica.node_id) for replica in voters if replica.node_id != node_id and is_behind(replica)]
    away = f"; behind or silent: {', '.join(behind)}" if behind else ""
    if keeps_majority:
        return RestartAdvice(True, f"{majority} of {len(voters)} voters are needed, and remain{away}")
    return RestartAdvice(False, f"{majority} of {len(voters)} voters are needed, and fewer would remain{away}")
