"""ISR proposals on their way: together, one request at a time, and never dropped while an earlier copy may still arrive."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from quorum_rpc.v1 import broker_pb2

from broker_agent.client import CallFailed
from broker_agent.data_plane.isr_sender import DOUBT_MS, IsrSender
from broker_agent.partitions.effects import SendProposal
from broker_agent.replica.isr import NO_ANSWER, IsrAnswer, ProposeIsr
from broker_agent.replica.log_directory import ReplicaPlace
from broker_agent.session.isr_proposals import IsrMember, IsrProposal
from metadata_log.format.errors import ErrorCode
from tests.broker_agent.data_plane.lines import Lines

TOPIC = b"t" * 16


def proposal(partition: int, partition_epoch: int = 4) -> SendProposal:
    isr = (IsrMember(101, 7), IsrMember(102, 8))
    return SendProposal(ReplicaPlace(TOPIC, partition), ProposeIsr(3, partition_epoch, isr))


def result(partition: int, code: ErrorCode = ErrorCode.NONE) -> broker_pb2.PartitionAlterationResult:
    found = broker_pb2.PartitionAlterationResult(
        topic_id=TOPIC, partition=partition, leader_epoch=3, partition_epoch=5, isr=[101, 102]
    )
    if code is not ErrorCode.NONE:
        found.error.code = code.value  # type: ignore[assignment]
    return found


class Controller:
    """Answers when it is told so."""

    def __init__(self) -> None:
        self.asked: list[tuple[IsrProposal, ...]] = []
        self._answers: asyncio.Queue[list[broker_pb2.PartitionAlterationResult] | CallFailed] = asyncio.Queue()

    async def ask(self, proposals: tuple[IsrProposal, ...]) -> broker_pb2.AlterPartitionResponse:
        self.asked.append(proposals)
        answer = await self._answers.get()
        if isinstance(answer, CallFailed):
            raise answer
        return broker_pb2.AlterPartitionResponse(results=answer)

    def answer(self, *results: broker_pb2.PartitionAlterationResult) -> None:
        self._answers.put_nowait(list(results))

    def fail(self) -> None:
        self._answers.put_nowait(CallFailed("DEADLINE_EXCEEDED"))


class Broker:
    """A sender with its controller, its clock, and the answers that its leaders got."""

    def __init__(self) -> None:
        self.controller = Controller()
        self.now_ms = 1_000
        self.answers: asyncio.Queue[tuple[int, IsrAnswer]] = asyncio.Queue()
        self.sender = IsrSender(self.controller.ask, self._take, lambda: self.now_ms, Lines(), self._rest)

    def _take(self, sent: SendProposal, answer: IsrAnswer) -> None:
        self.answers.put_nowait((sent.place.partition, answer))

    async def _rest(self, seconds: float) -> None:
        await asyncio.sleep(0)

    async def next_answer(self) -> tuple[int, IsrAnswer]:
        async with asyncio.timeout(5):
            return await self.answers.get()


@asynccontextmanager
async def running() -> AsyncIterator[Broker]:
    broker = Broker()
    task = asyncio.create_task(broker.sender.run())
    try:
        yield broker
    finally:
        task.cancel()


async def test_proposals_that_come_during_a_request_are_sent_together() -> None:
    """One request is in flight at a time; each leader gets its own answer."""
    async with running() as broker:
        broker.sender.send(proposal(0))
        await asyncio.sleep(0)
        broker.sender.send(proposal(1))
        broker.sender.send(proposal(2))
        broker.controller.answer(result(0))
        broker.controller.answer(result(1), result(2, ErrorCode.FENCED_LEADER_EPOCH))
        granted = IsrAnswer(ErrorCode.NONE, 3, 5, (101, 102))

        assert [await broker.next_answer() for _ in range(3)] == [
            (0, granted),
            (1, granted),
            (2, IsrAnswer(ErrorCode.FENCED_LEADER_EPOCH)),
        ]
        assert [[each.partition for each in asked] for asked in broker.controller.asked] == [[0], [1, 2]]


async def test_a_request_without_an_answer_is_no_answer_for_each_leader() -> None:
    async with running() as broker:
        broker.sender.send(proposal(0))
        broker.controller.fail()

        assert await broker.next_answer() == (0, NO_ANSWER)
        assert broker.sender.requests_failed == 1


async def test_while_an_earlier_copy_may_arrive_no_refusal_drops_the_proposal() -> None:
    """Otherwise the first copy could be written later, and its member would not count for the high watermark."""
    async with running() as broker:
        broker.sender.send(proposal(0))
        broker.controller.fail()
        await broker.next_answer()
        broker.sender.send(proposal(0))
        broker.controller.answer(result(0, ErrorCode.INELIGIBLE_REPLICA))

        assert await broker.next_answer() == (0, NO_ANSWER)


async def test_once_no_copy_can_arrive_a_refusal_counts() -> None:
    """After the time of doubt, or with a newer partition epoch, which the controllers hold against the old copy."""
    for later_ms, partition_epoch in ((DOUBT_MS, 4), (0, 5)):
        async with running() as broker:
            broker.sender.send(proposal(0))
            broker.controller.fail()
            await broker.next_answer()
            broker.now_ms += later_ms
            broker.sender.send(proposal(0, partition_epoch))
            broker.controller.answer(result(0, ErrorCode.INELIGIBLE_REPLICA))

            assert await broker.next_answer() == (0, IsrAnswer(ErrorCode.INELIGIBLE_REPLICA))


async def test_an_answer_without_a_result_is_no_answer() -> None:
    async with running() as broker:
        broker.sender.send(proposal(0))
        broker.controller.answer()

        assert await broker.next_answer() == (0, NO_ANSWER)
