"""Cuts the power of controllers while clients write, again and again: what was acknowledged must be there afterwards.

    python -m tests.chaos.powercut --rounds 50

Each controller's directory is a volume of its own (`tests.chaos.volume`). In each round one of them loses its power, or all
three at the same moment; their processes are killed, the volumes mounted anew, and the controllers started again. Where all
three were cut, the disks are read before anybody starts: every write that was acknowledged until then must be on a majority
of them, durably. After every round a read must be as of all that was acknowledged, and at the end the same checkers judge as
after `make chaos`.

`--lying` makes every fsync of the controllers a lie. Then the run must fail: it shows that the cuts cut.
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

from metadata_log.format.errors import LogFormatError
from tests.chaos.clients import Clients
from tests.chaos.cluster import ChaosCluster
from tests.chaos.judge import history as histories
from tests.chaos.judge.final_log import FinalLog, changes_of, read_final_log, record
from tests.chaos.judge.history import TELLING, Operation, Outcome
from tests.chaos.judge.judging import RECORDED, Judgement, at_most, judge
from tests.chaos.judge.wellness import (
    NotWell,
    client_of,
    leader_of,
    observer_of,
    until_equal,
    until_terminated,
    until_well,
)
from tests.chaos.judge.witness import Witness
from tests.chaos.volume import Volume, why_not


class Cut(NamedTuple):
    """The outcome of a run."""

    rounds: Counter[str]
    telling: int
    """Rounds in which all were cut and a write had been acknowledged since the last such round: there was something to lose."""
    seconds: float
    outcomes: Counter[Outcome]
    judgement: Judgement


class PowerCuts:
    """One run. Leaves everything in `directory`, with the volumes unmounted."""

    def __init__(self, directory: Path, seed: int, *, lying: bool = False) -> None:
        self._directory = directory
        self._dice = random.Random(f"{seed} power")
        self.cluster = ChaosCluster.create(directory / "cluster", self._dice, brokers=2)
        self._clients = Clients(lambda number, dice: client_of(self.cluster, number, dice), seed, 8, 0.01)
        self._lying = lying
        self._volumes: dict[str, Volume] = {}
        self._rounds: Counter[str] = Counter()
        self._checked = self._telling = 0
        self._equal_at: tuple[int, bytes] | None = None
        self.problems: list[str] = []

    async def run(self, rounds: int, say: Callable[[str], None]) -> Cut:
        began_s = time.monotonic()
        try:
            await self._under_load(rounds, say, began_s)
            seconds = time.monotonic() - began_s
            judgement = judge(
                self.cluster, self._directory, self._clients.history, self.problems, equal_at=self._equal_at
            )
        finally:
            for volume in self._volumes.values():
                kept = volume.path.with_name("data.kept")
                shutil.copytree(volume.path, kept)
                volume.remove()
                volume.path.rmdir()
                kept.rename(volume.path)
        outcomes = Counter(each.outcome for each in self._clients.history)
        return Cut(self._rounds, self._telling, seconds, outcomes, judgement)

    async def _under_load(self, rounds: int, say: Callable[[str], None], began_s: float) -> None:
        for daemon in self.cluster.controllers:
            self._volumes[daemon.node.name] = Volume.under(daemon.node.data_directory)
        async with self.cluster.running(), observer_of(self.cluster) as observer:
            done = asyncio.Event()
            at_work = asyncio.create_task(self._clients.run(done))
            try:
                await until_well(self.cluster, self._clients, observer)
                while self._rounds.total() < rounds and not self.problems and not self.cluster.findings:
                    await self._round(await leader_of(observer))
                    if not self.problems:
                        await until_well(self.cluster, self._clients, observer)
                        self._check_reads()
                    for node in self.cluster.layout.controllers:
                        record(node, self._directory / RECORDED)
                    seconds = time.monotonic() - began_s
                    told = sum(1 for each in self._clients.history if each.outcome in TELLING)
                    say(f"{seconds:6.0f} s  round {self._rounds.total():3}  answered {told:6}")
                done.set()
                await at_work
                if not self.problems:
                    self._equal_at = await until_equal(self.cluster, observer)
            except NotWell as e:
                self.problems.append(str(e))
            finally:
                done.set()
                await at_work
                histories.save(self._directory / "history.jsonl", self._clients.history)
            await self.cluster.stop()

    async def _round(self, leader: int | None) -> None:
        """Lets the clients write for a moment, and cuts."""
        if self._lying:
            for daemon in self.cluster.controllers:
                daemon.order(fault="fsync_lies")
        await asyncio.sleep(self._dice.uniform(0.2, 1.2))
        everybody = self.cluster.controllers
        kind = self._dice.choice(["all", "all", "leader", "one"])
        leading = [daemon for daemon in everybody if daemon.node.node_id == leader]
        victims = (
            everybody if kind == "all" else leading if kind == "leader" and leading else [self._dice.choice(everybody)]
        )
        self._rounds[kind] += 1
        for daemon in victims:
            daemon.wanted, daemon.may_give_up = False, True
        for daemon in victims:
            self._volumes[daemon.node.name].cut()
        known = len(self._clients.history)
        for daemon in victims:
            daemon.send(signal.SIGKILL)
        while any(daemon.runs for daemon in victims):
            await asyncio.sleep(0.01)
        for daemon in victims:
            await asyncio.to_thread(self._volumes[daemon.node.name].unmount)
            await asyncio.to_thread(self._volumes[daemon.node.name].mount)
        if len(victims) == len(everybody):
            self._check_disks(self._clients.history[:known])
        for daemon in victims:
            daemon.wanted, daemon.starts_at_s = True, 0.0

    def _check_disks(self, history: list[Operation]) -> None:
        """Every write that was acknowledged since the last such look is on a majority of the disks."""
        recent = [each for each in history[self._checked :] if each.is_change and each.outcome is Outcome.DONE]
        self._checked = len(history)
        self._telling += bool(recent)
        logs: list[FinalLog] = []
        for daemon in self.cluster.controllers:
            try:
                logs.append(read_final_log(daemon.node, self._directory / "scratch"))
            except LogFormatError as e:
                self.problems.append(f"after a cut, {daemon.node.name} cannot be opened: {e}")
        witnesses = [Witness(changes_of(log.batches), log.start) for log in logs]
        missing = []
        for each in recent:
            holders = sum(not witness.can_tell(each) or witness.wrote(each) for witness in witnesses)
            if holders < 2:
                missing.append(f"{each} was acknowledged, and is on {holders} of 3 disks after their power was cut")
        self.problems += at_most(missing)

    def _check_reads(self) -> None:
        """What the last read is as of holds all that had been acknowledged when it was asked."""
        told = [each for each in self._clients.history if each.offset is not None]
        last = max(told, key=lambda each: each.called_ns)
        before = [each.offset or 0 for each in told if each.returned_ns < last.called_ns]
        if before and (last.offset or 0) < max(before):
            self.problems.append(f"{last} is as of less than {max(before)}, which had been answered before")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.powercut",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=50, help="how often power is cut (50)")
    parser.add_argument("--seed", type=int, help="of what is cut when; a fresh one if it is not given")
    parser.add_argument(
        "--lying", action="store_true", help="no fsync of a controller does anything: the run must fail"
    )
    arguments = parser.parse_args()
    seed = secrets.randbits(31) if arguments.seed is None else arguments.seed
    directory = Path(tempfile.mkdtemp(prefix="metaquorum-powercut-"))
    reason = why_not(directory)
    if reason is not None:
        _say(f"skipped: {reason}")
        shutil.rmtree(directory)
        return 0
    _say(f"seed {seed}, in {directory}")
    cuts = PowerCuts(directory, seed, lying=arguments.lying)
    cut = asyncio.run(until_terminated(cuts.run(arguments.rounds, _say)))
    _say(table(cut))
    if cut.judgement.problems:
        _say("\n" + "\n\n".join(cut.judgement.problems))
        _say(f"\neverything is kept in {directory}")
        _say(f"the same cuts again: make powercut ROUNDS={arguments.rounds} SEED={seed}")
        return 1
    shutil.rmtree(directory)
    return 0


def table(cut: Cut) -> str:
    """The run in figures."""
    rounds = cut.rounds.total()
    done = sum(cut.outcomes[each] for each in TELLING)
    return "\n".join(
        (
            f"power cuts                {rounds}",
            f"  of all, leader, one     {cut.rounds['all']}, {cut.rounds['leader']}, {cut.rounds['one']}",
            f"  of all, with new writes {cut.telling}",
            f"seconds a round           {cut.seconds / max(1, rounds):.1f}",
            f"operations answered       {done:,}",
            f"  failed, unknown         {cut.outcomes[Outcome.FAILED]:,}, {cut.outcomes[Outcome.UNKNOWN]:,}",
            *cut.judgement.lines(),
        )
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
