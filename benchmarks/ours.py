"""Three quorumd processes on this machine, called in the same way as the peer: raw gRPC stubs, nothing in between."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.request import urlopen

import grpc.aio
from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc, common_pb2

from benchmarks.load import Call
from benchmarks.sessions import FIRST_BROKER_ID, Sessions
from quorum.devcluster.cluster import DevCluster
from quorum.devcluster.layout import free_ports, write_config

TOPICS = 1_000
FIRST_SESSION_ID = 1_001
"""The id of the first session in a cluster with real brokers."""

_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 100),
]


class NotAcknowledged(Exception):
    """The call was answered with an error."""


class OurCluster:
    """`async with OurCluster(directory)`: three controllers, sessions of brokers, topics of one partition.

    With `daemons`, some brokers are real ones, with the ids 101, 102 ...; the sessions have ids from FIRST_SESSION_ID on.
    The calls on configs need the topics; a cluster for other calls can have `topics=0`.
    """

    def __init__(
        self, directory: Path, brokers: int = 3, *, daemons: int = 0, data_plane: str = "external", topics: int = TOPICS
    ) -> None:
        self._cluster = DevCluster.create(
            directory, controllers=3, brokers=daemons, broker_settings={"broker.data.plane": data_plane}
        )
        self._metrics = _metrics_listeners(self._cluster)
        self._targets = [node.endpoint for node in self._cluster.layout.controllers]
        self._channels = [grpc.aio.insecure_channel(target, options=_OPTIONS) for target in self._targets]
        self._stubs = [admin_pb2_grpc.AdminServiceStub(channel) for channel in self._channels]  # type: ignore[no-untyped-call]
        self._down: set[int] = set()
        self._batch = 0
        self._topics = topics
        cluster_id = self._cluster.layout.cluster_id
        first_id = FIRST_SESSION_ID if daemons else FIRST_BROKER_ID
        self._sessions = Sessions(self._targets, cluster_id, brokers, first_id)
        self._context = admin_pb2.RequestContext(cluster_id=cluster_id, timeout_ms=10_000)

    async def __aenter__(self) -> Self:
        await self._cluster.up()
        try:
            await self._prepare()
        except BaseException:
            await self.__aexit__(None, None, None)  # a cluster that fails to start leaves no daemons behind
            raise
        return self

    async def _prepare(self) -> None:
        await self._sessions.__aenter__()
        names = [f"t{i}" for i in range(self._topics)]
        if not names:
            return
        topics = [admin_pb2.NewTopic(name=name, partitions=1, replication_factor=3) for name in names]
        stub = self._stubs[await self.leader()]
        _check(await stub.CreateTopics(admin_pb2.CreateTopicsRequest(context=self._context, topics=topics)))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._sessions.__aexit__()
        for channel in self._channels:
            await channel.close()
        await self._cluster.down()

    @property
    def cluster(self) -> DevCluster:
        """The processes."""
        return self._cluster

    async def leader(self) -> int:
        """The index of the active controller."""
        for _ in range(1_500):
            for index, stub in enumerate(self._stubs):
                if index in self._down:
                    continue
                with contextlib.suppress(grpc.aio.AioRpcError):
                    status = await stub.DescribeQuorum(admin_pb2.DescribeQuorumRequest(), timeout=0.5)
                    if status.role == "leader" and status.HasField("high_watermark"):
                        return index
            await asyncio.sleep(0.02)
        raise TimeoutError("no active controller")

    async def leader_stub(self) -> Any:
        """The active controller's service."""
        return self._stubs[await self.leader()]

    async def leader_target(self) -> str:
        """`host:port` of the active controller."""
        return self._targets[await self.leader()]

    async def pids(self) -> dict[str, int]:
        """The controllers' processes: the leader first, then its followers."""
        leader = self._cluster.layout.controllers[await self.leader()]
        followers = [node for node in self._cluster.layout.controllers if node is not leader]
        pids = {"leader": self._cluster.pid(leader.name)}
        pids |= {f"follower {i}": self._cluster.pid(node.name) for i, node in enumerate(followers, 1)}
        return {name: pid for name, pid in pids.items() if pid is not None}

    async def leader_metrics(self) -> dict[str, float]:
        """The samples of the active controller's metrics page, by name and labels."""
        address = self._metrics[await self.leader()]
        page = await asyncio.to_thread(lambda: urlopen(f"http://{address}/metrics", timeout=10).read().decode())
        rows = [line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in rows}

    def silence(self, broker_id: int) -> float:
        """Ends the contacts of one broker. Returns the time of its last contact, by `time.perf_counter`."""
        return self._sessions.silence(broker_id)

    async def kill_all(self) -> None:
        """Kills all controllers with SIGKILL, and waits until the processes have ended."""
        for node in self._cluster.layout.controllers:
            self._cluster.kill(node.name)
        while self._cluster.running():
            await asyncio.sleep(0.02)

    def start_all(self) -> None:
        """Starts all controllers at the same time."""
        for node in self._cluster.layout.controllers:
            self._cluster.start(node.name)

    def _alter(self, n: int) -> admin_pb2.IncrementalAlterConfigsRequest:
        """A request for one config of one topic, about 200 bytes in the log."""
        operation = admin_pb2.ConfigOperation(key="retention.ms", value=str(1_000 + n))
        resource = admin_pb2.ConfigResource(resource_type=2, name=f"t{n % TOPICS}")
        alteration = admin_pb2.ConfigAlteration(resource=resource, operations=[operation])
        return admin_pb2.IncrementalAlterConfigsRequest(context=self._context, alterations=[alteration])

    async def put_call(self) -> Call:
        """Alters one config of one topic, at the active controller."""
        stub = self._stubs[await self.leader()]

        async def call(n: int) -> object:
            return _check(await stub.IncrementalAlterConfigs(self._alter(n)))

        return call

    async def submit_call(self) -> tuple[Call, Any]:
        """Writes over one pipelined stream. Returns a call, and a function that ends the stream."""
        stream = self._stubs[await self.leader()].Submit()
        waiting: dict[int, asyncio.Future[object]] = {}

        async def read() -> None:
            while (message := await stream.read()) is not grpc.aio.EOF:
                for answer in message.responses:
                    waiting.pop(answer.id).set_result(answer)

        outgoing: asyncio.Queue[int | None] = asyncio.Queue()

        async def write() -> None:
            while (first := await outgoing.get()) is not None:
                gathered = [first]
                while not outgoing.empty() and (n := outgoing.get_nowait()) is not None:
                    gathered.append(n)
                requests = [admin_pb2.SubmitRequest(id=n, alter_configs=self._alter(n)) for n in gathered]
                await stream.write(admin_pb2.SubmitRequests(requests=requests))
            await stream.done_writing()

        tasks = [asyncio.create_task(read()), asyncio.create_task(write())]

        async def call(n: int) -> object:
            future = waiting[n] = asyncio.get_running_loop().create_future()
            outgoing.put_nowait(n)
            answer: Any = await future
            return _check(answer.alter_configs)

        async def end() -> None:
            outgoing.put_nowait(None)
            await asyncio.gather(*tasks)

        return call, end

    async def partitions_call(self, partitions: int = 1_000) -> Call:
        """Creates one topic with this number of partitions, replication factor 3."""
        stub = self._stubs[await self.leader()]

        async def call(n: int) -> object:
            self._batch += 1
            topic = admin_pb2.NewTopic(name=f"p{self._batch}", partitions=partitions, replication_factor=3)
            return _check(await stub.CreateTopics(admin_pb2.CreateTopicsRequest(context=self._context, topics=[topic])))

        return call

    def context(self, timeout_ms: int = 10_000) -> admin_pb2.RequestContext:
        """The context of a request."""
        return admin_pb2.RequestContext(cluster_id=self._context.cluster_id, timeout_ms=timeout_ms)

    def any_put_call(self, timeout_s: float = 0.25) -> Call:
        """Writes to the running controllers in turn: for the time after a failure."""

        async def call(n: int) -> object:
            running = [i for i in range(3) if i not in self._down]
            return _check(
                await self._stubs[running[n % len(running)]].IncrementalAlterConfigs(self._alter(n), timeout=timeout_s)
            )

        return call

    async def kill_leader(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Kills the controller, and returns the index. The load leaves a killed controller out."""
        index = await self.leader()
        self._cluster.kill(self._cluster.layout.controllers[index].name, number)
        self._down.add(index)
        return index

    async def pause_leader(self) -> int:
        """Sends SIGSTOP: the process keeps its connections and answers nothing."""
        return await self.kill_leader(signal.SIGSTOP)

    async def resume(self, index: int) -> None:
        """Sends SIGCONT, and waits until the controller has caught up."""
        self._cluster.kill(self._cluster.layout.controllers[index].name, signal.SIGCONT)
        await self._caught_up(index)

    async def restart_follower(self) -> tuple[float, float]:
        """Kills a follower with SIGKILL and starts it. Returns the seconds until it follows the leader, and until its image has
        caught up.
        """
        index = (await self.leader() + 1) % len(self._stubs)
        node = self._cluster.layout.controllers[index]
        self._cluster.kill(node.name)
        while node in self._cluster.running():
            await asyncio.sleep(0.02)
        began = time.perf_counter()
        self._cluster.start(node.name)
        await self._until(index, lambda status: status.role == "follower" and status.leader.HasField("leader_id"))
        follows_s = time.perf_counter() - began
        await self._caught_up(index)
        return follows_s, time.perf_counter() - began

    async def bring_back(self, index: int) -> None:
        """Starts the controller again, and waits until the controller has caught up."""
        self._cluster.start(self._cluster.layout.controllers[index].name)
        await self._caught_up(index)

    async def _caught_up(self, index: int) -> None:
        end = (await self._stubs[await self.leader()].DescribeQuorum(admin_pb2.DescribeQuorumRequest())).log_end_offset
        await self._until(index, lambda status: status.applied_offset >= end)
        self._down.discard(index)

    async def _until(self, index: int, is_so: Callable[[admin_pb2.DescribeQuorumResponse], bool]) -> None:
        """Waits until the controller describes itself so."""
        for _ in range(1_500):
            with contextlib.suppress(grpc.aio.AioRpcError):
                if is_so(await self._stubs[index].DescribeQuorum(admin_pb2.DescribeQuorumRequest(), timeout=0.5)):
                    return
            await asyncio.sleep(0.02)
        raise TimeoutError("a controller did not come back")


def _metrics_listeners(cluster: DevCluster) -> list[str]:
    """Gives each controller an address for its metrics page."""
    nodes = cluster.layout.controllers
    addresses = [f"127.0.0.1:{port}" for port in free_ports(len(nodes))]
    for node, address in zip(nodes, addresses, strict=True):
        write_config(cluster.layout, node)
        with node.config_path.open("a") as file:
            file.write(f"metrics.listener: {address}\n")
    return addresses


def _check(answer: Any) -> Any:
    """Returns an answer without errors; raises for any other answer."""
    for error in (answer.error, *(result.error for result in answer.results)):
        if error.code != common_pb2.NONE:
            raise NotAcknowledged(f"{common_pb2.ErrorCode.Name(error.code)}: {error.message}")
    return answer
