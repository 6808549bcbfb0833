"""Brokers without processes: the benchmark's own loop registers them and keeps them alive, so that topics have replicas."""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import grpc.aio
from quorum_rpc.v1 import broker_pb2, broker_pb2_grpc, common_pb2

from metadata_log.format.batch import decode_all
from metadata_log.format.records import METADATA_VERSION_MAX

CONTACT_S = 1.0
FIRST_BROKER_ID = 101
REGISTERED_AT_ONCE = 10
"""How many brokers register at the same time."""

T = TypeVar("T")


def batched(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Cuts `values` into lists of `size`; the last list may be shorter."""
    rest = iter(values)
    while piece := list(islice(rest, size)):
        yield piece


@dataclass
class _Session:
    broker_id: int
    incarnation_id: bytes
    broker_epoch: int = -1
    offset: int = 0
    epoch: int = 0
    chain: bytes = b""
    contacted: float = 0.0
    """The time when the last answer arrived."""


class Sessions:
    """A number of brokers, online until the end of the block. They stay just above their own registration."""

    def __init__(self, targets: list[str], cluster_id: str, count: int, first_id: int = FIRST_BROKER_ID) -> None:
        self._channels = [grpc.aio.insecure_channel(target) for target in targets]
        self._stubs = [broker_pb2_grpc.BrokerServiceStub(channel) for channel in self._channels]  # type: ignore[no-untyped-call]
        self._cluster_id = cluster_id
        self._sessions = [_Session(first_id + i, os.urandom(16)) for i in range(count)]
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Sessions":
        for several in batched(self._sessions, REGISTERED_AT_ONCE):
            await asyncio.gather(*map(self._register, several))
        self._task = asyncio.create_task(self._keep_alive())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:  # None after a registration that failed
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for channel in self._channels:
            await channel.close()

    async def _register(self, session: _Session) -> None:
        request = broker_pb2.RegisterBrokerRequest(
            cluster_id=self._cluster_id,
            broker_id=session.broker_id,
            incarnation_id=session.incarnation_id,
            endpoints=[common_pb2.Endpoint(listener="CLIENT", host="127.0.0.1", port=9_000 + session.broker_id)],
            features=[common_pb2.FeatureRange(name="metadata.version", min_level=1, max_level=METADATA_VERSION_MAX)],
            log_dirs=[session.incarnation_id],
        )
        for stub in self._stubs * 100:
            with contextlib.suppress(grpc.aio.AioRpcError):
                answer = await stub.RegisterBroker(request, timeout=5)
                if answer.error.code == common_pb2.NONE:
                    session.broker_epoch = answer.broker_epoch
                    break
            await asyncio.sleep(0.05)
        while session.offset <= session.broker_epoch:
            fetched = await self._fetch(session, 1 << 20)
            for batch in decode_all(fetched.batches):
                session.offset, session.epoch, session.chain = batch.end_offset, batch.epoch, batch.chain
        while (await self._fetch(session, 1)).state != broker_pb2.ONLINE:
            await asyncio.sleep(0.02)

    async def _fetch(self, session: _Session, max_bytes: int) -> broker_pb2.MetadataFetchResponse:
        request = broker_pb2.MetadataFetchRequest(
            cluster_id=self._cluster_id,
            broker_id=session.broker_id,
            broker_epoch=session.broker_epoch,
            incarnation_id=session.incarnation_id,
            offset=session.offset,
            epoch=session.epoch,
            chain=session.chain,
            max_wait_ms=50,
            max_bytes=max_bytes,
        )
        for stub in self._stubs:
            with contextlib.suppress(grpc.aio.AioRpcError):
                answer: broker_pb2.MetadataFetchResponse = await stub.MetadataFetchOnce(request, timeout=2)
                if answer.error.code == common_pb2.NONE:
                    session.contacted = time.perf_counter()
                    return answer
        return broker_pb2.MetadataFetchResponse()

    def silence(self, broker_id: int) -> float:
        """Ends the contacts of one broker. Returns the time of its last contact, by `time.perf_counter`."""
        session = next(each for each in self._sessions if each.broker_id == broker_id)
        self._sessions.remove(session)
        return session.contacted

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(CONTACT_S)
            await asyncio.gather(*(self._fetch(session, 1) for session in self._sessions))
