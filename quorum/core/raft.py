"""The Raft core: inputs go in, effects come out, and nothing else happens (KIP-595, 630, 853, 996).

`RaftCore` only sorts: what an input means is said in the file of the role that it concerns.

    votes      being asked for a vote; being told that an epoch begins or ends        (any role)
    election   pre-votes and votes                                                    (prospective, candidate)
    follower   fetching, truncating, installing; suspecting the leader                (follower, unattached)
    leader     the term: its first record, the high watermark, check-quorum, its end  (leader, resigned)
    download   fetching a snapshot, from where it broke off                           (follower)
    fetch_service, long_poll   how a leader answers a fetch
    disk_trust, damage   what a node may do whose disk has broken a promise             (any role)
    disputes           whose history is it, if two differ                             (any role)
    membership, transfer   changing who votes, and who leads, at somebody's wish      (leader)
    auto_join          what a node asks its leader for by itself                      (follower)
    log_reports        the log has grown, was cut, is flushed, begins at a snapshot
    timers             what is due when, in each role
    quorum_state       the desk at which they all work, and the one door between roles

How to drive it. Call `step`, carry the effects out in their order, each complete before the next. An effect that changes the
log (`AppendBatches`, `AppendControl`, `TruncateLog`, `InstallSnapshot`) is reported back at once by a nested `step`, whose own
effects are carried out before the rest of the outer list. The lists are made for that: a fetched append, a truncation and
an install stand last in theirs; the records that open a term stand before the news of it, so that nothing is proposed
below them; and what follows a log effect in a list does not depend on what the log has become.
(An install may take long. It may be reported by a later step; until then the node neither fetches nor runs for leader.)

Whatever is appended must be flushed, and `Flushed` fed, without being asked, also the rest of a log that was cut back and
on the log found at start: a follower fetches only when its log is flushed to the end.

Nothing is kept of an input but what the state says; the same inputs with the same dice give the same effects.
"""

import random
from collections.abc import Collection
from typing import assert_never

from metadata_log.format.ids import Epoch, NodeId, Offset, ReplicaKey
from metadata_log.format.log_shape import LogShape
from metadata_log.format.records import Endpoint
from quorum.core import (
    auto_join,
    current_leader,
    damage,
    describe,
    disputes,
    download,
    election,
    fetch_service,
    follower,
    leader,
    log_reports,
    membership,
    timers,
    votes,
)
from quorum.core.current_leader import Followed
from quorum.core.long_poll import high_watermark_told
from quorum.core.protocol import epochs, pace
from quorum.core.protocol.config import RaftConfig
from quorum.core.protocol.disk_trust import FULL, DiskTrust
from quorum.core.protocol.effects import Effect, ElectionState, HighWatermarkAdvanced, StopNode
from quorum.core.protocol.inputs import (
    Appended,
    BatchesRefused,
    ConfirmReads,
    DamageFound,
    DamageRepaired,
    Flushed,
    Input,
    LogMended,
    LogStartMoved,
    PeerRefused,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    ShutDown,
    SnapshotInstalled,
    SnapshotInstallFailed,
    TimerFired,
    Truncated,
)
from quorum.core.protocol.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    ChainRequest,
    ChainResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumChangeResponse,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from quorum.core.protocol.problem import Problem, ProblemCode, found
from quorum.core.protocol.progress import ReplicaStatus
from quorum.core.protocol.voters import VoterHistory, VoterSet
from quorum.core.quorum_state import QuorumState, SafetyViolated
from quorum.core.roles import Download, Follower, Leader, Resigned, Role, Transition, Why


