"""How long a cluster takes until the next acknowledged write, after its leader was killed or paused."""

import asyncio

from benchmarks.load import until_acknowledged
from benchmarks.ours import OurCluster
from benchmarks.peer_etcd import EtcdCluster

Cluster = EtcdCluster | OurCluster


async def killed_s(cluster: Cluster, trials: int) -> list[float]:
    """Kills the leader with SIGKILL, again and again."""
    seconds: list[float] = []
    for _ in range(trials):
        killed = await cluster.kill_leader()
        seconds.append(await until_acknowledged(cluster.any_put_call()))
        await cluster.bring_back(killed)
        await asyncio.sleep(0.5)
    return seconds


async def paused_s(cluster: Cluster, trials: int) -> list[float]:
    """Pauses the leader with SIGSTOP, again and again."""
    seconds: list[float] = []
    for _ in range(trials):
        paused = await cluster.pause_leader()
        seconds.append(await until_acknowledged(cluster.any_put_call()))
        await cluster.resume(paused)
        await asyncio.sleep(0.5)
    return seconds
