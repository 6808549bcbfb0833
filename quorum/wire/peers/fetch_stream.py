"""The stream on which a follower fetches from one other controller, with one fetch in flight.

A stream's round trip costs half of a call's. One coroutine writes, reads and delivers: no message gets a task or a timer of its
own, because a follower's round trip is on the path of every commit.

    1. Controller 1 follows controller 2. Its core asks for a fetch, which waits at controller 2 for new records.
    2. Controller 2 answers. The coroutine hands the answer to the core, and waits for the next fetch.
    3. The process of controller 2 is killed, and the stream breaks. The fetch in flight fails as BROKEN. The stream had answers
       before, so `probe` finds out if the process still runs.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import grpc
from quorum_rpc.v1 import voter_pb2

from metadata_log.format.ids import NodeId
from quorum.core.protocol.inputs import Failure
from quorum.core.protocol.messages import FetchRequest, PeerResponse
from quorum.wire.convert import convert_raft as convert
from quorum.wire.convert.errors import BadMessage

OnResponse = Callable[[PeerResponse], None]
OnFailure = Callable[[Failure], None]


class Asked(NamedTuple):
    """A fetch, with the functions that take its answer or failure."""

    request: FetchRequest
    on_response: OnResponse
    on_failure: OnFailure


class FetchedPeer(Protocol):
    """The controller at the other end."""

    node_id: NodeId

    def heard(self, standing: voter_pb2.Standing) -> None:
        """Takes the standing of each answer."""

    def failure_of(self, e: grpc.aio.AioRpcError) -> Failure:
        """Returns the kind of failure that ended the stream."""

    def not_parsed(self, e: BadMessage) -> None:
        """Takes note of an answer that is no message."""

    def probe(self) -> None:
        """Finds out if the process still runs, after a stream with answers has ended."""


class FetchStream:
    """One fetch stream, from start to end. A new stream is a new object."""

    def __init__(self, call: Any, me: voter_pb2.Sender, peer: FetchedPeer) -> None:
        """`call`: the open call of `Fetch`. `me`: the sender of every request."""
        self._call = call
        self._me = me
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._asked: Asked | None = None
        self._waker: asyncio.Future[None] | None = None
        self._deadline_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._answered = False
        self.is_over = False
        self._task = self._loop.create_task(self._run())

    @property
    def is_busy(self) -> bool:
        """True while a fetch is in flight."""
        return self._asked is not None

    def send(self, asked: Asked, timeout_ms: int) -> None:
        """Sends a fetch. No other fetch may be in flight."""
        assert self._asked is None and not self.is_over
        self._asked = asked
        self._deadline_s = self._loop.time() + timeout_ms / 1_000
        if self._timer is None or self._timer.when() > self._deadline_s:
            # One timer serves many fetches: a timer that fires too early is set to the deadline of the fetch in flight.
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(self._deadline_s, self._timer_fired)
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def _run(self) -> None:
        failure = Failure.BROKEN
        try:
            await self._converse()
        except grpc.aio.AioRpcError as e:
            failure = self._peer.failure_of(e)
        except BadMessage as e:
            self._peer.not_parsed(e)
        except (asyncio.InvalidStateError, grpc.aio.UsageError):
            failure = Failure.BROKEN  # the call ended between two operations of this coroutine
        if self._answered and not self.is_over:
            self._peer.probe()
            failure = Failure.BROKEN
        self.abandon(failure)

    async def _converse(self) -> None:
        """Sends requests and reads answers in turn, until the stream ends."""
        call, me = self._call, self._me
        while True:
            if self._asked is None:
                self._waker = self._loop.create_future()
                await self._waker
            assert self._asked is not None
            await call.write(convert.to_fetch(self._asked.request, me))
            message = await call.read()
            if message is grpc.aio.EOF:
                return
            if message is None:  # gRPC gives None for bytes that are no message
                raise BadMessage("it is no answer to Fetch")
            self._peer.heard(message.standing)
            response = convert.from_fetch_response(message)
            self._answered = True
            asked, self._asked = self._asked, None
            asked.on_response(response)

    def abandon(self, failure: Failure | None) -> None:
        """Ends the stream. An open fetch fails with `failure`; with None no function is called."""
        if self.is_over:
            return
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._call.cancel()
        if asyncio.current_task() is not self._task:
            self._task.cancel()
        asked, self._asked = self._asked, None
        if asked is not None and failure is not None:
            self._loop.call_soon(asked.on_failure, failure)

    def _timer_fired(self) -> None:
        self._timer = None
        if self._asked is None:
            return
        if self._loop.time() < self._deadline_s:
            self._timer = self._loop.call_at(self._deadline_s, self._timer_fired)
        else:
            self.abandon(Failure.TIMED_OUT)
