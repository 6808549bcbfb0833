"""Who waits for what: answers that wait for a commit, reads that wait for a confirmation, fetches that wait for news, and
requests that wait for a new leader to be active. Each has a deadline.

An answer leaves when what it tells of is committed *and applied here*. A decision that wrote nothing, and a read, wait
for two things: the offset that was pending when they were made (they have seen uncommitted state), and a round in which
a majority says that this node still leads (it may be deposed and not know it).
"""

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset
from quorum.controller.protocol.commands import Command, CommandReply
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.runtime.protocol.requests import MetadataFetch, Refused, SnapshotMarked
from quorum.runtime.protocol.world import Read, ReplyTo, SnapshotWanted, Submission


class Waiter(Protocol):
    """Somebody who waits until `done`."""

    done: bool


W = TypeVar("W", bound=Waiter)


class Deadlines(Generic[W]):
    """Waiters by deadline. Those that are done meanwhile need not be taken out."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, W]] = []
        self._count = 0

    def add(self, waiter: W, deadline_ms: int) -> None:
        self._count += 1
        heapq.heappush(self._heap, (deadline_ms, self._count, waiter))

    def expired(self, now_ms: int) -> Iterator[W]:
        """Those whose time is up; they are done."""
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


@dataclass(slots=True)
class Deferred:
    """One caller. `reply` is None for a read, whose answer is the image at that time."""

    reply_to: ReplyTo
    offset: Offset
    """Applied up to here (exclusive) before the answer leaves."""
    reply: CommandReply | SnapshotMarked | Refused | None
    token: int = 0
    """The read round that must be confirmed; 0: none."""
    wrote: bool = False
    """Records of this caller are in the log: if leadership ends now, nobody knows what becomes of them."""
    done: bool = False


class DeferredAnswers:
    """Callers in the order of their offsets, with deadlines."""

    def __init__(self) -> None:
        self.deadlines: Deadlines[Deferred] = Deadlines()
        self._queue: deque[Deferred] = deque()
        self._confirmed = 0

    def add(self, deferred: Deferred, deadline_ms: int) -> None:
        assert not self._queue or self._queue[-1].offset <= deferred.offset
        self._queue.append(deferred)
        self.deadlines.add(deferred, deadline_ms)

    def confirm(self, token: int) -> None:
        """Every read round up to `token` is confirmed."""
        self._confirmed = max(self._confirmed, token)

    def ready(self, applied: Offset) -> Iterator[Deferred]:
        """Those that may be answered now, in order. One that waits for its round does not hold up those behind it."""
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
        """All of them: leadership is over."""
        for deferred in self._queue:
            if not deferred.done:
                deferred.done = True
                yield deferred
        self._queue.clear()
        self.deadlines.clear()
        self._confirmed = 0


def unknown_outcome(why: str) -> Refused:
    """The records are in some log; whether they stay is not known."""
    return Refused(ErrorCode.REQUEST_TIMED_OUT, f"{why}: the request may have taken effect; look before you repeat it")


@dataclass(slots=True)
class ParkedFetch:
    """A broker's fetch that has nothing to bring yet."""

    fetch: MetadataFetch
    reply_to: ReplyTo
    deadline_ms: int
    done: bool = False


class ParkedFetches:
    """Brokers waiting for news, one fetch each. All wait for the same thing: the next commit."""

    def __init__(self) -> None:
        self.deadlines: Deadlines[ParkedFetch] = Deadlines()
        self._by_broker: dict[NodeId, ParkedFetch] = {}

    def __len__(self) -> int:
        return len(self._by_broker)

    def park(self, parked: ParkedFetch) -> ParkedFetch | None:
        """Returns the broker's earlier fetch, if one still waited: it is to be answered now, empty."""
        earlier = self._by_broker.get(parked.fetch.broker_id)
        if earlier is not None:
            earlier.done = True
        self._by_broker[parked.fetch.broker_id] = parked
        self.deadlines.add(parked, parked.deadline_ms)
        return earlier

    def wake_all(self) -> list[ParkedFetch]:
        parked = list(self._by_broker.values())
        for one in parked:
            one.done = True
        self._by_broker.clear()
        self.deadlines.clear()
        return parked

    def expired(self, now_ms: int) -> Iterator[ParkedFetch]:
        for parked in self.deadlines.expired(now_ms):
            del self._by_broker[parked.fetch.broker_id]
            yield parked


ClientRequest: TypeAlias = Submission | Read | SnapshotWanted


@dataclass(slots=True)
class EarlyRequest:
    """What a client wants of a leader that is not active yet."""

    event: ClientRequest
    done: bool = False


class EarlyRequests:
    """Clients that wait for a new leader to become active, in the order in which they came."""

    def __init__(self) -> None:
        self.deadlines: Deadlines[EarlyRequest] = Deadlines()
        self._by_caller: dict[ReplyTo, EarlyRequest] = {}

    def __len__(self) -> int:
        return len(self._by_caller)

    def add(self, event: ClientRequest) -> None:
        early = self._by_caller[event.reply_to] = EarlyRequest(event)
        self.deadlines.add(early, event.deadline_ms)

    def expired(self, now_ms: int) -> Iterator[ClientRequest]:
        for early in self.deadlines.expired(now_ms):
            del self._by_caller[early.event.reply_to]
            yield early.event

    def take_all(self) -> list[ClientRequest]:
        """All of them; nobody waits any more."""
        events = [early.event for early in self._by_caller.values()]
        self._by_caller.clear()
        self.deadlines.clear()
        return events


class FollowUp(NamedTuple):
    """The rest of a decision that takes several batches, or a request that waits for another of the same id to be done."""

    command: Command
    reply_to: ReplyTo | None
    deadline_ms: int
    identity: RequestIdentity | None = None
    wrote: bool = False
    """Some of it is in the log: whatever follows, it can't be said any more that nothing was done."""
    is_begun: bool = True
