"""The leader's side of a long poll: answering fetches, and parking fetches as long as there is no news.

The leader parks a fetch without news. A parked fetch completes at once on new records, or on a read round needing its
token carried; soon after the high watermark has moved; after its wait; and at the end of the leadership. The leader
parks one fetch per replica: a newer fetch replaces the older one.

The leader waits a little with a new high watermark. Under load, the next batch follows each commit within a moment and
carries the new high watermark along:

    1. Followers 2 and 3 have parked fetches at 9. The high watermark moves to 9.
    2. The leader shortens both waits to `watermark_linger_ms` instead of answering.
    3. A client's batch [9,10) arrives 1 ms later: one answer carries batch and high watermark.
    4. With an answer at step 1, each follower would get two answers, and send two fetches, per batch.
"""

from collections.abc import Callable

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset, OffsetAndEpoch
from quorum.core.protocol.effects import Reply, ReplyWithBatches
from quorum.core.protocol.messages import FetchRequest, FetchResponse
from quorum.core.protocol.progress import successors
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Leader, ParkedFetch


def high_watermark_told(state: QuorumState, leadership: Leader) -> Offset | None:
    """A leader's high watermark: None until the leader has committed a record of its epoch. Until then reads must wait."""
    known = state.known_high_watermark
    return known if known is not None and known > leadership.epoch_start_offset else None


def complete_parked(state: QuorumState, leadership: Leader, wanted: Callable[[ParkedFetch], bool]) -> None:
    """Answers the parked fetches selected by `wanted`."""
    for replica, parked in list(leadership.parked.items()):
        if wanted(parked):
            leadership.unpark(replica)
            answer(state, leadership, parked.request, parked.reply_to)


def tell_watermark(state: QuorumState, leadership: Leader, end: Offset) -> None:
    """Shortens the wait of parked fetches whose senders do not know of the commit up to `end` yet."""
    due_ms = state.now_ms + state.config.watermark_linger_ms
    for replica, parked in leadership.parked.items():
        if parked.request.high_watermark < end and due_ms < parked.deadline_ms:
            leadership.park(replica, ParkedFetch(parked.reply_to, parked.request, due_ms))
    complete_parked(state, leadership, lambda parked: parked.deadline_ms <= state.now_ms)


def answer(state: QuorumState, leadership: Leader, request: FetchRequest, reply_to: int) -> None:
    """Answers with the batches after the requested offset, committed or not; without any, with an empty answer."""
    response = response_to(state, leadership, request)
    if request.fetch_offset < state.shape.end:
        max_bytes = min(request.max_bytes, state.config.fetch_bytes_max)
        state.effects.append(
            ReplyWithBatches(reply_to, response, request.fetch_offset, max_bytes, request.part_position)
        )
    else:
        state.effects.append(Reply(reply_to, response))


def response_to(
    state: QuorumState,
    leadership: Leader,
    request: FetchRequest,
    *,
    diverging: OffsetAndEpoch | None = None,
    snapshot: OffsetAndEpoch | None = None,
) -> FetchResponse:
    token, progress = leadership.reads.next_reply(), leadership.replicas[request.replica]
    progress.answered(token, state.shape.end, state.now_ms)
    ranked = successors(state.latest_voters.others(state.me), leadership.replicas)
    return FetchResponse(
        error=ErrorCode.NONE,
        epoch=state.epoch,
        leader_id=state.me.node_id,
        number=request.number,
        high_watermark=high_watermark_told(state, leadership),
        log_start=state.shape.start.offset,
        diverging=diverging,
        snapshot=snapshot,
        successors=tuple([key.node_id for key in ranked]),
        read_token=token,
        image_differs=progress.image_differs,
        log_end=state.shape.end,
    )
