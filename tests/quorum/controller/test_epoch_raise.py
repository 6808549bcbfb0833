"""After `quorum recover` all epochs and producer ids are larger than any that were given before."""

from metadata_log.format.records import (
    EpochFloor,
    EpochsRaised,
    FeatureLevel,
    Partition,
    PartitionChange,
    ProducerIds,
)
from metadata_log.format.records.levels import METADATA_VERSION
from quorum.controller.partitions.epoch_raise import PARTITIONS_PER_RECORD, STEP, is_raise_due
from quorum.controller.protocol.commands import AllocateProducerIds, AllocateProducerIdsReply
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.epoch_commands import RaiseEpochs
from quorum.controller.protocol.happenings import PartitionEpochsRaised
from quorum.controller.protocol.topic_commands import (
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    NewPartitions,
    NewTopic,
)
from tests.quorum.controller.cluster import Cluster

GENERATION = 3
FLOOR = 2 * STEP


def epochs(cluster: Cluster, name: str) -> list[tuple[int, int]]:
    return [(each.leader_epoch, each.partition_epoch) for each in cluster.partitions(name)]


def fail_over(cluster: Cluster, broker_id: int) -> None:
    """The broker is fenced, and comes back."""
    cluster.contact(broker_id, wants_fence=True)
    cluster.contact(broker_id)


def allocated(cluster: Cluster) -> int:
    command = AllocateProducerIds(0, cluster.image.brokers[0].broker_epoch)
    return cluster.ask(command, AllocateProducerIdsReply).first_producer_id


def test_no_epoch_is_given_a_second_time() -> None:
    """The lost history has leader epochs 1 and 2. Without the raise the recovered one gives both again, to other leaders."""
    cluster = Cluster(3)
    cluster.assign("orders", (0, 1, 2))
    recovered = cluster.image
    fail_over(cluster, 0)
    fail_over(cluster, 1)
    lost = epochs(cluster, "orders")[0]
    assert min(lost) > 1

    cluster.image = recovered  # the controllers that knew of it are gone
    leaders = cluster.leaders("orders")
    ran = cluster.run(RaiseEpochs(GENERATION))
    assert ran.happenings == [PartitionEpochsRaised(GENERATION, 1)]
    assert epochs(cluster, "orders") == [(FLOOR, FLOOR)]
    assert cluster.leaders("orders") == leaders, "nothing moves, and no leader is elected"
    fail_over(cluster, 0)
    assert min(epochs(cluster, "orders")[0]) > FLOOR > max(lost)


def test_a_raise_keeps_the_order_of_epochs() -> None:
    cluster = Cluster(3)
    cluster.assign("orders", (0, 1, 2), (1, 2, 0))
    fail_over(cluster, 0)
    before = epochs(cluster, "orders")
    cluster.run(RaiseEpochs(GENERATION))
    assert epochs(cluster, "orders") == [(leader + FLOOR, partition + FLOOR) for leader, partition in before]


def test_raised_partitions_in_the_same_state_share_it() -> None:
    """2,000,000 states of their own would cost each node 450 MB more than before the raise."""
    cluster = Cluster(3)
    cluster.assign("orders", (0, 1, 2), (0, 1, 2))
    cluster.run(RaiseEpochs(GENERATION))
    orders = cluster.image.topic("orders")
    assert orders is not None and orders.state(0) is orders.state(1)


def test_a_raise_is_done_once_in_a_generation() -> None:
    cluster = Cluster(3)
    cluster.assign("orders", (0, 1, 2))
    assert not is_raise_due(cluster.image, 1), "a cluster that was never recovered"
    assert cluster.run(RaiseEpochs(1)).records == []
    cluster.run(RaiseEpochs(GENERATION))
    once = cluster.image.digest
    assert not is_raise_due(cluster.image, GENERATION)
    assert cluster.run(RaiseEpochs(GENERATION)).records == []
    assert cluster.image.digest == once
    cluster.run(RaiseEpochs(GENERATION + 4))
    assert epochs(cluster, "orders") == [(FLOOR + 4 * STEP, FLOOR + 4 * STEP)]


