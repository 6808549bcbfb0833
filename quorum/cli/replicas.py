"""What the quorum says of itself, asked of every controller that can be reached: the leader's word counts most."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from quorum.wire.client import AdminClient


async def best_answer(client: AdminClient) -> admin_pb2.DescribeQuorumResponse:
    """What the leader says of itself; where it cannot be asked, what the node in the highest epoch knows.

    Raises:
        AdminError: nobody could be asked.
    """
    from quorum.wire.client_errors import AdminError, target_of

    asked = await asyncio.gather(
        *(client.describe_quorum(endpoint) for endpoint in client.endpoints), return_exceptions=True
    )
    answers = [each for each in asked if not isinstance(each, BaseException)]
    if not answers:
        for each in asked:
            if isinstance(each, BaseException):
                raise each
    best = max(answers, key=lambda answer: (answer.epoch, answer.role == "leader", answer.leader.HasField("leader_id")))
    target = target_of(best.leader)
    if best.role != "leader" and target is not None:
        try:
            leader = await client.describe_quorum(target)
        except AdminError:
            return best
        if leader.epoch >= best.epoch:
            return leader
    return best
