"""A simulated client: admin operations, one after the other, each remembered with what was answered."""

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, NodeId, Offset
from metadata_log.format.partition_state import ELR, LEADER, PartitionState
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.election_rules import MIN_ISR_KEY
from quorum.controller.protocol.commands import Command, UnregisterBroker, UnregisterBrokerReply
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    AlterConfigsReply,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.controller.protocol.election_commands import (
    ElectionType,
    ElectLeaders,
    ElectLeadersReply,
    TopicPartition,
)
from quorum.controller.protocol.topic_commands import (
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    DeleteTopicsReply,
    NewPartitions,
    NewTopic,
)
from quorum.runtime.protocol.requests import ReadView, Refused, SnapshotMarked
from quorum.runtime.protocol.world import Answer, Read, SnapshotWanted, Submission
from tests.sim.laws.broken import hold
from tests.sim.nodes.controllers import Make, SimController
from tests.sim.nodes.moding import Moding
from tests.sim.nodes.reassigning import reassign
from tests.sim.nodes.upgrading import Upgrading

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

TIMEOUT_MS = 2_000
PATIENCE_MS = 600
"""After so long without any answer, another controller is tried."""
WANDERING_CHANCE = 0.2
"""How often a question goes to any controller, whoever leads: perhaps to one that does not know that it is deposed."""

OnAnswer: TypeAlias = Callable[[Answer, Offset], None]
"""Given the answer, and the floor that stood when the question was asked (`laws.clients`)."""


