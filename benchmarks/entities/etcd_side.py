"""etcd's side: keys, compares of the mod revision, watches, leases."""

import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self

import grpc.aio

from benchmarks.entities.sides import (
    FOLLOWERS,
    KEYS,
    LEADER,
    VALUE_BYTES,
    WATCHED_KEYS,
    WatchPoint,
    stamped_value,
)
from benchmarks.etcd_rpc import etcd_pb2 as pb
from benchmarks.etcd_rpc import etcd_pb2_grpc as rpc
from benchmarks.load import Call
from benchmarks.ours import NotAcknowledged
from benchmarks.peer_etcd import EtcdCluster

VALUE = os.urandom(VALUE_BYTES)
WATCH_PATH = "/etcdserverpb.Watch/Watch"
WATCHED, LEASED = b"watched/", b"leased/"


class EtcdSide:
    """`async with EtcdSide(cluster)`: the calls of the benchmark to a running cluster."""

    def __init__(self, cluster: EtcdCluster) -> None:
        self._cluster = cluster
        self._channels = [grpc.aio.insecure_channel(target) for target in cluster.targets]
        self.pids = cluster.pids

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels:
            await channel.close()

    async def _leader(self) -> grpc.aio.Channel:
        return self._channels[await self._cluster.leader()]

    async def _kv(self) -> Any:
        return rpc.KVStub(await self._leader())  # type: ignore[no-untyped-call]

    async def put(self) -> Call:
        stub = await self._kv()
        return lambda n: stub.Put(pb.PutRequest(key=b"put/%07d" % (n % KEYS), value=VALUE))

    async def compare_and_set(self, keys: int) -> Call:
        stub = await self._kv()
        free: deque[tuple[bytes, int]] = deque()
        for number in range(keys):
            key = b"cas/%07d" % number
            free.append((key, (await stub.Put(pb.PutRequest(key=key, value=VALUE))).header.revision))

        async def call(_: int) -> object:
            key, revision = free.popleft()
            compare = pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.MOD, key=key, mod_revision=revision)
            put = pb.RequestOp(request_put=pb.PutRequest(key=key, value=VALUE))
            answer = await stub.Txn(pb.TxnRequest(compare=[compare], success=[put]))
            if not answer.succeeded:
                raise NotAcknowledged(f"{key!r} has not revision {revision}, and nobody else writes it")
            free.append((key, answer.header.revision))
            return answer

        return call

    async def transaction(self, keys: int) -> Call:
        stub = await self._kv()

        def call(n: int) -> Any:
            puts = (pb.PutRequest(key=b"txn/%07d" % ((n * keys + i) % KEYS), value=VALUE) for i in range(keys))
            return stub.Txn(pb.TxnRequest(success=[pb.RequestOp(request_put=put) for put in puts]))

        return call

    async def stamped_put(self) -> Callable[[int], Awaitable[object]]:
        stub = await self._kv()
        return lambda n: stub.Put(pb.PutRequest(key=WATCHED + b"%03d" % (n % WATCHED_KEYS), value=stamped_value(n)))

    async def watch_points(self, place: str) -> list[WatchPoint]:
        leader = await self._cluster.leader()
        targets = {
            LEADER: [self._cluster.targets[leader]],
            FOLLOWERS: [target for index, target in enumerate(self._cluster.targets) if index != leader],
        }[place]
        request = _watch(WATCHED).SerializeToString()
        return [WatchPoint(target, WATCH_PATH, request, is_half_closed=False) for target in targets]

    @contextlib.asynccontextmanager
    async def sessions(self, timeout_s: int) -> AsyncIterator["EtcdSessions"]:
        """Leases with this TTL."""
        channel = await self._leader()
        watch = rpc.WatchStub(channel).Watch()  # type: ignore[no-untyped-call]
        await watch.write(_watch(LEASED))
        if not (await watch.read()).created:
            raise NotAcknowledged("etcd has not opened the watch of the leased keys")
        keep_alives = rpc.LeaseStub(channel).LeaseKeepAlive()  # type: ignore[no-untyped-call]
        yield EtcdSessions(channel, watch, keep_alives, timeout_s)
        watch.cancel()
        keep_alives.cancel()


class EtcdSessions:
    """Leases, each with one key."""

    def __init__(self, channel: grpc.aio.Channel, watch: Any, keep_alives: Any, timeout_s: int) -> None:
        self._kv = rpc.KVStub(channel)  # type: ignore[no-untyped-call]
        self._lease = rpc.LeaseStub(channel)  # type: ignore[no-untyped-call]
        self._watch, self._keep_alives = watch, keep_alives
        self._timeout_s = timeout_s
        self._ids: dict[int, int] = {}

    async def open(self, number: int) -> None:
        lease = await self._lease.LeaseGrant(pb.LeaseGrantRequest(TTL=self._timeout_s))
        if lease.error or self._timeout_s != lease.TTL:
            raise NotAcknowledged(f"a lease of {lease.TTL} s instead of {self._timeout_s} s: {lease.error}")
        self._ids[number] = lease.ID
        await self._kv.Put(pb.PutRequest(key=LEASED + b"%d" % number, lease=lease.ID))

    async def keep_alive(self, number: int) -> None:
        await self._keep_alives.write(pb.LeaseKeepAliveRequest(ID=self._ids[number]))
        if self._timeout_s != (await self._keep_alives.read()).TTL:
            raise NotAcknowledged(f"lease {number} had ended before its client stopped")

    async def vanished(self) -> AsyncIterator[int]:
        while (message := await self._watch.read()) is not grpc.aio.EOF:
            for event in message.events:
                if event.type == pb.Event.DELETE:
                    yield int(event.kv.key.removeprefix(LEASED))


def _watch(prefix: bytes) -> Any:
    end = prefix[:-1] + bytes([prefix[-1] + 1])
    return pb.WatchRequest(create_request=pb.WatchCreateRequest(key=prefix, range_end=end))
