"""A leader's answers to fetches: judge, acknowledge, answer or park (KIP-595, KIP-630).

A fetch at offset N says three things at once: "send me the records from N on", "all records below N are durable here",
and "I still follow you". The leader first judges the fetch, because only a log agreeing with the leader's may be
counted. The leader then raises the high watermark, and finally answers, so that the answer carries the new high
watermark.

Example, leader 1 with log [0,9) and high watermark 7, in {1,2,3}:

    1. Follower 2 fetches at 9 with epoch and chain as in the leader's log: the logs agree.
    2. Leader 1 notes end 9 for follower 2. Leader and follower are two of three: the high watermark is 9.
    3. The leader has no records from 9 on. Follower 2 does not know of the commit yet, so its fetch is parked for 5 ms only.
    4. A new record arrives, or the 5 ms end. The answer carries high watermark 9.
"""

from typing import assert_never

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ReplicaKey
from quorum.core import disputes, leader, long_poll
from quorum.core.protocol.divergence import ChainMismatch, Diverging, UseSnapshot, Valid, judge_fetch
from quorum.core.protocol.effects import ReplyWithChunk
from quorum.core.protocol.messages import FetchRequest, FetchSnapshotRequest, FetchSnapshotResponse
from quorum.core.protocol.progress import ReplicaProgress
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Leader, ParkedFetch

WAIT_MS_MAX = 30_000
"""Maximum time a fetch is parked, whatever the request says."""

OBSERVER_SESSION_MS = 300_000
"""How long an observer may be silent before the leader forgets the observer."""

OBSERVERS_MAX = 1_000
"""Maximum number of observers. For a new observer beyond it, the leader forgets the longest silent one. Any client can
call itself an observer, under any number of names."""


def on_fetch(state: QuorumState, request: FetchRequest, reply_to: int, chain_at_offset: bytes | None) -> None:
    error = _refusal(state, request, request.epoch)
    if error is not None:
        state.reply(reply_to, state.fetch_error(error, request))
        return
    leadership = state.role
    assert isinstance(leadership, Leader)
    progress = _progress_of(state, leadership, request.replica)
    if progress.processes.are_several(request.incarnation, request.number, state.now_ms):
        state.reply(reply_to, state.fetch_error(ErrorCode.INVALID_VOTER_KEY, request))
        return
    replaced = leadership.unpark(request.replica)
    if replaced is not None:
        long_poll.answer(state, leadership, replaced.request, replaced.reply_to)
    verdict = judge_fetch(
        state.shape,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        chain=request.chain,
        chain_at_offset=chain_at_offset,
    )
    if isinstance(verdict, ChainMismatch):
        # The replica follows no leader, however often it fetches: its fetches are no progress and keep no leader in
        # office.
        progress.heard_mismatch(state.now_ms)
        state.reply(reply_to, state.fetch_error(ErrorCode.CHAIN_MISMATCH, request))
        disputes.on_accused(state, request, chain_at_offset)
        return
    state.close_dispute(request.replica)
    progress.heard_fetch(request, state.shape.end, state.now_ms)
    if not progress.processes.are_in_doubt(state.now_ms - state.config.fetch_timeout_ms):
        progress.echoed(request.read_token)
        if isinstance(verdict, Valid):
            progress.acknowledged(request.fetch_offset)
            leader.advance_high_watermark(state, leadership)
    if state.role is not leadership:
        # The high watermark passed the record removing this leader, so the leader has just resigned.
        state.reply(reply_to, state.fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER, request))
        return
    leader.count_echoes(state, leadership)
    match verdict:
        case Valid():
            _answer_or_park(state, leadership, request, reply_to, progress)
        case Diverging(end=end):
            state.reply(reply_to, long_poll.response_to(state, leadership, request, diverging=end))
        case UseSnapshot(snapshot=snapshot):
            state.reply(reply_to, long_poll.response_to(state, leadership, request, snapshot=snapshot))
        case _:
            assert_never(verdict)


