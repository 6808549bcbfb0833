"""The ISR proposals of this broker's leaders on their way to the controllers: one AlterPartition request at a time.

Proposals that come while a request is in flight are sent together as the next request, as by Kafka's AlterPartitionManager. The
answer to each goes back to its leader.

*A request without an answer is in doubt*: it may still arrive, and be written. The leader sends the same proposal again. As long
as an earlier copy is in doubt, the refusal of a later copy does not prove that nothing was written:

    1. Leader 1 proposes the ISR 1,2,3. The first copy waits at a slow controller; the call times out.
    2. Leader 1 sends a second copy. Broker 3 is fenced at this moment: INELIGIBLE_REPLICA.
    3. If leader 1 dropped the proposal now, and the first copy was written after broker 3 is back, 3 would be in the ISR, and
       leader 1 would acknowledge records that 3 does not have.

So for `DOUBT_MS` after a call without an answer such a refusal counts as no answer: the leader keeps the proposal, and sends it
again. Any newer state of the partition ends the doubt, because the controllers refuse the old partition epoch.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from quorum_rpc.v1 import broker_pb2

from broker_agent.client import CallFailed
from broker_agent.metadata_loader import Log
from broker_agent.partitions.effects import SendProposal
from broker_agent.replica.isr import NO_ANSWER, IsrAnswer, ProposeIsr
from broker_agent.session.isr_proposals import IsrProposal, Place
from metadata_log.format.errors import ErrorCode

PROPOSALS_MAX: Final = 1_000
"""Maximum number of partitions in one request."""
DOUBT_MS: Final = 30_000
"""How long a request without an answer may still arrive at a controller, and be written."""
PAUSE_MS: Final = 50
"""How long to wait after a request without an answer; doubled after each further one."""
PAUSE_MS_MAX: Final = 1_000

Ask = Callable[[tuple[IsrProposal, ...]], Awaitable[broker_pb2.AlterPartitionResponse]]
"""Sends proposals. Raises CallFailed."""
Take = Callable[[SendProposal, IsrAnswer], None]
"""Gets the answer to a proposal."""


class IsrSender:
    """The proposals of one broker. `run` is its task; `send` adds a proposal."""

    def __init__(
        self,
        ask: Ask,
        take: Take,
        now_ms: Callable[[], int],
        log: Log,
        rest: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`rest` waits for some seconds."""
        self.requests_failed = 0
        """How many requests had no answer."""
        self._ask = ask
        self._take = take
        self._now_ms = now_ms
        self._log = log
        self._rest = rest
        self._waiting: dict[Place, SendProposal] = {}
        self._doubts: dict[Place, tuple[ProposeIsr, int]] = {}
        """The last proposal of a partition that had no answer, and when its doubt ends."""
        self._news = asyncio.Event()

    def send(self, proposal: SendProposal) -> None:
        """Sends a proposal, in place of an older one of the partition that was not sent yet."""
        self._waiting[proposal.place] = proposal
        self._news.set()

    async def run(self) -> None:
        """Sends proposals until the task is cancelled."""
        failures = 0
        while True:
            await self._news.wait()
            places = tuple(self._waiting)[:PROPOSALS_MAX]
            asked = {place: self._waiting.pop(place) for place in places}
            if not self._waiting:
                self._news.clear()
            if not asked:
                continue
            try:
                response = await self._ask(tuple(_proposal(each) for each in asked.values()))
            except CallFailed as e:
                failures += 1
                self.requests_failed += 1
                self._log.warning("ISR proposals not answered", partitions=len(asked), reason=str(e))
                self._note_doubts(asked)
                await self._rest(min(PAUSE_MS << min(failures - 1, 10), PAUSE_MS_MAX) / 1_000)
                answers = {}
            else:
                failures = 0
                answers = {(each.topic_id, each.partition): _answer(each) for each in response.results}
            for place, sent in asked.items():
                self._take(sent, self._believed(place, sent.proposal, answers.get(place, NO_ANSWER)))

    def _note_doubts(self, asked: dict[Place, SendProposal]) -> None:
        until_ms = self._now_ms() + DOUBT_MS
        for place, sent in asked.items():
            self._doubts[place] = sent.proposal, until_ms

    def _believed(self, place: Place, proposal: ProposeIsr, answer: IsrAnswer) -> IsrAnswer:
        doubt = self._doubts.get(place)
        if doubt is None:
            return answer
        in_doubt, until_ms = doubt
        is_over = self._now_ms() >= until_ms or in_doubt.partition_epoch < proposal.partition_epoch
        if is_over or answer.code is ErrorCode.NONE:
            del self._doubts[place]
            return answer
        return NO_ANSWER if answer.code is ErrorCode.INELIGIBLE_REPLICA else answer


def _proposal(sent: SendProposal) -> IsrProposal:
    each = sent.proposal
    return IsrProposal(*sent.place, each.leader_epoch, each.partition_epoch, each.isr)


def _answer(each: broker_pb2.PartitionAlterationResult) -> IsrAnswer:
    code = ErrorCode.of(each.error.code)
    if code is not ErrorCode.NONE:
        return IsrAnswer(code)
    return IsrAnswer(code, each.leader_epoch, each.partition_epoch, tuple(each.isr))
