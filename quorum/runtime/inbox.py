"""The events that wait for a node's next turn, and the rule which event starts a turn.

A turn takes all events since the last turn, so under load one turn, one append and one flush serve many clients.

*A change that arrives while an earlier change waits for its majority starts no turn.* The followers are busy with the earlier
batch, and could not take the new change yet. Example with leader 1 and follower 2:
    1. the change of client A is appended at offset 40; follower 2 receives the batch and flushes;
    2. the change of client B arrives, is queued, and starts no turn;
    3. follower 2 fetches from 41, which starts a turn;
    4. the turn commits 40, answers client A, appends all queued changes, and answers the fetch with them.
With 64 changes in flight, the leader commits twice as many changes a second in this way.

*A leader's flush that can commit nothing yet starts no turn either.* In step 2 the flush of leader 1 ends, too. No majority has
record 40 before the fetch of step 3, and the turn of that fetch takes the end of the flush along (`flusher`).

*Controllers and brokers never wait behind clients, and controllers never wait behind brokers.* A leader that answers controllers
late loses its leadership. So a turn takes their events first, then some fetches of brokers, and requests of clients only for a
while. Example with 1,000 brokers that were all answered in the moment before:
    1. their next fetches arrive; a turn takes FETCHES_PER_TURN_MAX of them;
    2. follower 2 fetches; the next turn takes this fetch first, and as many fetches of brokers again.
"""

from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

from quorum.runtime.node import Node
from quorum.runtime.protocol.surroundings import Clock
from quorum.runtime.protocol.world import (
    BrokerFetch,
    Event,
    JobDone,
    KeepAlive,
    LocalRead,
    Read,
    SkipWanted,
    SnapshotWanted,
    Submission,
)

ClientEvent: TypeAlias = Submission | Read | LocalRead | SnapshotWanted | SkipWanted

FETCHES_PER_TURN_MAX = 64
"""Maximum number of brokers' fetches and sessions' messages that one turn takes; the rest waits for the next turn."""
KEPT_PER_TURN_MAX = 4_000
"""After how many sessions of messages a turn takes no further contact: 4 ms of work. One message has 1,000 sessions at most."""
TURN_REQUESTS_MAX = 512
"""Maximum number of clients' requests that one turn takes; the rest wait for the next turn."""
TURN_WORK_US_MAX = 5_000
"""Maximum CPU time after which a turn begins no further request of a client."""
LOOK_EVERY_REQUESTS = 8
"""How many requests a turn takes between two looks at the CPU clock, which costs microseconds."""
LOOK_EVERY_RECORDS = 500
"""How many new records make a turn look at the CPU clock before that: eight topics of 10,000 partitions take half a second."""


class Inbox:
    """The waiting events of one node."""

    def __init__(self, node: Node, clock: Clock, flushes: deque[JobDone]) -> None:
        """`flushes`: the ends of flushes, which the flushing thread adds."""
        self._node = node
        self._flushes = flushes
        self._clock = clock
        self._events: deque[Event] = deque()
        self._fetches: deque[BrokerFetch | KeepAlive] = deque()
        """Contacts of brokers and of sessions; a turn takes them after `_events`."""
        self._requests: deque[ClientEvent] = deque()
        """Requests of clients; a turn takes them last."""

    @property
    def needs_turn(self) -> bool:
        """True if a turn must start now. Meant for the end of a turn, which may have left some, or missed a flush."""
        return bool(self._events or self._fetches or self._requests or (self._flushes and self.awaits_flush))

    @property
    def awaits_flush(self) -> bool:
        """True if the next end of a flush must start a turn, because the flush may commit records."""
        return not self._node.awaits_majority or self._node.core.awaits_own_flush

    def add(self, event: Event) -> bool:
        """Adds an event. True: the caller must start a turn. False: another turn is certain to come soon, with the fetch of a
        follower or with the timer of check-quorum.
        """
        if isinstance(event, ClientEvent):
            self._requests.append(event)
            return not (isinstance(event, Submission) and self._node.awaits_majority)
        if isinstance(event, BrokerFetch | KeepAlive):
            self._fetches.append(event)
        else:
            self._events.append(event)
        return True

    def take(self, began_us: int) -> Iterator[Event]:
        """Yields the events of a turn: all of controllers, some of brokers, and as many requests of clients as there is time for.

        The turn began at the CPU time `began_us`.
        """
        while self._flushes:
            yield self._flushes.popleft()
        events, self._events = self._events, deque()
        yield from events
        kept = 0
        for _ in range(min(len(self._fetches), FETCHES_PER_TURN_MAX)):
            contact = self._fetches.popleft()
            yield contact
            kept += len(contact.sessions) if isinstance(contact, KeepAlive) else 0
            if kept >= KEPT_PER_TURN_MAX:
                break
        if not self._requests:
            return
        log, looked_at = self._node.log, self._node.log.end
        for count in range(TURN_REQUESTS_MAX):
            if count > 0 and (count % LOOK_EVERY_REQUESTS == 0 or log.end - looked_at >= LOOK_EVERY_RECORDS):
                looked_at = log.end
                if self._clock.cpu_us() - began_us >= TURN_WORK_US_MAX:
                    return
            if not self._requests:
                return
            yield self._requests.popleft()
