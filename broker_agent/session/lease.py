"""The lease: for how long a broker may act without hearing from a controller that is known to lead.

The controller promises not to end the session before `lease_ms` after it *received* the fetch; receiving comes after
sending, so the broker counts from when it sent, and errs on the safe side however slow either direction of the network was.
A lease is a promise about one session: whoever is fenced has none, and an old one must not open the next session.

Times are of a clock that goes on while the machine sleeps.
"""


class Lease:
    """One broker's lease. `until_ms` is exclusive: at that very moment it has lapsed."""

    __slots__ = ("lapsed", "until_ms")

    def __init__(self) -> None:
        self.until_ms = 0
        self.lapsed = False
        """It was noticed that the lease is over, and nothing has renewed it since."""

    def holds(self, now_ms: int) -> bool:
        """Whether the promise still stands. Asked of the clock each time: a process that was paused has noticed nothing."""
        return now_ms < self.until_ms

    def notice(self, now_ms: int) -> bool:
        """Whether it has lapsed since this was last asked."""
        if self.lapsed or self.holds(now_ms):
            return False
        self.lapsed = True
        return True

    def renew(self, sent_ms: int, lease_ms: int, now_ms: int) -> bool:
        """A confirmed answer to a request that was sent at `sent_ms`. Whether that ends a lapse.

        A later answer may have been sent earlier; what was promised stays promised.
        """
        assert sent_ms <= now_ms, "a lease counts from when a request was sent"
        self.until_ms = max(self.until_ms, sent_ms + lease_ms)
        ends_lapse = self.lapsed and self.holds(now_ms)
        if ends_lapse:
            self.lapsed = False
        return ends_lapse

    def end(self) -> None:
        """The session is over."""
        self.until_ms = 0
        self.lapsed = False
