"""The laws of clients' sessions: a session ends for silence only (E3), and nobody trusts a session that has ended (E4).

Silence is judged by the controller that ends the session: a whole timeout without a contact since this controller became active.
Trust is judged by the log: when the end of a session is committed, its client has stopped to trust its lease, by its own clock.

Example: a session has a timeout of 3,000 ms.

    1. Controller 1 hears the session at 1,000, and is deposed at 3,500. Controller 2 becomes active at 3,600.
    2. An end of the session at 4,100 breaks E3: controller 2 did not listen before 3,600, and must wait until 6,600.
    3. At 4,000 the client has got a lease until 5,500 from controller 1, which did not know that it was deposed. If the end of
       the session is committed at 5,000, the client trusts it still, and E4 is broken.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from metadata_log.format.ids import Epoch, Uuid
from metadata_log.format.records import SESSION_EXPIRED, ClientSession, Owner
from quorum.runtime.protocol.requests import SessionName
from tests.sim.coverage import Coverage
from tests.sim.history import Step
from tests.sim.laws.broken import hold
from tests.sim.laws.brokers import SESSION_SLACK_MS
from tests.sim.laws.entities.known import Touched
from tests.sim.options import Options

if TYPE_CHECKING:
    from tests.sim.entities.sessions import SimSession
    from tests.sim.nodes.controllers import SimController


class SessionLaws:
    """Checks every contact, every active controller after each of its events, and every committed end."""

    def __init__(self, options: Options, coverage: Coverage) -> None:
        self._options = options
        self._coverage = coverage
        self._sessions: dict[Uuid, SimSession] = {}
        """The clients' own view of their sessions."""
        self._active_since: dict[Epoch, float] = {}
        self._heard: dict[tuple[Epoch, Owner], float] = {}
        self._proposed: dict[Epoch, Mapping[Uuid, ClientSession]] = {}
        """By epoch of an active controller: the sessions of its proposed image, as they were seen last."""
        self._silent_ms: dict[tuple[Epoch, Owner], float] = {}
        """How long a session was silent when its end was proposed."""
        self._timeouts_ms: dict[Owner, int] = {}
        self._ended: set[Owner] = set()
        self.now_ms = 0.0

    def begun(self, session: "SimSession") -> None:
        """Notes a session that a client will open."""
        self._sessions[session.session_id] = session

    # --- controllers -----------------------------------------------------------------------------------------------

    def told_ended(self, session: "SimSession") -> None:
        """Called when a client is told that its session has ended."""
        ended = session.owner in self._ended
        hold(ended, "E3 EndedInTheLog", f"{session.name} is told that it has ended, and its end is not committed")

    def about_to_hear(self, controller: "SimController", names: tuple[SessionName, ...], now_ms: float) -> None:
        """Called before a controller takes a keep-alive."""
        node = controller.node
        if node is None or not node.active.on:
            return
        self._note_active(controller, now_ms)
        for session_id, epoch in names:
            found = node.state.proposed.client_sessions.get(session_id)
            if found is not None and found.epoch == epoch:
                self._heard[node.core.epoch, Owner(session_id, None, epoch)] = now_ms

    def observe(self, controller: "SimController", now_ms: float) -> None:
        """Called after an event at a running controller."""
        self.now_ms = now_ms
        node = controller.node
        assert node is not None
        if node.active.on:
            self._note_active(controller, now_ms)

    def _note_active(self, controller: "SimController", now_ms: float) -> None:
        node = controller.node
        assert node is not None
        epoch, sessions = node.core.epoch, node.state.proposed.client_sessions
        is_new = epoch not in self._active_since
        since_ms = self._active_since.setdefault(epoch, now_ms)
        before = self._proposed.get(epoch)
        if before is sessions:
            return
        self._proposed[epoch] = sessions
        for session in sessions.values():
            key = epoch, Owner(session.session_id, None, session.epoch)
            if key not in self._heard:
                self._heard[key] = since_ms if is_new else now_ms  # found at the activation, or opened just now
            self._timeouts_ms[key[1]] = session.timeout_ms
        for session in () if before is None else before.values():
            found = sessions.get(session.session_id)
            if found is None or found.epoch != session.epoch:
                key = epoch, Owner(session.session_id, None, session.epoch)
                self._silent_ms[key] = now_ms - self._heard[key]

    # --- the log ---------------------------------------------------------------------------------------------------

    def committed(self, step: Step, touched: Touched) -> None:
        """Checks the ends of sessions in a newly committed batch."""
        for end in touched.reasons:
            owner = Owner(end.session_id, None, end.epoch)
            self._ended.add(owner)
            session = self._sessions.get(end.session_id)
            if end.reason == SESSION_EXPIRED:
                self._coverage["session expired" if session is not None else "entity outlived its time"] += 1
                self._check_silent(step.batch.epoch, owner)
            if session is not None and session.owner == owner:
                left_ms = session.trusted_for_ms()
                text = f"{session.name} is trusted for {left_ms} ms more; its end ({end.reason}) is committed"
                hold(left_ms <= 0, "E4 LeaseWithinSession", text)

    def _check_silent(self, epoch: Epoch, owner: Owner) -> None:
        heard_ms = self._heard.get((epoch, owner), self._active_since.get(epoch, 0.0))
        silent_ms = self._silent_ms.get((epoch, owner), self.now_ms - heard_ms)
        timeout_ms = self._timeouts_ms.get(owner, 0) / (1 + self._options.clock_drift) - SESSION_SLACK_MS
        text = f"epoch {epoch} ends {owner} after {silent_ms:.0f} ms; its timeout is {timeout_ms:.0f} ms"
        hold(silent_ms >= timeout_ms, "E3 FullTimeout", text)
