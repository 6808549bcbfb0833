"""The report of a death finds the active controller, and is repeated until it is answered."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from quorum_rpc.v1 import broker_pb2, broker_pb2_grpc, common_pb2

from broker_agent.death.proof import DeathCertificate
from broker_agent.death.report import Outcome, report
from metadata_log.format.errors import ErrorCode
from service_kit.process.endpoints import HostPort
from service_kit.rpc.controller_channels import ControllerChannels
from service_kit.rpc.dial import Dialer

CERTIFICATE = DeathCertificate("cluster", 7, 2, (b"a" * 16, b"b" * 16))


class Controller(broker_pb2_grpc.BrokerServiceServicer):
    """Answers with these errors in turn, and then without one."""

    def __init__(self, *codes: ErrorCode, leader: "Controller | None" = None) -> None:
        self.codes, self.leader = [*codes], leader
        self.asked: list[broker_pb2.ReportDeathRequest] = []
        self.server = grpc.aio.server()
        broker_pb2_grpc.add_BrokerServiceServicer_to_server(self, self.server)  # type: ignore[no-untyped-call]
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    async def ReportDeath(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.asked.append(request)
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        wire_code: Any = code.value
        response = broker_pb2.ReportDeathResponse(
            error=common_pb2.Error(code=wire_code, message="why"), broker_epoch=40
        )
        if code is not ErrorCode.NONE and self.leader is not None:
            response.leader.endpoint.host, response.leader.endpoint.port = "127.0.0.1", self.leader.port
            response.leader.leader_id = 2
        return response


@pytest_asyncio.fixture
async def reach() -> AsyncIterator[ControllerChannels]:
    async with Dialer() as dialer:
        yield ControllerChannels(dialer)


async def told(reach: ControllerChannels, *controllers: Controller, within_s: float = 5.0) -> Outcome:
    for each in controllers:
        await each.server.start()
    try:
        addresses = [HostPort("127.0.0.1", each.port) for each in controllers]
        return (await report(CERTIFICATE, addresses[:2], reach, within_s)).outcome
    finally:
        for each in controllers:
            await each.server.stop(0)


async def test_the_leader_that_a_controller_names_is_asked_next(reach: ControllerChannels) -> None:
    """And the request names all dead processes, for the broker's own cluster and generation."""
    leader = Controller()
    follower = Controller(ErrorCode.NOT_CONTROLLER, leader=leader)
    assert await told(reach, follower, Controller(), leader) is Outcome.FENCED
    (request,) = leader.asked
    assert (request.cluster_id, request.broker_id, request.generation) == ("cluster", 7, 2)
    assert tuple(request.incarnation_ids) == CERTIFICATE.incarnations


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_READY, ErrorCode.REQUEST_TIMED_OUT])
async def test_a_report_without_an_outcome_is_repeated(reach: ControllerChannels, code: ErrorCode) -> None:
    """The next controller of the list is asked, in turn: while none leads, all of them refuse."""
    first, second = Controller(code, code), Controller(code)
    assert await told(reach, first, second) is Outcome.FENCED
    assert len(first.asked) + len(second.asked) == 4


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ErrorCode.STALE_BROKER_EPOCH, Outcome.NOTHING_TO_DO),
        (ErrorCode.BROKER_ID_NOT_REGISTERED, Outcome.NOTHING_TO_DO),
        (ErrorCode.UNSUPPORTED_VERSION, Outcome.REFUSED),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, Outcome.REFUSED),
    ],
)
async def test_a_clear_answer_ends_the_report(reach: ControllerChannels, code: ErrorCode, outcome: Outcome) -> None:
    controller = Controller(code)
    assert await told(reach, controller) is outcome
    assert len(controller.asked) == 1


async def test_without_an_answer_the_report_ends_with_its_time(reach: ControllerChannels) -> None:
    """The session has ended meanwhile, too."""
    refusing = Controller(*[ErrorCode.NOT_CONTROLLER] * 100)
    assert await told(reach, refusing, within_s=0.2) is Outcome.UNANSWERED
