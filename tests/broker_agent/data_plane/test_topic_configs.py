"""The configs of topics on their way to the manager."""

from broker_agent.data_plane.topic_configs import TopicConfigs
from broker_agent.partitions.throttle import ThrottledReplicas


def test_the_throttled_replicas_of_a_topic_reach_the_manager() -> None:
    """An operator has named the replicas of a reassignment from broker 101 to broker 104 (KIP-73)."""
    topic = {
        "leader.replication.throttled.replicas": "0:101,1:101",
        "follower.replication.throttled.replicas": "0:104,1:104",
    }
    source, target = (TopicConfigs()._config(topic, {}, broker_id) for broker_id in (101, 104))
    both = ThrottledReplicas(partitions=frozenset({0, 1}))
    assert (source.leader_throttled, source.follower_throttled) == (both, ThrottledReplicas())
    assert (target.leader_throttled, target.follower_throttled) == (ThrottledReplicas(), both)


def test_a_topics_own_min_isr_comes_before_the_brokers() -> None:
    own = TopicConfigs()._config({"min.insync.replicas": "3"}, {"min.insync.replicas": "2"}, 101)
    brokers = TopicConfigs()._config({}, {"min.insync.replicas": "2"}, 101)
    assert (own.min_insync_replicas, brokers.min_insync_replicas) == (3, 2)
