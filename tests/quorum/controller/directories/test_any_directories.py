"""Random histories of assignments, losses, restarts and elections, against a dumb twin.

The twin has three dictionaries: the directories that each broker has online, the directory of each replica, and the processes'
numbers. It repeats no decision of the controller: it says where each replica is recorded, and judges by that who may lead.
"""

import random
from collections import Counter
from dataclasses import replace
from typing import Final, cast

import pytest

from metadata_log.format.codec import decode_record, encode_record
from metadata_log.format.columns import pack_lists
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import LOST_DIRECTORY, NO_LEADER, UNASSIGNED_DIRECTORY, NodeId, Uuid
from metadata_log.format.partition_runs import PartitionRun, columns_of, run_of
from metadata_log.format.partition_state import DIRECTORIES, PartitionState
from metadata_log.format.records import TOPIC_RESOURCE, PartitionColumns
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.controller import Controller
from quorum.controller.protocol.commands import AlterPartition, Command, IsrMember, PartitionAlteration
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.directory_commands import (
    AssignReplicasToDirs,
    AssignReplicasToDirsReply,
    DirectoryAssignment,
)
from quorum.controller.protocol.election_commands import ElectionType, ElectLeaders, TopicPartition
from quorum.controller.protocol.reassignment_commands import AlterPartitionReassignments, Reassignment
from tests.quorum.controller.cluster import Cluster, registration
from tests.quorum.controller.leadership.test_election_rules import MIN_ISR, UNCLEAN, alter
from tests.quorum.controller.leadership.test_eligible_leaders import turn_elr

BROKERS: Final = (0, 1, 2, 3)
NAMES: Final = "ABC"
PARTITIONS: Final = 6
STEPS: Final = 200


def directory(broker_id: NodeId, name: str) -> Uuid:
    return bytes([ord(name), *broker_id.to_bytes(4, "big"), *bytes(11)])


class TwinnedCluster(Cluster):
    """Every image, also between the batches of one decision, obeys the law of directories."""

    def fold(self, decision: Decision) -> None:
        super().fold(decision)
        self.check_laws()


