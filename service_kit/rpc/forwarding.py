"""Nodes that ask in the name of others: how they ask, what they say to each other, and whom they believe.

What became of a request is never guessed. If no connection came about, nothing was done; if the answer to a change is missing,
it may have happened, and is not sent again here: its client does that, with the request id.

A node that stops ends what it has handed on with the same words, before it closes its channels (`Forwarder.stop`):

    1. A change is on its way to the leader when SIGTERM comes. It gets a moment more; then its client hears that the change may
       have happened.
    2. What comes after SIGTERM is not handed on. Its client hears that nothing was done, and asks another node.

The forwarder says in whose name it asks. `service_kit.rpc.doors` says who is believed.
"""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

import grpc

from service_kit.rpc.api_methods import changes_nothing
from service_kit.rpc.dial import Reach, WrongServer, was_never_sent
from service_kit.rpc.refusals import Refusal

STAY_HERE: Final = "metaquorum-stay-here"
"""The call is to be answered by the node that it reaches, or refused: set by a controller that hands it on, so that nothing goes
round in a circle, and by who looks for the leader itself. (Keys of gRPC metadata.)"""
PRINCIPAL: Final = "metaquorum-principal-bin"
"""For whom a node asks."""
ANONYMOUS: Final = "anonymous"
PRINCIPAL_CHARS_MAX: Final = 256
ANSWER_GRACE_S: Final = 0.1
"""The deadline of who is asked comes so much earlier, so that what it knows about the outcome still arrives."""

_NAMES: Final = (("x509_subject", ""), ("x509_subject_alternative_name", "SAN="))
"""What of a certificate names its holder, and what is put before it, so that no alternative name reads like a subject."""


class NoAnswer(Exception):
    """Who was asked has not answered; the text says who, why, and what that means.

    `never_sent`: no connection came about. `may_have_happened`: a change was sent, and what became of it is not known.
    """

    def __init__(self, text: str, *, never_sent: bool, is_read: bool) -> None:
        self.never_sent = never_sent
        self.may_have_happened = not never_sent and not is_read
        if never_sent:
            text += "; nothing was done"
        elif self.may_have_happened:
            text += "; the request may have taken effect"
        super().__init__(text)


class _Stopped(Exception):
    """The forwarder stopped before that came to an end."""


class Forwarder:
    """Asks other nodes, in the name of who asks this one, on the channels that `reach` gives. `stub` is their service's.

    A channel connects again by itself, so a node that comes back at its place is asked again.
    """

    def __init__(self, reach: Reach, stub: Callable[[grpc.aio.Channel], Any]) -> None:
        self._reach = reach
        self._make_stub = stub
        self._stubs: dict[grpc.aio.Channel, Any] = {}
        self._under_way: set[asyncio.Future[Any]] = set()
        self._stopping = False

    def is_stopping(self) -> bool:
        """Whether nothing is handed on any more."""
        return self._stopping

    async def stub(self, target: str, node_id: int | None = None) -> Any:
        """The service at `target`, for who calls it directly. `node_id` is the controller's, where that is known.

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
        """The answer of the node at `target` to `request`. With `stay_here` that node hands the request on to no other.

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
            why = str(e) or "no connection in time"
            raise NoAnswer(f"{target} was to be asked: {why}", never_sent=True, is_read=is_read) from e
        except _Stopped:
            pass  # nothing was sent yet
        self._check_not_stopping(target, is_read)  # it may have come to that while the target was looked at
        asked, left_s = type(request)(), max(0.0, deadline_s - loop.time())
        asked.CopyFrom(request)
        asked.context.timeout_ms = max(1, int((left_s - ANSWER_GRACE_S) * 1_000))
        metadata = in_the_name_of(principal) + (((STAY_HERE, "1"),) if stay_here else ())
        try:
            return await self._until_stop(_answer(getattr(stub, method), asked, left_s, metadata))
        except grpc.aio.AioRpcError as e:
            refusal = Refusal.of(e)
            if refusal is not None:
                raise refusal from e
            text = f"{target} was asked: {e.code().name}: {e.details()}"
            raise NoAnswer(text, never_sent=was_never_sent(e), is_read=is_read) from e
        except _Stopped:
            text = f"{target} was asked, and has not answered yet: this node is shutting down"
            raise NoAnswer(text, never_sent=False, is_read=is_read) from None

    async def _until_stop(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What `work` gives. Raises what it raises, or _Stopped."""
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
            raise NoAnswer(f"{target} was not asked: this node is shutting down", never_sent=True, is_read=is_read)

    async def stop(self, grace_s: float) -> None:
        """Hands nothing on any more; what is under way gets `grace_s` seconds, and is then ended with NoAnswer."""
        self._stopping = True
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=grace_s)
        for call in list(self._under_way):
            call.cancel()


async def _answer(ask: Any, request: Any, timeout_s: float, metadata: Any) -> Any:
    return await ask(request, timeout=timeout_s, metadata=metadata)


def in_the_name_of(principal: str) -> tuple[tuple[str, Any], ...]:
    """The metadata of a call that is made for `principal`."""
    return ((PRINCIPAL, principal.encode()),)


def must_stay(context: Any) -> bool:
    """Whether this call is to be answered here or nowhere."""
    return any(key == STAY_HERE for key, _ in context.invocation_metadata() or ())


def principal_of(context: Any) -> str:
    """Whom the connection's certificate names: its subject (RFC 2253), else `SAN=` and its first alternative name. `anonymous`
    without TLS."""
    properties = context.auth_context()
    for name, prefix in _NAMES:
        values = properties.get(name)
        if values and values[0]:
            text: str = prefix + values[0].decode("utf-8", "replace")
            return text if len(text) <= PRINCIPAL_CHARS_MAX else "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    return ANONYMOUS


def claimed_principal(context: Any) -> str | None:
    """In whose name the caller says that it asks, if it says so. Whether that is believed, `service_kit.rpc.doors` decides."""
    for key, value in context.invocation_metadata() or ():
        if key == PRINCIPAL:
            return bytes(value).decode("utf-8", "replace")[:PRINCIPAL_CHARS_MAX]
    return None
