"""`make agents`: a thousand brokers that follow one controller, and its figures (P9). Absolute figures belong to this machine.

    idle     CPU time of the leader while all brokers only renew their sessions: share of a core, and for each answered fetch. The
             brokers' fetches are scattered over the heartbeat, as after a long time without a write
    wave     one write at a time: CPU time of the leader for each broker that receives it
    visible  time from the sending of a write until a broker has it, over all brokers and writes, and until the last broker has it
    turns    turns of the leader above 10 ms of CPU, and the bound of the longest turn by the leader's histogram
    large    CPU time of the leader for each broker that receives the partitions of a large topic

The brokers are sessions of this process (`benchmarks.http2`), and the three controllers are processes of their own. The leader's
CPU time is the kernel's count for its process, so it is nearly the same on a busy machine; the times until a write is visible
are not.

Example with 1,000 brokers and a heartbeat every 2 s: the leader answers 500 fetches a second without a write. Then a client
alters one config, and within a moment the leader answers 1,000 fetches with the same batch.
"""

import argparse
import asyncio
import gc
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import grpc.aio
import uvloop
from quorum_rpc.v1 import broker_pb2, broker_pb2_grpc, common_pb2
from rich.console import Console
from rich.table import Table

from benchmarks.cpu import spent
from benchmarks.http2 import Broken, Connection
from benchmarks.load import Call
from benchmarks.ours import NotAcknowledged, OurCluster
from benchmarks.sessions import batched
from metadata_log.format.batch import Batch, decode_all
from metadata_log.format.records import METADATA_VERSION_MAX
from service_kit.process.endpoints import HostPort, parse_host_port

FIRST_AGENT_ID = 1_001
AT_ONCE = 50
"""How many brokers register or connect at the same time."""
MAX_BYTES = 1 << 20
QUIET_S = 0.3
"""How long the leader must have sent no batch before a write is measured."""
WAVE_TIMEOUT_S = 20.0
LONG_TURN_S = 0.01
LARGE_PARTITIONS = 10_000
console = Console(stderr=True)


class Agent:
    """One broker: always one fetch under way, from just above the last batch that it was given."""

    def __init__(self, agents: "Agents", broker_id: int, is_stream: bool) -> None:
        self._agents = agents
        self.request = broker_pb2.MetadataFetchRequest(
            cluster_id=agents.cluster_id,
            broker_id=broker_id,
            incarnation_id=os.urandom(16),
            max_wait_ms=agents.heartbeat_ms,
            max_bytes=MAX_BYTES,
            part_position=0,
        )
        path = f"/quorum_rpc.v1.BrokerService/{'MetadataFetch' if is_stream else 'MetadataFetchOnce'}"
        self.connection = Connection(path, is_stream, self._answered, agents.broken)
        self.is_online = False
        self.rest_s = 0.0
        """How long the broker rests after the next answer."""

    def fetch(self) -> None:
        """Sends the next fetch."""
        if self._agents.is_closed:
            return
        self.request.number += 1
        self.connection.send(self.request.SerializeToString())

    def _answered(self, data: bytes) -> None:
        answer = broker_pb2.MetadataFetchResponse.FromString(data)
        request = self.request
        if answer.error.code != common_pb2.NONE or answer.number != request.number:
            self._agents.broken(Broken(f"broker {request.broker_id}: {answer.error.message or 'another number'}"))
            return
        if answer.result == broker_pb2.MetadataFetchResponse.DIVERGED:
            request.offset, request.epoch, request.chain = answer.diverging.offset, answer.diverging.epoch, b""
        elif answer.batches:
            last = self._agents.last_batch(answer.batches)
            request.offset, request.epoch, request.chain = last.end_offset, last.epoch, last.chain
            self._agents.batches_bytes += len(answer.batches)
            self._agents.arrived(self)
        self.is_online = answer.state == broker_pb2.ONLINE and answer.lease_ms > 0
        self._agents.answers += 1
        if self.rest_s:
            asyncio.get_running_loop().call_later(self.rest_s, self.fetch)
            self.rest_s = 0.0
        else:
            self.fetch()


