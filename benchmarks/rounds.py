"""The same loads on both sides, in short rounds in turn, and what to say about many rounds.

A machine is never equally fast for long: a neighbour works, caches are cold. So each round measures etcd and metaquorum right
after each other, and only the ratio of the two figures of one round counts:

    round 1   etcd 1.0 ms, metaquorum 2.4 ms    ratio 2.4
    round 2   metaquorum 4.6 ms, etcd 2.0 ms    ratio 2.3       (a neighbour has begun to work)
    round 3   etcd 1.1 ms, metaquorum 2.6 ms    ratio 2.36
                                                median 2.36, from 2.3 to 2.4

The clusters stay up for all rounds. The side that begins changes with every round.
"""

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.cpu import spent_by_name
from benchmarks.load import Call, closed_loop

WARM_UP_S = 0.3


class Side(NamedTuple):
    """One cluster under one load."""

    pids: Callable[[], Awaitable[dict[str, int]]]
    begin: Callable[[], Awaitable[tuple[Call, Callable[[], Awaitable[None]]]]]
    """Makes the call of the load, and a function that cleans up after it."""
    each: int = 1
    """How many units one call makes, for example partitions."""


class Load(NamedTuple):
    """A load, and its figure: the median latency, or the rate."""

    name: str
    callers: int
    is_latency: bool
    sides: Mapping[str, Side]


class Sample(NamedTuple):
    """One side in one round: the figure, and the CPU time of an operation in each process."""

    figure: float
    cpu_us: Mapping[str, float]


class Spread(NamedTuple):
    """A median with the quartiles around it."""

    low: float
    median: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(low, median, high)


async def sample(load: Load, side: Side, seconds: float) -> Sample:
    """Runs the load on one side for a while."""
    pids = await side.pids()
    call, end = await side.begin()
    made = 0

    async def counted(n: int) -> object:
        nonlocal made
        made += 1
        return await call(n)

    before = spent_by_name(pids)
    figures = await closed_loop(counted, callers=load.callers, seconds=seconds, warm_up_s=WARM_UP_S)
    after = spent_by_name(pids)
    await end()
    cpu_us = {name: after[name].since(before[name]).cpu_ns / 1_000 / made for name in pids}
    return Sample(figures.p50_ms if load.is_latency else figures.per_second * side.each, cpu_us)


class Rounds:
    """The samples of one load."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self._samples: dict[str, list[Sample]] = {name: [] for name in load.sides}

    async def one(self, seconds: float) -> None:
        """Measures each side once."""
        names = list(self._samples)
        shift = len(self._samples[names[0]]) % len(names)
        for name in names[shift:] + names[:shift]:
            self._samples[name].append(await sample(self.load, self.load.sides[name], seconds))

    def figure(self, side: str) -> float:
        """The median of a side's figures."""
        return statistics.median(each.figure for each in self._samples[side])

    def ratio(self, side: str, to: str) -> Spread:
        """The ratio of two sides, each round by itself."""
        pairs = zip(self._samples[side], self._samples[to], strict=True)
        return spread([own.figure / other.figure for own, other in pairs])

    def cpu_us(self, side: str) -> dict[str, float]:
        """The median CPU time of an operation, by process."""
        samples = self._samples[side]
        return {name: statistics.median(each.cpu_us[name] for each in samples) for name in samples[0].cpu_us}
