"""Changes of the voter set and of the leader: what is refused, and that a refusal changes nothing (KIP-853)."""

import pytest

from metadata_log.errors import ErrorCode
from quorum.core.effects import Effect, Reply
from quorum.core.inputs import ShutDown
from quorum.core.messages import (
    AddVoterRequest,
    QuorumChangeRequest,
    QuorumChangeResponse,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    UpdateVoterRequest,
)
from tests.core.cluster import voter
from tests.core.situations import follower
from tests.core.solo import key, only

EVERY_KIND: tuple[QuorumChangeRequest, ...] = (
    AddVoterRequest(voter(4), ack_when_committed=True, timeout_ms=1000),
    RemoveVoterRequest(key(3), timeout_ms=1000),
    UpdateVoterRequest(voter(3), epoch=3, timeout_ms=1000),
    TransferLeadershipRequest(2, timeout_ms=1000),
)


def answer(effects: list[Effect]) -> QuorumChangeResponse:
    response = only(Reply, effects).response
    assert isinstance(response, QuorumChangeResponse)
    return response


@pytest.mark.parametrize("request_", EVERY_KIND)
def test_whoever_does_not_lead_names_the_leader(request_: QuorumChangeRequest) -> None:
    solo, _ = follower(1, 1)
    said = answer(solo.request(request_))
    assert (said.error, said.leader_id, said.epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 3)


@pytest.mark.parametrize("request_", EVERY_KIND)
def test_a_node_that_shuts_down_begins_nothing(request_: QuorumChangeRequest) -> None:
    solo, _ = follower(1, 1)
    solo.step(ShutDown())
    assert answer(solo.request(request_)).error is ErrorCode.BROKER_NOT_AVAILABLE
