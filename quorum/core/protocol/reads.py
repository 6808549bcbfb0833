"""Linearizable reads: proving, after a question came in, that this node still leads (Raft 6.4).

A leader that was paused or cut off may answer from a past that others have already overwritten. So it asks: has a
majority heard from me *since the read arrived*, and did it still follow me? In a quorum that pulls, nothing extra needs to
be sent. Every fetch reply carries a counter, the read token, and a follower repeats in its next fetch the token of the
last reply that it accepted. A fetch that repeats token t was therefore sent after reply t had left the leader, by a node
that then still followed this epoch. A read is confirmed when a majority has repeated tokens above the mark, the value
that the counter had when the round began.

    reply 7 -> B     read arrives: mark = 7     reply 8 -> B, 9 -> C (parked fetches, completed at once)
    fetch(token 7) from B: an old echo, proves nothing     fetch(token 9) from C: confirmed, with the leader itself 2 of 3

One round is in flight; reads that come meanwhile wait for the next one, all together.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class ReadRounds:
    """The leader's rounds in one epoch. `replies` is the token of the newest fetch reply; tokens begin at 1."""

    replies: int = 0
    mark: int | None = None
    """The counter when the round in flight began; None: no round is in flight."""
    token: int = 0
    """What `ConfirmReads` said last for the round in flight."""
    waiting: int | None = None
    """The newest `ConfirmReads` that waits for the next round."""

    def next_reply(self) -> int:
        self.replies += 1
        return self.replies

    def ask(self, token: int) -> None:
        assert self.waiting is None or self.waiting <= token, "tokens ascend"
        self.waiting = token

    def begin(self) -> bool:
        """Starts the waiting round, if there is one and none is in flight; says whether it did."""
        if self.waiting is None or self.mark is not None:
            return False
        self.mark, self.token, self.waiting = self.replies, self.waiting, None
        return True

    def wants_token(self, newest_sent: int) -> bool:
        """Whether a voter whose newest reply carried `newest_sent` has yet to be sent a token of the round in flight."""
        return self.mark is not None and newest_sent <= self.mark

    def confirm(self, echoes: int) -> int | None:
        """Ends the round in flight and gives its token, if a majority has repeated tokens of at least `echoes`."""
        if self.mark is None or echoes <= self.mark:
            return None
        self.mark = None
        return self.token

    def check_invariants(self) -> None:
        assert self.mark is None or self.mark <= self.replies, self
        assert self.waiting is None or self.mark is None or self.token <= self.waiting, self
