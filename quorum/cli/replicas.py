"""What the quorum says of itself, asked of every controller that can be reached: the leader's word counts most."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from quorum.cli.words import endpoint_text

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from quorum.wire.client import AdminClient

SILENT: Final = "silent"
"""The status of a voter that its leader has not heard for as long as it gives its quorum."""


def no_leader_text(document: Mapping[str, Any]) -> str:
    """Since when nobody leads, and why, as the controller says that answered."""
    for_ms, reason = document["no_leader_for_ms"], document["no_leader_reason"] or "it does not say why"
    since = "" if for_ms is None else f"for {for_ms / 1_000:.1f} s, "
    return f"{since}as controller {document['answered_by']} says: {reason}"


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


async def answer_and_concerns(client: AdminClient) -> tuple[admin_pb2.DescribeQuorumResponse, dict[int, str]]:
    """The best answer; and what is wrong with each controller that it names, by node id, as that one says itself.

    A full or damaged disk is known to nobody else, and the leader's word is not about it. Who cannot be asked is left out.

    Raises:
        AdminError: nobody could be asked.
    """
    best = await best_answer(client)
    others = [each for each in (*best.voters, *best.observers) if each.node_id != best.node_id]
    endpoints = {endpoint_text(each.endpoint) for each in others if each.HasField("endpoint")}
    asked = await asyncio.gather(*(client.describe_quorum(each) for each in endpoints), return_exceptions=True)
    answers = [best, *(each for each in asked if not isinstance(each, BaseException))]
    return best, {each.node_id: each.concern for each in answers if each.concern}
