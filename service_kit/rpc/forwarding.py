"""Forwarding: a node sends a client's request on to another node, and returns the answer.

The forwarder never guesses the outcome. If no connection came about, nothing was done. If the answer to a change is missing, the
change may have happened. The forwarder does not repeat a change; the client does, with the request id.

A node that stops ends forwarded calls in the same way, before it closes its channels (`Forwarder.stop`). For example:

    1. Controller 1 has forwarded a change to the leader when SIGTERM comes. The leader gets a moment more to answer. Then
       controller 1 tells the client that the change may have happened.
    2. A second change arrives after SIGTERM. Controller 1 does not forward this change. The client is told that nothing was done,
       and asks another node.

The forwarder names the client's principal to the other node. `service_kit.rpc.doors` decides which nodes are believed.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final

import grpc

from service_kit.rpc.api_methods import changes_nothing
from service_kit.rpc.dial import Reach, WrongServer, was_never_sent
from service_kit.rpc.refusals import Refusal

STAY_HERE: Final = "metaquorum-stay-here"
"""A key of gRPC metadata: the reached node answers or refuses the call, and does not forward it. A forwarding controller sets the
key, so that no request runs in a circle; so does a client that looks for the leader."""
PRINCIPAL: Final = "metaquorum-principal-bin"
"""A key of gRPC metadata: the principal of the client for which a node asks."""
ANONYMOUS: Final = "anonymous"
PRINCIPAL_CHARS_MAX: Final = 256
ANSWER_GRACE_S: Final = 0.1
"""How much earlier than the client's deadline the asked node's deadline comes, so that its word about the outcome still
arrives."""

_NAMES: Final = (("x509_subject", ""), ("x509_subject_alternative_name", "SAN="))
"""The properties of a certificate that name its holder, each with a prefix: no alternative name then reads like a subject."""


class NoAnswer(Exception):
    """The asked node has not answered. The text names the node, the reason, and the outcome.

    `never_sent`: no connection came about. `may_have_happened`: a change was sent, and its outcome is not known.
    """

    def __init__(self, text: str, *, never_sent: bool, is_read: bool) -> None:
        self.never_sent = never_sent
        self.may_have_happened = not never_sent and not is_read
        if never_sent:
            text += "; nothing was done"
        elif self.may_have_happened:
            text += "; the request may have taken effect; look before you repeat it"
        else:
            text += "; a read changes nothing, so ask again"
        super().__init__(text)


class _Stopped(Exception):
    """The forwarder stopped before the work was done."""


class Forwarder:
    """Forwards requests on the channels that `reach` gives. `stub` makes the stub of the service for a channel.

    A channel connects again by itself, so the forwarder reaches a node again that restarts at the same address.
    """

    def __init__(self, reach: Reach, stub: Callable[[grpc.aio.Channel], Any]) -> None:
        self._reach = reach
        self._make_stub = stub
        self._stubs: dict[grpc.aio.Channel, Any] = {}
        self._under_way: set[asyncio.Future[Any]] = set()
        self._stopping = False

    def is_stopping(self) -> bool:
        """Returns whether the forwarder takes no more requests."""
        return self._stopping

    async def stub(self, target: str, node_id: int | None = None) -> Any:
        """Returns the stub of the service at `target`. `node_id`: the controller's id, where known.

        Raises:
            WrongServer, OSError: the controller cannot be told from others there (`service_kit.rpc.controller_channels`).
        """
        channel = await self._reach(target, node_id)
        if channel not in self._stubs:
            self._stubs[channel] = self._make_stub(channel)
        return self._stubs[channel]

    async def ask(
        self,
        target: str,
        method: str,
        request: Any,
        timeout_s: float,
        principal: str,
        *,
        node_id: int | None = None,
        stay_here: bool = False,
    ) -> Any:
        """Returns the answer of the node at `target` to `request`. With `stay_here` that node does not forward the request.

        Raises:
            Refusal: the node has refused the request.
            NoAnswer: the node has not answered.
        """
        is_read = changes_nothing(method, request)
        self._check_not_stopping(target, is_read)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline_s):
                stub = await self._until_stop(self.stub(target, node_id))
        except (WrongServer, OSError) as e:
            raise _not_reached(target, e, is_read) from e
        except _Stopped:
            raise _not_asked(target, is_read) from None
        self._check_not_stopping(target, is_read)
        left_s = max(0.0, deadline_s - loop.time())
        asked = _copy_of(request, left_s)
        metadata = in_the_name_of(principal) + (((STAY_HERE, "1"),) if stay_here else ())
        try:
            answer = await self._until_stop(_answer(getattr(stub, method), asked, left_s, metadata))
        except grpc.aio.AioRpcError as e:
            refusal = Refusal.of(e)
            if refusal is not None:
                raise refusal from e
            text = f"{target} did not answer: {e.code().name}: {e.details()}"
            raise NoAnswer(text, never_sent=was_never_sent(e), is_read=is_read) from e
        except _Stopped:
            text = f"{target} has not answered, and this node is shutting down"
            raise NoAnswer(text, never_sent=False, is_read=is_read) from None
        if answer is None:  # gRPC gives None for bytes that are no message
            raise NoAnswer(f"{target} sent an answer that cannot be decoded", never_sent=False, is_read=is_read)
        refusal = Refusal.in_answer(answer)
        if refusal is not None:
            raise refusal
        return answer

    async def read(
        self,
        target: str,
        method: str,
        request: Any,
        timeout_s: float,
        principal: str,
        *,
        node_id: int | None = None,
        stay_here: bool = False,
    ) -> AsyncGenerator[Any, None]:
        """Yields the messages of an answer of many messages. `timeout_s` is for the first message.

        Raises:
            Refusal, NoAnswer: as `ask`, also after some messages.
        """
        self._check_not_stopping(target, is_read=True)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline_s):
                stub = await self._until_stop(self.stub(target, node_id))
        except (WrongServer, OSError) as e:
            raise _not_reached(target, e, is_read=True) from e
        except _Stopped:
            raise _not_asked(target, is_read=True) from None
        asked = _copy_of(request, deadline_s - loop.time())
        metadata = in_the_name_of(principal) + (((STAY_HERE, "1"),) if stay_here else ())
        call = getattr(stub, method)(asked, metadata=metadata)
        try:
            async with asyncio.timeout_at(deadline_s):
                message = await call.read()
            while message is not grpc.aio.EOF:
                if message is None:  # gRPC gives None for bytes that are no message
                    raise NoAnswer(f"{target} sent an answer that cannot be decoded", never_sent=False, is_read=True)
                yield message
                message = await call.read()
        except TimeoutError as e:
            raise NoAnswer(f"{target} did not answer in time", never_sent=False, is_read=True) from e
        except grpc.aio.AioRpcError as e:
            raise _refusal_of(target, e) from e
        finally:
            call.cancel()

    async def _until_stop(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Returns the result of `work`, or raises its error, or raises _Stopped."""
        under_way = asyncio.ensure_future(work)
        self._under_way.add(under_way)
        try:
            return await under_way
        except asyncio.CancelledError:
            asking = asyncio.current_task()
            if not self.is_stopping() or (asking is not None and asking.cancelling()):
                raise
            raise _Stopped from None
        finally:
            self._under_way.discard(under_way)
            under_way.cancel()

    def _check_not_stopping(self, target: str, is_read: bool) -> None:
        if self._stopping:
            raise _not_asked(target, is_read)

    async def stop(self, grace_s: float) -> None:
        """Takes no more requests. Forwarded requests get `grace_s` seconds more, and then end with NoAnswer."""
        self._stopping = True
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=grace_s)
        for call in list(self._under_way):
            call.cancel()


