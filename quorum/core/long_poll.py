"""The leader's side of a long poll: answering a fetch, and holding those that there is nothing to say to yet.

A fetch with nothing to answer is parked. It is completed as soon as there is data, or a read round that wants its token
carried; soon after the high watermark has moved; otherwise after its wait, and at the latest when the term ends. One per
replica: a newer fetch replaces it.

Why *soon after* and not at once. Under load each commit is followed by the next batch within a moment, and that brings the
new watermark along. Told at once, every follower would be answered twice for each batch, and ask twice.
"""

from collections.abc import Callable

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset, OffsetAndEpoch
from quorum.core.protocol.effects import Reply, ReplyWithBatches
from quorum.core.protocol.messages import FetchRequest, FetchResponse
from quorum.core.protocol.progress import successors
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Leader, ParkedFetch


def committed_in_epoch(state: QuorumState, leadership: Leader) -> bool:
    """Whether a record of this epoch is committed; before that the high watermark is unknown, and reads must wait."""
    return state.known_high_watermark is not None and state.known_high_watermark > leadership.epoch_start_offset


def high_watermark_told(state: QuorumState, leadership: Leader) -> Offset | None:
    """A leader's high watermark: unknown until it has committed in its epoch."""
    return state.known_high_watermark if committed_in_epoch(state, leadership) else None


def complete_parked(state: QuorumState, leadership: Leader, wanted: Callable[[ParkedFetch], bool]) -> None:
    """Answers the parked fetches that `wanted` picks."""
    for replica, parked in list(leadership.parked.items()):
        if wanted(parked):
            del leadership.parked[replica]
            answer(state, leadership, parked.request, parked.reply_to)


def tell_watermark(state: QuorumState, leadership: Leader, end: Offset) -> None:
    """Whoever waits without knowing that all below `end` is committed hears of it within the linger."""
    due_ms = state.now_ms + state.config.watermark_linger_ms
    for replica, parked in leadership.parked.items():
        if parked.request.high_watermark < end and due_ms < parked.deadline_ms:
            leadership.parked[replica] = ParkedFetch(parked.reply_to, parked.request, due_ms)
    complete_parked(state, leadership, lambda parked: parked.deadline_ms <= state.now_ms)


def answer(state: QuorumState, leadership: Leader, request: FetchRequest, reply_to: int) -> None:
    """With batches if there are any after the asked offset, committed or not."""
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
