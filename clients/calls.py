"""Calls of AdminService and EntityService: one request, as many attempts as it takes, one answer or one error.

A call asks the controller that the client believes to lead, follows leader hints, and asks the next controller while none leads.
Each call has one deadline. For example:

    1. The client sends CreateTopics with request id R to controller 1, which commits the topic and dies before it answers.
    2. The client sends the same request with R to controller 2, which leads now. Controller 2 finds R, and returns the first
       answer.
    3. In another run controller 2 refuses the request, or the deadline comes first. The client raises `MayHaveHappened`, because
       the first attempt may still arrive. The caller then looks for the topic (list, describe).
"""

import asyncio
import copy
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, Self, TypeAlias, TypeVar

import grpc
from quorum_rpc.v1 import admin_pb2

from clients.doubts import doubt_of
from clients.errors import (
    AdminError,
    Incomplete,
    MayHaveHappened,
    NoLeader,
    NotReached,
    Unanswered,
    error_of_call,
    error_of_each,
    error_of_garbage,
)
from clients.methods import STUBS, method_of
from clients.streams.answer_stream import AnswerStream, opened
from metadata_log.format.errors import ErrorCode
from service_kit.process.endpoints import BadEndpoint, parse_host_port
from service_kit.rpc.api_methods import Kind
from service_kit.rpc.dial import was_never_sent
from service_kit.rpc.forwarding import STAY_HERE
from service_kit.rpc.grpc_options import channel_options
from service_kit.rpc.refusals import Refusal

Metadata: TypeAlias = tuple[tuple[str, str], ...]
R = TypeVar("R")


DEFAULT_TIMEOUT_S: Final = 10.0
ATTEMPT_S: Final = 2.0
"""How long the client waits for one controller before it asks the next one."""
DELAY_S: Final = 0.5
"""How long a call tries before it calls `on_delay`."""
BACKOFF_FIRST_S: Final = 0.02
BACKOFF_MAX_S: Final = 0.2

_NO_POSITIONS: Final = (
    "this controller is of an older release, and has answered with its newest image; nothing was changed. Ask again when all "
    "controllers have this release"
)
_OFFSETS: Final = ("offset", "as_of_offset")
"""The fields of answers that tell how far the log has come."""

ASK_ELSEWHERE: Final = frozenset(
    (
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_READY,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.STORAGE_ERROR,
    )
)
"""The codes after which the client asks another controller, or the same one in a moment: nothing was done."""

NEVER_REPEATED: Final = frozenset((ErrorCode.RECORD_BATCH_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR))
"""The codes after which the client never repeats a request: the next controller would make the same mistake."""


