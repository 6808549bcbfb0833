"""Linearizable reads: proving that this node still leads, after the read request arrived (Raft 6.4).

A leader which was paused or cut off may answer with state already overwritten by others. So the leader needs proof: a
majority has followed this leader *since the read arrived*. In a pulling quorum the proof needs no extra message. Every
fetch reply carries a counter, the read token, and a follower's next fetch repeats the token of the last accepted reply.
A fetch repeating token t was therefore sent after reply t had left the leader, by a node still following this epoch. A
round begins by noting the counter as its mark. The round's reads are confirmed once a majority has repeated tokens
above the mark.

Example, leader A of {A,B,C}:

    1. Reply 7 goes to B. A read arrives: mark = 7.
    2. The parked fetches complete at once: reply 8 goes to B, reply 9 to C.
    3. B's earlier fetch arrives with token 7: an old echo, which proves nothing.
    4. C's fetch arrives with token 9: confirmed. With the leader itself, two of three have confirmed.

One round is in flight at a time. Reads arriving meanwhile all wait for the next round.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class ReadRounds:
    """The leader's read rounds in one epoch. `replies` is the token of the newest fetch reply; tokens begin at 1."""

    replies: int = 0
    mark: int | None = None
    """The counter at the beginning of the round in flight. None: no round in flight."""
    token: int = 0
    """The last `ConfirmReads` token of the round in flight."""
    waiting: int | None = None
    """The newest `ConfirmReads` token waiting for the next round."""

    def next_reply(self) -> int:
        self.replies += 1
        return self.replies

    def ask(self, token: int) -> None:
        assert self.waiting is None or self.waiting <= token, "tokens ascend"
        self.waiting = token

    def begin(self) -> bool:
        """Starts the waiting round, if any, unless a round is in flight. Returns True if started."""
        if self.waiting is None or self.mark is not None:
            return False
        self.mark, self.token, self.waiting = self.replies, self.waiting, None
        return True

    def wants_token(self, newest_sent: int) -> bool:
        """True if a voter with newest reply `newest_sent` still needs a token of the round in flight."""
        return self.mark is not None and newest_sent <= self.mark

    def confirm(self, echoes: int) -> int | None:
        """Ends the round in flight and returns its token, once a majority has repeated tokens of at least `echoes`."""
        if self.mark is None or echoes <= self.mark:
            return None
        self.mark = None
        return self.token

    def check_invariants(self) -> None:
        assert self.mark is None or self.mark <= self.replies, self
        assert self.waiting is None or self.mark is None or self.token <= self.waiting, self
