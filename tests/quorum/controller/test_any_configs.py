"""Configs with precedence against a dumb twin: one dictionary of what was set, and a list of levels for each question."""

import random

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE
from quorum.controller.partitions.election_rules import allows_unclean_election, min_isr_of
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    AlterConfigsReply,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.controller.protocol.topic_commands import DeleteTopics, NewTopic
from quorum.controller.topics.described_configs import describe_configs
from tests.quorum.controller.cluster import Cluster

NODE = 51
CONFIG = ControllerConfig(node_id=NODE, unclean_leader_election=True)
RETENTION, UNCLEAN, MIN_ISR = "retention.ms", "unclean.leader.election.enable", "min.insync.replicas"
CLUSTER_RETENTION = "log.retention.ms"
"""The name that the cluster's default of `retention.ms` has, as in Kafka."""
VALUES = {
    RETENTION: ("5", "-1", "3600000"),
    CLUSTER_RETENTION: ("7", "-1"),
    UNCLEAN: ("true", "false"),
    MIN_ISR: ("1", "2", "3"),
}
RESOURCES = [(TOPIC_RESOURCE, "a"), (TOPIC_RESOURCE, "b"), (BROKER_RESOURCE, ""), (BROKER_RESOURCE, str(NODE))]
Resource = tuple[int, str]


class Twin:
    """The values that were set, by resource and key."""

    def __init__(self) -> None:
        self.set: dict[tuple[Resource, str], str] = {}

    def first(self, *places: tuple[Resource, str], otherwise: str) -> str:
        return next((self.set[place] for place in places if place in self.set), otherwise)

    def retention(self, topic: str) -> str:
        places = ((TOPIC_RESOURCE, topic), RETENTION), ((BROKER_RESOURCE, ""), CLUSTER_RETENTION)
        return self.first(*places, otherwise="604800000")

    def unclean(self, topic: str) -> str:
        resources = ((TOPIC_RESOURCE, topic), (BROKER_RESOURCE, str(NODE)), (BROKER_RESOURCE, ""))
        return self.first(*((resource, UNCLEAN) for resource in resources), otherwise="true")

    def min_isr(self, topic: str) -> str:
        resources = ((TOPIC_RESOURCE, topic), (BROKER_RESOURCE, ""))
        return self.first(*((resource, MIN_ISR) for resource in resources), otherwise="1")


def is_allowed(resource: Resource, key: str, value: str | None) -> bool:
    """A cluster's name of a key is not a topic's. The minimum is never one node's; an old release's value may be deleted."""
    if resource[0] == TOPIC_RESOURCE:
        return key != CLUSTER_RETENTION
    return key != RETENTION and (key != MIN_ISR or resource[1] == "" or value is None)


def described(cluster: Cluster, topic: str) -> dict[str, str]:
    configs = describe_configs(cluster.image, TOPIC_RESOURCE, topic, CONFIG, with_defaults=True).configs
    return {config.key: config.value for config in configs}


@pytest.mark.parametrize("seed", range(20))
def test_the_value_that_holds_is_that_of_the_dumb_twin(seed: int) -> None:
    """After any changes, refused ones included: what is described, and what elections use, is what the levels say in order."""
    dice, twin = random.Random(seed), Twin()
    cluster = Cluster(3, config=CONFIG)
    for name in ("a", "b"):
        cluster.create_one(NewTopic(name, 1, 3))
    for _ in range(40):
        resource, key = dice.choice(RESOURCES), dice.choice([*VALUES])
        value = dice.choice((None, *VALUES[key]))
        kind = ConfigOperationKind.DELETE if value is None else ConfigOperationKind.SET
        alteration = ConfigAlteration(*resource, (ConfigOperation(kind, key, value or ""),))
        result = cluster.ask(AlterConfigs((alteration,)), AlterConfigsReply).results[0]
        assert (result.error is ErrorCode.NONE) is is_allowed(resource, key, value), (resource, key, value, result)
        if is_allowed(resource, key, value):
            twin.set.pop((resource, key), None)
            twin.set |= {} if value is None else {(resource, key): value}
        if dice.random() < 0.1:
            cluster.run(DeleteTopics(("b",)))
            cluster.create_one(NewTopic("b", 1, 3))  # a new topic with an old name has none of the old configs
            twin.set = {place: each for place, each in twin.set.items() if place[0] != (TOPIC_RESOURCE, "b")}
        for topic in ("a", "b"):
            told = described(cluster, topic)
            assert told[RETENTION] == twin.retention(topic)
            assert told[UNCLEAN] == twin.unclean(topic)
            assert told[MIN_ISR] == twin.min_isr(topic)
            assert allows_unclean_election(cluster.image, CONFIG, topic) is (twin.unclean(topic) == "true")
            assert min_isr_of(cluster.image, topic) == int(twin.min_isr(topic))
    assert {each[0] for each in twin.set}, "some changes were accepted"