def test_a_second_recovery_without_the_first_raise_gives_other_numbers() -> None:
    """The first raise may be among the records that the second recovery lacks."""
    cluster = Cluster(3)
    cluster.assign("orders", (0, 1, 2))
    recovered = cluster.image
    cluster.run(RaiseEpochs(GENERATION))
    fail_over(cluster, 0)
    lost, lost_id = epochs(cluster, "orders")[0], allocated(cluster)

    cluster.image = recovered
    cluster.run(RaiseEpochs(GENERATION + 1))
    assert min(epochs(cluster, "orders")[0]) > max(lost)
    assert allocated(cluster) > lost_id


def test_a_partition_that_is_created_after_the_recovery_begins_above_its_lost_namesake() -> None:
    """A lost record created orders-1, and brokers have its log. The partition that is created now has the same topic id."""
    cluster = Cluster(3)
    cluster.assign("orders", (0, 1, 2))
    cluster.run(RaiseEpochs(GENERATION))
    grown = cluster.ask(CreatePartitions((NewPartitions("orders", 2),)), CreatePartitionsReply).results[0]
    assert grown.message == ""
    assert epochs(cluster, "orders") == [(FLOOR, FLOOR), (FLOOR, FLOOR)]


def test_a_producer_id_that_was_lost_is_not_given_again() -> None:
    """Two producers with one id would be taken for one, and records of the second would be dropped as repetitions."""
    cluster = Cluster(3)
    allocated(cluster)
    recovered = cluster.image
    lost = allocated(cluster)
    cluster.image = recovered
    cluster.run(RaiseEpochs(GENERATION))
    assert allocated(cluster) == FLOOR > lost


def test_no_producer_id_may_have_been_given_in_the_recovered_history() -> None:
    cluster = Cluster(3)
    assert cluster.image.producer_ids is None
    cluster.run(RaiseEpochs(GENERATION))
    assert allocated(cluster) == FLOOR


def test_below_level_2_nothing_is_raised_until_the_level_rises() -> None:
    """Nodes of release 0.1.0 cannot read the records of a raise."""
    cluster = Cluster(3, config=ControllerConfig(bootstrap_metadata_version=1))
    cluster.assign("orders", (0, 1, 2))
    assert not is_raise_due(cluster.image, GENERATION)
    assert cluster.run(RaiseEpochs(GENERATION)).records == []
    cluster.append(FeatureLevel(METADATA_VERSION, 2))
    assert is_raise_due(cluster.image, GENERATION)


def test_a_large_cluster_is_raised_in_slices_of_one_transaction() -> None:
    """No slice takes longer than a turn may, and no other decision comes between. The records are few."""
    config = ControllerConfig()
    cluster = Cluster(3, config=config)
    size = 6 * PARTITIONS_PER_RECORD + 1
    created = cluster.ask(CreateTopics((NewTopic("large", size, 1), NewTopic("small", 1, 1))), CreateTopicsReply)
    assert not any(result.message for result in created.results)
    before = cluster.image
    decisions = cluster.decisions(RaiseEpochs(GENERATION))
    assert len(decisions) > 3 and {each.transaction for each in decisions} == {"raise epochs"}
    records = [record for each in decisions for record in each.records]
    assert [type(each) for each in records[:2]] == [EpochFloor, ProducerIds]
    raised = [each for each in records[2:] if isinstance(each, EpochsRaised)]
    assert len(records) == 2 + len(raised) == 2 + 8
    most = max(
        sum(each.partition_count for each in some.records if isinstance(each, EpochsRaised)) for some in decisions
    )
    assert most <= config.transaction_slice_records + PARTITIONS_PER_RECORD
    assert set(epochs(cluster, "large") + epochs(cluster, "small")) == {(FLOOR, FLOOR)}
    assert not any(isinstance(each, Partition | PartitionChange) for each in records)
    assert cluster.image.partition_count == before.partition_count


def test_many_small_topics_are_one_transaction_too() -> None:
    """Each topic needs a record of its own. All of them take effect together, however few partitions there are."""
    cluster = Cluster(3)
    names = [f"topic-{number}" for number in range(150)]
    cluster.ask(CreateTopics(tuple(NewTopic(name, 1, 1) for name in names)), CreateTopicsReply)
    decisions = cluster.decisions(RaiseEpochs(GENERATION))
    assert len(decisions) > 1 and {each.transaction for each in decisions} == {"raise epochs"}
    assert all(epochs(cluster, name) == [(FLOOR, FLOOR)] for name in names)
