"""Keeps sessions of clients alive on the active controller, and says how long each client may trust its session.

A message counts when it arrives. The answer tells of the committed image, because a session that an uncommitted batch ends
may live on.

    the session is in the proposed image       it is kept alive, with a lease
    in the committed image alone               its end is decided: no lease, and no word that it has ended
    in neither, and its epoch is below both    it has ended
    in neither, and its epoch is not           this controller does not know it yet: no lease

*The lease.* No controller ends a session within its timeout T after a contact. A new controller gives every session T from
its own activation, and cannot become active before the quorum round that this controller has confirmed last. So the session
is open until that round began + T. A fifth of T is left for clocks that run apart. The client counts from when it sent the
message. Example, T = 9,000 ms:
    1  Controller 1 begins a round at 1,000 ms, and a majority answers it.
    2  The client's message arrives at 1,150: the lease is 7,200 - 150 = 7,050 ms.
    3  Controller 1 is paused at 1,200, and controller 2 becomes active at 2,500: it ends the session at 11,500 at the earliest.
    4  Controller 1 wakes up at 60,000, and gets a message. The last confirmed round is 59,000 ms old: the lease is 0.
"""

from typing import Final

from metadata_log.format.ids import Offset, Uuid
from quorum.controller.controller import Controller
from quorum.runtime.parts import Parts
from quorum.runtime.protocol.requests import KeptSession, SessionName, SessionsKept

_ENDED: Final = KeptSession(is_open=False, lease_ms=0)
_UNKNOWN: Final = KeptSession(is_open=True, lease_ms=0)


class SessionKeeping:
    """Answers messages that keep sessions alive."""

    def __init__(self, parts: Parts, controller: Controller) -> None:
        self._core, self._state = parts.core, parts.state
        self._controller = controller

    def keep(self, sessions: tuple[SessionName, ...], now_ms: int) -> SessionsKept:
        """Notes the contact of each session, and returns the state of each."""
        began_ms = self._core.last_quorum_round_began_ms
        age_ms = None if began_ms is None else max(0, now_ms - began_ms)
        return SessionsKept(tuple([self._kept(*each, now_ms, age_ms) for each in sessions]))

    def _kept(self, session_id: Uuid, epoch: Offset, now_ms: int, age_ms: int | None) -> KeptSession:
        committed = self._state.committed
        session = self._controller.keep_alive(self._state.proposed, session_id, epoch, now_ms)
        if session is not None:
            lease_ms = 0 if age_ms is None else max(0, session.timeout_ms * 4 // 5 - age_ms)
            return KeptSession(is_open=True, lease_ms=lease_ms)
        known = committed.client_sessions.get(session_id)
        if epoch >= committed.offset or (known is not None and known.epoch == epoch):
            return _UNKNOWN
        return _ENDED