class History:
    """One random history of one topic, with all brokers in all directories."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.seen: Counter[str] = Counter()
        slice_max = self.dice.choice((1, 5, 1_000))
        config = ControllerConfig(slice_changes_max=slice_max, slice_partitions_max=slice_max)
        self.cluster = TwinnedCluster(config=config, seed=seed)
        self.has_elr = seed % 2 == 0
        turn_elr(self.cluster, on=self.has_elr)
        self.online: dict[NodeId, set[Uuid]] = {}
        self.failed: dict[NodeId, set[Uuid]] = {each: set() for each in BROKERS}
        self.at: dict[tuple[int, NodeId], Uuid] = {}
        for broker_id in BROKERS:
            self.restarts(broker_id, NAMES)
            self.cluster.contact(broker_id)
        self.cluster.assign("t", *[tuple(self.dice.sample(BROKERS, 3)) for _ in range(PARTITIONS)])
        alter(self.cluster, (TOPIC_RESOURCE, "t"), MIN_ISR, "2")

    def run(self) -> "History":
        steps = {
            self.assigns: 8,
            self.is_heard: 8,
            self.proposes: 8,
            self.loses: 3,
            self.comes_back: 3,
            self.is_fenced: 2,
            self.elects: 2,
            self.is_reassigned: 2,
            self.fails_over: 1,
        }
        for _ in range(STEPS):
            self.dice.choices(list(steps), list(steps.values()))[0](self.dice.choice(BROKERS))
            self.agrees()
        return self

    # --- the steps -------------------------------------------------------------------------------------------------

    def decides(self, command: Command) -> object:
        try:
            return self.cluster.run(command).reply
        except ControllerError as e:
            return e.code

    def image(self) -> MetadataImage:
        return self.cluster.image

    def restarts(self, broker_id: NodeId, names: str) -> None:
        """The next process has the directories that are sound."""
        old = self.image().brokers.get(broker_id)
        life = self.cluster.lives.get(broker_id, 0) + 1
        command = replace(registration(broker_id, life), log_dirs=tuple(directory(broker_id, each) for each in names))
        if old is not None:
            proof = old.broker_epoch if self.dice.random() < 0.7 else -1
            command = replace(command, previous_incarnation_id=old.incarnation_id, previous_broker_epoch=proof)
        self.cluster.run(command)
        self.cluster.lives[broker_id] = life
        self.online[broker_id] = set(command.log_dirs)
        self.failed[broker_id] = set()

    def comes_back(self, broker_id: NodeId) -> None:
        self.restarts(broker_id, self.dice.choice((NAMES, NAMES, "AB", "C")))
        self.seen["restart"] += 1

    def report(self, broker_id: NodeId, **wishes: bool) -> None:
        """A fetch, which names the failed directories every time."""
        failed = tuple(sorted(self.failed[broker_id]))
        self.decides(self.cluster.said_by(broker_id, offline_log_dirs=failed, **wishes))
        self.online[broker_id] -= self.failed[broker_id]

    def is_heard(self, broker_id: NodeId) -> None:
        self.report(broker_id)

    def is_fenced(self, broker_id: NodeId) -> None:
        self.report(broker_id, wants_fence=True)

    def loses(self, broker_id: NodeId) -> None:
        if self.online[broker_id]:
            self.failed[broker_id].add(self.dice.choice(sorted(self.online[broker_id])))
            self.seen["loss"] += 1
            self.seen["loss of the last directory"] += self.failed[broker_id] >= self.online[broker_id]
            self.report(broker_id)

    def assigns(self, broker_id: NodeId) -> None:
        """To directories that are online, failed, of another broker, or lost."""
        topic = self.image().topic("t")
        assert topic is not None
        places = self.dice.sample(range(PARTITIONS), self.dice.randint(1, PARTITIONS))
        targets = [directory(broker_id, each) for each in NAMES] + [directory(9, "A"), LOST_DIRECTORY]
        weights = (5, 5, 5, 1, 1)
        wanted = [DirectoryAssignment(topic.topic_id, each, self.dice.choices(targets, weights)[0]) for each in places]
        epoch = self.image().brokers[broker_id].broker_epoch
        before = [state.replicas for state in self.cluster.partitions("t")]
        reply = self.decides(AssignReplicasToDirs(broker_id, epoch, tuple(wanted)))
        assert isinstance(reply, AssignReplicasToDirsReply)
        for each, result in zip(wanted, reply.results, strict=True):
            if broker_id not in before[each.partition]:
                expected = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif each.directory not in {*self.online[broker_id], LOST_DIRECTORY}:
                expected = ErrorCode.LOG_DIR_NOT_FOUND
            else:
                expected = ErrorCode.NONE
                self.at[each.partition, broker_id] = each.directory
            assert result.error is expected, (result, expected)
            self.seen[expected.name] += 1

    def proposes(self, broker_id: NodeId) -> None:
        """A leader proposes everybody: granted if each member is online and in an online directory."""
        number = self.dice.randrange(PARTITIONS)
        state = self.cluster.partitions("t")[number]
        if state.leader == NO_LEADER:
            return
        members = tuple(IsrMember(each) for each in state.replicas if each == state.leader or self.dice.random() < 0.8)
        alteration = PartitionAlteration(state.topic_id, number, state.leader_epoch, state.partition_epoch, members)
        epoch = self.image().brokers[state.leader].broker_epoch
        is_good = all(self.may_serve(number, each.broker_id) for each in members)
        self.decides(AlterPartition(state.leader, epoch, (alteration,)))
        entered = set(self.cluster.partitions("t")[number].isr) - set(state.isr)
        assert is_good or not entered, (members, state)
        self.seen["replica entered the ISR"] += bool(entered)

    def elects(self, broker_id: NodeId) -> None:
        kind = self.dice.choice((ElectionType.PREFERRED, ElectionType.UNCLEAN, ElectionType.DESIGNATED))
        leader = broker_id if kind is ElectionType.DESIGNATED else NO_LEADER
        places = tuple(TopicPartition("t", each) for each in range(PARTITIONS))
        self.decides(ElectLeaders(places, kind, leader))
        if self.dice.random() < 0.2:
            alter(self.cluster, (TOPIC_RESOURCE, "t"), UNCLEAN, self.dice.choice(("true", "false")))
            self.catches_up()

    def is_reassigned(self, broker_id: NodeId) -> None:
        target = tuple(self.dice.sample(BROKERS, self.dice.randint(1, 3)))
        number = self.dice.randrange(PARTITIONS)
        self.decides(AlterPartitionReassignments((Reassignment("t", number, target if broker_id else None),)))

    def fails_over(self, broker_id: NodeId) -> None:
        self.cluster.controller = Controller(self.cluster.controller.config, self.dice)
        self.cluster.controller.activate(self.image(), self.cluster.now_ms)
        self.catches_up()

    def catches_up(self) -> None:
        while (due := self.cluster.controller.due(self.image(), self.cluster.now_ms)) is not None:
            self.decides(due)

    # --- the twin --------------------------------------------------------------------------------------------------

    def may_serve(self, number: int, broker_id: NodeId) -> bool:
        """The broker is online, and so is the directory of its replica."""
        where = self.at.get((number, broker_id), UNASSIGNED_DIRECTORY)
        is_there = where == UNASSIGNED_DIRECTORY or where in self.online[broker_id]
        return is_there and not self.image().brokers[broker_id].fenced

    def agrees(self) -> None:
        """The image has the twin's directories, parallel to the replicas; and who can lead cleanly does."""
        for broker_id in BROKERS:
            assert set(self.image().brokers[broker_id].log_dirs) == self.online[broker_id], broker_id
        for state in self.cluster.partitions("t"):
            number = state.partition
            for place in [place for place in self.at if place[0] == number and place[1] not in state.replicas]:
                del self.at[place]  # the replica was removed, and its directory with it
            able = {each for each in state.replicas if self.may_serve(number, each)}
            assert state.leader == NO_LEADER or state.leader in able, state
            if state.leader == NO_LEADER:
                assert able.isdisjoint((*state.isr, *state.elr)), (state, able)
                self.seen["leaderless"] += 1
            self.seen["offline replica"] += any(
                each not in able and not self.image().brokers[each].fenced for each in state.replicas
            )
        assert self.recorded() == self.expected()

    def recorded(self) -> list[tuple[Uuid, ...]]:
        """The directories of the replicas of each partition, as in the image."""
        states = self.cluster.partitions("t")
        return [state.directories or (UNASSIGNED_DIRECTORY,) * len(state.replicas) for state in states]

    def expected(self) -> list[tuple[Uuid, ...]]:
        """The directories of the replicas of each partition, as in the twin."""
        return [
            tuple(self.at.get((state.partition, each), UNASSIGNED_DIRECTORY) for each in state.replicas)
            for state in self.cluster.partitions("t")
        ]


