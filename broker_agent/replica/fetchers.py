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
    """The partitions that one fetcher follows, in the order of its requests."""

    def __init__(self, config: FetcherConfig, rng: random.Random) -> None:
        self.session = FetchSession()
        self._config = config
        self._rng = rng
        self._followed: dict[Place, _Followed] = {}
        self._number = 0
        self._asked: dict[Place, PartitionFetch] | None = None
        """All partitions of the request in flight, also those that the session left unsaid; None without a request in flight."""
        self._failures = 0
        self._not_before_ms = 0

    def __len__(self) -> int:
        return len(self._followed)

    def __iter__(self) -> Iterator[Place]:
        return iter(self._followed)

    def add(self, place: Place, follower: PartitionFollower) -> None:
        """Follow a partition at once, also if it was left out until now."""
        self._followed[place] = _Followed(follower)

    def remove(self, place: Place) -> None:
        """Follow a partition no more. An answer to a request in flight has no effect on it."""
        self._followed.pop(place, None)

    def leave_out(self, place: Place, now_ms: int) -> None:
        """Do not ask for a partition for a while, as after an error."""
        followed = self._followed.get(place)
        if followed is not None:
            followed.left_out_until_ms = now_ms + self._jittered(self._config.backoff_ms)

    # --- asking ------------------------------------------------------------------------------------------------------

    def next(self, now_ms: int) -> Request | Rest:
        """Return the next request, or how long to rest. After a `Request`, call `answered` or `failed`."""
        if self._asked is not None:
            return Rest(None)
        if now_ms < self._not_before_ms:
            return Rest(self._not_before_ms)
        wanted: dict[Place, PartitionFetch] = {}
        left_out_until_ms = []
        for place, followed in self._followed.items():
            if followed.left_out_until_ms > now_ms:
                left_out_until_ms.append(followed.left_out_until_ms)
            elif followed.follower.is_active:
                wanted[place] = followed.follower.next_fetch()
        if not wanted:
            return Rest(min(left_out_until_ms, default=None))
        self._number += 1
        self._asked = wanted
        return Request(self._number, self.session.request(wanted))

    # --- answers -----------------------------------------------------------------------------------------------------

    def failed(self, number: int, now_ms: int) -> None:
        """Note that request `number` had no answer: all partitions of the fetcher wait."""
        if self._take(number) is None:
            return
        self.session.begin_anew()
        self._back_off(now_ms)

    def answered(self, number: int, answer: SessionAnswer, now_ms: int) -> list[tuple[Place, FollowerEffect]]:
        """Take the answer to request `number`; return the effects of its partitions. A late answer has none."""
        asked = self._take(number)
        if asked is None:
            return []
        if not self.session.accepts(answer):
            self._back_off(now_ms)
            return []
        self._failures = 0
        effects: list[tuple[Place, FollowerEffect]] = []
        for place, each in answer.answers:
            if place in self._followed:
                effects += [(place, effect) for effect in self._answered(place, asked[place], each, now_ms)]
        return effects

    def _take(self, number: int) -> dict[Place, PartitionFetch] | None:
        if number != self._number or self._asked is None:
            return None
        asked, self._asked = self._asked, None
        return asked

    def _answered(
        self, place: Place, asked: PartitionFetch, answer: PartitionAnswer, now_ms: int
    ) -> list[FollowerEffect]:
        followed = self._followed[place]
        progress, effects = followed.follower.answered(asked, answer)
        if progress is Progress.FAILED:
            followed.left_out_until_ms = now_ms + self._jittered(self._config.backoff_ms)
        if progress in (Progress.FAILED, Progress.DATA):
            self._followed[place] = self._followed.pop(place)  # to the end
        return effects

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
