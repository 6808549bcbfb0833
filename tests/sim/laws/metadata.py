"""The laws of metadata: the rules for every committed change of brokers, topics and partitions (M1 to M7).

Each committed batch is checked once, with the images before and after. The cost of a check depends on the size of the
change. From time to time, and at the end, the whole image is checked against itself.

Example: a batch fences broker 102 and leaves it in the ISR (101, 102) of orders-0. The law M3 FencedOutOfIsr is broken.
"""

from collections.abc import Callable
from typing import NamedTuple

from metadata_log.format.ids import NO_LEADER, NodeId, Offset, Uuid
from metadata_log.format.partition_state import (
    ADDING,
    ELR,
    ISR,
    LAST_KNOWN_ELR,
    LEADER,
    LEADER_EPOCH,
    PARTITION_EPOCH,
    REMOVING,
    REPLICAS,
    PartitionState,
)
from metadata_log.format.records import (
    BrokerRegistrationChange,
    Config,
    Partition,
    PartitionChange,
    RegisterBroker,
    RemoveTopic,
    Topic,
    UnregisterBroker,
)
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.election_rules import allows_unclean_election, keeps_elr
from quorum.controller.protocol.config import ControllerConfig
from tests.sim.coverage import Coverage
from tests.sim.history import Step
from tests.sim.laws.broken import LawBroken, hold
from tests.sim.laws.replicas.directories import DirectoryLaws
from tests.sim.laws.replicas.reassignments import ReassignmentLaws

WHOLE_CHECK_EVERY = 200
"""How many batches lie between two checks of the whole image."""


class LedAway(NamedTuple):
    """A broker lost the leadership of a partition, by a committed record."""

    broker_id: NodeId
    broker_epoch: int


