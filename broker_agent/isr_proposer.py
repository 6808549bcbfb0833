"""The task of a broker without a data plane that sends the ISR proposals of `isr_proposals` to the controller.

There is one such task, so one request is in flight. The task makes proposals from the newest image, sends them, and takes the
answer. It starts again when the cache, the state or the lease has changed, or at the next deadline. The requests go to the
controller that the session uses. If that controller does not answer, the session looks for another one.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from broker_agent.client import CallFailed
from broker_agent.metadata_loader import Log
from broker_agent.news import BrokerNews, wait_for_news
from broker_agent.session.isr_proposals import IsrProposal, IsrProposals, ProposalResult
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset


class ProposalsAnswered(NamedTuple):
    """The controller's answer: a result for each proposal. All granted changes are below `offset` in the log."""

    offset: Offset
    results: tuple[ProposalResult, ...]


class LeadingBroker(BrokerNews, Protocol):
    """The view of the agent that the task needs."""

    def may_serve(self) -> bool: ...


Ask = Callable[[tuple[IsrProposal, ...], int, int], Awaitable[ProposalsAnswered]]
"""Sends proposals, with the broker epoch and the timeout in milliseconds. Raises CallFailed."""


async def lead(
    broker: LeadingBroker, proposals: IsrProposals, ask: Ask, *, now_ms: Callable[[], int], log: Log
) -> None:
    """Proposes ISRs for the partitions that the broker leads, until the task is cancelled."""
    while True:
        epoch = broker.broker_epoch if broker.may_serve() else None
        asked = proposals.next(broker.image, epoch, now_ms())
        if not asked:
            await wait_for_news(broker, proposals.next_deadline_ms(), now_ms)
            continue
        assert epoch is not None
        try:
            answer = await ask(asked, epoch, proposals.limits.timeout_ms)
        except CallFailed as e:
            proposals.failed(now_ms())
            log.warning("ISR proposals not answered", partitions=len(asked), reason=str(e))
            continue
        proposals.answered(answer.offset, answer.results, now_ms())
        _tell(log, answer)


def _tell(log: Log, answer: ProposalsAnswered) -> None:
    refused = [result for result in answer.results if result.code is not ErrorCode.NONE]
    why = {"first_refusal": f"{refused[0].code.name}: {refused[0].message}"} if refused else {}
    granted = len(answer.results) - len(refused)
    log.info("ISR proposals answered", granted=granted, refused=len(refused), offset=answer.offset, **why)
