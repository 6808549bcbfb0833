"""The report of a death: one request to the active controller, repeated until an answer or until the session would end anyway.

1. The watcher asks controller 1, which does not lead, and names controller 2.
2. Controller 2 fences the broker, and its answer is lost.
3. The watcher asks again. The death is in the log, and the answer is the same.
"""

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import grpc
from quorum_rpc.v1 import broker_pb2, broker_pb2_grpc

from broker_agent import convert
from broker_agent.client import UNDECODABLE
from broker_agent.death.proof import DeathCertificate
from broker_agent.session.lifecycle import LeaderHint
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId
from service_kit.process.endpoints import HostPort
from service_kit.rpc.dial import Reach, WrongServer

CALL_TIMEOUT_S: Final = 1.0
PAUSE_S: Final = 0.05
_SUPERSEDED: Final = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})
_REFUSED: Final = frozenset(
    {
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_CONTROL_GENERATION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
    }
)


class Outcome(Enum):
    """The end of a report."""

    FENCED = "fenced"
    """The broker is fenced, and its process is never unfenced again."""
    NOTHING_TO_DO = "nothing to do"
    """None of the dead processes is registered."""
    REFUSED = "refused"
    """The controllers do not take the report; the session's end fences the broker."""
    UNANSWERED = "unanswered"
    """No controller has answered in time; the session's end fences the broker."""


class Reported(NamedTuple):
    outcome: Outcome
    reason: str


async def report(
    certificate: DeathCertificate, controllers: Sequence[HostPort], reach: Reach, within_s: float
) -> Reported:
    """Reports the death to the active controller, for at most `within_s`."""
    request = broker_pb2.ReportDeathRequest(
        cluster_id=certificate.cluster_id,
        broker_id=certificate.broker_id,
        generation=certificate.generation,
        incarnation_ids=certificate.incarnations,
    )
    last = Reported(Outcome.UNANSWERED, "no controller was asked")
    turn, target, leader_id = 0, controllers[0].target, None
    try:
        async with asyncio.timeout(within_s):
            while True:
                last, hint = await _ask(request, reach, target, leader_id)
                if last.outcome is not Outcome.UNANSWERED:
                    return last
                if hint is not None and HostPort(hint.host, hint.port).target != target:
                    target, leader_id = HostPort(hint.host, hint.port).target, hint.leader_id
                    continue
                await asyncio.sleep(PAUSE_S)
                turn += 1
                target, leader_id = controllers[turn % len(controllers)].target, None
    except TimeoutError:
        return last


async def _ask(
    request: broker_pb2.ReportDeathRequest, reach: Reach, target: str, leader_id: NodeId | None
) -> tuple[Reported, LeaderHint | None]:
    """Asks one controller; returns what came of it, and the leader that the controller names."""
    try:
        channel = await reach(target, leader_id)
        stub: Any = broker_pb2_grpc.BrokerServiceStub(channel)  # type: ignore[no-untyped-call]
        response = await stub.ReportDeath(request, timeout=CALL_TIMEOUT_S)
    except (WrongServer, OSError) as e:
        return Reported(Outcome.UNANSWERED, f"{target}: {e}"), None
    except grpc.aio.AioRpcError as e:
        is_older = e.code() is grpc.StatusCode.UNIMPLEMENTED
        outcome = Outcome.REFUSED if is_older else Outcome.UNANSWERED
        return Reported(outcome, f"{target}: {e.code().name}: {e.details()}"), None
    if response is None:
        return Reported(Outcome.UNANSWERED, f"{target} {UNDECODABLE}"), None
    return _outcome(response, target), convert.leader_hint(response.leader)


def _outcome(response: broker_pb2.ReportDeathResponse, target: str) -> Reported:
    code = ErrorCode.of(response.error.code)
    if code is ErrorCode.NONE:
        return Reported(Outcome.FENCED, f"broker epoch {response.broker_epoch}")
    reason = f"{target}: {code.name}: {response.error.message}"
    if code in _SUPERSEDED:
        return Reported(Outcome.NOTHING_TO_DO, reason)
    return Reported(Outcome.REFUSED if code in _REFUSED else Outcome.UNANSWERED, reason)
