"""A leadership: how it opens, stays alive, moves the high watermark, and ends.

A leadership opens with a `LeaderChange` record, the first record of its epoch; records of older epochs are not
committed before this record is. A leadership ends if a message names a higher epoch, if no majority makes progress for
`check_quorum_ms`, if the leader's own disk makes no progress, or on request. The node then rests as RESIGNED and tells
the voters the order of succession.

Example, leader 1 of {1,2,3} in epoch 6:

    1. Node 1 wins the election with a log ending at 10, and appends `LeaderChange` at offset 10 in epoch 6.
    2. Node 1 flushes up to 11. Voter 2 fetches at 11. Two of three voters hold the record: the high watermark is 11.
    3. Voters 2 and 3 become unreachable. After `check_quorum_ms` without progress node 1 resigns (`QUORUM_LOST`).

Check-quorum counts progress, not fetches (KAFKA-15911). A follower with a full disk asks for the same offset again and
again; counting its fetches would keep a leader in office without any commit. A follower at the last end reported to it
has nothing left to fetch, and counts.
"""

from collections.abc import Iterable
from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset, ReplicaKey
from metadata_log.format.records import LeaderChange
from quorum.core.long_poll import complete_parked, high_watermark_told, tell_watermark
from quorum.core.protocol.deadlines import soonest
from quorum.core.protocol.effects import AppendControl, ReadsConfirmed
from quorum.core.protocol.high_watermark import leader_high_watermark
from quorum.core.protocol.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
)
from quorum.core.protocol.progress import FOREVER_MS, ReplicaProgress, newest_of_majority, successors
from quorum.core.protocol.reads import ReadRounds
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Leader, Resigned, Why

FLUSH_PATIENCE: Final = 5
"""How long a leader tolerates a hanging flush, as a multiple of `check_quorum_ms`. The followers' disks suffice to
commit, but the leader applies only records durable on its own disk. A leader with a hanging flush would answer no
client and send brokers no news. A slow disk may well take one second, and waiting is cheaper than an election; five
seconds point to a broken disk, and a wrong guess costs only one election."""

# --- the beginning ---------------------------------------------------------------------------------------------------


def lead(state: QuorumState, granted: frozenset[ReplicaKey], asked_ms: int) -> None:
    """Takes office: saves the leadership, appends the first record of the epoch, and announces the leader to all
    voters.

    The first leader of a new cluster also appends the voter set from the format of the cluster, so that the log itself
    defines the voters from then on (KIP-853).
    """
    others = state.latest_voters.others(state.me)
    replicas = {
        # A vote proves following: the voter granted it after `asked_ms`, the time of the request.
        voter: ReplicaProgress(progress_ms=state.now_ms, confirmed_ms=asked_ms if voter in granted else None)
        for voter in others
    }
    leadership = Leader(state.shape.end, state.now_ms, replicas, parked={}, reads=ReadRounds())
    state.become(leadership, Why.VOTE_WON, state.election._replace(leader_id=state.me.node_id))
    granting_ids = tuple(sorted(key.node_id for key in granted))
    state.effects.append(
        AppendControl(state.epoch, LeaderChange(state.me.node_id, state.latest_voters.ids, granting_ids))
    )
    if state.voters.latest_offset is None and state.voters.start == 0:
        state.effects.append(AppendControl(state.epoch, state.voters.bootstrap))
    state.announce()
    _begin_quorum_epoch(state, leadership)


def _begin_every_ms(state: QuorumState) -> int:
    return state.config.fetch_timeout_ms // 2


def _begin_quorum_epoch(state: QuorumState, leadership: Leader) -> None:
    """Sends BeginQuorumEpoch to voters silent for a while; at the start of the epoch, to all voters."""
    for voter in state.latest_voters.others(state.me):
        progress = leadership.replicas[voter]
        never_told = progress.begun_ms is None and progress.last_fetch_ms is None
        if never_told or state.now_ms - progress.silent_since_ms(leadership.elected_ms) >= _begin_every_ms(state):
            progress.sent_begin(state.now_ms)
            state.send(voter.node_id, BeginQuorumEpochRequest(state.me, voter, state.epoch))


def on_begin_response(state: QuorumState, response: BeginQuorumEpochResponse) -> None:
    """Adopts only the epoch of the answer. So a leader learns of a voter with a higher durable epoch."""
    state.absorb(response.epoch, response.leader_id)


