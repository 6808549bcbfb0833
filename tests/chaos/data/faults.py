"""The faults of a run with data: those of brokers, and some of controllers.

A full disk or a failed fsync costs a broker its log directory: the replicas there are offline until the next start. So these
faults end with a kill, and the supervisor starts the broker again on a good disk. They hit one broker at a time: with two of
three replicas gone, nothing could be acknowledged, and nothing learned.
"""

import asyncio
import random
import signal
import time
from typing import Final

from tests.chaos.cluster import Daemon
from tests.chaos.disk_faults import CALLS
from tests.chaos.nemesis import FAULTS, FaultFunction, Nemesis, kill_broker, pause_broker

FULL_ROOM_BYTES: Final = 64 << 10
"""How much a full disk still takes, so that it fills within a second."""


async def kill_all_brokers(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """Nothing is in memory any more: what was acknowledged must be on disks."""
    brokers = nemesis.cluster.brokers
    for daemon in brokers:
        daemon.starts_at_s = time.monotonic() + dice.uniform(0, lasts_s)
    done = [daemon.send(signal.SIGKILL) for daemon in brokers]
    await asyncio.sleep(lasts_s)
    return any(done)


async def stop_broker(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """A controlled shutdown, as in a rolling restart."""
    daemon = dice.choice(nemesis.cluster.brokers)
    daemon.starts_at_s = time.monotonic() + lasts_s
    done = daemon.send(signal.SIGTERM)
    await asyncio.sleep(lasts_s)
    return done


async def broker_dies_in_a_call(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """Dies in the middle of its n-th write, before its n-th fsync, before its n-th rename."""
    daemon = dice.choice(nemesis.cluster.brokers)
    daemon.starts_at_s = 0.0
    done = daemon.order(fault="kill_at", call=dice.choice(CALLS), nth=dice.randint(1, 200))
    await asyncio.sleep(lasts_s)
    return done


async def slow_broker_disk(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    daemon = dice.choice(nemesis.cluster.brokers)
    done = daemon.order(fault="slow_fsync", seconds=lasts_s, by_s=dice.choice([0.01, 0.1, 0.5]))
    await asyncio.sleep(lasts_s)
    return done


async def full_broker_disk(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """No room for more records."""
    return await _bad_disk(nemesis, dice, lasts_s, fault="disk_full", seconds=lasts_s, room=FULL_ROOM_BYTES)


async def broker_fsync_fails(nemesis: Nemesis, dice: random.Random, lasts_s: float) -> bool:
    """One fsync says EIO, the next would say that all is well. The broker must not believe it."""
    return await _bad_disk(nemesis, dice, lasts_s, fault="fsync_fails", count=1)


async def _bad_disk(nemesis: Nemesis, dice: random.Random, lasts_s: float, **fault: object) -> bool:
    daemon = dice.choice(nemesis.cluster.brokers)
    if nemesis.broken is not None:
        return False
    nemesis.broken = daemon.node.name
    daemon.may_give_up = True
    done = daemon.order(**fault, directory=str(daemon.node.log_directory))
    await asyncio.sleep(lasts_s)
    await _killed(daemon)
    return done


async def _killed(daemon: Daemon) -> None:
    daemon.starts_at_s = time.monotonic() + 60
    while daemon.send(signal.SIGKILL):
        await asyncio.sleep(0.01)
    daemon.starts_at_s = 0.0


_OF_CONTROLLERS: Final = {
    "kill -9": 4,
    "kill -9 of all": 2,
    "pause": 4,
    "isolated": 4,
    "one-way cut": 2,
    "slow network": 2,
}
DATA_FAULTS: Final[dict[str, tuple[int, FaultFunction]]] = {
    **{name: (weight, FAULTS[name][1]) for name, weight in _OF_CONTROLLERS.items()},
    "broker kill -9": (14, kill_broker),
    "broker pause": (12, pause_broker),
    "broker SIGTERM": (5, stop_broker),
    "kill -9 of all brokers": (5, kill_all_brokers),
    "death of a broker in a disk call": (10, broker_dies_in_a_call),
    "slow disk of a broker": (5, slow_broker_disk),
    "full disk of a broker": (5, full_broker_disk),
    "failed fsync of a broker": (4, broker_fsync_fails),
}
"""As `tests.chaos.nemesis.FAULTS`."""
