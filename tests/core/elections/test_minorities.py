"""The voters choose their leader among themselves, and go on without any minority of them."""

from itertools import combinations

import pytest

from tests.core.cluster import Cluster, Node


def commits(cluster: Cluster, limit_ms: int = 3_000) -> bool:
    """True if a record that the leader appends now is committed in time."""
    leader = cluster.leader
    cluster.propose(leader.id)
    end = leader.log.end

    def is_committed() -> bool:
        return leader.high_watermark >= end

    return cluster.run(limit_ms, until=is_committed)


def losses(count: int, size: int) -> list[tuple[int, ...]]:
    """All ways to lose `size` of the voters 1 to `count`."""
    return list(combinations(range(1, count + 1), size))


def survivors(cluster: Cluster) -> list[Node]:
    return [node for node in cluster.nodes.values() if node.core is not None]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, pytest.param(7, marks=pytest.mark.slow)])
def test_a_quorum_survives_the_loss_of_any_minority(count: int) -> None:
    """Three voters survive one failure, five survive two. Whoever dies, the leader or not: the others commit, and all that was
    committed before is still there."""
    for dead in losses(count, (count - 1) // 2):
        cluster = Cluster(count, seed=sum(dead)).boot_all()
        cluster.elect()
        assert commits(cluster)
        committed = dict(cluster.committed)
        for node_id in dead:
            cluster.crash(node_id)
        leader = cluster.elect()
        assert leader.id not in dead
        assert commits(cluster)
        assert committed.items() <= cluster.committed.items()
        assert all(leader.log.batch_at(offset).chain == chain for offset, chain in committed.items())


@pytest.mark.parametrize("count", [2, 3, 4, pytest.param(5, marks=pytest.mark.slow)])
def test_without_a_majority_nothing_is_committed_until_one_voter_comes_back(count: int) -> None:
    """Two of three, or three of five, are gone: the rest resigns, and elects nobody. With one of the dead back, all goes on."""
    for dead in losses(count, (count + 1) // 2):
        cluster = Cluster(count, seed=sum(dead)).boot_all()
        cluster.elect()
        assert commits(cluster)
        for node_id in dead:
            cluster.crash(node_id)
        if any(node.up.is_leading for node in survivors(cluster)):
            assert not commits(cluster), "the leader has not noticed yet, and commits nothing"
        cluster.run(5_000)
        assert not any(node.up.is_leading for node in survivors(cluster))

        cluster[dead[0]].boot_up()
        cluster.elect()
        assert commits(cluster)


def test_the_voters_need_no_other_system_to_agree_on_one_leader() -> None:
    """All start at once with nothing but the voter set on their disks. In each of 30 mixtures of timers one of them leads, and
    the others follow the same one."""
    firsts = set()
    for seed in range(30):
        cluster = Cluster(5, seed=seed).boot_all()
        leader = cluster.elect()
        assert commits(cluster)
        assert [node.id for node in survivors(cluster) if node.up.is_leading] == [leader.id]
        assert {node.election.epoch for node in survivors(cluster)} == {leader.election.epoch}
        firsts.add(leader.id)
    assert len(firsts) > 1, "no voter is preferred"
