"""Do the controllers' images agree? The log's chain cannot tell: equal histories may be replayed by unequal code or memory.

Every fetch of a voter carries the digest of its image and the offset of that image. The leader keeps the digests of its own
image at the last few thousand offsets, and compares. Images that differ at one offset differ at all later ones, until
one of them is loaded anew.

    the voter differs, and a majority agrees with the leader at that offset or later    the voter is the odd one
    a majority of other voters has one digest, at one offset, and it is not the leader's    the leader is
    otherwise                                                                           not known yet; said aloud all the same

The odd one's state machine stops: it applies nothing more, writes no snapshots, and does not stay leader. Raft goes on
without it, for the log is not in doubt: it votes and acknowledges as before. A restart loads its image anew; if that
comes from a snapshot that it wrote after the error, the error is in there, and the node needs a new directory.
"""

from collections import Counter
from collections.abc import Collection
from typing import Final

from metadata_log.format.ids import Offset, ReplicaKey

DIGESTS_KEPT: Final = 4_096


class Digests:
    """This node's digests at its newest offsets, and as leader what the voters have shown of theirs in this epoch."""

    def __init__(self) -> None:
        self._own: dict[Offset, bytes] = {}
        self._agreed_end: dict[ReplicaKey, Offset] = {}
        """The largest offset at which a replica's image was seen to be this node's."""
        self._differs: dict[ReplicaKey, tuple[Offset, bytes]] = {}
        """Where a replica's image was last seen to be another, and its digest there."""

    def note(self, offset: Offset, digest: bytes) -> None:
        """This node's image at `offset` has `digest`. Offsets ascend, except after `forget`."""
        self._own[offset] = digest
        if len(self._own) > DIGESTS_KEPT:
            del self._own[next(iter(self._own))]

    def forget(self) -> None:
        """The image was loaded anew."""
        self._own.clear()
        self.forget_others()

    def forget_others(self) -> None:
        """Another term begins."""
        self._agreed_end.clear()
        self._differs.clear()

    def heard(self, replica: ReplicaKey, offset: Offset, digest: bytes) -> bool:
        """Compares; False if `replica` has another image than this node at `offset`."""
        if replica in self._differs and offset < self._differs[replica][0]:
            # That was another image. It has loaded this one since, as one that is stopped is told to.
            del self._differs[replica]
        own = self._own.get(offset)
        if own is None or not digest:
            return replica not in self._differs
        if own == digest:
            self._agreed_end[replica] = max(offset, self._agreed_end.get(replica, 0))
            self._differs.pop(replica, None)
            return True
        self._differs[replica] = (offset, digest)
        return False

    def is_odd(self, replica: ReplicaKey, voters: Collection[ReplicaKey], me: ReplicaKey) -> bool:
        """Whether a majority of `voters` has this node's image where `replica` has another."""
        if replica not in self._differs:
            return False
        offset, _ = self._differs[replica]
        with_me = [voter for voter in voters if voter == me or self._agreed_end.get(voter, -1) >= offset]
        return len(with_me) > len(voters) // 2

    def am_odd(self, voters: Collection[ReplicaKey]) -> bool:
        """Whether a majority of `voters` has one image, and this node another."""
        others = Counter(said for replica, said in self._differs.items() if replica in voters)
        return any(count > len(voters) // 2 for count in others.values())

    def differing(self) -> str:
        """Whose images differ from this node's, and where, in one line; empty if none is known to."""
        return ", ".join(
            f"node {replica.node_id} at {offset}" for replica, (offset, _) in sorted(self._differs.items())
        )
