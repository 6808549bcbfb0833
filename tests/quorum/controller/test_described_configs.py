"""Which value of a config holds, where it was set, and what holds if it is deleted."""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE
from quorum.controller.partitions.election_rules import allows_unclean_election
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.controller.protocol.topic_commands import NewTopic
from quorum.controller.topics.config_keys import BROKER_KEYS, KEYS, TOPIC_KEYS
from quorum.controller.topics.described_configs import (
    MEANINGS,
    ConfigLevel,
    ConfigSource,
    DescribedConfig,
    describe_configs,
)
from tests.quorum.controller.cluster import Cluster


def set_config(cluster: Cluster, resource_type: int, name: str, key: str, value: str) -> None:
    operation = ConfigOperation(ConfigOperationKind.SET, key, value)
    cluster.run(AlterConfigs((ConfigAlteration(resource_type, name, (operation,)),)))


def effective(cluster: Cluster, resource_type: int, name: str) -> dict[str, DescribedConfig]:
    described = describe_configs(cluster.image, resource_type, name, with_defaults=True)
    return {config.key: config for config in described.configs}


def test_a_topic_s_own_value_comes_before_the_cluster_s_and_the_built_in_one() -> None:
    """Kafka names some defaults of topics otherwise: a cluster-wide `log.retention.ms` is a topic's `retention.ms`."""
    cluster = Cluster(1)
    cluster.create_one(NewTopic("t", 1, 1, configs=(("retention.ms", "5"),)))
    set_config(cluster, BROKER_RESOURCE, "", "log.retention.ms", "7")
    retention = effective(cluster, TOPIC_RESOURCE, "t")["retention.ms"]
    assert retention.levels == (
        ConfigLevel("retention.ms", "5", ConfigSource.TOPIC),
        ConfigLevel("log.retention.ms", "7", ConfigSource.CLUSTER),
        ConfigLevel("retention.ms", "604800000", ConfigSource.DEFAULT),
    )
    assert (retention.value, retention.source, retention.is_set_here) == ("5", ConfigSource.TOPIC, True)

    (only,) = describe_configs(cluster.image, TOPIC_RESOURCE, "t").configs
    assert only == retention, "without the defaults a description has the keys that were set on the topic"


def test_unclean_elections_have_the_levels_that_elections_use() -> None:
    """Topic, then the active controller's id, then all brokers, then its file: a level that the description left out could be
    the one that holds."""
    key, cluster = "unclean.leader.election.enable", Cluster(3)
    cluster.create_one(NewTopic("t", 1, 1))
    config = ControllerConfig(node_id=2, unclean_leader_election=True)

    def told() -> list[tuple[str, str]]:
        described = describe_configs(cluster.image, TOPIC_RESOURCE, "t", config, with_defaults=True)
        (found,) = [each for each in described.configs if each.key == key]
        assert (found.value == "true") is allows_unclean_election(cluster.image, config, "t")
        return [(level.source.name, level.value) for level in found.levels]

    expected = [("STATIC", "true"), ("DEFAULT", "false")]
    assert told() == expected
    for resource_type, name, source, value in (
        (BROKER_RESOURCE, "", "CLUSTER", "false"),
        (BROKER_RESOURCE, "2", "BROKER", "true"),
        (TOPIC_RESOURCE, "t", "TOPIC", "false"),
    ):
        set_config(cluster, resource_type, name, key, value)
        expected.insert(0, (source, value))
        assert told() == expected
    elsewhere = effective(cluster, TOPIC_RESOURCE, "t")[key]
    assert [level.source for level in elsewhere.levels] == [
        ConfigSource.TOPIC, ConfigSource.CLUSTER, ConfigSource.DEFAULT,
    ], "another node does not know who is active"  # fmt: skip


def test_a_key_that_nobody_set_has_its_built_in_default() -> None:
    """And is not said to be set here, although the cluster's default of the same name is."""
    cluster = Cluster(1)
    cluster.create_one(NewTopic("t", 1, 1))
    set_config(cluster, BROKER_RESOURCE, "", "min.insync.replicas", "2")
    found = effective(cluster, TOPIC_RESOURCE, "t")
    assert found.keys() == TOPIC_KEYS.keys()
    assert (found["cleanup.policy"].value, found["cleanup.policy"].source) == ("delete", ConfigSource.DEFAULT)
    isr = found["min.insync.replicas"]
    assert (isr.value, isr.source, isr.is_set_here) == ("2", ConfigSource.CLUSTER, False)
    assert describe_configs(cluster.image, TOPIC_RESOURCE, "t").configs == ()


def test_a_broker_s_own_value_comes_before_the_default_of_all_brokers() -> None:
    cluster = Cluster(1)
    set_config(cluster, BROKER_RESOURCE, "", "num.io.threads", "12")
    inherited = effective(cluster, BROKER_RESOURCE, "0")["num.io.threads"]
    assert (inherited.value, inherited.source, inherited.is_set_here) == ("12", ConfigSource.CLUSTER, False)
    assert effective(cluster, BROKER_RESOURCE, "")["num.io.threads"].is_set_here

    set_config(cluster, BROKER_RESOURCE, "0", "num.io.threads", "16")
    own = effective(cluster, BROKER_RESOURCE, "0")["num.io.threads"]
    assert [(level.value, level.source) for level in own.levels] == [
        ("16", ConfigSource.BROKER),
        ("12", ConfigSource.CLUSTER),
        ("8", ConfigSource.DEFAULT),
    ]


def test_a_resource_that_does_not_exist_is_refused() -> None:
    """An empty answer for a mistyped id would look as if the broker had all defaults."""
    cluster = Cluster(1)
    assert describe_configs(cluster.image, BROKER_RESOURCE, "").error is ErrorCode.NONE
    assert describe_configs(cluster.image, BROKER_RESOURCE, "7").error is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert describe_configs(cluster.image, BROKER_RESOURCE, "seven").error is ErrorCode.INVALID_REQUEST
    assert describe_configs(cluster.image, TOPIC_RESOURCE, "ghost").error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe_configs(cluster.image, 99, "x").error is ErrorCode.INVALID_REQUEST


def test_the_broker_keys_that_topics_inherit_are_there() -> None:
    """A slip in a name would be a default that no operator can set."""
    named = {key.broker_key for key in TOPIC_KEYS.values()} - {""}
    assert len(named) == 6 and named <= BROKER_KEYS.keys()


def test_every_key_has_a_meaning_in_one_sentence() -> None:
    """An operator reads it beside the value."""
    for resource_type, keys in KEYS.items():
        meanings = MEANINGS[resource_type]
        assert meanings.keys() == keys.keys()
        assert all(meaning.endswith(".") and len(meaning) <= 110 for meaning in meanings.values())
