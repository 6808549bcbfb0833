"""Policies in decisions: a refusal has a reason and no record, and everything else is done."""

import random
import re
from dataclasses import replace

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    AlterConfigsReply,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
    ConfigResult,
)
from quorum.controller.protocol.policy import NewTopicRequest, Policies, Policy
from quorum.controller.protocol.topic_commands import (
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    NewPartitions,
    NewTopic,
)
from quorum.controller.topics.policy_rules import ConfigRule, PolicyRule, PolicyRules
from tests.quorum.controller.cluster import Cluster

TEAMS = PolicyRule(
    "teams",
    reason="ask #platform",
    topics=re.compile("team-.*"),
    name_pattern=re.compile(r"team-[a-z]+\.[a-z]+"),
    partitions_max=3,
    replication_factor_min=2,
    replication_factor_max=3,
    configs={
        "retention.ms": ConfigRule(minimum=10, maximum=1 << 62),
        "cleanup.policy": ConfigRule(one_of=frozenset({"delete"}), is_required=True),
        "preallocate": ConfigRule(is_forbidden=True),
    },
)
CLUSTER = PolicyRule("cluster", broker_configs={"num.io.threads": ConfigRule(maximum=16)})
GOOD = NewTopic("team-a.x", 3, 2, configs=(("cleanup.policy", "delete"), ("retention.ms", str(1 << 62))))


def cluster(*policies: Policy) -> Cluster:
    return Cluster(4, config=ControllerConfig(policy=Policies(policies or (PolicyRules((TEAMS, CLUSTER)),))))


@pytest.mark.parametrize(
    ("topic", "problem"),
    [
        (replace(GOOD, name="team-a"), "the name 'team-a' does not match"),
        (replace(GOOD, partitions=4), "4 partitions; at most 3 are allowed"),
        (replace(GOOD, replication_factor=1), "replication factor 1; at least 2 is allowed"),
        (replace(GOOD, replication_factor=4), "replication factor 4; at most 3 is allowed"),
        (replace(GOOD, partitions=-1, replication_factor=-1, assignment=((0, 1, 2, 3),)), "replication factor 4"),
        (replace(GOOD, configs=()), "config cleanup.policy must be set"),
        (replace(GOOD, configs=(("cleanup.policy", "delete,compact"),)), "is delete,compact; allowed: delete"),
        (replace(GOOD, configs=(*GOOD.configs[:1], ("retention.ms", "9"))), "is 9; at least 10 is allowed"),
        (replace(GOOD, configs=(*GOOD.configs[:1], ("retention.ms", str((1 << 62) + 1)))), "at most 46116860184"),
        (replace(GOOD, configs=(*GOOD.configs, ("preallocate", "false"))), "config preallocate must not be set"),
    ],
)
def test_a_new_topic_that_breaks_a_rule_is_refused_with_the_rules_reason(topic: NewTopic, problem: str) -> None:
    """Kafka's CreateTopicPolicy: POLICY_VIOLATION for this topic alone. A dry run says the same."""
    of = cluster()
    for validate_only in (True, False):
        run = of.run(CreateTopics((topic, NewTopic("other", 1, 1)), validate_only))
        assert isinstance(run.reply, CreateTopicsReply)
        refused, other = run.reply.results
        assert (refused.error, other.error) == (ErrorCode.POLICY_VIOLATION, ErrorCode.NONE)
        assert problem in refused.message
        assert "policy rule 'teams': " in refused.message and "(ask #platform)" in refused.message
    assert list(of.image.topic_ids) == ["other"]
    assert of.create_one(GOOD).error is ErrorCode.NONE


def test_a_policy_judges_what_is_sound_and_with_the_defaults_filled_in() -> None:
    """A bad request gets its own error, and the policy need not know the defaults."""
    seen: list[NewTopicRequest] = []

    class Listening(Policy):
        def check_new_topic(self, topic: NewTopicRequest) -> str | None:
            seen.append(topic)
            return None

    of = cluster(Listening())
    assert of.create_one(NewTopic("a/b", 1, 1)).error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert of.create_one(NewTopic("a", 1, 77)).error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert of.create_one(NewTopic("a", 1, 1, configs=(("no.such", "1"),))).error is ErrorCode.INVALID_CONFIG
    assert not seen
    assert of.create_one(NewTopic("a")).error is ErrorCode.NONE
    assert seen == [NewTopicRequest("a", 1, 3, {})]


def test_new_partitions_are_counted_in_all() -> None:
    """Two more are too many for a topic that has two."""
    of = cluster()
    assert of.create_one(replace(GOOD, partitions=2)).error is ErrorCode.NONE
    of.create("free", 1, 1)
    for wanted, error in ((4, ErrorCode.POLICY_VIOLATION), (3, ErrorCode.NONE)):
        command = CreatePartitions((NewPartitions(GOOD.name, wanted), NewPartitions("free", wanted + 5)))
        refused, free = of.ask(command, CreatePartitionsReply).results
        assert refused.error is error
        assert free.error is ErrorCode.NONE or wanted == 3


