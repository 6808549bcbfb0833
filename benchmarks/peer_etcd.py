"""Three etcd servers of this machine's distribution, on loopback, and a client of the same make as ours (grpc.aio)."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc.aio

from benchmarks.etcd_rpc import etcd_pb2, etcd_pb2_grpc
from benchmarks.load import Call

VALUE = os.urandom(200)


class EtcdNotFound(Exception):
    """This machine has no `etcd`."""


class EtcdCluster:
    """`async with EtcdCluster(directory)`: up and with a leader inside the block, gone after it."""

    def __init__(self, directory: Path, base_port: int = 23_790, flags: tuple[str, ...] = ()) -> None:
        binary = shutil.which("etcd")
        if binary is None:
            raise EtcdNotFound("no etcd on this machine; install it by name (Debian: apt-get install etcd-server)")
        self._binary = binary
        self._directory = directory
        self._flags = flags
        self._client_ports = [base_port + 2 * i for i in range(3)]
        self._peer_ports = [base_port + 2 * i + 1 for i in range(3)]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * 3
        self._paused: set[int] = set()
        self.targets = [f"127.0.0.1:{port}" for port in self._client_ports]
        self._channels = [grpc.aio.insecure_channel(target, options=_OPTIONS) for target in self.targets]
        self._puts = [etcd_pb2_grpc.KVStub(channel) for channel in self._channels]  # type: ignore[no-untyped-call]
        self._statuses = [etcd_pb2_grpc.MaintenanceStub(channel) for channel in self._channels]  # type: ignore[no-untyped-call]

    async def __aenter__(self) -> Self:
        for index in range(3):
            self._spawn(index, "new")
        await self.leader()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels:
            await channel.close()
        for process in self._processes:
            if process is not None:
                process.kill()  # SIGKILL ends a stopped process too
                process.wait()

    def _spawn(self, index: int, state: str) -> None:
        peers = ",".join(f"n{i}=http://127.0.0.1:{port}" for i, port in enumerate(self._peer_ports))
        client, peer = (f"http://127.0.0.1:{ports[index]}" for ports in (self._client_ports, self._peer_ports))
        command = [
            self._binary, "--name", f"n{index}", "--data-dir", str(self._directory / f"n{index}"),
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", peers, "--initial-cluster-state", state, *self._flags,
        ]  # fmt: skip
        with (self._directory / f"n{index}.log").open("ab") as log:
            self._processes[index] = subprocess.Popen(command, stdout=log, stderr=log)

    async def leader(self) -> int:
        """The index of the leader, once a majority of the running servers agree."""
        for _ in range(1_500):
            says: dict[int, int] = {}
            member: dict[int, int] = {}
            for index, status in enumerate(self._statuses):
                if self._processes[index] is None or index in self._paused:
                    continue
                with contextlib.suppress(grpc.aio.AioRpcError):
                    answer = await status.Status(etcd_pb2.StatusRequest(), timeout=0.5)
                    says[index], member[answer.header.member_id] = answer.leader, index
            leaders = [leader for leader in says.values() if leader in member]
            if len(leaders) >= 2 and len(set(leaders)) == 1:
                return member[leaders[0]]
            await asyncio.sleep(0.02)
        raise TimeoutError("etcd has no leader")

    async def pids(self) -> dict[str, int]:
        """The servers' processes: the leader first, then its followers."""
        leader = await self.leader()
        order = [leader, *(index for index in range(3) if index != leader)]
        names = ("leader", "follower 1", "follower 2")
        found = {name: self._processes[index] for name, index in zip(names, order, strict=True)}
        return {name: process.pid for name, process in found.items() if process is not None}

    async def put_call(self) -> Call:
        """One put of 200 bytes, to the leader; 10,000 keys in turn."""
        stub = self._puts[await self.leader()]
        return lambda n: stub.Put(etcd_pb2.PutRequest(key=b"k%05d" % (n % 10_000), value=VALUE))

    async def txn_call(self, keys: int = 128) -> Call:
        """One transaction of `keys` puts of 200 bytes."""
        stub = self._puts[await self.leader()]

        def call(n: int) -> Any:
            puts = (etcd_pb2.PutRequest(key=b"k%07d" % ((n * keys + i) % 1_000_000), value=VALUE) for i in range(keys))
            return stub.Txn(etcd_pb2.TxnRequest(success=[etcd_pb2.RequestOp(request_put=put) for put in puts]))

        return call

    def any_put_call(self) -> Call:
        """Puts to the running servers in turn: for the time after a failure."""

        async def call(n: int) -> object:
            running = [i for i in range(3) if self._processes[i] is not None and i not in self._paused]
            stub = self._puts[running[n % len(running)]]
            return await stub.Put(etcd_pb2.PutRequest(key=b"after", value=VALUE), timeout=0.25)

        return call

    async def kill_leader(self) -> int:
        """Kills a server with `kill -9`, and returns the index."""
        index = await self.leader()
        process = self._processes[index]
        assert process is not None
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._processes[index] = None
        return index

    async def pause_leader(self) -> int:
        """Sends SIGSTOP. The load leaves a paused server out."""
        index = await self.leader()
        process = self._processes[index]
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        self._paused.add(index)
        return index

    async def resume(self, index: int) -> None:
        process = self._processes[index]
        assert process is not None
        process.send_signal(signal.SIGCONT)
        self._paused.discard(index)
        await self._answers(index)

    async def bring_back(self, index: int) -> None:
        self._spawn(index, "existing")
        await self._answers(index)

    async def _answers(self, index: int) -> None:
        for _ in range(1_000):
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self._puts[index].Put(etcd_pb2.PutRequest(key=b"back", value=b""), timeout=0.5)
                return
            await asyncio.sleep(0.02)
        raise TimeoutError("an etcd server did not come back")


_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 100),
]
