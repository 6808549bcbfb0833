"""The requests of a consumer as calls: each kind of request has its call, its deadline and its answers.

Example: the core fetches from broker 1, and gives the fetch up 30 s after broker 1 should have answered. The call ends a second
later, so the core's decision comes first.
"""

from typing import Final, TypeAlias

from clients.consumer.effects import AskEpochs, AskOffsets, Fetch
from clients.partition_calls import PartitionCalls
from clients.partition_values import EpochEnd, Fetched, FoundOffset

_DEADLINE_SLACK_MS: Final = 1_000
"""How long a call goes on after the consumer has given it up, at most."""

Answers: TypeAlias = tuple[Fetched, ...] | tuple[FoundOffset, ...] | tuple[EpochEnd, ...]


async def asked(calls: PartitionCalls, effect: Fetch | AskOffsets | AskEpochs, request_timeout_ms: int) -> Answers:
    """Sends a request, and returns the answers. Raises CallFailed."""
    timeout_s = (request_timeout_ms + _DEADLINE_SLACK_MS) / 1_000
    match effect:
        case Fetch():
            answer = await calls.fetch(effect.node, effect.request, timeout_s + effect.request.max_wait_ms / 1_000)
            return answer.partitions
        case AskOffsets():
            return await calls.list_offsets(effect.node, effect.questions, timeout_s)
        case AskEpochs():
            return await calls.epoch_ends(effect.node, effect.questions, timeout_s)
