"""Answers of many messages: written as fast as the client takes them, and not to a client that takes none.

gRPC holds back a writer whose reader does not read. Without a limit an answer would then wait for ever, with all that it holds.
    1. An operator asks for the history of all topics, and stops the terminal with Ctrl-S. Buffers of 100 KiB fill up.
    2. The controller waits for a minute, and ends the call. The next query finds its place free.
"""

import asyncio
from typing import Any, Final

from service_kit.rpc.refusals import Refusal

STALLED_S: Final = 60.0
"""How long a client may take no message: a person who reads a page on a terminal needs some time."""


async def write(context: Any, message: Any, stalled_s: float | None = None) -> None:
    """Writes one message of an answer.

    Raises:
        Refusal: the client has taken no message for STALLED_S.
    """
    limit_s = STALLED_S if stalled_s is None else stalled_s
    try:
        async with asyncio.timeout(limit_s):
            await context.write(message)
    except TimeoutError as e:
        text = f"no part of the answer was taken for {limit_s:g} s, and the answer is cut off; ask again"
        raise Refusal("THROTTLING_QUOTA_EXCEEDED", text) from e
