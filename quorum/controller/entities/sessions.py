"""Sessions of clients: the soft state of the active controller that says when each was heard, and the decisions about them.

The session itself is in the log (`ClientSession`); its contacts are not. Brokers' sessions obey the same laws:

  * a contact under an older epoch refreshes nothing (M2);
  * a new controller gives every session its full timeout, because it did not listen before (M8);
  * a stall of the process lengthens every session.

Example. Worker A opens a session with a timeout of 9,000 ms at 1,000 ms; its epoch is 40.
    1  A's message arrives at 4,000: the session lasts until 13,000. Nothing is written.
    2  A dies. At 13,000 `due` returns `EndExpiredSessions`, and the decision removes A's entities and ends the session, in
       one batch.
    3  If controller 2 had become active at 12,000, the session would last until 21,000.

*A new controller finds the sessions in slices.* 100,000 sessions take 0.1 s, and a turn may take 10 ms. So each look adds
LOADED_PER_LOOK sessions, with the deadline that they would have had at once. A session that is heard meanwhile is added by
the contact.

*A hidden session* belongs to one entity with a TTL. The controller opens and ends it, and its principal is empty. No contact
reaches it.

*The deadline of a session that has ended* is forgotten at the next decision. For example a program puts an entity with a TTL of
a day a hundred times a second. Each put ends one hidden session and opens another: without this, the deadlines of 8,640,000
sessions would wait for their day. A decision may be lost before it is written, so only a session that is gone from the image
loses its deadline.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset, Uuid
from metadata_log.format.records import (
    SESSION_CLOSED,
    SESSION_EXPIRED,
    SESSION_NAME_CHARS_MAX,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
    ClientSession,
    EndClientSession,
    MetadataRecord,
    Owner,
    RemoveEntity,
)
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.entities.limits import check_sessions
from quorum.controller.protocol.commands import FollowUpReply
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.entity_commands import (
    ENTITIES_LEVEL,
    CloseSession,
    CloseSessionReply,
    OpenSession,
    OpenSessionReply,
)
from quorum.controller.protocol.feature_gate import require_level
from quorum.controller.protocol.happenings import SessionClosed, SessionOpened, SessionsExpired, first_few
from quorum.controller.sessions.deadlines import Deadlines
from quorum.controller.sessions.ephemerals import removals

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
HIDDEN: Final = ""
"""The principal of a hidden session."""
COARSE_MS: Final = 20
"""The looks of so many milliseconds are one look: a session ends so much later at most."""
LOADED_PER_LOOK: Final = 1_000
"""How many sessions a new controller adds in one look: about 4 ms of work."""
ENDED_RECORDS_MAX: Final = 500
"""Maximum number of records of a batch that ends expired sessions: about 10 ms of work. One session has 1,001 at most."""
ENDED_BYTES_MAX: Final = 700 << 10
"""Maximum size of the names in such a batch, which has room for 1 MiB. The entities of one session have 600 KiB at most."""
AGAIN_MS: Final = 1_000
"""How long a session is left out whose end is decided. If the end was never written, the controller decides again."""


def is_hidden(session: ClientSession) -> bool:
    """True if the session belongs to one entity with a TTL."""
    return session.principal == HIDDEN


class ClientSessions:
    """The deadlines of all sessions of clients, and the decisions that open and end sessions."""

    def __init__(self) -> None:
        self._deadlines: Deadlines[Uuid] = Deadlines(COARSE_MS)
        self._unloaded: Iterator[ClientSession] | None = None
        """The sessions of the image at the activation that have no deadline yet."""
        self._active_since_ms = 0
        self._ending: list[Uuid] = []
        """The sessions whose end was decided lately, and may not be in the image yet."""

    def __len__(self) -> int:
        """How many sessions have a deadline."""
        return len(self._deadlines)

    def activate(self, image: MetadataImage, now_ms: int) -> None:
        """Gives every session its full timeout (M8)."""
        self.deactivate()
        self._active_since_ms = now_ms
        self._unloaded = image.client_sessions.unordered_values() if len(image.client_sessions) else None

    def deactivate(self) -> None:
        self._deadlines.clear()
        self._unloaded = None
        self._ending.clear()

    # --- contacts ---

    def touch(self, image: MetadataImage, session_id: Uuid, epoch: Offset, now_ms: int) -> ClientSession | None:
        """Notes a contact, and returns the session. None: `image` has no such session, and nothing was noted (M2)."""
        session: ClientSession | None = image.client_sessions.get(session_id)
        if session is None or session.epoch != epoch or is_hidden(session):
            return None
        deadline_ms = now_ms + session.timeout_ms
        if session_id in self._deadlines:
            self._deadlines.lengthen(session_id, deadline_ms)
        else:
            self._deadlines.set(session_id, deadline_ms)
        return session

    def decided(self, image: MetadataImage, records: Iterable[MetadataRecord], now_ms: int) -> None:
        """Notes the sessions that a decision on `image` opens and ends."""
        self._forget_ended(image)
        for record in records:
            if isinstance(record, ClientSession):
                self._deadlines.set(record.session_id, now_ms + record.timeout_ms)
            elif isinstance(record, EndClientSession):
                self._ending.append(record.session_id)

    def _forget_ended(self, image: MetadataImage) -> None:
        ending, self._ending = self._ending, []
        for session_id in ending:
            if session_id not in image.client_sessions:
                self._deadlines.remove(session_id)

    def credit(self, stall_ms: int) -> None:
        """Lengthens every session by the time that this process stood still."""
        self._active_since_ms += stall_ms
        self._deadlines.credit(stall_ms)

    # --- time ---

    def next_deadline_ms(self) -> int | None:
        """The time to call `is_due`; possibly too early, never too late."""
        return 0 if self._unloaded is not None else self._deadlines.next_ms()

    def is_due(self, image: MetadataImage, now_ms: int) -> bool:
        """True if a session has expired. Adds a slice of the sessions that a new controller does not know yet."""
        self._load()
        return self._first_expired(image, now_ms) is not None

    def _load(self) -> None:
        if self._unloaded is None:
            return
        for _ in range(LOADED_PER_LOOK):
            session = next(self._unloaded, None)
            if session is None:
                self._unloaded = None
                return
            if session.session_id not in self._deadlines:
                self._deadlines.set(session.session_id, self._active_since_ms + session.timeout_ms)

    def _first_expired(self, image: MetadataImage, now_ms: int) -> ClientSession | None:
        """The session that expired first. Forgets sessions that have ended."""
        while (session_id := self._deadlines.first_passed(now_ms)) is not None:
            session: ClientSession | None = image.client_sessions.get(session_id)
            if session is not None:
                return session
            self._deadlines.remove(session_id)
        return None

    # --- decisions ---

    def open(self, image: MetadataImage, command: OpenSession, now_ms: int) -> Decision:
        """Raises ControllerError: UNSUPPORTED_VERSION, INVALID_REQUEST, POLICY_VIOLATION."""
        require_level(image, ENTITIES_LEVEL, "a session")
        if len(command.name) > SESSION_NAME_CHARS_MAX:
            raise _bad(f"a session's name has at most {SESSION_NAME_CHARS_MAX} characters, not {len(command.name)}")
        if _CONTROL.search(command.name):
            raise _bad("a session's name has no control characters: it is shown in logs")
        if not SESSION_TIMEOUT_MS_MIN <= command.timeout_ms <= SESSION_TIMEOUT_MS_MAX:
            limits = f"{SESSION_TIMEOUT_MS_MIN:,} to {SESSION_TIMEOUT_MS_MAX:,}"
            raise _bad(f"the timeout of a session is {limits} ms, not {command.timeout_ms:,}")
        found: ClientSession | None = image.client_sessions.get(command.session_id)
        if found is not None and is_hidden(found):
            raise _bad("this session id is in use: draw another one")
        if found is not None:
            self.touch(image, found.session_id, found.epoch, now_ms)
            return Decision((), OpenSessionReply(epoch=found.epoch, timeout_ms=found.timeout_ms))
        check_sessions(image, 1)
        assert command.principal != HIDDEN
        record = ClientSession(command.session_id, command.name, command.principal, command.timeout_ms)
        told = SessionOpened(command.name, command.timeout_ms)
        return Decision((record,), OpenSessionReply(timeout_ms=command.timeout_ms), happenings=(told,))

    def close(self, image: MetadataImage, command: CloseSession) -> Decision:
        """Raises ControllerError: UNSUPPORTED_VERSION."""
        require_level(image, ENTITIES_LEVEL, "a session")
        session: ClientSession | None = image.client_sessions.get(command.session_id)
        if session is None or session.epoch != command.epoch:
            return Decision((), CloseSessionReply())
        records = _end_of(image, session, SESSION_CLOSED)
        told = SessionClosed(session.name, entities=len(records) - 1)
        return Decision(tuple(records), CloseSessionReply(), happenings=(told,))

    def end_expired(self, image: MetadataImage, now_ms: int) -> Decision:
        """Ends the sessions that expired first, as many as one batch has room for."""
        records: list[MetadataRecord] = []
        ended: list[ClientSession] = []
        size = 0
        while (session := self._first_expired(image, now_ms)) is not None:
            end = _end_of(image, session, SESSION_EXPIRED)
            size += sum(len(each.kind) + len(each.name.encode()) for each in end if isinstance(each, RemoveEntity))
            if ended and (len(records) + len(end) > ENDED_RECORDS_MAX or size > ENDED_BYTES_MAX):
                break
            self._deadlines.set(session.session_id, now_ms + AGAIN_MS)
            records += end
            ended.append(session)
        if not ended:
            return Decision((), FollowUpReply())
        shown = [session for session in ended if not is_hidden(session)]
        told = SessionsExpired(
            sessions=len(shown),
            ttls=len(ended) - len(shown),
            entities=len(records) - len(ended),
            first=first_few(session.name for session in shown),
        )
        return Decision(tuple(records), FollowUpReply(), happenings=(told,))


def _end_of(image: MetadataImage, session: ClientSession, reason: str) -> list[MetadataRecord]:
    owner = Owner(session.session_id, None, session.epoch)
    return [*removals(image, owner), EndClientSession(session.session_id, session.epoch, reason)]


def _bad(text: str) -> ControllerError:
    return ControllerError(ErrorCode.INVALID_REQUEST, f"{text}; nothing was done")
