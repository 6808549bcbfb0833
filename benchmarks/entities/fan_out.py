"""One prefix, many watchers: how long a write takes to reach all of them, and what the servers spend.

One process writes stamped values at a fixed rate to the leader; one or two other processes hold the watches
(`benchmarks.entities.watchers`). Example with 1,000 watchers and 200 writes a second, in a window of 3 s:

    1. The load processes open the watches. The parent writes slowly until each watcher has seen a value.
    2. The parent notes the servers' CPU time, and writes 600 values, each at its time, however long the others take.
    3. The load processes wait until each watcher has seen value 600; the parent notes the CPU time again.
    4. The figures are of 600,000 deliveries. A delivery that is missing after 5 s counts as late for ever.

A delivery has two latencies: since the writer *sent* the write, and since the writer had the answer, which is nearly the time of
the commit. The second may be below zero, because a watcher may hear of a write before its writer does.
"""

import asyncio
import base64
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from benchmarks.cpu import spent_by_name
from benchmarks.entities.sides import EntitySide
from benchmarks.entities.watchers import LINE_BYTES_MAX, WAIT_S

CONNECTIONS_MAX = 20
WATCHERS_A_PROCESS = 500
READY_RATE = 20
READY_TIMEOUT_S = 60.0
LATE_MS = 250.0
LADDER = (25, 50, 100, 200, 400, 800, 1_600)
FOR_EVER_MS = WAIT_S * 1_000


class FanOut(NamedTuple):
    """The figures of one window."""

    watchers: int
    rate: float
    p50_ms: float
    p99_ms: float
    """Since the write was sent."""
    commit_p50_ms: float
    commit_p99_ms: float
    """Since the writer had the answer."""
    events_per_s: float
    events_a_message: float
    missing: int
    leader_cpu: float
    followers_cpu: float
    node_cpu: float
    """The CPU time of the node that serves the watches and is no controller. All three are shares of one core."""
    load_cpu: float
    """Of the processes with the watches."""


class LoadProcess:
    """One process with watches: `async with`."""

    def __init__(self, watchers: int, connections: int, points: Sequence[Sequence[object]]) -> None:
        self.watchers = watchers
        self._task = {"points": points, "watchers": watchers, "connections": connections}
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "LoadProcess":
        command = (sys.executable, "-m", "benchmarks.entities.watchers")
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=LINE_BYTES_MAX)
        await self.tell(self._task)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def tell(self, value: object) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(value).encode() + b"\n")
        await self._process.stdin.drain()

    async def hear(self) -> Any:
        assert self._process is not None and self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("a load process has ended; its message is above")
        return json.loads(line)


class Writer:
    """The stamped writes, and when each was sent and answered."""

    def __init__(self, put: Callable[[int], Awaitable[object]]) -> None:
        self._put = put
        self.sent: list[float] = []
        self.answered: list[float] = []

    async def _one(self, number: int) -> None:
        await self._put(number)
        self.answered[number] = time.perf_counter()

    async def write(self, rate: float, count: int) -> None:
        """Writes `count` values at a fixed rate, and waits for all answers."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for place in range(count):
                await asyncio.sleep(max(0.0, began + place / rate - time.perf_counter()))
                self.sent.append(time.perf_counter())
                self.answered.append(0.0)
                tasks.create_task(self._one(len(self.sent) - 1))

    async def until(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Writes slowly until the tasks are done."""
        async with asyncio.timeout(READY_TIMEOUT_S):
            while not all(task.done() for task in tasks):
                await self.write(READY_RATE, 1)
                await asyncio.wait(tasks, timeout=1 / READY_RATE)
        for task in tasks:
            task.result()


async def fan_out(
    side: EntitySide, place: str, watchers: int, rate: float, seconds: float, node_pid: int | None = None
) -> FanOut:
    """Measures one window of writes with this number of watchers."""
    points = [
        (each.target, each.path, base64.b64encode(each.request).decode(), each.is_half_closed)
        for each in await side.watch_points(place)
    ]
    count = -(-watchers // WATCHERS_A_PROCESS)
    connections = -(-CONNECTIONS_MAX // count)
    pids = await side.pids() | ({} if node_pid is None else {"node": node_pid})
    async with AsyncExitStack() as stack:
        loads = [
            await stack.enter_async_context(LoadProcess(watchers // count, connections, points)) for _ in range(count)
        ]
        pids |= {f"load {number}": load.pid for number, load in enumerate(loads)}
        writer = Writer(await side.stamped_put())
        await writer.until([asyncio.create_task(load.hear()) for load in loads])
        first, before, began = len(writer.sent), spent_by_name(pids), time.perf_counter()
        await writer.write(rate, max(1, round(rate * seconds)))
        window = {"first": first, "sent": writer.sent[first:], "answered": writer.answered[first:]}
        for load in loads:
            await load.tell(window)
        for load in loads:
            await load.hear()
        after, took = spent_by_name(pids), time.perf_counter() - began
        reports = [await load.hear() for load in loads]
    cpu = {name: after[name].since(before[name]).cpu_ns / 1e9 / took for name in pids}
    return _figures(watchers, rate, began, reports, cpu)


def _figures(
    watchers: int, rate: float, began: float, reports: Sequence[dict[str, Any]], cpu: dict[str, float]
) -> FanOut:
    deliveries, missing = (sum(report[name] for report in reports) for name in ("deliveries", "missing"))
    since_sent, since_answered = (_joined(reports, name) for name in ("since_sent_ms", "since_answered_ms"))
    late = len(since_sent) * missing // max(1, deliveries)
    return FanOut(
        watchers,
        rate,
        p50_ms=percentile(since_sent, late, 0.5),
        p99_ms=percentile(since_sent, late, 0.99),
        commit_p50_ms=percentile(since_answered, late, 0.5),
        commit_p99_ms=percentile(since_answered, late, 0.99),
        events_per_s=deliveries / (max(report["last_at"] for report in reports) - began) if deliveries else 0.0,
        events_a_message=deliveries / max(1, sum(report["messages"] for report in reports)),
        missing=missing,
        leader_cpu=cpu["leader"],
        followers_cpu=sum(share for name, share in cpu.items() if name.startswith("follower")),
        node_cpu=cpu.get("node", 0.0),
        load_cpu=sum(share for name, share in cpu.items() if name.startswith("load")),
    )


def _joined(reports: Sequence[dict[str, Any]], name: str) -> list[float]:
    return sorted(ms for report in reports for ms in report[name])


def percentile(ordered: Sequence[float], late: int, part: float) -> float:
    """The value at this part of the sorted values and of `late` more that never came: those count as FOR_EVER_MS."""
    place = int((len(ordered) + late) * part)
    return ordered[place] if place < len(ordered) else FOR_EVER_MS


async def highest_rate(
    measure: Callable[[float], Awaitable[FanOut]], ladder: Sequence[int] = LADDER
) -> tuple[int, list[FanOut]]:
    """Climbs the ladder until a p99 is not below LATE_MS. Returns the highest rate that was below, or 0, and all figures."""
    best, all_figures = 0, []
    for rate in ladder:
        figures = await measure(rate)
        all_figures.append(figures)
        if figures.missing or figures.p99_ms >= LATE_MS:
            break
        best = rate
    return best, all_figures
