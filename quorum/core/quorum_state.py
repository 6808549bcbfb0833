"""What one node is, and the only place where that changes. (The name is Kafka's; nothing here is shared by the quorum.)

`QuorumState` is the desk that the roles' files (`votes`, `election`, `follower`, `leader`,
`fetch_service`) work at: epoch, vote
and leader as they are on disk, the role, the log's shape, the voter set, the high watermark, and the effects of this step.

Two rules are kept here so that nobody else has to think of them:

  * Disk before speech. `become` and `vote_for` queue `SaveElectionState` before anything that their callers say next. Two saves
    with nothing said between them are one, which makes a vote in a new epoch cost a single fsync.
  * Fail-stop. What safety does not survive is raised as `SafetyViolated` and ends the node (`StopNode`), never skipped.

Sources: KIP-595 (states, adoption of epochs), KIP-853 (directory ids, observers), KIP-996 (prospective).
"""

import random
from collections import deque
from dataclasses import dataclass, replace

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from metadata_log.format.log_shape import LogShape
from metadata_log.format.pieces import PieceSize
from metadata_log.format.records import Endpoint
from quorum.core.protocol.config import RaftConfig
from quorum.core.protocol.disk_trust import FULL, DiskTrust
from quorum.core.protocol.effects import (
    Effect,
    ElectionState,
    HighWatermarkAdvanced,
    LeadershipChanged,
    Reply,
    SaveElectionState,
    SendRequest,
)
from quorum.core.protocol.epochs import reach, reach_of_reply
from quorum.core.protocol.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    QuorumChangeRequest,
    Request,
    Response,
)
from quorum.core.protocol.pending_change import last_word
from quorum.core.protocol.testimony import Dispute
from quorum.core.protocol.voters import VoterHistory, VoterSet
from quorum.core.roles import (
    TRANSITIONS,
    Download,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    RoleState,
    Transition,
    Unattached,
    Why,
)

MAX_BACKOFF_DOUBLINGS = 3
TRANSITIONS_KEPT = 1_000
"""One step makes a few, and they are taken after each turn."""


class SafetyViolated(Exception):
    """Something happened that safety does not survive. The node stops and says this."""


@dataclass(slots=True)
class Joining:
    """What this node asks of its leader for itself (`quorum.core.auto_join`)."""

    endpoints: tuple[Endpoint, ...]
    """Where it is to be reached, as configured; none: it asks for nothing."""
    ask_at_ms: int
    failures: int = 0
    asked: QuorumChangeRequest | None = None
    """On its way."""
    settled: VoterSet | None = None
    """The voter set that was seen to say what is configured: there is nothing to ask for as long as it is the latest."""