class MetadataLaws:
    """Checks every committed batch, in order."""

    def __init__(
        self, coverage: Coverage, has_applied: Callable[[NodeId, int], Offset], directories: DirectoryLaws
    ) -> None:
        """Builds the laws. `has_applied` returns the furthest offset ever applied by a broker under a broker epoch."""
        self._coverage = coverage
        self._has_applied = has_applied
        self._directories = directories
        self._registered: set[NodeId] = set()
        self._topic_ids: set[Uuid] = set()
        self._steps = 0
        self.created: dict[str, Offset] = {}
        """By topic: the end of the last batch creating the topic."""
        self.created_times: dict[str, int] = {}
        self.removed: dict[str, Offset] = {}
        """By topic: the end of the last batch removing the topic."""
        self.settings: dict[tuple[int, str, str], list[tuple[Offset, str | None]]] = {}
        """By resource type, name and key: each value ever set, and the end of the batch setting the value."""
        self.partition_counts: dict[str, list[tuple[Offset, int]]] = {}
        """By topic: the partition counts, each with the end of the batch setting the count."""
        self.led_away: set[LedAway] = set()
        """The brokers fenced, or without some former leadership, since the last batch."""
        self.new_topics: list[str] = []
        """The topics created by the last batch."""
        self.reassignments = ReassignmentLaws(coverage)
        self._may_be_unclean: set[str] = set()
        """The topics for which a client has ever asked for an unclean election."""
        self._has_kept_elr = False
        """The cluster has, or once had, eligible leader replicas: the ISR of a partition without a leader may have any size."""

    def committed(self, step: Step) -> None:
        """Checks a newly committed batch."""
        self.led_away, self.new_topics = set(), []
        self._has_kept_elr = self._has_kept_elr or keeps_elr(step.after)
        offset = step.batch.base_offset
        changes: dict[tuple[Uuid, int], int] = {}
        for record in step.records:
            match record:
                case RegisterBroker():
                    self._on_register(record, step, offset)
                case BrokerRegistrationChange():
                    self._on_broker_change(record, step)
                case UnregisterBroker(broker_id):
                    self._on_unregister(broker_id, step)
                case Topic(name, topic_id):
                    self._on_topic(name, topic_id, step)
                case RemoveTopic(name, _):
                    self.removed[name] = step.end
                case Partition(topic_id, partition) | PartitionChange(topic_id, partition):
                    place = topic_id, partition
                    changes[place] = changes.get(place, 0) + (1 if isinstance(record, PartitionChange) else 0)
                case Config(resource_type, name, key, value):
                    self.settings.setdefault((resource_type, name, key), []).append((step.end, value))
                case _:
                    pass
            offset += 1
        for (topic_id, partition), count in changes.items():
            self._check_partition(step, topic_id, partition, count)
        self._steps += 1
        if self._steps % WHOLE_CHECK_EVERY == 0:
            self.check_whole(step.after)

    # --- brokers ---------------------------------------------------------------------------------------------------

    def _on_register(self, record: RegisterBroker, step: Step, offset: Offset) -> None:
        law = "M1 BrokerEpoch"
        broker_id = record.broker_id
        self._registered.add(broker_id)
        before, after = step.before.brokers.get(broker_id), step.after.brokers.get(broker_id)
        hold(after is not None, law, f"broker {broker_id} registered at {offset} and is not there")
        if before is not None and before.incarnation_id == record.incarnation_id:
            hold(after.broker_epoch == before.broker_epoch, law, f"b{broker_id}'s epoch changed without a new process")
            return
        hold(after.broker_epoch == offset, law, f"b{broker_id} registered at {offset} got epoch {after.broker_epoch}")
        hold(before is None or before.broker_epoch < offset, law, f"b{broker_id}'s epoch did not ascend at {offset}")
        hold(after.fenced, "M3 BornFenced", f"b{broker_id} registered unfenced at {offset}")
        self._check_given_up(step.after, broker_id)

    def _on_broker_change(self, record: BrokerRegistrationChange, step: Step) -> None:
        broker_id, epoch = record.broker_id, record.broker_epoch
        before = step.before.brokers[broker_id]
        hold(
            before.broker_epoch == epoch, "M2 StaleEpoch", f"b{broker_id}@{epoch} changed; it is {before.broker_epoch}"
        )
        if record.fenced is True and not before.fenced:
            self._coverage["broker fenced"] += 1
            self.led_away.add(LedAway(broker_id, epoch))
            self._check_given_up(step.after, broker_id)
        if record.fenced is False and before.fenced:
            self._coverage["broker unfenced"] += 1
            applied = self._has_applied(broker_id, epoch)
            hold(applied > epoch, "M3 UnfencedOnceCaughtUp", f"b{broker_id}@{epoch} unfenced; it has applied {applied}")

    def _on_unregister(self, broker_id: NodeId, step: Step) -> None:
        """M7: only a fenced broker without replicas is unregistered."""
        self._coverage["broker unregistered"] += 1
        hold(
            step.before.brokers[broker_id].fenced, "M7 Referential", f"b{broker_id} was forgotten before it was fenced"
        )
        held = [step.before.topics_by_id[topic_id].name for topic_id in step.before.topics_of_broker(broker_id)]
        hold(not held, "M7 Referential", f"b{broker_id} was forgotten, and holds {held}")

    def _check_given_up(self, image: MetadataImage, broker_id: NodeId) -> None:
        """A fenced broker leads no partition, and is in an ISR only as its last member."""
        for topic_id in image.topics_of_broker(broker_id):
            topic = image.topics_by_id[topic_id]
            for partition in topic.partitions_on(broker_id):
                self._check_fenced_out(image, topic.state(partition), f"{topic.name}-{partition}")

    # --- topics and partitions -------------------------------------------------------------------------------------

    def _on_topic(self, name: str, topic_id: Uuid, step: Step) -> None:
        law = "M6 NamesAndIds"
        hold(topic_id not in self._topic_ids, law, f"the id of topic {name} was used before")
        still_there = step.before.topic(name) is not None and self.removed.get(name, 0) != step.end
        hold(not still_there, law, f"topic {name} was created twice")
        self._topic_ids.add(topic_id)
        whole = step.after.topic_by_id(topic_id)
        hold(whole is None or whole.partition_count > 0, "C7 Atomic", f"topic {name} was created without partitions")
        self.new_topics.append(name)
        self.created[name] = step.end
        self.created_times[name] = self.created_times.get(name, 0) + 1

    def _check_partition(self, step: Step, topic_id: Uuid, partition: int, changes: int) -> None:
        topic = step.after.topic_by_id(topic_id)
        if topic is None:
            return
        where = f"{topic.name}-{partition} at {step.end}"
        after = topic.state(partition)
        assert after is not None, where
        counts = self.partition_counts.setdefault(topic.name, [])
        if not counts or counts[-1][1] != topic.partition_count:
            counts.append((step.end, topic.partition_count))
        self.reassignments.noted(topic.name, partition, after, step.end)
        self._check_fenced_out(step.after, after, where)
        strangers = set(after[REPLICAS]) - self._registered
        hold(not strangers, "M7 Referential", f"{where} has replicas on {strangers}, which never registered")
        topic_before = step.before.topic_by_id(topic_id)
        before = None if topic_before is None else topic_before.state(partition)
        if before is not None:
            self._check_epochs(before, after, changes, where)
            self._note_led_away(step, before, after)
            self.reassignments.changed(topic.name, partition, before, after, where)
        if after[LEADER] != NO_LEADER and (before is None or after[LEADER] != before[LEADER]):
            self._check_elected(step, before, after, topic.name, where)

    def elected_uncleanly(self, topic: str) -> None:
        """Notes that a client asks for unclean elections of the topic's partitions. The request may arrive at any later time."""
        self._may_be_unclean.add(topic)

    def _note_led_away(self, step: Step, before: PartitionState, after: PartitionState) -> None:
        """A leader that stays in the ISR has lost its office by plan, for example to the preferred replica, and so has one whose
        replica was reassigned. The broker may not know it yet; then the leader epoch refuses what it does in its old office. A
        broker that has lost the replica's directory knows that itself."""
        leader = step.before.brokers.get(before[LEADER])
        if after[LEADER] == before[LEADER] or leader is None:
            return
        is_active = _is_active(step.after, before[LEADER])
        if after[LEADER] != NO_LEADER and is_active and before[LEADER] not in after[REPLICAS]:
            self._coverage["leader reassigned"] += 1
        elif after[LEADER] != NO_LEADER and before[LEADER] in after[ISR]:
            self._coverage["leadership given back"] += 1
        elif self._directories.may_be_lost(before, before[LEADER]) or self._directories.may_be_lost(
            after, before[LEADER]
        ):
            self._coverage["leader lost its directory"] += 1
        else:
            self.led_away.add(LedAway(leader.broker_id, leader.broker_epoch))

    def _check_elected(
        self, step: Step, before: PartitionState | None, after: PartitionState, topic: str, where: str
    ) -> None:
        """A stopping broker is not elected; nor is a broker outside ISR and ELR, unless a config allows it, or a client has asked
        for it, and no member of them can lead. If ISR and ELR are empty, the last known leader may lead. A leader in maintenance
        that lets a replica into the ISR makes it the leader in the same step."""
        leader = after[LEADER]
        broker = step.after.brokers[leader]
        stays = not broker.fenced and not broker.in_controlled_shutdown
        hold(stays, "M3 StoppingNotElected", f"{where}: {leader} was elected; it is {broker}")
        if before is None or leader in (*before[ISR], *before[ELR]) or _is_proposed(before, after):
            return
        if before[LEADER] != NO_LEADER and {before[LEADER], leader} <= set(after[ISR]):
            self._coverage["leader relieved by a replica that came in sync"] += 1
            return
        safe = (*before[ISR], *before[ELR])
        # The same change may take out the last eligible replica, because its broker has crashed.
        can_lead = any(
            _is_active(step.before, each) and not self._directories.may_be_lost(before, each) for each in safe
        )
        if before[LAST_KNOWN_ELR] == (leader,) and not can_lead:
            self._coverage["last known leader elected"] += 1
            return
        was_lost = before[LEADER] == NO_LEADER and not can_lead
        # Members of the ISR may be on their way out: the batches of a long fence come before the record of the fence.
        is_allowed = allows_unclean_election(step.after, ControllerConfig(), topic)
        hold(
            is_allowed or (was_lost and topic in self._may_be_unclean),
            "M4 CleanElection",
            f"{where}: {leader} was elected out of the replicas; the ISR was {before[ISR]}",
        )

    def _check_epochs(self, before: PartitionState, after: PartitionState, changes: int, where: str) -> None:
        law = "M5 Epochs"
        moved = after[PARTITION_EPOCH] - before[PARTITION_EPOCH]
        hold(moved == changes, law, f"{where}: {changes} changes moved the partition epoch by {moved}")
        elected = after[LEADER_EPOCH] - before[LEADER_EPOCH]
        hold(0 <= elected <= changes, law, f"{where}: {changes} changes moved the leader epoch by {elected}")
        same_leader = before[LEADER] == after[LEADER]
        hold(same_leader or elected > 0, law, f"{where}: leader {after[LEADER]} in {before[LEADER]}'s leader epoch")
        self._coverage["partition leader changed"] += not same_leader
        self._coverage["ISR grew"] += len(after[ISR]) > len(before[ISR])

    def _check_fenced_out(self, image: MetadataImage, state: PartitionState | None, where: str) -> None:
        assert state is not None, where
        isr, leader = state[ISR], state[LEADER]
        hold(leader == NO_LEADER or leader in isr, "M4 LeaderInIsr", f"{where} is led by {leader} outside {isr}")
        is_orphan = leader == NO_LEADER and self._has_kept_elr
        is_sound = (bool(isr) or is_orphan) and set(isr) <= set(state[REPLICAS])
        hold(is_sound, "M4 IsrInReplicas", f"{where}: {isr} of {state[REPLICAS]}")
        for member in isr:
            broker = image.brokers.get(member)
            if broker is None or not broker.fenced:
                continue
            if member == leader:
                raise LawBroken("M3 FencedLeadsNothing", f"{where} is led by fenced broker {member}")
            hold(len(isr) == 1 or is_orphan, "M3 FencedOutOfIsr", f"{where}: fenced broker {member} is in {isr}")

    # --- all of it -------------------------------------------------------------------------------------------------

    def check_whole(self, image: MetadataImage) -> None:
        """Recomputes all incremental parts of the image. O(image)."""
        image.check_invariants()
        for topic in image.topics():
            for partition, state in enumerate(topic.states()):
                self._check_fenced_out(image, state, f"{topic.name}-{partition}")


def _is_proposed(before: PartitionState, after: PartitionState) -> bool:
    """True if a leader's proposal has completed a reassignment: the ISR that it has proposed holds the new leader."""
    was_reassigning, is_reassigning = (state[REMOVING] or state[ADDING] for state in (before, after))
    return bool(was_reassigning and not is_reassigning and before[LEADER] != NO_LEADER)


def _is_active(image: MetadataImage, broker_id: NodeId) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown
