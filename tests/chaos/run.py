"""One run: a cluster, clients and a nemesis for some minutes; then everything is compared with everything."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

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
from tests.chaos.nemesis import Nemesis, schedule
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
    worker = Clients(lambda number, dice: client_of(cluster, number, dice), seed, clients, pause_s)
    brokers = [node.node_id for node in cluster.layout.brokers]
    entities = Entities(cluster, seed)
    administration = Operators(
        lambda number, dice: operator_of(cluster, number, dice),
        seed,
        operators,
        brokers,
        OPERATORS_PAUSE_S,
        entities.resting,
    )
    problems: list[str] = []
    equal_at: tuple[int, bytes] | None = None
    began_s = time.monotonic()
    rounds = 0
    async with cluster.running(), observer_of(cluster) as observer, entities.watchers.watching():
        nemesis = Nemesis(cluster, lambda: leader_of(observer))
        done = asyncio.Event()
        at_work = asyncio.gather(worker.run(done), administration.run(done), entities.run(done))
        try:
            await until_well(cluster, worker, observer)
            ends_s = time.monotonic() + seconds
            while time.monotonic() < ends_s and not cluster.findings:
                planned = schedule(dice, only)
                rounds += 1
                with (directory / "schedule").open("a") as file:
                    file.write(f"{time.monotonic_ns()} round {rounds}: {'; '.join(map(str, planned.faults))}\n")
                await nemesis.carry_out(planned)
                await until_well(cluster, worker, observer)
                nemesis.forgive()
                for node in cluster.layout.controllers:
                    record(node, directory / RECORDED)
                say(_progress(time.monotonic() - began_s, rounds, nemesis, worker.history))
                await asyncio.sleep(planned.calm_s)
            done.set()
            await at_work
            if not cluster.findings:
                await until_kept_out(observer)
                equal_at = await until_equal(cluster, observer)
                await entities.watchers.until_seen(equal_at[0])
        except NotWell as e:
            problems.append(str(e))
        finally:
            done.set()
            await at_work
            histories.save(directory / "history.jsonl", worker.history)
            save_calls(directory / "operators.jsonl", administration.calls)
            save_calls(directory / "entities.jsonl", entities.noted.calls)
        await cluster.stop()
    problems += at_most([*worker.oddities, *administration.oddities, *entities.oddities])
    return Report(
        seed,
        time.monotonic() - began_s,
        rounds,
        nemesis.counts,
        Counter(each.outcome for each in worker.history),
        sum(daemon.starts - 1 for daemon in cluster.daemons.values()),
        judge(
            cluster,
            directory,
            worker.history,
            problems,
            equal_at=equal_at,
            broken=nemesis.broken,
            calls=administration.calls,
            entities=entities.noted,
            seconds=seconds,
        ),
        tuple(node.data_directory for node in cluster.layout.controllers),
    )


def _progress(seconds: float, rounds: int, nemesis: Nemesis, history: list[Operation]) -> str:
    counts = Counter(each.outcome for each in history)
    return (
        f"{seconds:6.0f} s  round {rounds:3}  faults {nemesis.counts.total():4}  "
        f"answered {sum(counts[each] for each in TELLING):6}  "
        f"failed {counts[Outcome.FAILED]:5}  unknown {counts[Outcome.UNKNOWN]:5}"
    )
