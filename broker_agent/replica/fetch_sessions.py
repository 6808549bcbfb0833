"""The follower's half of an incremental fetch session (KIP-227): after a full request, only changes travel.

A fetcher asks one source broker for thousands of partitions, many times a second. Most partitions are idle. The source keeps
the partitions of the last request in a *session*. So the next request names only the partitions with another offset or epoch, new
partitions, and partitions to forget. The answer names only the partitions with news.

    1. The fetcher sends a full request for 1,000 partitions (session 0, epoch 0). The source answers: this is session 77.
    2. Two partitions had data. The next request (session 77, epoch 1) names only these two, with their new offsets.
    3. The source restarts, and refuses session 77. The next request of the fetcher is full again.

The epochs count the requests of a session. An answer that got lost leaves the two halves in doubt, so a full request follows: it
ends the old session and begins a new one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker_agent.replica.follower import PartitionAnswer, PartitionFetch
from broker_agent.session.isr_proposals import Place
from metadata_log.format.errors import ErrorCode

NO_SESSION: Final = 0
"""The session id of a request without a session, and of an answer that grants none."""
FULL_EPOCH: Final = 0
"""The epoch of a full request, which ends the session with its id, and asks for a new one."""
FINAL_EPOCH: Final = -1
"""The epoch of a request without a session, which ends the session with its id."""
EPOCH_MAX: Final = (1 << 31) - 1


def next_epoch(epoch: int) -> int:
    """Return the epoch after `epoch`; after the largest one comes 1, because 0 means a full request."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """One fetch from one source. A full request (epoch 0) names all partitions in `fetches`."""

    session_id: int
    epoch: int
    fetches: tuple[tuple[Place, PartitionFetch], ...]
    forgotten: tuple[Place, ...] = ()

    @property
    def is_full(self) -> bool:
        return self.epoch == FULL_EPOCH


class SessionAnswer(NamedTuple):
    """The source's answer. `error` is that of the session; each partition has its own."""

    error: ErrorCode = ErrorCode.NONE
    session_id: int = NO_SESSION
    answers: tuple[tuple[Place, PartitionAnswer], ...] = ()


class FetchSession:
    """One fetcher's session with its source."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FULL_EPOCH
        """The epoch of the next request."""
        self.partitions: dict[Place, PartitionFetch] = {}
        """The partitions of the last request, as the source knows them."""

    def request(self, wanted: Mapping[Place, PartitionFetch], touched: Iterable[Place] | None = None) -> SessionRequest:
        """Make the next request for `wanted`, in this order. One request is in flight at a time.

        `touched` has all partitions that may differ from the last request; None: any may. O(touched) in a session.
        """
        known = self.partitions
        if self.epoch == FULL_EPOCH:
            self.partitions = dict(wanted)
            return SessionRequest(self.session_id, FULL_EPOCH, tuple(wanted.items()))
        changed: list[tuple[Place, PartitionFetch]] = []
        forgotten: list[Place] = []
        for place in [*wanted, *known] if touched is None else touched:
            fetch = wanted.get(place)
            if fetch is None:
                if known.pop(place, None) is not None:
                    forgotten.append(place)
            elif known.get(place) != fetch:
                known[place] = fetch
                changed.append((place, fetch))
        return SessionRequest(self.session_id, self.epoch, tuple(changed), tuple(forgotten))

    def accepts(self, answer: SessionAnswer) -> bool:
        """Take the session's part of the answer to the last request; return False if its partitions must not be used."""
        was_full = self.epoch == FULL_EPOCH
        if answer.error is not ErrorCode.NONE or not self._fits(was_full, answer.session_id, answer.answers):
            self.begin_anew()
            return False
        if was_full:
            self.session_id = answer.session_id
            self.epoch = FULL_EPOCH if answer.session_id == NO_SESSION else 1
        else:
            self.epoch = next_epoch(self.epoch)
        return True

    def begin_anew(self) -> None:
        """Make the next request a full one, because the source may have another state of the session."""
        self.epoch = FULL_EPOCH

    def _fits(self, was_full: bool, session_id: int, answers: Iterable[tuple[Place, PartitionAnswer]]) -> bool:
        """True if a full answer has all partitions, and an answer in a session only partitions of the session."""
        named = {place for place, _ in answers}
        if was_full:
            return named == self.partitions.keys()
        return session_id == self.session_id and named <= self.partitions.keys()
