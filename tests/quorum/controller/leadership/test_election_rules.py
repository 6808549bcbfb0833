"""The configs that decide elections: their levels, and the moment at which a change takes effect."""

import random

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import BROKER_RESOURCE, RECOVERING, TOPIC_RESOURCE
from quorum.controller.controller import Controller
from quorum.controller.partitions.election_rules import allows_unclean_election, min_isr_of
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    AlterConfigsReply,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
    ConfigResult,
)
from quorum.controller.protocol.happenings import Happening, LeadersElected
from tests.quorum.controller.cluster import Cluster

UNCLEAN = "unclean.leader.election.enable"
MIN_ISR = "min.insync.replicas"
CONTROLLER_ID = 51
CONFIG = ControllerConfig(node_id=CONTROLLER_ID)
LEVELS = [(TOPIC_RESOURCE, "t"), (BROKER_RESOURCE, str(CONTROLLER_ID)), (BROKER_RESOURCE, "")]


def alter(cluster: Cluster, resource: tuple[int, str], key: str, value: str | None) -> ConfigResult:
    kind = ConfigOperationKind.DELETE if value is None else ConfigOperationKind.SET
    operation = ConfigOperation(kind, key, value or "")
    return cluster.ask(AlterConfigs((ConfigAlteration(*resource, (operation,)),)), AlterConfigsReply).results[0]


def due(cluster: Cluster) -> list[Happening]:
    told: list[Happening] = []
    while (command := cluster.controller.due(cluster.image, cluster.now_ms)) is not None:
        told += cluster.run(command).happenings
    return told


def leaderless(config: ControllerConfig) -> Cluster:
    """t-0 with the replicas 0 and 1: broker 0, the last one in sync, is fenced, and broker 1 is out of sync and active."""
    cluster = Cluster(2, config=config)
    cluster.assign("t", (0, 1))
    cluster.contact(1, wants_fence=True)
    cluster.contact(0, wants_fence=True)
    cluster.contact(1)
    assert cluster.partitions("t")[0].isr == (0,)
    return cluster


@pytest.mark.parametrize("static", [False, True])
def test_the_value_of_the_topic_comes_before_node_cluster_and_file(static: bool) -> None:
    """Each level overrides all later ones, and a level that says nothing leaves the word to the next one."""
    config = CONFIG._replace(unclean_leader_election=static)
    cluster = Cluster(1, config=config)
    cluster.assign("t", (0,))
    expected = static
    assert allows_unclean_election(cluster.image, config, "t") is expected
    for resource in reversed(LEVELS):
        expected = not expected
        assert alter(cluster, resource, UNCLEAN, str(expected).lower()).error is ErrorCode.NONE
        assert allows_unclean_election(cluster.image, config, "t") is expected
    for resource in LEVELS:
        expected = not expected
        alter(cluster, resource, UNCLEAN, None)
        assert allows_unclean_election(cluster.image, config, "t") is expected


def test_the_node_is_the_controller_that_decides() -> None:
    """A value of controller 51 holds while controller 51 is active. A value of a broker decides no election."""
    cluster = Cluster(1, config=CONFIG)
    cluster.assign("t", (0,))
    alter(cluster, (BROKER_RESOURCE, str(CONTROLLER_ID)), UNCLEAN, "true")
    assert allows_unclean_election(cluster.image, CONFIG, "t")
    assert not allows_unclean_election(cluster.image, CONFIG._replace(node_id=52), "t")
    alter(cluster, (BROKER_RESOURCE, str(CONTROLLER_ID)), UNCLEAN, None)
    assert alter(cluster, (BROKER_RESOURCE, "0"), UNCLEAN, "true").error is ErrorCode.NONE
    assert not allows_unclean_election(cluster.image, CONFIG, "t")
    assert alter(cluster, (BROKER_RESOURCE, "52"), UNCLEAN, "true").error is ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize("resource", LEVELS)
def test_a_change_of_the_config_elects_at_once(resource: tuple[int, str]) -> None:
    """On each level: the partition without a leader gets one, without a restart of any broker."""
    cluster = leaderless(CONFIG)
    assert due(cluster) == []
    alter(cluster, resource, UNCLEAN, "true")
    assert due(cluster) == [LeadersElected(1, ("t-0: 1",), unclean=1)]
    (partition,) = cluster.partitions("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, (1,), RECOVERING)


def test_a_change_that_a_nearer_level_overrides_elects_nothing() -> None:
    cluster = leaderless(CONFIG)
    alter(cluster, (TOPIC_RESOURCE, "t"), UNCLEAN, "false")
    for resource in LEVELS[1:]:
        alter(cluster, resource, UNCLEAN, "true")
        assert due(cluster) == []
    alter(cluster, (TOPIC_RESOURCE, "t"), UNCLEAN, None)
    assert due(cluster) == [LeadersElected(1, ("t-0: 1",), unclean=1)]


def test_a_controller_with_another_file_elects_when_it_becomes_active() -> None:
    """Controller 52 has the key in its file, and looks at all partitions once when it becomes active."""
    cluster = leaderless(CONFIG)
    config = ControllerConfig(node_id=52, unclean_leader_election=True)
    cluster.controller = Controller(config, random.Random(2))
    cluster.controller.activate(cluster.image, cluster.now_ms)
    assert due(cluster) == [LeadersElected(1, ("t-0: 1",), unclean=1)]


def test_min_insync_replicas_is_of_a_topic_or_of_the_cluster() -> None:
    """All leaders must know the value of a topic alike, so one node cannot have its own. A value left over can be deleted."""
    cluster = Cluster(1, config=CONFIG)
    cluster.assign("t", (0,))
    assert min_isr_of(cluster.image, "t") == 1
    alter(cluster, (BROKER_RESOURCE, ""), MIN_ISR, "3")
    assert min_isr_of(cluster.image, "t") == 3
    alter(cluster, (TOPIC_RESOURCE, "t"), MIN_ISR, "2")
    assert min_isr_of(cluster.image, "t") == 2
    for node in ("0", str(CONTROLLER_ID)):
        refused = alter(cluster, (BROKER_RESOURCE, node), MIN_ISR, "2")
        assert refused.error is ErrorCode.INVALID_CONFIG
        assert "can't be set for one node" in refused.message
        assert alter(cluster, (BROKER_RESOURCE, node), MIN_ISR, None).error is ErrorCode.NONE
    assert alter(cluster, (TOPIC_RESOURCE, "t"), MIN_ISR, "0").error is ErrorCode.INVALID_CONFIG
