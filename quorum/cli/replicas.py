"""Asks every reachable controller for the state of the quorum; the leader's answer counts most."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from quorum.wire.words import endpoint_text, problems_in

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient

SILENT: Final = "silent"
"""The status of a voter that the leader has not heard for a whole fetch timeout."""


def no_leader_text(document: Mapping[str, Any]) -> str:
    """Since when there has been no leader, and the reason, as the answering controller reports it."""
    for_ms, reason = document["no_leader_for_ms"], document["no_leader_reason"] or "it does not say why"
    since = "" if for_ms is None else f"for {for_ms / 1_000:.1f} s, "
    return f"{since}as controller {document['answered_by']} says: {reason}"


async def best_answer(client: AdminClient) -> admin_pb2.DescribeQuorumResponse:
    """Returns the leader's status; if no leader answers, the status of the controller in the highest epoch.

    Raises:
        AdminError: no controller has answered.
    """
    from clients.errors import error_of_each, target_of
    from metaquorum import AdminError

    asked = await asyncio.gather(
        *(client.describe_quorum(endpoint) for endpoint in client.endpoints), return_exceptions=True
    )
    answers = [
        (each, endpoint)
        for each, endpoint in zip(asked, client.endpoints, strict=True)
        if not isinstance(each, BaseException)
    ]
    if not answers:
        errors = {}
        for endpoint, error in zip(client.endpoints, asked, strict=True):
            if not isinstance(error, AdminError):  # for example a name that is not UTF-8
                assert isinstance(error, BaseException), error
                raise error
            errors[endpoint] = error
        raise error_of_each(errors)
    best, endpoint = max(
        answers, key=lambda answer: (answer[0].epoch, is_leaders(answer[0]), answer[0].leader.HasField("leader_id"))
    )
    target = target_of(best.leader)
    if is_leaders(best) or target is None:
        return best
    # A controller asks the leader first: the leader may be out of reach from here, for example behind a firewall.
    for asked_at, of_leader in ((endpoint, True), (target, False)):
        try:
            leader = await client.describe_quorum(asked_at, of_leader=of_leader)
        except AdminError:
            continue
        if is_leaders(leader) and leader.epoch >= best.epoch:
            return leader
    return best


def is_leaders(answer: admin_pb2.DescribeQuorumResponse) -> bool:
    """True if the answer comes from the leader: only the leader knows which voters are silent, and how far they lag."""
    return answer.role == "leader"


class Heard(NamedTuple):
    """The answers of the controllers, and the errors of those that did not answer, by node id."""

    best: admin_pb2.DescribeQuorumResponse
    """The leader's answer, or the answer of the controller that knows most."""
    answers: dict[int, admin_pb2.DescribeQuorumResponse]
    missing: dict[int, str]


async def hear_all(client: AdminClient) -> Heard:
    """Asks every controller that the best answer names.

    Raises:
        AdminError: no controller has answered.
    """
    best = await best_answer(client)
    others = [each for each in (*best.observers, *best.voters) if each.node_id != best.node_id]
    targets = {each.node_id: endpoint_text(each.endpoint) for each in others if each.HasField("endpoint")}
    asked = await asyncio.gather(*map(client.describe_quorum, targets.values()), return_exceptions=True)
    unknown = {each.node_id for each in others} - targets.keys()
    heard = Heard(best, {best.node_id: best}, dict.fromkeys(unknown, "its address is not known"))
    for node_id, answer in zip(targets, asked, strict=True):
        if isinstance(answer, BaseException):
            heard.missing[node_id] = " ".join(str(answer).split())
        elif answer.cluster_id != best.cluster_id:
            heard.missing[node_id] = (
                f"a controller of another cluster, {answer.cluster_id}, listens at {targets[node_id]}"
            )
        else:
            heard.answers[answer.node_id] = answer
    return heard


async def answer_and_problems(client: AdminClient) -> tuple[admin_pb2.DescribeQuorumResponse, list[dict[str, Any]]]:
    """Returns the best answer, with the problems that each controller in it reports for itself.

    Only a controller itself knows that its disk is full or damaged. A controller without an answer is left out.

    Raises:
        AdminError: no controller has answered.
    """
    heard = await hear_all(client)
    rows = [
        {"node_id": node_id, **each}
        for node_id in sorted(heard.answers)
        for each in problems_in(heard.answers[node_id])
    ]
    return heard.best, rows
