"""Compares the images of the controllers by digests. The log's chain cannot do so: buggy code or bad memory may replay equal logs
into unequal images.

Every fetch of a voter carries the digest of its image and the offset of the image. The leader keeps the digests of its own
image at its newest 4,096 offsets, and compares. Two images that differ at one offset differ at all later offsets, until a node
loads its image anew. The leader judges:

    a majority has the leader's image at the offset of the difference or later      the voter is odd
    a majority of voters has one digest at one offset, another than the leader's    the leader is odd
    otherwise                                                                       undecided; a problem is shown

Example with voters 1, 2 and 3, leader 1:
    1. voter 3 fetches with another digest at offset 40 than leader 1: undecided, because 1 and 3 are one against one;
    2. voter 2 fetches with the digest of leader 1 at 45: two of three agree, so voter 3 is odd.
    3. If voter 2 had fetched with voter 3's digest at 40 instead, leader 1 would be odd.

The state machine of the odd node stops: the node applies no more records, writes no snapshots, and does not stay leader. The log
is not in doubt, so the node still votes and acknowledges records. A restart loads the image anew. If the node has
written a snapshot after the error, the error is in the snapshot, and the node needs a new directory.
"""

from collections import Counter
from collections.abc import Collection
from typing import Final

from metadata_log.format.ids import Offset, ReplicaKey

DIGESTS_KEPT: Final = 4_096
"""Maximum number of own digests that a node keeps."""


class Digests:
    """The node's own digests at its newest offsets, and on a leader the results of comparing them in this epoch."""

    def __init__(self) -> None:
        self._own: dict[Offset, bytes] = {}
        self._agreed_end: dict[ReplicaKey, Offset] = {}
        """The largest offset at which a replica's image was equal to the node's image."""
        self._differs: dict[ReplicaKey, tuple[Offset, bytes]] = {}
        """The last offset at which a replica's image differed from the node's image, and the replica's digest."""

    def note(self, offset: Offset, digest: bytes) -> None:
        """Keeps the digest of the node's image at `offset`. Offsets ascend, except after `forget`."""
        self._own[offset] = digest
        if len(self._own) > DIGESTS_KEPT:
            del self._own[next(iter(self._own))]

    def forget(self) -> None:
        """Drops all digests, because the node has loaded its image anew."""
        self._own.clear()
        self.forget_others()

    def forget_others(self) -> None:
        """Drops the results about other replicas, because a new epoch begins."""
        self._agreed_end.clear()
        self._differs.clear()

    def heard(self, replica: ReplicaKey, offset: Offset, digest: bytes) -> bool:
        """Compares; False if the image of `replica` differs from the node's image."""
        if replica in self._differs and offset < self._differs[replica][0]:
            # The offset has gone back: the replica has been restarted and has loaded another image since.
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
        """True if `replica` has another image than the node, and a majority of `voters` has the node's image."""
        if replica not in self._differs:
            return False
        offset, _ = self._differs[replica]
        with_me = [voter for voter in voters if voter == me or self._agreed_end.get(voter, -1) >= offset]
        return len(with_me) > len(voters) // 2

    def am_odd(self, voters: Collection[ReplicaKey]) -> bool:
        """True if a majority of `voters` has the same image, and the node has another."""
        others = Counter(said for replica, said in self._differs.items() if replica in voters)
        return any(count > len(voters) // 2 for count in others.values())

    def differing(self) -> str:
        """The nodes with differing images and the offsets, in one line; empty if no difference is known."""
        return ", ".join(
            f"node {replica.node_id} at {offset}" for replica, (offset, _) in sorted(self._differs.items())
        )
