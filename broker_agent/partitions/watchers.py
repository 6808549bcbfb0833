"""Which open fetches and sessions want the news of which partition: the index that spares a walk over all partitions.

A fetcher's session has thousands of partitions, and most are idle. So a partition with news is noted with each session that has
it, and the next answer looks at the noted partitions only:

    1. Session 77 has 5,000 partitions, and its fetch waits.
    2. orders-3 gets a record: orders-3 is noted with session 77, and the waiting fetch is woken, once.
    3. orders-4 gets a record before the fetch is polled: it is noted, too. The answer has the two partitions.
"""

from broker_agent.partitions.effects import Effects, Wake
from broker_agent.partitions.open_fetch import OpenFetch, Watcher
from broker_agent.session.isr_proposals import Place


class Watchers:
    """All watchers of one broker, by partition."""

    def __init__(self) -> None:
        self._of: dict[Place, dict[Watcher, None]] = {}
        self.wakes: Effects = []
        """The wake-ups since the last call of `take`."""

    def watch(self, place: Place, watcher: Watcher) -> None:
        """Tell `watcher` the news of a partition from now on, and once now."""
        self._of.setdefault(place, {})[watcher] = None
        watcher.places.add(place)

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

    def appended(self, place: Place) -> None:
        """Tell the followers that a partition has more records than before."""
        for watcher in self._of.get(place, ()):
            if watcher.is_follower:
                self._tell(watcher, place)

    def changed(self, place: Place) -> None:
        """Tell everybody that a partition has another high watermark, start or leader, or another error."""
        for watcher in self._of.get(place, ()):
            self._tell(watcher, place)

    def doubted(self, place: Place, by: Watcher) -> None:
        """Make the other followers' sessions look again at what they have said about a partition."""
        for watcher in self._of.get(place, ()):
            if watcher.is_follower and watcher is not by:
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
