"""A change of `min.insync.replicas` and the end of the feature clear ELRs: in the same batch, or in one transaction (KIP-966)."""

import random
from dataclasses import replace

import pytest

from metadata_log.format.codec import encode_record
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, ReplicaKey
from metadata_log.format.records import (
    BROKER_RESOURCE,
    ELR_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    TOPIC_RESOURCE,
    ClearElr,
    Config,
    FeatureLevel,
    MetadataRecord,
    PartitionChange,
)
from quorum.controller.protocol.commands import Command
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    AlterConfigsReply,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.feature_commands import FeatureUpdate, UpdateFeatures, UpgradeType
from tests.metadata_log.image.test_entities import folded
from tests.quorum.controller.cluster import Cluster
from tests.quorum.controller.leadership.test_election_rules import MIN_ISR, UNCLEAN, alter

SMALL_SLICES = ControllerConfig(transaction_slice_records=3)
OFF = UpdateFeatures((FeatureUpdate(ELR_VERSION, 0, UpgradeType.SAFE_DOWNGRADE),))
OF_ALL = (BROKER_RESOURCE, "")


class Recorded(Cluster):
    """A cluster with its log. Topics a, b and c have partitions on the brokers 0, 1 and 2; `min.insync.replicas` is 2."""

    def __init__(self, config: ControllerConfig | None = None, *, partitions: int = 4) -> None:
        self.log: list[MetadataRecord] = []
        super().__init__(3, config=config)
        self.append(FeatureLevel(ELR_VERSION, 1))
        alter(self, OF_ALL, MIN_ISR, "2")
        for name in "abc":
            self.assign(name, *[(0, 1, 2)] * partitions)

    def fold(self, decision: Decision) -> None:
        super().fold(decision)
        self.log += decision.records

    def shrink(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.contact(broker_id, wants_fence=True)

    @property
    def with_elr(self) -> int:
        return sum(bool(each.elr) for topic in self.image.topics() for each in topic.partitions())


def set_min_isr(resource: tuple[int, str], value: str, **fields: bool) -> AlterConfigs:
    operation = ConfigOperation(ConfigOperationKind.SET, MIN_ISR, value)
    return AlterConfigs((ConfigAlteration(*resource, (operation,)),), **fields)


def slices(cluster: Cluster, command: Command) -> list[Decision]:
    decisions: list[Decision] = []
    following: Command | None = command
    while following is not None:
        decisions.append(cluster.controller.decide(cluster.image, following, cluster.now_ms))
        cluster.fold(decisions[-1])
        following = decisions[-1].then
    return decisions


def test_only_partitions_with_an_elr_get_a_record() -> None:
    """And only those of the topic whose config changes, or of all topics. The records are in the batch of the config."""
    cluster = Recorded(partitions=1)
    cluster.shrink(2, 1)
    a, b, c = (cluster.partitions(name)[0].topic_id for name in "abc")
    (of_topic,) = slices(cluster, set_min_isr((TOPIC_RESOURCE, "b"), "1"))
    assert of_topic.records == (Config(TOPIC_RESOURCE, "b", MIN_ISR, "1"), PartitionChange(b, 0, elr=()))
    (of_all,) = slices(cluster, set_min_isr(OF_ALL, "1"))
    assert of_all.records[0] == Config(*OF_ALL, MIN_ISR, "1")
    assert set(of_all.records[1:]) == {PartitionChange(each, 0, elr=()) for each in (a, c)}
    assert (of_topic.transaction, of_all.transaction, cluster.with_elr) == ("", "", 0)


@pytest.mark.parametrize("command", [set_min_isr(OF_ALL, "1"), OFF], ids=["min.insync.replicas", "feature off"])
def test_a_large_clearing_is_one_transaction(command: Command) -> None:
    """So no image has the change beside an ELR from before it. Each slice is small."""
    cluster = Recorded(SMALL_SLICES, partitions=70)
    cluster.shrink(2, 1)
    assert cluster.with_elr == 210
    decisions = slices(cluster, command)
    assert {each.transaction for each in decisions} == {type(command).__name__}
    assert len(decisions) > 3 and cluster.with_elr == 0
    assert sum(isinstance(each, PartitionChange) for each in cluster.log[-211:]) == 210
    assert isinstance(decisions[-1].reply, AlterConfigsReply) or decisions[-1].records[-1] == FeatureLevel(
        ELR_VERSION, 0
    )


def test_a_clearing_that_looks_at_many_and_finds_nothing_writes_the_config_alone() -> None:
    """The slices of the search write nothing."""
    cluster = Recorded(SMALL_SLICES, partitions=70)
    decisions = slices(cluster, set_min_isr(OF_ALL, "1"))
    assert [record for each in decisions for record in each.records] == [Config(*OF_ALL, MIN_ISR, "1")]
    assert len(decisions) == 3


def test_other_configs_clear_nothing_and_end_no_transaction_late() -> None:
    cluster = Recorded(SMALL_SLICES, partitions=70)
    cluster.shrink(2, 1)
    (decision,) = slices(
        cluster,
        AlterConfigs(
            (ConfigAlteration(TOPIC_RESOURCE, "a", (ConfigOperation(ConfigOperationKind.SET, UNCLEAN, "true"),)),)
        ),
    )
    assert (len(decision.records), decision.transaction, cluster.with_elr) == (1, "", 210)


def test_a_request_that_only_validates_clears_nothing() -> None:
    cluster = Recorded(SMALL_SLICES, partitions=70)
    cluster.shrink(2, 1)
    for command in (set_min_isr(OF_ALL, "1", validate_only=True), replace(OFF, validate_only=True)):
        (decision,) = slices(cluster, command)
        assert (decision.records, decision.transaction) == ((), "")


@pytest.mark.parametrize("command", [set_min_isr(OF_ALL, "1"), OFF])
def test_a_clearing_that_no_transaction_can_hold_is_refused(command: Command) -> None:
    """The active controller then aborts the transaction, and nothing was done."""
    cluster = Recorded(SMALL_SLICES._replace(transaction_records_max=200), partitions=70)
    cluster.shrink(2, 1)
    with pytest.raises(ControllerError, match="more than 199 partitions have eligible leader") as caught:
        slices(cluster, command)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_fold_image_and_controller_agree() -> None:
    """The fold by entity, which knows neither levels nor configs, leads to the image that the controller has decided on; and no
    controller writes a `ClearElr`. Some partitions have no leader, and their safe replicas are in the ISR afterwards."""
    dice = random.Random(5)
    cluster = Recorded(SMALL_SLICES)
    for step in range(60):
        cluster.shrink(*dice.sample(range(3), dice.randint(0, 3)))
        match dice.randrange(5):
            case 4:
                for broker_id in range(3):
                    cluster.contact(broker_id)
                cluster.assign(f"t-{step}", (0, 1, 2), (1, 2, 0))
            case 0:
                cluster.run(set_min_isr(dice.choice((OF_ALL, (TOPIC_RESOURCE, dice.choice("abc")))), str(step % 3 + 1)))
            case 1 if ELR_VERSION in cluster.image.features:
                cluster.run(OFF)
            case 1:
                cluster.append(FeatureLevel(ELR_VERSION, 1))
            case _:
                cluster.contact(dice.randrange(3))
        records = [record for _, record in folded(cluster.log)]
        assert [*map(encode_record, records)] == [*map(encode_record, cluster.image.canonical_records())]
    clearings = [each for each in cluster.log if isinstance(each, PartitionChange) and each.elr == () and each.isr]
    assert clearings and not any(isinstance(each, ClearElr) for each in cluster.log)
    assert any(each.leader is None and len(each.isr or ()) > 1 for each in clearings)
    assert NO_LEADER not in {each.leader for each in clearings}


def test_the_nodes_are_looked_at_in_each_slice() -> None:
    """Voter 11 is there from the second slice on, and does not support a level of the request: the request is refused, and the
    transaction with it.
    """
    cluster = Recorded(SMALL_SLICES)
    cluster.shrink(2, 1)
    raised = UpdateFeatures((*OFF.updates, FeatureUpdate(METADATA_VERSION, METADATA_VERSION_MAX, UpgradeType.UPGRADE)))
    first = cluster.controller.decide(cluster.image, raised, cluster.now_ms)
    cluster.fold(first)
    following = first.then
    assert first.transaction and isinstance(following, UpdateFeatures)
    newcomer = replace(following, voters=(ReplicaKey(11, bytes(16)),))
    with pytest.raises(ControllerError, match="controller 11 has not registered; nothing was done"):
        cluster.controller.decide(cluster.image, newcomer, cluster.now_ms)
    assert cluster.controller.decide(cluster.image, following, cluster.now_ms).records
