"""The task that tells the controllers in which log directories this broker's replicas are (`replica_directories`).

There is one such task, so one request is in flight. The task starts again when the cache, the state or the lease has changed,
when the data plane has said something, or at the next deadline. It also ends a process that has no directory left, or that cannot
report a failure.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from broker_agent.client import CallFailed
from broker_agent.metadata_loader import Log
from broker_agent.news import BrokerNews, wait_for_news
from broker_agent.session.replica_directories import Assignment, AssignmentResult, ReplicaDirectories
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset


class AssignmentsAnswered(NamedTuple):
    """The controller's answer: a result for each replica. All recorded assignments are below `offset` in the log."""

    offset: Offset
    results: tuple[AssignmentResult, ...]


Ask = Callable[[tuple[Assignment, ...], int, int], Awaitable[AssignmentsAnswered]]
"""Sends assignments, with the broker epoch and the timeout in milliseconds. Raises CallFailed."""


async def report(
    broker: BrokerNews,
    directories: ReplicaDirectories,
    ask: Ask,
    end: Callable[[str], None],
    *,
    now_ms: Callable[[], int],
    log: Log,
) -> None:
    """Tells the controllers what the data plane has said, until the task is cancelled or the process has to `end`."""
    while True:
        epoch = broker.broker_epoch
        reason = directories.end_reason(broker.image, epoch, now_ms())
        if reason is not None:
            end(reason)
            return
        asked = directories.next(broker.image, epoch, now_ms())
        if not asked:
            await wait_for_news(broker, directories.next_deadline_ms(), now_ms)
            continue
        assert epoch is not None
        try:
            answer = await ask(asked, epoch, directories.limits.timeout_ms)
        except CallFailed as e:
            directories.failed(now_ms())
            log.warning("assignments to directories not answered", replicas=len(asked), reason=str(e))
            continue
        directories.answered(answer.offset, answer.results, now_ms())
        refused = [result for result in answer.results if result.code is not ErrorCode.NONE]
        why = {"first_refusal": f"{refused[0].code.name}: {refused[0].message}"} if refused else {}
        log.info("replicas assigned to directories", replicas=len(asked) - len(refused), refused=len(refused), **why)
