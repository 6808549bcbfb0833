"""One run with data: brokers with partitions, producers and consumers, and a nemesis; then logs and histories are compared."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from quorum_rpc.v1 import broker_pb2

from metaquorum import AdminClient
from quorum.devcluster.layout import DATA_PLANE, PARTITIONS
from tests.chaos.clients import Clients
from tests.chaos.cluster import ChaosCluster
from tests.chaos.data.clients import TOPIC, DataClients
from tests.chaos.data.faults import DATA_FAULTS
from tests.chaos.data.final_logs import read_replicas, unequal, values_of
from tests.chaos.data.history import Fate, History, save
from tests.chaos.data.judge import judge_partition
from tests.chaos.data.wellness import until_appended, until_replicated
from tests.chaos.judge.judging import at_most
from tests.chaos.judge.wellness import WELL_WITHIN_S, NotWell, client_of, leader_of, observer_of, until_well
from tests.chaos.launch import NO_MUTANT
from tests.chaos.nemesis import Nemesis, schedule

TOPIC_PARTITIONS: Final = 12
COPIES: Final = 3
BROKER_SETTINGS: Final = {DATA_PLANE: PARTITIONS, "replica.lag.time.max.ms": "3000"}
CONTROLLER_SETTINGS: Final = {"leader.imbalance.check.interval.seconds": "3"}


class DataJudgement(NamedTuple):
    """`problems` are whole texts; none means that every law held."""

    acknowledged: int
    lost: int
    read: int
    equal: bool
    leaders: dict[int, int]
    """How many partitions each broker leads at the end."""
    problems: list[str]

    def lines(self) -> list[str]:
        rows = [
            ("records acknowledged", f"{self.acknowledged:,}"),
            ("acknowledged records lost", f"{self.lost}"),
            ("records read", f"{self.read:,}"),
            ("logs equal", "yes" if self.equal else "NO"),
            ("leaders at the end", ", ".join(f"{broker}: {count}" for broker, count in sorted(self.leaders.items()))),
            ("problems", f"{len(self.problems)}"),
        ]
        return [f"{name:<34}{value}" for name, value in rows]


class DataReport(NamedTuple):
    """The outcome of a run."""

    seed: int
    seconds: float
    rounds: int
    faults: Counter[str]
    fates: Counter[Fate]
    codes: Counter[str]
    restarts: int
    judgement: DataJudgement


def cluster_of(directory: Path, dice: random.Random, mutant: str = NO_MUTANT, brokers: int = 4) -> ChaosCluster:
    """Three controllers, and brokers with records."""
    settings, of_brokers = CONTROLLER_SETTINGS, BROKER_SETTINGS
    return ChaosCluster.create(
        directory, dice, brokers=brokers, settings=settings, broker_settings=of_brokers, mutant=mutant
    )


def clients_of(cluster: ChaosCluster, seed: int) -> DataClients:
    """Producers and consumers that know all brokers."""
    return DataClients(",".join(node.endpoint for node in cluster.layout.brokers), TOPIC_PARTITIONS, seed)


async def create_topic(observer: AdminClient, brokers: int) -> bytes:
    """The topic of the run, over all brokers; returns its id."""
    async with asyncio.timeout(WELL_WITHIN_S):
        while len([each async for each in observer.brokers() if each.state == broker_pb2.ONLINE]) < brokers:
            await asyncio.sleep(0.1)
    await observer.create_topic(TOPIC, TOPIC_PARTITIONS, COPIES, configs={"min.insync.replicas": "2"})
    described = await observer.describe_topics([TOPIC])
    return bytes(described.topics[0].topic_id)


async def run(
    directory: Path, seed: int, seconds: float, say: Callable[[str], None], *, only: Sequence[str] = ()
) -> DataReport:
    """See the file's head. Leaves everything in `directory`."""
    dice = random.Random(f"{seed} nemesis")
    cluster = cluster_of(directory / "cluster", dice)
    writer = Clients(lambda number, dice: client_of(cluster, number, dice), seed, 0, 0.03)
    load = clients_of(cluster, seed)
    problems: list[str] = []
    leaders: dict[int, int] = {}
    topic_id = b""
    began_s, rounds = time.monotonic(), 0
    async with cluster.running(), observer_of(cluster) as observer:
        nemesis = Nemesis(cluster, lambda: leader_of(observer), DATA_FAULTS)
        done = asyncio.Event()
        await until_well(cluster, writer, observer)
        topic_id = await create_topic(observer, len(cluster.brokers))
        at_work = asyncio.create_task(load.run(done))
        try:
            await until_appended(cluster, load, TOPIC_PARTITIONS)
            ends_s = time.monotonic() + seconds
            while time.monotonic() < ends_s and not cluster.findings:
                planned = schedule(dice, only, DATA_FAULTS)
                rounds += 1
                with (directory / "schedule").open("a") as file:
                    file.write(f"{time.monotonic_ns()} round {rounds}: {'; '.join(map(str, planned.faults))}\n")
                await nemesis.carry_out(planned)
                await until_well(cluster, writer, observer)
                await until_appended(cluster, load, TOPIC_PARTITIONS)
                nemesis.forgive()
                say(_progress(time.monotonic() - began_s, rounds, nemesis, load))
                await asyncio.sleep(planned.calm_s)
            done.set()
            await at_work
            if not cluster.findings:
                leaders = await until_replicated(observer, COPIES)
        except NotWell as e:
            problems.append(str(e))
        finally:
            done.set()
            await at_work
            save(directory / "history.jsonl", load.history)
        await cluster.stop()
    problems += [str(found) for found in cluster.findings]
    judgement = judge(cluster, directory, topic_id, load, problems)._replace(leaders=leaders)
    return DataReport(
        seed,
        time.monotonic() - began_s,
        rounds,
        nemesis.counts,
        Counter(each.fate for each in load.history.sends),
        load.codes,
        sum(daemon.starts - 1 for daemon in cluster.daemons.values()),
        judgement,
    )


def judge(
    cluster: ChaosCluster, directory: Path, topic_id: bytes, load: DataClients, problems: list[str]
) -> DataJudgement:
    """Compares the final logs with each other, and with the history."""
    history: History = load.history
    replicas, unreadable = read_replicas(cluster.layout.brokers, topic_id, directory / "scratch")
    differing = unequal(replicas, COPIES)
    found = [*problems, *at_most(unreadable), *at_most(load.oddities), *at_most(differing)]
    acknowledged = lost = 0
    texts: dict[str, list[str]] = {}
    for partition in range(TOPIC_PARTITIONS):
        logs = replicas.get(partition, [])
        longest = max(logs, key=lambda log: log.end) if logs else None
        verdict = judge_partition(partition, history, values_of(longest) if longest is not None else [])
        acknowledged += verdict.acknowledged
        lost += verdict.lost
        for text in verdict.problems:
            texts.setdefault(text[:2], []).append(text)
    for several in texts.values():
        found += at_most(several)
    read = sum(len(each.values) for each in history.reads)
    return DataJudgement(acknowledged, lost, read, not differing, {}, found)


def _progress(seconds: float, rounds: int, nemesis: Nemesis, load: DataClients) -> str:
    done = sum(len(each.values) for each in load.history.sends if each.fate is Fate.ACKNOWLEDGED)
    return f"{seconds:6.0f} s  round {rounds:3}  faults {nemesis.counts.total():4}  records acknowledged {done:8,}"