class Calls:
    """The calls of one client to one cluster's controllers. Use on one event loop."""

    def __init__(
        self,
        endpoints: Sequence[str],
        cluster_id: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        dial: Any = None,
        local: bool = False,
        at_offset: int | None = None,
        at_time_ms: int | None = None,
    ) -> None:
        """`endpoints`: `host:port` of controllers, or of brokers, which ask the controllers. `dial(target) -> Channel`: makes the
        channels, for example with TLS. `local`: reads see the asked node's own image, which may be old, but never older than
        what this client has seen. `at_offset`, `at_time_ms`: reads see an image of the past (`at`).

        Raises:
            BadEndpoint: `endpoints` is empty, or an entry is not `host:port`. (A ValueError.)
        """
        if not endpoints:
            raise BadEndpoint("no endpoint given; a client needs host:port of at least one controller or broker")
        self.endpoints = tuple(parse_host_port(endpoint).target for endpoint in endpoints)
        self.timeout_s = timeout_s
        self.cluster_id = cluster_id or ""
        """The cluster that must answer; "": any."""
        self._dial = dial or _dial_insecurely
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._stubs: dict[tuple[str, str], Any] = {}
        self._target = self.endpoints[0]
        self._turn = 0
        self.on_delay: Callable[[AdminError, float], object] | None = None
        """Called once in a call without an answer after half a second: with the last error, and the seconds that are left."""
        self.lists_until_s: float | None = None
        """The time of the loop at which lists with all their pages must be complete. None: each page has `timeout_s`."""
        self._local = local
        self._at_offset, self._at_time_ms = at_offset, at_time_ms
        self._past_offset: int | None = None
        self.local_view: admin_pb2.LocalView | None = None
        """The node and the age of the last answer that came from one node's own image."""
        self._generation = 0
        """The highest generation that an answer had. Answers of AdminService have none."""
        self._high_watermark = 0
        """The highest offset that this client was told of. Its next change takes effect above, and its next read is not older."""

    def at(self, *, offset: int | None = None, time_ms: int | None = None) -> Self:
        """Returns a client whose reads see the image at `offset` (end-exclusive), or at a time in milliseconds since 1970.

        The client uses the connections of this client, and is not closed. It makes no changes. With both arguments it sees the
        lower image. The image is that after the batches that end at or below the offset, or were appended at or before the time.
        """
        past = copy.copy(self)
        past._at_offset, past._at_time_ms, past._past_offset = offset, time_ms, None
        return past

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        channels, self._channels, self._stubs = self._channels, {}, {}
        for channel in channels.values():
            await channel.close()

    async def call(self, request: Any, response_type: type[R], *, repeatable: bool = True) -> R:
        """Sends any request of AdminService or EntityService to the active controller. The request's type names the method.

        Every change gets a request id, so the client sends it again when the answer is missing, unless `repeatable` is False.
        """
        self._prepare(request)
        response: Any = await self._ask(request, repeatable=repeatable)
        self._note_view(request, response)
        assert isinstance(response, response_type), response
        return response

    async def read(self, request: Any) -> AnswerStream:
        """Sends a read whose answer has many messages to the active controller. The caller closes the answer."""
        self._prepare(request)
        answer: AnswerStream = await self._ask(request)
        try:
            self._note_view(request, answer.first)
        except AdminError:
            answer.close()
            raise
        return answer

    def _prepare(self, request: Any) -> None:
        """Names the position of a read, or the id of a change."""
        kind = method_of(request).kind
        if kind is Kind.READ:
            self._name_position(request.context)
        else:
            self.check_present()
        if kind in (Kind.CHANGE_ONCE, Kind.GOAL):
            request.context.request_id = secrets.token_bytes(16)
        elif kind is Kind.READ and self._local:
            request.context.consistency = admin_pb2.RequestContext.LOCAL
            request.context.client_high_watermark = self._high_watermark

    def _note_view(self, request: Any, response: Any) -> None:
        """Notes what an answer shows. Raises AdminError: the node knows no positions."""
        if self._at_offset is not None and getattr(response, "as_of_offset", 0) > self._at_offset:
            raise AdminError(ErrorCode.UNSUPPORTED_VERSION, _NO_POSITIONS)
        if method_of(request).kind is Kind.READ and self._reads_past:
            self._past_offset = getattr(response, "as_of_offset", None)
        if "local" in response.DESCRIPTOR.fields_by_name and response.HasField("local"):
            self.local_view = response.local

    @property
    def past_offset(self) -> int | None:
        """The offset of the image of the past that the last answer showed; None: no answer did. Only a client of `at` has one."""
        return self._past_offset

    @property
    def _reads_past(self) -> bool:
        return self._at_offset is not None or self._at_time_ms is not None

    def check_present(self) -> None:
        """Raises ValueError: this client reads the past, and changes nothing."""
        if self._reads_past:
            raise ValueError("this client reads the past and changes nothing; use the client that `at` was called on")

    def _name_position(self, context: Any) -> None:
        if self._at_offset is not None:
            context.at_offset = self._at_offset
        if self._at_time_ms is not None:
            context.at_time_ms = self._at_time_ms

    async def pages(self, request: Any, response_type: type[R]) -> AsyncIterator[R]:
        """Sends a request for a list until the last page has come, and yields the pages. Each page is as of its own offset.

        Raises:
            Incomplete: the time of `lists_until_s` came before the last page.
        """
        count = 0
        while True:
            page: Any = await self._page(request, response_type, count)
            count += 1
            yield page
            token = page.next_page_token or _token_of_0_1_0(page)
            if not token:
                return
            request.page_token = token

    async def _page(self, request: Any, response_type: type[R], count: int) -> R:
        """Asks for one page. `count`: how many pages came before."""
        try:
            return await self.call(request, response_type)
        except (NoLeader, Unanswered) as e:
            until_s = self.lists_until_s
            if until_s is None or asyncio.get_running_loop().time() < until_s or not count:
                raise
            text = f"the list was not complete in time: {count} of its pages came"
            raise Incomplete(ErrorCode.REQUEST_TIMED_OUT, text) from e

    @property
    def target(self) -> str:
        """The node that the next call asks: the active controller, as far as this client knows."""
        return self._target

    async def leader(self) -> str:
        """Returns `host:port` of the active controller, and waits for an election if necessary."""
        await self._ask(self._small_read(), metadata=((STAY_HERE, "1"),))
        return self._target

    def _limit_s(self, request: Any, now_s: float) -> float:
        """How long the answer to this request may take."""
        if self.lists_until_s is None or "page_token" not in request.DESCRIPTOR.fields_by_name:
            return self.timeout_s
        return min(self.timeout_s, self.lists_until_s - now_s)

    async def _ask(self, request: Any, *, repeatable: bool = True, metadata: Metadata = ()) -> Any:
        """Asks controllers until the active one answers, or the deadline comes."""
        loop = asyncio.get_running_loop()
        limit_s = self._limit_s(request, loop.time())
        deadline_s = loop.time() + limit_s
        backoff_s, last = (
            BACKOFF_FIRST_S,
            AdminError(ErrorCode.NOT_CONTROLLER, "no controller was asked before the deadline"),
        )
        lost: AdminError | None = None
        tried: dict[str, AdminError] = {}
        on_delay = self.on_delay
        has_followed_hint = False
        # The voters' log tells if a goal was reached since the client looked, so the client looks just before.
        is_stale = not self._high_watermark or method_of(request).kind is Kind.GOAL
        while (left_s := deadline_s - loop.time()) > 0:
            target = self._target
            attempt_s = min(left_s, ATTEMPT_S) if repeatable else left_s
            try:
                if request.context.request_id and not request.context.client_high_watermark:
                    if is_stale:
                        await self._see(target, attempt_s)
                    request.context.client_high_watermark = self._high_watermark
                response = await self._attempt(target, request, attempt_s, metadata)
                doubt = None if lost is None else doubt_of(request, response)
                if doubt is None:
                    return response
                last = doubt
                break
            except AdminError as e:
                last = tried[target] = e
            if last.code is ErrorCode.REQUEST_ID_EXPIRED and lost is None:
                request.context.client_high_watermark = 0  # nothing was done: this client's offset is too old
                is_stale = True
                continue
            if repeatable and isinstance(last, Unanswered) and last.code not in NEVER_REPEATED:
                lost = last if isinstance(last, MayHaveHappened) else lost
            elif last.code not in ASK_ELSEWHERE:
                break
            # Two controllers that name each other as leader must not be asked in turn without a pause.
            has_followed_hint = self._go_elsewhere(target, last.hint) and not has_followed_hint
            if on_delay is not None and deadline_s - loop.time() < limit_s - DELAY_S:
                on_delay(last, deadline_s - loop.time())
                on_delay = None
            if not has_followed_hint:
                await asyncio.sleep(max(0.0, min(backoff_s, deadline_s - loop.time())))
                backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
        else:
            last = NoLeader.after(round(limit_s, 2), last, tried)
        if lost is not None and request.context.request_id:
            raise MayHaveHappened(ErrorCode.REQUEST_TIMED_OUT, f"{lost.message}; then: {last.message}") from last
        raise last

    async def _see(self, target: str, timeout_s: float) -> None:
        """Reads the log's offset before the first attempt of a change, so that the controllers will still know the outcome."""
        try:
            await self._attempt(target, self._small_read(), timeout_s)
        except Unanswered as e:  # of a read, before the change
            raise NotReached(ErrorCode.BROKER_NOT_AVAILABLE, e.message) from e

    async def call_one(self, request: Any, response_type: type[R], endpoint: str | None) -> R:
        """Asks the controller at `endpoint`, or each controller until the first answers."""
        targets = [endpoint] if endpoint is not None else [self._target, *self.endpoints]
        tried: dict[str, AdminError] = {}
        for target in dict.fromkeys(targets):
            try:
                response = await self._attempt(target, request, min(self.timeout_s, ATTEMPT_S))
                assert isinstance(response, response_type), response
                return response
            except (NotReached, Unanswered) as e:
                tried[target] = e
        raise error_of_each(tried)

    async def _attempt(self, target: str, request: Any, timeout_s: float, metadata: Metadata = ()) -> Any:
        method = method_of(request)
        request.context.cluster_id = self.cluster_id
        request.context.timeout_ms = max(1, int(timeout_s * 1_000))
        is_read = method.kind is Kind.READ or bool(getattr(request, "validate_only", False))
        ask = getattr(self.stub(target, method.service), method.name)
        if method.is_streamed:  # without a deadline: a long answer comes as fast as the caller takes it
            answer = await opened(ask(request, metadata=metadata), target, request, timeout_s + 0.25)
            self._note_offset(answer)
            return answer
        try:
            # The server's deadline comes first, so that its word about the outcome still arrives.
            response = await ask(request, timeout=timeout_s + 0.25, metadata=metadata)
        except grpc.aio.AioRpcError as e:
            refusal = Refusal.of(e)
            if refusal is not None:
                raise AdminError.of_refusal(refusal, target, is_read=is_read) from e
            sent, size = not was_never_sent(e), request.ByteSize()
            raise error_of_call(target, e, sent=sent, size=size, is_read=is_read) from e
        if response is None:
            raise error_of_garbage(target, is_read=is_read)
        refusal = Refusal.in_answer(response)
        if refusal is not None:
            raise AdminError.of_refusal(refusal, target, is_read=is_read)
        self._note_offset(response)
        return response

    def _note_offset(self, response: Any) -> None:
        """Notes how far the log has come. A later generation begins anew: its offsets may be lower."""
        generation = getattr(response, "generation", self._generation)
        if generation > self._generation:
            self._generation, self._high_watermark = generation, 0
        for name in _OFFSETS:
            self._high_watermark = max(self._high_watermark, getattr(response, name, 0))

    def _small_read(self) -> Any:
        """A read for the sake of the offset of its answer."""
        return admin_pb2.ListTopicsRequest(page_size=1)

    def _go_elsewhere(self, asked: str, hint: str | None) -> bool:
        """Chooses the next target: the hinted leader, if it is another node (then True), or the next endpoint."""
        if hint is not None and hint != asked:
            self._target = hint
            return True
        if self._target == asked:  # else another call has moved on meanwhile, and would be moved back
            self._turn = (self._turn + 1) % len(self.endpoints)
            self._target = self.endpoints[self._turn]
        return False

    def stub(self, target: str, service: str = "AdminService") -> Any:
        """Returns the stub of a service at `target`, over the one channel to this target."""
        if target not in self._channels:
            self._channels[target] = self._dial(target)
        stub = self._stubs.get((target, service))
        if stub is None:
            stub = self._stubs[target, service] = STUBS[service](self._channels[target])
        return stub


def _token_of_0_1_0(page: Any) -> bytes:
    """Returns the token for the page after a page of topics from a controller of release 0.1.0, which sends none."""
    last: str = page.topics[-1].name if getattr(page, "more", False) and page.topics else ""
    return last.encode()


def _dial_insecurely(target: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(target, options=channel_options())