class SimClient:
    """Asks whom it believes to lead. Every topic that it creates has a name of its own, so that effects are told apart.

    With `repeats` its requests may arrive more than once, as through a proxy that tries again; without, a refusal is final.
    """

    def __init__(self, cluster: "Cluster", name: str, *, repeats: bool) -> None:
        self.cluster = cluster
        self.name = name
        self.answers = 0
        """How many writes were acknowledged."""
        self._repeats = repeats
        self._happens_once = not repeats
        self._rng = random.Random(cluster.rng.random())
        self._reassigning = random.Random(f"{name} reassigns {self._rng.getstate()[1][:4]}")
        self._moding = Moding(self, random.Random(f"{name} drains {self._rng.getstate()[1][:4]}"))
        self._electing = random.Random(f"{name} elects {self._rng.getstate()[1][:4]}")
        self._upgrading = Upgrading(cluster, name, self.submit)
        self._target: SimController = cluster.controllers[0]
        self._count = 0
        self._topics: list[str] = []
        self._answered_ms = 0.0

    def act(self) -> None:
        """Begins one operation."""
        self.look_for_another()
        if self._upgrading.is_due():
            self._upgrading.act()
            return
        if self._topics and self._reassigning.random() < self.cluster.options.reassign_chance:
            reassign(self, self._reassigning.choice(self._topics), self._reassigning)
            return
        if self._moding.act():
            return
        chance = self.cluster.options.min_isr_change_chance
        if chance and self._topics and self._electing.random() < chance:
            self._set_min_isr()
            return
        if self._topics and self._electing.random() < self.cluster.options.elect_chance:
            self._elect()
            return
        roll = self._rng.random()
        if roll < 0.20:
            self._read()
        elif roll < 0.22:
            self._mark()
        elif roll < 0.25 and self.cluster.brokers:
            self._send_away()
        elif roll < 0.28 or not self.cluster.options.brokers:
            self._set_default()
        elif roll < 0.60 or not self._topics:
            self._create()
        elif roll < 0.76:
            self._delete()
        else:
            self._change()

    def look_for_another(self) -> None:
        """After a while without any answer, asks another controller."""
        if self.cluster.now_ms - self._answered_ms > PATIENCE_MS:
            self._answered_ms = self.cluster.now_ms
            self._target = self._rng.choice(self.cluster.controllers)

    # --- writes ----------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        self._count += 1
        name, clients = f"{self.name}-{self._count}", self.cluster.laws.clients
        factor = self._rng.randint(1, min(3, self.cluster.options.brokers))
        count = self._rng.randint(1, 4)
        if self._electing.random() < self.cluster.options.large_topic_chance:
            count += 20
        configs = [("retention.ms", "60000")]
        if self.cluster.options.keeps_elr and self._electing.random() < 0.5:
            configs.append((MIN_ISR_KEY, "2"))
        topic = NewTopic(name, count, factor, (), tuple(configs))
        self.cluster.laws.placement.asked(name, count, factor)
        if self._happens_once:
            clients.happens_at_most_once(name)

        def answered(answer: Answer, floor: Offset) -> None:
            if isinstance(answer, CreateTopicsReply):
                result = answer.results[0].error
                if result is ErrorCode.NONE:
                    clients.created(name, answer.offset, floor)
                    self._topics.append(name)
                else:
                    clients.answered(answer.offset, floor)
                if self._happens_once:
                    clients.never_meets_itself(name, result)
                final = result is not ErrorCode.NONE
            else:
                assert isinstance(answer, Refused)
                final = answer.code is not ErrorCode.REQUEST_TIMED_OUT
            if final and not self._repeats:
                clients.never_happens(name)

        self.submit(CreateTopics((topic,)), answered)

    def _delete(self) -> None:
        name, clients = self._rng.choice(self._topics), self.cluster.laws.clients
        self._topics.remove(name)

        def answered(answer: Answer, floor: Offset) -> None:
            if isinstance(answer, DeleteTopicsReply):
                if answer.results[0].error is ErrorCode.NONE:
                    clients.removed(name, answer.offset, floor)
                else:
                    clients.answered(answer.offset, floor)

        self.submit(DeleteTopics((name,)), answered)

    def _change(self) -> None:
        name = self._rng.choice(self._topics)
        if self._rng.random() < 0.4:
            self._grow(name, self._rng.randint(1, 8))
        else:
            self._set(TOPIC_RESOURCE, name, "retention.ms")

    def _send_away(self) -> None:
        """Some broker is to be forgotten; which is refused as long as it is heard, or holds anything."""
        broker_id, clients = self._rng.choice(sorted(self.cluster.brokers)), self.cluster.laws.clients

        def answered(answer: Answer, floor: Offset) -> None:
            if isinstance(answer, Refused):
                self.cluster.coverage["broker not sent away"] += answer.code is ErrorCode.POLICY_VIOLATION
            else:
                assert isinstance(answer, UnregisterBrokerReply)
                clients.answered(answer.offset, floor)

        self.submit(UnregisterBroker(broker_id), answered)

    def _elect(self) -> None:
        """Of some partitions of a topic, by any of the three types; a broker that is named often has no replica."""
        dice, laws = self._electing, self.cluster.laws
        name, election_type = dice.choice(self._topics), dice.choice(tuple(ElectionType))
        if self.cluster.options.data and election_type is ElectionType.UNCLEAN:
            election_type = ElectionType.PREFERRED  # an unclean election loses acknowledged records, as it says
        leader = NO_LEADER
        if election_type is ElectionType.DESIGNATED or (election_type is ElectionType.UNCLEAN and dice.random() < 0.5):
            leader = dice.choice(sorted(self.cluster.brokers))
        if election_type is ElectionType.UNCLEAN:
            name = next(self._topics_where(lambda state: state[LEADER] == NO_LEADER), name)
            laws.metadata.elected_uncleanly(name)
        places = tuple(TopicPartition(name, partition) for partition in range(dice.randint(1, 4)))

        def answered(answer: Answer, floor: Offset) -> None:
            if isinstance(answer, ElectLeadersReply):
                hold(
                    len(answer.results) == len(places), "C1 Answered", f"{len(answer.results)} results of {len(places)}"
                )
                elected = sum(result.error is ErrorCode.NONE for result in answer.results)
                self.cluster.coverage[f"{election_type.name.lower()} election"] += elected
                laws.clients.answered(answer.offset, floor)

        self.submit(ElectLeaders(places, election_type, leader), answered)

    def seen_image(self) -> MetadataImage | None:
        """The image of the asked controller: an operator looks first."""
        node = self._target.node
        return None if node is None else node.state.committed

    def _topics_where(self, holds: Callable[[PartitionState], bool]) -> Iterator[str]:
        """The topics with such a partition, as the asked controller sees them."""
        image = self.seen_image()
        if image is not None:
            for topic in image.topics():
                if any(map(holds, topic.states())):
                    yield topic.name

    def _set_default(self) -> None:
        self._set(BROKER_RESOURCE, "", "log.retention.ms")

    def _set_min_isr(self) -> None:
        """Of a topic, or now and then of all topics that do not say it."""
        dice = self._electing
        with_elr = [*self._topics_where(lambda state: bool(state[ELR]))] if dice.random() < 0.7 else []
        name = "" if dice.random() < 0.3 else dice.choice(with_elr or self._topics)
        self._set(TOPIC_RESOURCE if name else BROKER_RESOURCE, name, MIN_ISR_KEY)

    def _grow(self, name: str, count: int) -> None:
        clients = self.cluster.laws.clients

        def answered(answer: Answer, floor: Offset) -> None:
            if isinstance(answer, CreatePartitionsReply):
                if answer.results[0].error is ErrorCode.NONE:
                    clients.grown(name, count, answer.offset, floor)
                else:
                    clients.answered(answer.offset, floor)

        self.submit(CreatePartitions((NewPartitions(name, count),)), answered)

    def _set(self, resource_type: int, name: str, key: str) -> None:
        """To one of a few values, so that it often is so already."""
        value, clients = str(self._rng.randint(1, 3)), self.cluster.laws.clients
        operation = ConfigOperation(ConfigOperationKind.SET, key, value)

        def answered(answer: Answer, floor: Offset) -> None:
            if isinstance(answer, AlterConfigsReply):
                if answer.results[0].error is ErrorCode.NONE:
                    clients.configured((resource_type, name, key), value, answer.offset, floor)
                else:
                    clients.answered(answer.offset, floor)

        self.submit(AlterConfigs((ConfigAlteration(resource_type, name, (operation,)),)), answered)

    def _mark(self) -> None:
        if not self.cluster.poisoning.may_mark():
            return

        def answered(answer: Answer, floor: Offset) -> None:
            if isinstance(answer, SnapshotMarked):
                self.cluster.laws.clients.answered(answer.offset, floor)

        self._send(
            lambda reply_to, now_ms: SnapshotWanted("asked for", reply_to, now_ms + TIMEOUT_MS), answered, "mark"
        )

    # --- reads -----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        def answered(answer: Answer, floor: Offset) -> None:
            if isinstance(answer, ReadView):
                self.cluster.coverage["linearizable read"] += 1
                self.cluster.laws.clients.read(answer.as_of_offset, answer.image, floor)

        self._send(lambda reply_to, now_ms: Read(reply_to, now_ms + TIMEOUT_MS), answered, "read")

    # --- the wire --------------------------------------------------------------------------------------------------

    def submit(self, command: Command, on_answer: OnAnswer) -> None:
        """Sends a command to the believed leader."""
        what = type(command).__name__

        def answered(answer: Answer, floor: Offset) -> None:
            if not isinstance(answer, Refused):
                self.answers += 1
                self.cluster.coverage["acknowledged write"] += 1
            elif answer.code is ErrorCode.REQUEST_TIMED_OUT:
                self.cluster.coverage["unknown outcome"] += 1
            on_answer(answer, floor)

        self._send(lambda reply_to, now_ms: Submission(command, reply_to, now_ms + TIMEOUT_MS), answered, what)

    def ask(self, make: Make, on_answer: OnAnswer, what: str) -> None:
        """Sends anything else once."""
        self._send(make, on_answer, what)

    def is_final(self, answer: Answer) -> bool:
        """True if a refused request of this client cannot be done later."""
        timed_out = isinstance(answer, Refused) and answer.code is ErrorCode.REQUEST_TIMED_OUT
        return not self._repeats and not timed_out

    def _send(self, make: Make, on_answer: OnAnswer, what: str) -> None:
        target, network, floor = self._target, self.cluster.network, self.cluster.laws.clients.floor
        if self._rng.random() < WANDERING_CHANCE:
            target = self._rng.choice(self.cluster.controllers)

        def arrive(answer: Answer) -> None:
            self._answered_ms = self.cluster.now_ms
            if isinstance(answer, Refused) and answer.code is ErrorCode.NOT_CONTROLLER:
                self._turn_to(None if answer.hint is None else answer.hint.leader_id)
            on_answer(answer, floor)

        def back(answer: Answer) -> None:
            network.carry(target.name, self.name, lambda: arrive(answer), repeats=self._repeats)

        network.carry(
            self.name, target.name, lambda: target.ask(make, back, f"{what} {self.name}"), repeats=self._repeats
        )

    def _turn_to(self, leader_id: NodeId | None) -> None:
        controllers = self.cluster.controllers
        self._target = self._rng.choice(controllers) if leader_id is None else self.cluster.controller(leader_id)
