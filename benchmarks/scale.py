"""`make scale`: a cluster of millions of partitions, and its figures. Absolute figures belong to this machine.

    P3    partitions created a second, in requests of about 9,000 partitions
    turn  share of the active controller's turns that took more than 10 ms of CPU, for each of the steps
    P6    resident memory of the active controller and of a follower
    P11   one write at a time, 99th percentile: while a snapshot is written, and without a snapshot
    P7    a broker is silent: time from the end of its session until all its leaders are moved and the broker is fenced
    P8    one follower killed and started: time until it votes and follows the leader, and until its image has caught up;
          all controllers killed and started: epochs of the election (1: the first leader stayed), time until a leader and until
          the first acknowledged write

The brokers are sessions of this process (`benchmarks.sessions`), so that the figures are those of the controllers. Example: 100
brokers and 20,000 topics with 100 partitions of three replicas. Each broker has 60,000 replicas and leads 20,000 partitions.
So P7 moves 20,000 leaderships, and makes 60,000 ISRs smaller.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import grpc.aio
import uvloop
from quorum_rpc.v1 import admin_pb2, common_pb2
from rich.console import Console
from rich.table import Table

from benchmarks.load import closed_loop, until_acknowledged
from benchmarks.ours import NotAcknowledged, OurCluster
from benchmarks.sessions import FIRST_BROKER_ID, batched

REQUEST_PARTITIONS = 9_000
"""How many partitions one request creates: below the limit of 10,000."""
REQUESTS_AT_ONCE = 4
WRITES_S = 5.0
"""How long writes are measured without a snapshot."""
SESSION_S = 9.0
"""How long the controllers wait for a silent broker (`broker.session.timeout.ms`)."""
LONG_TURN_S = "0.01"
FAILOVER = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED, grpc.StatusCode.DEADLINE_EXCEEDED)
"""The errors that a client receives while another controller becomes active. A repetition with the same request id is safe."""
console = Console(stderr=True)


class Row(NamedTuple):
    what: str
    figure: str
    aim: str
    reached: bool | None


class Scale:
    """One run on one cluster."""

    def __init__(self, cluster: OurCluster, partitions: int, topics: int) -> None:
        self._cluster = cluster
        self._partitions, self._topics = partitions, topics
        self.rows: list[Row] = []

    def _tell(self, what: str, figure: str, aim: str = "", reached: bool | None = None) -> None:
        self.rows.append(Row(what, figure, aim, reached))
        console.print(f"{what}: {figure}")

    async def run(self) -> None:
        await self._with_turns("creation", self._create)
        await self._memory("after the creation")
        await self._with_turns("snapshot", self._snapshot)
        await self._with_turns("fence", self._fence)
        await self._restart()
        await self._cold_start()
        await self._memory("after the cold start")

    # --- the steps -------------------------------------------------------------------------------------------------

    async def _create(self) -> None:
        each = self._partitions // self._topics
        requests = batched(self._new_topics(each), max(1, REQUEST_PARTITIONS // each))
        epoch = await self._epoch()
        began = time.perf_counter()

        async def worker() -> None:
            for topics in requests:
                context = self._cluster.context(timeout_ms=60_000)
                context.request_id = uuid.uuid4().bytes
                request = admin_pb2.CreateTopicsRequest(context=context, topics=topics)
                while (answer := await self._created(request)) is None:
                    await asyncio.sleep(0.2)
                if any(result.error.code != common_pb2.NONE for result in answer.results):
                    raise NotAcknowledged(str(answer.results[0]))

        await asyncio.gather(*(worker() for _ in range(REQUESTS_AT_ONCE)))
        seconds = time.perf_counter() - began
        count = each * self._topics
        self._tell("P3 partitions created a second", f"{count / seconds:,.0f} ({count:,} in {seconds:.1f} s)")
        elections = await self._epoch() - epoch
        self._tell("elections during the creation", str(elections), "0", elections == 0)

    async def _created(self, request: admin_pb2.CreateTopicsRequest) -> admin_pb2.CreateTopicsResponse | None:
        """Sends the request to the active controller. None: there was a failover, and the same request is to be sent again."""
        stub = await self._cluster.leader_stub()
        try:
            answer: admin_pb2.CreateTopicsResponse = await stub.CreateTopics(request)
        except grpc.aio.AioRpcError as e:
            if e.code() not in FAILOVER:
                raise
            return None
        return answer

    def _new_topics(self, each: int) -> Iterator[admin_pb2.NewTopic]:
        for number in range(self._topics):
            yield admin_pb2.NewTopic(name=f"scale-{number:06}", partitions=each, replication_factor=3)

    async def _memory(self, when: str) -> None:
        resident = {name: _resident_mb(pid) for name, pid in (await self._cluster.pids()).items()}
        most = max(resident.values())
        shown = ", ".join(f"{name} {megabytes:,.0f} MB" for name, megabytes in resident.items())
        self._tell(f"P6 memory {when}", shown, "<= 700 MB", most <= 700)

    async def _snapshot(self) -> None:
        call = await self._cluster.put_call()
        quiet_ms = await _p99_ms(call, WRITES_S)
        stub = await self._cluster.leader_stub()
        before = await self._newest_snapshot()
        began = time.perf_counter()
        await stub.CreateSnapshot(admin_pb2.CreateSnapshotRequest(context=self._cluster.context()))
        latencies: list[float] = []
        written = asyncio.create_task(self._until_newer(before))
        number = 0
        while not written.done():
            number += 1
            sent = time.perf_counter()
            await call(number)
            latencies.append(time.perf_counter() - sent)
        seconds = time.perf_counter() - began
        busy_ms = _percentile_99(latencies) * 1_000
        self._tell("P11 p99 of a write, without a snapshot", f"{quiet_ms:.1f} ms")
        self._tell(
            "P11 p99 of a write, added by a snapshot",
            f"{busy_ms - quiet_ms:.1f} ms (worst {max(latencies) * 1_000:.0f} ms, snapshot {seconds:.1f} s)",
            "<= 50 ms",
            busy_ms - quiet_ms <= 50,
        )

    async def _newest_snapshot(self) -> int:
        stub = await self._cluster.leader_stub()
        listed = await stub.ListSnapshots(admin_pb2.ListSnapshotsRequest(context=self._cluster.context()))
        return max((each.snapshot.end_offset for each in listed.snapshots), default=0)

    async def _until_newer(self, before: int) -> None:
        while await self._newest_snapshot() <= before:
            await asyncio.sleep(0.2)

    async def _fence(self) -> None:
        fenced = 'metaquorum_brokers{state="fenced"}'
        ended = self._cluster.silence(FIRST_BROKER_ID) + SESSION_S
        while (await self._cluster.leader_metrics())[fenced] < 1:
            await asyncio.sleep(0.05)
        seconds = time.perf_counter() - ended
        self._tell("P7 broker fenced, all leaders moved", f"{seconds:.2f} s", "<= 2 s", seconds <= 2)

    async def _restart(self) -> None:
        knows_s, caught_up_s = await self._cluster.restart_follower()
        self._tell(
            "P8 one controller restarted, until it follows the leader", f"{knows_s:.1f} s", "<= 5 s", knows_s <= 5
        )
        self._tell("P8 one controller restarted, until its image has caught up", f"{caught_up_s:.1f} s")

    async def _cold_start(self) -> None:
        epoch = await self._epoch()
        await self._cluster.kill_all()
        began = time.perf_counter()
        self._cluster.start_all()
        await self._cluster.leader()
        led_s = time.perf_counter() - began
        await until_acknowledged(self._cluster.any_put_call(timeout_s=5), timeout_s=300)
        wrote_s = time.perf_counter() - began
        elections = await self._epoch() - epoch
        self._tell("P8 cold start, elections", str(elections), "1", elections == 1)
        self._tell("P8 cold start, a leader", f"{led_s:.1f} s", "<= 5 s", led_s <= 5)
        self._tell("P8 cold start, first write", f"{wrote_s:.1f} s", "<= 5 s", wrote_s <= 5)

    async def _epoch(self) -> int:
        stub = await self._cluster.leader_stub()
        return int((await stub.DescribeQuorum(admin_pb2.DescribeQuorumRequest())).epoch)

    # --- turns -----------------------------------------------------------------------------------------------------

    async def _with_turns(self, step: str, work: Callable[[], Awaitable[None]]) -> None:
        before = await self._turns()
        await work()
        after = await self._turns()
        count, long = after[0] - before[0], after[1] - before[1]
        self._tell(f"turns above 10 ms, {step}", f"{long:,.0f} of {count:,.0f}", "0", long == 0)

    async def _turns(self) -> tuple[float, float]:
        """How many turns the active controller has taken, and how many of them took more than 10 ms of CPU."""
        samples = await self._cluster.leader_metrics()
        count = samples["metaquorum_turn_seconds_count"]
        return count, count - samples[f'metaquorum_turn_seconds_bucket{{le="{LONG_TURN_S}"}}']


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS:"))


async def _p99_ms(call: Callable[[int], Awaitable[object]], seconds: float) -> float:
    latencies: list[float] = []

    async def timed(n: int) -> None:
        sent = time.perf_counter()
        await call(n)
        latencies.append(time.perf_counter() - sent)

    await closed_loop(timed, callers=1, seconds=seconds)
    return _percentile_99(latencies) * 1_000


def _percentile_99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def show(rows: list[Row], title: str) -> None:
    table = Table(title=title)
    for heading in ("what", "figure", "aim", "reached"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for row in rows:
        table.add_row(row.what, row.figure, row.aim, "" if row.reached is None else "yes" if row.reached else "no")
    Console().print(table)


async def measure(partitions: int, topics: int, brokers: int) -> None:
    with tempfile.TemporaryDirectory(prefix="metaquorum-scale-") as directory:
        console.print(f"registering {brokers} brokers")
        async with OurCluster(Path(directory) / "ours", brokers) as cluster:
            scale = Scale(cluster, partitions, topics)
            with contextlib.ExitStack() as stack:
                stack.callback(
                    lambda: show(scale.rows, f"{partitions:,} partitions in {topics:,} topics on {brokers} brokers")
                )
                await scale.run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--partitions", type=int, default=2_000_000)
    parser.add_argument("--topics", type=int, default=20_000)
    parser.add_argument("--brokers", type=int, default=100)
    arguments = parser.parse_args()
    try:
        uvloop.run(measure(arguments.partitions, arguments.topics, arguments.brokers))
    except (grpc.aio.AioRpcError, NotAcknowledged, TimeoutError) as e:
        print(f"the run ended early: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
