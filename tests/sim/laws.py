"""The laws, checked after every event. Each names the invariant that it stands for (see docs/invariants in ARCHITECTURE).

The checks are incremental: each looks at what the event may have changed. What is remembered across crashes (who led an
epoch, who was voted for, what was committed at an offset) is remembered here, by an observer that no fault can reach.
"""

import hashlib
from typing import TYPE_CHECKING

from metadata_log.ids import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from metadata_log.image import MetadataImage
from quorum.core.messages import FetchRequest, Request, VoteRequest
from quorum.core.roles import Role
from tests.sim.coverage import Coverage

if TYPE_CHECKING:
    from tests.sim.brokers import SimBroker
    from tests.sim.controllers import SimController


class LawBroken(AssertionError):
    """One of the laws does not hold."""

    def __init__(self, law: str, text: str) -> None:
        super().__init__(f"{law}: {text}")
        self.law = law


class Laws:
    """Everything that must hold over the whole run."""

    def __init__(self, controllers: int, coverage: Coverage) -> None:
        self.everyone: "list[SimController]" = []
        self._controllers = controllers
        self._coverage = coverage
        self._leaders: dict[Epoch, tuple[NodeId, int]] = {}
        self._votes: dict[tuple[NodeId, Epoch], ReplicaKey] = {}
        self._epochs: dict[NodeId, Epoch] = {}
        self._chains: dict[OffsetAndEpoch, bytes] = {}
        self._leader_ends: dict[tuple[NodeId, int, Epoch], Offset] = {}
        self._watermarks: dict[tuple[NodeId, int], Offset] = {}
        self._roles: dict[tuple[NodeId, int], Role] = {}
        self._applied: dict[tuple[NodeId, int], Offset] = {}
        self._states: dict[Offset, bytes] = {0: bytes(32)}
        self._images: dict[Offset, MetadataImage] = {}
        self._snapshots: dict[OffsetAndEpoch, bytes] = {}
        self._snapshots_seen: dict[tuple[NodeId, int], set[OffsetAndEpoch]] = {}
        self._broker_positions: dict[tuple[NodeId, bytes], Offset] = {}
        self._never: set[str] = set()
        self.committed_end: Offset = 0
        self.committed_chain: bytes | None = None
        self.committed_image: MetadataImage | None = None
        self.acknowledged_end: Offset = 0

    # --- controllers -----------------------------------------------------------------------------------------------

    def observe(self, controller: "SimController", everyone: "list[SimController]") -> None:
        """After an event at `controller`, which is up."""
        node = controller.node
        assert node is not None
        node.check_invariants()
        self._check_role(controller)
        self._check_log(controller)
        self._check_watermark(controller, everyone)
        self._check_applied(controller)
        self._check_snapshots(controller)

    def _check_role(self, controller: "SimController") -> None:
        core, me, boot = controller.core, controller.node_id, controller.boot
        role = core.role
        before = self._roles.get((me, boot))
        if role is not before:
            self._roles[me, boot] = role
            self._coverage[f"edge: {before.value if before else 'start'} -> {role.value}"] += 1
        known = self._epochs.get(me, 0)
        if core.epoch < known:
            raise LawBroken("R3 MonotonicEpoch", f"c{me} went from epoch {known} back to {core.epoch}")
        self._epochs[me] = core.epoch
        if core.is_leading:
            leader = self._leaders.setdefault(core.epoch, (me, boot))
            if leader != (me, boot):
                raise LawBroken("R1 ElectionSafety", f"epoch {core.epoch} is led by c{leader[0]} and by c{me} (boot {boot})")
            if before is not Role.LEADER:
                self._check_elected(controller)
        if core.voted_for is not None:
            vote = self._votes.setdefault((me, core.epoch), core.voted_for)
            if vote != core.voted_for:
                raise LawBroken("R2 VoteOnce", f"c{me} voted in epoch {core.epoch} for {vote} and for {core.voted_for}")

    def _check_elected(self, controller: "SimController") -> None:
        self._coverage["election"] += 1
        if self.committed_end == 0:
            return
        log = controller.log
        if log.shape.start.offset > self.committed_end:
            return
        if log.chain_at(self.committed_end) != self.committed_chain:
            raise LawBroken(
                "R7 LeaderCompleteness",
                f"c{controller.node_id} leads epoch {controller.core.epoch} without what is committed below {self.committed_end}",
            )

    def _check_log(self, controller: "SimController") -> None:
        me, boot, shape = controller.node_id, controller.boot, controller.log.shape
        if shape.end > shape.start.offset:
            chain = self._chains.setdefault(shape.end_and_epoch, shape.chain)
            if chain != shape.chain:
                raise LawBroken("R6 LogMatching", f"two histories end at {shape.end_and_epoch}; one is c{me}'s")
        if controller.core.is_leading:
            key = (me, boot, controller.core.epoch)
            if shape.end < self._leader_ends.get(key, 0):
                raise LawBroken("R5 LeaderAppendOnly", f"c{me} cut its log to {shape.end} while it led epoch {key[2]}")
            self._leader_ends[key] = shape.end
        if shape.epochs and shape.flushed_end > shape.epochs[-1].start_offset:
            durable = controller.durable_epoch()
            if durable < shape.last_epoch:
                raise LawBroken("R4 EpochBeforeLog", f"c{me} holds epoch {shape.last_epoch} and remembers only {durable}")

    def _check_watermark(self, controller: "SimController", everyone: "list[SimController]") -> None:
        me, boot, core = controller.node_id, controller.boot, controller.core
        watermark = core.high_watermark
        if watermark is None:
            return
        before = self._watermarks.get((me, boot), 0)
        if controller.shape_truncated_below(before):
            raise LawBroken("R10 NoTruncationBelowHW", f"c{me} cut its log to {controller.log.shape.end}, below {before}")
        if watermark < before and not core.is_leading:
            raise LawBroken("R9 MonotonicHW", f"c{me} went from {before} back to {watermark}")
        self._watermarks[me, boot] = max(before, watermark)
        if watermark > self.committed_end:
            if core.is_leading:
                self._check_commit(controller, watermark, everyone)
            elif watermark > self.committed_end:
                raise LawBroken("R9 FollowerHW", f"c{me} knows {watermark}; no leader has committed above {self.committed_end}")

    def _check_commit(self, controller: "SimController", watermark: Offset, everyone: "list[SimController]") -> None:
        shape, epoch = controller.log.shape, controller.core.epoch
        if shape.epoch_below(watermark) != epoch:
            raise LawBroken(
                "R8 CommitRule",
                f"c{controller.node_id} committed {watermark}, a record of epoch {shape.epoch_below(watermark)}, in epoch {epoch}",
            )
        chain = controller.log.chain_at(watermark)
        holders = [other.name for other in everyone if other.holds_durably(watermark, chain)]
        if len(holders) <= self._controllers // 2:
            raise LawBroken(
                "R11 MajorityReachedHW", f"{watermark} was committed, durable only on {', '.join(holders) or 'nobody'}"
            )
        self.committed_end, self.committed_chain = watermark, chain

    def _check_applied(self, controller: "SimController") -> None:
        node = controller.node
        assert node is not None
        key, applied, image = (controller.node_id, controller.boot), node.state.applied, node.state.committed
        if applied == self._applied.get(key):
            return
        if applied < self._applied.get(key, 0):
            raise LawBroken("R13 StateMachineSafety", f"c{key[0]} went back from {self._applied[key]} to {applied}")
        self._applied[key] = applied
        if applied > self.committed_end:
            raise LawBroken("R13 StateMachineSafety", f"c{key[0]} applied up to {applied}; committed is {self.committed_end}")
        if node.state.stopped is not None:
            raise LawBroken("M7 EveryRecordFits", f"c{key[0]}: {node.state.stopped}")
        self.check_state(f"c{key[0]}", image)
        if self.committed_image is None or image.provenance.offset > self.committed_image.provenance.offset:
            self._check_image(image)
            self.committed_image = image

    def check_state(self, who: str, image: MetadataImage) -> None:
        """Whoever applies the same prefix arrives at the same state."""
        offset = image.provenance.offset
        state = self._states.setdefault(offset, image.digest_bytes)
        if state != image.digest_bytes:
            raise LawBroken("R13 StateMachineSafety", f"{who} at {offset} has another state than those before it")

    def _check_image(self, image: MetadataImage) -> None:
        image.check_invariants()
        for topic in image.topics():
            if topic.name in self._never:
                raise LawBroken("C2 NoPhantom", f"topic {topic.name} exists although its creation was refused")
            for partition in topic.partitions():
                where = f"{topic.name}-{partition.partition} at {image.provenance.offset}"
                for broker_id in partition.isr:
                    broker = image.brokers.get(broker_id)
                    if broker is not None and broker.fenced and len(partition.isr) > 1:
                        raise LawBroken("M3 FencedOutOfIsr", f"{where}: fenced broker {broker_id} is in {partition.isr}")
                leader = image.brokers.get(partition.leader)
                if leader is not None and leader.fenced:
                    raise LawBroken("M3 FencedLeadsNothing", f"{where} is led by fenced broker {partition.leader}")

    def _check_snapshots(self, controller: "SimController") -> None:
        node = controller.node
        assert node is not None
        seen = self._snapshots_seen.setdefault((controller.node_id, controller.boot), set())
        newest = controller.log.shape.snapshot
        if controller.log.shape.start.offset > 0 and newest is None:
            raise LawBroken("S2 LogStart", f"c{controller.node_id}'s log starts above 0 without a snapshot")
        if newest is None or newest in seen:
            return
        seen.add(newest)
        if newest.offset > self.committed_end:
            raise LawBroken("S1 SnapshotBelowHW", f"a snapshot ends at {newest}, above {self.committed_end}")
        data = controller.snapshot_bytes(newest)
        digest = hashlib.sha256(data).digest()
        if self._snapshots.setdefault(newest, digest) != digest:
            raise LawBroken("S3 Deterministic", f"c{controller.node_id}'s snapshot {newest} differs from another node's")

    def about_to_send(self, controller: "SimController", request: Request) -> None:
        """A message is leaving: what it says is durable."""
        self._check_watermark(controller, self.everyone)
        durable = controller.durable_epoch()
        epoch = request.epoch - 1 if isinstance(request, VoteRequest) and request.pre_vote else request.epoch
        if epoch > durable:
            raise LawBroken("R3 EpochBeforeSpeech", f"c{controller.node_id} speaks of epoch {epoch}; durable is {durable}")
        if isinstance(request, FetchRequest) and request.fetch_offset > controller.log.shape.flushed_end:
            raise LawBroken(
                "R12 DurableBeforeAck",
                f"c{controller.node_id} acknowledges {request.fetch_offset}; flushed is {controller.log.shape.flushed_end}",
            )

    def about_to_reply(self, controller: "SimController") -> None:
        """A turn may be cut short after it has spoken: what it speaks of is looked at first."""
        self._check_watermark(controller, self.everyone)

    def restarted(self, controller: "SimController") -> None:
        """After a crash the log holds at least what was durable before it."""
        shape = controller.log.shape
        if shape.end < controller.durable_end_at_crash and shape.start.offset < controller.durable_end_at_crash:
            raise LawBroken(
                "D1 FlushedSurvives", f"c{controller.node_id} had {controller.durable_end_at_crash} durable, found {shape.end}"
            )

    # --- clients ---------------------------------------------------------------------------------------------------

    def acknowledged(self, end: Offset) -> None:
        """A client was told that its write stands below `end`."""
        if end > self.committed_end:
            raise LawBroken("C1 NoLostAck", f"a write was acknowledged at {end}; committed is {self.committed_end}")
        self.acknowledged_end = max(self.acknowledged_end, end)

    def never_happens(self, topic: str) -> None:
        """The creation of `topic` was refused for good: it must never appear."""
        self._never.add(topic)
        if self.committed_image is not None and self.committed_image.topic(topic) is not None:
            raise LawBroken("C2 NoPhantom", f"topic {topic} exists although its creation was refused")

    def read_returned(self, as_of_offset: Offset, floor: Offset) -> None:
        if as_of_offset < floor:
            raise LawBroken("C5 LinearizableRead", f"a read saw {as_of_offset} although {floor} was acknowledged before it")

    # --- brokers ---------------------------------------------------------------------------------------------------

    def observe_broker(self, broker: "SimBroker") -> None:
        """After an event at a broker that is up."""
        broker.session.check_invariants()
        image = broker.store.image
        offset = image.provenance.offset
        if offset > self.committed_end:
            raise LawBroken("F1 Prefix", f"b{broker.broker_id} applied up to {offset}; committed is {self.committed_end}")
        key = (broker.broker_id, broker.incarnation_id)
        before = self._broker_positions.get(key, 0)
        if offset < before and not broker.was_reset:
            raise LawBroken("F3 Monotone", f"b{broker.broker_id} went back from {before} to {offset}")
        if offset != before:
            self._broker_positions[key] = offset
            known = self._states.get(offset)
            if known is not None and known != image.digest_bytes:
                raise LawBroken("F6 Equivalence", f"b{broker.broker_id} at {offset} has another state than the controllers")
