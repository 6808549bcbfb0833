"""The six roles of a node, what it keeps in each, and which may follow which (KIP-595, KIP-996).

        +--------------------------- a higher epoch, from anyone ---------------------------+
        v                                                                                   |
    UNATTACHED --timer--> PROSPECTIVE --majority would--> CANDIDATE --majority does--> LEADER
        |  ^                 |   ^                            |                          |
        |  +--nobody would---+   +----------lost--------------+                          v
        v                    |   ^                                                    RESIGNED
     FOLLOWER <--------------+   |                                                       |
        +---leader is silent-----+                         UNATTACHED, one epoch on <----+

A prospective node asks before it raises its epoch, so that a node which was cut off cannot depose a healthy leader when it
comes back. A resigned one still owns its epoch: nobody else can have led it, and it must not lead it again.

The table below is the law: every change of role names its edge, and one that is not in it is a bug.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final, NamedTuple, TypeAlias

from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from metadata_log.format.pieces import PartialBatch
from quorum.core.protocol.messages import FetchRequest
from quorum.core.protocol.pending_change import Changes
from quorum.core.protocol.progress import ReplicaProgress, newest_of_majority
from quorum.core.protocol.reads import ReadRounds
from quorum.core.protocol.voters import VoterSet


class Role(Enum):
    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


class Why(Enum):
    """What takes a node from one role to another."""

    HIGHER_EPOCH = "a higher epoch, its leader unknown"
    LEARNED_LEADER = "somebody leads this epoch or a later one"
    ELECTION_TIMEOUT = "no leader was heard of for an election timeout"
    LEADER_SILENT = "the leader has not answered for the fetch timeout"
    LEADER_GONE = "the leader's process is gone, or it has stepped down"
    PRE_VOTE_WON = "a majority would vote for this node"
    PRE_VOTE_LOST = "a majority would not, or the election timeout passed"
    VOTE_WON = "a majority has voted for this node"
    VOTE_LOST = "the election timeout passed without a majority"
    QUORUM_LOST = "no majority has made progress for the check-quorum timeout"
    ASKED = "asked to step down, or the process is going"
    REMOVED = "a voter set without this leader is committed"
    ACCUSED = "a majority of the voters has another history than this leader"
    UNFIT = "its log is damaged, and until that is mended it neither leads nor runs"
    STALLED = "its disk has not got further with a flush for too long, so that it could apply nothing"
    REST_IS_OVER = "a resigned leader has given the others an election timeout"


_U, _P, _C, _L, _F, _R = Role
TRANSITIONS: Final[frozenset[tuple[Role, Role, Why]]] = frozenset(
    {
        *((role, Role.UNATTACHED, Why.HIGHER_EPOCH) for role in Role),
        *((role, Role.FOLLOWER, Why.LEARNED_LEADER) for role in Role),
        (_U, _P, Why.ELECTION_TIMEOUT),
        (_F, _P, Why.LEADER_SILENT),
        (_F, _P, Why.LEADER_GONE),
        (_F, _U, Why.LEADER_SILENT),  # one that may not run, which asks around instead
        (_P, _C, Why.PRE_VOTE_WON),
        (_P, _F, Why.PRE_VOTE_LOST),  # back to the leader that it knew
        (_P, _U, Why.PRE_VOTE_LOST),
        (_C, _L, Why.VOTE_WON),
        (_C, _P, Why.VOTE_LOST),
        (_L, _R, Why.QUORUM_LOST),
        (_L, _R, Why.ASKED),
        (_L, _R, Why.REMOVED),
        (_L, _R, Why.UNFIT),
        (_L, _R, Why.ACCUSED),
        (_L, _R, Why.STALLED),
        (_C, _U, Why.UNFIT),
        (_R, _U, Why.REST_IS_OVER),
    }
)
"""Who may become what, and why."""


class Transition(NamedTuple):
    """One change of role as it happened, for a log of them."""

    at_ms: int
    """The node's `now_ms`."""
    left: Role
    role: Role
    why: Why
    epoch: Epoch
    leader_id: NodeId | None
    """Whom the node follows in its new role, or itself; None: nobody."""
    log_end_offset: Offset
    had_leader: bool
    """Whether the node has had a leader in the role that it left: it led, or its leader has answered it."""