def _refusal(state: QuorumState, request: FetchRequest | FetchSnapshotRequest, epoch: int) -> ErrorCode | None:
    """The reason for refusing `request`; None: serve it. A fetch never changes the receiver's epoch."""
    match request:
        case FetchRequest():
            places = (request.epoch, request.fetch_offset, request.last_fetched_epoch, request.part_position or 0)
            invalid = min(*places, request.max_wait_ms) < 0 or request.max_bytes <= 0
            invalid = invalid or request.last_fetched_epoch > request.epoch
        case FetchSnapshotRequest():
            invalid = request.epoch < 0 or request.max_bytes <= 0 or min(request.snapshot) < 0
        case _:
            assert_never(request)
    if state.shutting_down:
        return ErrorCode.BROKER_NOT_AVAILABLE
    if invalid or request.replica == state.me or request.replica.node_id < 0:
        return ErrorCode.INVALID_REQUEST
    if epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > state.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(state.role, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return None


def _progress_of(state: QuorumState, leadership: Leader, replica: ReplicaKey) -> ReplicaProgress:
    """The progress of `replica`. A new observer gets a new entry, and the leader forgets silent observers then."""
    progress = leadership.replicas.get(replica)
    if progress is None:
        _forget_observers(state, leadership)
        progress = leadership.enter(replica, state.now_ms)
    return progress


def _forget_observers(state: QuorumState, leadership: Leader) -> None:
    """Forgets silent observers, and with too many observers, the longest silent one."""
    heard_ms = {
        key: progress.last_fetch_ms or 0
        for key, progress in leadership.replicas.items()
        if not state.latest_voters.contains(key)
    }
    gone = [key for key, at_ms in heard_ms.items() if state.now_ms - at_ms > OBSERVER_SESSION_MS]
    kept = [key for key, at_ms in heard_ms.items() if state.now_ms - at_ms <= OBSERVER_SESSION_MS]
    if len(kept) >= OBSERVERS_MAX:
        gone.append(min(kept, key=heard_ms.__getitem__))
    for key in gone:
        parked = leadership.unpark(key)
        if parked is not None:
            long_poll.answer(state, leadership, parked.request, parked.reply_to)
        leadership.forget(key)


def _answer_or_park(
    state: QuorumState, leadership: Leader, request: FetchRequest, reply_to: int, progress: ReplicaProgress
) -> None:
    high_watermark = long_poll.high_watermark_told(state, leadership)
    wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
    if high_watermark is not None and high_watermark > request.high_watermark:
        wait_ms = min(wait_ms, state.config.watermark_linger_ms)
    has_news = (
        request.fetch_offset < state.shape.end
        or wait_ms == 0
        or (state.latest_voters.contains(request.replica) and leadership.reads.wants_token(progress.newest_sent))
    )
    if has_news:
        long_poll.answer(state, leadership, request, reply_to)
    else:
        leadership.park(request.replica, ParkedFetch(reply_to, request, state.now_ms + wait_ms))


def on_fetch_snapshot(state: QuorumState, request: FetchSnapshotRequest, reply_to: int) -> None:
    """Answers with a chunk of a snapshot.

    The node fills in the data, and detects SNAPSHOT_NOT_FOUND and the end of the file.
    """
    error = _refusal(state, request, request.epoch)
    if error is None and request.snapshot.offset == 0:
        error = ErrorCode.SNAPSHOT_NOT_FOUND  # each node has its own bootstrap snapshot
    elif error is None and request.position < 0:
        error = ErrorCode.POSITION_OUT_OF_RANGE
    response = FetchSnapshotResponse(
        error or ErrorCode.NONE, state.epoch, state.leader_hint, request.number, position=request.position
    )
    if error is not None:
        state.reply(reply_to, response)
        return
    leadership = state.role
    assert isinstance(leadership, Leader)
    progress = _progress_of(state, leadership, request.replica)
    progress.heard_snapshot_fetch(request.snapshot.offset, request.position, state.now_ms)
    max_bytes = min(request.max_bytes, state.config.snapshot_chunk_bytes)
    state.effects.append(ReplyWithChunk(reply_to, response, request.snapshot, max_bytes))
