"""Who votes: the set of voters, and how it has changed along the log (KIP-853).

A `Voters` record is in force as soon as it is appended, committed or not, and stops being so when it is truncated. The
set is therefore a function of the log, and a node keeps it by offset: what counts is always the latest entry of *its own*
log, and a snapshot embeds the set as of its end.

    bootstrap {1,2,3} ....... offset 40: {1,2,3,4} ....... offset 90: {2,3,4}
    truncate(60) takes the node back to {1,2,3,4}.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

from metadata_log.format.ids import NodeId, Offset, ReplicaKey
from metadata_log.format.records import Voter, Voters


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters at one moment. Two voters never share a node id: a replaced disk is removed first, then added."""

    voters: tuple[Voter, ...]
    keys: tuple[ReplicaKey, ...] = field(init=False, repr=False, compare=False)
    _others: dict[ReplicaKey, tuple[ReplicaKey, ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """What `others` has answered: a leader asks several times a turn."""

    def __post_init__(self) -> None:
        ids = self.ids
        assert len(set(ids)) == len(ids), f"a node id twice in {ids}"
        keys = tuple(ReplicaKey(voter.node_id, voter.directory_id) for voter in self.voters)
        object.__setattr__(self, "keys", keys)

    @property
    def ids(self) -> tuple[NodeId, ...]:
        return tuple(voter.node_id for voter in self.voters)

    @property
    def majority(self) -> int:
        """The least number of voters that any two such groups share one of."""
        return len(self.voters) // 2 + 1

    def contains(self, replica: ReplicaKey) -> bool:
        """Whether this very replica votes: the same node with another directory does not (its promises are lost)."""
        return replica in self.keys

    def others(self, me: ReplicaKey) -> tuple[ReplicaKey, ...]:
        """The voters except `me`; all of them if `me` is none."""
        others = self._others.get(me)
        if others is None:
            others = self._others[me] = tuple(key for key in self.keys if key != me)
        return others

    def needed_besides(self, me: ReplicaKey) -> int:
        """How many other voters make a majority together with `me`; all of a majority if `me` does not vote."""
        return self.majority - (1 if self.contains(me) else 0)

    def key_of(self, node_id: NodeId) -> ReplicaKey | None:
        return next((key for key in self.keys if key.node_id == node_id), None)

    def __len__(self) -> int:
        return len(self.voters)

    def __str__(self) -> str:
        return "{" + ",".join(str(node_id) for node_id in self.ids) + "}"


@dataclass(frozen=True, slots=True)
class VoterHistory:
    """The voter sets along one log: `bootstrap` in force from `start` on, each entry from its offset on (ascending).

    With a snapshot, `start` is its end, also where the log reaches back further: what stands below is all in the set that the
    snapshot embeds, and cannot outrank it. (The newest set below may be unreadable, and an older one not.)
    """

    bootstrap: Voters
    entries: tuple[tuple[Offset, Voters], ...] = ()
    start: Offset = 0
    latest: VoterSet = field(init=False, repr=False, compare=False)
    """What every count goes by."""

    def __post_init__(self) -> None:
        newest = self.entries[-1][1] if self.entries else self.bootstrap
        object.__setattr__(self, "latest", VoterSet(newest.voters))

    @classmethod
    def from_snapshot(cls, voters: Voters, end: Offset, entries: Iterable[tuple[Offset, Voters]] = ()) -> Self:
        """The history of a log with a snapshot that ends at `end` and embeds `voters`; `entries` are what the log says."""
        return cls(voters, tuple(entry for entry in entries if entry[0] >= end), end)

    @property
    def latest_offset(self) -> Offset | None:
        """Where the latest set stands in the log; None for the bootstrap one."""
        return self.entries[-1][0] if self.entries else None

    def at(self, end: Offset) -> VoterSet:
        """The set that the records below `end` (exclusive) make: what a snapshot that ends there embeds."""
        index = bisect_left(self.entries, end, key=lambda entry: entry[0])
        return VoterSet((self.entries[index - 1][1] if index else self.bootstrap).voters)

    def has_named(self, replica: ReplicaKey) -> bool:
        """Whether this very replica votes, or has voted, as far as this log tells."""
        named = (self.bootstrap, *(voters for _, voters in self.entries))
        return any((each.node_id, each.directory_id) == tuple(replica) for voters in named for each in voters.voters)

    def last_named(self, node_id: NodeId) -> Voter | None:
        """What the newest set that names `node_id` says of it; the latest may not name it any more."""
        newest_first = (*(voters for _, voters in reversed(self.entries)), self.bootstrap)
        return next((each for voters in newest_first for each in voters.voters if each.node_id == node_id), None)

    def append(self, offset: Offset, voters: Voters) -> "VoterHistory":
        assert self.latest_offset is None or self.latest_offset < offset, (self.latest_offset, offset)
        return VoterHistory(self.bootstrap, (*self.entries, (offset, voters)), self.start)

    def fill(self, found: Iterable[tuple[Offset, Voters]]) -> "VoterHistory":
        """Sets that stand in a part of the log which could not be read before, wherever that is."""
        entries = {**dict(self.entries), **{offset: voters for offset, voters in found if offset >= self.start}}
        return VoterHistory(self.bootstrap, tuple(sorted(entries.items(), key=lambda entry: entry[0])), self.start)

    def truncate(self, end: Offset) -> "VoterHistory":
        """Forgets the sets at or above `end` (exclusive end of the log that remains)."""
        return VoterHistory(self.bootstrap, tuple(entry for entry in self.entries if entry[0] < end), self.start)

    def check_invariants(self) -> None:
        assert self.bootstrap.voters, "a quorum of nobody"
        assert not self.entries or self.entries[0][0] >= self.start, (self.start, self.entries)
        for before, after in pairwise(self.entries):
            assert before[0] < after[0], self.entries
