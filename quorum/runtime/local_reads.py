"""Reads that any controller answers from what it has applied, leader or not: perhaps of the past, never of another history.

Nobody else is asked, so there is an answer also while nobody leads. It is a state that was committed, as of the offset that
comes with it: a node whose image is known to be the odd one refuses (`agreement`). Monotone within one client: it brings the
highest offset that it was told of (`at_least`), and a node that has not come so far waits until it has, or refuses at the
deadline.
"""

from dataclasses import dataclass

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId
from quorum.core.raft import RaftCore
from quorum.runtime.active.active_controller import ActiveController
from quorum.runtime.active.waiting_room import Deadlines
from quorum.runtime.agreement import Agreement
from quorum.runtime.applier import Applier
from quorum.runtime.image.state_machine import StateMachine
from quorum.runtime.protocol.requests import LocalView, ReadView, Refused
from quorum.runtime.protocol.world import LocalRead, World


@dataclass(slots=True)
class _Waiting:
    event: LocalRead
    done: bool = False


class LocalReads:
    """Those that wait until this node has come as far as they have seen. Few: a node is behind by milliseconds, or cut off."""

    def __init__(
        self,
        node_id: NodeId,
        core: RaftCore,
        state: StateMachine,
        active: ActiveController,
        applier: Applier,
        agreement: Agreement,
        world: World,
    ) -> None:
        self._node_id = node_id
        self._core = core
        self._state = state
        self._active = active
        self._applier = applier
        self._agreement = agreement
        self._world = world
        self._deadlines: Deadlines[_Waiting] = Deadlines()
        self._waiting: list[_Waiting] = []

    def take(self, event: LocalRead, now_ms: int) -> None:
        """Answers at once where this node has come far enough."""
        if not self._applier.is_loading and event.at_least <= self._state.applied:
            self._world.reply(event.reply_to, self._view(now_ms))
            return
        waiting = _Waiting(event)
        self._waiting.append(waiting)
        self._deadlines.add(waiting, event.deadline_ms)

    def answer_ready(self, now_ms: int) -> None:
        """Answers those that may be answered now."""
        if not self._waiting or self._applier.is_loading:
            return
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if each.done:
                continue
            if each.event.at_least <= self._state.applied:
                each.done = True
                self._world.reply(each.event.reply_to, self._view(now_ms))
            else:
                self._waiting.append(each)

    def refuse_expired(self, now_ms: int) -> None:
        """Refuses those that have waited long enough."""
        for each in self._deadlines.expired(now_ms):
            event = each.event
            text = f"this controller has applied all below {self._state.applied}; its client has seen {event.at_least} already"
            self._world.reply(event.reply_to, Refused(ErrorCode.NOT_READY, text))

    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms()

    def _view(self, now_ms: int) -> ReadView | Refused:
        if self._agreement.is_odd:
            return Refused(ErrorCode.NOT_READY, self._state.stopped or "")
        heard_ms = self._core.leader_heard_ms
        local = LocalView(self._node_id, None if heard_ms is None else max(0, now_ms - heard_ms))
        controller = self._active.controller if self._active.on else None
        return ReadView(self._state.applied, self._state.committed, controller, now_ms, local)
