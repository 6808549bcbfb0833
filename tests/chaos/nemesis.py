"""The faults of a run, and their times: a schedule out of one seed, carried out on a running cluster.

Rounds: in each, one to three faults begin together or shortly after each other and overlap; then everything is healed, and the
cluster has to be well again, which means that a client's write is acknowledged. Nothing here destroys what a majority holds
durably: what was promised is damaged on one node at a time, and on the next one when that is whole again.

The schedule comes from the seed alone; when what happens meets what, the machine decides. So a seed tells what was tried, and
the history what came of it.
"""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from metadata_log.disk.files import RealDirectory
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from tests.chaos import damage
from tests.chaos.cluster import ChaosCluster, Daemon
from tests.chaos.disk_faults import CALLS


class Fault(NamedTuple):
    """One fault: begins `after_s` into the round, lasts for `lasts_s`. `dice` is the seed of its own details."""

    kind: str
    after_s: float
    lasts_s: float
    dice: int

    def __str__(self) -> str:
        return f"{self.kind} at {self.after_s:.1f} s for {self.lasts_s:.1f} s"


class Round(NamedTuple):
    """Faults that overlap, and how long all is well after them."""

    faults: tuple[Fault, ...]
    calm_s: float


def schedule(
    dice: random.Random, only: Sequence[str] = (), faults: "Mapping[str, tuple[int, FaultFunction]] | None" = None
) -> Round:
    """The next round, of `faults` (without them: of `FAULTS`). `only`: faults of these kinds; all, if none is named."""
    known = FAULTS if faults is None else faults
    count = dice.choice([1, 1, 2, 2, 3])
    names = list(only or known)
    kinds = dice.choices(names, [known[name][0] for name in names], k=count)
    chosen = tuple(
        Fault(kind, dice.uniform(0, 1.5) if index else 0.0, dice.uniform(0.3, 4.0), dice.getrandbits(32))
        for index, kind in enumerate(kinds)
    )
    return Round(chosen, dice.uniform(0.3, 2.0))


class Nemesis:
    """Carries rounds out. `leader` tells who leads now, if anybody knows."""

    def __init__(
        self,
        cluster: ChaosCluster,
        leader: Callable[[], Awaitable[int | None]],
        faults: "Mapping[str, tuple[int, FaultFunction]] | None" = None,
    ) -> None:
        self.cluster = cluster
        self._faults = FAULTS if faults is None else faults
        self.counts: Counter[str] = Counter()
        """Faults that took place, by kind."""
        self.broken: str | None = None
        """The controller whose promise was broken, until all are well again."""
        self._leader = leader

    async def carry_out(self, planned: Round) -> None:
        """The round's faults, all of them over when this returns."""
        async with asyncio.TaskGroup() as tasks:
            for fault in planned.faults:
                tasks.create_task(self._one(fault))
        self.heal()

    def heal(self) -> None:
        """Nothing is wrong any more, but what is broken takes its time to come back."""
        self.cluster.network.heal()
        for daemon in self.cluster.daemons.values():
            daemon.send(signal.SIGCONT)
            daemon.starts_at_s = 0.0
            if daemon.has_orders:
                daemon.order(fault="heal")

    def forgive(self) -> None:
        """All are well: from here on a daemon that gives up has no excuse."""
        self.broken = None
        for daemon in self.cluster.daemons.values():
            daemon.may_give_up = False

    async def _one(self, fault: Fault) -> None:
        await asyncio.sleep(fault.after_s)
        _, carry_out = self._faults[fault.kind]
        dice = random.Random(fault.dice)
        if await carry_out(self, dice, fault.lasts_s):
            self.counts[fault.kind] += 1

    async def controller(self, dice: random.Random) -> Daemon:
        """Somebody; every other time whoever leads, because that is where it hurts."""
        if dice.random() < 0.5:
            leader = await self._leader()
            for daemon in self.cluster.controllers:
                if daemon.node.node_id == leader:
                    return daemon
        return dice.choice(self.cluster.controllers)


