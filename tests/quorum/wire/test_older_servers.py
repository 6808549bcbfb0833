"""Clients and nodes of this release with controllers of 0.1.0, which refused in the field `error` of an answer with status OK."""

from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc, common_pb2

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import Endpoint
from metaquorum import AdminClient, AdminError, MayHaveHappened
from quorum.runtime.protocol.requests import LeaderHint, Refused
from quorum.wire.server import serve
from service_kit.rpc.dial import Dialer
from service_kit.rpc.server import serving
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode
from tests.quorum.wire.refusing import refusal_of

SERVICE = admin_pb2.DESCRIPTOR.services_by_name["AdminService"]


class OldController(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Refuses as 0.1.0 did, or answers with no topics where `code` is NONE."""

    def __init__(
        self, code: ErrorCode, leader: common_pb2.LeaderHint | None = None, *, refuses_reads: bool = True
    ) -> None:
        self._code = code
        self._refuses_reads = refuses_reads
        self._leader = leader
        self.asked: list[str] = []

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        name = handler_call_details.method.rpartition("/")[2]
        method = SERVICE.methods_by_name[name]

        async def answer(_: Any, __: Any) -> Any:
            self.asked.append(name)
            answer: Any = getattr(admin_pb2, method.output_type.name)()
            if name == "ListTopics" and not self._refuses_reads:
                answer.as_of_offset = 5
            elif self._code is not ErrorCode.NONE:
                answer.error.code, answer.error.message = int(self._code), "no"
                if self._leader is not None:
                    answer.leader.CopyFrom(self._leader)
            return answer

        request, response = (getattr(admin_pb2, each.name) for each in (method.input_type, method.output_type))
        return grpc.unary_unary_rpc_method_handler(answer, request.FromString, response.SerializeToString)


async def served(stack: AsyncExitStack, old: OldController) -> int:
    added = serving(ANY_PORT, lambda server: server.add_generic_rpc_handlers((old,)), grace_s=0)
    return await stack.enter_async_context(added)


async def test_the_leader_in_an_old_refusal_is_followed() -> None:
    async with AsyncExitStack() as stack:
        leader = OldController(ErrorCode.NONE)
        endpoint = common_pb2.Endpoint(host="127.0.0.1", port=await served(stack, leader))
        hint = common_pb2.LeaderHint(leader_id=2, endpoint=endpoint)
        follower = OldController(ErrorCode.NOT_CONTROLLER, hint)
        client = AdminClient([f"127.0.0.1:{await served(stack, follower)}"])
        await stack.enter_async_context(client)
        assert list((await client.list_topics()).topics) == []
        assert (follower.asked, leader.asked) == (["ListTopics"], ["ListTopics"])


async def test_an_old_leaders_refusal_is_handed_on_as_a_status() -> None:
    """A client of the new follower reads one kind of refusal only."""
    async with AsyncExitStack() as stack:
        follower, old = FakeNode(), OldController(ErrorCode.VOTER_NOT_FOUND)
        leaders_endpoint = Endpoint("CONTROLLER", "127.0.0.1", await served(stack, old))
        follower.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "node 1 leads", LeaderHint(1, 1, leaders_endpoint))
        dialer = await stack.enter_async_context(Dialer())
        serving_follower = serve(follower, IDENTITY._replace(node_id=2), ANY_PORT, grace_s=0, dial=dialer)
        channel = dialer(f"127.0.0.1:{await stack.enter_async_context(serving_follower)}")
        stub: Any = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
        refusal = await refusal_of(stub.UnregisterBroker(admin_pb2.UnregisterBrokerRequest(broker_id=7)))
    assert (refusal.reason, refusal.message) == ("VOTER_NOT_FOUND", "no")
    assert old.asked == ["UnregisterBroker"]


@pytest.mark.parametrize(
    ("code", "error"), [(ErrorCode.VOTER_NOT_FOUND, AdminError), (ErrorCode.REQUEST_TIMED_OUT, MayHaveHappened)]
)
async def test_an_old_refusal_is_never_a_success(code: ErrorCode, error: type[AdminError]) -> None:
    """While controllers are upgraded one by one, some refuse with a status, and some in their answers."""
    async with AsyncExitStack() as stack:
        old = OldController(code, refuses_reads=False)
        client = AdminClient([f"127.0.0.1:{await served(stack, old)}"], timeout_s=0.2)
        await stack.enter_async_context(client)
        with pytest.raises(AdminError, match="no") as refused:
            await client.transfer_leadership(2)
        assert type(refused.value) is error
        assert refused.value.code is code
