"""The answers of an active controller that wait: for a commit, for the confirmation that this node still leads, or for both.

An answer leaves when its records are committed *and applied on this node*. A read, and a decision without records, wait for two
things: the offset at the end of the log when they were made, because they may have seen uncommitted records; and a round in which
a majority confirms the leadership. Counter-example without the confirmation:
    1. leader 1 is paused; node 2 is elected, and deletes the topic `orders`;
    2. leader 1 wakes up, does not know of the election, and gets a read of `orders`;
    3. leader 1 would show a topic whose deletion was acknowledged before the read.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from quorum.controller.controller import Controller
from quorum.controller.protocol.commands import CommandReply
from quorum.core.protocol.inputs import ConfirmReads
from quorum.runtime.active.waiting_room import Deadlines, unknown_outcome
from quorum.runtime.parts import Parts
from quorum.runtime.protocol.requests import LeaderHint, ReadView, Refused, SnapshotMarked
from quorum.runtime.protocol.world import Answer, ReplyTo

Pending: TypeAlias = CommandReply | SnapshotMarked | Refused | None


@dataclass(slots=True)
class Deferred:
    """A caller whose answer waits. `reply` is None for a read: the answer is the image at the time of the answer."""

    reply_to: ReplyTo
    offset: Offset
    """The node must have applied all records below this offset before the answer leaves."""
    reply: Pending
    token: int = 0
    """The number of the read round that must be confirmed; 0: none."""
    wrote: bool = False
    """True if the log has records of the caller: if the leadership ends now, the outcome is unknown."""
    done: bool = False


class DeferredAnswers:
    """The deferred answers, in the order of their offsets, with deadlines."""

    def __init__(self) -> None:
        self.deadlines: Deadlines[Deferred] = Deadlines()
        self._queue: deque[Deferred] = deque()
        self._confirmed = 0

    def add(self, deferred: Deferred, deadline_ms: int) -> None:
        assert not self._queue or self._queue[-1].offset <= deferred.offset
        self._queue.append(deferred)
        self.deadlines.add(deferred, deadline_ms)

    def confirm(self, token: int) -> None:
        """Takes note that every read round up to `token` is confirmed."""
        self._confirmed = max(self._confirmed, token)

    def ready(self, applied: Offset) -> Iterator[Deferred]:
        """Yields the callers that may be answered now, in order. A caller without its round does not delay later callers."""
        unconfirmed: list[Deferred] = []
        while self._queue and self._queue[0].offset <= applied:
            deferred = self._queue.popleft()
            if deferred.done:
                continue
            if deferred.token > self._confirmed:
                unconfirmed.append(deferred)
            else:
                deferred.done = True
                yield deferred
        self._queue.extendleft(reversed(unconfirmed))

    def drain(self) -> Iterator[Deferred]:
        """Yields and removes all callers, because the leadership has ended."""
        for deferred in self._queue:
            if not deferred.done:
                deferred.done = True
                yield deferred
        self._queue.clear()
        self.deadlines.clear()
        self._confirmed = 0


class Answers:
    """Sends each answer when it may leave, and a refusal at its deadline or at the end of the leadership."""

    def __init__(self, parts: Parts, controller: Controller) -> None:
        self._log, self._state, self._time = parts.log, parts.state, parts.time
        self._world, self._step = parts.world, parts.step
        self._controller = controller
        self._deferred = DeferredAnswers()
        self._read_token = 0

    def wait(self, reply_to: ReplyTo, offset: Offset, reply: Pending, deadline_ms: int, *, wrote: bool = False) -> None:
        """Defers the reply until all records below `offset` are committed."""
        self._deferred.add(Deferred(reply_to, offset, reply, wrote=wrote), deadline_ms)

    def wait_confirmed(self, reply_to: ReplyTo, reply: Pending, deadline_ms: int, *, wrote: bool = False) -> None:
        """Defers the reply until all present records are committed, and a majority has confirmed the leadership."""
        self._read_token += 1
        self._deferred.add(Deferred(reply_to, self._log.end, reply, self._read_token, wrote), deadline_ms)
        self._step(ConfirmReads(self._read_token))

    def confirmed(self, token: int) -> None:
        """Takes note that a majority has confirmed the leadership for every reply up to `token`."""
        self._deferred.confirm(token)

    def send_ready(self) -> None:
        """Sends the answers that may leave."""
        applied = self._state.applied
        for deferred in self._deferred.ready(applied):
            reply: Answer | None = deferred.reply
            if reply is None:
                reply = ReadView(applied, self._state.committed, self._controller, self._time.now_ms)
            self._world.reply(deferred.reply_to, reply)

    def refuse_expired(self) -> None:
        """Refuses the callers whose deadline has passed."""
        why = "no majority has confirmed the request in time"
        for deferred in self._deferred.deadlines.expired(self._time.now_ms):
            unwritten = Refused(ErrorCode.NOT_READY, f"{why}; nothing was done")
            self._world.reply(deferred.reply_to, unknown_outcome(why) if deferred.wrote else unwritten)

    def end(self, why: str, hint: LeaderHint) -> None:
        """Refuses all callers, because the leadership has ended."""
        for deferred in self._deferred.drain():
            refusal = unknown_outcome(why) if deferred.wrote else Refused(ErrorCode.NOT_CONTROLLER, why, hint)
            self._world.reply(deferred.reply_to, refusal)

    def next_deadline_ms(self) -> int | None:
        """The time to call `refuse_expired`."""
        return self._deferred.deadlines.next_ms()
