"""The dumb twin of eligible leader replicas: one partition whose replicas have real logs, and a high watermark.

The twin knows nothing of ISRs and ELRs but what each broker reads in its own copy of the metadata, which may be old. A broker
obeys the rules that `docs/leader-elections.md` asks of a data plane. A record is an integer that is never used twice.

    1  Broker 0 leads, and appends 7. Brokers 1 and 2 copy it.
    2  Broker 0 reads the ISR 0,1,2 in its copy of the metadata: 7 is on all three, so the high watermark passes 7.
    3  From now on no clean election may choose a replica without 7.
"""

import random
from dataclasses import dataclass, field

from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.records import Partition
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.election_rules import min_isr_of


def common(one: list[int], other: list[int]) -> int:
    """The length of the longest common prefix."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@dataclass
class Replica:
    """One broker's replica, and what its process knows."""

    log: list[int] = field(default_factory=list)
    broker_epoch: int = -1
    view: Partition | None = None
    """The partition in the metadata that the process has applied; None before the process has applied any."""
    min_isr: int = 1
    wanted: frozenset[NodeId] = frozenset()
    """The members that this leader has proposed to add; the proposal may have been granted."""
    wanted_at: int = -1
    acknowledged: dict[NodeId, tuple[int, int]] = field(default_factory=dict)
    """How much of this leader's log each follower has copied in this leader epoch, and the broker epoch of the follower."""


class ReplicaLogs:
    """All replicas of one partition."""

    def __init__(self, broker_ids: tuple[NodeId, ...]) -> None:
        self.replicas = {broker_id: Replica() for broker_id in broker_ids}
        self.below_high_watermark: list[int] = []
        """The records that no clean election may lose."""
        self._next = 0

    def learns(self, broker_id: NodeId, image: MetadataImage, topic: str) -> None:
        """The broker applies all metadata, and deletes the log of a replica that was taken from it."""
        replica, found = self.replicas[broker_id], image.topic(topic)
        assert found is not None
        replica.broker_epoch = image.brokers[broker_id].broker_epoch
        before, replica.view = replica.view, found.partition(0)
        assert replica.view is not None
        if broker_id not in replica.view.replicas:
            replica.log = []
        replica.min_isr = min(min_isr_of(image, topic), len(replica.view.replicas))
        if before is None or before.leader_epoch != replica.view.leader_epoch:
            replica.acknowledged, replica.wanted = {}, frozenset()
        if replica.view.partition_epoch > replica.wanted_at:
            replica.wanted = frozenset()

    def leads(self, broker_id: NodeId) -> bool:
        """True if the process believes that it leads."""
        view = self.replicas[broker_id].view
        return view is not None and view.leader == broker_id

    def appends(self, broker_id: NodeId) -> None:
        """A leader writes a record."""
        if self.leads(broker_id):
            self._next += 1
            self.replicas[broker_id].log.append(self._next)

    def copies(self, broker_id: NodeId, dice: random.Random) -> None:
        """A follower drops what its leader does not have, and copies some of the rest, if both believe in the same leadership."""
        me = self.replicas[broker_id]
        if me.view is None or me.view.leader in (broker_id, NO_LEADER):
            return
        leader = self.replicas[me.view.leader]
        if not self.leads(me.view.leader) or leader.view is None or leader.view.leader_epoch != me.view.leader_epoch:
            return
        if broker_id not in me.view.replicas or broker_id not in leader.view.replicas:
            return
        me.log = me.log[: common(me.log, leader.log)]
        me.log += leader.log[len(me.log) : len(me.log) + dice.randint(0, 3)]
        leader.acknowledged[broker_id] = len(me.log), me.broker_epoch

    def raises_high_watermark(self, broker_id: NodeId) -> bool:
        """A leader whose ISR is large enough counts what all members have, those included that it has asked to add."""
        me = self.replicas[broker_id]
        if not self.leads(broker_id) or me.view is None or len(me.view.isr) < me.min_isr:
            return False
        members = {*me.view.isr, *me.wanted} - {broker_id}
        high_watermark = min([len(me.log), *(me.acknowledged.get(member, (0, 0))[0] for member in members)])
        if high_watermark <= len(self.below_high_watermark) or not self.has_all(broker_id):
            return False
        self.below_high_watermark = me.log[:high_watermark]
        return True

    def has_all(self, broker_id: NodeId) -> bool:
        """True if the replica has every record below the high watermark."""
        safe = self.below_high_watermark
        return self.replicas[broker_id].log[: len(safe)] == safe

    def in_sync(self, broker_id: NodeId) -> dict[NodeId, int]:
        """The followers that have all of this leader's log, with the broker epochs that the leader has seen."""
        me = self.replicas[broker_id]
        assert me.view is not None
        return {
            each: epoch
            for each, (end, epoch) in me.acknowledged.items()
            if end == len(me.log) and each in me.view.replicas
        }

    def restarts(self, broker_id: NodeId, dice: random.Random | None = None) -> None:
        """The process ends. With dice it crashes, and the end of the log is lost, below the high watermark too."""
        log = self.replicas[broker_id].log
        if dice is not None:
            del log[dice.randint(0, len(log)) :]
        self.replicas[broker_id] = Replica(log)

    def elected_uncleanly(self, broker_id: NodeId) -> None:
        """Somebody has accepted a loss: what the new leader lacks is given up."""
        end = common(self.below_high_watermark, self.replicas[broker_id].log)
        del self.below_high_watermark[end:]
