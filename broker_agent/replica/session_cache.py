"""The source's half of incremental fetch sessions (KIP-227): a bounded cache of the partitions of each fetcher.

A request in a session names only changes; the cache knows the other partitions. The answer names only partitions with news:
records, an error, a divergence, a moved high watermark or log start. Partitions with records move to the end of the session's
order, so that each partition gets its share of the answers' bytes.

    1. Broker 3 sends a full request for orders-0 and orders-1. The cache begins session 77, and the answer has both partitions.
    2. orders-1 gets a record. The answer to the next request, which names nothing, has orders-1 only.
    3. Broker 3 did not receive this answer. Its full request names session 77, which ends; session 78 begins.

The cache has limited slots. If no slot is free, a new session may take the slot of a session that was idle for
`session_idle_ms_max`, or that is smaller and older than `session_idle_ms_max`; a session of a broker ranks above a session of a
client. A fetcher that gets no slot goes on with full requests, which are correct, but larger.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker_agent.replica.fetch_sessions import (
    FINAL_EPOCH,
    FULL_EPOCH,
    NO_SESSION,
    SessionAnswer,
    SessionRequest,
    next_epoch,
)
from broker_agent.replica.follower import PartitionAnswer, PartitionFetch
from broker_agent.session.isr_proposals import Place
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset

SESSION_ID_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The limits of one broker's cache."""

    slots_max: int = 1_000
    """Maximum number of sessions (`max.incremental.fetch.session.cache.slots`)."""
    partitions_max: int = 1_000_000
    """Maximum number of partitions in all sessions together."""
    session_idle_ms_max: int = 120_000
    """How long a session keeps its slot without a request, if another session wants the slot."""


class _Said(NamedTuple):
    """The news of one partition that the fetcher has received last."""

    high_watermark: Offset
    log_start_offset: Offset

    @classmethod
    def of(cls, answer: PartitionAnswer) -> "_Said":
        return cls(answer.high_watermark, answer.log_start_offset)


