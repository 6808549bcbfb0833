"""Bugs of clients' sessions: when they end, how long clients may trust them, and what clients are told."""

from collections.abc import Iterator
from contextlib import contextmanager

from metadata_log.format.ids import Offset, Uuid
from metadata_log.format.records import ClientSession
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.controller import Controller
from quorum.controller.entities.sessions import ClientSessions
from quorum.runtime.active import session_keeping
from quorum.runtime.active.session_keeping import SessionKeeping
from quorum.runtime.protocol.requests import KeptSession
from tests.sim.mutants.patching import Mutant, patched

_activate = ClientSessions.activate
_kept = SessionKeeping._kept
_keep_alive = Controller.keep_alive
LONG_AGO_MS = 1_000_000
_ENDING: dict[tuple[Uuid, Offset], ClientSession] = {}
"""The session that a keep-alive names, if its end is not committed."""


def _count_the_silence_before(self: ClientSessions, image: MetadataImage, now_ms: int) -> None:
    _activate(self, image, now_ms)
    self._active_since_ms -= LONG_AGO_MS


def _look_only(
    self: ClientSessions, image: MetadataImage, session_id: Uuid, epoch: Offset, now_ms: int
) -> ClientSession | None:
    session: ClientSession | None = image.client_sessions.get(session_id)
    return session if session is not None and session.epoch == epoch else None


def _as_if_just_confirmed(
    self: SessionKeeping, session_id: Uuid, epoch: Offset, now_ms: int, age_ms: int | None
) -> KeptSession:
    return _kept(self, session_id, epoch, now_ms, 0)


def _as_long_as_it_is_committed(
    self: Controller, image: MetadataImage, session_id: Uuid, epoch: Offset, now_ms: int
) -> ClientSession | None:
    session = _keep_alive(self, image, session_id, epoch, now_ms)
    return session or _ENDING.get((session_id, epoch))


def _with_those_that_end(
    self: SessionKeeping, session_id: Uuid, epoch: Offset, now_ms: int, age_ms: int | None
) -> KeptSession:
    _ENDING.clear()
    known: ClientSession | None = self._state.committed.client_sessions.get(session_id)
    if known is not None and known.epoch == epoch:
        _ENDING[session_id, epoch] = known
    return _kept(self, session_id, epoch, now_ms, age_ms)


@contextmanager
def _keep_ending_sessions() -> Iterator[None]:
    first = patched(Controller, "keep_alive", _as_long_as_it_is_committed)
    with first, patched(SessionKeeping, "_kept", _with_those_that_end):
        yield


SESSIONS: dict[str, Mutant] = {
    "session-silence-of-others": Mutant(
        "a new leader ends sessions at once, although it did not listen before",
        lambda: patched(ClientSessions, "activate", _count_the_silence_before),
    ),
    "keep-alive-not-noted": Mutant(
        "a keep-alive is answered, and does not lengthen the session",
        lambda: patched(ClientSessions, "touch", _look_only),
    ),
    "session-lease-of-the-deposed": Mutant(
        "a leader that no majority follows gives a whole lease to a session",
        lambda: patched(SessionKeeping, "_kept", _as_if_just_confirmed),
    ),
    "ending-session-kept-alive": Mutant(
        "a session whose end is in the log, and not committed yet, gets a lease",
        _keep_ending_sessions,
    ),
    "session-ended-too-soon": Mutant(
        "a client is told that its session has ended as soon as the end is in the leader's log",
        lambda: patched(session_keeping, "_UNKNOWN", KeptSession(is_open=False, lease_ms=0)),
    ),
}
