"""How a test awaits that a call is refused."""

from collections.abc import Awaitable
from typing import Any

import grpc
import pytest

from metadata_log.format.errors import ErrorCode
from service_kit.rpc.refusals import Refusal


async def refusal_of(call: Awaitable[Any]) -> Refusal:
    """What `call` is refused with. Fails where it is answered, or ends without a word of a node."""
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await call
    found = Refusal.of(ended.value)
    assert found is not None, ended.value
    return found


async def code_of(call: Awaitable[Any]) -> ErrorCode:
    """The code that `call` is refused with; NONE where it is answered."""
    try:
        await call
    except grpc.aio.AioRpcError as e:
        found = Refusal.of(e)
        assert found is not None, e
        return ErrorCode[found.reason]
    return ErrorCode.NONE