class _Session:
    def __init__(self, session_id: int, privileged: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.privileged = privileged
        """True for a follower's session."""
        self.epoch = 1
        """The epoch of the next request."""
        self.created_ms = self.used_ms = now_ms
        self.fetches: dict[Place, PartitionFetch] = {}
        self.said: dict[Place, _Said] = {}

    @property
    def rank(self) -> tuple[bool, int]:
        return self.privileged, len(self.fetches)

    def update(self, request: SessionRequest) -> None:
        for place in request.forgotten:
            self.fetches.pop(place, None)
            self.said.pop(place, None)
        for place, fetch in request.fetches:
            before = self.fetches.get(place)
            if before is not None and before.leader_epoch != fetch.leader_epoch:
                self.said.pop(place, None)  # the fetcher takes no answer to a request of its earlier leader epoch
            self.fetches[place] = fetch

    def news(self, answers: dict[Place, PartitionAnswer]) -> tuple[tuple[Place, PartitionAnswer], ...]:
        """Return the answers that the fetcher does not know yet, and note them as said."""
        news = []
        for place, answer in answers.items():
            said = _Said.of(answer)
            if answer.error is not ErrorCode.NONE or answer.diverged is not None:
                self.said.pop(
                    place, None
                )  # the fetcher takes only the high watermark of a log that agrees with its own
            elif answer.batches or self.said.get(place) != said:
                self.said[place] = said
            else:
                continue
            news.append((place, answer))
            if answer.batches and place in self.fetches:
                self.fetches[place] = self.fetches.pop(place)  # to the end
        return tuple(news)


class Context:
    """One request at its source: which partitions to read, and which of the answers travel."""

    def __init__(self, request: SessionRequest, session: _Session | None, error: ErrorCode) -> None:
        self.error = error
        """Not NONE: the request is refused as a whole, and `answer` is to be called without answers."""
        self.named = request.fetches
        """The partitions that the request names."""
        self.forgotten = request.forgotten
        self.is_full = request.epoch in (FULL_EPOCH, FINAL_EPOCH)
        """True if the answer has all partitions of the request."""
        self._session = session
        self._fetches = dict(request.fetches) if session is None else session.fetches

    @property
    def session_id(self) -> int:
        """The session of the request; `NO_SESSION` if it has none."""
        return NO_SESSION if self._session is None else self._session.session_id

    @property
    def fetches(self) -> tuple[tuple[Place, PartitionFetch], ...]:
        """The partitions to read, in this order, until the answer has enough bytes."""
        return tuple(self._fetches.items())

    def fetch_of(self, place: Place) -> PartitionFetch | None:
        """Return what the fetcher wants of one partition; None if it has forgotten the partition."""
        return self._fetches.get(place)

    def is_news(self, place: Place, answer: PartitionAnswer) -> bool:
        """True if the fetcher does not know the high watermark and the log start in `answer`."""
        return self._session is not None and self._session.said.get(place) != _Said.of(answer)

    def answer(self, answers: dict[Place, PartitionAnswer]) -> SessionAnswer:
        """Make the answer from those of the partitions that have news, or of all partitions in `fetches`."""
        if self.error is not ErrorCode.NONE:
            return SessionAnswer(self.error)
        if self._session is None:
            return SessionAnswer(answers=tuple(answers.items()))
        news = self._session.news(answers)
        return SessionAnswer(ErrorCode.NONE, self._session.session_id, tuple(answers.items()) if self.is_full else news)


class SessionCache:
    """The sessions of one source broker."""

    def __init__(
        self, limits: SessionLimits, rng: random.Random, ended: Callable[[int], None] = lambda session_id: None
    ) -> None:
        """`ended` is called with the id of each session that ends."""
        self._limits = limits
        self._ended = ended
        self._rng = rng
        self._sessions: dict[int, _Session] = {}
        """By id; the longest idle session first."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """How many partitions all sessions have together."""
        return sum(len(session.fetches) for session in self._sessions.values())

    def open(self, request: SessionRequest, now_ms: int, *, privileged: bool) -> Context:
        """Begin to serve a request. `privileged`: the sender is a broker that follows, and not a client."""
        if request.epoch == FINAL_EPOCH:
            self._end(request.session_id)
            return Context(request, None, ErrorCode.NONE)
        if request.is_full:
            self._end(request.session_id)
            return Context(request, self._begin(request, now_ms, privileged), ErrorCode.NONE)
        session = self._sessions.get(request.session_id)
        if session is None:
            return Context(request, None, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.epoch != session.epoch:
            return Context(request, None, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if self.partition_count + len(request.fetches) > self._limits.partitions_max:
            self._end(session.session_id)
            return Context(request, None, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.update(request)
        session.epoch = next_epoch(session.epoch)
        session.used_ms = now_ms
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)  # the latest used
        return Context(request, session, ErrorCode.NONE)

    def _begin(self, request: SessionRequest, now_ms: int, privileged: bool) -> _Session | None:
        """Begin a session for a full request; return None if it gets no slot."""
        size = len(request.fetches)
        if size == 0 or self.partition_count + size > self._limits.partitions_max:
            return None
        if len(self._sessions) >= self._limits.slots_max and not self._evict((privileged, size), now_ms):
            return None
        session = _Session(self._new_id(), privileged, now_ms)
        session.update(request)
        self._sessions[session.session_id] = session
        return session

    def _evict(self, rank: tuple[bool, int], now_ms: int) -> bool:
        """End one session, so that a session of `rank` gets its slot; return False if none has to give way."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.used_ms > self._limits.session_idle_ms_max:
            self._end(oldest.session_id)
            return True
        least = min(self._sessions.values(), key=lambda session: session.rank)
        if now_ms - least.created_ms <= self._limits.session_idle_ms_max or least.rank >= rank:
            return False
        self._end(least.session_id)
        return True

    def _end(self, session_id: int) -> None:
        if self._sessions.pop(session_id, None) is not None:
            self._ended(session_id)

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randint(1, SESSION_ID_MAX)
            if session_id not in self._sessions:
                return session_id
