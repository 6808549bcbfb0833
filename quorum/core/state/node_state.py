"""The state of one node: what it knows, part by part, what follows from that, and the effects of the current step.

`NodeState` begins a process with its role, and has everything but the ways from role to role: `quorum.core.quorum_state` alone
changes role, epoch and vote.
"""

import random
from collections import deque

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Offset, ReplicaKey
from metadata_log.format.log_shape import LogShape
from metadata_log.format.records import Endpoint
from quorum.core.protocol.config import RaftConfig
from quorum.core.protocol.disk_trust import FULL, DiskTrust
from quorum.core.protocol.download import Download
from quorum.core.protocol.effects import (
    Effect,
    ElectionState,
    HighWatermarkAdvanced,
    Reply,
    SaveElectionState,
    SendRequest,
)
from quorum.core.protocol.epochs import reach
from quorum.core.protocol.messages import (
    FetchRequest,
    FetchResponse,
    Request,
    Response,
)
from quorum.core.protocol.newcomer import JudgeNewcomer, everyone_fits
from quorum.core.protocol.testimony import Dispute
from quorum.core.protocol.voters import VoterHistory
from quorum.core.roles import (
    Follower,
    Leader,
    Prospective,
    Resigned,
    RoleState,
    Transition,
    Unattached,
)
from quorum.core.state.contact import LeaderContact
from quorum.core.state.disk import DiskState
from quorum.core.state.fetch import FetchState
from quorum.core.state.install import InstallState
from quorum.core.state.join import JoinState

TRANSITIONS_KEPT = 1_000
"""Maximum number of transitions kept. A step makes only a few, and the node takes them after each turn."""


class NodeState:
    """The state of one Raft node between two inputs, without the changes of role."""

    __slots__ = (
        "announced",
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
        "judge_newcomer",
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
        judge_newcomer: JudgeNewcomer = everyone_fits,
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
        self.judge_newcomer = judge_newcomer
        self.shutting_down = False
        self.stranger = me if disk_trust.may_acknowledge else ReplicaKey(me.node_id, rng.randbytes(16))
        """A random key under which a node fetches while it may not acknowledge. See `fetch_key`."""
        self.transitions: deque[Transition] = deque(maxlen=TRANSITIONS_KEPT)
        """Transitions not yet taken by `RaftCore.take_transitions`. (The simulator takes none.)"""
        self.announced: tuple[Epoch, NodeId | None, bool] | None = None
        """The last news to the state machine: the epoch, the leader, and whether this node leads."""
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

    # --- refusals ---------------------------------------------------------------------------------------------------

    def fetch_error(self, error: ErrorCode, request: FetchRequest) -> FetchResponse:
        """A refusal of a fetch. A resigned leader names its ranked successors, so that not all voters campaign at once."""
        ranked = self.role.preferred_successors if isinstance(self.role, Resigned) else ()
        successors = tuple(key.node_id for key in ranked)
        return FetchResponse(error, self.epoch, self.leader_hint, request.number, successors=successors)
