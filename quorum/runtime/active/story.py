"""The story of an active controller: happenings wait until their batch is committed, and are told then, in order.

    1  A decision is appended as a batch that ends at offset 500: its happenings wait for 500.
    2  The high watermark reaches 500 and the batch is applied: the happenings are counted, and handed out by `take`.
    3  If the leadership ends before step 2, the fate of the batch is unknown: its happenings are dropped.
    4  If the leader skips an older batch before step 2, the leader makes its image anew. The happenings wait on: the leader
       tells them when it is active again.

So a line in the log of any controller is always true of the cluster. In the third case the records still say why a broker
changed its state (`reason` in the broker's record), if the next leader commits them.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from metadata_log.format.ids import Offset
from quorum.controller.protocol.brokers.broker_happenings import BrokerFenced, ReplicasMoved
from quorum.controller.protocol.happenings import FREQUENT, KINDS, Happening, LeadersElected
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.runtime.protocol.tallies import Tallies

FREQUENT_KEPT: Final = 1_000
"""Maximum number of happenings of FREQUENT kinds that wait for `take`; above this number they are counted only."""
TOLD_KEPT: Final = 10_000
"""Maximum number of happenings that wait for `take`, should nobody take them. Brokers cause far fewer in a turn."""


class Told(NamedTuple):
    """A happening that is committed."""

    happening: Happening
    offset: Offset
    """The end of its batch: the records stand below. `quorumctl log dump` shows them."""
    request: RequestIdentity | None
    """The client's request with an id that caused the happening, if any."""


_LABELS: Final = {kind: (kind.replace(" ", "_"),) for kind in KINDS}


class Story:
    """One per node. The active controller adds to it; the loop takes from it after each turn."""

    def __init__(self, tallies: Tallies) -> None:
        self._tallies, self._counts = tallies, tallies.happenings.values
        self._waiting: deque[Told] = deque()
        self._told: deque[Told] = deque(maxlen=TOLD_KEPT)
        self._frequent = 0
        """How many of `_told` are of FREQUENT kinds."""

    def appended(self, happenings: Sequence[Happening], offset: Offset, request: RequestIdentity | None) -> None:
        """Keeps the happenings of a decision until its batch, which ends at `offset`, is committed."""
        self._waiting.extend([Told(happening, offset, request) for happening in happenings])

    def applied(self, offset: Offset) -> None:
        """Takes note that all records below `offset` are committed and applied: counts their happenings."""
        while self._waiting and self._waiting[0].offset <= offset:
            told = self._waiting.popleft()
            happening = told.happening
            self._counts[_LABELS[happening.kind]] += 1
            if isinstance(happening, BrokerFenced):
                self._tallies.brokers_fenced.add(1, str(happening.broker_id), happening.why.value)
            elif isinstance(happening, ReplicasMoved | LeadersElected):
                self._tallies.outside_elections.add(happening.from_elr, "elr")
                self._tallies.outside_elections.add(happening.unclean, "unclean")
            if isinstance(happening, FREQUENT):
                self._frequent += 1
                if self._frequent > FREQUENT_KEPT:
                    continue
            self._told.append(told)

    def drop(self) -> None:
        """Drops the waiting happenings, because the leadership has ended and the fate of their batches is unknown."""
        self._waiting.clear()

    def take(self) -> list[Told]:
        """The happenings since the last call, in the order of the log."""
        if not self._told:
            return []
        told = list(self._told)
        self._told.clear()
        self._frequent = 0
        return told
