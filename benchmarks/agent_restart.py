"""`python -m benchmarks.agent_restart`: a broker with a million partitions is killed and starts again from its own disk (P8).

    cache serves   time from the start of the process until it answers a client with the metadata of the last topic: the snapshot
                   and the log are loaded, the broker is registered, has fetched what it missed, and is online
    listens        time until it answers that it is starting: the interpreter and the libraries are loaded
    CPU            CPU time of the process until then: nearly the same on a busy machine
    memory         resident memory at the end
    longest wait   the longest time that the event loop let a client wait for a small answer, from the first answer on

Three controllers and the broker are processes of their own; all other brokers are sessions of this process. Example: 1,000,000
partitions with three replicas on 100 brokers. The controllers make a snapshot after the first 950,000, and the broker has written
it too. So the broker loads 950,000 partitions from its snapshot, and replays 50,000 from its log. The death of its last process
has changed 30,000 partitions, and it fetches these changes before it is online. (The later deaths change few: the broker is in no
ISR any more, and its log has 80,000 records behind the snapshot.)

The data plane beside the broker has ended with it, so the watcher proves the death (`docs/death-certificates.md`): the
controllers fence the dead process while the new one loads. Without the proof the registration waits for that, 0.3 s and more.

The daemons find their modules compiled, as those of an installed release do. The first start has compiled them.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import grpc.aio
import uvloop
from quorum_rpc.v1 import admin_pb2, broker_pb2, client_pb2, client_pb2_grpc, common_pb2
from rich.console import Console
from rich.table import Table

from benchmarks.cpu import spent
from benchmarks.ours import NotAcknowledged, OurCluster
from benchmarks.scale import FAILOVER
from benchmarks.sessions import batched
from broker_agent.death.process_note import SERVING_LOCK_NAME
from quorum.devcluster.layout import DevNode

REQUEST_PARTITIONS = 9_000
"""How many partitions one request creates: below the limit of 10,000."""
AIM_S = 2.0
POLL_S = 0.02
LOAD_AVERAGE = Path("/proc/loadavg")
console = Console(stderr=True)


class Restart(NamedTuple):
    """The figures of one restart."""

    serves_s: float
    cpu_s: float
    listens_s: float
    listens_cpu_s: float
    resident_mb: float
    longest_wait_ms: float


class Restarts:
    """One cluster, and the restarts of its one real broker."""

    def __init__(self, cluster: OurCluster, partitions: int, per_topic: int) -> None:
        self._cluster = cluster
        self._node: DevNode = cluster.cluster.layout.brokers[0]
        self._per_topic = per_topic
        self._topics = partitions // per_topic
        self._channel = grpc.aio.insecure_channel(
            self._node.endpoint,
            options=[
                ("grpc.initial_reconnect_backoff_ms", 20),
                ("grpc.min_reconnect_backoff_ms", 20),
                ("grpc.max_reconnect_backoff_ms", 20),
            ],
        )
        self._broker = client_pb2_grpc.ClusterMetadataServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def _name(self, number: int) -> str:
        return f"restart-{number:06}"

    def end_data_plane(self) -> None:
        """Leaves the lock of a data plane that has ended (`docs/death-certificates.md`)."""
        (self._node.data_directory / SERVING_LOCK_NAME).touch()

    async def prepare(self, tail: int) -> None:
        """Creates the topics: `tail` of the partitions after the snapshot."""
        last = tail // self._per_topic
        await self._create(range(self._topics - last))
        console.print("waiting for the snapshot of the broker")
        await self._snapshot()
        await self._create(range(self._topics - last, self._topics))
        await self._until_it_has_all()

    async def _create(self, numbers: range) -> None:
        for some in batched(numbers, max(1, REQUEST_PARTITIONS // self._per_topic)):
            context = self._cluster.context(timeout_ms=60_000)
            context.request_id = uuid.uuid4().bytes
            topics = [
                admin_pb2.NewTopic(name=self._name(number), partitions=self._per_topic, replication_factor=3)
                for number in some
            ]
            request = admin_pb2.CreateTopicsRequest(context=context, topics=topics)
            while (answer := await self._created(request)) is None:
                await asyncio.sleep(0.2)
            if any(result.error.code != common_pb2.NONE for result in answer.results):
                raise NotAcknowledged(str(answer.results[0]))

    async def _created(self, request: admin_pb2.CreateTopicsRequest) -> admin_pb2.CreateTopicsResponse | None:
        """None: there was a failover, and the same request, with its id, is to be sent again."""
        stub = await self._cluster.leader_stub()
        try:
            answer: admin_pb2.CreateTopicsResponse = await stub.CreateTopics(request)
        except grpc.aio.AioRpcError as e:
            if e.code() not in FAILOVER:
                raise
            return None
        return answer

    async def _snapshot(self) -> None:
        await self._until_it_has_all()
        stub = await self._cluster.leader_stub()
        end = (await stub.DescribeQuorum(admin_pb2.DescribeQuorumRequest())).high_watermark
        await stub.CreateSnapshot(admin_pb2.CreateSnapshotRequest(context=self._cluster.context()))
        files = self._node.data_directory / "@metadata"
        while max((int(each.name[:20]) for each in files.glob("*.checkpoint")), default=0) < end:
            await asyncio.sleep(0.2)

    async def _until_it_has_all(self) -> None:
        stub = await self._cluster.leader_stub()
        end = (await stub.DescribeQuorum(admin_pb2.DescribeQuorumRequest())).high_watermark
        while (status := await self._status()) is None or status.applied_offset < end:
            await asyncio.sleep(0.1)

    async def _status(self) -> client_pb2.BrokerStatusResponse | None:
        try:
            answer: client_pb2.BrokerStatusResponse = await self._broker.BrokerStatus(
                client_pb2.BrokerStatusRequest(), timeout=10
            )
        except grpc.aio.AioRpcError:
            return None
        return answer

    async def restart(self) -> Restart:
        """Kills the broker with SIGKILL, starts it, and waits until it serves all topics."""
        dev = self._cluster.cluster
        dev.kill(self._node.name)
        while self._node in dev.running():
            await asyncio.sleep(0.02)
        began = time.perf_counter()
        pid = dev.start(self._node.name)
        longest_s = listens_s = listens_cpu_s = 0.0
        while True:
            asked = time.perf_counter()
            status = await self._status()
            if status is not None:
                answered = time.perf_counter()
                longest_s = max(longest_s, answered - asked)
                if not listens_s:
                    listens_s, listens_cpu_s = answered - began, spent(pid).cpu_ns / 1e9
                if status.state == broker_pb2.ONLINE and await self._serves():
                    break
            await asyncio.sleep(POLL_S)
        serves_s, cpu_s = time.perf_counter() - began, spent(pid).cpu_ns / 1e9
        return Restart(serves_s, cpu_s, listens_s, listens_cpu_s, _resident_mb(pid), longest_s * 1e3)

    async def _serves(self) -> bool:
        topics = client_pb2.TopicNames(names=[self._name(self._topics - 1)])
        answer = await self._broker.Metadata(client_pb2.MetadataRequest(topics=topics), timeout=10)
        return len(answer.topics) == 1 and len(answer.topics[0].partitions) == self._per_topic

    async def close(self) -> None:
        await self._channel.close()


def _keep_bytecode(path: Path) -> None:
    """Lets the daemons keep their compiled modules in `path`, whatever the caller's environment says."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(path)


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS:"))


