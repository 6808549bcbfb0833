"""ISR proposals of a data plane: one request at a time, and an answer or an error for each caller."""

import asyncio

import pytest
from quorum_rpc.v1 import broker_pb2

from broker_agent.client import CallFailed
from broker_agent.embedding.errors import NotAnswered, ProposalInFlight, ProposalRefused
from broker_agent.embedding.isr_requests import IsrRequests
from broker_agent.session.isr_proposals import IsrMember, IsrProposal
from metadata_log.format.errors import ErrorCode

TOPIC = b"t" * 16


class Controller:
    """Answers when it is let; refuses the partitions of `refusals`."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.may = asyncio.Semaphore(0)
        self.refusals: dict[int, ErrorCode] = {}
        self.forgets: set[int] = set()
        self.fails = False
        self.requests = IsrRequests(self.ask)

    async def ask(self, proposals: tuple[IsrProposal, ...]) -> broker_pb2.AlterPartitionResponse:
        self.asked.append([each.partition for each in proposals])
        await self.may.acquire()
        if self.fails:
            raise CallFailed("c1: UNAVAILABLE")
        response = broker_pb2.AlterPartitionResponse()
        for each in proposals:
            if each.partition in self.forgets:
                continue
            result = response.results.add(topic_id=TOPIC, partition=each.partition, isr=[1], partition_epoch=9)
            code = self.refusals.get(each.partition)
            if code is not None:
                result.error.code = code.value  # type: ignore[assignment]
        return response

    def propose(self, partition: int) -> asyncio.Task[object]:
        proposal = IsrProposal(TOPIC, partition, 3, 8, (IsrMember(1, 40),))
        return asyncio.get_running_loop().create_task(self.requests.propose(proposal, f"orders-{partition}"))


async def test_proposals_that_wait_go_together() -> None:
    """The first is sent at once; a partition has one proposal at a time."""
    controller = Controller()
    first = controller.propose(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = [controller.propose(partition) for partition in (1, 2, 0, 2)]
    await asyncio.sleep(0)
    for task in others[2:]:
        with pytest.raises(ProposalInFlight, match=r"has no answer yet. Nothing was sent"):
            await task
    controller.may.release()
    controller.may.release()
    for task in (first, *others[:2]):
        granted = await task
        assert (granted.isr, granted.leader, granted.partition_epoch) == ((1,), None, 9)  # type: ignore[attr-defined]
    assert controller.asked == [[0], [1, 2]]


@pytest.mark.parametrize(
    ("code", "todo"),
    [
        (
            ErrorCode.FENCED_LEADER_EPOCH,
            "Nothing was changed. Wait for the next assignment .*: another leader was elected",
        ),
        (ErrorCode.INVALID_UPDATE_VERSION, "propose from that one: the partition has changed"),
        (ErrorCode.INELIGIBLE_REPLICA, "Propose again without that member"),
        (ErrorCode.NOT_CONTROLLER, "Propose again: the next controller"),
        (ErrorCode.NEW_LEADER_ELECTED, "The ISR was changed, and another member leads now"),
        (ErrorCode.POLICY_VIOLATION, "Correct the proposal"),
    ],
)
async def test_a_refusal_says_what_to_do(code: ErrorCode, todo: str) -> None:
    """One refusal leaves the other proposals of the request alone."""
    controller = Controller()
    controller.refusals[1] = code
    controller.may.release()
    controller.may.release()
    await controller.propose(0)
    refused, granted = controller.propose(1), controller.propose(2)
    with pytest.raises(ProposalRefused, match=f"^ISR proposal for orders-1 refused: {code.name}: .*{todo}") as refusal:
        await refused
    assert refusal.value.code is code
    controller.may.release()
    await granted


async def test_every_caller_hears_something() -> None:
    """After a failed call, an answer without a result, and the end of the agent."""
    controller = Controller()
    controller.fails = True
    controller.may.release()
    with pytest.raises(
        NotAnswered, match=r"ISR proposal for orders-0 not answered: c1: UNAVAILABLE. It may have been granted or not"
    ):
        await controller.propose(0)
    controller.fails = False
    controller.forgets.add(0)
    controller.may.release()
    with pytest.raises(NotAnswered, match="has no result for the partition"):
        await controller.propose(0)
    in_flight = controller.propose(1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting = controller.propose(2)
    await asyncio.sleep(0)
    await controller.requests.close()
    for task in (in_flight, waiting):
        with pytest.raises(NotAnswered, match="the agent has left"):
            await task
