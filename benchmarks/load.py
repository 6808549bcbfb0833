"""Closed-loop load and its figures: a fixed number of callers, each with one call under way."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

Call = Callable[[int], Awaitable[object]]


class Figures(NamedTuple):
    """The figures of one run."""

    calls: int
    seconds: float
    p50_ms: float

    @property
    def per_second(self) -> float:
        return self.calls / self.seconds


async def closed_loop(call: Call, *, callers: int, seconds: float, warm_up_s: float = 1.0) -> Figures:
    """`call(n)` with n counting up, `callers` at a time. The first `warm_up_s` are not counted."""
    latencies: list[float] = []
    count = 0
    start = time.perf_counter() + warm_up_s
    end = start + seconds

    async def caller() -> None:
        nonlocal count
        while (began := time.perf_counter()) < end:
            count += 1
            await call(count)
            done = time.perf_counter()
            if began >= start and done <= end:
                latencies.append(done - began)

    await asyncio.gather(*(caller() for _ in range(callers)))
    return Figures(len(latencies), seconds, statistics.median(latencies) * 1_000)


async def until_acknowledged(call: Call, *, timeout_s: float = 30.0) -> float:
    """Seconds until `call` succeeds, tried again and again with a short breath in between."""
    began = time.perf_counter()
    attempt = 0
    while True:
        attempt += 1
        try:
            await call(attempt)
            return time.perf_counter() - began
        except Exception:  # any refusal: the question is when the first success comes
            if time.perf_counter() - began > timeout_s:
                raise
            await asyncio.sleep(0.002)