@dataclass(frozen=True, slots=True)
class Votes:
    """The answers to one round of asking. Attributed, so that a repeated reply counts once."""

    granted: frozenset[ReplicaKey]
    rejected: frozenset[ReplicaKey]
    ask_at_ms: Mapping[ReplicaKey, int]
    """Whom to ask, again or for the first time, and when. Not in it: who has answered, or is being asked."""

    def won(self, voters: VoterSet) -> bool:
        return sum(map(voters.contains, self.granted)) >= voters.majority

    def lost(self, voters: VoterSet) -> bool:
        """Whether the rest could not make a majority any more."""
        return len(voters) - sum(map(voters.contains, self.rejected)) < voters.majority


@dataclass(frozen=True, slots=True)
class Unattached:
    """Knows an epoch but nobody to follow; asks around, may vote, and runs when `election_deadline_ms` passes."""

    role: ClassVar[Role] = Role.UNATTACHED
    election_deadline_ms: int


@dataclass(frozen=True, slots=True)
class Prospective:
    """Asks who would vote for it in the next epoch. Keeps its epoch, its vote and what it knew of a leader."""

    role: ClassVar[Role] = Role.PROSPECTIVE
    votes: Votes
    deadline_ms: int
    suspicious: bool
    """Its leader's process is gone; the others may not have noticed yet, so whoever refuses is asked again."""
    successors: tuple[NodeId, ...] = ()
    """The order of succession, for the next time, should this node go back to its leader."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Has raised its epoch and voted for itself, durably, and asks for the others' votes."""

    role: ClassVar[Role] = Role.CANDIDATE
    votes: Votes
    started_ms: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Download:
    """A snapshot on its way: everything before `position` is written. `size` is None until the first chunk is here."""

    snapshot: OffsetAndEpoch
    position: int = 0
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Follower:
    """Fetches from `leader_id`; gives up on it at `fetch_deadline_ms`."""

    role: ClassVar[Role] = Role.FOLLOWER
    leader_id: NodeId
    fetch_deadline_ms: int
    has_fetched: bool = False
    """Whether the leader has answered well, or is given the time to; meanwhile this node would not vote for another."""
    heard_ms: int | None = None
    """When the leader last answered a fetch well; None: not since this node follows it. See `current_leader`."""
    campaign_at_ms: int | None = None
    """Set while the leader is believed gone (design of the fast failover): when it is this node's turn to run."""
    successors: tuple[NodeId, ...] = ()
    read_token: int = 0
    verified: tuple[Offset | None, Offset] = (None, 0)
    """The leader's high watermark in the last good reply, and the end up to which that reply showed the logs to agree."""
    download: Download | None = None
    partial: PartialBatch | None = None
    """What is here of a batch that comes in parts. Gone with the leader, and with anything else that the leader answers."""

    @property
    def suspicious(self) -> bool:
        return self.campaign_at_ms is not None


@dataclass(frozen=True, slots=True)
class ParkedFetch:
    """A fetch that waits for something to say, at most until `deadline_ms`."""

    reply_to: int
    request: FetchRequest
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Leader:
    """Leads the epoch whose first record is at `epoch_start_offset`."""

    role: ClassVar[Role] = Role.LEADER
    epoch_start_offset: Offset
    elected_ms: int
    replicas: dict[ReplicaKey, ReplicaProgress]
    """Voters other than this node, and observers."""
    parked: dict[ReplicaKey, ParkedFetch]
    reads: ReadRounds
    changes: Changes = field(default_factory=Changes)

    def last_round_began_ms(self, voters: VoterSet, me: ReplicaKey) -> int | None:
        """At this time, or later, a majority still followed this epoch; None: not shown yet; FOREVER_MS for a quorum of one.

        It is the time when the replies left whose receipt the followers have since shown, not when their fetches came in: a
        leader that was paused finds old fetches at its door, and they prove nothing about now.
        """
        confirmed_ms = [self.replicas[voter].confirmed_ms for voter in voters.others(me)]
        return newest_of_majority(confirmed_ms, voters.needed_besides(me))

    def behind(self, voters: VoterSet, me: ReplicaKey, now_ms: int) -> list[NodeId]:
        """The voters that fetch and fall behind all the same (`pace`)."""
        return [key.node_id for key in voters.others(me) if self.replicas[key].falls_behind(now_ms)]


@dataclass(frozen=True, slots=True)
class Resigned:
    """Has stepped down from this epoch, or led it before a restart; tells the others, and lets them go first."""

    role: ClassVar[Role] = Role.RESIGNED
    deadline_ms: int
    preferred_successors: tuple[ReplicaKey, ...]
    tell_at_ms: Mapping[ReplicaKey, int]
    """Who has yet to be told that the epoch is over, and when (again). Not in it: told, or being told."""


RoleState: TypeAlias = Unattached | Prospective | Candidate | Leader | Follower | Resigned
