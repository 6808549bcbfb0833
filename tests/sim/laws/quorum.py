"""The laws of the quorum: elections, epochs, logs, commits, and disk before speech (R1 to R16).

The leaders of all epochs and all votes are remembered here, across crashes, where no fault can reach them.

Example: controller 1 votes for controller 2 in epoch 5, crashes before the fsync, and votes for controller 3 in epoch 5
after its restart. The controller itself has forgotten the first vote. The law R2 VoteOnce has not.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from metadata_log.format.log_shape import LogShape
from metadata_log.format.records import Voters
from metadata_log.store.log import Log
from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.messages import (
    FetchRequest,
    PeerRequest,
    PeerResponse,
    VoteRequest,
    VoteResponse,
)
from quorum.core.protocol.voters import VoterSet
from quorum.core.roles import Follower, Leader, Role
from tests.sim.coverage import Coverage
from tests.sim.history import History, Step
from tests.sim.laws.broken import LawBroken, hold
from tests.sim.laws.damage import DamageLaws
from tests.sim.laws.following import FollowingLaws
from tests.sim.options import Options
from tests.sim.world.held import Held, has

if TYPE_CHECKING:
    from tests.sim.nodes.controllers import Process, SimController


def _stands_anew(died: LogShape, shape: LogShape) -> bool:
    """True if `shape` begins with a snapshot of another history than the end of `died`.

    The crash happened during the installation. The former end of the log was never committed.
    """
    start = shape.start
    return died.start.offset < start.offset <= died.flushed_end and died.epoch_below(start.offset) != start.epoch


class QuorumLaws:
    """Checks a controller after each of its events, and each message before it leaves."""

    def __init__(
        self, history: History, options: Options, coverage: Coverage, everyone: "Sequence[SimController]"
    ) -> None:
        self._history = history
        self._options = options
        self._coverage = coverage
        self._everyone = everyone
        self._leaders: dict[Epoch, Process] = {}
        self._votes: dict[tuple[ReplicaKey, Epoch], ReplicaKey] = {}
        self._epochs: dict[NodeId, Epoch] = {}
        self._chains: dict[OffsetAndEpoch, bytes] = {}
        self._leader_ends: dict[tuple[Process, Epoch], Offset] = {}
        self._watermarks: dict[Process, Offset] = {}
        self._roles: dict[Process, Role] = {}
        self._shapes: dict[Process, LogShape] = {}
        self._before_pre_vote: ElectionState | None = None
        self._committed_voters = history.voters
        self._gone: dict[ReplicaKey, Held | None] = {}
        """Replicas gone for good, and the log on the disk of each."""
        self._damage = DamageLaws(history, coverage)
        self.following = FollowingLaws(options)

    def forget_question(self) -> None:
        """Several events are processed at once: the cause of a change is unknown."""
        self._before_pre_vote = None

    # --- after an event --------------------------------------------------------------------------------------------

    def observe(self, controller: "SimController", now_ms: float) -> None:
        process = controller.process
        self._check_epoch_and_vote(controller)
        self._check_leader(controller, process, now_ms)
        self._check_log(controller, process)
        self._damage.observe(controller)
        self._roles[process] = controller.core.role

    def _check_epoch_and_vote(self, controller: "SimController") -> None:
        core, me = controller.core, controller.node_id
        known = self._epochs.get(me, 0)
        if core.epoch < known:
            raise LawBroken("R3 MonotonicEpoch", f"c{me} went from epoch {known} back to {core.epoch}")
        self._epochs[me] = core.epoch
        if core.voted_for is not None:
            self._note_vote(controller.key, core.epoch, core.voted_for)

    def _note_vote(self, me: ReplicaKey, epoch: Epoch, candidate: ReplicaKey) -> None:
        vote = self._votes.setdefault((me, epoch), candidate)
        if vote != candidate:
            raise LawBroken("R2 VoteOnce", f"c{me.node_id} voted in epoch {epoch} for {vote} and for {candidate}")

    def _check_leader(self, controller: "SimController", process: "Process", now_ms: float) -> None:
        core = controller.core
        before = self._roles.get(process)
        if core.role is not before:
            self._coverage[f"edge: {before.value if before else 'start'} -> {core.role.value}"] += 1
        if not core.is_leading:
            return
        leader = self._leaders.setdefault(core.epoch, process)
        if leader != process:
            raise LawBroken("R1 ElectionSafety", f"epoch {core.epoch} is led by {leader} and by {process}")
        if before is not Role.LEADER:
            self._coverage["election"] += 1
            self.following.elected(controller)
            self._check_complete(controller)
            hold(
                self._may_lead(controller, process),
                "R15 Identity",
                f"epoch {core.epoch} is led by {controller.key}; the voters are {self._voters_of(controller)}",
            )
        self.following.check_still_followed(controller, now_ms)

    def _check_complete(self, controller: "SimController") -> None:
        """R7: a new leader holds all committed records.

        A candidate which was cut off may learn late of its election, after others have committed in a later epoch. Such
        a leader leads an earlier epoch, can commit nothing, and is exempt.
        """
        end, epoch, shape = self._history.end, self._history.epoch, controller.log.shape
        if end == 0 or shape.start.offset > end or controller.core.epoch < epoch:
            return
        hold(
            shape.epoch_below(end) == epoch and controller.chain_at(end) in (self._history.chain_at(end), None),
            "R7 LeaderCompleteness",
            f"c{controller.node_id} leads epoch {controller.core.epoch} without what is committed below {end}",
        )

    # --- voters ----------------------------------------------------------------------------------------------------

    def _may_lead(self, controller: "SimController", process: "Process") -> bool:
        """True if the newest set in the controller's log names the controller.

        If the newest set removes the controller, and the controller does not know of the set's commit, the controller
        may have to lead once more to commit the set. It cannot know of a commit by a leader which is gone.
        """
        if controller.key in self._voters_of(controller).keys:
            return True
        log = controller.log
        sets = [(at, VoterSet(record.voters)) for at, record in log.control_records() if isinstance(record, Voters)]
        if not sets or sets[-1][0] < self._watermarks.get(process, 0):
            return False
        before = sets[-2][1] if len(sets) > 1 else self._history.voters_below(log.shape.start.offset)
        return controller.key in before.keys

    def _voters_of(self, controller: "SimController") -> VoterSet:
        """The newest set in the controller's log, found without asking the node. A set is in effect once appended."""
        log = controller.log
        sets = [record for _, record in log.control_records() if isinstance(record, Voters)]
        return VoterSet(sets[-1].voters) if sets else self._history.voters_below(log.shape.start.offset)

    def _voters_in_turn(self, controller: "SimController") -> list[VoterSet]:
        """The sets in effect at some moment of this turn: a leader may commit by one set and append the next in the
        same turn.
        """
        log, end_before = controller.log, controller.end_before
        sets = [(at, VoterSet(record.voters)) for at, record in log.control_records() if isinstance(record, Voters)]
        earlier = [voters for at, voters in sets if at < end_before]
        first = earlier[-1] if earlier else self._history.voters_below(log.shape.start.offset)
        return [first, *(voters for at, voters in sets if at >= end_before)]

    def voters_anywhere(self) -> set[ReplicaKey]:
        """The voters by the logs of all running controllers."""
        return {key for each in self._everyone if each.is_up for key in self._voters_of(each).keys}

    def committed(self, step: Step) -> None:
        """R15: a change moves one voter, so that majorities of neighboring sets share a voter."""
        for record in step.records:
            if isinstance(record, Voters):
                before, after = set(self._committed_voters.keys), set(VoterSet(record.voters).keys)
                self._committed_voters = VoterSet(record.voters)
                self._coverage["voter set changed"] += before != after
                law = "R15 OneAtATime"
                hold(len(before ^ after) <= 1, law, f"from {before} to {after} at {step.batch.base_offset}")

    def _check_one_pending(self, controller: "SimController") -> None:
        """No leader appends a set before the last set is committed.

        A later leader may hold two sets: the commit of the first set, and with it the old leader, may have been lost in
        the very turn which appended the second set, before any message left.
        """
        watermark, shape = self._history.end, controller.log.shape
        pending = [
            at for at, record in controller.log.control_records() if isinstance(record, Voters) and at >= watermark
        ]
        own = bool(pending) and shape.epoch_below(pending[-1] + 1) == controller.core.epoch
        hold(
            len(pending) <= 1 or not own,
            "R15 OnePending",
            f"c{controller.node_id} holds uncommitted voter sets at {pending}",
        )

    def lost_end(self, controller: "SimController") -> None:
        """Notes the loss of a controller's durable end. The controller is down, or about to be."""
        self._damage.lost_end(controller, self._shapes.get(controller.process))

    def gone_for_good(self, controller: "SimController") -> None:
        """Notes a replica gone for good. A later replica under the same id is another one, without promises.

        The lost replica's records still count: its acknowledgements may be in flight, and are true. The others can do
        without the replica, because no two replicas are lost at a time (`Membership.lose`).
        """
        self._epochs.pop(controller.node_id, None)
        self._gone[controller.key] = controller.died

    # --- logs ------------------------------------------------------------------------------------------------------

    def _check_log(self, controller: "SimController", process: "Process") -> None:
        me, shape = controller.node_id, controller.log.shape
        before = self._shapes.get(process)
        if before is shape:
            return
        self._shapes[process] = shape
        if shape.flushed_end == shape.end and not controller.log_is_durable():
            law = "R12 FlushedIsDurable"
            raise LawBroken(law, f"c{me} counts {shape.flushed_end} as flushed; the disk could still lose it")
        if shape.end > shape.start.offset:
            chain = self._chains.setdefault(shape.end_and_epoch, shape.chain)
            if chain != shape.chain:
                raise LawBroken("R6 LogMatching", f"two histories end at {shape.end_and_epoch}; one is c{me}'s")
        if before is not None and shape.end < before.end:
            self._coverage["truncation"] += 1
            watermark = self._watermarks.get(process, 0)
            hold(
                shape.end >= watermark,
                "R10 NoTruncationBelowHW",
                f"c{me} cut its log to {shape.end}, below {watermark}",
            )
            covered = shape.snapshot.offset if shape.snapshot else 0
            hold(
                shape.end >= covered,
                "R10 NoTruncationBelowHW",
                f"c{me} cut its log below its snapshot {shape.snapshot}",
            )
        if before is not None and before.start.offset < shape.start.offset <= before.end:
            self._coverage["log prefix dropped"] += 1
        if controller.core.is_leading:
            self._check_one_pending(controller)
            key = process, controller.core.epoch
            end = self._leader_ends.get(key, 0)
            hold(
                shape.end >= end, "R5 LeaderAppendOnly", f"c{me} cut its log to {shape.end} while it led epoch {key[1]}"
            )
            self._leader_ends[key] = shape.end
        if shape.epochs and shape.flushed_end > shape.epochs[-1].start_offset:
            durable = controller.durable_election().epoch
            hold(
                durable >= shape.last_epoch,
                "R4 EpochBeforeLog",
                f"c{me} holds epoch {shape.last_epoch} and remembers only {durable}",
            )

    def restarted(self, controller: "SimController") -> None:
        """After a crash, the log holds at least the records durable before."""
        self._damage.restarted(controller)
        if controller.died is None:
            return
        died, shape = controller.died.shape, controller.log.shape
        found = shape.start.offset > died.flushed_end or controller.chain_at(died.flushed_end) == died.flushed_chain
        lost = died.flushed_end > 0 and not found and not _stands_anew(died, shape)
        hold(not lost, "D1 FlushedSurvives", f"c{controller.node_id} had {died.flushed_end} on disk, found {shape.end}")
        if shape.end < died.end:
            self._coverage["lost unflushed records"] += 1

    # --- commits ---------------------------------------------------------------------------------------------------

    def check_watermark(self, controller: "SimController") -> list[Step]:
        """Checks a controller's high watermark. Returns the newly committed batches."""
        core, process = controller.core, controller.process
        watermark = controller.believed_high_watermark
        if watermark is None:
            return []
        before = self._watermarks.get(process, 0)
        if watermark == before:
            return []
        who = f"c{controller.node_id}"
        hold(watermark >= before or core.is_leading, "R9 MonotonicHW", f"{who} went from {before} back to {watermark}")
        self._watermarks[process] = max(before, watermark)
        if watermark <= self._history.end:
            self._check_verified(controller, watermark)
            return []
        # A removed leader resigns in the very step of the commit. Also, in the turn of its commit, a leader may hear of
        # a later epoch.
        epoch = core.epoch if core.is_leading else controller.log.shape.epoch_below(watermark) or 0
        if not core.is_leading and self._leaders.get(epoch) != process:
            raise LawBroken("R9 FollowerHW", f"{who} knows {watermark}; committed is {self._history.end}")
        self._check_commit(controller, watermark, epoch)
        return list(self._history.extend(self._who_hold(controller, watermark), watermark))

    def _who_hold(self, controller: "SimController", watermark: Offset) -> list[Log]:
        """The logs from which the newly committed records can be read: the controller's own, and all equal logs."""
        epoch = controller.log.shape.epoch_below(watermark)
        logs = [each.log for each in self._everyone if each.is_up and each is not controller]
        same = [log for log in logs if not log.damage and log.shape.epoch_below(watermark) == epoch]
        return [controller.log, *(log for log in same if log.shape.start.offset <= self._history.end)]

    def _check_verified(self, controller: "SimController", watermark: Offset) -> None:
        """R9: the records below a node's high watermark are the committed records, not other records of the same
        length.
        """
        shape = controller.log.shape
        if watermark <= shape.start.offset:
            return
        held = Held(shape._replace(flushed_end=shape.end), controller.log.damage)
        same = held.has(watermark, self._history.epoch_below(watermark))
        if not same or controller.chain_at(watermark) not in (self._history.chain_at(watermark), None):
            law = "R9 VerifiedHW"
            raise LawBroken(law, f"c{controller.node_id} calls {watermark} committed, and holds another history below")

    def _check_commit(self, controller: "SimController", watermark: Offset, epoch: Epoch) -> None:
        last = controller.log.shape.epoch_below(watermark)
        who = f"c{controller.node_id}"
        hold(last == epoch, "R8 CommitRule", f"{who} committed {watermark}, a record of epoch {last}, in epoch {epoch}")
        sets = self._voters_in_turn(controller)
        holders = {key for key, held in self._gone.items() if has(held, watermark, epoch)}
        holders |= {other.key for other in self._everyone if self._damage.is_holder(other, watermark, epoch)}
        is_held = any(len(holders.intersection(voters.keys)) >= voters.majority for voters in sets)
        said = ", ".join(str(key) for key in sorted(holders)) or "nobody"
        hold(
            is_held, "R11 MajorityReachedHW", f"{who} committed {watermark}, which of {sets} only {said} holds durably"
        )

    # --- disk before speech ----------------------------------------------------------------------------------------

    def about_to_take(self, controller: "SimController", request: PeerRequest, now_ms: float) -> None:
        """Called before a controller processes another controller's request."""
        core = controller.core
        self._before_pre_vote = core._state.election if isinstance(request, VoteRequest) and request.pre_vote else None
        self.following.taken(controller, request, now_ms)

    def about_to_send(self, controller: "SimController", request: PeerRequest, now_ms: float) -> None:
        """Called before a request leaves: all claims of the request are durable."""
        self.following.sent(request, now_ms)
        self._damage.check_standing(controller, request)
        durable, who = controller.durable_election(), f"c{controller.node_id}"
        epoch = getattr(request, "epoch", 0)  # some requests name no epoch
        if epoch > durable.epoch:
            raise LawBroken("R3 EpochBeforeSpeech", f"{who} speaks of epoch {epoch}; {durable}")
        match request:
            case VoteRequest(epoch=epoch, candidate=candidate, pre_vote=False):
                own = durable.epoch == epoch and durable.voted_for == candidate
                hold(own, "R2 VoteBeforeSpeech", f"{who} asks for votes in epoch {epoch}; on disk is {durable}")
                self._note_vote(controller.key, epoch, candidate)
            case FetchRequest(fetch_offset=offset):
                self._check_acknowledged(controller, request)
                hold(
                    offset <= controller.log.shape.flushed_end,
                    "R12 DurableBeforeAck",
                    f"{who} acknowledges {offset}; flushed is {controller.log.shape.flushed_end}",
                )
            case _:
                pass

    def _check_acknowledged(self, controller: "SimController", request: FetchRequest) -> None:
        log, offset = controller.log, request.fetch_offset
        ours = log.chain_at(offset)
        hold(
            ours == request.chain,
            "R12 DurableBeforeAck",
            f"c{controller.node_id} acknowledges another history at {offset}",
        )
        if 0 < offset == log.shape.start.offset:
            durable = controller.snapshot_is_durable(log.shape.start)
            hold(
                durable,
                "R12 DurableBeforeAck",
                f"c{controller.node_id} stands on snapshot {log.shape.start}, not durable",
            )

    def about_to_reply(
        self, controller: "SimController", request: PeerRequest, response: PeerResponse, now_ms: float
    ) -> None:
        """Called before a reply leaves: all claims of the reply are durable."""
        durable, who = controller.durable_election(), f"c{controller.node_id}"
        if response.epoch > durable.epoch:
            raise LawBroken("R3 EpochBeforeSpeech", f"{who} replies in {response.epoch}; {durable}")
        if isinstance(request, VoteRequest) and isinstance(response, VoteResponse):
            before, self._before_pre_vote = self._before_pre_vote, None
            if request.pre_vote and before is not None and before != controller.core._state.election:
                raise LawBroken(
                    "R2 PreVoteChangesNothing", f"{who} was asked for a pre-vote in {before}; now {durable}"
                )
            if not response.vote_granted:
                return
            self._damage.check_standing(controller, response)
            if request.pre_vote:
                self._check_pre_vote(controller, request)
                return
            own = durable.epoch == request.epoch and durable.voted_for == request.candidate
            hold(own, "R2 VoteBeforeSpeech", f"{who} grants epoch {request.epoch}; on disk is {durable}")
            self._note_vote(controller.key, request.epoch, request.candidate)
            self.following.voted(controller.key, request.epoch, request.candidate, now_ms)

    @staticmethod
    def _check_pre_vote(controller: "SimController", request: VoteRequest) -> None:
        """KIP-996: no voter helps to depose a leader which answers the voter."""
        role = controller.core._state.role
        happy = isinstance(role, Follower) and role.trusts_leader and not role.suspicious
        hold(
            not happy and not isinstance(role, Leader),
            "L4 PreVoteUnderLeader",
            f"c{controller.node_id}, whose leader answers it, grants {request.candidate} a pre-vote",
        )
