"""Random histories of brokers, ISRs, ELRs and configs, against a twin with real logs: no clean election loses a record.

The twin is `replica_logs`. The law: a replica that the controller elects cleanly, from the ISR or from the ELR, has every record
below the high watermark.
"""

import random
from collections import Counter
from dataclasses import replace
from typing import Final

import pytest

from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.records import (
    BROKER_RESOURCE,
    RECOVERED,
    RECOVERING,
    TOPIC_RESOURCE,
    MetadataRecord,
    PartitionChange,
)
from quorum.controller.partitions.election_rules import keeps_elr, min_isr_of
from quorum.controller.protocol.commands import AlterPartition, Command, IsrMember, PartitionAlteration
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.election_commands import ElectionType, ElectLeaders, TopicPartition
from quorum.controller.protocol.reassignment_commands import AlterPartitionReassignments, Reassignment
from tests.quorum.controller.cluster import Cluster, registration
from tests.quorum.controller.leadership.replica_logs import ReplicaLogs
from tests.quorum.controller.leadership.test_election_rules import MIN_ISR, UNCLEAN, alter
from tests.quorum.controller.leadership.test_eligible_leaders import turn_elr

BROKERS: Final = (0, 1, 2)
STEPS: Final = 250


class History:
    """One random history of one partition."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.cluster = Cluster(len(BROKERS), seed=seed)
        turn_elr(self.cluster, on=True)
        self.cluster.assign("t", BROKERS)
        alter(self.cluster, (TOPIC_RESOURCE, "t"), MIN_ISR, str(self.dice.randint(1, 3)))
        self.logs = ReplicaLogs(BROKERS)
        self.is_reckless = seed % 4 == 0
        for broker_id in BROKERS:
            self.logs.learns(broker_id, self.cluster.image, "t")

    # --- the controller --------------------------------------------------------------------------------------------

    def decides(self, command: Command) -> None:
        before = self.cluster.partitions("t")[0]
        try:
            records = self.cluster.run(command).records
        except ControllerError:
            return
        self.judge(before.elr, records)

    def judge(self, elr: tuple[NodeId, ...], records: list[MetadataRecord]) -> None:
        """Each election of the decision, in order, and the shape of the state after it."""
        for change in records:
            if isinstance(change, PartitionChange) and change.leader not in (None, NO_LEADER):
                leader = change.leader
                assert leader is not None
                if change.leader_recovery_state == RECOVERING:
                    self.seen["unclean election"] += 1
                    self.logs.elected_uncleanly(leader)
                self.seen["election from the ELR"] += leader in elr
                assert self.logs.has_all(leader), (change, self.logs.below_high_watermark, self.logs.replicas[leader])
            if isinstance(change, PartitionChange) and change.elr is not None:
                elr = change.elr
        state, image = self.cluster.partitions("t")[0], self.cluster.image
        assert set(state.isr).isdisjoint(state.elr)
        assert not state.elr or (keeps_elr(image) and len(state.isr) < min(min_isr_of(image, "t"), len(state.replicas)))
        assert not state.last_known_elr or state.leader == NO_LEADER
        assert not self.lacking(), (self.lacking(), state)
        assert not self.waits_for_nothing(), state

    def waits_for_nothing(self) -> bool:
        """True if a reassignment is in progress that a replica of the target leads, and for which all replicas are in sync.

        A replica that was elected uncleanly has not recovered yet: its next ISR finishes the reassignment.
        """
        state = self.cluster.partitions("t")[0]
        target = {each for each in state.replicas if each not in state.removing_replicas}
        if state.leader not in target or state.leader_recovery_state == RECOVERING:
            return False
        if state.adding_replicas:
            return target.issubset(state.isr)
        return bool(state.removing_replicas)  # nothing is copied: one replica in sync is enough

    def lacking(self) -> list[NodeId]:
        """The members of ISR and ELR that lack a record below the high watermark."""
        state = self.cluster.partitions("t")[0]
        return [each for each in (*state.isr, *state.elr) if not self.logs.has_all(each)]

    # --- the steps -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        broker_id = self.dice.choice(BROKERS)
        steps = {
            self.moves_data: 12,
            self.learns: 6,
            self.comes_online: 4,
            self.proposes: 4,
            self.is_fenced: 2,
            self.restarts: 2,
            self.stops: 1,
            self.changes_the_minimum: 1,
            self.is_elected_by_hand: 1,
            self.is_reassigned: 1,
        }
        self.dice.choices(list(steps), list(steps.values()))[0](broker_id)

    def moves_data(self, broker_id: NodeId) -> None:
        self.logs.appends(broker_id)
        for each in BROKERS:
            self.logs.copies(each, self.dice)
        self.seen["high watermark raised"] += self.logs.raises_high_watermark(broker_id)

    def learns(self, broker_id: NodeId) -> None:
        self.logs.learns(broker_id, self.cluster.image, "t")

    def comes_online(self, broker_id: NodeId) -> None:
        self.decides(self.cluster.said_by(broker_id))

    def is_fenced(self, broker_id: NodeId) -> None:
        self.decides(self.cluster.said_by(broker_id, wants_fence=True))

    def stops(self, broker_id: NodeId) -> None:
        self.decides(self.cluster.said_by(broker_id, wants_shut_down=True))

    def restarts(self, broker_id: NodeId) -> None:
        """Cleanly, or by a crash: then the end of the log may be lost, which no controller can know before the registration."""
        is_clean = self.dice.random() < 0.5
        self.logs.restarts(broker_id, None if is_clean else self.dice)
        old = self.cluster.image.brokers[broker_id]
        self.cluster.lives[broker_id] += 1
        command = replace(
            registration(broker_id, self.cluster.lives[broker_id]), previous_incarnation_id=old.incarnation_id
        )
        self.decides(replace(command, previous_broker_epoch=old.broker_epoch) if is_clean else command)
        self.seen["unclean restart"] += not is_clean

    def proposes(self, broker_id: NodeId) -> None:
        """A leader adds a follower that has its whole log, or takes one out, by its own copy of the metadata."""
        me = self.logs.replicas[broker_id]
        if not self.logs.leads(broker_id) or me.view is None:
            return
        isr = set(me.view.isr)
        epochs = {each: self.cluster.image.brokers[each].broker_epoch for each in isr}
        if self.dice.random() < 0.6:
            epochs |= self.logs.in_sync(broker_id)
            isr |= set(epochs)
        else:
            isr = {each for each in isr if each == broker_id or self.dice.random() < 0.5}
        me.wanted, me.wanted_at = frozenset(isr), me.view.partition_epoch
        members = tuple(IsrMember(each, epochs[each]) for each in sorted(isr))
        alteration = PartitionAlteration(
            me.view.topic_id, 0, me.view.leader_epoch, me.view.partition_epoch, members, RECOVERED
        )
        self.decides(AlterPartition(broker_id, me.broker_epoch, (alteration,)))

    def changes_the_minimum(self, broker_id: NodeId) -> None:
        """`min.insync.replicas`, the feature itself, or the permission to elect uncleanly."""
        what = self.dice.random()
        elr = self.cluster.partitions("t")[0].elr
        self.seen["ELR cleared by a change"] += bool(elr)
        if what < 0.7:
            resource = self.dice.choice([(TOPIC_RESOURCE, "t"), (BROKER_RESOURCE, "")])
            alter(self.cluster, resource, MIN_ISR, str(self.dice.randint(1, 3)))
        elif what < 0.9:
            alter(self.cluster, (TOPIC_RESOURCE, "t"), UNCLEAN, str(self.is_reckless and what < 0.8).lower())
        else:
            turn_elr(self.cluster, on=False)
            turn_elr(self.cluster, on=True)
        self.judge(elr, [])
        while (due := self.cluster.controller.due(self.cluster.image, self.cluster.now_ms)) is not None:
            self.decides(due)

    def is_elected_by_hand(self, broker_id: NodeId) -> None:
        kind = ElectionType.UNCLEAN if self.is_reckless else ElectionType.PREFERRED
        self.decides(ElectLeaders((TopicPartition("t", 0),), kind))

    def is_reassigned(self, broker_id: NodeId) -> None:
        """To other replicas, or back. A broker that loses its replica deletes the log when it learns so."""
        target = tuple(self.dice.sample(BROKERS, self.dice.randint(1, len(BROKERS))))
        wanted = Reassignment("t", 0, target if self.dice.random() < 0.7 else None)
        self.decides(AlterPartitionReassignments((wanted,)))
        self.seen["reassignment"] += 1

    def run(self) -> "History":
        for _ in range(STEPS):
            self.step()
        return self


@pytest.mark.parametrize("seed", range(40))
def test_no_clean_election_loses_a_record(seed: int) -> None:
    """Members of ISR and ELR have all records below the high watermark at any time, and so has each leader elected from them.

    No reassignment that could be finished waits for another change. `judge` checks each decision; the state after the last step
    is checked here.
    """
    history = History(seed).run()
    assert history.lacking() == [] and not history.waits_for_nothing()


def test_the_histories_come_across_what_they_are_for() -> None:
    seen = sum((History(seed).run().seen for seed in range(8)), Counter())
    kinds = ("election from the ELR", "unclean election", "unclean restart", "ELR cleared by a change", "reassignment")
    assert all(seen[kind] > 5 for kind in (*kinds, "high watermark raised")), seen
