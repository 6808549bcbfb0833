"""The claims that an operator notes of an answer. A call without an answer claims nothing."""

import random
from typing import Any

import pytest
from quorum_rpc.v1 import admin_pb2

from metaquorum import AdminError, ErrorCode, MayHaveHappened
from tests.chaos.judge.history import Outcome
from tests.chaos.operators import requests
from tests.chaos.operators.calls import Ask, OperatorCall
from tests.chaos.operators.claims import LeaderOf, LevelOf, ModeOf, PartitionCount, TargetOf
from tests.chaos.operators.operators import Operators

BROKERS = (101, 102, 103, 104)
DICE = random.Random(1)


class FakeAdmin:
    """Answers with one message, or with an error, and names each change as `AdminClient` does."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def call(self, request: Any, response_type: type[Any]) -> Any:
        request.context.request_id = bytes([7]) * 16
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def noted(ask: Ask, answer: Any) -> OperatorCall:
    operators = Operators(lambda number, dice: pytest.fail("nobody connects"), 1, 0, BROKERS, 0.0)
    admin: Any = FakeAdmin(answer)
    return await operators.call(admin, 1, ask)


def refused(result: Any, code: ErrorCode) -> Any:
    result.error.code = code
    return result


async def test_the_parts_that_were_done_are_claimed() -> None:
    """One of two partitions has the leader; the other was refused, and nothing is claimed of it."""
    results = [
        admin_pb2.ElectionResult(topic="orders", partition=1, leader_id=102),
        refused(admin_pb2.ElectionResult(topic="orders", partition=2), ErrorCode.ELECTION_NOT_NEEDED),
    ]
    answer = admin_pb2.ElectLeadersResponse(offset=40, results=results)
    call = await noted(requests.elect_preferred(DICE, BROKERS), answer)
    assert (call.outcome, call.offset, call.claims) == (Outcome.DONE, 40, (LeaderOf("orders", 1, 102),))
    assert call.request_id == bytes([7]) * 16


async def test_a_call_that_was_refused_in_all_its_parts_has_failed() -> None:
    result = refused(admin_pb2.ReassignmentResult(topic="orders"), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    answer = admin_pb2.AlterPartitionReassignmentsResponse(offset=-1, results=[result])
    call = await noted(requests.cancel(DICE, BROKERS), answer)
    assert (call.outcome, call.offset, call.claims) == (Outcome.FAILED, None, ())


async def test_a_call_without_an_answer_claims_nothing() -> None:
    call = await noted(requests.drain(DICE, BROKERS), MayHaveHappened(ErrorCode.REQUEST_TIMED_OUT, "gone"))
    assert (call.outcome, call.claims) == (Outcome.UNKNOWN, ())
    call = await noted(requests.drain(DICE, BROKERS), AdminError(ErrorCode.NOT_CONTROLLER, "nobody leads"))
    assert (call.outcome, call.claims) == (Outcome.FAILED, ())


async def test_a_list_of_reassignments_claims_also_what_is_not_listed() -> None:
    moving = admin_pb2.OngoingReassignment(
        topic="orders", partition=0, replicas=[104, 102, 101], removing_replicas=[101]
    )
    answer = admin_pb2.ListPartitionReassignmentsResponse(as_of_offset=50, reassignments=[moving])
    call = await noted(requests.list_reassignments(DICE, BROKERS), answer)
    assert len(call.claims) == len(requests.TOPICS) * requests.PARTITIONS
    assert TargetOf("orders", 0, (104, 102)) in call.claims
    assert TargetOf("orders", 1, None) in call.claims


async def test_reads_claim_what_they_have_shown() -> None:
    """An answer out of a broker's own image is marked, because it may be old."""
    local = admin_pb2.LocalView()
    brokers = admin_pb2.ListBrokersResponse(
        as_of_offset=60, brokers=[admin_pb2.BrokerListing(broker_id=103, mode="fenced")], local=local
    )
    call = await noted(requests.list_brokers(DICE, BROKERS), brokers)
    assert (call.offset, call.claims, call.is_local) == (60, (ModeOf(103, "fenced"),), True)

    features = [admin_pb2.DescribedFeature(name="metadata.version", finalized_level=2)]
    answer = admin_pb2.DescribeFeaturesResponse(as_of_offset=61, features=features)
    call = await noted(requests.describe_features(DICE, BROKERS), answer)
    assert (call.claims, call.is_local) == ((LevelOf("metadata.version", 2),), False)


async def test_a_topic_that_a_read_has_not_found_has_no_partitions() -> None:
    gone = refused(admin_pb2.TopicDescription(name="orders"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ask = requests.describe_topic(random.Random(3), BROKERS)
    call = await noted(ask, admin_pb2.DescribeTopicsResponse(as_of_offset=70, topics=[gone]))
    (claim,) = call.claims
    assert isinstance(claim, PartitionCount) and claim.partitions == 0
