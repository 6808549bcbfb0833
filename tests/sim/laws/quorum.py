"""The laws of the quorum itself: elections, epochs, logs, commits, and disk before speech (R1 to R16).

What is remembered across crashes (who led an epoch, who was voted for) is remembered here, where no fault can reach it.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from metadata_log.ids import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from metadata_log.log_shape import LogShape
from quorum.core.messages import (
    FetchRequest,
    FetchSnapshotRequest,
    PeerRequest,
    PeerResponse,
    ReadLogRequest,
    VoteRequest,
    VoteResponse,
)
from quorum.core.roles import Role
from tests.sim.coverage import Coverage
from tests.sim.history import History, Step
from tests.sim.laws.broken import LawBroken, hold
from tests.sim.options import Options

if TYPE_CHECKING:
    from tests.sim.controllers import SimController

RESIGN_SLACK_MS = 25.0


class _Process(NamedTuple):
    """One life of one controller."""

    node_id: NodeId
    boot: int


class QuorumLaws:
    """Looks at a controller after each of its events, and at each message before it leaves."""

    def __init__(
        self, history: History, options: Options, coverage: Coverage, everyone: "Sequence[SimController]"
    ) -> None:
        self._history = history
        self._options = options
        self._coverage = coverage
        self._everyone = everyone
        self._leaders: dict[Epoch, _Process] = {}
        self._votes: dict[tuple[NodeId, Epoch], ReplicaKey] = {}
        self._epochs: dict[NodeId, Epoch] = {}
        self._chains: dict[OffsetAndEpoch, bytes] = {}
        self._leader_ends: dict[tuple[_Process, Epoch], Offset] = {}
        self._watermarks: dict[_Process, Offset] = {}
        self._roles: dict[_Process, Role] = {}
        self._shapes: dict[_Process, LogShape] = {}
        self._followed: dict[tuple[_Process, Epoch], dict[NodeId, float]] = {}
        """When each voter's last fetch was taken by the leader of that epoch."""

    # --- after an event --------------------------------------------------------------------------------------------

    def observe(self, controller: "SimController", now_ms: float) -> None:
        node = controller.node
        assert node is not None
        node.check_invariants()
        process = _process(controller)
        self._check_epoch_and_vote(controller)
        self._check_leader(controller, process, now_ms)
        self._check_log(controller, process)
        self._roles[process] = controller.core.role

    def _check_epoch_and_vote(self, controller: "SimController") -> None:
        core, me = controller.core, controller.node_id
        known = self._epochs.get(me, 0)
        if core.epoch < known:
            raise LawBroken("R3 MonotonicEpoch", f"c{me} went from epoch {known} back to {core.epoch}")
        self._epochs[me] = core.epoch
        if core.voted_for is not None:
            self._note_vote(me, core.epoch, core.voted_for)

    def _note_vote(self, me: NodeId, epoch: Epoch, candidate: ReplicaKey) -> None:
        vote = self._votes.setdefault((me, epoch), candidate)
        if vote != candidate:
            raise LawBroken("R2 VoteOnce", f"c{me} voted in epoch {epoch} for {vote} and for {candidate}")

    def _check_leader(self, controller: "SimController", process: _Process, now_ms: float) -> None:
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
            self._followed[process, core.epoch] = dict.fromkeys(self._others(controller), now_ms)
            self._check_complete(controller)
        self.check_still_followed(controller, now_ms)

    def _check_complete(self, controller: "SimController") -> None:
        end, shape = self._history.end, controller.log.shape
        if end == 0 or shape.start.offset > end:
            return
        hold(
            controller.log.chain_at(end) == self._history.chain_at(end),
            "R7 LeaderCompleteness",
            f"c{controller.node_id} leads epoch {controller.core.epoch} without what is committed below {end}",
        )

    def check_still_followed(self, controller: "SimController", now_ms: float) -> None:
        """L5: a leader that no majority has fetched from for the check-quorum time has stepped down."""
        core = controller.core
        followed = self._followed.get((_process(controller), core.epoch))
        needed = self._options.controllers // 2
        if controller.paused or followed is None or needed == 0:
            return
        newest_ms = sorted(followed.values(), reverse=True)[needed - 1]
        limit_ms = controller.config.raft.check_quorum_ms * (1 + self._options.clock_drift) + RESIGN_SLACK_MS
        if now_ms - newest_ms > limit_ms:
            raise LawBroken(
                "L5 ResignsWithoutQuorum",
                f"c{controller.node_id} leads epoch {core.epoch} although no majority was heard "
                f"for {now_ms - newest_ms:.0f} ms",
            )

    def _others(self, controller: "SimController") -> Iterable[NodeId]:
        return (other.node_id for other in self._everyone if other is not controller)

    # --- logs ------------------------------------------------------------------------------------------------------

    def _check_log(self, controller: "SimController", process: _Process) -> None:
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
        """After a crash the log holds what was durable before it, and no less."""
        died, shape = controller.died, controller.log.shape
        if died is None:
            return
        found = shape.start.offset > died.flushed_end or controller.log.chain_at(died.flushed_end) == died.flushed_chain
        lost = died.flushed_end > 0 and not found
        hold(not lost, "D1 FlushedSurvives", f"c{controller.node_id} had {died.flushed_end} on disk, found {shape.end}")
        if shape.end < died.end:
            self._coverage["lost unflushed records"] += 1

    # --- commits ---------------------------------------------------------------------------------------------------

    def check_watermark(self, controller: "SimController") -> list[Step]:
        """What the controller calls committed is; gives what nobody had called committed before."""
        core, process = controller.core, _process(controller)
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
            return []
        if not core.is_leading:
            raise LawBroken("R9 FollowerHW", f"{who} knows {watermark}; committed is {self._history.end}")
        self._check_commit(controller, watermark)
        return list(self._history.extend(controller.log, watermark))

    def _check_commit(self, controller: "SimController", watermark: Offset) -> None:
        shape, epoch = controller.log.shape, controller.core.epoch
        last = shape.epoch_below(watermark)
        who = f"c{controller.node_id}"
        hold(last == epoch, "R8 CommitRule", f"{who} committed {watermark}, a record of epoch {last}, in epoch {epoch}")
        chain = controller.log.chain_at(watermark)
        holders = [other.name for other in self._everyone if other.holds_durably(watermark, chain)]
        hold(
            len(holders) > len(self._everyone) // 2,
            "R11 MajorityReachedHW",
            f"{who} committed {watermark}, which only {', '.join(holders) or 'nobody'} holds durably",
        )

    # --- disk before speech ----------------------------------------------------------------------------------------

    def about_to_take(self, controller: "SimController", request: PeerRequest, now_ms: float) -> None:
        """A request of another controller is about to be processed."""
        core = controller.core
        if isinstance(request, FetchRequest | FetchSnapshotRequest) and core.is_leading and request.epoch == core.epoch:
            followed = self._followed.get((_process(controller), core.epoch))
            if followed is not None:
                followed[request.replica.node_id] = now_ms

    def about_to_send(self, controller: "SimController", request: PeerRequest) -> None:
        """A request is about to leave: what it says is durable."""
        durable, who = controller.durable_election(), f"c{controller.node_id}"
        if isinstance(request, ReadLogRequest):
            return
        if request.epoch > durable.epoch:
            raise LawBroken("R3 EpochBeforeSpeech", f"{who} speaks of epoch {request.epoch}; {durable}")
        match request:
            case VoteRequest(epoch=epoch, candidate=candidate, pre_vote=False):
                own = durable.epoch == epoch and durable.voted_for == candidate
                hold(own, "R2 VoteBeforeSpeech", f"{who} asks for votes in epoch {epoch}; on disk is {durable}")
                self._note_vote(controller.node_id, epoch, candidate)
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

    def about_to_reply(self, controller: "SimController", request: PeerRequest, response: PeerResponse) -> None:
        """A reply is about to leave: what it says is durable."""
        durable, who = controller.durable_election(), f"c{controller.node_id}"
        if response.epoch > durable.epoch:
            raise LawBroken("R3 EpochBeforeSpeech", f"{who} replies in {response.epoch}; {durable}")
        if isinstance(request, VoteRequest) and isinstance(response, VoteResponse):
            if not response.vote_granted or request.pre_vote:
                return
            own = durable.epoch == request.epoch and durable.voted_for == request.candidate
            hold(own, "R2 VoteBeforeSpeech", f"{who} grants epoch {request.epoch}; on disk is {durable}")
            self._note_vote(controller.node_id, request.epoch, request.candidate)


def _process(controller: "SimController") -> _Process:
    return _Process(controller.node_id, controller.boot)
