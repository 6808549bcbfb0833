"""`python -m benchmarks.broker_death`: kill -9 of a broker that leads 1,000 partitions (P12).

    all know    time from the signal until every other broker tells its clients another leader for each of the partitions

Three controllers and four brokers are processes of their own. The brokers have no data plane, so any replica may lead at once:
these are the figures of the metadata. Example, one trial:

    1. Broker 101 leads all partitions of the topic `led`; 102, 103 and 104 know that.
    2. Broker 101 gets SIGKILL at 0 ms. Its watcher reports the death (docs/death-certificates.md). The active controller fences
       101, and moves its leaders.
    3. The benchmark asks 102, 103 and 104 for the metadata of `led` again and again. The trial ends when none of their answers
       names 101 as a leader.
    4. Broker 101 starts again, comes back into the ISRs, and gets its leaderships back: the next trial begins.

Apache Kafka has no certificate: a broker that was killed is fenced at the end of its session, 9 s by default
(`broker.session.timeout.ms`), and then its leaders move.
"""

import argparse
import asyncio
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import grpc.aio
import uvloop
from quorum_rpc.v1 import admin_pb2, client_pb2, client_pb2_grpc, common_pb2
from rich.console import Console
from rich.table import Table

from benchmarks.ours import NotAcknowledged, OurCluster

TOPIC = "led"
PARTITIONS = 1_000
BROKERS = 4
P50_AIM_S, WORST_AIM_S = 0.3, 1.0
KAFKA_SESSION = "9 s (its session, by default)"
POLL_S = 0.002
WAIT_S = 60.0
LOAD_AVERAGE = Path("/proc/loadavg")
console = Console(stderr=True)


class Deaths:
    """One cluster, and the kills of its first broker."""

    def __init__(self, cluster: OurCluster) -> None:
        self._cluster = cluster
        self._created = 0
        """The end of the batch that created the topic."""
        self._victim, *self._others = cluster.cluster.layout.brokers
        self._channels = [grpc.aio.insecure_channel(each.endpoint) for each in self._others]
        self._stubs = [client_pb2_grpc.ClusterMetadataServiceStub(channel) for channel in self._channels]  # type: ignore[no-untyped-call]

    async def prepare(self) -> None:
        """Creates the topic that the victim leads."""
        ids = [self._victim.node_id, *(each.node_id for each in self._others)]
        turns = [ids[1 + number % len(self._others) :] + ids[1:] for number in range(PARTITIONS)]
        lists = [admin_pb2.ReplicaList(broker_ids=[ids[0], *turn[:2]]) for turn in turns]
        context = self._cluster.context(timeout_ms=60_000)
        topic = admin_pb2.NewTopic(name=TOPIC, assignment=lists)
        stub = await self._cluster.leader_stub()
        answer = await stub.CreateTopics(admin_pb2.CreateTopicsRequest(context=context, topics=[topic]))
        if answer.results[0].error.code != common_pb2.NONE:
            raise NotAcknowledged(str(answer.results[0]))
        self._created = answer.offset
        await self._until_led()

    async def trial(self) -> float:
        """Kills the victim, waits until all know its successors, and brings it back. Returns the seconds until all knew."""
        before = [await self._applied(stub) for stub in self._stubs]
        began = time.perf_counter()
        self._cluster.cluster.kill(self._victim.name, signal.SIGKILL)
        known = await asyncio.gather(*map(self._until_moved, self._stubs, before))
        await self._bring_back()
        return max(known) - began

    async def _until_moved(self, stub: client_pb2_grpc.ClusterMetadataServiceStub, applied: int) -> float:
        """Waits for news of the broker first, because a status is cheap and a topic of 1,000 partitions is not."""
        async with asyncio.timeout(WAIT_S):
            while True:
                while (offset := await self._applied(stub)) == applied:
                    await asyncio.sleep(POLL_S)
                if not await self._led_by_victim(stub):
                    return time.perf_counter()
                applied = offset

    async def _applied(self, stub: client_pb2_grpc.ClusterMetadataServiceStub) -> int:
        return int((await stub.BrokerStatus(client_pb2.BrokerStatusRequest(), timeout=10)).applied_offset)

    async def _led_by_victim(self, stub: client_pb2_grpc.ClusterMetadataServiceStub) -> int:
        """How many partitions the victim leads, or nobody."""
        topics = client_pb2.TopicNames(names=[TOPIC])
        request = client_pb2.MetadataRequest(topics=topics, min_offset=self._created, max_wait_ms=10_000)
        [topic] = (await stub.Metadata(request, timeout=20)).topics
        led = [each.leader_id if each.HasField("leader_id") else None for each in topic.partitions]
        assert len(led) == PARTITIONS, len(led)
        return sum(leader is None or leader == self._victim.node_id for leader in led)

    async def _bring_back(self) -> None:
        dev = self._cluster.cluster
        while self._victim in dev.running():
            await asyncio.sleep(POLL_S)
        dev.start(self._victim.name)
        await self._until_led()

    async def _until_led(self) -> None:
        """Waits until the victim leads all of the partitions again, and every broker knows."""
        async with asyncio.timeout(WAIT_S):
            while True:
                await self._elect()
                led = [await self._led_by_victim(stub) for stub in self._stubs]
                if min(led) == PARTITIONS:
                    return
                await asyncio.sleep(0.2)

    async def _elect(self) -> None:
        context = self._cluster.context(timeout_ms=60_000)
        topic = admin_pb2.TopicPartitions(topic=TOPIC, partitions=range(PARTITIONS))
        stub = await self._cluster.leader_stub()
        await stub.ElectLeaders(admin_pb2.ElectLeadersRequest(context=context, topics=[topic]))

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()


def show(known: list[float]) -> None:
    """Prints the figures beside the aims."""
    table = Table(title=f"kill -9 of a broker that leads {PARTITIONS:,} partitions, {len(known)} trials")
    for heading in ("what", "metaquorum", "Apache Kafka", "aim", "reached"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    p50_s, worst_s = statistics.median(known), max(known)
    for what, found_s, aim_s in (("p50", p50_s, P50_AIM_S), ("worst", worst_s, WORST_AIM_S)):
        reached = "yes" if found_s <= aim_s else "no"
        what = f"P12 all brokers know the new leaders, {what}"
        table.add_row(what, f"{found_s:.3f} s", KAFKA_SESSION, f"<= {aim_s:g} s", reached)
    Console(width=140).print(table)
    console.print(f"load average at the end: {LOAD_AVERAGE.read_text().strip()}")


async def measure(trials: int) -> None:
    found: list[float] = []
    with tempfile.TemporaryDirectory(prefix="metaquorum-deaths-") as directory:
        async with OurCluster(Path(directory) / "ours", 0, daemons=BROKERS, data_plane="none") as cluster:
            deaths = Deaths(cluster)
            try:
                await deaths.prepare()
                for _ in range(trials):
                    found.append(await deaths.trial())
                    console.print(f"{found[-1]:.3f} s")
            finally:
                await deaths.close()
                if found:
                    show(found)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker_death", description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    arguments = parser.parse_args()
    try:
        uvloop.run(measure(arguments.trials))
    except (grpc.aio.AioRpcError, NotAcknowledged, TimeoutError) as e:
        print(f"the run ended early: {e!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
