"""Holds waiting callers, each with a deadline. Requests wait until a new active controller begins them, the rest of a long
decision waits for its next turn, and brokers' fetches wait for new records. (Answers that wait for a commit: `answers`.)
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset, Uuid
from quorum.controller.protocol.commands import Command
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.runtime.protocol.requests import MetadataFetch, Refused
from quorum.runtime.protocol.world import Read, ReplyTo, SnapshotWanted, Submission


class Waiter(Protocol):
    """A waiting caller, until `done`."""

    done: bool


W = TypeVar("W", bound=Waiter)


class Deadlines(Generic[W]):
    """Waiting callers by deadline. A caller that is done need not be removed."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, W]] = []
        self._count = 0

    def add(self, waiter: W, deadline_ms: int) -> None:
        self._count += 1
        heapq.heappush(self._heap, (deadline_ms, self._count, waiter))

    def expired(self, now_ms: int) -> Iterator[W]:
        """Yields the callers whose deadline has passed, and marks each caller as done."""
        while self._heap and (self._heap[0][0] <= now_ms or self._heap[0][2].done):
            waiter = heapq.heappop(self._heap)[2]
            if not waiter.done:
                waiter.done = True
                yield waiter

    def next_ms(self) -> int | None:
        while self._heap and self._heap[0][2].done:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        self._heap.clear()


def unknown_outcome(why: str) -> Refused:
    """The refusal of a caller whose records are in a log, and may or may not be committed."""
    return Refused(ErrorCode.REQUEST_TIMED_OUT, f"{why}: the request may have taken effect; look before you repeat it")


@dataclass(slots=True)
class ParkedFetch:
    """A broker's fetch that waits for new records."""

    fetch: MetadataFetch
    reply_to: ReplyTo
    deadline_ms: int
    done: bool = False


class ParkedFetches:
    """The waiting fetches, at most a single fetch of each broker, in the order of their arrival.

    A commit ends the wait of those who lack its records; they are picked once, and answered in slices. Example:
        1. brokers 101 and 102 wait from offset 40; a commit ends at 41, and both are picked;
        2. broker 101 is answered, fetches from 41, and waits again: this fetch is not among the picked ones;
        3. broker 102 is answered, and nobody is left of those who were picked. Broker 101 waits for the next commit.
    """

    def __init__(self) -> None:
        self.deadlines: Deadlines[ParkedFetch] = Deadlines()
        self._by_broker: OrderedDict[NodeId, ParkedFetch] = OrderedDict()
        self._picked: deque[ParkedFetch] = deque()

    def __len__(self) -> int:
        return len(self._by_broker)

    def park(self, parked: ParkedFetch) -> ParkedFetch | None:
        """Adds a fetch. Returns the broker's earlier waiting fetch, if any: the caller must answer that fetch now, empty."""
        earlier = self._by_broker.pop(parked.fetch.broker_id, None)
        if earlier is not None:
            earlier.done = True
        self._by_broker[parked.fetch.broker_id] = parked
        self.deadlines.add(parked, parked.deadline_ms)
        return earlier

    def pick_below(self, offset: Offset) -> None:
        """Picks the fetches from below `offset`, instead of those that were picked before and still wait."""
        self._picked = deque(each for each in self._by_broker.values() if each.fetch.offset < offset)

    @property
    def has_picked(self) -> bool:
        """True if a picked fetch still waits."""
        while self._picked and self._picked[0].done:
            self._picked.popleft()
        return bool(self._picked)

    def picked(self) -> Iterator[ParkedFetch]:
        """Yields and removes the picked fetches, oldest first."""
        while self.has_picked:
            oldest = self._picked.popleft()
            del self._by_broker[oldest.fetch.broker_id]
            oldest.done = True
            yield oldest

    def expired(self, now_ms: int) -> Iterator[ParkedFetch]:
        """Yields and removes the fetches whose deadline has passed."""
        for parked in self.deadlines.expired(now_ms):
            del self._by_broker[parked.fetch.broker_id]
            yield parked

    def drain(self) -> list[ParkedFetch]:
        """Returns and removes all fetches, because the leadership has ended."""
        parked = list(self._by_broker.values())
        self._by_broker.clear()
        self._picked.clear()
        self.deadlines.clear()
        return parked


ClientRequest: TypeAlias = Submission | Read | SnapshotWanted


@dataclass(slots=True)
class WaitingRequest:
    """A client's request that is not begun."""

    event: ClientRequest
    done: bool = False


