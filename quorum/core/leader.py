"""A leader's term: how it opens, what keeps it alive, where the high watermark moves, and how it ends.

It opens with a `LeaderChange` record, the first of its epoch; nothing of older epochs is committed before that is. It ends
when somebody speaks of a higher epoch, when no majority gets further for `check_quorum_ms`, when this node's own disk gets no
further, or when it is asked to. Then the node rests as RESIGNED and tells the voters who of them should run first.

Check-quorum counts progress, not fetches (KAFKA-15911): a follower that asks for the same offset again and again, because
it cannot write what it gets, would keep a leader in office that commits nothing. A follower that stands at the end that it
was last told has nothing to get further with, and counts.
"""

from collections.abc import Iterable
from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset, ReplicaKey
from metadata_log.format.records import LeaderChange
from quorum.core.long_poll import committed_in_epoch, complete_parked, tell_watermark
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
"""So many times `check_quorum_ms` may a flush take here. The followers' disks commit without this one, but what is committed
can be applied only when it is durable here too: a leader whose flush hangs, and does not fail, would tell no client what has
become of its change, and no broker any news, for as long as it hangs. A second now and then is a slow disk's way, and better
than an election; five are nobody's, and to be wrong about it costs one election."""

# --- the beginning ---------------------------------------------------------------------------------------------------


