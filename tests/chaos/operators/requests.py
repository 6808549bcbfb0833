"""The requests of operators, by kind: what is asked for, out of dice, and which claims an answer to it makes."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from quorum_rpc.v1 import admin_pb2

from metadata_log.format.ids import NodeId
from metadata_log.format.records import ELR_VERSION, METADATA_VERSION
from metaquorum import BROKER_RESOURCE, TOPIC_RESOURCE, AdminError, ErrorCode
from quorum.controller.partitions.election_rules import MIN_ISR_KEY, UNCLEAN_KEY
from quorum.controller.protocol.mode_commands import Mode
from tests.chaos.operators.calls import Ask, done_parts
from tests.chaos.operators.claims import (
    NO_MODE_WORD,
    Claim,
    LeaderOf,
    LevelOf,
    ModeOf,
    PartitionCount,
    PartitionSeen,
    SettingOf,
    TargetOf,
    leader_or_none,
)

TOPICS: Final = ("orders", "payments")
PARTITIONS: Final = 6
REPLICAS: Final = 3
LARGE_TOPICS: Final = ("large-1", "large-2")
"""Topics whose creation and deletion take several batches. They come and go."""
LARGE_PARTITIONS: Final = (1_200, 2_500, 5_000)
SHOWN: Final = 4
"""How many partitions of a large topic a read shows."""
_SETTINGS: Final[Mapping[str, Sequence[str | None]]] = {
    MIN_ISR_KEY: ("1", "2", "3", None),
    UNCLEAN_KEY: ("true", "false", None, None),
}
_SHORT: Final = {
    METADATA_VERSION: "metadata level",
    ELR_VERSION: "ELR",
    MIN_ISR_KEY: "min ISR",
    UNCLEAN_KEY: "unclean",
}
"""Names for the report's table."""
_ELECTIONS: Final = admin_pb2.ElectLeadersRequest

Make = Callable[[random.Random, Sequence[NodeId]], Ask]
"""Makes a request of one kind; the brokers are all there are, and operators give modes to the second half only."""


# --- topics --------------------------------------------------------------------------------------------------------


def create(name: str, partitions: int, replicas: int) -> Ask:
    """Creates a topic; above 1,100 partitions in a transaction."""
    topic = admin_pb2.NewTopic(name=name, partitions=partitions, replication_factor=replicas)

    def claims(answer: Any) -> list[Claim]:
        done_parts(answer.results)
        return [PartitionCount(name, partitions)]

    request = admin_pb2.CreateTopicsRequest(topics=[topic])
    kind = "large topic created" if name in LARGE_TOPICS else "topic created"
    return Ask(kind, f"create {name} with {partitions}", request, admin_pb2.CreateTopicsResponse, claims)


