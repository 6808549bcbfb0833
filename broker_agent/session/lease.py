"""The lease: how long a broker may serve clients after its last contact with the active controller.

The controller promises not to end the session before `lease_ms` after it *received* a fetch. The broker counts from the moment
when it *sent* the fetch. Sending comes before receiving, so the broker's lease always ends first, however slow the network is.

    1. Broker 101 sends a fetch at 0 s. The fetch takes 2 s to the controller, which grants a lease of 5 s.
    2. The controller keeps the session at least until 7 s.
    3. The broker stops serving at 5 s, before any other broker can be given its partitions.

A lease belongs to one session. A fenced broker has no lease, and an old lease must not count in the next session.

The clock must keep running while the machine sleeps.
"""


class Lease:
    """One broker's lease. `until_ms` is exclusive: at `until_ms` the lease has lapsed."""

    __slots__ = ("lapsed", "until_ms")

    def __init__(self) -> None:
        self.until_ms = 0
        self.lapsed = False
        """True if the lease's end was noticed and no answer has renewed the lease since."""

    def holds(self, now_ms: int) -> bool:
        """Tells whether the lease still holds. Callers ask at each request: a process that was paused has run no timer."""
        return now_ms < self.until_ms

    def notice(self, now_ms: int) -> bool:
        """Tells whether the lease has lapsed since the last call."""
        if self.lapsed or self.holds(now_ms):
            return False
        self.lapsed = True
        return True

    def renew(self, sent_ms: int, lease_ms: int, now_ms: int) -> bool:
        """Extends the lease after a confirmed answer to a request that was sent at `sent_ms`; tells whether a lapse ends.

        Answers may arrive out of order. The later end of the lease counts, because the controller has promised both.
        """
        assert sent_ms <= now_ms, "a lease counts from when a request was sent"
        self.until_ms = max(self.until_ms, sent_ms + lease_ms)
        ends_lapse = self.lapsed and self.holds(now_ms)
        if ends_lapse:
            self.lapsed = False
        return ends_lapse

    def end(self) -> None:
        """Ends the lease, because the session is over."""
        self.until_ms = 0
        self.lapsed = False