class WaitingRoom:
    """The requests that an active controller has not begun, in the order of their arrival.

    Before a new leader is active, all requests wait. Then the leader takes them in parts, one part each turn, and later requests
    wait behind them. Example with 300 requests, of which a turn takes 128:
        1. leader 1 is elected; 300 clients ask it before it is active; 50 of the requests expire, and are refused;
        2. leader 1 becomes active, and takes 128 requests; 10 more clients ask it, and 132 requests wait;
        3. the next turn takes 128 of them; the turn after that takes the last 4, and the room is empty.
    From then on, requests do not wait here.
    """

    def __init__(self) -> None:
        self.deadlines: Deadlines[WaitingRequest] = Deadlines()
        self._queue: deque[WaitingRequest] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, event: ClientRequest) -> None:
        waiting = WaitingRequest(event)
        self._queue.append(waiting)
        self._count += 1
        self.deadlines.add(waiting, event.deadline_ms)

    def expired(self, now_ms: int) -> Iterator[ClientRequest]:
        """Yields and removes the requests whose deadline has passed."""
        for waiting in self.deadlines.expired(now_ms):
            self._count -= 1
            yield waiting.event

    def take(self) -> ClientRequest:
        """Returns and removes the oldest request. The room is not empty."""
        while (waiting := self._queue.popleft()).done:
            pass
        waiting.done = True
        self._count -= 1
        return waiting.event

    def drain(self) -> Iterator[ClientRequest]:
        """Yields and removes all requests, because the leadership has ended."""
        while self._count:
            yield self.take()
        self._queue.clear()
        self.deadlines.clear()


COPIES_MAX: Final = 100
"""Maximum number of repeated requests that wait for the end of a decision with their id; further copies are refused."""


class FollowUp(NamedTuple):
    """The rest of a decision that takes several batches, or a repeated request that waits for the first of the same id."""

    command: Command
    reply_to: ReplyTo | None
    deadline_ms: int
    identity: RequestIdentity | None = None
    wrote: bool = False
    """True if the log has some records of the decision, so that no later answer may say that nothing was done."""
    is_begun: bool = True
    is_answered: bool = False
    """True if the deadline has passed: the caller was told that the decision goes on."""

    @property
    def waiting(self) -> ReplyTo | None:
        """The caller who still waits for the answer, if any."""
        return None if self.is_answered else self.reply_to

    def is_late(self, now_ms: int) -> bool:
        """True if a caller waits whose deadline has passed."""
        return self.waiting is not None and self.deadline_ms <= now_ms


class FollowUps:
    """The decisions that take several batches, and the repeated requests that wait for such a decision. A turn continues one.

    A repeated request takes no turn before the decision with its id has ended. Counter-example, if the requests took turns alike:
    a client repeats its request once a turn. After 10 turns, 10 copies wait, and the next slice is 11 turns away. In these turns
    11 more copies arrive, so the slice after that is 22 turns away, and the decision hardly ends.

    A turn that has begun a decision of several batches continues none, so that it has one slice. The next turn continues one in
    any case, even if it begins another.
    """

    def __init__(self) -> None:
        self._queue: deque[FollowUp] = deque()
        self._copies = 0
        self._has_begun = self._has_rested = False

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def has_room_for_copies(self) -> bool:
        """True if fewer than COPIES_MAX repeated requests wait."""
        return self._copies < COPIES_MAX

    def add(self, follow_up: FollowUp) -> None:
        self._copies += not follow_up.is_begun
        self._has_begun |= follow_up.is_begun
        self._queue.append(follow_up)

    def rests(self) -> bool:
        """True if this turn continues nothing. Called once a turn."""
        self._has_rested = self._has_begun and not self._has_rested
        return self._has_rested

    def turn_ended(self) -> None:
        """Forgets what this turn has begun."""
        self._has_begun = False

    def take(self) -> FollowUp:
        """Returns and removes the oldest that need not wait for another. There is one."""
        deciding = self._deciding()
        while (oldest := self._queue.popleft()).identity and not oldest.is_begun:
            if oldest.identity.request_id not in deciding:
                break
            self._queue.append(oldest)
        self._copies -= not oldest.is_begun
        return oldest

    def late(self, now_ms: int) -> Iterator[FollowUp]:
        """Yields those whose callers have waited up to their deadlines, and marks them as answered."""
        for place, each in enumerate(self._queue):
            if each.is_late(now_ms):
                self._queue[place] = each._replace(is_answered=True)
                yield each

    def next_deadline_ms(self) -> int | None:
        """The time to call `late`."""
        return min((each.deadline_ms for each in self._queue if each.waiting is not None), default=None)

    def drain(self) -> Iterator[FollowUp]:
        self._copies = 0
        while self._queue:
            yield self._queue.popleft()

    def is_deciding(self, request_id: Uuid) -> bool:
        """True if the request with this id is begun, and its last batch is not written yet."""
        return request_id in self._deciding()

    def _deciding(self) -> set[Uuid]:
        return {each.identity.request_id for each in self._queue if each.is_begun and each.identity is not None}