@pytest.mark.parametrize("seed", range(20))
def test_the_directories_agree_with_the_twin(seed: int) -> None:
    """In each image the leader of a partition is in an online directory, whatever happens between two batches.

    `agrees` checks the image after each step; the last image is compared here.
    """
    history = History(seed).run()
    assert history.recorded() == history.expected()


@pytest.mark.parametrize("seed", range(3))
def test_a_snapshot_keeps_the_directories(seed: int) -> None:
    """A snapshot has partitions in columns; read back, each is in the same state. Without directories their column is empty."""
    topic = History(seed).run().cluster.image.topic("t")
    assert topic is not None
    states = list(topic.states())
    assert any(state[DIRECTORIES] for state in states)
    packed = encode_record(columns_of(PartitionRun(topic.topic_id, 0, states, 0)))
    record = decode_record(packed)
    assert isinstance(record, PartitionColumns)
    assert list(run_of(record).states) == states
    bare = [cast(PartitionState, (*state[:DIRECTORIES], (), *state[DIRECTORIES + 1 :])) for state in states]
    columns = columns_of(PartitionRun(topic.topic_id, 0, bare, 0))
    assert columns.lists[-1] == pack_lists([()] * len(bare))
    assert len(encode_record(columns)) < len(packed)


def test_the_histories_come_across_what_they_are_for() -> None:
    seen = sum((History(seed).run().seen for seed in range(6)), Counter())
    kinds = (
        "loss",
        "restart",
        "leaderless",
        "offline replica",
        "replica entered the ISR",
        "loss of the last directory",
    )
    codes = ("NONE", "LOG_DIR_NOT_FOUND", "NOT_LEADER_OR_FOLLOWER")
    assert all(seen[kind] > 5 for kind in (*kinds, *codes)), seen
