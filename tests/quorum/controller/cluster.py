"""A cluster without a log: an image, a controller, and the few lines between them that the runtime has for real."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from metadata_log.format.ids import NO_LEADER, NodeId, Uuid
from metadata_log.format.records import (
    ELR_VERSION,
    FENCED_MODE,
    METADATA_VERSION_MAX,
    STATE_REASONS,
    Endpoint,
    FeatureRange,
    MetadataRecord,
    Partition,
)
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.log_directories import offline_replicas
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from quorum.controller.brokers.contact import BrokerState, state_of
from quorum.controller.controller import Controller
from quorum.controller.protocol.commands import (
    BrokerContact,
    Command,
    CommandReply,
    FollowUpReply,
    RegisterBrokerCommand,
    RegisterBrokerReply,
)
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import Decision
from quorum.controller.protocol.feature_commands import BootstrapFeatures
from quorum.controller.protocol.happenings import Happening
from quorum.controller.protocol.topic_commands import CreateTopics, CreateTopicsReply, NewTopic, TopicResult

R = TypeVar("R")

WALL_MS = 1_700_000_000_000
"""The time of day at `now_ms` 0."""


def incarnation(broker_id: NodeId, life: int = 1) -> Uuid:
    return bytes([life, *broker_id.to_bytes(4, "big"), *bytes(11)])


def registration(
    broker_id: NodeId, life: int = 1, rack: str | None = None, *, reads_reasons: bool = False
) -> RegisterBrokerCommand:
    """The registration of a broker process; without `reads_reasons` of an older release."""
    return RegisterBrokerCommand(
        broker_id,
        incarnation(broker_id, life),
        (Endpoint("PLAIN", f"b{broker_id}", 9092),),
        (
            FeatureRange("metadata.version", 1, METADATA_VERSION_MAX),
            FeatureRange(ELR_VERSION, 0, 1),
            *([FeatureRange(STATE_REASONS, 0, 1)] if reads_reasons else []),
        ),
        rack,
        (bytes([200, *broker_id.to_bytes(4, "big"), *bytes(11)]),),
    )


@dataclass
class Run:
    """What became of one command: every record that it led to, the last reply, and the story as it is told."""

    records: list[MetadataRecord]
    reply: CommandReply
    steps: int
    happenings: list[Happening]


def records_of(found: Iterable[Decision]) -> list[MetadataRecord]:
    return [record for decision in found for record in decision.records]


class Cluster:
    """The image is replayed after every decision, as the runtime does, and its invariants hold each time."""

    def __init__(
        self, brokers: int = 0, *, racks: int = 0, config: ControllerConfig | None = None, seed: int = 1
    ) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.controller = Controller(config or ControllerConfig(), random.Random(seed))
        self.now_ms = 1_000
        self.lives: dict[NodeId, int] = {}
        self.controller.activate(self.image, self.now_ms)
        self.run(BootstrapFeatures(self.controller.config.bootstrap_metadata_version))
        for broker_id in range(brokers):
            self.register(broker_id, rack=f"rack-{broker_id % racks}" if racks else None)
            self.contact(broker_id)

    def fold(self, decision: Decision) -> None:
        delta = MetadataDelta(self.image)
        base = self.image.offset
        for index, record in enumerate(decision.records):
            delta.replay(record, base + index)
        end = base + len(decision.records)
        self.image = delta.finish(Provenance(end, 1, self.now_ms))
        self.image.check_invariants()

    def append(self, *records: MetadataRecord) -> None:
        """Records that no command has asked for."""
        self.fold(Decision(records, FollowUpReply()))

    def decisions(self, command: Command) -> list[Decision]:
        """The decisions to which the command leads, each folded into the image."""
        return list(self._decided(command))

    def _decided(self, command: Command) -> Iterator[Decision]:
        following: Command | None = command
        steps = 0
        while following is not None:
            decision = self.controller.decide(self.image, following, self.now_ms, WALL_MS + self.now_ms)
            self.fold(decision)
            yield decision
            following = decision.then
            steps += 1
            assert steps < 1_000, command

    def run(self, command: Command) -> Run:
        """The command and all that follows from it."""
        records: list[MetadataRecord] = []
        happenings: list[Happening] = []
        steps = 0
        for decision in self._decided(command):
            records += decision.records
            happenings += decision.story(self.image.offset)
            steps += 1
        return Run(records, decision.answer(self.image.offset), steps, happenings)

    def ask(self, command: Command, reply_type: type[R]) -> R:
        reply = self.run(command).reply
        assert isinstance(reply, reply_type)
        return reply

    def register(self, broker_id: NodeId, life: int = 1, rack: str | None = None) -> RegisterBrokerReply:
        reply = self.ask(registration(broker_id, life, rack), RegisterBrokerReply)
        self.lives[broker_id] = life
        return reply

    def contact(
        self,
        broker_id: NodeId,
        *,
        offset: int | None = None,
        wants_fence: bool = False,
        wants_shut_down: bool = False,
        offline_log_dirs: tuple[Uuid, ...] = (),
    ) -> list[MetadataRecord]:
        """The broker fetches, caught up unless an offset is given; returns what came of it."""
        said = self.said_by(
            broker_id,
            offset=offset,
            wants_fence=wants_fence,
            wants_shut_down=wants_shut_down,
            offline_log_dirs=offline_log_dirs,
        )
        return self.run(said).records

    def said_by(
        self,
        broker_id: NodeId,
        *,
        offset: int | None = None,
        wants_fence: bool = False,
        wants_shut_down: bool = False,
        offline_log_dirs: tuple[Uuid, ...] = (),
    ) -> BrokerContact:
        """That fetch."""
        return BrokerContact(
            broker_id,
            self.image.brokers[broker_id].broker_epoch,
            incarnation(broker_id, self.lives[broker_id]),
            self.image.offset if offset is None else offset,
            wants_fence,
            wants_shut_down,
            offline_log_dirs,
        )

    def create(self, name: str, partitions: int = 1, replication_factor: int = 3) -> None:
        assert self.create_one(NewTopic(name, partitions, replication_factor)).message == ""

    def create_one(self, topic: NewTopic) -> TopicResult:
        return self.ask(CreateTopics((topic,)), CreateTopicsReply).results[0]

    def partitions(self, name: str) -> list[Partition]:
        topic = self.image.topic(name)
        assert topic is not None
        return list(topic.partitions())

    def assign(self, name: str, *replicas: tuple[NodeId, ...]) -> None:
        """A topic with just these replicas."""
        result = self.create_one(NewTopic(name, assignment=replicas))
        assert not result.message, result.message

    def leaders(self, name: str) -> list[NodeId]:
        return [partition.leader for partition in self.partitions(name)]

    def check_laws(self) -> None:
        """M3 and M4: who is fenced leads nothing and stands in an ISR only as its last member. M10: so does who was fenced by an
        operator, and who is in maintenance leads only where no other can, but for what the controller still looks for. M18: nor
        does a replica in an offline log directory."""
        modes, brokers = self.image.broker_modes, self.image.brokers
        assert all(brokers[each].fenced for each in modes if modes[each].mode == FENCED_MODE), modes
        for topic in self.image.topics():
            for partition in topic.partitions():
                if partition.leader in modes and not self.controller._brokers._returns.looks:
                    others = {each for each in partition.isr if each in brokers and each not in modes}
                    idle = [each for each in others if state_of(brokers[each]) is BrokerState.ONLINE]
                    assert set(idle) <= self.controller._brokers.views._barred, partition
                offline = offline_replicas(self.image.brokers, partition.replicas, partition.directories)
                assert partition.leader not in offline, partition
                assert len(partition.isr) == 1 or set(partition.isr).isdisjoint(offline), partition
                for member in partition.isr:
                    broker = self.image.brokers.get(member)
                    if broker is None or broker.fenced:
                        assert partition.isr == (member,), partition
                        assert partition.leader == NO_LEADER, partition
