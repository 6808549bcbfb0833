"""How many partitions nobody leads, or lack replicas in sync: counted over the whole image, the first of them by name."""

import time

import pytest

from quorum.controller.partitions.listing.partition_health import partition_health
from quorum.controller.protocol.config import ControllerConfig
from tests.quorum.controller.cluster import Cluster


def test_what_a_fenced_broker_leaves_is_counted() -> None:
    """Broker 2 held v-1 alone, which nobody leads now, and shared t-0 and u-0, which lack a replica."""
    cluster = Cluster(3)
    cluster.assign("u", (0, 2))
    cluster.assign("t", (2, 1), (0, 1))
    cluster.assign("v", (0,), (2,))
    assert partition_health(cluster.image, 10)[:3] == (5, 0, 0)

    cluster.contact(2, wants_fence=True)
    found = partition_health(cluster.image, 10)
    assert (found.partitions, found.leaderless, found.under_replicated) == (5, 1, 2)
    assert found.first_leaderless == (("v", (1,)),)
    assert found.first_under_replicated == (("t", (0,)), ("u", (0,)))


def test_no_more_names_than_were_asked_for() -> None:
    """The counts are of all."""
    cluster = Cluster(2)
    for name in ("b", "a", "c"):
        cluster.create(name, 3, 2)
    cluster.contact(1, wants_fence=True)
    found = partition_health(cluster.image, 4)
    assert found.under_replicated == 9
    assert found.first_under_replicated == (("a", (0, 1, 2)), ("b", (0,)))
    assert partition_health(cluster.image, 0).first_under_replicated == ()


def test_an_empty_cluster_has_no_trouble() -> None:
    assert partition_health(Cluster(1).image, 10) == (0, 0, 0, (), ())


@pytest.mark.slow
def test_ninety_thousand_partitions_take_a_moment() -> None:
    """About 0.1 us each, and on a thread: a million are a tenth of a second in which heartbeats are heard."""
    cluster = Cluster(3, config=ControllerConfig(one_batch_records_max=9_100))
    for number in range(10):
        cluster.create(f"t{number}", 9_000, 3)
    began_s = time.process_time()
    assert partition_health(cluster.image, 10).partitions == 90_000
    assert time.process_time() - began_s < 0.5