class Agents:
    """A number of brokers with a connection each, online until the end of the block."""

    def __init__(self, target: str, cluster_id: str, count: int, heartbeat_ms: int, *, is_stream: bool) -> None:
        self.cluster_id, self.heartbeat_ms = cluster_id, heartbeat_ms
        self.answers = 0
        self.batches_bytes = 0
        """Bytes of all batches that all brokers have received."""
        self.is_closed = False
        self.arrivals: dict[int, float] = {}
        """The time of the last batches, by broker."""
        self._target = target
        self._last: tuple[bytes, Batch] | None = None
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._all = [Agent(self, FIRST_AGENT_ID + i, is_stream) for i in range(count)]

    async def __aenter__(self) -> Self:
        async with grpc.aio.insecure_channel(self._target) as channel:
            stub = broker_pb2_grpc.BrokerServiceStub(channel)  # type: ignore[no-untyped-call]
            for several in batched(self._all, AT_ONCE):
                await asyncio.gather(*(self._register(stub, each) for each in several))
        loop, address = asyncio.get_running_loop(), parse_host_port(self._target)
        start = max(agent.request.broker_epoch for agent in self._all) + 1
        for several in batched(self._all, AT_ONCE):
            await asyncio.gather(*(self._connect(loop, address, each, start) for each in several))
        while not all(agent.is_online for agent in self._all):
            await self.rest(0.1)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.is_closed = True
        for agent in self._all:
            agent.connection.close()
        if self._broken.done():
            self._broken.exception()

    async def _register(self, stub: broker_pb2_grpc.BrokerServiceStub, agent: Agent) -> None:
        request = agent.request
        answer = await stub.RegisterBroker(
            broker_pb2.RegisterBrokerRequest(
                cluster_id=self.cluster_id,
                broker_id=request.broker_id,
                incarnation_id=request.incarnation_id,
                endpoints=[common_pb2.Endpoint(listener="CLIENT", host="127.0.0.1", port=9_000 + request.broker_id)],
                features=[
                    common_pb2.FeatureRange(name="metadata.version", min_level=1, max_level=METADATA_VERSION_MAX)
                ],
                log_dirs=[request.incarnation_id],
            ),
            timeout=30,
        )
        if answer.error.code != common_pb2.NONE:
            raise NotAcknowledged(answer.error.message)
        request.broker_epoch = answer.broker_epoch

    async def _connect(self, loop: asyncio.AbstractEventLoop, address: HostPort, agent: Agent, start: int) -> None:
        await loop.create_connection(lambda: agent.connection, address.host, address.port)
        agent.request.offset = start
        agent.fetch()

    def broken(self, why: Broken) -> None:
        """Ends the run: figures with fewer brokers would be wrong."""
        if not self._broken.done():
            self._broken.set_exception(why)

    def last_batch(self, batches: bytes) -> Batch:
        """The last batch of an answer; the answers of a wave are alike, and decoded once."""
        if self._last is None or self._last[0] != batches:
            self._last = batches, tuple(decode_all(batches))[-1]
        return self._last[1]

    def arrived(self, agent: Agent) -> None:
        """Notes the time when the broker has received batches."""
        self.arrivals[agent.request.broker_id] = time.perf_counter()

    async def rest(self, seconds: float) -> None:
        """Sleeps. Raises Broken: a broker has lost its connection, or was refused."""
        await asyncio.wait({self._broken}, timeout=seconds)
        if self._broken.done():
            self._broken.result()

    async def until_quiet(self) -> None:
        """Waits until no broker has received a batch for QUIET_S, and all brokers have the last batch."""
        while True:
            now = time.perf_counter()
            latest = max(self.arrivals.values(), default=0.0)
            if now - latest > QUIET_S and len({agent.request.offset for agent in self._all}) == 1:
                return
            await self.rest(0.05)

    async def scatter(self) -> None:
        """Lets each broker rest once for a random part of the heartbeat: then they fetch evenly, and not all at once."""
        for agent in self._all:
            agent.rest_s = random.uniform(0.001, self.heartbeat_ms / 1_000)
        await self.rest(2.5 * self.heartbeat_ms / 1_000)

    async def wave(self, call: Call, number: int) -> list[float]:
        """Writes once. Returns for each broker the seconds from the sending until the broker has the write."""
        await self.until_quiet()
        self.arrivals.clear()
        sent = time.perf_counter()
        await call(number)
        while len(self.arrivals) < len(self._all):
            await self.rest(0.01)
            if time.perf_counter() - sent > WAVE_TIMEOUT_S:
                raise TimeoutError(f"{len(self._all) - len(self.arrivals)} brokers have not received a write")
        return [when - sent for when in self.arrivals.values()]