async def _answer(ask: Any, request: Any, timeout_s: float, metadata: Any) -> Any:
    return await ask(request, timeout=timeout_s, metadata=metadata)


def _copy_of(request: Any, left_s: float) -> Any:
    """Returns the request with the time that is left for it."""
    asked = type(request)()
    asked.CopyFrom(request)
    asked.context.timeout_ms = max(1, int((left_s - ANSWER_GRACE_S) * 1_000))
    return asked


def _refusal_of(target: str, e: grpc.aio.AioRpcError) -> Refusal | NoAnswer:
    """Returns what became of a read with many messages. A node of an older release does not have the method."""
    refusal = Refusal.of(e)
    if refusal is not None:
        return refusal
    if e.code() is grpc.StatusCode.UNIMPLEMENTED:
        return Refusal("UNSUPPORTED_VERSION", f"{target} is of an older release without this call; nothing was read")
    text = f"{target} did not answer: {e.code().name}: {e.details()}"
    return NoAnswer(text, never_sent=was_never_sent(e), is_read=True)


def in_the_name_of(principal: str) -> tuple[tuple[str, Any], ...]:
    """Returns the metadata of a call that a node makes for `principal`."""
    return ((PRINCIPAL, principal.encode()),)


def must_stay(context: Any) -> bool:
    """Returns whether the caller forbids this node to forward the call (STAY_HERE)."""
    return any(key == STAY_HERE for key, _ in context.invocation_metadata() or ())


def principal_of(context: Any) -> str:
    """Returns the holder that the connection's certificate names: its subject (RFC 2253), else `SAN=` with its first alternative
    name. Without TLS: `anonymous`."""
    properties = context.auth_context()
    for name, prefix in _NAMES:
        values = properties.get(name)
        if values and values[0]:
            text: str = prefix + values[0].decode("utf-8", "replace")
            return text if len(text) <= PRINCIPAL_CHARS_MAX else "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    return ANONYMOUS


def claimed_principal(context: Any) -> str | None:
    """Returns the principal for which the caller claims to ask, if any. `service_kit.rpc.doors` decides whether to believe it."""
    for key, value in context.invocation_metadata() or ():
        if key == PRINCIPAL:
            return bytes(value).decode("utf-8", "replace")[:PRINCIPAL_CHARS_MAX]
    return None


def _not_reached(target: str, e: Exception, is_read: bool) -> NoAnswer:
    why = str(e) or "no connection in time"
    return NoAnswer(f"{target} cannot be reached: {why}", never_sent=True, is_read=is_read)


def _not_asked(target: str, is_read: bool) -> NoAnswer:
    return NoAnswer(f"{target} was not asked, because this node is shutting down", never_sent=True, is_read=is_read)
