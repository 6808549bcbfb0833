"""The Raft core: inputs go in, effects come out, and nothing else happens (KIP-595, 630, 853, 996).

`RaftCore` and `dispatch` only sort the inputs. The file named here decides what follows from an input:

    votes                     vote requests; the begin and the end of another node's epoch  (any role)
    election                  pre-votes and votes                                           (prospective, candidate)
    follower                  fetching, truncating, installing, suspecting the leader       (follower, unattached)
    leader                    first record, high watermark, check-quorum, resignation       (leader, resigned)
    download                  fetching a snapshot, resumable                                (follower)
    fetch_service, long_poll  answers to fetches                                            (leader)
    disputes                  logs with different histories at the same place               (any role)
    membership                a room: changes of the voters and of the leader, on request   (leader)
    log_reports               the log grew, was cut, flushed, damaged, replaced by a snapshot       (any role)
    timers                    deadlines in each role
    quorum_state              the shared state, and the only way between roles

A driver calls `step` and carries out the effects in order, each complete before the next one. After an effect which
changes the log (`AppendBatches`, `AppendControl`, `TruncateLog`, `InstallSnapshot`) the driver reports the new log at
once by a nested `step`, and carries out the nested effects before the rest of the outer list. The core builds its lists
for nested steps: a fetched append, a truncation and an install are the last effect of a list; the records opening an
epoch precede the news of the leadership, so that no proposal can be appended below them; and no effect after a log
effect depends on the new log. (An install may take long, and a later step may report the end. Until then the node
neither fetches nor campaigns.)

The driver flushes all appended records, and reports `Flushed`, without a request from the core. The same holds for the
rest of a truncated log and for the log found at start: a follower fetches only with a completely flushed log.

Example, one write in {1,2,3}:

    1. The driver of leader 1 appends a batch at offset 7 and calls step(Appended(end 8)).
    2. The core returns ReplyWithBatches for the parked fetches of voters 2 and 3.
    3. Voter 2 appends, flushes, and fetches from offset 8. Driver 1 calls step(RequestReceived(fetch at 8)).
    4. The driver of 1 has reported Flushed(8), too: two of three voters hold offset 7. The core returns HighWatermarkAdvanced(8).

The core remembers nothing of an input except in its state. The same inputs with the same dice give the same effects.
"""

import random
from collections.abc import Collection
from typing import assert_never