# --- the log grew or was flushed, or a voter acknowledged ------------------------------------------------------------


def on_log_grown(state: QuorumState, leadership: Leader, *, voters_changed: bool) -> None:
    """Sends new records to the followers at once, flushed or not. The leader counts itself only after its own flush."""
    if voters_changed:
        for voter in state.latest_voters.others(state.me):
            leadership.enter(voter, state.now_ms)
        _drop_strangers(state, leadership)
        advance_high_watermark(state, leadership)
        # A smaller set may already have a majority of echoes, and no further fetch may arrive to trigger the count.
        count_echoes(state, leadership)
        _begin_quorum_epoch(state, leadership)
    complete_parked(state, leadership, lambda parked: parked.request.fetch_offset < state.shape.end)


def _drop_strangers(state: QuorumState, leadership: Leader) -> None:
    """Drops removed voters which never fetched in this epoch: they are no observers either."""
    voters = state.latest_voters
    for key, progress in list(leadership.replicas.items()):
        if progress.last_fetch_ms is None and not voters.contains(key):
            leadership.forget(key)


def _ends(state: QuorumState, leadership: Leader) -> Iterable[Offset | None]:
    """The durable ends of the voters. A leader removed from the voter set does not count itself."""
    me, flushed_end, replicas = state.me, state.shape.flushed_end, leadership.replicas
    return [flushed_end if voter == me else replicas[voter].end_offset for voter in state.latest_voters.keys]


def advance_high_watermark(state: QuorumState, leadership: Leader) -> None:
    """Raises the high watermark to the end durable on a majority, and tells waiting followers soon (`long_poll`)."""
    if state.known_high_watermark == state.shape.end:
        return  # no disk holds more: the usual case, except for the fetch completing a majority
    end = leader_high_watermark(
        _ends(state, leadership),
        len(state.latest_voters),
        epoch_start_offset=leadership.epoch_start_offset,
        current=state.known_high_watermark,
    )
    if end is None:
        return
    state.raise_high_watermark(end)
    tell_watermark(state, leadership, end)
    begin_read_round(state, leadership)
    removed_at = state.voters.latest_offset
    if not state.is_voter and removed_at is not None and removed_at < end:
        resign(state, leadership, Why.REMOVED)


# --- reads -----------------------------------------------------------------------------------------------------------


def on_confirm_reads(state: QuorumState, leadership: Leader, token: int) -> None:
    leadership.reads.ask(token)
    begin_read_round(state, leadership)


def begin_read_round(state: QuorumState, leadership: Leader) -> None:
    """Starts the waiting round, if no round is in flight. Answers to parked fetches carry the round's token at once."""
    if high_watermark_told(state, leadership) is None or not leadership.reads.begin():
        return
    voters = state.latest_voters
    complete_parked(state, leadership, lambda parked: voters.contains(parked.request.replica))
    count_echoes(state, leadership)


def count_echoes(state: QuorumState, leadership: Leader) -> None:
    """Confirms the round in flight once a majority of the latest voters, this node included, has repeated its tokens."""
    if leadership.reads.mark is None:
        return
    voters = state.latest_voters
    echoed = [leadership.replicas[voter].echoed_token for voter in voters.others(state.me)]
    echoes = newest_of_majority(echoed, voters.needed_besides(state.me))
    token = None if echoes is None else leadership.reads.confirm(echoes)
    if token is not None:
        state.effects.append(ReadsConfirmed(token))
        begin_read_round(state, leadership)


# --- check-quorum ----------------------------------------------------------------------------------------------------


def is_live(state: QuorumState, progress: ReplicaProgress) -> bool:
    """True if the replica has fetched within the check-quorum time."""
    return progress.last_fetch_ms is not None and state.now_ms - progress.last_fetch_ms < state.config.check_quorum_ms


def check_quorum_deadline_ms(state: QuorumState, leadership: Leader) -> int:
    """When this leader will have had no progress of a majority for too long."""
    voters = state.latest_voters
    progress_ms = [leadership.replicas[voter].progress_ms for voter in voters.others(state.me)]
    newest_ms = newest_of_majority(progress_ms, voters.needed_besides(state.me))
    assert newest_ms is not None, "a majority larger than the voter set"
    return newest_ms + state.config.check_quorum_ms


