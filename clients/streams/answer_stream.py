"""The client's end of an answer of many messages (`ReadTree`).

The first message is the proof that a node answers: until it comes, the client may ask another node (`clients.calls`). Then the
answer comes from this node, or ends with an error:
    1. A client asks controller 1, which dies. No message came, so the client asks controller 2, and gets the first message.
    2. Controller 2 dies after 1,000 rows. The client raises Unanswered: the rows that came are true, and the rest is missing.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Final

import grpc

from clients.errors import AdminError, Unanswered, error_of_call, error_of_garbage
from metadata_log.format.errors import ErrorCode
from service_kit.rpc.dial import was_never_sent
from service_kit.rpc.refusals import Refusal

_LATE: Final = "did not answer in time"
_CUT_OFF: Final = "the answer was cut off; what came is true, and the rest is missing; ask again"


class AnswerStream:
    """An answer whose first message has come. Iterate over it at most once, and close it."""

    def __init__(self, call: Any, target: str, first: Any) -> None:
        self._call = call
        self._target = target
        self.first = first
        """The first message."""

    @property
    def as_of_offset(self) -> int:
        """The offset of the image that is shown."""
        return int(self.first.as_of_offset)

    async def messages(self) -> AsyncGenerator[Any, None]:
        """Yields the first message and all others. Raises AdminError."""
        try:
            message = self.first
            while message is not grpc.aio.EOF:
                if message is None:  # gRPC gives None for bytes that are no message
                    raise error_of_garbage(self._target, is_read=True)
                yield message
                message = await self._call.read()
        except grpc.aio.AioRpcError as e:
            refusal = Refusal.of(e)
            if refusal is not None:
                raise AdminError.of_refusal(refusal, self._target, is_read=True) from e
            text = f"{self._target}: {_CUT_OFF} ({e.code().name}: {e.details()})"
            raise Unanswered(ErrorCode.REQUEST_TIMED_OUT, text) from e
        finally:
            self.close()

    def close(self) -> None:
        """Ends the call, also in the middle of the answer."""
        with contextlib.suppress(asyncio.InvalidStateError):
            self._call.cancel()


async def opened(call: Any, target: str, request: Any, timeout_s: float) -> AnswerStream:
    """Returns the answer once its first message has come.

    Raises:
        AdminError: the node has refused the request, or sent no message in time.
    """
    try:
        async with asyncio.timeout(timeout_s):
            first = await call.read()
    except TimeoutError as e:
        call.cancel()
        raise Unanswered(ErrorCode.REQUEST_TIMED_OUT, f"{target} {_LATE}") from e
    except asyncio.CancelledError:
        call.cancel()
        raise
    except grpc.aio.AioRpcError as e:
        refusal = Refusal.of(e)
        if refusal is not None:
            raise AdminError.of_refusal(refusal, target, is_read=True) from e
        sent = not was_never_sent(e)
        raise error_of_call(target, e, sent=sent, size=request.ByteSize(), is_read=True) from e
    if first is None or first is grpc.aio.EOF:
        call.cancel()
        raise error_of_garbage(target, is_read=True)
    return AnswerStream(call, target, first)