def show(restarts: list[Restart], title: str) -> None:
    """Prints the medians and the worst figures."""
    table = Table(title=title)
    for heading in ("what", "median", "worst", "aim", "reached"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    serves = [each.serves_s for each in restarts]
    median_s = statistics.median(serves)
    reached = "yes" if median_s <= AIM_S else "no"
    table.add_row("P8 until its cache serves", f"{median_s:.2f} s", f"{max(serves):.2f} s", f"<= {AIM_S:g} s", reached)
    for what, unit, figures in (
        ("its CPU time until it serves", "s", [each.cpu_s for each in restarts]),
        ("until it listens", "s", [each.listens_s for each in restarts]),
        ("its CPU time until it listens", "s", [each.listens_cpu_s for each in restarts]),
        ("resident memory", "MB", [each.resident_mb for each in restarts]),
        ("longest wait of a client", "ms", [each.longest_wait_ms for each in restarts]),
    ):
        median, worst = (f"{value:,.2f} {unit}" for value in (statistics.median(figures), max(figures)))
        table.add_row(what, median, worst, "", "")
    Console().print(table)
    console.print(f"load average at the end: {LOAD_AVERAGE.read_text().strip()}")


async def measure(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="metaquorum-restart-") as directory:
        console.print(f"registering {arguments.brokers} brokers")
        path = Path(directory) / "ours"
        _keep_bytecode(Path(directory) / "bytecode")
        async with OurCluster(path, arguments.brokers - 1, daemons=1) as cluster:
            run = Restarts(cluster, arguments.partitions, arguments.per_topic)
            try:
                run.end_data_plane()
                console.print(f"creating {arguments.partitions:,} partitions")
                await run.prepare(arguments.tail)
                found = []
                for _ in range(arguments.restarts):
                    found.append(await run.restart())
                    console.print(f"{found[-1]}")
            finally:
                await run.close()
            topics = arguments.partitions // arguments.per_topic
            title = (
                f"a broker with {arguments.partitions:,} partitions in {topics:,} topics, {arguments.tail:,} of them in its "
                f"log, is killed and starts again ({arguments.brokers} brokers)"
            )
            show(found, title)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent_restart", description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--per-topic", type=int, default=100)
    parser.add_argument("--tail", type=int, default=50_000, help="how many partitions are created after the snapshot")
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--restarts", type=int, default=5)
    arguments = parser.parse_args()
    try:
        uvloop.run(measure(arguments))
    except (grpc.aio.AioRpcError, NotAcknowledged, TimeoutError) as e:
        print(f"the run ended early: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