def create_large(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    return create(dice.choice(LARGE_TOPICS), dice.choice(LARGE_PARTITIONS), dice.choice((1, 2)))


def delete_large(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    name = dice.choice(LARGE_TOPICS)

    def claims(answer: Any) -> list[Claim]:
        done_parts(answer.results)
        return [PartitionCount(name, 0)]

    request = admin_pb2.DeleteTopicsRequest(names=[name])
    return Ask("large topic deleted", f"delete {name}", request, admin_pb2.DeleteTopicsResponse, claims)


def describe_topic(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    name = dice.choice((*TOPICS, *LARGE_TOPICS))

    def claims(answer: Any) -> list[Claim]:
        (topic,) = answer.topics
        if topic.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return [PartitionCount(name, 0)]
        if topic.error.code:
            raise AdminError.of(topic.error)
        return [PartitionCount(name, topic.partition_count), *(_seen(name, each) for each in topic.partitions)]

    page = SHOWN if name in LARGE_TOPICS else PARTITIONS
    request = admin_pb2.DescribeTopicsRequest(names=[name], page_size=page)
    return Ask("topic read", f"describe {name}", request, admin_pb2.DescribeTopicsResponse, claims)


def _seen(topic: str, each: Any) -> PartitionSeen:
    return PartitionSeen(
        topic,
        each.partition,
        leader_or_none(each),
        (each.leader_epoch, each.partition_epoch),
        tuple(each.replicas),
        tuple(each.isr),
        tuple(each.elr),
        (tuple(each.adding_replicas), tuple(each.removing_replicas)),
    )


# --- leaders and replicas ------------------------------------------------------------------------------------------


def _some(dice: random.Random) -> tuple[str, Sequence[int]]:
    """Some partitions of a topic."""
    return dice.choice(TOPICS), sorted(dice.sample(range(PARTITIONS), dice.randint(1, PARTITIONS)))


def _elect(kind: str, election_type: Any, leader: NodeId | None, topic: str, numbers: Sequence[int]) -> Ask:
    def claims(answer: Any) -> list[Claim]:
        return [LeaderOf(each.topic, each.partition, leader_or_none(each)) for each in done_parts(answer.results)]

    places = admin_pb2.TopicPartitions(topic=topic, partitions=numbers)
    request = _ELECTIONS(topics=[places], election_type=election_type, leader_id=leader)
    named = "" if leader is None else f" for {leader}"
    return Ask(
        f"{kind} election", f"{kind} election of {topic}{named}", request, admin_pb2.ElectLeadersResponse, claims
    )


def elect_preferred(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    return _elect("preferred", _ELECTIONS.PREFERRED, None, *_some(dice))


def elect_designated(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    return _elect("designated", _ELECTIONS.DESIGNATED, dice.choice(brokers), *_some(dice))


def elect_uncleanly(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    leader = dice.choice((None, None, None, *brokers))
    return _elect("unclean", _ELECTIONS.UNCLEAN, leader, *_some(dice))


def elect_uncleanly_in(topic: str) -> Ask:
    """Gives a leader to each partition of the topic that has none."""
    return _elect("unclean", _ELECTIONS.UNCLEAN, None, topic, range(PARTITIONS))


def _reassign(kind: str, targets: Mapping[int, tuple[NodeId, ...] | None], topic: str) -> Ask:
    def claims(answer: Any) -> list[Claim]:
        done = done_parts(answer.results)
        return [TargetOf(each.topic, each.partition, targets[each.partition]) for each in done]

    request = admin_pb2.AlterPartitionReassignmentsRequest(
        partitions=[
            admin_pb2.PartitionReassignment(
                topic=topic,
                partition=number,
                target=None if target is None else admin_pb2.ReplicaList(broker_ids=target),
            )
            for number, target in targets.items()
        ]
    )
    return Ask(kind, f"{topic}: {targets}", request, admin_pb2.AlterPartitionReassignmentsResponse, claims)


def reassign(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    numbers = dice.sample(range(PARTITIONS), dice.randint(1, 3))
    targets = {number: tuple(dice.sample(list(brokers), dice.randint(1, REPLICAS))) for number in numbers}
    return _reassign("reassignment", targets, dice.choice(TOPICS))


def move_to(topic: str, brokers: Sequence[NodeId]) -> Ask:
    """Gives all partitions of the topic their replicas on these brokers."""
    return _reassign("reassignment", dict.fromkeys(range(PARTITIONS), tuple(brokers)), topic)


def cancel_on(topic: str) -> Ask:
    """Cancels the reassignments of all partitions of the topic."""
    return _reassign("reassignment cancelled", dict.fromkeys(range(PARTITIONS)), topic)


def cancel(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    return cancel_on(dice.choice(TOPICS))


def list_reassignments(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    def claims(answer: Any) -> list[Claim]:
        places: dict[tuple[str, int], tuple[NodeId, ...] | None]
        places = {(topic, number): None for topic in TOPICS for number in range(PARTITIONS)}
        for each in answer.reassignments:
            gone = set(each.removing_replicas)
            places[each.topic, each.partition] = tuple(one for one in each.replicas if one not in gone)
        return [TargetOf(*place, target) for place, target in places.items()]

    request = admin_pb2.ListPartitionReassignmentsRequest()
    response = admin_pb2.ListPartitionReassignmentsResponse
    return Ask("reassignments read", "list the reassignments", request, response, claims)


# --- brokers -------------------------------------------------------------------------------------------------------


def moded(brokers: Sequence[NodeId]) -> Sequence[NodeId]:
    """Returns the brokers that operators fence and drain; the others always take new replicas."""
    return brokers[len(brokers) // 2 :]


def _mode(kind: str, request: Any, word: str) -> Ask:
    def claims(_: Any) -> list[Claim]:
        return [ModeOf(request.broker_id, word)]

    return Ask(kind, f"{kind} of {request.broker_id}", request, admin_pb2.MutationResponse, claims)


def drain(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    request = admin_pb2.DrainBrokerRequest(broker_id=dice.choice(moded(brokers)), reason="chaos")
    return _mode("drain", request, Mode.MAINTENANCE.word)


def fence_one(broker_id: NodeId) -> Ask:
    request = admin_pb2.FenceBrokerRequest(broker_id=broker_id, reason="chaos")
    return _mode("fence", request, Mode.FENCED.word)


def fence(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    return fence_one(dice.choice(moded(brokers)))


def undrain_one(broker_id: NodeId) -> Ask:
    return _mode("undrain", admin_pb2.UndrainBrokerRequest(broker_id=broker_id), NO_MODE_WORD)


def unfence_one(broker_id: NodeId) -> Ask:
    return _mode("unfence", admin_pb2.UnfenceBrokerRequest(broker_id=broker_id), NO_MODE_WORD)


def undrain(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    return undrain_one(dice.choice(moded(brokers)))


def unfence(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    return unfence_one(dice.choice(moded(brokers)))


def list_brokers(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    def claims(answer: Any) -> list[Claim]:
        return [ModeOf(each.broker_id, each.mode) for each in answer.brokers]

    return Ask(
        "brokers read", "list the brokers", admin_pb2.ListBrokersRequest(), admin_pb2.ListBrokersResponse, claims
    )


# --- features and configs ------------------------------------------------------------------------------------------


def set_level(feature: str, level: int, *, downgrade: bool) -> Ask:
    """Raises or lowers a feature."""
    types = admin_pb2.FeatureUpdate
    direction = types.SAFE_DOWNGRADE if downgrade else types.UPGRADE

    def claims(answer: Any) -> list[Claim]:
        return [LevelOf(each.name, each.level) for each in answer.results]

    update = admin_pb2.FeatureUpdate(name=feature, level=level, upgrade_type=direction)
    request = admin_pb2.UpdateFeaturesRequest(updates=[update])
    kind = f"{_SHORT[feature]} {'lowered' if downgrade else 'raised'}"
    return Ask(kind, f"{feature} to {level}", request, admin_pb2.UpdateFeaturesResponse, claims)


def raise_level(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    """Entities need level 3."""
    return set_level(METADATA_VERSION, dice.choice((2, 3, 3)), downgrade=False)


def set_elr(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    level = dice.choice((0, 1))
    return set_level(ELR_VERSION, level, downgrade=level == 0)


def describe_features(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    def claims(answer: Any) -> list[Claim]:
        return [LevelOf(each.name, each.finalized_level) for each in answer.features]

    request = admin_pb2.DescribeFeaturesRequest()
    return Ask("features read", "describe the features", request, admin_pb2.DescribeFeaturesResponse, claims)


def alter_config(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    """Sets or deletes a key that decides elections, of a topic or of the cluster."""
    resource_type, name = dice.choice(((TOPIC_RESOURCE, dice.choice(TOPICS)), (BROKER_RESOURCE, "")))
    key = dice.choice(list(_SETTINGS))
    return set_config(resource_type, name, key, dice.choice(_SETTINGS[key]))


def set_config(resource_type: int, name: str, key: str, value: str | None) -> Ask:
    """Sets the key of the topic or of the cluster; None: deletes it."""
    kinds = admin_pb2.ConfigOperation

    def claims(answer: Any) -> list[Claim]:
        done_parts(answer.results)
        return [SettingOf(resource_type, name, key, value)]

    operation = admin_pb2.ConfigOperation(kind=kinds.DELETE if value is None else kinds.SET, key=key, value=value or "")
    resource = admin_pb2.ConfigResource(resource_type=resource_type, name=name)
    alteration = admin_pb2.ConfigAlteration(resource=resource, operations=[operation])
    request = admin_pb2.IncrementalAlterConfigsRequest(alterations=[alteration])
    kind = f"{_SHORT[key]} of {'the cluster' if resource_type == BROKER_RESOURCE else 'a topic'}"
    return Ask(kind, f"{key} of {name!r} to {value}", request, admin_pb2.IncrementalAlterConfigsResponse, claims)


def describe_configs(dice: random.Random, brokers: Sequence[NodeId]) -> Ask:
    resource_type, name = dice.choice(((TOPIC_RESOURCE, dice.choice(TOPICS)), (BROKER_RESOURCE, "")))

    def claims(answer: Any) -> list[Claim]:
        (described,) = answer.resources
        if described.error.code:
            raise AdminError.of(described.error)
        found = {each.key: each.value for each in described.configs}
        return [SettingOf(resource_type, name, key, found.get(key)) for key in _SETTINGS]

    resource = admin_pb2.ConfigResource(resource_type=resource_type, name=name)
    request = admin_pb2.DescribeConfigsRequest(resources=[resource])
    return Ask("configs read", f"describe the configs of {name!r}", request, admin_pb2.DescribeConfigsResponse, claims)


KINDS: Final[Mapping[Make, int]] = {
    elect_preferred: 8,
    elect_designated: 8,
    elect_uncleanly: 8,
    reassign: 10,
    cancel: 4,
    drain: 5,
    undrain: 5,
    fence: 4,
    unfence: 6,
    raise_level: 3,
    set_elr: 4,
    alter_config: 8,
    create_large: 4,
    delete_large: 5,
    describe_topic: 10,
    list_reassignments: 3,
    list_brokers: 5,
    describe_features: 3,
    describe_configs: 4,
}
"""Each kind of request, and how often it comes relative to the others."""
