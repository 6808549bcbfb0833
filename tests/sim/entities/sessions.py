"""The session of a simulated client: opened once, kept alive while the client is awake, and trusted no longer than its lease.

Example: the session of client e0 has a timeout of 3,000 ms.

    1  At 1,000 e0 sends a keep-alive. It arrives at 1,020, and the answer has a lease of 1,600 ms: e0 trusts it until 2,600.
    2  At 1,900 e0 is cut off. Its keep-alives of 2,000 and 3,000 are lost.
    3  At 2,600 e0 stops to trust, although the session lasts until 4,020 for the controller.
"""

from typing import TYPE_CHECKING

from metadata_log.format.ids import Offset, Uuid
from metadata_log.format.records import Owner
from quorum.runtime.protocol.requests import KeptSession
from tests.sim.world.clock import Clock

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

NOT_OPEN: Offset = -1


class SimSession:
    """One session, as its client sees it."""

    def __init__(self, cluster: "Cluster", client: str, number: int, session_id: Uuid, timeout_ms: int, clock: Clock):
        self._cluster = cluster
        self.name = f"{client}/{number}"
        self.session_id = session_id
        self.timeout_ms = timeout_ms
        self.epoch = NOT_OPEN
        self.has_ended = False
        """The client knows that it has ended, or has begun to close it."""
        self._clock = clock
        self._trusted_until_ms = 0

    @property
    def is_open(self) -> bool:
        """True if the client has a session to work with."""
        return self.epoch != NOT_OPEN and not self.has_ended

    @property
    def owner(self) -> Owner:
        return Owner(self.session_id, None, self.epoch)

    def opened(self, epoch: Offset) -> None:
        self.epoch = epoch

    def kept(self, kept: KeptSession, sent_ms: int) -> None:
        """Takes the answer to a keep-alive that was sent at `sent_ms` of the client's clock."""
        if not kept.is_open:
            if not self.has_ended:
                self._cluster.laws.entities.sessions.told_ended(self)
            self.ended()
        elif not self.has_ended and kept.lease_ms > 0:
            self._trusted_until_ms = max(self._trusted_until_ms, sent_ms + kept.lease_ms)
            self._cluster.coverage["session kept alive"] += 1
            self._cluster.laws.entities.locks.renewed()

    def ended(self) -> None:
        """The client stops to trust the session."""
        self.has_ended = True
        self._trusted_until_ms = 0

    def trusted_for_ms(self) -> int:
        """How long the client trusts the session from now on, by its own clock; 0 or less: not any more."""
        return 0 if self.has_ended else self._trusted_until_ms - self._clock.now_ms()
