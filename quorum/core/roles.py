"""The six roles of a node, the state kept in each role, and the allowed transitions between roles (KIP-595, KIP-996).

    from any role: another node is in a higher epoch -> UNATTACHED;  a leader becomes known -> FOLLOWER

    UNATTACHED --election timeout--> PROSPECTIVE --pre-vote won--> CANDIDATE --vote won--> LEADER
        ^                              ^  |  ^                         |                     |
        +--------pre-vote lost---------|--+  +-------vote lost---------+                     | no quorum, asked, ...
                                       |  |                                                  v
    FOLLOWER ----leader silent---------+  |                                               RESIGNED
        ^                                 |                                                  |
        +--------pre-vote lost------------+        UNATTACHED, one epoch later <--waited-----+

Two rare changes are in the table `TRANSITIONS` only: FOLLOWER -> UNATTACHED (`LEADER_SILENT`) and CANDIDATE -> UNATTACHED
(`UNFIT`).

A prospective node asks for pre-votes before raising its epoch. A node that was cut off therefore cannot depose a
healthy leader when it returns. A resigned leader stays in its epoch for a while. No other node can lead this epoch, and
the resigned leader must not lead it again.

Example:

    1. Voter 1 leads epoch 5 of {1,2,3}, and its process dies. Voter 2 is a follower.
    2. Voter 2 gets no answer for the fetch timeout: FOLLOWER -> PROSPECTIVE (`LEADER_SILENT`), still in epoch 5.
    3. Voter 3 grants the pre-vote: PROSPECTIVE -> CANDIDATE (`PRE_VOTE_WON`). Voter 2 saves epoch 6 and its own vote.
    4. Voter 3 grants the vote: CANDIDATE -> LEADER (`VOTE_WON`). Voter 3 follows voter 2 (`LEARNED_LEADER`).

The table `TRANSITIONS` is the law: it lists every allowed change (role left, role entered, reason), and any other change
is a bug.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final, NamedTuple, TypeAlias

from metadata_log.format.fetch_size import PartialBatch
from metadata_log.format.ids import Epoch, NodeId, Offset, ReplicaKey
from quorum.core.protocol.download import Download
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
    """The reason of a transition from one role to another. Operators read these sentences in log lines."""

    HIGHER_EPOCH = "another node is in a higher epoch, and the leader of that epoch is not known yet"
    LEARNED_LEADER = "the node learned which node leads this epoch or a later one"
    ELECTION_TIMEOUT = "the node heard of no leader for an election timeout"
    LEADER_SILENT = "the leader has not answered for the fetch timeout"
    LEADER_GONE = "the leader's process has ended, or the leader has stepped down"
    PRE_VOTE_WON = "a majority would vote for this node"
    PRE_VOTE_LOST = "no majority would vote for this node, or the election timeout passed"
    VOTE_WON = "a majority has voted for this node"
    VOTE_LOST = "the election timeout passed before a majority had voted for this node"
    QUORUM_LOST = "no majority of the voters has made progress for the check-quorum timeout"
    ASKED = "the leader was asked to step down, its own state may be wrong, or its process is shutting down"
    REMOVED = "the voter set without this leader is committed"
    ACCUSED = "a majority of the voters has another history than this leader"
    UNFIT = "the log is damaged or the disk is full; the node neither leads nor campaigns until that has ended"
    STALLED = "a flush has hung on the leader's disk for too long, so the leader could apply nothing"
    REST_IS_OVER = "the resigned leader has waited an election timeout for the other voters"


_U, _P, _C, _L, _F, _R = Role
TRANSITIONS: Final[frozenset[tuple[Role, Role, Why]]] = frozenset(
    {
        *((role, Role.UNATTACHED, Why.HIGHER_EPOCH) for role in Role),
        *((role, Role.FOLLOWER, Why.LEARNED_LEADER) for role in Role),
        (_U, _P, Why.ELECTION_TIMEOUT),
        (_F, _P, Why.LEADER_SILENT),
        (_F, _P, Why.LEADER_GONE),
        (_F, _U, Why.LEADER_SILENT),  # a node not allowed to campaign asks other voters for a leader instead
        (_P, _C, Why.PRE_VOTE_WON),
        (_P, _F, Why.PRE_VOTE_LOST),  # back to the leader known before
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
"""All allowed transitions: role left, role entered, reason."""


class Transition(NamedTuple):
    """One change of role, for log lines."""

    at_ms: int
    """The node's `now_ms` at the change."""
    left: Role
    role: Role
    why: Why
    epoch: Epoch
    leader_id: NodeId | None
    """The leader in the new role: the followed node, or the node itself as leader. None: no leader."""
    log_end_offset: Offset
    had_leader: bool
    """True if the node had a leader in the role left: the node led, or the leader had answered a fetch."""


@dataclass(frozen=True, slots=True)
class Votes:
    """The answers to one round of vote requests, by voter, so that a repeated reply counts once."""

    granted: frozenset[ReplicaKey]
    rejected: frozenset[ReplicaKey]
    ask_at_ms: Mapping[ReplicaKey, int]
    """When to send a request to each voter. Voters with an answer, or with a request in flight, are left out."""
    unusable: frozenset[ReplicaKey] = frozenset()
    """Voters whose last answer was an error, or a refusal that may change. For reports only."""

    def won(self, voters: VoterSet) -> bool:
        return sum(map(voters.contains, self.granted)) >= voters.majority

    def lost(self, voters: VoterSet) -> bool:
        """True if the remaining voters can no longer make a majority."""
        return len(voters) - sum(map(voters.contains, self.rejected)) < voters.majority