class Measured:
    """The rows of one way to fetch."""

    def __init__(self, cluster: OurCluster, agents: int, heartbeat_ms: int, seconds: float, waves: int) -> None:
        self._cluster = cluster
        self._count, self._heartbeat_ms, self._seconds, self._waves = agents, heartbeat_ms, seconds, waves
        self.rows: list[tuple[str, ...]] = []

    def _tell(self, way: str, what: str, figure: str, aim: str = "", reached: bool | None = None) -> None:
        self.rows.append((way, what, figure, aim, "" if reached is None else "yes" if reached else "no"))
        console.print(f"{way}, {what}: {figure}", highlight=False)

    async def run(self, *, is_stream: bool) -> None:
        """Measures one way to fetch: over streams, or in unary calls."""
        way = "streams" if is_stream else "unary calls"
        cluster_id = self._cluster.context().cluster_id
        target = await self._cluster.leader_target()
        console.print(f"{way}: registering {self._count:,} brokers")
        async with Agents(target, cluster_id, self._count, self._heartbeat_ms, is_stream=is_stream) as agents:
            await agents.until_quiet()
            await agents.scatter()
            await self._idle(way, agents)
            await self._wave_figures(way, agents)
            await self._large_wave(way, agents)

    async def _idle(self, way: str, agents: Agents) -> None:
        pid = (await self._cluster.pids())["leader"]
        before, answers, began = spent(pid), agents.answers, time.perf_counter()
        own_ns = time.process_time_ns()
        await agents.rest(self._seconds)
        cpu_s = spent(pid).since(before).cpu_ns / 1e9
        seconds, answered = time.perf_counter() - began, agents.answers - answers
        share = cpu_s / seconds
        self._tell(way, "idle CPU of the leader", f"{share:.1%} of a core", "<= 15 %", share <= 0.15)
        self._tell(way, "idle, for each fetch", f"{cpu_s / answered * 1e6:.0f} us ({answered / seconds:.0f} a second)")
        own_us = (time.process_time_ns() - own_ns) / answered / 1e3
        self._tell(way, "idle, for each fetch, the benchmark itself", f"{own_us:.0f} us")

    async def _wave_figures(self, way: str, agents: Agents) -> None:
        call, pid = await self._cluster.put_call(), (await self._cluster.pids())["leader"]
        turns = await self._turns()
        all_s: list[float] = []
        lasts: list[float] = []
        cpu_ns = 0
        for number in range(self._waves):
            await agents.until_quiet()
            before = spent(pid)
            found = await agents.wave(call, number)
            cpu_ns += spent(pid).since(before).cpu_ns
            all_s += found
            lasts.append(max(found))
        p50, p99 = (sorted(all_s)[int(len(all_s) * part)] * 1e3 for part in (0.5, 0.99))
        self._tell(way, "a wave, for each broker", f"{cpu_ns / len(all_s) / 1e3:.0f} us")
        self._tell(way, "a write is visible, p50", f"{p50:.0f} ms")
        self._tell(way, "a write is visible, p99", f"{p99:.0f} ms", "<= 250 ms", p99 <= 250)
        lasts.sort()
        shown = f"median {lasts[len(lasts) // 2] * 1e3:.0f} ms, worst {lasts[-1] * 1e3:.0f} ms"
        self._tell(way, "a write is visible to all", shown)
        counts = [(bound, after - turns[bound]) for bound, after in (await self._turns()).items()]
        taken = counts[-1][1]
        long = taken - dict(counts)[LONG_TURN_S]
        bound = next(bound for bound, count in counts if count == taken)
        self._tell(way, "turns above 10 ms", f"{long:.0f} of {taken:.0f} (all <= {bound * 1e3:g} ms)", "0", long == 0)

    async def _large_wave(self, way: str, agents: Agents) -> None:
        call, pid = await self._cluster.partitions_call(LARGE_PARTITIONS), (await self._cluster.pids())["leader"]
        await agents.until_quiet()
        before, sent_bytes = spent(pid), agents.batches_bytes
        found = await agents.wave(call, 0)
        await agents.until_quiet()
        cpu_us = spent(pid).since(before).cpu_ns / 1e3
        size = (agents.batches_bytes - sent_bytes) / len(found)
        what = f"{LARGE_PARTITIONS:,} partitions, for each broker"
        self._tell(way, what, f"{cpu_us / len(found):.0f} us ({size / 1e3:.0f} KB)")

    async def _turns(self) -> dict[float, float]:
        """How many turns the leader has taken, by the histogram's bounds."""
        return dict(_buckets(await self._cluster.leader_metrics()))


def _buckets(samples: dict[str, float]) -> Iterator[tuple[float, float]]:
    head = 'metaquorum_turn_seconds_bucket{le="'
    for name, value in samples.items():
        if name.startswith(head):
            yield float(name.removeprefix(head).removesuffix('"}')), value


async def measure(arguments: argparse.Namespace) -> None:
    ways = {"streams": [True], "unary": [False], "both": [True, False]}[arguments.way]
    rows: list[tuple[str, ...]] = []
    try:
        for is_stream in ways:
            with tempfile.TemporaryDirectory(prefix="metaquorum-agents-") as directory:
                async with OurCluster(Path(directory) / "ours") as cluster:
                    measured = Measured(
                        cluster, arguments.agents, arguments.heartbeat_ms, arguments.seconds, arguments.waves
                    )
                    measured.rows = rows
                    await measured.run(is_stream=is_stream)
    finally:
        table = Table(title=f"{arguments.agents:,} brokers, a heartbeat every {arguments.heartbeat_ms / 1e3:g} s")
        for heading in ("way", "what", "figure", "aim", "reached"):
            table.add_column(heading, justify="left" if heading in ("way", "what") else "right")
        for row in rows:
            table.add_row(*row)
        Console(width=120).print(table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agents", description=__doc__)
    parser.add_argument("--agents", type=int, default=1_000)
    parser.add_argument("--heartbeat-ms", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the idle time is measured")
    parser.add_argument("--waves", type=int, default=20)
    parser.add_argument("--way", choices=("streams", "unary", "both"), default="both")
    arguments = parser.parse_args()
    gc.freeze()
    try:
        uvloop.run(measure(arguments))
    except (grpc.aio.AioRpcError, Broken, NotAcknowledged, TimeoutError) as e:
        print(f"the run ended early: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