def lead(state: QuorumState, granted: frozenset[ReplicaKey], asked_ms: int) -> None:
    """Takes office: leadership on disk, then the record that opens the epoch, then the news to everybody.

    The first leader of all also writes the voter set that the cluster was formatted with into the log, so that from then on
    the log speaks for itself (KIP-853).
    """
    others = state.latest_voters.others(state.me)
    replicas = {
        # A vote is proof of following: it was given after `asked_ms`, when it was asked for.
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
    """Tells those voters who leads that have been silent for a while; at the start of the epoch, all of them."""
    for voter in state.latest_voters.others(state.me):
        progress = leadership.replicas[voter]
        never_told = progress.begun_ms is None and progress.last_fetch_ms is None
        if never_told or state.now_ms - progress.silent_since_ms(leadership.elected_ms) >= _begin_every_ms(state):
            progress.begun_ms = state.now_ms
            state.send(voter.node_id, BeginQuorumEpochRequest(state.me, voter, state.epoch))


def on_begin_response(state: QuorumState, response: BeginQuorumEpochResponse) -> None:
    """Only the epoch in it matters: this is how a leader hears of a voter that stands durably above its epoch."""
    state.absorb(response.epoch, response.leader_id)


# --- the log has grown, is flushed, or somebody has acknowledged -----------------------------------------------------


def on_log_grown(state: QuorumState, leadership: Leader, *, voters_changed: bool) -> None:
    """The followers get it at once, flushed here or not; this node counts itself only when it is."""
    if voters_changed:
        for voter in state.latest_voters.others(state.me):
            leadership.replicas.setdefault(voter, ReplicaProgress(progress_ms=state.now_ms))
        _drop_strangers(state, leadership)
        advance_high_watermark(state, leadership)
        # Fewer voters may make a majority of what has been echoed already, and nobody else may come to say so again.
        count_echoes(state, leadership)
        _begin_quorum_epoch(state, leadership)
    complete_parked(state, leadership, lambda parked: parked.request.fetch_offset < state.shape.end)


def _drop_strangers(state: QuorumState, leadership: Leader) -> None:
    """A removed voter that was never heard of in this epoch is not an observer either."""
    voters = state.latest_voters
    for key, progress in list(leadership.replicas.items()):
        if progress.last_fetch_ms is None and not voters.contains(key):
            del leadership.replicas[key]


def _ends(state: QuorumState, leadership: Leader) -> Iterable[Offset | None]:
    """The durable ends of the voters. A leader that is not one of them any more does not count itself."""
    me, flushed_end, replicas = state.me, state.shape.flushed_end, leadership.replicas
    return [flushed_end if voter == me else replicas[voter].end_offset for voter in state.latest_voters.keys]


def advance_high_watermark(state: QuorumState, leadership: Leader) -> None:
    """Moves the high watermark if a majority's disks allow it; who waits for that hears of it soon (`long_poll`)."""
    if state.known_high_watermark == state.shape.end:
        return  # nobody's disk holds more: so it is for every fetch but the one that completes a majority
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
    """Starts the round that waits, if none is in flight: parked fetches carry its token out at once."""
    if not committed_in_epoch(state, leadership) or not leadership.reads.begin():
        return
    voters = state.latest_voters
    complete_parked(state, leadership, lambda parked: voters.contains(parked.request.replica))
    count_echoes(state, leadership)


def count_echoes(state: QuorumState, leadership: Leader) -> None:
    """Confirms the round in flight if a majority of the latest voters, this node counted, has repeated its tokens."""
    if leadership.reads.mark is None:
        return
    voters = state.latest_voters
    echoed = [leadership.replicas[voter].echoed_token for voter in voters.others(state.me)]
    echoes = newest_of_majority(echoed, voters.needed_besides(state.me))
    token = None if echoes is None else leadership.reads.confirm(echoes)
    if token is not None:
        state.effects.append(ReadsConfirmed(token))
        begin_read_round(state, leadership)


# --- is there still a quorum? ----------------------------------------------------------------------------------------


def is_live(state: QuorumState, progress: ReplicaProgress) -> bool:
    """Whether it has fetched within the time that a leader gives its quorum."""
    return progress.last_fetch_ms is not None and state.now_ms - progress.last_fetch_ms < state.config.check_quorum_ms


def check_quorum_deadline_ms(state: QuorumState, leadership: Leader) -> int:
    """When this leader has been without a majority that gets further for too long."""
    voters = state.latest_voters
    progress_ms = [leadership.replicas[voter].progress_ms for voter in voters.others(state.me)]
    newest_ms = newest_of_majority(progress_ms, voters.needed_besides(state.me))
    assert newest_ms is not None, "a majority that is larger than the voter set"
    return newest_ms + state.config.check_quorum_ms


def flush_deadline_ms(state: QuorumState, leadership: Leader) -> int | None:
    """When this leader has waited for its own disk for too long.

    It waits on unless the other voters that are live make a majority by themselves: a successor would need its vote too,
    which would have to be made durable by the same disk.
    """
    if state.unflushed_since_ms is None:
        return None
    live = sum(is_live(state, leadership.replicas[voter]) for voter in state.latest_voters.others(state.me))
    if live < state.latest_voters.majority:
        return None
    return state.unflushed_since_ms + FLUSH_PATIENCE * state.config.check_quorum_ms


def flush_problem(state: QuorumState) -> str:
    """That this node's own disk keeps it from leading, in one sentence; empty: it does not."""
    return (
        "the disk has not finished a flush for so long that this node does not lead until the flush ends"
        if state.is_stalled
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
        state.is_stalled = True
        resign(state, leadership, Why.STALLED)
        return
    complete_parked(state, leadership, lambda parked: parked.deadline_ms <= state.now_ms)
    _begin_quorum_epoch(state, leadership)


# --- the end ---------------------------------------------------------------------------------------------------------


def resign(state: QuorumState, leadership: Leader, why: Why, *, first: ReplicaKey | None = None) -> None:
    """Steps down, but keeps the epoch: nobody else can lead it, and this node must not lead it a second time.

    `first` is to succeed; otherwise whoever is furthest.
    """
    others = state.latest_voters.others(state.me)
    ranked = tuple(sorted(successors(others, leadership.replicas), key=lambda voter: voter != first))
    tell_at_ms = dict.fromkeys(others, state.now_ms)
    state.become(Resigned(state.election_deadline_ms(), ranked, tell_at_ms), why, state.election)
    state.retry_at_ms = state.now_ms + state.config.retry_backoff_ms
    tell_successors(state)


def tell_successors(state: QuorumState) -> None:
    """Sends EndQuorumEpoch to the voters that are due to hear it."""
    role = state.role
    assert isinstance(role, Resigned)
    due = [voter for voter, at_ms in role.tell_at_ms.items() if at_ms <= state.now_ms]
    later = {voter: at_ms for voter, at_ms in role.tell_at_ms.items() if at_ms > state.now_ms}
    state.role = Resigned(role.deadline_ms, role.preferred_successors, later)
    for voter in due:
        state.send(voter.node_id, EndQuorumEpochRequest(state.me, state.epoch, role.preferred_successors))


def on_end_response(
    state: QuorumState, source: NodeId, request: EndQuorumEpochRequest, response: EndQuorumEpochResponse
) -> None:
    if state.absorb(response.epoch, response.leader_id) and response.error is not ErrorCode.NONE:
        on_end_failed(state, source, request)


def on_end_failed(state: QuorumState, destination: NodeId, request: EndQuorumEpochRequest) -> None:
    """That voter has not heard it yet: tell it again in a while."""
    role, voter = state.role, state.latest_voters.key_of(destination)
    if isinstance(role, Resigned) and request.epoch == state.epoch and voter is not None:
        tell_at_ms = {**role.tell_at_ms, voter: state.now_ms + state.config.retry_backoff_ms}
        state.role = Resigned(role.deadline_ms, role.preferred_successors, tell_at_ms)
