"""The dumb twin of the rule for lagging members."""

from broker_agent.replica.isr import PartitionMetadata
from broker_agent.replica.leader import LeaderConfig, PartitionLeader, ReplicaFetch
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.log_shape import EpochStart, LogShape
from tests.sim.laws.partitions.leading import SLACK_MS, LagWatch


def shape(end: int) -> LogShape:
    return LogShape(OffsetAndEpoch(0, 0), end, end, (EpochStart(1, 0),) if end else (), bytes(32), bytes(32))


def leader_of_two() -> PartitionLeader:
    metadata = PartitionMetadata(101, 1, 1, (101, 102), (101, 102))
    return PartitionLeader(101, 11, metadata, shape(0), 0, LeaderConfig(1_000), {101: 11, 102: 12}, 0)


def test_a_member_lags_from_the_first_record_that_it_lacks() -> None:
    """P5: 1. Follower 102 asks for offset 0 at 100. 2. The leader appends record 0 at 200. 3. From then on follower 102 lags."""
    leader = leader_of_two()
    watch = LagWatch(leader, 0)
    leader.fetched(ReplicaFetch(102, 12, 1, 0, 0), 100)
    watch.looked(100)
    leader.log_changed(shape(1), 200)
    watch.appended(200)

    watch.looked(200 + 1_500 + SLACK_MS)
    assert watch.laggard(200 + 1_500 + SLACK_MS) is None
    assert watch.laggard(200 + 1_501 + SLACK_MS) == (102, 1_501 + SLACK_MS)


def test_a_proposal_gives_the_leader_its_full_time_again() -> None:
    """While the outcome of a proposal is not known, the leader must wait."""
    leader = leader_of_two()
    watch = LagWatch(leader, 0)
    leader.log_changed(shape(1), 0)
    watch.appended(0)
    watch.looked(10)
    watch.proposed()
    watch.looked(1_600)

    assert watch.laggard(1_700) is None
    assert watch.laggard(1_600 + 1_501 + SLACK_MS) is not None
