"""No turn is long, for the largest requests too: counted in records and in calls, which are the same on every machine.

`python -m benchmarks.turns` measures the same in milliseconds. A turn of 40,000 calls takes 5 to 8 ms.
"""

import cProfile
from collections.abc import Callable

import pytest

from metadata_log.format.ids import NodeId
from metadata_log.format.partition_state import LEADER, LEADER_EPOCH, PARTITION_EPOCH
from quorum.controller.protocol.commands import AlterPartition, Command, FenceBroker, IsrMember, PartitionAlteration
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.controller.protocol.election_commands import ElectionType, ElectLeaders, TopicPartition
from quorum.controller.protocol.mode_commands import DrainBroker
from quorum.controller.protocol.reassignment_commands import AlterPartitionReassignments, Reassignment
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.controller.protocol.topic_commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
)
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.requests import MetadataFetch, Refused
from quorum.runtime.protocol.world import BrokerFetch, Event, Submission
from tests.quorum.runtime.active.brokers import register, uuid
from tests.quorum.runtime.lone_node import LoneNode, formatted_disk, voters_of

CONFIG = NodeConfig(controller=ControllerConfig(reassignment_moves_per_broker_max=100_000))
RECORDS_MAX = 1_100
CALLS_MAX = 40_000
TOPICS = tuple(f"t{number}" for number in range(1_200))
PLACES = tuple(("large", partition) for partition in range(3_000))
"""Broker 7 leads all of them, and broker 8 is in sync."""


class CountingNode(LoneNode):
    """A node that counts the work of its turns."""

    records = calls = turns = 0
    """Those of the largest turn, and how many turns there were."""

    def turn(self, *events: Event) -> None:
        """Takes one turn, counted."""
        end, profile = self.node.log.end, cProfile.Profile()
        profile.enable()
        super().turn(*events)
        profile.disable()
        self.turns += 1
        self.records = max(self.records, self.node.log.end - end)
        self.calls = max(self.calls, sum(entry.callcount for entry in profile.getstats()))

    def settle(self) -> None:
        """Turns and jobs until nothing is left."""
        while self.jobs or self.node.has_more_to_do:
            self.run_until_idle()
            self.turn()

    def ask(self, command: Command) -> None:
        """Submits a request, and counts its work until it is done."""
        self.records = self.calls = self.turns = 0
        reply_to = self.new_reply_to()
        identity = RequestIdentity(reply_to.to_bytes(16, "big"), bytes(32), "anonymous", self.node.log.end)
        is_brokers = isinstance(command, AlterPartition)
        self.turn(Submission(command, reply_to, self.now_ms + 60_000, None if is_brokers else identity))
        self.settle()
        assert not isinstance(self.answers[reply_to], Refused), self.answers[reply_to]

    def unfence(self, broker_id: NodeId) -> None:
        """Registers a broker, which fetches once."""
        broker_epoch, log = register(self, broker_id), self.node.log
        chain = log.chain_at(log.end)
        assert chain is not None
        where = (log.end, log.shape.last_epoch, chain)
        fetch = MetadataFetch(broker_id, broker_epoch, uuid(broker_id), *where, False, False, (), 0, 1 << 20)
        self.turn(BrokerFetch(fetch, self.new_reply_to()))
        self.settle()


@pytest.fixture(scope="module")
def lone() -> CountingNode:
    """An active controller with the brokers 7, 8 and 9, 1,200 small topics, and one with 3,000 partitions on 7 and 8."""
    lone = CountingNode(formatted_disk(voters_of([1])), CONFIG)
    lone.settle()
    for broker_id in (7, 8, 9):
        lone.unfence(broker_id)
    lone.ask(CreateTopics(tuple(NewTopic(name, 1, 1) for name in TOPICS)))
    lone.ask(CreateTopics((NewTopic("large", assignment=((7, 8),) * len(PLACES)),)))
    return lone


def shrunk(lone: LoneNode) -> Command:
    """Broker 7 proposes itself alone as the ISR of every partition that it leads."""
    image = lone.node.state.committed
    topic = image.topic("large")
    assert topic is not None
    proposals = tuple(
        PartitionAlteration(topic.topic_id, number, state[LEADER_EPOCH], state[PARTITION_EPOCH], (IsrMember(7),))
        for number, state in enumerate(topic.states())
        if state[LEADER] == 7
    )
    assert len(proposals) > 1_000
    return AlterPartition(7, image.brokers[7].broker_epoch, proposals)


def configs(key: str) -> Command:
    operations = (ConfigOperation(ConfigOperationKind.SET, key, "2"),)
    return AlterConfigs(tuple(ConfigAlteration(2, name, operations) for name in TOPICS))


LARGE: dict[str, Callable[[LoneNode], Command]] = {
    "create one topic": lambda _: CreateTopics((NewTopic("huge", 5_000, 3),)),
    "create in one batch": lambda _: CreateTopics((NewTopic("medium", 1_000, 3),)),
    "create many topics": lambda _: CreateTopics(tuple(NewTopic(f"n{number}", 1, 1) for number in range(1_000))),
    "create topics with many separators": lambda _: CreateTopics(
        tuple(NewTopic("a.b_c.d_e.f_g.h_" + "._" * (number % 3) + str(number), 1, 1) for number in range(500))
    ),
    "grow": lambda _: CreatePartitions((NewPartitions("t0", 3_000),)),
    "alter configs": lambda _: configs("retention.ms"),
    "alter configs that concern elections": lambda _: configs("min.insync.replicas"),
    "elect": lambda _: ElectLeaders(tuple(TopicPartition(*each) for each in PLACES), ElectionType.DESIGNATED, 8),
    "elect back": lambda _: ElectLeaders(tuple(TopicPartition(*each) for each in PLACES)),
    "reassign": lambda _: AlterPartitionReassignments(tuple(Reassignment(*each, (9, 7)) for each in PLACES)),
    "reassign, tried only": lambda _: AlterPartitionReassignments(
        tuple(Reassignment(*each, (9, 8)) for each in PLACES), validate_only=True
    ),
    "cancel": lambda _: AlterPartitionReassignments(tuple(Reassignment(*each, None) for each in PLACES)),
    "propose ISRs": shrunk,
    "drain": lambda _: DrainBroker(8),
    "fence": lambda _: FenceBroker(7),
    "delete": lambda _: DeleteTopics(TOPICS),
    "delete a large one": lambda _: DeleteTopics(("large",)),
}
"""In this order, on one cluster."""


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_no_request_makes_a_turn_long(name: str, lone: CountingNode) -> None:
    """However large the request is, each of its turns does a bounded part."""
    lone.ask(LARGE[name](lone))
    assert lone.records <= RECORDS_MAX, lone.records
    assert lone.calls <= CALLS_MAX, lone.calls
