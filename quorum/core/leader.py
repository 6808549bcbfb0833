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


def lead(q: QuorumState, granted: frozenset[ReplicaKey], asked_ms: int) -> None:
    """Takes office: leadership on disk, then the record that opens the epoch, then the news to everybody.

    The first leader of all also writes the voter set that the cluster was formatted with into the log, so that from then on
    the log speaks for itself (KIP-853).
    """
    others = q.latest_voters.others(q.me)
    replicas = {
        # A vote is proof of following: it was given after `asked_ms`, when it was asked for.
        voter: ReplicaProgress(progress_ms=q.now_ms, confirmed_ms=asked_ms if voter in granted else None)
        for voter in others
    }
    term = Leader(q.shape.end, q.now_ms, replicas, parked={}, reads=ReadRounds())
    q.become(term, Why.VOTE_WON, q.election._replace(leader_id=q.me.node_id))
    granting_ids = tuple(sorted(key.node_id for key in granted))
    q.effects.append(AppendControl(q.epoch, LeaderChange(q.me.node_id, q.latest_voters.ids, granting_ids)))
    if q.voters.latest_offset is None and q.voters.start == 0:
        q.effects.append(AppendControl(q.epoch, q.voters.bootstrap))
    q.announce()
    _begin_quorum_epoch(q, term)


def _begin_every_ms(q: QuorumState) -> int:
    return q.config.fetch_timeout_ms // 2


def _begin_quorum_epoch(q: QuorumState, term: Leader) -> None:
    """Tells those voters who leads that have been silent for a while; at the start of the epoch, all of them."""
    for voter in q.latest_voters.others(q.me):
        progress = term.replicas[voter]
        never_told = progress.begun_ms is None and progress.last_fetch_ms is None
        if never_told or q.now_ms - progress.silent_since_ms(term.elected_ms) >= _begin_every_ms(q):
            progress.begun_ms = q.now_ms
            q.send(voter.node_id, BeginQuorumEpochRequest(q.me, voter, q.epoch))


def on_begin_response(q: QuorumState, response: BeginQuorumEpochResponse) -> None:
    """Only the epoch in it matters: this is how a leader hears of a voter that stands durably above its epoch."""
    q.absorb(response.epoch, response.leader_id)


# --- the log has grown, is flushed, or somebody has acknowledged -----------------------------------------------------


def on_log_grown(q: QuorumState, term: Leader, *, voters_changed: bool) -> None:
    """The followers get it at once, flushed here or not; this node counts itself only when it is."""
    if voters_changed:
        for voter in q.latest_voters.others(q.me):
            term.replicas.setdefault(voter, ReplicaProgress(progress_ms=q.now_ms))
        _drop_strangers(q, term)
        advance_high_watermark(q, term)
        # Fewer voters may make a majority of what has been echoed already, and nobody else may come to say so again.
        count_echoes(q, term)
        _begin_quorum_epoch(q, term)
    complete_parked(q, term, lambda parked: parked.request.fetch_offset < q.shape.end)


def _drop_strangers(q: QuorumState, term: Leader) -> None:
    """A removed voter that was never heard of in this epoch is not an observer either."""
    voters = q.latest_voters
    for key, progress in list(term.replicas.items()):
        if progress.last_fetch_ms is None and not voters.contains(key):
            del term.replicas[key]


def _ends(q: QuorumState, term: Leader) -> Iterable[Offset | None]:
    """The durable ends of the voters. A leader that is not one of them any more does not count itself."""
    me, flushed_end, replicas = q.me, q.shape.flushed_end, term.replicas
    return [flushed_end if voter == me else replicas[voter].end_offset for voter in q.latest_voters.keys]


def advance_high_watermark(q: QuorumState, term: Leader) -> None:
    """Moves the high watermark if a majority's disks allow it; who waits for that hears of it soon (`parking`)."""
    if q.known_high_watermark == q.shape.end:
        return  # nobody's disk holds more: so it is for every fetch but the one that completes a majority
    end = leader_high_watermark(
        _ends(q, term),
        len(q.latest_voters),
        epoch_start_offset=term.epoch_start_offset,
        current=q.known_high_watermark,
    )
    if end is None:
        return
    q.raise_high_watermark(end)
    tell_watermark(q, term, end)
    begin_read_round(q, term)
    removed_at = q.voters.latest_offset
    if not q.is_voter and removed_at is not None and removed_at < end:
        resign(q, term, Why.REMOVED)


# --- reads -----------------------------------------------------------------------------------------------------------


def on_confirm_reads(q: QuorumState, term: Leader, token: int) -> None:
    term.reads.ask(token)
    begin_read_round(q, term)


def begin_read_round(q: QuorumState, term: Leader) -> None:
    """Starts the round that waits, if none is in flight: parked fetches carry its token out at once."""
    if not committed_in_epoch(q, term) or not term.reads.begin():
        return
    voters = q.latest_voters
    complete_parked(q, term, lambda parked: voters.contains(parked.request.replica))
    count_echoes(q, term)


def count_echoes(q: QuorumState, term: Leader) -> None:
    """Confirms the round in flight if a majority of the latest voters, this node counted, has repeated its tokens."""
    if term.reads.mark is None:
        return
    voters = q.latest_voters
    echoed = [term.replicas[voter].echoed_token for voter in voters.others(q.me)]
    echoes = newest_of_majority(echoed, voters.needed_besides(q.me))
    token = None if echoes is None else term.reads.confirm(echoes)
    if token is not None:
        q.effects.append(ReadsConfirmed(token))
        begin_read_round(q, term)


