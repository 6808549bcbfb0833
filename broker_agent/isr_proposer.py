"""The task of a broker without a data plane that sends the ISR proposals of `isr_proposals` to the controller.

There is one such task, so one request is in flight. The task makes proposals from the newest image, sends them, and takes the
answer. It starts again when the cache, the state or the lease has changed, or at the next deadline. The requests go to the
controller that the session uses. If that controller does not answer, the session looks for another one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from broker_agent.client import CallFailed
from broker_agent.metadata_loader import Log
from broker_agent.session.isr_proposals import IsrProposal, IsrProposals, ProposalResult
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from metadata_log.image.metadata_image import MetadataImage


class ProposalsAnswered(NamedTuple):
    """The controller's answer: a result for each proposal. All granted changes are below `offset` in the log."""

    offset: Offset
    results: tuple[ProposalResult, ...]


class LeadingBroker(Protocol):
    """The view of the agent that the task needs."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def broker_epoch(self) -> int | None: ...

    def may_serve(self) -> bool: ...

    async def changed(self) -> None:
        """Returns at the next change of state, lease or cache."""


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
            await _wait(broker, proposals.next_deadline_ms(), now_ms)
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


async def _wait(broker: LeadingBroker, until_ms: int | None, now_ms: Callable[[], int]) -> None:
    """Returns at the next change of the broker, or at `until_ms`."""
    delay_s = None if until_ms is None else max(0, until_ms - now_ms()) / 1_000
    with suppress(TimeoutError):
        async with asyncio.timeout(delay_s):
            await broker.changed()


def _tell(log: Log, answer: ProposalsAnswered) -> None:
    refused = [result for result in answer.results if result.code is not ErrorCode.NONE]
    why = {"first_refusal": f"{refused[0].code.name}: {refused[0].message}"} if refused else {}
    granted = len(answer.results) - len(refused)
    log.info("ISR proposals answered", granted=granted, refused=len(refused), offset=answer.offset, **why)
