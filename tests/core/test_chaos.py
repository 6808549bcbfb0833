"""Short random lives of a quorum under loss, repetition, delay, cuts and crashes. The laws are checked after every
event.

The simulator of the whole cluster goes much further. This test needs only the core, so it can run during work on the
core.
"""

import random
from collections.abc import Callable

import pytest

from tests.core.cluster import LATENCY_MS, Cluster, voter


def live(
    seed: int,
    turns: int = 60,
    *,
    also: Callable[[Cluster, random.Random], None] = lambda cluster, rng: None,
    count: int | None = None,
    nodes: int | None = None,
    joining: bool = False,
) -> Cluster:
    """Runs one random life, then a time without faults.

    `also` runs in every turn. Of `nodes`, the first `count` are voters; with `joining` the others join by themselves.
    """
    rng = random.Random(seed)
    voters = count or rng.choice((1, 2, 3, 3, 3, 5))
    cluster = Cluster(voters, seed=seed, observers=(9,) if nodes is None else tuple(range(voters + 1, nodes + 1)))
    if joining:
        cluster.config = cluster.config._replace(auto_join=True)
        for node in cluster.nodes.values():
            node.endpoints = voter(node.id).endpoints
    cluster.install_ms = rng.choice((0, 40, 1500))
    cluster.boot_all()
    loss, repetition = rng.choice((0, 0.02, 0.2)), rng.choice((0, 0.1))
    delay_ms = rng.choice((LATENCY_MS, 10, 200))

    def delays() -> list[int]:
        if rng.random() < loss:
            return []
        return [rng.randint(1, delay_ms) for _ in range(2 if rng.random() < repetition else 1)]

    cluster.delays = delays
    for _ in range(turns):
        turn(cluster, rng)
        also(cluster, rng)
        cluster.run(rng.choice((1, 10, 100, 700)))
    cluster.delays = lambda: [LATENCY_MS]
    cluster.heal()
    for node in cluster.nodes.values():
        node.flush_held = False
        cluster.resume(node.id)
        if node.core is None:
            node.boot_up()
        node.want_flush()
    return cluster


def turn(cluster: Cluster, rng: random.Random) -> None:
    """Causes one random event."""
    node = rng.choice(list(cluster.nodes.values()))
    match rng.randrange(12):
        case 0:
            if node.core is not None:
                cluster.crash(node.id, refusing=rng.random() < 0.5)
        case 1 | 2:
            if node.core is None:
                node.boot_up()
        case 3:
            cluster.cut(node.id)
        case 4:
            other = rng.choice(list(cluster.nodes.values()))
            cluster.cuts.add((node.id, other.id))
        case 5 | 6:
            cluster.heal()
        case 7:
            if node.paused:
                cluster.resume(node.id)
            else:
                node.paused = True
        case 8:
            node.flush_held = not node.flush_held
            node.want_flush()
        case 9:
            if node.core is not None and node.core.is_leading:
                cluster.resign(node.id)
        case 10:
            end = min(node.high_watermark, node.log.flushed_end)
            if node.core is not None and end > node.log.start.offset:
                node.take_snapshot(end)
        case _:
            for leader in cluster.nodes.values():
                if leader.core is not None and leader.core.is_leading:
                    cluster.propose(leader.id, rng.randint(1, 3))
                    cluster.confirm_reads(leader.id, cluster.now_ms)


@pytest.mark.parametrize("seed", range(30))
def test_a_quorum_lives_through_anything(seed: int) -> None:
    """No law breaks, and after the last fault all nodes reach the same log and the same high watermark."""
    cluster = live(seed)

    assert all(node.stopped is None for node in cluster.nodes.values()), [n.stopped for n in cluster.nodes.values()]
    leader = cluster.elect(20_000)
    cluster.propose(leader.id)
    cluster.run(5_000)
    assert [len({node.log.end, node.log.flushed_end, node.high_watermark}) for node in cluster.nodes.values()] == [
        1 for _ in cluster.nodes
    ]
    assert len({node.log.chain for node in cluster.nodes.values()}) == 1