def flush_deadline_ms(state: QuorumState, leadership: Leader) -> int | None:
    """When this leader will have waited for its own disk for too long. None: no reason to resign.

    The leader resigns only if the other live voters make a majority by themselves. Otherwise a successor would need
    this node's vote, and the same disk would have to save the vote.
    """
    if state.disk.unflushed_since_ms is None:
        return None
    live = sum([is_live(state, leadership.replicas[voter]) for voter in state.latest_voters.others(state.me)])
    if live < state.latest_voters.majority:
        return None
    return state.disk.unflushed_since_ms + FLUSH_PATIENCE * state.config.check_quorum_ms


def flush_problem(state: QuorumState) -> str:
    """The problem of a hanging flush on this node's own disk, in one sentence; empty: no problem."""
    return (
        "a flush on this node's disk has not finished for too long; this node does not lead until the flush ends"
        if state.disk.is_stalled
        else ""
    )


def next_deadline_ms(state: QuorumState, leadership: Leader) -> int | None:
    elected_ms, change = leadership.elected_ms, leadership.changes.pending
    silent_since_ms = soonest(
        *[leadership.replicas[v].silent_since_ms(elected_ms) for v in state.latest_voters.others(state.me)]
    )
    check_quorum_ms = check_quorum_deadline_ms(state, leadership)
    return soonest(
        None if silent_since_ms is None else silent_since_ms + _begin_every_ms(state),
        check_quorum_ms if check_quorum_ms < FOREVER_MS else None,
        flush_deadline_ms(state, leadership),
        None if change is None else change.deadline_ms,
        *[parked.deadline_ms for parked in leadership.parked.values()],
    )


def on_timer(state: QuorumState, leadership: Leader) -> None:
    if check_quorum_deadline_ms(state, leadership) <= state.now_ms:
        resign(state, leadership, Why.QUORUM_LOST)
        return
    flush_ms = flush_deadline_ms(state, leadership)
    if flush_ms is not None and flush_ms <= state.now_ms:
        state.disk.stall()
        resign(state, leadership, Why.STALLED)
        return
    complete_parked(state, leadership, lambda parked: parked.deadline_ms <= state.now_ms)
    _begin_quorum_epoch(state, leadership)


# --- the end ---------------------------------------------------------------------------------------------------------


def resign(state: QuorumState, leadership: Leader, why: Why, *, first: ReplicaKey | None = None) -> None:
    """Steps down and keeps the epoch: no other node can lead the epoch, and this node must not lead it a second time.

    The first successor is `first`; by default, the voter with the longest log.
    """
    others = state.latest_voters.others(state.me)
    ranked = tuple(sorted(successors(others, leadership.replicas), key=lambda voter: voter != first))
    tell_at_ms = dict.fromkeys(others, state.now_ms)
    state.become(Resigned(state.election_deadline_ms(), ranked, tell_at_ms), why, state.election)
    state.fetch.wait_until(state.now_ms + state.config.retry_backoff_ms)
    tell_successors(state)


def tell_successors(state: QuorumState) -> None:
    """Sends EndQuorumEpoch to the voters due for it."""
    role = state.role
    assert isinstance(role, Resigned)
    due = [voter for voter, at_ms in role.tell_at_ms.items() if at_ms <= state.now_ms]
    later = {voter: at_ms for voter, at_ms in role.tell_at_ms.items() if at_ms > state.now_ms}
    state.update_role(Resigned(role.deadline_ms, role.preferred_successors, later))
    for voter in due:
        state.send(voter.node_id, EndQuorumEpochRequest(state.me, state.epoch, role.preferred_successors))


def on_end_response(
    state: QuorumState, source: NodeId, request: EndQuorumEpochRequest, response: EndQuorumEpochResponse
) -> None:
    if state.absorb(response.epoch, response.leader_id) and response.error is not ErrorCode.NONE:
        on_end_failed(state, source, request)


def on_end_failed(state: QuorumState, destination: NodeId, request: EndQuorumEpochRequest) -> None:
    """Schedules another EndQuorumEpoch for a voter without an answer."""
    role, voter = state.role, state.latest_voters.key_of(destination)
    if isinstance(role, Resigned) and request.epoch == state.epoch and voter is not None:
        tell_at_ms = {**role.tell_at_ms, voter: state.now_ms + state.config.retry_backoff_ms}
        state.update_role(Resigned(role.deadline_ms, role.preferred_successors, tell_at_ms))
