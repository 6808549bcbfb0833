"""The schedule of fetches: one fetcher for each source broker and fetcher id, each for many partitions. Pure.

A broker follows thousands of partitions. All those with the same source and the same fetcher id, a hash of the partition modulo
`num.replica.fetchers`, share one request:

    1. Broker 3 follows orders-0 and orders-1, led by broker 1, and orders-2, led by broker 2, with one fetcher for each source.
    2. Fetcher 1/0 asks broker 1 for orders-0 and orders-1 in one request. Fetcher 2/0 asks broker 2 for orders-2.
    3. orders-1 gets data, and moves to the end of the order: the answer's bytes go to orders-0 first next time.
    4. orders-0 gets an error. Fetcher 1/0 leaves orders-0 out of its requests for a second; orders-1 goes on.

One request of a fetcher is in flight at a time. After a failed request the fetcher pauses, each time twice as long, so a dead
source is not asked in a tight loop. The pauses have jitter, so that the fetchers of many brokers do not return in step. A fetcher
rests while no partition is active. A fetcher without partitions ends.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import NamedTuple
from zlib import crc32

from broker_agent.replica.fetch_sessions import FetchSession, SessionAnswer, SessionRequest
from broker_agent.replica.follower import FollowerEffect, PartitionAnswer, PartitionFetch, PartitionFollower, Progress
from broker_agent.session.isr_proposals import Place
from metadata_log.format.ids import NodeId


@dataclass(frozen=True, slots=True)
class FetcherConfig:
    """The configuration of a broker's fetchers."""

    num_fetchers: int = 1
    """How many fetchers each source has (`num.replica.fetchers`)."""
    backoff_ms: int = 1_000
    """How long to wait after an error of a partition, and after a failed request (`replica.fetch.backoff.ms`)."""
    backoff_max_ms: int = 10_000
    """Maximum wait of a fetcher after several failed requests."""


class FetcherKey(NamedTuple):
    """One fetcher: the broker that it asks, and its number among the fetchers of this broker."""

    source_id: NodeId
    fetcher_id: int


