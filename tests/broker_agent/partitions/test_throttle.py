"""Throttled replication (KIP-73): a copy at a limited rate, which holds up no replica in sync."""

from collections.abc import Iterator
from typing import NoReturn

from broker_agent.partitions.hosted_replica import HostedReplica
from broker_agent.partitions.manager_config import TopicConfig
from broker_agent.partitions.open_fetch import FetchSource
from broker_agent.partitions.throttle import NOTHING_THROTTLED, UNLIMITED, Quota, ThrottledReplicas
from broker_agent.replica.fetch_sessions import SessionRequest
from broker_agent.replica.follower import PartitionFetch
from broker_agent.session.isr_proposals import Place
from tests.broker_agent.partitions.brokers import LOG, Broker, assigned, place, replicate
from tests.broker_agent.replica.partition_logs import TOPIC_ID, records

EVERY = ThrottledReplicas(is_every=True)
MB = 1_000_000


def copying(*, at_leader: bool, isr: tuple[int, ...] = (101,)) -> tuple[Broker, Broker]:
    """Broker 101 leads two partitions of 40 batches of 50 KB, which broker 102 copies; partition 0 at 100 KB/s."""
    zero = ThrottledReplicas(partitions=frozenset({0}))
    leader = Broker(101, topic=TopicConfig(LOG, 1, zero if at_leader else NOTHING_THROTTLED))
    follower = Broker(102, topic=TopicConfig(LOG, 1, NOTHING_THROTTLED, NOTHING_THROTTLED if at_leader else zero))
    for number in range(2):
        leader.assign(assigned(101, 101, at=place(number), isr=(101,)))
        leader.run()
        for _ in range(40):
            leader.append(at=place(number), sent=records(1, 50_000))
            leader.run()
        leader.assign(assigned(101, 101, 2, at=place(number), isr=isr))
        follower.assign(assigned(102, 101, 2, at=place(number), isr=isr))
    for each in (leader, follower):
        each.take(each.manager.throttle(MB // 10, MB // 10, 0))
    return leader, follower


def bytes_after(leader: Broker, follower: Broker, seconds: int) -> tuple[int, int]:
    """The bytes of both partitions that the follower has after some seconds."""
    for _ in range(seconds * 4):
        replicate(leader, follower)
        leader.pass_ms(250)
        follower.pass_ms(250)
    return sum(follower.values(place(0))), sum(follower.values(place(1)))


def test_a_follower_leaves_a_throttled_partition_out_of_its_requests() -> None:
    """The other partition of the same fetcher is copied at once. Each answer may overdraw the quota by one fetch (1 MiB)."""
    throttled, free = bytes_after(*copying(at_leader=False), seconds=5)
    assert free == 40 * 50_000
    assert 1_000_000 <= throttled <= 1_700_000


def test_a_leader_sends_a_throttled_partition_at_its_rate() -> None:
    throttled, free = bytes_after(*copying(at_leader=True), seconds=5)
    assert free == 40 * 50_000
    assert 500_000 <= throttled <= 1_700_000


def test_records_that_a_waiting_fetch_reads_twice_count_once() -> None:
    """The quota has 75 KB, and the batch 50 KB: the quota is not used up."""
    leader, _ = copying(at_leader=True)
    leader.take(leader.manager.throttle(75_000, 75_000, 0))
    wanted = SessionRequest(0, -1, ((place(), PartitionFetch(0, 2, 0, 60_000)),))
    fetch = leader.open_fetch(wanted, FetchSource(102, 12), min_bytes=MB, max_wait_ms=10)
    assert leader.poll(fetch) is None
    leader.pass_ms(10)
    while (answer := leader.poll(fetch)) is None:
        assert fetch in leader.woken
    assert answer.answers[0][1].batches
    assert leader.manager._hosting.leader_quota.wait_ms(10) == 0


def test_a_throttled_copy_is_complete_in_the_end() -> None:
    for at_leader in (False, True):
        assert bytes_after(*copying(at_leader=at_leader), seconds=30) == (40 * 50_000, 40 * 50_000)


def test_a_replica_in_sync_is_never_throttled() -> None:
    for at_leader in (False, True):
        assert bytes_after(*copying(at_leader=at_leader, isr=(101, 102)), seconds=1) == (40 * 50_000, 40 * 50_000)


def test_an_operator_names_replicas_by_partition_and_broker() -> None:
    assert ThrottledReplicas.of("0:101, 1:102,,7:101", 101) == ThrottledReplicas(partitions=frozenset({0, 7}))
    assert ThrottledReplicas.of("0:102,*", 101).has(12)
    assert not ThrottledReplicas.of("", 101).has(0)
    assert EVERY.has(3)


def test_a_quota_fills_at_its_rate() -> None:
    quota = Quota()
    quota.used(10**12, 0)
    assert quota.wait_ms(0) == 0
    quota.limit(1_000, 0)
    quota.used(1_500, 0)
    assert quota.wait_ms(0) == 501
    assert quota.wait_ms(500) == 1
    assert quota.wait_ms(502) == 0
    quota.limit(0, 502)
    assert quota.wait_ms(600) == 1_000
    quota.limit(UNLIMITED, 700)
    assert quota.wait_ms(700) == 0


class Unwalkable(dict[Place, HostedReplica]):
    """All replicas of a broker, thousands: nothing may walk over them."""

    def __iter__(self) -> Iterator[Place]:
        raise AssertionError("a walk over all replicas")

    def items(self) -> NoReturn:
        raise AssertionError("a walk over all replicas")

    values = keys = items


def test_configs_and_throttles_look_only_at_the_replicas_of_their_topics() -> None:
    """A broker with thousands of replicas hears of a topic's config, and of an answer for a throttled copy."""
    other = b"o" * 16
    leader, follower = copying(at_leader=False)
    for each in (leader, follower):
        each.assign(assigned(each.broker_id, 101, at=place(0, other)))
        each.run()
        hosting = each.manager._hosting
        hosting.replicas = Unwalkable(hosting.replicas)
        each.take(each.manager.topic_configured(other, TopicConfig(LOG, 2), 0))
        found = each.replica(place(0, other))
        assert found.leader is None or found.leader.config.min_insync_replicas == 2
    replicate(leader, follower)
    assert 0 < sum(follower.values(place(0))) < 40 * 50_000
    follower.manager.topic_forgotten(TOPIC_ID)
    assert list(follower.manager._hosting.follower_throttled()) == []
