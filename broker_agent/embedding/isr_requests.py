"""ISR proposals of an embedded data plane: one AlterPartition request at a time, as Kafka's AlterPartitionManager.

    1. The data plane of broker 101 leads 500 partitions. It finds that broker 103 lags, and proposes 500 ISRs without 103.
    2. The first proposal is sent at once. The other 499 wait for the answer, and are sent as one request.
    3. The controller grants 499 of the 500. The caller of the other one gets `ProposalRefused` with the controller's code.

A partition has one proposal at a time: the partition epoch of a second one would be out of date.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from quorum_rpc.v1 import broker_pb2

from broker_agent.client import CallFailed
from broker_agent.embedding.errors import NotAnswered, ProposalInFlight, ProposalRefused
from broker_agent.publishing.assignments import TopicIdPartition
from broker_agent.session.isr_proposals import IsrProposal
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId
from metadata_log.format.records import RECOVERED

PROPOSALS_MAX: Final = 1_000
"""Maximum number of partitions in one request."""

_WAIT: Final = "Nothing was changed. Wait for the next assignment of the partition"
_ADVICE: Final = {
    ErrorCode.FENCED_LEADER_EPOCH: f"{_WAIT}: another leader was elected",
    ErrorCode.INVALID_UPDATE_VERSION: f"{_WAIT}, and propose from that one: the partition has changed",
    ErrorCode.UNKNOWN_TOPIC_ID: f"{_WAIT}: the topic was deleted",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: f"{_WAIT}: the topic was deleted",
    ErrorCode.NEW_LEADER_ELECTED: "The ISR was changed, and another member leads now. Wait for the next assignment",
    ErrorCode.INELIGIBLE_REPLICA: "Nothing was changed. Propose again without that member, until it is online and has fetched",
    ErrorCode.NOT_CONTROLLER: "Nothing was changed. Propose again: the next controller may know these epochs",
}
"""What to do after each refusal."""


@dataclass(frozen=True, slots=True)
class IsrGranted:
    """The partition after its leader's proposal was granted."""

    replica: TopicIdPartition
    leader: NodeId | None
    leader_epoch: Epoch
    partition_epoch: int
    """The partition epoch for the next proposal."""
    isr: tuple[NodeId, ...]
    is_recovering: bool


Ask = Callable[[tuple[IsrProposal, ...]], Awaitable[broker_pb2.AlterPartitionResponse]]
"""Sends proposals. Raises CallFailed."""


def refused(code: ErrorCode, place: str, message: str) -> ProposalRefused:
    """Returns the error for one refused proposal, with what to do. `place` is the partition in words, for example orders-0."""
    todo = _ADVICE.get(code, "Nothing was changed. Correct the proposal")
    return ProposalRefused(code, f"ISR proposal for {place} refused: {code.name}: {message}. {todo}")


class _Asked(NamedTuple):
    """One proposal, and its caller."""

    proposal: IsrProposal
    place: str
    future: asyncio.Future[IsrGranted]


class IsrRequests:
    """The proposals of one broker, for one event loop."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._waiting: dict[TopicIdPartition, _Asked] = {}
        self._in_flight: frozenset[TopicIdPartition] = frozenset()
        self._asking: asyncio.Task[None] | None = None

    async def propose(self, proposal: IsrProposal, place: str) -> IsrGranted:
        """Returns the partition after the controller has granted the proposal. Errors call the partition `place`.

        Raises:
            ProposalRefused: the controller did not grant it.
            ProposalInFlight: another proposal of the partition has no answer yet. Nothing was sent.
            NotAnswered: the proposal may have been granted or not; the next assignment says.
        """
        replica = TopicIdPartition(proposal.topic_id, proposal.partition)
        if replica in self._waiting or replica in self._in_flight:
            text = f"another ISR proposal of {place} has no answer yet. Nothing was sent; wait for that answer"
            raise ProposalInFlight(text)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[IsrGranted] = loop.create_future()
        self._waiting[replica] = _Asked(proposal, place, future)
        if self._asking is None:
            self._asking = loop.create_task(self._ask_all())
        return await future

    async def close(self) -> None:
        """Ends the request in flight: all callers get NotAnswered."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask_all(self) -> None:
        try:
            while self._waiting:
                replicas = tuple(self._waiting)[:PROPOSALS_MAX]
                asked = {replica: self._waiting.pop(replica) for replica in replicas}
                self._in_flight = frozenset(asked)
                try:
                    await self._ask_some(asked)
                finally:
                    self._in_flight = frozenset()
                    _fail(asked.values(), "the agent has left")
        finally:
            self._asking = None
            _fail(self._waiting.values(), "the agent has left")
            self._waiting.clear()

    async def _ask_some(self, asked: dict[TopicIdPartition, _Asked]) -> None:
        try:
            response = await self._ask(tuple(each.proposal for each in asked.values()))
        except CallFailed as e:
            _fail(asked.values(), str(e))
            return
        for each in response.results:
            replica = TopicIdPartition(each.topic_id, each.partition)
            of = asked.get(replica)
            if of is None or of.future.done():
                continue
            code = ErrorCode.of(each.error.code)
            if code is ErrorCode.NONE:
                of.future.set_result(_granted(replica, each))
            else:
                of.future.set_exception(refused(code, of.place, each.error.message))
        _fail(asked.values(), "the controller's answer has no result for the partition")


def _fail(asked: Iterable[_Asked], reason: str) -> None:
    for each in asked:
        if not each.future.done():
            todo = "It may have been granted or not: the next assignment of the partition says"
            each.future.set_exception(NotAnswered(f"ISR proposal for {each.place} not answered: {reason}. {todo}"))


def _granted(replica: TopicIdPartition, each: broker_pb2.PartitionAlterationResult) -> IsrGranted:
    leader = each.leader_id if each.HasField("leader_id") else None
    is_recovering = each.leader_recovery_state != RECOVERED
    return IsrGranted(replica, leader, each.leader_epoch, each.partition_epoch, tuple(each.isr), is_recovering)
