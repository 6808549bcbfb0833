"""Which open fetches and sessions want the news of which partition: the index that spares a walk over all partitions.

A fetcher's session has thousands of partitions, and most are idle. So a partition with news is noted with each session that has
it, and the next answer looks at the noted partitions only:

    1. Session 77 has 5,000 partitions, and its fetch waits.
    2. orders-3 gets a record: orders-3 is noted with session 77, and the waiting fetch is woken, once.
    3. orders-4 gets a record before the fetch is polled: it is noted, too. The answer has the two partitions.

*New leaders wait for nobody.* A follower that has orders-9 from now on cannot name orders-9 while its last fetch waits here. So a
new leader answers the waiting fetches of its followers at once. Until they have named orders-9, their fetches wait for `SHORT_MS`
only: perhaps they have not read the metadata yet. Otherwise a write with acks=all could wait half a second after each failover.
"""

from collections.abc import Iterable
from typing import Final

from broker_agent.partitions.effects import Effects, Wake
from broker_agent.partitions.open_fetch import OpenFetch, Watcher
from broker_agent.session.isr_proposals import Place
from metadata_log.format.ids import NodeId

SHORT_MS: Final = 20
"""How long the fetch of a follower waits while one of its new partitions was not named."""
AWAIT_MS: Final = 2_000
"""How long a new leader waits for the first fetches of its followers in this way."""


class Watchers:
    """All watchers of one broker, by partition."""

    def __init__(self) -> None:
        self._of: dict[Place, dict[Watcher, None]] = {}
        self._sessions: dict[NodeId, dict[Watcher, None]] = {}
        """By follower: the sessions, and the fetches without one."""
        self._awaited: dict[NodeId, dict[Place, int]] = {}
        """By follower: the partitions with a new leader here that the follower has not named, and until when they count."""
        self.wakes: Effects = []
        """The wake-ups since the last call of `take`."""

    def watch(self, place: Place, watcher: Watcher) -> None:
        """Tell `watcher` the news of a partition from now on. A new leader does not await its follower here any more."""
        self._of.setdefault(place, {})[watcher] = None
        watcher.places.add(place)
        if watcher.follower_id is not None:
            self._sessions.setdefault(watcher.follower_id, {})[watcher] = None
            self._awaited.get(watcher.follower_id, {}).pop(place, None)

    def unwatch(self, place: Place, watcher: Watcher) -> None:
        """Tell `watcher` nothing more of a partition."""
        watcher.places.discard(place)
        watcher.todo.pop(place, None)
        found = self._of.get(place)
        if found is not None:
            found.pop(watcher, None)
            if not found:
                del self._of[place]

    def end(self, watcher: Watcher) -> None:
        """Tell `watcher` nothing more."""
        for place in list(watcher.places):
            self.unwatch(place, watcher)
        if watcher.follower_id is not None:
            sessions = self._sessions.get(watcher.follower_id, {})
            sessions.pop(watcher, None)
            if not sessions:
                self._sessions.pop(watcher.follower_id, None)

    # --- new leaders -------------------------------------------------------------------------------------------------

    def await_followers(self, place: Place, followers: Iterable[NodeId], now_ms: int) -> None:
        """Make the followers of a new leader name this partition soon: answer their fetches that wait."""
        for follower_id in followers:
            self._awaited.setdefault(follower_id, {})[place] = now_ms + AWAIT_MS
            for watcher in self._sessions.get(follower_id, ()):
                if watcher.fetch is not None and place not in watcher.places:
                    watcher.fetch.has_news = True
                    self.wake(watcher.fetch)

    def is_awaited(self, follower_id: NodeId | None, now_ms: int) -> bool:
        """True if a follower has a partition with a new leader here, and has not named the partition."""
        awaited = None if follower_id is None else self._awaited.get(follower_id)
        while awaited:
            place, until_ms = next(iter(awaited.items()))
            if now_ms < until_ms:
                return True
            del awaited[place]
        return False

    # --- news --------------------------------------------------------------------------------------------------------

    def appended(self, place: Place) -> None:
        """Tell the followers that a partition has more records than before."""
        for watcher in self._of.get(place, ()):
            if watcher.follower_id is not None:
                self._tell(watcher, place)

    def changed(self, place: Place) -> None:
        """Tell everybody that a partition has another high watermark, start or leader, or another error."""
        for watcher in self._of.get(place, ()):
            self._tell(watcher, place)

    def doubted(self, place: Place, by: Watcher) -> None:
        """Make the other followers' sessions look again at what they have said about a partition."""
        for watcher in self._of.get(place, ()):
            if watcher.follower_id is not None and watcher is not by:
                self._tell(watcher, place)

    def _tell(self, watcher: Watcher, place: Place) -> None:
        watcher.todo[place] = None
        if watcher.fetch is not None:
            self.wake(watcher.fetch)

    def wake(self, fetch: OpenFetch) -> None:
        """Wake a fetch that waits, unless it was woken before."""
        if not fetch.is_woken:
            fetch.is_woken = True
            self.wakes.append(Wake(fetch))

    def take(self) -> Effects:
        """Return the wake-ups of this call."""
        taken, self.wakes = self.wakes, []
        return taken
