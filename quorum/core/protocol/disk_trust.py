"""The rights a node keeps in the quorum after a fault of its disk (PAR/CTRL, FAST'18).

A voter makes promises: its log and its vote. Other nodes rely on both. Records held by a majority are committed, and an
election is safe because any majority of voters shares a node with any majority of holders. A node with a broken promise
on its disk must not be counted as if the promise were kept.

    FULL         The node votes, acknowledges, and campaigns.
    damaged      A range inside the log is unreadable, and a valid chain follows the range. The node still knows its true
                 end, so its votes and acknowledgements are correct. But the node could not serve its log to others: until
                 the range is repaired, the node does not campaign, and a leader resigns.
    full disk    The node can append nothing. Its votes are correct. But the node could not write the records of its own
                 epoch, so it does not campaign, and a leader resigns. It refuses pre-votes, because it could not
                 acknowledge the records of the new leader, either (example below).
    lost a tail  The node may have acknowledged records which its log no longer holds. Counted, it could make a majority
                 with nodes which never had the records, and committed records would be lost. The node neither votes nor
                 campaigns nor acknowledges. It fetches under a random key, so that no leader counts it by mistake.

If a node with a full disk granted pre-votes, a quorum that cannot commit would elect leaders for ever:

    1. The disks of voters 1 and 3 are full. Voter 2 has room, and wins an election with their votes.
    2. Voters 1 and 3 fetch nothing, so no record of voter 2 is committed, and voter 2 resigns after its check-quorum
       timeout. It wins again: an epoch a second, and for most of each second a leader that serves nobody.

A node with room never needs the pre-vote of a full node to serve: its records need a majority of nodes with room, and
these nodes can elect it.

A node with a lost tail regains full trust later. Let `epoch` be the node's epoch when the loss was found: the node gave
all of its acknowledgements in `epoch` or earlier. The node's disk does not know the end of the lost tail. The note with
the durable end (`flushed`) is not fsynced after each append, so after a power cut the note may be an older one:

    1. Node 1 leads {1,2,3}. Node 2 holds all records up to 100 durably, which commits them. Node 3 holds records up to 45.
    2. The power of node 2 fails. Its note says 40, and its disk has no record from 30 on.
    3. Suppose node 2 counts again as soon as it has records up to 40.
    4. Node 1 dies. Node 2 elects node 3, and the committed records from 45 on are lost.

So `end` is the greater of two offsets: the end in the note, and the end of the leader's log at the first answered fetch
after the loss. All records which the node has helped to commit lie below `end`, including those whose acknowledgement
is still in flight: a leader counts no voter beyond the end of its own log, and the leader of a later epoch holds all
records committed before. (No node can tell a torn tail above an older note from a tail which was durable after all.)
Each of these two conditions restores full trust:

* All records below `end` are known to be committed, and are durable on this node. Committed records form one history,
  so this log holds every record the node has helped to commit. (A log of the old length would not be enough: an
  acknowledgement of the lost tail may still be on its way to a leader, which would count the acknowledgement.)
* A record of a later epoch is durable on this node. The leader of that epoch was elected without this node, holds all
  records committed in earlier epochs, and has sent them. No leader has counted this node since.

A lost vote cannot be restored. `runtime.disk.lost_vote` gives such a directory a new id, and the node is no voter until
it is admitted again (KIP-853).
"""

from typing import Final, NamedTuple

from metadata_log.format.ids import Epoch, Offset


class Lost(NamedTuple):
    """A lost tail: all records once durable lay below `end`, and the log ends earlier. `epoch` was the node's epoch at
    the loss.

    `end` is certain once `is_bounded` by an answer of a leader; before, `end` may be too low.
    """

    end: Offset
    epoch: Epoch
    is_bounded: bool = False


class DiskTrust(NamedTuple):
    """The rights left by a node's disk faults. See the file's head."""

    damaged: bool = False
    out_of_room: bool = False
    """The disk is full."""
    lost: Lost | None = None

    @property
    def may_vote(self) -> bool:
        return self.lost is None

    @property
    def may_grant_pre_vote(self) -> bool:
        return self.may_vote and not self.out_of_room

    @property
    def may_acknowledge(self) -> bool:
        return self.lost is None

    @property
    def may_campaign(self) -> bool:
        return self.lost is None and not self.damaged and not self.out_of_room

    def bounded_by(self, leader_end: Offset) -> "DiskTrust":
        """Raises `end` to `leader_end`, the end of the leader's log. Only the first answer counts."""
        if self.lost is None or self.lost.is_bounded:
            return self
        return self._replace(lost=Lost(max(self.lost.end, leader_end), self.lost.epoch, is_bounded=True))

    def __str__(self) -> str:
        """The faults in words; empty for a node with full trust."""
        words = [
            word
            for word, holds in (("damaged", self.damaged), ("without room for more records", self.out_of_room))
            if holds
        ]
        if self.lost is not None:
            words.append(f"missing records below offset {self.lost.end} that this node may have acknowledged")
        return ", ".join(words)


FULL: Final = DiskTrust()
