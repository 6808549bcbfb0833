"""Translates large messages piece by piece, so that the event loop serves others in between.

A request may have 10,000 topics, and an answer as many results. Example:
    1. A client creates 10,000 topics in one request. Its translation into a command takes 30 ms, and that of the answer, too.
    2. Controller 1 translates 1,000 of the topics, and then lets the event loop run. Followers and brokers get their answers.
    3. After ten pieces, controller 1 joins the commands of all pieces, checks the whole, and hands it to the node.

The translators of `quorum.wire.convert` do not know of pieces: each piece is a message of the same type.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from quorum.wire.convert.convert_admin import ENTRIES_MAX
from quorum.wire.convert.errors import text_bytes_max
from service_kit.rpc.refusals import shortened

PIECE_ITEMS: Final = 1_000
"""Maximum number of items that are translated at a time: 2 to 4 ms of work."""


async def command_of(request: Any, translate: Callable[[Any], Any], items: str) -> Any:
    """Returns the command of a request. `items` is the repeated field of both that may be large; empty: none is.

    Raises:
        BadMessage: as `translate`.
    """
    count = len(getattr(request, items)) if items else 0
    if count <= PIECE_ITEMS or count > ENTRIES_MAX:  # too many are refused at once
        return translate(request)
    rest = type(request)()
    for field, value in request.ListFields():
        if field.name not in (items, "context"):
            setattr(rest, field.name, value)  # all other fields are plain values
    translated: list[Any] = []
    first: Any = None
    for begin in range(0, count, PIECE_ITEMS):
        piece = type(request)()
        piece.CopyFrom(rest)
        getattr(piece, items).extend(getattr(request, items)[begin : begin + PIECE_ITEMS])
        command = translate(piece)
        first = first or command
        translated += getattr(command, items)
        await asyncio.sleep(0)
    return replace(first, **{items: tuple(translated)})


async def response_of(reply: Any, translate: Callable[[Any], Any]) -> Any:
    """Returns the answer with all results of a reply."""
    results = getattr(reply, "results", ())
    if len(results) <= PIECE_ITEMS:
        return translate(reply)
    text_max = text_bytes_max(len(results))
    response = translate(replace(reply, results=()))
    for begin in range(0, len(results), PIECE_ITEMS):
        piece = tuple([_shortened(each, text_max) for each in results[begin : begin + PIECE_ITEMS]])
        response.results.extend(translate(replace(reply, results=piece)).results)
        await asyncio.sleep(0)
    return response


def _shortened(result: Any, text_max: int) -> Any:
    """A result whose text is as short as in an answer with all results: a piece alone would leave more room."""
    text = result.message
    return replace(result, message=shortened(text, text_max)) if len(text) * 4 > text_max else result