class QuorumState:
    """The state of one Raft node between two inputs. See the module's docstring."""

    __slots__ = (
        "_announced",
        "applied",
        "asked_ms",
        "awaiting_log",
        "begun_epoch",
        "begun_ms",
        "config",
        "disk_trust",
        "disputes",
        "effects",
        "election",
        "failed_install",
        "failures",
        "heard_ms",
        "heard_of",
        "in_flight",
        "incarnation",
        "installing",
        "is_stalled",
        "joining",
        "known_high_watermark",
        "me",
        "now_ms",
        "number",
        "part",
        "pieces",
        "put_off",
        "retry_at_ms",
        "rng",
        "role",
        "shape",
        "shutting_down",
        "started_ms",
        "stranger",
        "transitions",
        "unflushed_since_ms",
        "voters",
    )

    def __init__(
        self,
        *,
        me: ReplicaKey,
        config: RaftConfig,
        election: ElectionState,
        shape: LogShape,
        voters: VoterHistory,
        rng: random.Random,
        now_ms: int,
        disk_trust: DiskTrust = FULL,
        part: Download | None = None,
        my_endpoints: tuple[Endpoint, ...] = (),
    ) -> None:
        self.me = me
        self.config = config
        self.shape = shape
        self.voters = voters
        self.rng = rng
        self.now_ms = self.started_ms = now_ms
        self.effects: list[Effect] = []
        self.election = election
        """As it is on disk, once the effects so far are carried out."""
        self.known_high_watermark: Offset | None = shape.start.offset or None
        """All below is committed; never falls. What a snapshot holds is, so that is where a node begins."""
        if shape.snapshot is not None and shape.start.offset < shape.snapshot.offset <= shape.end:
            self.known_high_watermark = shape.snapshot.offset
        self.in_flight: tuple[NodeId, FetchRequest | FetchSnapshotRequest] | None = None
        """The one fetch that is on its way, and to whom."""
        self.asked_ms = now_ms
        """When the last fetch was sent."""
        self.pieces = PieceSize(
            config.piece_bytes_min, max(config.fetch_bytes_max, config.snapshot_chunk_bytes), config.request_timeout_ms
        )
        """How much the next fetch asks for, of the log or of a snapshot: they come over the same link."""
        self.number = rng.getrandbits(40)
        """Of the last fetch. Starts anywhere, so that an answer meant for the process before this one matches nothing."""
        self.incarnation = self.number or 1
        """Tells this process from any other that fetches under the same key (see `processes`)."""
        self.failures = 0
        self.retry_at_ms = now_ms
        """No fetch leaves before."""
        self.unflushed_since_ms = None if shape.flushed_end == shape.end else now_ms
        """Since when the flushed end has stood still short of the log's; None: all is flushed."""
        self.is_stalled = False
        """It led, and its disk kept it waiting for too long (`leader`): it does not run before that has got further."""
        self.awaiting_log = False
        """An append, truncation or install was asked for and is not reported yet: the shape is not what it will be."""
        self.disputes: dict[ReplicaKey, Dispute] = {}
        """What is in dispute, and with whom: under this node's own key, with its leader; as leader, with those voters."""
        self.applied: tuple[Offset, bytes] = (0, b"")
        """How far the image reaches here and its digest there, for the fetches to carry; the core makes nothing of it."""
        self.part: Download | None = part
        """What is here of a snapshot that is being fetched: kept through changes of leader and role (see `download`)."""
        self.installing: Download | None = None
        """The snapshot that is whole and being installed."""
        self.failed_install: tuple[OffsetAndEpoch | None, int, str] = (None, 0, "")
        """Which snapshot could not be installed, how often, and why."""
        self.put_off: tuple[int, OffsetAndEpoch | None, str] = (now_ms, None, "")
        """Until when no snapshot is fetched, because which one could not be kept, and why."""
        self.shutting_down = False
        self.heard_ms: int | None = None
        """When a leader last answered this node well, or when it last led: whatever it knows may be as old as that. None: not
        since it started. (The follower's deadline would not do: it is also moved by whoever only hopes for an answer.)"""
        self.begun_epoch: Epoch = 0
        """The epoch that a leader last said itself to lead; 0: there was none, or that leader has ended it. For reports only."""
        self.begun_ms: int | None = None
        """When a leader last said either. For reports only."""
        self.heard_of: NodeId | None = None
        """Calls itself the leader, and is no voter as far as this node knows: somebody to ask, nobody to believe (`votes`)."""
        self.disk_trust = disk_trust
        self.stranger = me if disk_trust.may_acknowledge else ReplicaKey(me.node_id, rng.randbytes(16))
        """Nobody. See `fetch_key`."""
        self.joining = Joining(my_endpoints, now_ms)
        self.transitions: deque[Transition] = deque(maxlen=TRANSITIONS_KEPT)
        """Until they are taken (`RaftCore.take_transitions`): a simulator takes none."""
        self._announced: tuple[Epoch, NodeId | None, bool] | None = None
        self.role: RoleState = self._role_at_start()

    def _role_at_start(self) -> RoleState:
        """What quorum-state says: a leader comes back resigned, a follower follows, a candidate only keeps its vote."""
        if self.shape.last_epoch > self.election.epoch:
            self.effects.append(SaveElectionState(ElectionState(self.shape.last_epoch, None, None)))
            self.election = ElectionState(self.shape.last_epoch, None, None)
        leader_id = self.election.leader_id
        if leader_id == self.me.node_id:
            return Resigned(self.election_deadline_ms(), preferred_successors=(), tell_at_ms={})
        if leader_id is not None:
            # It may well be there: before this node has given it its time, it must not help somebody who has lost it, or a node
            # that is cut off would depose a healthy leader with the vote of one that has just restarted.
            return Follower(leader_id, self.now_ms + self.config.fetch_timeout_ms, has_fetched=True)
        return Unattached(self.election_deadline_ms())

    # --- what follows from it -------------------------------------------------------------------------------------

    @property
    def epoch(self) -> Epoch:
        return self.election.epoch

    @property
    def latest_voters(self) -> VoterSet:
        return self.voters.latest

    @property
    def is_voter(self) -> bool:
        """False for an observer, also where the set names this node with another directory (R15)."""
        return self.voters.latest.contains(self.me)

    @property
    def may_campaign(self) -> bool:
        """A voter does, and so does one that is only removed by a set that may not be committed, for it may have to be (R14).

        1 leads {1,2}, appends {2}, and resigns before 2 has that record. 2 cannot win, for it needs the vote of 1, whose log
        is longer; so 1 has to lead again, uncounted, until {2} is committed (Ongaro's thesis, 4.2.2).
        """
        is_fit = self.disk_trust.may_campaign and not self.is_stalled and self.has_next_epoch
        return is_fit and (self.is_voter or self._may_have_to_lead)

    @property
    def has_next_epoch(self) -> bool:
        """Whether this node may raise its epoch by one (`epochs`): false after some 10^19 elections, or forged messages."""
        return reach(self.epoch) > 0

    @property
    def _may_have_to_lead(self) -> bool:
        at, high_watermark = self.voters.latest_offset, self.known_high_watermark
        if at is None or (high_watermark is not None and at < high_watermark):
            return False
        return self.voters.at(at).contains(self.me)

    @property
    def fetch_key(self) -> ReplicaKey:
        """Under which key this node fetches, for a fetch is an acknowledgement: nobody's, where it may not give any."""
        return self.me if self.disk_trust.may_acknowledge else self.stranger

    @property
    def leader_id(self) -> NodeId | None:
        """Whom this node follows, or itself. A prospective one still names the leader that it may go back to."""
        match self.role:
            case Leader():
                return self.me.node_id
            case Follower(leader_id=leader_id):
                return leader_id
            case Prospective():
                return self.election.leader_id
            case _:
                return None

    @property
    def leader_hint(self) -> NodeId | None:
        """The leader that replies name: none that this node itself has lost, or two nodes would keep a dead one alive."""
        match self.role:
            case Leader():
                return self.me.node_id
            case Follower(leader_id=leader_id, campaign_at_ms=None):
                return leader_id
            case _:
                return None

    def election_deadline_ms(self) -> int:
        """A random time from now, so that two nodes rarely run at once (Raft 5.2)."""
        return self.now_ms + self.rng.randint(self.config.election_timeout_min_ms, self.config.election_timeout_max_ms)

    # --- the log --------------------------------------------------------------------------------------------------

    def take_shape(self, shape: LogShape) -> None:
        """The log is as it says itself. Whether its disk gets further with it is noted here."""
        is_flushed, has_moved = shape.flushed_end == shape.end, shape.flushed_end != self.shape.flushed_end
        self.shape = shape
        if is_flushed or has_moved:
            self.is_stalled = False
        if is_flushed:
            self.unflushed_since_ms = None
        elif has_moved or self.unflushed_since_ms is None:
            self.unflushed_since_ms = self.now_ms

    # --- effects --------------------------------------------------------------------------------------------------

    def send(self, destination: NodeId, request: Request) -> None:
        assert destination != self.me.node_id, f"a request to itself: {request}"
        self.effects.append(SendRequest(destination, request, self.config.request_timeout_ms))

    def reply(self, reply_to: int, response: Response) -> None:
        self.effects.append(Reply(reply_to, response))

    def _save(self, election: ElectionState) -> None:
        if election == self.election:
            return
        assert election.epoch >= self.election.epoch, f"epoch {self.election.epoch} would fall to {election.epoch}"
        self.election = election
        # Nothing was said since the last save, so nothing depends on it: one fsync will do for both.
        for index in range(len(self.effects) - 1, -1, -1):
            effect = self.effects[index]
            if isinstance(effect, SaveElectionState):
                self.effects[index] = SaveElectionState(election)
                return
            if not isinstance(effect, LeadershipChanged):
                break
        self.effects.append(SaveElectionState(election))

    def announce(self) -> None:
        """Tells the state machine who leads, if that has changed."""
        leading = isinstance(self.role, Leader)
        now = (self.epoch, self.leader_id, leading)
        if now != self._announced:
            self._announced = now
            self.effects.append(LeadershipChanged(*now))

    def raise_high_watermark(self, end: Offset) -> bool:
        """Notes that all below `end` is committed; says whether that is news."""
        assert end <= self.shape.end, f"high watermark {end} beyond the log's end {self.shape.end}"
        if self.known_high_watermark is not None and end <= self.known_high_watermark:
            return False
        self.known_high_watermark = end
        self.effects.append(HighWatermarkAdvanced(end))
        return True

    # --- changes of role ------------------------------------------------------------------------------------------

    def become(self, role: RoleState, why: Why, election: ElectionState) -> None:
        """The one door between roles. Saves `election` first; a leader that goes answers what it holds."""
        left = self.role
        edge = (left.role, role.role, why)
        assert edge in TRANSITIONS, f"no such transition: {edge}; {self.me} epoch {self.epoch} -> {election}"
        self.role = role
        self._save(election)
        self._note_transition(left, why)
        self.in_flight = None
        self.failures = 0
        self.retry_at_ms = self.now_ms
        if isinstance(left, Leader) or isinstance(role, Leader):
            self.disputes.clear()
        if isinstance(left, Leader):
            began_ms = left.last_round_began_ms(self.latest_voters, self.me)
            self.heard_ms = self.heard_ms if began_ms is None else min(began_ms, self.now_ms)
            for parked in left.parked.values():
                self.reply(parked.reply_to, self.fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER, parked.request))
            left.parked.clear()
            wish = left.changes.pending
            if wish is not None and wish.reply_to is not None:
                word = last_word(wish, self.epoch, self.leader_hint, self.known_high_watermark)
                self.reply(wish.reply_to, word)
            left.changes.pending = None
        # A new leader first appends the record that opens its epoch, and is announced by `leader.lead` after that.
        if role.role is not Role.LEADER:
            self.announce()

    def _note_transition(self, left: RoleState, why: Why) -> None:
        had_leader = isinstance(left, Leader) or (isinstance(left, Follower) and left.heard_ms is not None)
        leader_id = self.leader_id if isinstance(self.role, Leader | Follower) else None
        end, now_ms = self.shape.end, self.now_ms
        self.transitions.append(
            Transition(now_ms, left.role, self.role.role, why, self.epoch, leader_id, end, had_leader)
        )

    def become_unattached(self, epoch: Epoch, why: Why) -> None:
        """Enters `epoch` without a leader; in a higher one, without a vote."""
        election = self.election if epoch == self.epoch else ElectionState(epoch, None, None)
        self.become(Unattached(self.election_deadline_ms()), why, election)
        # Most often somebody is about to win, and will say so: ask around only if it takes a while.
        self.retry_at_ms = self.now_ms + self.config.retry_backoff_ms

    def become_follower(self, epoch: Epoch, leader_id: NodeId, why: Why = Why.LEARNED_LEADER) -> None:
        assert leader_id != self.me.node_id, "a node does not follow itself"
        self.pieces.start_small()  # another leader is at the end of another link
        voted_for = self.election.voted_for if epoch == self.epoch else None
        self.become(
            Follower(leader_id, self.now_ms + self.config.fetch_timeout_ms),
            why,
            ElectionState(epoch, voted_for, leader_id),
        )

    def vote_for(self, candidate: ReplicaKey) -> None:
        """Durable before the reply that says so; restarts the timer, for the candidate deserves its time."""
        assert self.election.voted_for in (None, candidate), f"a second vote in epoch {self.epoch}"
        self._save(self.election._replace(voted_for=candidate))
        match self.role:
            case Unattached():
                self.role = Unattached(self.election_deadline_ms())
            case Prospective():
                self.role = replace(self.role, deadline_ms=self.election_deadline_ms())
            case _:
                raise AssertionError(f"a vote as {self.role}")

    def learn_leader(self, leader_id: NodeId) -> None:
        """Somebody says that `leader_id` leads this epoch.

        Raises:
            SafetyViolated: if another node was known to lead it.
        """
        known = self.election.leader_id
        if known is not None and known != leader_id:
            raise SafetyViolated(f"epoch {self.epoch} has two leaders: {known} and {leader_id}")
        match self.role.role:
            case Role.UNATTACHED | Role.CANDIDATE:
                self.become_follower(self.epoch, leader_id)
            case Role.PROSPECTIVE if known is None:
                self.become_follower(self.epoch, leader_id)
            case _:
                pass

    def absorb(self, epoch: Epoch, leader_id: NodeId | None) -> bool:
        """Takes in what a reply says of epochs; False if it comes from an older one, and says nothing any more.

        One that lies out of reach (`epochs`) is nobody's: it is not taken in either, and says nothing.

        That this node itself should lead is not believed: it would know. (A node with a new disk may hear it of its
        former self.)
        """
        if leader_id == self.me.node_id:
            leader_id = None
        if epoch < self.epoch or epoch - self.epoch > reach_of_reply(self.epoch):
            return False
        if epoch == self.epoch:
            if leader_id is not None:
                self.learn_leader(leader_id)
        elif leader_id is not None:
            self.become_follower(epoch, leader_id)
        else:
            self.become_unattached(epoch, Why.HIGHER_EPOCH)
        return True

    # --- the one fetch in flight ----------------------------------------------------------------------------------

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def piece_came(self, content_bytes: int) -> None:
        """So much of what the last fetch asked for has come, and its source has more."""
        self.pieces.came(content_bytes, self.asked_ms, self.now_ms)

    def take_in_flight(self, source: NodeId, request: Request) -> bool:
        """Whether `request` to `source` is the fetch that is awaited; it no longer is."""
        if self.in_flight is None or self.in_flight[0] != source or self.in_flight[1] != request:
            return False
        self.in_flight = None
        return True

    def back_off(self) -> None:
        """The last fetch was in vain: wait a little before the next, longer each time."""
        self.retry_at_ms = self.now_ms + (self.config.retry_backoff_ms << min(self.failures, MAX_BACKOFF_DOUBLINGS))
        self.failures += 1

    def fetch_error(self, error: ErrorCode, request: FetchRequest) -> FetchResponse:
        """A refusal. A leader that has just stepped down names who is to follow it, so that they do not all run at once."""
        ranked = self.role.preferred_successors if isinstance(self.role, Resigned) else ()
        successors = tuple(key.node_id for key in ranked)
        return FetchResponse(error, self.epoch, self.leader_hint, request.number, successors=successors)
