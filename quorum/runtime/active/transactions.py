"""The transaction that an active controller writes: one at a time, and nothing else is decided meanwhile (KIP-868).

A decision that is too large for one batch is a transaction: its slices take effect together, at the end, or not at all. Replay
takes every record after BeginTransaction into the transaction. Counter-example, if the controller decided other requests then:
    1. controller 1 begins a transaction for client A at offset 40, and appends its first slice, [40, 1040);
    2. client B creates `orders` at 1040; the batch is committed, and client B hears "created";
    3. controller 1 dies. Controller 2 aborts the transaction, and with it `orders`, which client B was promised.

So from the first slice to the last, the leader appends slices and control records only:

    a request that would be decided     waits in the waiting room, until its deadline
    a read                              is answered, from the committed image, which has nothing of the transaction
    a broker's fetch                    refreshes the session, and is answered; what it asks for is decided on with its next fetch
    a session that ends, a due check    waits, for `transaction_timeout_ms` at most, or for the end of a raise of epochs
    a snapshot mark                     waits, because no snapshot may be inside of a transaction

After a transaction the work that has waited comes before the waiting requests: one of them may begin the next transaction, and a
dead broker would keep its leaderships as long as large requests follow each other.

A transaction that cannot be finished is aborted with one record, and its client hears that nothing was done. For example a slice
is refused, or the time is over. If the leadership ends, the next active controller aborts the transaction before it decides
anything. The client may then send the request again.

The raise of epochs, which no client asks for, has no time limit: a decision before its end would give old epochs a second time.
"""

import contextlib
from collections.abc import Iterator
from typing import Final

from quorum.runtime.active.decisions import Deciding
from quorum.runtime.active.waiting_room import FollowUp
from quorum.runtime.image.state_machine import StateMachine
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.tallies import Tallies

OWED_TURNS_MAX: Final = 4_000
"""Maximum number of turns after a transaction in which requests wait behind sessions that have ended, and the like."""


class OpenDecision:
    """The decision whose transaction is open, if any. One per active controller, which begins slices and gives the next to this
    object."""

    def __init__(self, state: StateMachine, deciding: Deciding, tallies: Tallies, timeout_ms: int) -> None:
        self._state, self._deciding, self._tallies = state, deciding, tallies
        self._timeout_ms = timeout_ms
        self._began_ms: int | None = None
        """When this controller began the transaction; None: it has begun none that is open."""
        self._has_just_begun = False
        self.owed_turns = 0
        """How many turns the work that has waited for the end of a transaction may still take, before requests are begun."""
        self.rest: FollowUp | None = None
        """The next slice. None although the transaction is open: it could not be aborted, and the leader resigns."""

    @property
    def is_open(self) -> bool:
        """True if the log ends inside of a transaction."""
        return self._state.transaction is not None

    @property
    def keeps_requests(self) -> bool:
        """True if requests wait: for the end of the transaction, or for the work that has waited for its end."""
        return self.owed_turns > 0 or self.is_open

    def go_on_with(self, rest: FollowUp, now_ms: int) -> None:
        """Takes the next slice. The log has records of the request, but nothing is done before the end."""
        if self._began_ms is None:
            self._began_ms = now_ms
            self._has_just_begun = True
            self._tallies.transactions.add(1, "begun")
        self.rest = rest._replace(wrote=False)

    def ended(self) -> None:
        """Notes that the last slice is appended."""
        if self._began_ms is not None:
            self._began_ms = None
            self.owed_turns = OWED_TURNS_MAX
            self._tallies.transactions.add(1, "ended")

    def take(self) -> FollowUp | None:
        """Returns the next slice, which the caller decides now; None if this turn has decided the first slice."""
        if self._has_just_begun:
            self._has_just_begun = False
            return None
        rest, self.rest = self.rest, None
        return rest

    def late(self, now_ms: int) -> Iterator[FollowUp]:
        """Yields the rest if its caller has waited up to the deadline, and marks the rest as answered."""
        rest = self.rest
        if rest is not None and rest.is_late(now_ms):
            self.rest = rest._replace(is_answered=True)
            yield rest

    def next_deadline_ms(self) -> int | None:
        """The time to call `late`, or the time at which the transaction has taken too long."""
        rest, began_ms = self.rest, self._began_ms
        if rest is None or began_ms is None or rest.reply_to is None:
            return None
        over_ms = began_ms + self._timeout_ms + 1
        return over_ms if rest.waiting is None else min(over_ms, rest.deadline_ms)

    def lateness(self, rest: FollowUp, now_ms: int) -> str:
        """Why the transaction must not go on with `rest`; empty if it may. A transaction without a client has no time limit."""
        assert self._began_ms is not None
        if rest.reply_to is None:
            return ""
        took_ms = now_ms - self._began_ms
        return f"it has taken {took_ms} ms, and may take {self._timeout_ms}" if took_ms > self._timeout_ms else ""

    def abort(self, reason: str, now_ms: int) -> None:
        """Aborts the transaction. It stays open if the disk has no room: the leader resigns in this turn.

        Raises DecisionFailed: the leader must resign.
        """
        if self._began_ms is not None:
            self.owed_turns = OWED_TURNS_MAX
        self.rest = self._began_ms = None
        with contextlib.suppress(Refused):
            self._deciding.abort(reason, now_ms)
            self._tallies.transactions.add(1, "aborted")

    def drop(self) -> FollowUp | None:
        """Returns the rest, because the leadership has ended: the next active controller aborts the transaction."""
        rest, self.rest, self._began_ms, self.owed_turns = self.rest, None, None, 0
        return rest
