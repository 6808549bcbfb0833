"""Any sequence of commands, with failovers in between: the laws hold after every batch, and calm heals everything."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER
from quorum.controller.controller import Controller
from quorum.controller.protocol.commands import (
    AlterPartition,
    AlterPartitionReply,
    FenceBroker,
    IsrMember,
    PartitionAlteration,
    ReportDeath,
    UnregisterBroker,
)
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.election_commands import ElectLeaders, TopicPartition
from quorum.controller.protocol.mode_commands import DrainBroker, EndBrokerMode, Mode
from quorum.controller.protocol.reassignment_commands import AlterPartitionReassignments, Reassignment
from quorum.controller.protocol.topic_commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
)
from tests.quorum.controller.cluster import Cluster, registration

BROKERS = 4
GRANTS = (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED, ErrorCode.INELIGIBLE_REPLICA)
REFUSALS = (
    ErrorCode.BROKER_ID_NOT_REGISTERED,
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorCode.STALE_BROKER_EPOCH,  # of a dead process that fetches
    ErrorCode.POLICY_VIOLATION,  # of an operator who fences or unregisters a broker that is heard, or holds replicas
)


class LawfulCluster(Cluster):
    """Checks M3-M5 after every batch, follow-ups included."""

    def fold(self, decision: Decision) -> None:
        before = self.image
        super().fold(decision)
        self.check_laws()
        for topic in self.image.topics():
            earlier = before.topic_by_id(topic.topic_id)
            for partition in topic.partitions():
                old = None if earlier is None else earlier.partition(partition.partition)
                if old is not None and old != partition:
                    changes = sum(
                        getattr(record, "partition", None) == partition.partition
                        and getattr(record, "topic_id", None) == topic.topic_id
                        for record in decision.records
                    )
                    assert partition.partition_epoch == old.partition_epoch + changes == old.partition_epoch + 1
                    is_removed = not set(old.replicas) <= set(partition.replicas)
                    assert partition.leader_epoch - old.leader_epoch == (partition.leader != old.leader or is_removed)


def live_once(cluster: LawfulCluster, dice: random.Random) -> None:
    """One event."""
    broker_id = dice.randrange(BROKERS)
    known = broker_id in cluster.image.brokers
    cluster.now_ms += dice.choice((0, 10, 500, 3_000))
    match dice.randrange(17):
        case 0 | 1 if known:
            cluster.contact(broker_id, wants_fence=dice.random() < 0.5, wants_shut_down=dice.random() < 0.3)
        case 2 if known:
            cluster.contact(broker_id)
        case 3:
            life = cluster.lives.get(broker_id, 0) + 1
            cluster.now_ms += dice.choice((0, 10_000))
            cluster.run(registration(broker_id, life, f"r{broker_id % 2}"))
            cluster.lives[broker_id] = life
        case 16 if known:
            cluster.run(ReportDeath(broker_id, (cluster.image.brokers[broker_id].incarnation_id,)))
        case 4:
            cluster.run(FenceBroker(broker_id) if dice.random() < 0.5 else UnregisterBroker(broker_id))
        case 12:
            cluster.run(DrainBroker(broker_id))
        case 13 | 14:
            cluster.run(EndBrokerMode(broker_id, dice.choice(tuple(Mode))))
        case 5:
            cluster.run(CreateTopics((NewTopic(f"t{dice.randrange(5)}", dice.randint(1, 70), dice.randint(1, 3)),)))
        case 6:
            cluster.run(CreatePartitions((NewPartitions(f"t{dice.randrange(5)}", dice.randint(1, 90)),)))
        case 7 if dice.random() < 0.3:
            cluster.run(DeleteTopics((f"t{dice.randrange(5)}",)))
        case 8:
            catch_up(cluster, dice)
        case 9:
            while (due := cluster.controller.due(cluster.image, cluster.now_ms)) is not None:
                cluster.run(due)
        case 11:
            places = [TopicPartition(topic.name, 0) for topic in cluster.image.topics() if dice.random() < 0.7]
            cluster.run(ElectLeaders(tuple(places)))
        case 15:
            cluster.run(AlterPartitionReassignments(tuple(moves(cluster, dice))))
        case 10 if dice.random() < 0.4:
            cluster.controller = Controller(cluster.controller.config, dice)
            cluster.controller.activate(cluster.image, cluster.now_ms)
        case _:
            pass


def moves(cluster: LawfulCluster, dice: random.Random) -> Iterator[Reassignment]:
    """Some partitions shall have other replicas, or again those they had."""
    brokers = sorted(cluster.image.brokers)
    for topic in cluster.image.topics():
        for number in range(topic.partition_count):
            if dice.random() < 0.3:
                target = tuple(dice.sample(brokers, dice.randint(1, min(3, len(brokers)))))
                yield Reassignment(topic.name, number, target if dice.random() < 0.7 else None)


def catch_up(cluster: LawfulCluster, dice: random.Random) -> None:
    """Leaders propose that all online replicas are in sync, for some partitions."""
    for topic in list(cluster.image.topics()):
        for partition in list(topic.partitions()):
            leader = cluster.image.brokers.get(partition.leader)
            if leader is None or dice.random() < 0.3:
                continue
            online = [
                replica
                for replica in partition.replicas
                if replica in cluster.image.brokers and not cluster.image.brokers[replica].fenced
            ]
            alteration = PartitionAlteration(
                topic.topic_id,
                partition.partition,
                partition.leader_epoch,
                partition.partition_epoch,
                tuple(IsrMember(replica) for replica in online),
            )
            command = AlterPartition(leader.broker_id, leader.broker_epoch, (alteration,))
            result = cluster.ask(command, AlterPartitionReply).results[0]
            assert result.error in GRANTS, result


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([1, 20, 1_000]))
def test_the_laws_hold_in_any_history(seed: int, slice_max: int) -> None:
    """M3-M5 after every batch. Then calm: every broker registers, contacts and is heard; all are online, and every
    partition with a registered ISR member is led."""
    dice = random.Random(seed)
    config = ControllerConfig(slice_changes_max=slice_max, slice_partitions_max=slice_max)
    cluster = LawfulCluster(2, config=config, seed=seed)
    for _ in range(60):
        try:
            live_once(cluster, dice)
        except ControllerError as e:
            assert e.code in REFUSALS, e

    for broker_id, record in list(cluster.image.broker_modes.items()):
        cluster.run(EndBrokerMode(broker_id, Mode(record.mode)))
    cluster.now_ms += 20_000
    for broker_id in range(BROKERS):
        broker = cluster.image.brokers.get(broker_id)
        if broker is None or broker.in_controlled_shutdown or broker.dead:
            cluster.register(broker_id, cluster.lives.get(broker_id, 0) + 1)
    for broker_id in (*range(BROKERS), *range(BROKERS)):
        cluster.contact(broker_id)

    assert not any(broker.fenced for broker in cluster.image.brokers.values())
    for topic in cluster.image.topics():
        for partition in topic.partitions():
            assert partition.leader != NO_LEADER, partition
