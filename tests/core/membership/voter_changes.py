"""Readers for the effects of changes of the voter set."""

from metadata_log.format.records import Endpoint, Voters
from quorum.core.protocol.effects import AppendControl, Effect, Reply
from quorum.core.protocol.messages import QuorumChangeResponse
from tests.core.solo import only

ELSEWHERE = (Endpoint("CONTROLLER", "elsewhere", 9093),)


def answers(effects: list[Effect]) -> list[QuorumChangeResponse]:
    return [e.response for e in effects if isinstance(e, Reply) and isinstance(e.response, QuorumChangeResponse)]


def answer(effects: list[Effect]) -> QuorumChangeResponse:
    (response,) = answers(effects)
    return response


def appended(effects: list[Effect]) -> tuple[int, ...]:
    """The ids of the appended voter set."""
    record = only(AppendControl, effects).record
    assert isinstance(record, Voters)
    return tuple(each.node_id for each in record.voters)
