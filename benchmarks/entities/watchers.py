"""The load process of the fan-out: `python -m benchmarks.entities.watchers`, driven over its standard input and output.

    in   {"points": [...], "watchers": 500, "connections": 10}      opens the watches
    out  "ready"                                                    each watcher has seen a stamped value
    in   {"first": 120, "sent": [...], "answered": [...]}           the writes that count, when the window is over
    out  "seen"                                                     each watcher has seen the last of them, or WAIT_S is over
    out  {"deliveries": ..., ...}                                   the figures (`Report`)

All times are of `time.perf_counter`, which all processes of a machine share. All watchers of a process get the same bytes, so
each message is decoded once, and later looked up. Example: 1,000 watchers and 200 writes a second are 200,000 look-ups.
"""

import asyncio
import base64
import gc
import json
import sys
import time
from array import array
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import uvloop

from benchmarks.entities.sides import WatchPoint, stamps
from benchmarks.entities.streams import StreamsConnection
from benchmarks.http2 import Broken
from service_kit.process.endpoints import parse_host_port

WAIT_S = 5.0
"""How long the process waits for the last writes."""
SLICE = 50
"""How many streams the process opens at once."""
LINE_BYTES_MAX = 1 << 26


class Report(NamedTuple):
    """The figures of one process. Latencies are in milliseconds, `thinned`."""

    deliveries: int
    missing: int
    last_at: float
    """When the last counted delivery arrived."""
    messages: int
    """How many messages the server has sent."""
    since_sent_ms: list[float]
    since_answered_ms: list[float]


class Watchers:
    """The watches of one process, and what they have seen."""

    def __init__(self) -> None:
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.streams = 0
        self._connections: list[StreamsConnection] = []
        self._ids: dict[bytes, int] = {}
        """The number of each message."""
        self._stamps: list[tuple[int, ...]] = []
        """The stamps of each message, by its number."""
        self._times = array("d")
        self._seen = array("l")
        self._not_ready: set[tuple[int, int]] = set()
        self._delivered: dict[int, int] = {}
        """How often each stamp was delivered."""

    async def open(self, points: list[WatchPoint], watchers: int, connections: int) -> None:
        """Opens the watches in slices: a server that is asked for 1,000 streams at once would refuse some of them."""
        loop = asyncio.get_running_loop()
        for number in range(min(connections, watchers)):
            address = parse_host_port(points[number % len(points)].target)
            connection = StreamsConnection(partial(self._take, number), self._break)
            await loop.create_connection(partial(_same, connection), address.host, address.port)
            self._connections.append(connection)
        for number in range(watchers):
            place = number % len(self._connections)
            point = points[place % len(points)]
            stream = self._connections[place].open(point.path, point.request, is_half_closed=point.is_half_closed)
            self._not_ready.add((place, stream))
            self.streams += 1
            if number % SLICE == 0:
                await asyncio.sleep(0.005)

    def _take(self, place: int, stream: int, message: bytes) -> None:
        number = self._ids.get(message)
        if number is None:
            number = self._ids[message] = len(self._stamps)
            self._stamps.append(stamps(message))
        found = self._stamps[number]
        if not found:
            return
        self._times.append(time.perf_counter())
        self._seen.append(number)
        if self._not_ready:
            self._not_ready.discard((place, stream))
        delivered = self._delivered
        for stamp in found:
            delivered[stamp] = delivered.get(stamp, 0) + 1

    def _break(self, why: Broken) -> None:
        if not self.broken.done():
            self.broken.set_exception(why)

    async def rest(self, seconds: float) -> None:
        """Sleeps. Raises Broken: a stream has ended."""
        await asyncio.wait({self.broken}, timeout=seconds)
        if self.broken.done():
            self.broken.result()

    async def until_ready(self) -> None:
        """Waits until each watcher has seen a stamped value."""
        while self._not_ready:
            await self.rest(0.01)

    async def until_seen(self, last: int) -> None:
        """Waits until each watcher has seen this stamp. The events of a watch are in order, so it is the last."""
        end = time.perf_counter() + WAIT_S
        while self._delivered.get(last, 0) < self.streams and time.perf_counter() < end:
            await self.rest(0.01)

    def close(self) -> None:
        """Ends all watches. Later deliveries are not counted."""
        for connection in self._connections:
            connection.close()

    def report(self, first: int, sent: list[float], answered: list[float]) -> Report:
        """The figures of the stamps from `first` on."""
        since_sent, since_answered = array("d"), array("d")
        messages, last_at = 0, 0.0
        for at, number in zip(self._times, self._seen, strict=True):
            counted = [stamp - first for stamp in self._stamps[number] if 0 <= stamp - first < len(sent)]
            messages += bool(counted)
            for place in counted:
                last_at = at
                since_sent.append((at - sent[place]) * 1_000)
                since_answered.append((at - answered[place]) * 1_000)
        missing = self.streams * len(sent) - len(since_sent)
        return Report(len(since_sent), missing, last_at, messages, thinned(since_sent), thinned(since_answered))


def _same(connection: StreamsConnection) -> StreamsConnection:
    return connection


def thinned(values: Sequence[float], count: int = 2_000) -> list[float]:
    """The values in order; at most `count` of them, evenly by rank, because the parent needs percentiles only."""
    ordered = sorted(values)
    if len(ordered) <= count:
        return ordered
    return [ordered[int((rank + 0.5) * len(ordered) / count)] for rank in range(count)]


def tell(value: object) -> None:
    """Writes one line."""
    print(json.dumps(value), flush=True)


async def run() -> None:
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    task: dict[str, Any] = json.loads(await reader.readline())
    points = [
        WatchPoint(target, path, base64.b64decode(request), bool(is_half_closed))
        for target, path, request, is_half_closed in task["points"]
    ]
    watchers = Watchers()
    await watchers.open(points, task["watchers"], task["connections"])
    await watchers.until_ready()
    tell("ready")
    line = asyncio.create_task(reader.readline())
    while not line.done():
        await watchers.rest(0.01)
    window: dict[str, Any] = json.loads(await line)
    await watchers.until_seen(window["first"] + len(window["sent"]) - 1)
    tell("seen")
    watchers.close()
    report = watchers.report(window["first"], window["sent"], window["answered"])
    tell(report._asdict())
    await reader.read()  # the parent asks for the CPU time of all load processes when the slowest has seen everything


if __name__ == "__main__":
    gc.disable()
    uvloop.run(run())
