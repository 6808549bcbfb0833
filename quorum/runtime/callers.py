"""The callers that wait for an answer of the node: handlers of gRPC calls, and clients of the Submit stream.

Each caller has a name (`ReplyTo`). The loop hands the name to the node inside of an event, and the node answers that name at
most once. A caller that has gone away is forgotten, and an answer to a forgotten name is dropped.
"""

from collections.abc import Callable

from metadata_log.format.errors import ErrorCode
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.world import Answer, ReplyTo

WAITING_MAX = 10_000
"""Maximum number of waiting callers; further requests of clients are refused with THROTTLING_QUOTA_EXCEEDED."""


class Callers:
    """The waiting callers of one node."""

    def __init__(self) -> None:
        self._waiting: dict[ReplyTo, Callable[[Answer], None]] = {}
        self._last: ReplyTo = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, answered: Callable[[Answer], None]) -> ReplyTo:
        """Returns a new name. `answered` is called with the answer, at most once."""
        self._last += 1
        self._waiting[self._last] = answered
        return self._last

    def forget(self, reply_to: ReplyTo) -> None:
        """The caller waits no longer, or has its answer."""
        self._waiting.pop(reply_to, None)

    def answer(self, reply_to: ReplyTo, answer: Answer) -> None:
        """Answers a caller, if the caller still waits."""
        answered = self._waiting.pop(reply_to, None)
        if answered is not None:
            answered(answer)

    def refuse_all(self, refused: Refused) -> None:
        """Answers every waiting caller with `refused`."""
        waiting, self._waiting = self._waiting, {}
        for answered in waiting.values():
            answered(refused)

    def too_many(self) -> Refused | None:
        """The refusal for another client, if too many callers wait already."""
        if len(self._waiting) <= WAITING_MAX:
            return None
        text = f"{len(self._waiting):,} requests wait on this controller already; nothing was done, try again later"
        return Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)