class Request(NamedTuple):
    """Send this to the source. `number` tells its answer from a late one."""

    number: int
    session: SessionRequest


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to send now. `until_ms` is None if only another partition, or an answer, can change this."""

    until_ms: int | None


@dataclass(slots=True)
class _Followed:
    """One partition of a fetcher."""

    follower: PartitionFollower
    left_out_until_ms: int = 0


class Fetcher:
    """The partitions that one fetcher follows, in the order of its requests.

    A request costs the partitions that have changed since the last one, and not all: the followers tell their changes.
    """

    def __init__(self, config: FetcherConfig, rng: random.Random) -> None:
        self.session = FetchSession()
        self._config = config
        self._rng = rng
        self._followed: dict[Place, _Followed] = {}
        self._wanted: dict[Place, PartitionFetch] = {}
        """The partitions of the next request, as far as `_touched` does not say otherwise."""
        self._touched: dict[Place, None] = {}
        """The partitions that may have changed since `_wanted` was brought up to date."""
        self._unsent: dict[Place, None] = {}
        """The partitions that may differ from the last request."""
        self._left_out: list[tuple[int, Place]] = []
        """A heap of times and the partitions that are left out until then."""
        self._number = 0
        self._is_in_flight = False
        """True while the request for `session.partitions` has no answer."""
        self._failures = 0
        self._not_before_ms = 0

    def __len__(self) -> int:
        return len(self._followed)

    def __iter__(self) -> Iterator[Place]:
        return iter(self._followed)

    def add(self, place: Place, follower: PartitionFollower) -> None:
        """Follow a partition at once, also if it was left out until now."""
        self._followed[place] = _Followed(follower)
        follower.changed = partial(self._touch, place)
        self._touch(place)

    def remove(self, place: Place) -> None:
        """Follow a partition no more. An answer to a request in flight has no effect on it."""
        self._followed.pop(place, None)
        self._touch(place)

    def leave_out(self, place: Place, now_ms: int, pause_ms: int | None = None) -> None:
        """Do not ask for a partition for a while: `pause_ms`, or as after an error."""
        followed = self._followed.get(place)
        if followed is not None:
            until_ms = now_ms + (self._jittered(self._config.backoff_ms) if pause_ms is None else pause_ms)
            followed.left_out_until_ms = until_ms
            heappush(self._left_out, (until_ms, place))
            self._touch(place)

    def _touch(self, place: Place) -> None:
        self._touched[place] = None

    # --- asking ------------------------------------------------------------------------------------------------------

    def next(self, now_ms: int) -> Request | Rest:
        """Return the next request, or how long to rest. After a `Request`, call `answered` or `failed`."""
        if self._is_in_flight:
            return Rest(None)
        if now_ms < self._not_before_ms:
            return Rest(self._not_before_ms)
        self._update(now_ms)
        if not self._wanted:
            return Rest(self._left_out[0][0] if self._left_out else None)
        self._number += 1
        self._is_in_flight = True
        request = self.session.request(self._wanted, self._unsent)
        self._unsent.clear()
        return Request(self._number, request)

    def _update(self, now_ms: int) -> None:
        """Bring `_wanted` up to date. O(changes)."""
        while self._left_out and self._left_out[0][0] <= now_ms:
            self._touch(heappop(self._left_out)[1])
        for place in self._touched:
            followed = self._followed.get(place)
            if followed is None or followed.left_out_until_ms > now_ms or not followed.follower.is_active:
                self._wanted.pop(place, None)
            else:
                self._wanted[place] = followed.follower.next_fetch()
            self._unsent[place] = None
        self._touched.clear()

    # --- answers -----------------------------------------------------------------------------------------------------

    def failed(self, number: int, now_ms: int) -> None:
        """Note that request `number` had no answer: all partitions of the fetcher wait."""
        if self._take(number):
            self.session.begin_anew()
            self._back_off(now_ms)

    def answered(self, number: int, answer: SessionAnswer, now_ms: int) -> list[tuple[Place, FollowerEffect]]:
        """Take the answer to request `number`; return the effects of its partitions. A late answer has none."""
        if not self._take(number):
            return []
        if not self.session.accepts(answer):
            self._back_off(now_ms)
            return []
        self._failures = 0
        asked = self.session.partitions
        effects: list[tuple[Place, FollowerEffect]] = []
        for place, each in answer.answers:
            if place in self._followed:
                effects += [(place, effect) for effect in self._answered(place, asked[place], each, now_ms)]
        return effects

    def _take(self, number: int) -> bool:
        if number != self._number or not self._is_in_flight:
            return False
        self._is_in_flight = False
        return True

    def _answered(
        self, place: Place, asked: PartitionFetch, answer: PartitionAnswer, now_ms: int
    ) -> list[FollowerEffect]:
        progress, effects = self._followed[place].follower.answered(asked, answer)
        if progress is Progress.FAILED:
            self.leave_out(place, now_ms)
        if progress in (Progress.FAILED, Progress.DATA):
            self._to_the_end(place)
        return effects

    def _to_the_end(self, place: Place) -> None:
        self._followed[place] = self._followed.pop(place)
        if place in self._wanted:
            self._wanted[place] = self._wanted.pop(place)

    def _back_off(self, now_ms: int) -> None:
        """Pause: half a second to a second after the first failure, doubled after each further one."""
        pause_ms = min(self._config.backoff_ms << min(self._failures, 16), self._config.backoff_max_ms)
        self._failures += 1
        self._not_before_ms = now_ms + self._jittered(pause_ms)

    def _jittered(self, pause_ms: int) -> int:
        return max(1, round(pause_ms * self._rng.uniform(0.5, 1.0)))


class Fetchers:
    """All fetchers of one broker. A caller that has sent a request of a `Fetcher` gives the answer to the same object."""

    def __init__(self, config: FetcherConfig, rng: random.Random) -> None:
        self._config = config
        self._rng = rng
        self._fetchers: dict[FetcherKey, Fetcher] = {}
        self._key_of: dict[Place, FetcherKey] = {}

    def key(self, place: Place, source_id: NodeId) -> FetcherKey:
        """Return the fetcher for a partition that `source_id` leads: the same in every process."""
        topic_id, partition = place
        return FetcherKey(source_id, (crc32(topic_id) + partition) % self._config.num_fetchers)

    def fetcher(self, key: FetcherKey) -> Fetcher | None:
        return self._fetchers.get(key)

    def __iter__(self) -> Iterator[FetcherKey]:
        return iter(self._fetchers)

    def follow(self, place: Place, follower: PartitionFollower) -> FetcherKey:
        """Follow a partition from its follower's leader. Call this again after each new leader epoch."""
        key = self.key(place, follower.leader_id)
        if self._key_of.get(place, key) != key:
            self.stop(place)
        self._key_of[place] = key
        self._fetchers.setdefault(key, Fetcher(self._config, self._rng)).add(place, follower)
        return key

    def stop(self, place: Place) -> None:
        """Follow a partition no more. A fetcher without partitions ends."""
        key = self._key_of.pop(place, None)
        if key is None:
            return
        fetcher = self._fetchers[key]
        fetcher.remove(place)
        if not fetcher:
            del self._fetchers[key]