@dataclass(frozen=True, slots=True)
class Unattached:
    """Knows its epoch but no leader.

    The node may vote, asks other voters for a leader, and campaigns at `election_deadline_ms`.
    """

    role: ClassVar[Role] = Role.UNATTACHED
    election_deadline_ms: int


@dataclass(frozen=True, slots=True)
class Prospective:
    """Asks the voters for pre-votes in the next epoch. The node keeps its epoch, its vote, and the leader it knew."""

    role: ClassVar[Role] = Role.PROSPECTIVE
    votes: Votes
    deadline_ms: int
    suspicious: bool
    """True if the node believes that the leader's process is gone. Other voters may notice later, so a voter refusing the
    pre-vote is asked again."""
    successors: tuple[NodeId, ...] = ()
    """The order of succession from the last leader, kept in case the node returns to the same leader."""
    partial: PartialBatch | None = None
    """The part of a batch received from that leader, kept for the same case: behind a slow link that stalls now and then, a
    large batch would never arrive as a whole."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Has saved a raised epoch with a vote for itself, and asks the other voters for votes."""

    role: ClassVar[Role] = Role.CANDIDATE
    votes: Votes
    started_ms: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Follower:
    """Fetches from `leader_id`, and gives up on the leader at `fetch_deadline_ms`."""

    role: ClassVar[Role] = Role.FOLLOWER
    leader_id: NodeId
    fetch_deadline_ms: int
    trusts_leader: bool = False
    """True after a good answer of the leader, and after a restart: the leader then has a fetch timeout to answer. A node
    that trusts its leader grants no pre-vote, unless it is `suspicious`."""
    heard_ms: int | None = None
    """When the leader last answered a fetch well. None: not since the node began to follow. For reports
    (`current_leader`)."""
    campaign_at_ms: int | None = None
    """When the node's turn to campaign comes, once the leader is believed gone (fast failover). None: the leader is
    trusted."""
    successors: tuple[NodeId, ...] = ()
    """The order of succession, from the leader's last good reply."""
    read_token: int = 0
    """The token of the leader's last good reply. The next fetch repeats the token, and so proves that the reply arrived."""
    verified: tuple[Offset | None, Offset] = (None, 0)
    """The leader's high watermark in the last good reply, and the end up to which the reply proved both logs equal."""
    download: Download | None = None
    partial: PartialBatch | None = None
    """The received part of a batch sent in several parts. Any other answer of the leader discards the part, as does a
    new leader."""

    @property
    def suspicious(self) -> bool:
        """True if the node believes that the leader's process is gone."""
        return self.campaign_at_ms is not None


@dataclass(frozen=True, slots=True)
class ParkedFetch:
    """A fetch waiting at the leader for news, until `deadline_ms` at most."""

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
    """All voters other than this node, and the observers."""
    parked: dict[ReplicaKey, ParkedFetch]
    reads: ReadRounds
    changes: Changes = field(default_factory=Changes)

    def park(self, replica: ReplicaKey, fetch: ParkedFetch) -> None:
        """Parks the fetch of `replica`, in place of an earlier one."""
        self.parked[replica] = fetch

    def unpark(self, replica: ReplicaKey) -> ParkedFetch | None:
        """Returns the parked fetch of `replica`, if any, for an answer."""
        return self.parked.pop(replica, None)

    def enter(self, replica: ReplicaKey, now_ms: int) -> ReplicaProgress:
        """The progress of `replica`, new for a new replica."""
        return self.replicas.setdefault(replica, ReplicaProgress(progress_ms=now_ms))

    def forget(self, replica: ReplicaKey) -> None:
        """Drops the progress of `replica`."""
        del self.replicas[replica]

    def last_round_began_ms(self, voters: VoterSet, me: ReplicaKey) -> int | None:
        """The newest time at which a majority is known to have followed this leader. None: no time is known yet.
        FOREVER_MS, later than every time: the leader is a quorum of one.

        A reply counts from the time when the leader *sent* it, once a later fetch proves its receipt. The arrival of a
        fetch does not count: a leader that was paused finds old fetches in its receive queue, and old fetches prove
        nothing about the present.
        """
        confirmed_ms = [self.replicas[voter].confirmed_ms for voter in voters.others(me)]
        return newest_of_majority(confirmed_ms, voters.needed_besides(me))

    def behind(self, voters: VoterSet, me: ReplicaKey, now_ms: int) -> list[NodeId]:
        """The voters which fetch and still fall behind (`pace`)."""
        return [key.node_id for key in voters.others(me) if self.replicas[key].falls_behind(now_ms)]


@dataclass(frozen=True, slots=True)
class Resigned:
    """Has stepped down from its epoch, or led the epoch before a restart.

    The node tells the others and lets them campaign first.
    """

    role: ClassVar[Role] = Role.RESIGNED
    deadline_ms: int
    preferred_successors: tuple[ReplicaKey, ...]
    tell_at_ms: Mapping[ReplicaKey, int]
    """When to send EndQuorumEpoch to each voter. Voters with the request answered or in flight are left out."""


RoleState: TypeAlias = Unattached | Prospective | Candidate | Leader | Follower | Resigned
