"""Answers local reads: any controller, leader or not, answers from its applied records.

The answer may be old, but shows a committed state, as of the offset in the answer. The node asks no other node, so a
client gets an answer even while no controller leads. A node whose image differs from a majority's refuses
(`quorum.runtime.agreement`).

One client never reads backwards. Example:
    1. the client reads from node 1, and the answer is as of offset 40;
    2. the client reads from node 2 with `at_least=40`; node 2 has applied the records below 35;
    3. node 2 holds the read until it has applied the records below 40, or refuses with NOT_READY at the deadline.

*A node holds few reads.* The deadline of many held reads may pass in one moment, or their offset may be reached in one moment.
Each answer takes the event loop 0.3 ms. Counter-example without the bound, with leader 1:
    1. a client sends 4,500 reads to node 1, with an offset that no log has reached, and all reads have the same deadline;
    2. at the deadline node 1 refuses 4,500 reads, and gives its followers no answer for 1.4 s;
    3. the fetch timeout of follower 2 is 0.7 s, so node 2 campaigns, and node 1 loses its leadership.
"""

from dataclasses import dataclass
from typing import Final

from metadata_log.format.errors import ErrorCode
from quorum.runtime.active.active_controller import ActiveController
from quorum.runtime.active.waiting_room import Deadlines
from quorum.runtime.agreement import Agreement
from quorum.runtime.applier import Applier
from quorum.runtime.parts import Parts
from quorum.runtime.protocol.requests import LocalView, ReadView, Refused
from quorum.runtime.protocol.world import LocalRead

HELD_MAX: Final = 500
"""Maximum number of held reads. Their answers take 0.15 s together; further reads are refused with THROTTLING_QUOTA_EXCEEDED."""


@dataclass(slots=True)
class _Waiting:
    event: LocalRead
    done: bool = False


class LocalReads:
    """Holds each read until the node has applied enough records. Few reads need to wait: a node is milliseconds behind."""

    def __init__(self, parts: Parts, active: ActiveController, applier: Applier, agreement: Agreement) -> None:
        self._node_id = parts.me.node_id
        self._core, self._state, self._world = parts.core, parts.state, parts.world
        self._active = active
        self._applier = applier
        self._agreement = agreement
        self._deadlines: Deadlines[_Waiting] = Deadlines()
        self._waiting: list[_Waiting] = []

    def take(self, event: LocalRead, now_ms: int) -> None:
        """Answers at once if this node has applied the records below `at_least`. Otherwise holds the read; refuses it
        if HELD_MAX reads are held already."""
        if not self._applier.is_loading and event.at_least <= self._state.applied:
            self._world.reply(event.reply_to, self._view(now_ms))
            return
        if len(self._waiting) >= HELD_MAX:
            text = (
                f"nothing was read: {HELD_MAX} reads wait already for records that this controller has not applied yet; "
                "ask another controller, or ask again later"
            )
            self._world.reply(event.reply_to, Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text))
            return
        waiting = _Waiting(event)
        self._waiting.append(waiting)
        self._deadlines.add(waiting, event.deadline_ms)

    def answer_ready(self, now_ms: int) -> None:
        """Answers the held reads whose offset this node has reached."""
        if not self._waiting or self._applier.is_loading:
            return
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if each.event.at_least <= self._state.applied:
                each.done = True
                self._world.reply(each.event.reply_to, self._view(now_ms))
            else:
                self._waiting.append(each)

    def refuse_expired(self, now_ms: int) -> None:
        """Refuses the held reads whose deadline has passed."""
        for each in self._deadlines.expired(now_ms):
            event = each.event
            text = (
                f"nothing was read: this controller has applied the records below {self._state.applied}, and the client asks for "
                f"{event.at_least} at least; ask another controller, or ask again"
            )
            self._world.reply(event.reply_to, Refused(ErrorCode.NOT_READY, text))
        self._waiting = [each for each in self._waiting if not each.done]

    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms()

    def _view(self, now_ms: int) -> ReadView | Refused:
        if self._agreement.is_odd:
            return Refused(ErrorCode.NOT_READY, self._state.stopped or "")
        heard_ms = self._core.leader_heard_ms
        local = LocalView(self._node_id, None if heard_ms is None else max(0, now_ms - heard_ms))
        controller = self._active.controller if self._active.on else None
        return ReadView(self._state.applied, self._state.committed, controller, now_ms, local)
