"""Sessions of brokers: the soft state of the active controller that says when each broker was heard. Never logged (KIP-631).

A session belongs to one registration (broker id *and* epoch). A contact under an older epoch refreshes nothing (M2). Each contact
sets the deadline of the session to now + timeout. The controller fences an unfenced broker whose deadline has passed.

Example: the timeout is 9,000 ms.
    1  Controller 1 hears broker 7 at 10,000: its deadline is 19,000.
    2  Controller 1 dies at 15,000. Controller 2 becomes active at 18,000 and gives broker 7 a full session, until 27,000 (M8).
       Controller 2 did not listen before 18,000, and must not count that silence.
    3  A fenced broker gets no session from controller 2: it has nothing to lose.

`next_deadline_ms` is called in every turn; the deadlines are in a heap (`quorum.controller.sessions.deadlines`).
"""

from dataclasses import dataclass

from metadata_log.format.ids import NodeId, Offset
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.sessions.deadlines import Deadlines

UNKNOWN_OFFSET: Offset = -1


@dataclass(slots=True)
class Session:
    """The contacts of one registration."""

    broker_epoch: int
    opened_ms: int
    last_contact_ms: int | None = None
    """None: the broker was not heard since this controller became active."""
    metadata_offset: Offset = UNKNOWN_OFFSET
    """The broker has applied all metadata below this offset. Never decreases within an epoch."""
    has_ended: bool = False
    """The controller has begun to fence the broker for its silence, and has not heard it since."""
    may_go: bool = False
    """The broker has asked to shut down, and nothing holds it any more."""


class Sessions:
    """The sessions of all brokers."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._by_broker: dict[NodeId, Session] = {}
        self._deadlines: Deadlines[NodeId] = Deadlines()

    @property
    def timeout_ms(self) -> int:
        """How long a session lasts after a contact."""
        return self._timeout_ms

    def reset(self, image: MetadataImage, now_ms: int) -> None:
        """Gives every unfenced broker a full session."""
        self.clear()
        for broker in image.brokers.unordered_values():
            if not broker.fenced:
                self._open(broker.broker_id, broker.broker_epoch, now_ms)

    def clear(self) -> None:
        self._by_broker.clear()
        self._deadlines.clear()

    def _open(self, broker_id: NodeId, broker_epoch: int, now_ms: int) -> Session:
        session = self._by_broker[broker_id] = Session(broker_epoch, now_ms)
        self._deadlines.set(broker_id, now_ms + self._timeout_ms)
        return session

    def of(self, broker_id: NodeId, broker_epoch: int) -> Session | None:
        """The session of the registration with this epoch."""
        session = self._by_broker.get(broker_id)
        return session if session is not None and session.broker_epoch == broker_epoch else None

    def deadline_ms(self, broker_id: NodeId) -> int:
        """When the broker's session ends, if the broker is not heard before. The broker has a session."""
        return self._deadlines.of(broker_id)

    def touch(self, broker_id: NodeId, broker_epoch: int, now_ms: int) -> None:
        """Notes that the broker was heard; nothing if it has no session under this epoch."""
        session = self.of(broker_id, broker_epoch)
        if session is not None:
            self._note(broker_id, session, now_ms)

    def _note(self, broker_id: NodeId, session: Session, now_ms: int) -> None:
        session.last_contact_ms = now_ms
        session.has_ended = False
        self._deadlines.lengthen(broker_id, now_ms + self._timeout_ms)

    def heard(self, broker_id: NodeId, broker_epoch: int, offset: Offset, now_ms: int) -> Session:
        """Notes that the broker was heard and is at `offset`. The caller has checked the epoch."""
        session = self.of(broker_id, broker_epoch) or self._open(broker_id, broker_epoch, now_ms)
        self._note(broker_id, session, now_ms)
        session.metadata_offset = max(session.metadata_offset, offset)
        return session

    def is_live(self, broker_id: NodeId, broker_epoch: int, now_ms: int) -> bool:
        """True if the broker was heard within the timeout, or may have been heard by the controller before this one."""
        session = self.of(broker_id, broker_epoch)
        if session is None or session.may_go or session.has_ended:
            return False
        return self._deadlines.of(broker_id) > now_ms

    def postpone(self, broker_id: NodeId, now_ms: int) -> None:
        """Notes that the controller has begun to fence the broker. If the fencing fails, the controller tries again soon."""
        self._by_broker[broker_id].has_ended = True
        self._deadlines.set(broker_id, now_ms + max(1, self._timeout_ms // 8))

    def credit(self, stall_ms: int) -> None:
        """Lengthens every session by the time that this process stood still: brokers are not to blame (KAFKA-15019)."""
        self._deadlines.credit(stall_ms)

    def silent_ms(self, broker_id: NodeId, now_ms: int) -> int:
        """How long the broker was not heard; since the session was opened, if it was never heard."""
        session = self._by_broker[broker_id]
        heard_ms = session.opened_ms if session.last_contact_ms is None else session.last_contact_ms
        return now_ms - heard_ms

    def next_deadline_ms(self) -> int | None:
        """The time to call `first_expired`; possibly too early, never too late."""
        return self._deadlines.next_ms()

    def first_expired(self, image: MetadataImage, now_ms: int) -> NodeId | None:
        """The unfenced broker whose session ended first, if any has ended by now."""
        while (broker_id := self._deadlines.first_passed(now_ms)) is not None:
            broker = image.brokers.get(broker_id)
            if broker is None or broker.broker_epoch != self._by_broker[broker_id].broker_epoch:
                # an older registration's, or a broker's that was unregistered
                del self._by_broker[broker_id]
                self._deadlines.remove(broker_id)
            elif broker.fenced:
                # A broker is unfenced by a contact, so its session cannot end before a whole timeout from now.
                self._deadlines.look_again(broker_id, now_ms + self._timeout_ms)
            else:
                return broker_id
        return None

    def lowest_offset(self, broker_ids: frozenset[NodeId], image: MetadataImage) -> Offset | None:
        """The lowest offset of these brokers; UNKNOWN_OFFSET if one was not heard; None if there are no brokers."""
        lowest: Offset | None = None
        for broker_id in broker_ids:
            session = self.of(broker_id, image.brokers[broker_id].broker_epoch)
            offset = UNKNOWN_OFFSET if session is None else session.metadata_offset
            if lowest is None or offset < lowest:
                lowest = offset
        return lowest
