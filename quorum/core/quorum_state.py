"""The state of one node, and the only file which changes the role, the epoch and the vote. (The name is Kafka's.)

All files of the roles (`votes`, `election`, `follower`, `leader`, `fetch_service`) work on one `QuorumState`: epoch,
vote and leader as saved on disk, the role, the log's shape, the voter set, the high watermark, and the effects of the
current step.

`QuorumState` keeps two rules for all of its users:

* Disk before speech. `become` and `vote_for` queue `SaveElectionState` before any message their callers queue. Two
  saves without a message between them become one, so a vote in a new epoch costs a single fsync.
* Fail-stop. A violation of safety raises `SafetyViolated` and stops the node (`StopNode`). No caller may skip a
  violation.

Example, a vote in a new epoch:

    1. Voter 1 is in epoch 4 and receives a vote request of voter 2 for epoch 5.
    2. `become_unattached(5)` queues SaveElectionState(epoch 5, no vote).
    3. `vote_for(2)` replaces the save by SaveElectionState(epoch 5, vote 2), because no message lies between.
    4. The reply "granted" is queued last. The node carries out effects in order, so the vote is on disk first.

Sources: KIP-595 (states, adoption of epochs), KIP-853 (directory ids, observers), KIP-996 (prospective).
"""

import random
from collections import deque
from dataclasses import replace

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import EPOCH_MAX, Epoch, NodeId, Offset, ReplicaKey
from metadata_log.format.log_shape import LogShape
from metadata_log.format.records import Endpoint
from quorum.core.protocol.config import RaftConfig
from quorum.core.protocol.disk_trust import FULL, DiskTrust
from quorum.core.protocol.download import Download
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
    Request,
    Response,
)
from quorum.core.protocol.pending_change import last_word
from quorum.core.protocol.testimony import Dispute
from quorum.core.protocol.voters import VoterHistory
from quorum.core.roles import (
    TRANSITIONS,
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
from quorum.core.state.contact import LeaderContact
from quorum.core.state.disk import DiskState
from quorum.core.state.fetch import FetchState
from quorum.core.state.install import InstallState
from quorum.core.state.join import JoinState

TRANSITIONS_KEPT = 1_000
"""Maximum number of transitions kept. A step makes only a few, and the node takes them after each turn."""


class SafetyViolated(Exception):
    """An event after which the cluster is no longer safe. The node stops and reports the message."""


class QuorumState:
    """The state of one Raft node between two inputs. See the module's docstring."""

    __slots__ = (
        "_announced",
        "applied",
        "awaiting_log",
        "config",
        "contact",
        "disk",
        "disputes",
        "effects",
        "election",
        "fetch",
        "install",
        "join",
        "known_high_watermark",
        "latest_voters",
        "me",
        "now_ms",
        "rng",
        "role",
        "shape",
        "shutting_down",
        "started_ms",
        "stranger",
        "transitions",
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
        self.take_voters(voters)
        self.rng = rng
        self.now_ms = self.started_ms = now_ms
        self.effects: list[Effect] = []
        self.election = election
        """Epoch, vote and leader as they are on disk once all queued effects are carried out."""
        self.known_high_watermark: Offset | None = shape.start.offset or None
        """All records below are committed; never falls. A snapshot holds committed records only, so a node starts at
        its snapshot."""
        if shape.snapshot is not None and shape.start.offset < shape.snapshot.offset <= shape.end:
            self.known_high_watermark = shape.snapshot.offset
        self.fetch = FetchState(config, rng.getrandbits(40), now_ms)
        self.install = InstallState(part, now_ms)
        self.disk = DiskState(disk_trust, shape, now_ms)
        self.contact = LeaderContact()
        self.join = JoinState(my_endpoints, now_ms)
        self.awaiting_log = False
        """True while a requested append, truncation or install is not reported yet, so `shape` is about to change."""
        self.disputes: dict[ReplicaKey, Dispute] = {}
        """The open disputes: a follower's with its leader, under the follower's own key; a leader's with its voters, by
        voter."""
        self.applied: tuple[Offset, bytes] = (0, b"")
        """The end of the node's image and the image's digest, sent along with every fetch. The core does not use
        either."""
        self.shutting_down = False
        self.stranger = me if disk_trust.may_acknowledge else ReplicaKey(me.node_id, rng.randbytes(16))
        """A random key under which a node fetches while it may not acknowledge. See `fetch_key`."""
        self.transitions: deque[Transition] = deque(maxlen=TRANSITIONS_KEPT)
        """Transitions not yet taken by `RaftCore.take_transitions`. (The simulator takes none.)"""
        self._announced: tuple[Epoch, NodeId | None, bool] | None = None
        self.role: RoleState = self._role_at_start()

    def _role_at_start(self) -> RoleState:
        """The role after a start, from `quorum-state`: a leader returns as resigned, a follower follows, a candidate
        keeps its vote.
        """
        if self.shape.last_epoch > self.election.epoch:
            self.effects.append(SaveElectionState(ElectionState(self.shape.last_epoch, None, None)))
            self.election = ElectionState(self.shape.last_epoch, None, None)
        leader_id = self.election.leader_id
        if leader_id == self.me.node_id:
            return Resigned(self.election_deadline_ms(), preferred_successors=(), tell_at_ms={})
        if leader_id is not None:
            # The leader may well be alive. Until the leader has had a fetch timeout, this node grants no pre-votes:
            # otherwise a node that is cut off would depose a healthy leader with the vote of a restarted node.
            return Follower(leader_id, self.now_ms + self.config.fetch_timeout_ms, trusts_leader=True)
        return Unattached(self.election_deadline_ms())

    # --- derived values -------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> Epoch:
        return self.election.epoch

    @property
    def is_voter(self) -> bool:
        """False for an observer, also if the voter set names this node with another directory (R15)."""
        return self.voters.latest.contains(self.me)

    @property
    def may_campaign(self) -> bool:
        """True if the node may stand for election: a fit voter, or a fit node whose removal may not be committed (R14).

        1. Voter 1 leads {1,2}, appends the set {2}, and resigns before voter 2 has the record.
        2. Voter 2 cannot win: with {1,2} in its log, voter 2 needs the vote of 1, whose log is longer.
        3. So node 1 has to lead again, uncounted, until {2} is committed (Ongaro's thesis, 4.2.2).
        """
        is_fit = self.disk.trust.may_campaign and not self.disk.is_stalled and self.has_next_epoch
        return is_fit and (self.is_voter or self._may_have_to_lead)

    @property
    def has_next_epoch(self) -> bool:
        """True if the node may raise its epoch by one (`epochs`).

        False after some 10^19 elections, or after forged messages.
        """
        return reach(self.epoch) > 0

    @property
    def _may_have_to_lead(self) -> bool:
        at, high_watermark = self.voters.latest_offset, self.known_high_watermark
        if at is None or (high_watermark is not None and at < high_watermark):
            return False
        return self.voters.at(at).contains(self.me)

    @property
    def fetch_key(self) -> ReplicaKey:
        """The key under which the node fetches.

        A fetch is an acknowledgement, so a node not allowed to acknowledge uses `stranger`.
        """
        return self.me if self.disk.trust.may_acknowledge else self.stranger

    @property
    def leader_id(self) -> NodeId | None:
        """The followed leader, or the node itself as leader.

        A prospective node still names the leader it may return to.
        """
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
        """The leader named in replies.

        A node never names a leader it has lost: two nodes would keep a dead leader in office.
        """
        match self.role:
            case Leader():
                return self.me.node_id
            case Follower(leader_id=leader_id, campaign_at_ms=None):
                return leader_id
            case _:
                return None

    def election_deadline_ms(self) -> int:
        """A random time from now on, so that two nodes rarely campaign at once (Raft 5.2)."""
        return self.now_ms + self.rng.randint(self.config.election_timeout_min_ms, self.config.election_timeout_max_ms)

    # --- the log --------------------------------------------------------------------------------------------------

    def take_shape(self, shape: LogShape) -> None:
        """Adopts the reported shape of the log, and notes whether the flush on the node's disk advances."""
        self.disk.note_shape(self.shape, shape, self.now_ms)
        self.shape = shape

    def begin_log_change(self) -> None:
        """Notes a requested append, truncation or install: the driver has yet to report the new shape."""
        self.awaiting_log = True

    def end_log_change(self) -> None:
        """Notes the report of a requested change, or of its failure."""
        self.awaiting_log = False

    def take_voters(self, voters: VoterHistory) -> None:
        """Adopts the voter sets of the log as changed. The latest set counts."""
        self.voters = voters
        self.latest_voters = voters.latest

    # --- inputs ---------------------------------------------------------------------------------------------------

    def advance_clock(self, now_ms: int) -> None:
        """Sets the time of the current step. Time never runs backwards."""
        self.now_ms = max(self.now_ms, now_ms)

    def begin_shutdown(self) -> None:
        """Notes that the process is shutting down: the node starts nothing new."""
        self.shutting_down = True

    def carry_digest(self, offset: Offset, digest: bytes) -> None:
        """Sets the end and the digest of the node's image for all further fetches."""
        self.applied = (offset, digest)

    # --- effects --------------------------------------------------------------------------------------------------

    def send(self, destination: NodeId, request: Request) -> None:
        assert destination != self.me.node_id, f"a request to itself: {request}"
        self.effects.append(SendRequest(destination, request, self.config.request_timeout_ms))

    def reply(self, reply_to: int, response: Response) -> None:
        self.effects.append(Reply(reply_to, response))

    def take_effects(self) -> list[Effect]:
        """Returns the effects of the current step, and clears them."""
        taken, self.effects = self.effects, []
        return taken

    def _save(self, election: ElectionState) -> None:
        if election == self.election:
            return
        assert election.epoch >= self.election.epoch, f"epoch {self.election.epoch} would fall to {election.epoch}"
        self.election = election
        # No message was queued since the last save, so no message depends on that save: one fsync serves both.
        for index in range(len(self.effects) - 1, -1, -1):
            effect = self.effects[index]
            if isinstance(effect, SaveElectionState):
                self.effects[index] = SaveElectionState(election)
                return
            if not isinstance(effect, LeadershipChanged):
                break
        self.effects.append(SaveElectionState(election))

    def announce(self) -> None:
        """Tells the state machine about a changed leader or epoch."""
        leading = isinstance(self.role, Leader)
        now = (self.epoch, self.leader_id, leading)
        if now != self._announced:
            self._announced = now
            self.effects.append(LeadershipChanged(*now))

    def raise_high_watermark(self, end: Offset) -> bool:
        """Notes all records below `end` as committed. Returns False if they were known to be."""
        assert end <= self.shape.end, f"high watermark {end} beyond the log's end {self.shape.end}"
        if self.known_high_watermark is not None and end <= self.known_high_watermark:
            return False
        self.known_high_watermark = end
        self.effects.append(HighWatermarkAdvanced(end))
        return True

    def open_dispute(self, other: ReplicaKey, dispute: Dispute) -> None:
        """Notes a dispute with the owner of the key `other`; a follower's own key stands for its leader."""
        self.disputes[other] = dispute

    def close_dispute(self, other: ReplicaKey) -> None:
        """Ends a dispute: the logs agree, this follower's (`other` is itself) with its leader's, or `other`'s with this
        leader's.
        """
        self.disputes.pop(other, None)

    # --- changes of role ------------------------------------------------------------------------------------------

    def become(self, role: RoleState, why: Why, election: ElectionState) -> None:
        """Changes the role: the only function to do so.

        Saves `election` first. A leader leaving office answers all parked requests.
        """
        left = self.role
        edge = (left.role, role.role, why)
        assert edge in TRANSITIONS, f"no such transition: {edge}; {self.me} epoch {self.epoch} -> {election}"
        self.role = role
        self._save(election)
        self._note_transition(left, why)
        self.fetch.restart(self.now_ms)
        if isinstance(left, Leader) or isinstance(role, Leader):
            self.disputes.clear()
        if isinstance(left, Leader):
            began_ms = left.last_round_began_ms(self.latest_voters, self.me)
            if began_ms is not None:
                self.contact.heard(min(began_ms, self.now_ms))
            for parked in left.parked.values():
                self.reply(parked.reply_to, self.fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER, parked.request))
            left.parked.clear()
            wish = left.changes.pending
            if wish is not None and wish.reply_to is not None:
                word = last_word(wish, self.epoch, self.leader_hint, self.known_high_watermark)
                self.reply(wish.reply_to, word)
            left.changes.end()
        # A new leader first appends the record that opens its epoch; then `leader.lead` announces the leader.
        if role.role is not Role.LEADER:
            self.announce()

    def _note_transition(self, left: RoleState, why: Why) -> None:
        had_leader = isinstance(left, Leader) or (isinstance(left, Follower) and left.heard_ms is not None)
        leader_id = self.leader_id if isinstance(self.role, Leader | Follower) else None
        end, now_ms = self.shape.end, self.now_ms
        self.transitions.append(
            Transition(now_ms, left.role, self.role.role, why, self.epoch, leader_id, end, had_leader)
        )

    def update_role(self, role: RoleState) -> None:
        """Replaces the role's values, within the same role. `become` changes to another role."""
        assert role.role is self.role.role, f"{self.role.role} becomes {role.role} without a reason"
        self.role = role

    def become_unattached(self, epoch: Epoch, why: Why) -> None:
        """Enters `epoch` without a leader, and without a vote if the epoch is a new one."""
        election = self.election if epoch == self.epoch else ElectionState(epoch, None, None)
        self.become(Unattached(self.election_deadline_ms()), why, election)
        # Usually another node is about to win and to announce itself. The node asks for a leader only after a delay.
        self.fetch.wait_until(self.now_ms + self.config.retry_backoff_ms)

    def become_follower(self, epoch: Epoch, leader_id: NodeId, why: Why = Why.LEARNED_LEADER) -> None:
        assert leader_id != self.me.node_id, "a node does not follow itself"
        self.fetch.pieces.start_small()  # another leader is reached over another link
        voted_for = self.election.voted_for if epoch == self.epoch else None
        self.become(
            Follower(leader_id, self.now_ms + self.config.fetch_timeout_ms),
            why,
            ElectionState(epoch, voted_for, leader_id),
        )

    def vote_for(self, candidate: ReplicaKey) -> None:
        """Saves a vote before the reply, and restarts the election timer to give the candidate time."""
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
        """Adopts `leader_id` as the leader of the current epoch, as another node reports.

        Raises:
            SafetyViolated: another node was known to lead the epoch.
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
        """Adopts the epoch and the leader of a reply. Returns False if the reply is of an older epoch and must be
        ignored.

        An epoch out of reach (`epochs`) raises the epoch as far as it may, and the reply is ignored otherwise.

        A reply naming this very node as the leader is not believed, because the node itself would know. (A node with a
        new disk may hear of its former self.)
        """
        if leader_id == self.me.node_id:
            leader_id = None
        if epoch < self.epoch or epoch >= EPOCH_MAX:
            return False
        if epoch - self.epoch > (farthest := reach_of_reply(self.epoch)):
            if farthest:
                self.become_unattached(self.epoch + farthest, Why.HIGHER_EPOCH)
            return False
        if epoch == self.epoch:
            if leader_id is not None:
                self.learn_leader(leader_id)
        elif leader_id is not None:
            self.become_follower(epoch, leader_id)
        else:
            self.become_unattached(epoch, Why.HIGHER_EPOCH)
        return True

    # --- refusals ---------------------------------------------------------------------------------------------------

    def fetch_error(self, error: ErrorCode, request: FetchRequest) -> FetchResponse:
        """A refusal of a fetch. A resigned leader names its ranked successors, so that not all voters campaign at once."""
        ranked = self.role.preferred_successors if isinstance(self.role, Resigned) else ()
        successors = tuple(key.node_id for key in ranked)
        return FetchResponse(error, self.epoch, self.leader_hint, request.number, successors=successors)
