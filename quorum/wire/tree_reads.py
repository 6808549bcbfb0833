"""`ReadTree`: a query of the metadata as a tree, answered row by row (`metadata_log.tree.queries`).

1. A shell asks controller 2, a follower, for the names in `/topics` at offset 1,244. Controller 2 hands the query on to the
   leader, controller 1.
2. A majority confirms that controller 1 leads. The image at 1,244 comes from `past_images`. The first message leaves, without
   rows.
3. A thread of controller 1 makes the rows, portion by portion. Each portion is one message, and the next one is made when gRPC
   has taken the message: a slow client costs one portion, and not a whole answer.
"""

import asyncio
from typing import Any

from quorum_rpc.v1 import admin_pb2

from metadata_log.tree.queries import Differences, History, Query
from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import ReadView
from quorum.runtime.protocol.tree_question import TreeQuestion
from quorum.wire.convert.convert_tree import before_of, to_row
from quorum.wire.convert.errors import BadMessage
from quorum.wire.past_views import view_at, wanted_of
from service_kit.rpc.answer_streams import write


def check_positions(query: Query, request: admin_pb2.ReadTreeRequest) -> None:
    """Raises BadMessage: an impossible position, or one that the query does not take."""
    wanted = wanted_of(request.context)
    if isinstance(query, History) and wanted is not None:
        raise BadMessage("a history takes no at_offset and no at_time_ms; since_offset says where the history begins")
    before_of(request)


async def question_of(
    node: ControllerNode, query: Query, request: admin_pb2.ReadTreeRequest, newest: ReadView, timeout_ms: int
) -> TreeQuestion:
    """Returns the query with its images. `newest` is what the node shows now. Raises Refused: there is no such image."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_ms / 1_000

    async def image_at(wanted: Any) -> Any:
        if wanted is None:
            return newest.image
        left_ms = max(1, int((until_s - loop.time()) * 1_000))
        return (await view_at(node, wanted, newest, left_ms)).image

    image = await image_at(wanted_of(request.context))
    before = await image_at(before_of(request)) if isinstance(query, Differences) else None
    return TreeQuestion(query, image, before, newest.as_of_offset)


async def answer_tree(node: ControllerNode, asked: TreeQuestion, newest: ReadView, context: Any) -> None:
    """Writes the whole answer.

    Raises:
        Refused: the node has no place for the query, or the query has no answer, or no further rows.
        Refusal: the client takes no rows.
    """
    rows = node.read_tree(asked, to_row)
    offset = asked.committed_end if isinstance(asked.query, History) else asked.image.offset
    local = None
    if newest.local is not None:
        local = admin_pb2.LocalView(node_id=newest.local.node_id, leader_heard_age_ms=newest.local.leader_heard_age_ms)
    try:
        await write(context, admin_pb2.ReadTreeResponse(as_of_offset=offset, local=local))
        while portion := await rows.portion():
            await write(context, admin_pb2.ReadTreeResponse(as_of_offset=offset, rows=portion))
    finally:
        await asyncio.shield(rows.close())