from metadata_log.format.ids import Epoch, NodeId, Offset, ReplicaKey
from metadata_log.format.log_shape import LogShape
from metadata_log.format.records import Endpoint
from quorum.core import (
    current_leader,
    describe,
    dispatch,
    disputes,
    download,
    election,
    follower,
    leader,
    log_reports,
    timers,
)
from quorum.core.current_leader import Followed
from quorum.core.long_poll import high_watermark_told
from quorum.core.membership import auto_join, change_rules, membership
from quorum.core.protocol import epochs, pace
from quorum.core.protocol.config import RaftConfig
from quorum.core.protocol.disk_trust import FULL, DiskTrust
from quorum.core.protocol.download import Download
from quorum.core.protocol.effects import Effect, ElectionState, HighWatermarkAdvanced, StopNode
from quorum.core.protocol.inputs import (
    AnswerRefused,
    Appended,
    ConfirmReads,
    DamageFound,
    DamageRepaired,
    DiskFilled,
    DiskHasRoom,
    Flushed,
    Input,
    LogRepaired,
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
from quorum.core.protocol.newcomer import JudgeNewcomer, everyone_fits
from quorum.core.protocol.problem import Problem, ProblemCode, found
from quorum.core.protocol.progress import ReplicaStatus
from quorum.core.protocol.voters import VoterHistory, VoterSet
from quorum.core.quorum_state import QuorumState, SafetyViolated
from quorum.core.roles import Follower, Leader, Resigned, Role, Transition, Why


class RaftCore:
    """One node's Raft. `step` is the only way to change its state; the properties are read-only views."""

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
        """Builds the core.

        `my_endpoints` are the node's own endpoints; with none, the node never reports its address by itself. `judge_newcomer`
        is asked, on a leader, before a controller becomes a voter.
        """
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
            judge_newcomer=judge_newcomer,
        )
        log_reports.restore_if_whole(self._state)
        self._stopped: str | None = None
        self.check_invariants()

    # --- driving it -----------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Effect]:
        """Returns the first effects of the process. Called once, before the first `step`."""
        state = self._state
        state.advance_clock(now_ms)
        state.announce()
        if state.known_high_watermark is not None:
            state.effects.append(HighWatermarkAdvanced(state.known_high_watermark))
        if state.is_voter and state.may_campaign and len(state.latest_voters) == 1:
            # A single voter has no other node to wait for.
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
        """Returns the effects of `input` at `now_ms`, in the order for carrying them out."""
        if self._stopped is not None:
            return []
        state = self._state
        assert not state.effects, "the effects of the last step were not taken"
        state.advance_clock(now_ms)
        try:
            self._dispatch(input)
            log_reports.restore_if_whole(state)
        except SafetyViolated as violation:
            self._stopped = str(violation)
            state.effects.append(StopNode(self._stopped))
        return self._finish()

    def _finish(self) -> list[Effect]:
        state = self._state
        if self._stopped is None:
            if isinstance(state.role, Leader):
                membership.go_on(state, state.role)
            if not isinstance(state.role, Leader):  # perhaps it has just resigned
                follower.fetch_if_due(state)
                auto_join.ask_if_due(state)
        return state.take_effects()

    def _dispatch(self, input: Input) -> None:  # noqa: A002
        match input:
            case TimerFired():
                timers.on_timer(self._state)
            case RequestReceived():
                dispatch.on_request(self._state, input)
            case ResponseReceived():
                dispatch.on_response(self._state, input)
            case RequestFailed():
                dispatch.on_failure(self._state, input)
            case PeerRefused(node_id=node_id):
                follower.on_peer_refused(self._state, node_id)
            case Appended() | AnswerRefused() | Truncated() | Flushed() | LogRepaired() | LogStartMoved():
                log_reports.on_report(self._state, input)
            case SnapshotInstalled() | SnapshotInstallFailed():
                log_reports.on_report(self._state, input)
            case DamageFound() | DamageRepaired() | DiskFilled() | DiskHasRoom() as report:
                log_reports.on_disk_report(self._state, report)
            case ConfirmReads(token=token):
                if isinstance(self._state.role, Leader):
                    leader.on_confirm_reads(self._state, self._state.role, token)
            case Resign(epoch=epoch):
                if isinstance(self._state.role, Leader) and epoch == self._state.epoch:
                    leader.resign(self._state, self._state.role, Why.ASKED)
            case ShutDown():
                self._state.begin_shutdown()
                if isinstance(self._state.role, Leader):
                    leader.resign(self._state, self._state.role, Why.ASKED)
            case _:
                assert_never(input)

    # --- values carried for the state machines ----------------------------------------------------------------------

    def carry_digest(self, offset: Offset, digest: bytes) -> None:
        """Sets the end and the digest of this node's image for all further fetches. Empty digest: nothing to compare."""
        self._state.carry_digest(offset, digest)

    def carry_verdict(self, replica: ReplicaKey, *, image_differs: bool) -> None:
        """Sets, on a leader, whether answers to `replica` report a difference between the replica's image and a
        majority's.
        """
        if isinstance(self._state.role, Leader) and replica in self._state.role.replicas:
            self._state.role.replicas[replica].take_verdict(image_differs=image_differs)

    # --- time -----------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """When to feed `TimerFired`; None: no timer is set. After `TimerFired` the next deadline lies in the future."""
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
        """The leader known to this node, for finding one: perhaps only a remembered leader (see `followed`)."""
        return self._state.leader_id

    def take_transitions(self) -> list[Transition]:
        """Returns the changes of role since the last call, oldest first."""
        taken = list(self._state.transitions)
        self._state.transitions.clear()
        return taken

    def followed(self, now_ms: int) -> Followed:
        """The followed leader as of `now_ms`, for reports and hints: a leader heard recently, never a merely remembered
        one.
        """
        return current_leader.followed(self._state, now_ms)

    @property
    def voted_for(self) -> ReplicaKey | None:
        return self._state.election.voted_for

    @property
    def is_leading(self) -> bool:
        return isinstance(self._state.role, Leader)

    @property
    def high_watermark(self) -> Offset | None:
        """All records below are committed, as far as this node knows. None: a leader without a commit in its epoch."""
        state = self._state
        return high_watermark_told(state, state.role) if isinstance(state.role, Leader) else state.known_high_watermark

    @property
    def leaders_high_watermark(self) -> Offset | None:
        """The high watermark in a follower's last answer of its present leader; None: no answer with one, or no follower."""
        role = self._state.role
        return role.verified[0] if isinstance(role, Follower) else None

    @property
    def awaits_own_flush(self) -> bool:
        """True for a leader whose own flush may commit records: no other voter exists, or another voter has records on its
        disk that are not on the leader's disk yet.
        """
        state = self._state
        if not isinstance(state.role, Leader):
            return False
        flushed_end, replicas, voters = state.shape.flushed_end, state.role.replicas, state.latest_voters
        ends = (replicas[voter].end_offset or 0 for voter in voters.others(state.me))
        return len(voters) == 1 or any(end > flushed_end for end in ends)

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
        """The rights left to this node in the quorum after disk faults (see `disk_trust`)."""
        return self._state.disk.trust

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems of this node's disk, of its snapshots, and between this node and other nodes."""
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
        """True while the node fetches or installs a snapshot. A node downloads one snapshot at a time, from its leader."""
        role = self._state.role
        return self._state.install.installing is not None or (isinstance(role, Follower) and role.download is not None)

    @property
    def fetch_key(self) -> ReplicaKey:
        """The key under which this node fetches: a random one while the node may not acknowledge."""
        return self._state.fetch_key

    @property
    def epoch_start_offset(self) -> Offset | None:
        """The offset of the epoch's first record, on a leader."""
        return self._state.role.epoch_start_offset if isinstance(self._state.role, Leader) else None

    @property
    def last_quorum_round_began_ms(self) -> int | None:
        """The newest time at or after which a majority still followed this leader (see `roles.Leader`).

        None on other nodes.
        """
        state = self._state
        return state.role.last_round_began_ms(state.latest_voters, state.me) if isinstance(state.role, Leader) else None

    @property
    def leader_heard_ms(self) -> int | None:
        """When a leader last answered this node, or when this leader last had a majority. None: not since the start."""
        return self.last_quorum_round_began_ms if self.is_leading else self._state.contact.heard_ms

    def keeps_majority_without(self, down: Collection[NodeId]) -> bool | None:
        """True if a majority of caught-up voters remains when the nodes in `down` stop. None: only a leader knows."""
        state = self._state
        return change_rules.keeps_majority_without(state, state.role, down) if isinstance(state.role, Leader) else None

    @property
    def stopped(self) -> str | None:
        """The reason why this node has stopped; None: the node has not stopped."""
        return self._stopped

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """The rows of DescribeQuorum, on the leader only: the leader first, then voters and observers by id."""
        return describe.replicas(self._state)

    def describe(self) -> str:
        """This node as one line with fixed columns."""
        return describe.line(self._state, self._stopped)

    def check_invariants(self) -> None:
        """Raises AssertionError if the state contradicts itself. Cheap enough for a call after every step."""
        describe.check_invariants(self._state)