class RaftCore:
    """One node's Raft. `step` is the only way in; the properties are read-only views."""

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
        """`my_endpoints`: where this node is to be reached, as configured; none: it never speaks of that by itself."""
        self._state = QuorumState(
            me=me,
            config=config,
            election=election,
            shape=shape,
            voters=voters,
            rng=rng,
            now_ms=now_ms,
            disk_trust=disk_trust,
            part=part,
            my_endpoints=my_endpoints,
        )
        damage.restore_if_whole(self._state)
        self._stopped: str | None = None
        self.check_invariants()

    # --- driving it -----------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Effect]:
        """What a start-up owes the world; once, before the first `step`."""
        state = self._state
        state.now_ms = now_ms
        state.announce()
        if state.known_high_watermark is not None:
            state.effects.append(HighWatermarkAdvanced(state.known_high_watermark))
        if state.is_voter and state.may_campaign and len(state.latest_voters) == 1:
            # There is nobody to wait for.
            match state.role:
                case Resigned():
                    state.become_unattached(state.epoch + 1, Why.REST_IS_OVER)
                    election.become_prospective(state, Why.ELECTION_TIMEOUT)
                case Follower():
                    election.become_prospective(state, Why.LEADER_SILENT)
                case _:
                    election.become_prospective(state, Why.ELECTION_TIMEOUT)
        return self._finish()

    def step(self, input: Input, now_ms: int) -> list[Effect]:  # noqa: A002 -- the domain's word for it
        """What follows from `input` at `now_ms`, in the order in which it is to be done."""
        if self._stopped is not None:
            return []
        state = self._state
        assert not state.effects, "the effects of the last step were not taken"
        state.now_ms = max(state.now_ms, now_ms)
        try:
            self._dispatch(input)
            damage.restore_if_whole(state)
        except SafetyViolated as violation:
            self._stopped = str(violation)
            state.effects.append(StopNode(self._stopped))
        return self._finish()

    def _finish(self) -> list[Effect]:
        state = self._state
        if self._stopped is None:
            membership.go_on(state)
            follower.fetch_if_due(state)
            auto_join.ask_if_due(state)
        effects, state.effects = state.effects, []
        return effects

    def _dispatch(self, input: Input) -> None:  # noqa: A002
        match input:
            case TimerFired():
                timers.on_timer(self._state)
            case RequestReceived():
                self._on_request(input)
            case ResponseReceived():
                self._on_response(input)
            case RequestFailed():
                self._on_failure(input)
            case PeerRefused(node_id=node_id):
                follower.on_peer_refused(self._state, node_id)
            case Appended() | BatchesRefused() | Truncated() | Flushed() | LogMended() | LogStartMoved():
                log_reports.on_report(self._state, input)
            case SnapshotInstalled() | SnapshotInstallFailed():
                log_reports.on_report(self._state, input)
            case DamageFound() | DamageRepaired() as report:
                damage.on_damage(self._state, report)
            case ConfirmReads(token=token):
                if isinstance(self._state.role, Leader):
                    leader.on_confirm_reads(self._state, self._state.role, token)
            case Resign(epoch=epoch):
                if isinstance(self._state.role, Leader) and epoch == self._state.epoch:
                    leader.resign(self._state, self._state.role, Why.ASKED)
            case ShutDown():
                self._state.shutting_down = True
                if isinstance(self._state.role, Leader):
                    leader.resign(self._state, self._state.role, Why.ASKED)
            case _:
                assert_never(input)

    def _on_request(self, received: RequestReceived) -> None:
        state, reply_to = self._state, received.reply_to
        match received.request:
            case VoteRequest() as request:
                votes.on_vote_request(state, request, reply_to)
            case BeginQuorumEpochRequest() as request:
                votes.on_begin_quorum_epoch(state, request, reply_to)
            case EndQuorumEpochRequest() as request:
                votes.on_end_quorum_epoch(state, request, reply_to)
            case FetchRequest() as request:
                fetch_service.on_fetch(state, request, reply_to, received.chain_at_offset)
            case FetchSnapshotRequest() as request:
                fetch_service.on_fetch_snapshot(state, request, reply_to)
            case ChainRequest() as request:
                disputes.on_chain_request(state, request, reply_to, received.chain_at_offset)
            case (
                AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest() | TransferLeadershipRequest() as request
            ):
                membership.on_request(state, request, reply_to)
            case _ as request:
                assert_never(request)

    def _on_response(self, received: ResponseReceived) -> None:
        state, source = self._state, received.source
        match received.request, received.response:
            case VoteRequest() as request, VoteResponse() as response:
                election.on_vote_response(state, source, request, response)
            case BeginQuorumEpochRequest(), BeginQuorumEpochResponse() as response:
                leader.on_begin_response(state, response)
            case EndQuorumEpochRequest() as request, EndQuorumEpochResponse() as response:
                leader.on_end_response(state, source, request, response)
            case FetchRequest() as request, FetchResponse() as response:
                follower.on_fetch_response(state, source, request, response)
            case FetchSnapshotRequest() as request, FetchSnapshotResponse() as response:
                follower.on_snapshot_response(state, source, request, response)
            case ChainRequest() as request, ChainResponse() as response:
                disputes.on_chain_response(state, source, request, response)
            case (
                AddVoterRequest()
                | RemoveVoterRequest()
                | UpdateVoterRequest()
                | TransferLeadershipRequest() as request,
                QuorumChangeResponse() as response,
            ):
                auto_join.on_response(state, request, response)
            case _:
                raise AssertionError(f"an answer of the wrong kind: {received}")

    def _on_failure(self, failed: RequestFailed) -> None:
        state = self._state
        match failed.request:
            case VoteRequest() as request:
                election.on_vote_failed(state, request)
            case BeginQuorumEpochRequest():
                pass  # said again to whoever stays silent
            case EndQuorumEpochRequest() as request:
                leader.on_end_failed(state, failed.destination, request)
            case FetchRequest() | FetchSnapshotRequest() as request:
                follower.on_fetch_failed(state, failed.destination, request, failed.failure)
            case ChainRequest() as request:
                disputes.on_chain_failed(state, failed.destination, request)
            case (
                AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest() | TransferLeadershipRequest() as request
            ):
                auto_join.on_failed(state, request)
            case _ as request:
                assert_never(request)

    # --- what it carries for the state machines -------------------------------------------------------------------

    def carry_digest(self, offset: Offset, digest: bytes) -> None:
        """From now on fetches say that this node's image reaches to `offset` and has `digest`; empty: nothing to compare."""
        self._state.applied = (offset, digest)

    def carry_verdict(self, replica: ReplicaKey, *, image_differs: bool) -> None:
        """As leader: from now on answers to `replica` say whether its image differs from a majority's."""
        if isinstance(self._state.role, Leader) and replica in self._state.role.replicas:
            self._state.role.replicas[replica].image_differs = image_differs

    # --- time -----------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """When to feed `TimerFired`; None: not before something else happens. After `TimerFired` it lies in the future."""
        return None if self._stopped is not None else timers.next_deadline_ms(self._state)

    # --- views ----------------------------------------------------------------------------------------------------

    @property
    def me(self) -> ReplicaKey:
        return self._state.me

    @property
    def role(self) -> Role:
        return self._state.role.role

    @property
    def epoch(self) -> Epoch:
        return self._state.epoch

    @property
    def leader_id(self) -> NodeId | None:
        """The leader that it knows, for who has to find one: perhaps a remembered one (see `followed`)."""
        return self._state.leader_id

    def take_transitions(self) -> list[Transition]:
        """The changes of role since this was last asked, oldest first."""
        taken = list(self._state.transitions)
        self._state.transitions.clear()
        return taken

    def followed(self, now_ms: int) -> Followed:
        """Whom this node follows as of `now_ms`, for reports and hints: a leader that it hears, none that it remembers."""
        return current_leader.followed(self._state, now_ms)

    @property
    def voted_for(self) -> ReplicaKey | None:
        return self._state.election.voted_for

    @property
    def is_leading(self) -> bool:
        return isinstance(self._state.role, Leader)

    @property
    def high_watermark(self) -> Offset | None:
        """Below it all is committed, as far as this node knows; None in a leader that has not committed in its epoch."""
        state = self._state
        return high_watermark_told(state, state.role) if isinstance(state.role, Leader) else state.known_high_watermark

    @property
    def shape(self) -> LogShape:
        return self._state.shape

    @property
    def voters(self) -> VoterSet:
        return self._state.latest_voters

    @property
    def voter_history(self) -> VoterHistory:
        return self._state.voters

    @property
    def disk_trust(self) -> DiskTrust:
        """How far this node may be trusted in the quorum (see `disk_trust`)."""
        return self._state.disk_trust

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What an operator should know of this node's disk, of its snapshots, and of its dealings with other nodes."""
        state = self._state
        behind = (
            state.role.behind(state.latest_voters, state.me, state.now_ms) if isinstance(state.role, Leader) else []
        )
        return found(
            (ProblemCode.FLUSH_HANGS, leader.flush_problem(state)),
            (ProblemCode.HISTORY_DISPUTED, disputes.problem(state)),
            (ProblemCode.SNAPSHOT_UNLOADABLE, download.unloadable(state)),
            (ProblemCode.SNAPSHOT_NOT_KEPT, download.not_kept(state)),
            (ProblemCode.EPOCHS_RUN_OUT, epochs.problem(state.epoch)),
            (ProblemCode.VOTER_FALLS_BEHIND, pace.problem(behind)),
        )

    @property
    def is_loading_snapshot(self) -> bool:
        """Whether a snapshot is being fetched or installed: the one download that there can be is this node's leader's."""
        role = self._state.role
        return self._state.installing is not None or (isinstance(role, Follower) and role.download is not None)

    @property
    def fetch_key(self) -> ReplicaKey:
        """Under which key this node fetches: nobody's, while it may not acknowledge."""
        return self._state.fetch_key

    @property
    def epoch_start_offset(self) -> Offset | None:
        """When leading: where this epoch's first record stands."""
        return self._state.role.epoch_start_offset if isinstance(self._state.role, Leader) else None

    @property
    def last_quorum_round_began_ms(self) -> int | None:
        """When leading: at this time, or later, a majority still followed this epoch (see `roles.Leader`)."""
        state = self._state
        return state.role.last_round_began_ms(state.latest_voters, state.me) if isinstance(state.role, Leader) else None

    @property
    def leader_heard_ms(self) -> int | None:
        """When a leader last answered this node, or when leading a majority; None: not since it started."""
        return self.last_quorum_round_began_ms if self.is_leading else self._state.heard_ms

    def keeps_majority_without(self, down: Collection[NodeId]) -> bool | None:
        """Whether a majority of caught-up voters would be left if the nodes `down` were stopped; None: only a leader knows."""
        state = self._state
        return membership.keeps_majority_without(state, state.role, down) if isinstance(state.role, Leader) else None

    @property
    def stopped(self) -> str | None:
        """Why this node has stopped, if it has."""
        return self._stopped

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """For DescribeQuorum, on the leader only (empty elsewhere): itself first, then voters and observers by id."""
        return describe.replicas(self._state)

    def describe(self) -> str:
        """This node as one fixed-width line."""
        return describe.line(self._state, self._stopped)

    def check_invariants(self) -> None:
        """Raises AssertionError if the state contradicts itself; cheap enough to be called after every step."""
        describe.check_invariants(self._state)
