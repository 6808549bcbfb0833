"""How far a node may be trusted in the quorum, given what its disk has done to it (PAR/CTRL, FAST'18).

A voter's promises are its log and its vote. Both are promises because others count on them: what a majority holds is
committed, and an election is safe because any majority of voters shares a node with any majority of holders. A node whose
disk has broken such a promise must not be counted as if it had kept it.

    FULL         votes, acknowledges, runs for leader.
    damaged      A range inside its log is unreadable, but what follows it is a valid chain. It still knows its true end, so its
                 vote and its acknowledgements mean what they say. It could not serve its log to others: it never runs, and a
                 leader that finds such damage resigns. Until the range is mended.
    lost a tail  It may have acknowledged what its log no longer holds. Counted, it could make a majority with somebody who never
                 had it, and what was committed would be gone: it neither votes, nor runs, nor acknowledges. It fetches
                 under the name of an observer that is nobody, so that its leader cannot count it by mistake.

When a lost tail is made good. Let `epoch` be the node's epoch when the loss was found: all that it ever acknowledged, it has
acknowledged in `epoch` or before. Where that ended, its disk does not know. The note that says how far the log was durable
is not fsynced each time, so after a power cut it may be an older one:

    1 leads. 2 has all of it durably up to 100, which commits that; 3 has it up to 45. The power of 2 fails: the note says 40,
    and the disk has nothing from 30 on. If 2 counted again as soon as it had 40, it could elect 3 once 1 is gone, and what is
    committed from 45 on would be forgotten.

So `end` is the greater of what the note says and of where its leader's log ended when that first answered a fetch since. All
that this node has helped to commit, or may yet by an acknowledgement that is on its way, lies below that: a leader counts
nobody beyond the end of its own log, and one of a later epoch holds what was committed before. (A tail that is torn above an
older note, and was durable all the same, no node could tell from one that was not.) Either of these will do:

  * All below `end` is known to be committed, and is durable here. What is committed is one history, so this log holds
    whatever this node has helped to commit. (That the log is as long again would not do: the acknowledgement of the lost
    tail may still be on its way to a leader, which would count it.)
  * A record of a later epoch is durable here. Its leader was elected without this node, holds all that was committed in
    earlier epochs, and has sent it; what this node acknowledged since, it acknowledged to nobody.

A lost vote cannot be made good: `runtime.disk.lost_vote` gives such a directory another id, and with it the node is no voter
until it is admitted again (KIP-853).
"""

from typing import Final, NamedTuple

from metadata_log.format.ids import Epoch, Offset


class Lost(NamedTuple):
    """All that the log once held durably lay below `end`, and it ends before that. `epoch` was the node's when that was found.

    That is certain once it `is_bounded` by what a leader has said since; until then `end` may be too low.
    """

    end: Offset
    epoch: Epoch
    is_bounded: bool = False


class DiskTrust(NamedTuple):
    """What a node's disk leaves of its standing. See the file's head."""

    damaged: bool = False
    lost: Lost | None = None

    @property
    def may_vote(self) -> bool:
        return self.lost is None

    @property
    def may_acknowledge(self) -> bool:
        return self.lost is None

    @property
    def may_campaign(self) -> bool:
        return self.lost is None and not self.damaged

    def bounded_by(self, leader_end: Offset) -> "DiskTrust":
        """The leader's log ends at `leader_end`; what counts is where it ended when that was first heard."""
        if self.lost is None or self.lost.is_bounded:
            return self
        return self._replace(lost=Lost(max(self.lost.end, leader_end), self.lost.epoch, is_bounded=True))

    def __str__(self) -> str:
        """Empty for a node in full standing."""
        lost = "" if self.lost is None else f"short of {self.lost.end}, which it may have had durably"
        return ", ".join(text for text in ("damaged" if self.damaged else "", lost) if text)


FULL: Final = DiskTrust()