async def kill(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    return await _down(await nemesis.controller(dice), signal.SIGKILL, lasts_s)


async def kill_all(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """All controllers at once, as when the power of a room goes (but what was written stays written)."""
    downs = [_down(daemon, signal.SIGKILL, dice.uniform(0, lasts_s)) for daemon in nemesis.cluster.controllers]
    return any(await asyncio.gather(*downs))


async def terminate(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    return await _down(await nemesis.controller(dice), signal.SIGTERM, lasts_s)


async def _down(daemon: Daemon, number: signal.Signals, lasts_s: float) -> bool:
    daemon.starts_at_s = time.monotonic() + lasts_s
    done = daemon.send(number)
    await asyncio.sleep(lasts_s)
    return done


async def pause(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """The process stands still and does not know it: a long collection, a moved virtual machine."""
    daemon = await nemesis.controller(dice)
    done = daemon.send(signal.SIGSTOP)
    await asyncio.sleep(lasts_s)
    daemon.send(signal.SIGCONT)
    return done


async def kill_at(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """Dies in the middle of its n-th write, before its n-th fsync, before its n-th rename."""
    daemon = await nemesis.controller(dice)
    daemon.starts_at_s = 0.0
    done = daemon.order(fault="kill_at", call=dice.choice(CALLS), nth=dice.randint(1, 30))
    await asyncio.sleep(lasts_s)
    return done


async def fsync_fails(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """One fsync says EIO, the next would say that all is well. The node must not believe it."""
    daemon = await nemesis.controller(dice)
    daemon.may_give_up = True
    done = daemon.order(fault="fsync_fails", count=1)
    await asyncio.sleep(lasts_s)
    return done


async def disk_full(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """Nothing is left but the ballast. That is no reason to give up."""
    daemon = await nemesis.controller(dice)
    done = daemon.order(fault="disk_full", seconds=lasts_s, directory=str(daemon.node.data_directory))
    await asyncio.sleep(lasts_s)
    return done


async def slow_disk(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    daemon = await nemesis.controller(dice)
    done = daemon.order(fault="slow_fsync", seconds=lasts_s, by_s=dice.choice([0.03, 0.2, 1.0]))
    await asyncio.sleep(lasts_s)
    return done


async def wall_clock(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """The wall clock of one node jumps, and stays where it is."""
    daemon = await nemesis.controller(dice)
    done = daemon.order(fault="wall_step", ms=dice.choice([-1, 1]) * dice.randint(1_000, 86_400_000))
    await asyncio.sleep(lasts_s)
    return done


async def torn_tail(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """Killed, and what it had written but not flushed is damaged, as a power cut would."""
    daemon = await nemesis.controller(dice)
    return await _killed_and_damaged(daemon, damage.tear, LOG_DIRECTORY, dice, lasts_s)


async def forget_vote(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """A controller's `quorum-state` is of no use: it may have voted, so it must not be the voter that it was, and joins as
    another."""
    return await _break_promise(nemesis, damage.forget_vote, "", dice, lasts_s)


async def lose_end(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """The end of a log is gone that was flushed and may have been acknowledged: until it is back the node must not count."""
    return await _break_promise(nemesis, damage.cut_end, LOG_DIRECTORY, dice, lasts_s)


async def rot_log(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """Bits flip in what a log had durably, under the running node or while it is down: the others have it still."""
    return await _break_promise(nemesis, damage.rot_log, LOG_DIRECTORY, dice, lasts_s)


async def rot_snapshot(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """A bit flips in a snapshot, which may be the one that others are about to fetch."""
    return await _break_promise(nemesis, damage.rot_snapshot, LOG_DIRECTORY, dice, lasts_s)


Damage: TypeAlias = Callable[[RealDirectory, random.Random], bool]


async def _break_promise(nemesis: Nemesis, hurt: Damage, where: str, dice: random.Random, lasts_s: float) -> bool:
    """Something durable is gone. Never on a second one before the first is whole again: two are a majority."""
    daemon = await nemesis.controller(dice)
    if nemesis.broken is not None:
        return False
    nemesis.broken = daemon.node.name
    if hurt in (damage.rot_log, damage.rot_snapshot) and dice.random() < 0.5:
        done = hurt(RealDirectory(daemon.node.data_directory / where), dice)
        await asyncio.sleep(lasts_s)  # whoever reads there finds it; what nobody has read is found at the next start
        await _down(daemon, signal.SIGKILL, 0.0)
        return done
    return await _killed_and_damaged(daemon, hurt, where, dice, lasts_s)


async def _killed_and_damaged(daemon: Daemon, hurt: Damage, where: str, dice: random.Random, lasts_s: float) -> bool:
    daemon.starts_at_s = time.monotonic() + 60
    while daemon.send(signal.SIGKILL):
        await asyncio.sleep(0.01)
    done = hurt(RealDirectory(daemon.node.data_directory / where), dice)
    daemon.starts_at_s = time.monotonic() + lasts_s
    await asyncio.sleep(lasts_s)
    return done


async def isolate(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """One controller and the others hear nothing of each other; what was sent meanwhile comes afterwards."""
    me = (await nemesis.controller(dice)).node.node_id
    for pair, direction in nemesis.cluster.network.directions.items():
        if me in pair:
            direction.open.clear()
    return await _until_healed(nemesis, lasts_s)


async def one_way(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """One controller is not heard by the others (or by one of them) but hears them; or the other way round."""
    me = (await nemesis.controller(dice)).node.node_id
    side = dice.choice([0, 1])
    pairs = [pair for pair in nemesis.cluster.network.pairs if pair[side] == me]
    for pair in dice.sample(pairs, dice.choice([1, len(pairs)])):
        nemesis.cluster.network.directions[pair].open.clear()
    return await _until_healed(nemesis, lasts_s)


async def bridge(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """Two controllers do not reach each other, and both reach the third."""
    one, other = dice.choice(nemesis.cluster.network.pairs)
    for pair in ((one, other), (other, one)):
        nemesis.cluster.network.directions[pair].open.clear()
    return await _until_healed(nemesis, lasts_s)


async def reset(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """A firewall rejects one controller's connections, to others or from them."""
    me = (await nemesis.controller(dice)).node.node_id
    side = dice.choice([0, 1])
    for pair, link in nemesis.cluster.network.links.items():
        if pair[side] == me:
            link.refuses = True
    return await _until_healed(nemesis, lasts_s)


async def half_open(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """Connections stand and nothing comes through, then or later."""
    pair = dice.choice(nemesis.cluster.network.pairs)
    nemesis.cluster.network.links[pair].swallows = True
    return await _until_healed(nemesis, lasts_s)


async def slow_network(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """Delays, or little bandwidth, on some directions."""
    directions = list(nemesis.cluster.network.directions.values())
    for direction in dice.sample(directions, dice.randint(1, len(directions))):
        direction.delay_s = dice.choice([0.0, 0.02, 0.1, 0.4])
        direction.bytes_per_s = dice.choice([0, 0, 20_000, 200_000])
    return await _until_healed(nemesis, lasts_s)


async def _until_healed(nemesis: Nemesis, lasts_s: float) -> bool:
    """The network is healed as a whole: a fault that overlaps ends with the first that does."""
    await asyncio.sleep(lasts_s)
    nemesis.cluster.network.heal()
    return True


async def kill_broker(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    return await _down(dice.choice(nemesis.cluster.brokers), signal.SIGKILL, lasts_s)


async def pause_broker(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    daemon = dice.choice(nemesis.cluster.brokers)
    done = daemon.send(signal.SIGSTOP)
    await asyncio.sleep(lasts_s)
    daemon.send(signal.SIGCONT)
    return done


FaultFunction: TypeAlias = Callable[[Nemesis, random.Random, float], Awaitable[bool]]
FAULTS: Final[dict[str, tuple[int, FaultFunction]]] = {
    "kill -9": (10, kill),
    "kill -9 of all": (3, kill_all),
    "SIGTERM": (4, terminate),
    "pause": (10, pause),
    "death in a disk call": (14, kill_at),
    "failed fsync": (6, fsync_fails),
    "full disk": (6, disk_full),
    "slow disk": (6, slow_disk),
    "wall clock step": (4, wall_clock),
    "torn tail": (6, torn_tail),
    "forgotten vote": (5, forget_vote),
    "lost end": (5, lose_end),
    "rot in the log": (8, rot_log),
    "rot in a snapshot": (12, rot_snapshot),  # mostly there is none that a node could spare
    "isolated": (8, isolate),
    "one-way cut": (8, one_way),
    "A and B see only C": (5, bridge),
    "reset": (5, reset),
    "half open": (4, half_open),
    "slow network": (6, slow_network),
    "broker kill -9": (4, kill_broker),
    "broker pause": (4, pause_broker),
}
"""By name, how often it comes relative to the others, and what it does. A function gives False if it met nobody."""
