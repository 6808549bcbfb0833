"""Cuts the power of brokers while producers append with acks=all: what was acknowledged must be there afterwards.

    python -m tests.chaos.data.powercut --rounds 50

Each broker's log directory is a volume of its own (`tests.chaos.volume`). In each round one broker loses its power, or two, or
all at the same moment: the processes are killed, the volumes are mounted anew, and the supervisor starts the brokers again.
After each round every partition must acknowledge an append. At the end the judge of `make chaos-data` compares histories and
logs.

The directories of metadata are not cut: a broker fetches lost metadata again from the controllers, whose disks `make powercut`
cuts.

`--lying` makes every fsync of the brokers a lie, and cuts all of them. Then the run must fail: it shows that the cuts cut.
"""

import argparse
import asyncio
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from metaquorum import AdminClient
from tests.chaos.clients import Clients
from tests.chaos.cluster import Daemon
from tests.chaos.data.history import Fate, save
from tests.chaos.data.run import COPIES, TOPIC_PARTITIONS, DataJudgement, clients_of, cluster_of, create_topic, judge
from tests.chaos.data.wellness import until_appended, until_replicated
from tests.chaos.judge.wellness import NotWell, client_of, observer_of, until_terminated, until_well
from tests.chaos.volume import Volume, why_not

VOLUME_BYTES = 256 << 20


class Cut(NamedTuple):
    """The outcome of a run. `rounds`: how often so many brokers were cut together."""

    rounds: Counter[int]
    seconds: float
    judgement: DataJudgement


class DataPowerCuts:
    """One run. Leaves everything in `directory`, with the volumes unmounted."""

    def __init__(self, directory: Path, seed: int, *, lying: bool = False) -> None:
        self._directory = directory
        self._dice = random.Random(f"{seed} power")
        self._cluster = cluster_of(directory / "cluster", self._dice, brokers=3)
        self._writer = Clients(lambda number, dice: client_of(self._cluster, number, dice), seed, 0, 0.03)
        self._load = clients_of(self._cluster, seed)
        self._lying = lying
        self._volumes: dict[str, Volume] = {}
        self._rounds: Counter[int] = Counter()
        self._leaders: dict[int, int] = {}
        self.problems: list[str] = []

    async def run(self, rounds: int, say: Callable[[str], None]) -> Cut:
        began_s = time.monotonic()
        topic_id = b""
        try:
            for daemon in self._cluster.brokers:
                daemon.node.log_directory.mkdir(parents=True, exist_ok=True)
                self._volumes[daemon.node.name] = Volume.under(daemon.node.log_directory, VOLUME_BYTES)
            topic_id = await self._under_load(rounds, say, began_s)
            self.problems += [str(found) for found in self._cluster.findings]
            judgement = judge(self._cluster, self._directory, topic_id, self._load, self.problems)
        finally:
            for volume in self._volumes.values():
                kept = volume.path.with_name("replicas.kept")
                shutil.copytree(volume.path, kept)
                volume.remove()
                volume.path.rmdir()
                kept.rename(volume.path)
        return Cut(self._rounds, time.monotonic() - began_s, judgement._replace(leaders=self._leaders))

    async def _under_load(self, rounds: int, say: Callable[[str], None], began_s: float) -> bytes:
        """Returns the topic's id."""
        async with self._cluster.running(), observer_of(self._cluster) as observer:
            await until_well(self._cluster, self._writer, observer)
            topic_id = await create_topic(observer, len(self._cluster.brokers))
            done = asyncio.Event()
            at_work = asyncio.create_task(self._load.run(done))
            try:
                await until_appended(self._cluster, self._load, TOPIC_PARTITIONS)
                while self._rounds.total() < rounds and not self._cluster.findings:
                    await self._round(observer)
                    sends = self._load.history.sends
                    records = sum(len(each.values) for each in sends if each.fate is Fate.ACKNOWLEDGED)
                    seconds = time.monotonic() - began_s
                    say(f"{seconds:6.0f} s  round {self._rounds.total():3}  records acknowledged {records:8,}")
                done.set()
                await at_work
                if not self._cluster.findings:
                    self._leaders = await until_replicated(observer, COPIES)
            except NotWell as e:
                self.problems.append(str(e))
            finally:
                done.set()
                await at_work
                save(self._directory / "history.jsonl", self._load.history)
            await self._cluster.stop()
        return topic_id

    async def _round(self, observer: AdminClient) -> None:
        """Lets the producers append for a moment, cuts, and waits until all is well again."""
        if self._lying:
            for daemon in self._cluster.brokers:
                daemon.order(fault="fsync_lies")
        await asyncio.sleep(self._dice.uniform(0.2, 1.5))
        count = 3 if self._lying else self._dice.choice([1, 2, 3, 3])
        await self._cut(self._dice.sample(self._cluster.brokers, count))
        self._rounds[count] += 1
        await until_well(self._cluster, self._writer, observer)
        await until_appended(self._cluster, self._load, TOPIC_PARTITIONS)
        for daemon in self._cluster.brokers:
            daemon.may_give_up = False

    async def _cut(self, victims: list[Daemon]) -> None:
        for daemon in victims:
            daemon.wanted, daemon.may_give_up = False, True
        for daemon in victims:
            self._volumes[daemon.node.name].cut()
        for daemon in victims:
            daemon.send(signal.SIGKILL)
        while any(daemon.runs for daemon in victims):
            await asyncio.sleep(0.01)
        for daemon in victims:
            await asyncio.to_thread(self._volumes[daemon.node.name].unmount)
            await asyncio.to_thread(self._volumes[daemon.node.name].mount)
        for daemon in victims:
            daemon.wanted, daemon.starts_at_s = True, 0.0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.data.powercut",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=50, help="how often power is cut (50)")
    parser.add_argument("--seed", type=int, help="of what is cut when; a fresh one if it is not given")
    parser.add_argument("--lying", action="store_true", help="no fsync of a broker does anything: the run must fail")
    arguments = parser.parse_args()
    seed = secrets.randbits(31) if arguments.seed is None else arguments.seed
    directory = Path(tempfile.mkdtemp(prefix="metaquorum-powercut-"))
    reason = why_not(directory)
    if reason is not None:
        _say(f"skipped: {reason}")
        shutil.rmtree(directory)
        return 0
    _say(f"seed {seed}, in {directory}")
    cuts = DataPowerCuts(directory, seed, lying=arguments.lying)
    cut = asyncio.run(until_terminated(cuts.run(arguments.rounds, _say)))
    _say(table(cut))
    if cut.judgement.problems:
        _say("\n" + "\n\n".join(cut.judgement.problems))
        _say(f"\neverything is kept in {directory}")
        _say(f"the same cuts again: make powercut-data ROUNDS={arguments.rounds} SEED={seed}")
        return 1
    shutil.rmtree(directory)
    return 0


def table(cut: Cut) -> str:
    """The run in figures."""
    rows = [("power cuts", f"{cut.rounds.total()}")]
    rows += [(f"  of {count} of 3 brokers", f"{times}") for count, times in sorted(cut.rounds.items())]
    rows += [("seconds a round", f"{cut.seconds / max(1, cut.rounds.total()):.1f}")]
    return "\n".join([*(f"{name:<34}{value}" for name, value in rows), *cut.judgement.lines()])


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
