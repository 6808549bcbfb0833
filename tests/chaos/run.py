"""One run: a cluster, clients and a nemesis for some minutes; then everything is compared with everything."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from metaquorum import AdminClient
from tests.chaos.clients import Clients
from tests.chaos.cluster import ChaosCluster
from tests.chaos.entities.entities import Entities
from tests.chaos.judge import history as histories
from tests.chaos.judge.final_log import record
from tests.chaos.judge.history import TELLING, Operation, Outcome
from tests.chaos.judge.judging import RECORDED, Judgement, at_most, judge
from tests.chaos.judge.wellness import (
    NotWell,
    client_of,
    leader_of,
    observer_of,
    operator_of,
    until_equal,
    until_kept_out,
    until_well,
)
from tests.chaos.launch import NO_MUTANT
from tests.chaos.nemesis import Nemesis, Round, schedule
from tests.chaos.operators.calls import save as save_calls
from tests.chaos.operators.operators import Operators

OPERATORS_PAUSE_S: Final = 0.06
"""How long an operator pauses between two calls, on average."""


class Report(NamedTuple):
    """The outcome of a run."""

    seed: int
    seconds: float
    rounds: int
    faults: Counter[str]
    outcomes: Counter[Outcome]
    restarts: int
    judgement: Judgement
    data_directories: tuple[Path, ...]
    """Of the controllers, as the run has left them."""


async def run(
    directory: Path,
    seed: int,
    seconds: float,
    say: Callable[[str], None],
    *,
    clients: int = 8,
    operators: int = 3,
    pause_s: float = 0.03,
    mutant: str = NO_MUTANT,
    only: Sequence[str] = (),
) -> Report:
    """See the file's head. Leaves everything in `directory`."""
    dice = random.Random(f"{seed} nemesis")
    cluster = ChaosCluster.create(directory / "cluster", dice, mutant=mutant)
    entities = Entities(cluster, seed)
    everybody = _Everybody(
        Clients(lambda number, dice: client_of(cluster, number, dice), seed, clients, pause_s),
        Operators(
            lambda number, dice: operator_of(cluster, number, dice),
            seed,
            operators,
            [node.node_id for node in cluster.layout.brokers],
            OPERATORS_PAUSE_S,
            entities.resting,
        ),
        entities,
    )
    that = _Run(directory, cluster, everybody, say)
    nemesis = await that.go(seconds, dice, only)
    history = everybody.clients.history
    return Report(
        seed,
        time.monotonic() - that.began_s,
        that.rounds,
        nemesis.counts,
        Counter(each.outcome for each in history),
        sum(daemon.starts - 1 for daemon in cluster.daemons.values()),
        judge(
            cluster,
            directory,
            history,
            [*that.problems, *at_most(everybody.oddities)],
            equal_at=that.equal_at,
            broken=nemesis.broken,
            calls=everybody.operators.calls,
            entities=entities.noted,
            seconds=seconds,
        ),
        tuple(node.data_directory for node in cluster.layout.controllers),
    )


class _Everybody(NamedTuple):
    """All that work on the cluster during a run."""

    clients: Clients
    operators: Operators
    entities: Entities

    async def work(self, done: asyncio.Event) -> None:
        """Works until `done`."""
        await asyncio.gather(self.clients.run(done), self.operators.run(done), self.entities.run(done))

    @property
    def oddities(self) -> list[str]:
        return [*self.clients.oddities, *self.operators.oddities, *self.entities.oddities]

    def save(self, directory: Path) -> None:
        histories.save(directory / "history.jsonl", self.clients.history)
        save_calls(directory / "operators.jsonl", self.operators.calls)
        save_calls(directory / "entities.jsonl", self.entities.noted.calls)


class _Run:
    """The part of a run in which daemons run, and its results."""

    def __init__(
        self, directory: Path, cluster: ChaosCluster, everybody: _Everybody, say: Callable[[str], None]
    ) -> None:
        self._directory = directory
        self._cluster = cluster
        self._everybody = everybody
        self._say = say
        self.began_s = time.monotonic()
        self.rounds = 0
        self.problems: list[str] = []
        self.equal_at: tuple[int, bytes] | None = None
        """The end and the chain of all controllers, if they were equal at the end."""

    async def go(self, seconds: float, dice: random.Random, only: Sequence[str]) -> Nemesis:
        """Runs all for some seconds, stops the cluster, and returns the nemesis."""
        cluster, watchers = self._cluster, self._everybody.entities.watchers
        async with cluster.running(), observer_of(cluster) as observer, watchers.watching():
            nemesis = Nemesis(cluster, lambda: leader_of(observer))
            done = asyncio.Event()
            at_work = asyncio.ensure_future(self._everybody.work(done))
            try:
                await until_well(cluster, self._everybody.clients, observer)
                ends_s = time.monotonic() + seconds
                while time.monotonic() < ends_s and not cluster.findings:
                    await self._round(nemesis, observer, schedule(dice, only))
                done.set()
                await at_work
                if not cluster.findings:
                    await until_kept_out(observer)
                    self.equal_at = await until_equal(cluster, observer)
                    await watchers.until_seen(self.equal_at[0])
            except NotWell as e:
                self.problems.append(str(e))
            finally:
                done.set()
                await at_work
                self._everybody.save(self._directory)
            await cluster.stop()
        return nemesis

    async def _round(self, nemesis: Nemesis, observer: AdminClient, planned: Round) -> None:
        """Carries out one round of faults, and waits until all are well again."""
        self.rounds += 1
        with (self._directory / "schedule").open("a") as file:
            file.write(f"{time.monotonic_ns()} round {self.rounds}: {'; '.join(map(str, planned.faults))}\n")
        await nemesis.carry_out(planned)
        await until_well(self._cluster, self._everybody.clients, observer)
        nemesis.forgive()
        for node in self._cluster.layout.controllers:
            record(node, self._directory / RECORDED)
        history = self._everybody.clients.history
        self._say(_progress(time.monotonic() - self.began_s, self.rounds, nemesis, history))
        await asyncio.sleep(planned.calm_s)


def _progress(seconds: float, rounds: int, nemesis: Nemesis, history: list[Operation]) -> str:
    counts = Counter(each.outcome for each in history)
    return (
        f"{seconds:6.0f} s  round {rounds:3}  faults {nemesis.counts.total():4}  "
        f"answered {sum(counts[each] for each in TELLING):6}  "
        f"failed {counts[Outcome.FAILED]:5}  unknown {counts[Outcome.UNKNOWN]:5}"
    )