# --- is there still a quorum? ----------------------------------------------------------------------------------------


def is_live(q: QuorumState, progress: ReplicaProgress) -> bool:
    """Whether it has fetched within the time that a leader gives its quorum."""
    return progress.last_fetch_ms is not None and q.now_ms - progress.last_fetch_ms < q.config.check_quorum_ms


def check_quorum_deadline_ms(q: QuorumState, term: Leader) -> int:
    """When this leader has been without a majority that gets further for too long."""
    voters = q.latest_voters
    progress_ms = [term.replicas[voter].progress_ms for voter in voters.others(q.me)]
    newest_ms = newest_of_majority(progress_ms, voters.needed_besides(q.me))
    assert newest_ms is not None, "a majority that is larger than the voter set"
    return newest_ms + q.config.check_quorum_ms


def flush_deadline_ms(q: QuorumState, term: Leader) -> int | None:
    """When this leader has waited for its own disk for too long.

    It waits on unless the other voters that are live make a majority by themselves: a successor would need its vote too,
    which would have to be made durable by the same disk.
    """
    if q.unflushed_since_ms is None:
        return None
    live = sum(is_live(q, term.replicas[voter]) for voter in q.latest_voters.others(q.me))
    if live < q.latest_voters.majority:
        return None
    return q.unflushed_since_ms + FLUSH_PATIENCE * q.config.check_quorum_ms


def stall(q: QuorumState) -> str:
    """That this node's own disk keeps it from leading, in one sentence; empty: it does not."""
    return (
        "the disk has kept a flush waiting for so long that this node leads no more until it ends"
        if q.is_stalled
        else ""
    )


def next_deadline_ms(q: QuorumState, term: Leader) -> int | None:
    elected_ms, change = term.elected_ms, term.changes.pending
    silent_since_ms = soonest(*[term.replicas[v].silent_since_ms(elected_ms) for v in q.latest_voters.others(q.me)])
    check_quorum_ms = check_quorum_deadline_ms(q, term)
    return soonest(
        None if silent_since_ms is None else silent_since_ms + _begin_every_ms(q),
        check_quorum_ms if check_quorum_ms < FOREVER_MS else None,
        flush_deadline_ms(q, term),
        None if change is None else change.deadline_ms,
        *[parked.deadline_ms for parked in term.parked.values()],
    )


def on_timer(q: QuorumState, term: Leader) -> None:
    if check_quorum_deadline_ms(q, term) <= q.now_ms:
        resign(q, term, Why.QUORUM_LOST)
        return
    flush_ms = flush_deadline_ms(q, term)
    if flush_ms is not None and flush_ms <= q.now_ms:
        q.is_stalled = True
        resign(q, term, Why.STALLED)
        return
    complete_parked(q, term, lambda parked: parked.deadline_ms <= q.now_ms)
    _begin_quorum_epoch(q, term)


# --- the end ---------------------------------------------------------------------------------------------------------


def resign(q: QuorumState, term: Leader, why: Why, *, first: ReplicaKey | None = None) -> None:
    """Steps down, but keeps the epoch: nobody else can lead it, and this node must not lead it a second time.

    `first` is to succeed; otherwise whoever is furthest.
    """
    others = q.latest_voters.others(q.me)
    ranked = tuple(sorted(successors(others, term.replicas), key=lambda voter: voter != first))
    tell_at_ms = dict.fromkeys(others, q.now_ms)
    q.become(Resigned(q.election_deadline_ms(), ranked, tell_at_ms), why, q.election)
    q.retry_at_ms = q.now_ms + q.config.retry_backoff_ms
    tell_successors(q)


def tell_successors(q: QuorumState) -> None:
    """Sends EndQuorumEpoch to the voters that are due to hear it."""
    role = q.role
    assert isinstance(role, Resigned)
    due = [voter for voter, at_ms in role.tell_at_ms.items() if at_ms <= q.now_ms]
    later = {voter: at_ms for voter, at_ms in role.tell_at_ms.items() if at_ms > q.now_ms}
    q.role = Resigned(role.deadline_ms, role.preferred_successors, later)
    for voter in due:
        q.send(voter.node_id, EndQuorumEpochRequest(q.me, q.epoch, role.preferred_successors))


def on_end_response(
    q: QuorumState, source: NodeId, request: EndQuorumEpochRequest, response: EndQuorumEpochResponse
) -> None:
    if q.absorb(response.epoch, response.leader_id) and response.error is not ErrorCode.NONE:
        on_end_failed(q, source, request)


def on_end_failed(q: QuorumState, destination: NodeId, request: EndQuorumEpochRequest) -> None:
    """That voter has not heard it yet: tell it again in a while."""
    role, voter = q.role, q.latest_voters.key_of(destination)
    if isinstance(role, Resigned) and request.epoch == q.epoch and voter is not None:
        tell_at_ms = {**role.tell_at_ms, voter: q.now_ms + q.config.retry_backoff_ms}
        q.role = Resigned(role.deadline_ms, role.preferred_successors, tell_at_ms)
