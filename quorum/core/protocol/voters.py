"""The voter set, and its changes along the log (KIP-853).

A `Voters` record takes effect once appended, committed or not, and loses effect when truncated. The voter set is
therefore a function of the log, and a node keeps all sets by offset. The latest set in the node's *own* log counts. A
snapshot embeds the set as of the snapshot's end.

Example:

    1. Node 1 starts with the bootstrap set {1,2,3}.
    2. Node 1 appends {1,2,3,4} at offset 40, and {2,3,4} at offset 90. The set {2,3,4} is in effect.
    3. Another leader makes node 1 truncate to 60. The set {1,2,3,4} is in effect again.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Self

from metadata_log.format.ids import ZERO_UUID, NodeId, Offset, ReplicaKey
from metadata_log.format.records import Voter, Voters

KRAFT_VERSION: Final = 1
"""The level of the quorum's protocol: the log holds the voter set."""
VOTERS_MAX: Final = 32
"""Maximum number of voters. Together with the limits of one voter, a voter set always fits into a batch."""
ENDPOINTS_MAX: Final = 16
"""Maximum number of endpoints of one voter."""
NAME_CHARS_MAX: Final = 255
"""Maximum length of a listener's or a host's name."""


def problem_of(voter: Voter) -> str | None:
    """The reason why `voter` cannot be part of a voter set; None: it can."""
    if voter.node_id < 0:
        return f"node_id is {voter.node_id}; it must not be negative"
    if len(voter.directory_id) != 16 or voter.directory_id == ZERO_UUID:
        return "directory_id must be given: 16 bytes, not all zero (KIP-853)"
    if not 0 < len(voter.endpoints) <= ENDPOINTS_MAX:
        return f"the voter has {len(voter.endpoints)} endpoints; it must have from 1 to {ENDPOINTS_MAX}"
    for endpoint in voter.endpoints:
        if not (0 < len(endpoint.listener) <= NAME_CHARS_MAX and 0 < len(endpoint.host) <= NAME_CHARS_MAX):
            return f"an endpoint's listener and host must have from 1 to {NAME_CHARS_MAX} characters"
        if not 0 < endpoint.port < 65_536:
            return f"port {endpoint.port} of {endpoint.host} must be from 1 to 65535"
    if not 0 <= voter.kraft_version_min <= KRAFT_VERSION <= voter.kraft_version_max:
        levels = f"{voter.kraft_version_min} to {voter.kraft_version_max}"
        return f"the controller supports kraft.version {levels}; this quorum is at {KRAFT_VERSION}"
    return None


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters at one moment.

    Two voters never share a node id: to replace a disk, the old voter is removed, then the new added.
    """

    voters: tuple[Voter, ...]
    keys: tuple[ReplicaKey, ...] = field(init=False, repr=False, compare=False)
    majority: int = field(init=False, repr=False, compare=False)
    """The least number of voters such that any two groups of this size share a voter."""
    _others: dict[ReplicaKey, tuple[ReplicaKey, ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """The cached results of `others`, which a leader calls several times per turn."""

    def __post_init__(self) -> None:
        ids = self.ids
        assert len(set(ids)) == len(ids), f"a node id twice in {ids}"
        keys = tuple(ReplicaKey(voter.node_id, voter.directory_id) for voter in self.voters)
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "majority", len(keys) // 2 + 1)

    @property
    def ids(self) -> tuple[NodeId, ...]:
        return tuple(voter.node_id for voter in self.voters)

    def contains(self, replica: ReplicaKey) -> bool:
        """True if exactly this replica is a voter.

        The same node with another directory is not, because its promises are lost.
        """
        return replica in self.keys

    def others(self, me: ReplicaKey) -> tuple[ReplicaKey, ...]:
        """All voters except `me`. If `me` is no voter, all voters."""
        others = self._others.get(me)
        if others is None:
            others = self._others[me] = tuple(key for key in self.keys if key != me)
        return others

    def needed_besides(self, me: ReplicaKey) -> int:
        """How many other voters make a majority together with `me`. If `me` is no voter, a whole majority."""
        return self.majority - (1 if self.contains(me) else 0)

    def key_of(self, node_id: NodeId) -> ReplicaKey | None:
        return next((key for key in self.keys if key.node_id == node_id), None)

    def __len__(self) -> int:
        return len(self.voters)

    def __str__(self) -> str:
        return "{" + ",".join(str(node_id) for node_id in self.ids) + "}"


@dataclass(frozen=True, slots=True)
class VoterHistory:
    """The voter sets along one log: `bootstrap` in effect from `start` on, each entry from its offset on (ascending).

    With a snapshot, `start` is the snapshot's end, even if the log reaches back further. The snapshot's set includes
    all earlier changes, so earlier entries must not override it. (The newest of the earlier entries may be unreadable
    while an older one is readable.)
    """

    bootstrap: Voters
    entries: tuple[tuple[Offset, Voters], ...] = ()
    start: Offset = 0
    latest: VoterSet = field(init=False, repr=False, compare=False)
    """The set used for every count."""

    def __post_init__(self) -> None:
        newest = self.entries[-1][1] if self.entries else self.bootstrap
        object.__setattr__(self, "latest", VoterSet(newest.voters))

    @classmethod
    def from_snapshot(cls, voters: Voters, end: Offset, entries: Iterable[tuple[Offset, Voters]] = ()) -> Self:
        """The history of a log with a snapshot ending at `end` and embedding `voters`; `entries` are the sets in the
        log.
        """
        return cls(voters, tuple(entry for entry in entries if entry[0] >= end), end)

    @property
    def latest_offset(self) -> Offset | None:
        """The offset of the latest set in the log. None: the bootstrap set."""
        return self.entries[-1][0] if self.entries else None

    def at(self, end: Offset) -> VoterSet:
        """The set defined by the records below `end` (exclusive), as embedded by a snapshot ending there."""
        index = bisect_left(self.entries, end, key=lambda entry: entry[0])
        return VoterSet((self.entries[index - 1][1] if index else self.bootstrap).voters)

    def has_named(self, replica: ReplicaKey) -> bool:
        """True if exactly this replica is or was a voter, as far as this log knows."""
        named = (self.bootstrap, *(voters for _, voters in self.entries))
        return any((each.node_id, each.directory_id) == tuple(replica) for voters in named for each in voters.voters)

    def last_named(self, node_id: NodeId) -> Voter | None:
        """The entry for `node_id` in the newest set with such an entry, which may not be the latest set."""
        newest_first = (*(voters for _, voters in reversed(self.entries)), self.bootstrap)
        return next((each for voters in newest_first for each in voters.voters if each.node_id == node_id), None)

    def changed_at(self, replica: ReplicaKey, since: Offset, *, to_voter: bool) -> Offset | None:
        """The offset of the first set at or above `since` that made exactly this replica a voter, or no voter any more.

        None: no set did. `since` must not be below `start`, because the sets below are forgotten.
        """
        assert since >= self.start, (since, self.start)
        was_voter = VoterSet(self.bootstrap.voters).contains(replica)
        for offset, voters in self.entries:
            is_voter = VoterSet(voters.voters).contains(replica)
            if is_voter is to_voter and was_voter is not to_voter and offset >= since:
                return offset
            was_voter = is_voter
        return None

    def append(self, offset: Offset, voters: Voters) -> "VoterHistory":
        assert self.latest_offset is None or self.latest_offset < offset, (self.latest_offset, offset)
        return VoterHistory(self.bootstrap, (*self.entries, (offset, voters)), self.start)

    def fill(self, found: Iterable[tuple[Offset, Voters]]) -> "VoterHistory":
        """Adds sets found in a part of the log which was unreadable before, wherever the part is."""
        entries = {**dict(self.entries), **{offset: voters for offset, voters in found if offset >= self.start}}
        return VoterHistory(self.bootstrap, tuple(sorted(entries.items(), key=lambda entry: entry[0])), self.start)

    def truncate(self, end: Offset) -> "VoterHistory":
        """Drops the sets at or above `end` (the exclusive end of the remaining log)."""
        return VoterHistory(self.bootstrap, tuple(entry for entry in self.entries if entry[0] < end), self.start)

    def check_invariants(self) -> None:
        assert self.bootstrap.voters, "a quorum without voters"
        assert not self.entries or self.entries[0][0] >= self.start, (self.start, self.entries)
        for before, after in pairwise(self.entries):
            assert before[0] < after[0], self.entries
