"""What a stream of changes may hold of this process's memory: bytes, not only calls, and no more for not being read."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from quorum_rpc.v1 import admin_pb2

from quorum.wire import submit
from quorum.wire.submit import STREAM_BYTES_MAX, Load, MakeResponse, SubmitConversation


class Aborted(Exception):
    """As gRPC's `abort` raises it, once the status has left: that waits for the client as any message does."""


class Stream:
    """A client that has much to say; it takes answers only while `reads` is set."""

    def __init__(self, calls: int, call_bytes: int) -> None:
        self.reads, self.aborting = asyncio.Event(), asyncio.Event()
        self.taken = 0
        self.aborted: grpc.StatusCode | None = None
        self._messages = [
            admin_pb2.SubmitRequests(
                requests=[
                    admin_pb2.SubmitRequest(
                        id=number, delete_topics=admin_pb2.DeleteTopicsRequest(names=["x" * call_bytes])
                    )
                ]
            )
            for number in range(calls)
        ]

    async def read(self) -> Any:
        return self._messages.pop(0) if self._messages else grpc.aio.EOF

    async def write(self, message: admin_pb2.SubmitResponses) -> None:
        await self.reads.wait()
        self.taken += len(message.responses)

    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        self.aborted = code
        self.aborting.set()
        await self.reads.wait()
        raise Aborted(text)


class Controller:
    """Answers every call at once; counts what was begun."""

    def __init__(self) -> None:
        self.begun = 0

    def begin(self, request: admin_pb2.SubmitRequest, answered: Callable[[MakeResponse], None]) -> None:
        self.begun += 1
        answered(lambda: admin_pb2.SubmitResponse(id=request.id))


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_stream_that_is_not_read_stops_at_its_bytes_and_goes_on_when_it_is() -> None:
    stream, controller, load = Stream(100, STREAM_BYTES_MAX // 10), Controller(), Load()
    talk = asyncio.ensure_future(SubmitConversation(stream, controller.begin, load).run())
    await settled()
    assert controller.begun == 9
    assert 0 < load.used_bytes <= STREAM_BYTES_MAX

    stream.reads.set()
    await talk

    assert (controller.begun, stream.taken, load.used_bytes) == (100, 100, 0)


async def test_slow_readers_hold_back_themselves() -> None:
    """They fill what all streams have together; whoever reads still gets one call after the other done."""
    load = Load(limit_bytes=3 * STREAM_BYTES_MAX)
    slow = [Stream(100, STREAM_BYTES_MAX // 10) for _ in range(20)]
    talks = [asyncio.ensure_future(SubmitConversation(each, Controller().begin, load).run()) for each in slow]
    await settled()
    assert load.used_bytes <= load.limit_bytes + 20 * (STREAM_BYTES_MAX // 10 + 100)

    brisk = Stream(30, STREAM_BYTES_MAX // 10)
    brisk.reads.set()
    await SubmitConversation(brisk, Controller().begin, load).run()

    assert brisk.taken == 30
    for talk in talks:
        talk.cancel()
    await asyncio.gather(*talks, return_exceptions=True)
    assert load.used_bytes == 0


async def test_a_call_larger_than_the_stream_goes_alone() -> None:
    stream, controller = Stream(3, 2 * STREAM_BYTES_MAX), Controller()
    talk = asyncio.ensure_future(SubmitConversation(stream, controller.begin, Load()).run())
    await settled()
    assert controller.begun == 1
    stream.reads.set()
    await talk
    assert stream.taken == 3


@pytest.mark.parametrize("calls,call_bytes", [(5, 100), (100, STREAM_BYTES_MAX // 10)], ids=["all read", "full"])
async def test_a_client_that_takes_no_answer_for_long_is_let_go(
    monkeypatch: pytest.MonkeyPatch, calls: int, call_bytes: int
) -> None:
    """Also one whose stream is full. What it had under way holds nobody back any more, whether it ever reads that or not."""
    monkeypatch.setattr(submit, "STALLED_S", 0.01)
    stream, load = Stream(calls, call_bytes), Load()
    talk = asyncio.ensure_future(SubmitConversation(stream, Controller().begin, load).run())

    await asyncio.wait_for(stream.aborting.wait(), 5)
    assert load.used_bytes == 0

    stream.reads.set()
    with pytest.raises(Aborted):
        await asyncio.wait_for(talk, 5)
    assert stream.aborted is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert load.used_bytes == 0