def alter(of: Cluster, resource_type: int, name: str, key: str, value: str | None) -> ConfigResult:
    kind = ConfigOperationKind.DELETE if value is None else ConfigOperationKind.SET
    alteration = ConfigAlteration(resource_type, name, (ConfigOperation(kind, key, value or ""),))
    return of.ask(AlterConfigs((alteration,)), AlterConfigsReply).results[0]


def test_changes_of_configs_are_judged() -> None:
    """Kafka's AlterConfigPolicy: for topics, for one broker, and for the default of all; a required key cannot be deleted."""
    of = cluster()
    assert of.create_one(GOOD).error is ErrorCode.NONE
    refused = alter(of, TOPIC_RESOURCE, GOOD.name, "retention.ms", "9")
    assert refused.error is ErrorCode.POLICY_VIOLATION
    assert "policy rule 'teams': config retention.ms is 9; at least 10 is allowed (ask #platform)" in refused.message
    assert alter(of, TOPIC_RESOURCE, GOOD.name, "cleanup.policy", None).error is ErrorCode.POLICY_VIOLATION
    assert alter(of, TOPIC_RESOURCE, GOOD.name, "retention.ms", None).error is ErrorCode.NONE
    for broker in ("", "1"):
        assert alter(of, BROKER_RESOURCE, broker, "num.io.threads", "17").error is ErrorCode.POLICY_VIOLATION
        assert alter(of, BROKER_RESOURCE, broker, "num.io.threads", "16").error is ErrorCode.NONE
    of.create("free", 1, 1)
    assert alter(of, TOPIC_RESOURCE, "free", "retention.ms", "9").error is ErrorCode.NONE


def test_a_change_is_judged_and_not_a_state() -> None:
    """A topic from before the rule may change its other keys, and repeat what it has: that writes nothing."""
    of = cluster(Policy())
    of.create_one(NewTopic("team-old", 9, 1, configs=(("retention.ms", "1"),)))
    strict = Cluster(0, config=ControllerConfig(policy=PolicyRules((TEAMS,))))
    of.controller = strict.controller
    of.controller.activate(of.image, of.now_ms)
    assert alter(of, TOPIC_RESOURCE, "team-old", "flush.ms", "7").error is ErrorCode.NONE
    assert alter(of, TOPIC_RESOURCE, "team-old", "retention.ms", "1").error is ErrorCode.NONE
    assert alter(of, TOPIC_RESOURCE, "team-old", "retention.ms", "2").error is ErrorCode.POLICY_VIOLATION


def test_of_several_policies_the_first_refusal_counts() -> None:
    class Refusing(Policy):
        def __init__(self, word: str) -> None:
            self.word = word

        def check_new_topic(self, topic: NewTopicRequest) -> str | None:
            return self.word if self.word in topic.name else None

    of = cluster(Refusing("b"), Refusing("a"))
    assert "refused: b;" in of.create_one(NewTopic("a-b", 1, 1)).message
    assert "refused: a;" in of.create_one(NewTopic("a", 1, 1)).message
    assert of.create_one(NewTopic("c", 1, 1)).error is ErrorCode.NONE


@pytest.mark.parametrize("seed", range(20))
def test_any_request_leaves_only_topics_that_the_rules_allow(seed: int) -> None:
    """Whatever clients try, the image never has a topic that a dumb twin of the rules refuses."""
    dice, of = random.Random(seed), cluster()
    for number in range(30):
        name = dice.choice((f"team-{number}", f"team-a.{chr(97 + number % 26)}", f"free{number}"))
        configs = tuple(
            each
            for each in (
                ("cleanup.policy", dice.choice(("delete", "compact"))),
                ("retention.ms", str(dice.choice((1, 9, 10, 11)))),
                ("preallocate", "true"),
            )
            if dice.random() < 0.6
        )
        of.create_one(NewTopic(name, dice.randint(1, 5), dice.randint(1, 4), configs=configs))
        if of.image.topic(name) is not None and dice.random() < 0.5:
            of.run(CreatePartitions((NewPartitions(name, dice.randint(1, 6)),)))
            alter(of, TOPIC_RESOURCE, name, "retention.ms", dice.choice((None, "3", "30")))
            alter(of, TOPIC_RESOURCE, name, "cleanup.policy", dice.choice((None, "compact", "delete")))
    for topic in of.image.topics():
        if topic.name.startswith("team-"):
            configs_now = dict(of.image.config(TOPIC_RESOURCE, topic.name))
            first = topic.partition(0)
            assert first is not None and 2 <= len(first.replicas) <= 3
            assert topic.partition_count <= 3 and "." in topic.name
            assert configs_now.get("cleanup.policy") == "delete" and "preallocate" not in configs_now
            assert int(configs_now.get("retention.ms", "10")) >= 10
