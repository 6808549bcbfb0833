"""Following: fetch from the leader, take what it sends, give up on it in time. And finding a leader to follow.

The next fetch is sent when the log is flushed to its end, and from there: the fetch *is* the acknowledgement, so it must not
say more than the disk does. One fetch is in flight at a time, and only the answer to that one is taken; a late or repeated
answer could append a second time, or acknowledge what was since cut away.

What an answer can be:
  * batches, or nothing: the logs agree up to its end, and the high watermark is the leader's, or that end if it is less;
  * a part of a batch that is larger than a piece: it is kept until all parts are here, and says that the leader is there;
  * a point of divergence: cut back and ask again. Never below the own high watermark: what is committed is nobody's to cut;
  * a snapshot: what comes next is gone from the leader's log. It is fetched piece by piece, then the log starts at its end.

How much a fetch asks for is found out, so that over any link the answer comes within the request's timeout: see
`metadata_log.format.pieces`.

A follower whose leader's process is seen gone (`PeerRefused`) does not wait for the fetch timeout: the leader's last
answer ranked the successors, and each runs when its turn comes, unless the leader answers after all.
"""

from dataclasses import replace

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode, LogFormatError
from metadata_log.format.ids import NodeId, Offset, OffsetAndEpoch
from metadata_log.format.pieces import BatchPart, PartialBatch, content_bytes, held_at, joined
from quorum.core import disputes, download, election
from quorum.core.protocol.divergence import truncation_point
from quorum.core.protocol.effects import AppendBatches, TruncateLog
from quorum.core.protocol.inputs import Failure
from quorum.core.protocol.messages import FetchRequest, FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse
from quorum.core.quorum_state import QuorumState, SafetyViolated
from quorum.core.roles import Download, Follower, Resigned, Unattached, Why
from quorum.core.votes import suspect, wait_of_rank

# --- asking ----------------------------------------------------------------------------------------------------------


def may_fetch(state: QuorumState) -> bool:
    """Whether a fetch may leave as soon as `retry_at_ms` has come."""
    if state.shutting_down or state.in_flight is not None:
        return False
    if state.installing is not None:
        return isinstance(state.role, Follower)
    if state.awaiting_log or state.shape.flushed_end != state.shape.end:
        return False
    match state.role:
        case Follower():
            return True
        case Unattached() | Resigned():
            # A resigned leader too: mostly it has only restarted, and somebody else leads by now.
            return bool(_may_know_a_leader(state))
        case _:
            return False


def fetch_if_due(state: QuorumState) -> None:
    """Sends the next fetch if it is time. Called at the end of every step, so that no path can forget it."""
    if state.now_ms < state.retry_at_ms or not may_fetch(state):
        return
    request: FetchRequest | FetchSnapshotRequest
    match state.role:
        case Follower(leader_id=leader_id) if state.installing is not None:
            destination, request = leader_id, download.request_for(state, state.installing)
        case Follower(leader_id=leader_id, download=Download() as wanted):
            destination, request = leader_id, download.request_for(state, wanted)
        case Follower(leader_id=leader_id, read_token=read_token, partial=partial):
            destination, request = leader_id, _fetch_request(state, read_token, partial)
        case _:
            candidates = _may_know_a_leader(state)
            if state.heard_of is not None:
                candidates, state.heard_of = [state.heard_of], None
            if not candidates:
                state.back_off()
                return
            destination, request = state.rng.choice(candidates), _fetch_request(state, 0, None)
    state.in_flight = (destination, request)
    state.asked_ms = state.now_ms
    state.send(destination, request)


def _may_know_a_leader(state: QuorumState) -> list[NodeId]:
    """Whom to ask while nobody to follow is known: any voter may know one, and whoever the configuration names."""
    voters = [key.node_id for key in state.latest_voters.others(state.me)]
    known = dict.fromkeys([*voters, *state.config.also_ask])
    return [node_id for node_id in known if node_id != state.me.node_id]


def _fetch_request(state: QuorumState, read_token: int, partial: PartialBatch | None) -> FetchRequest:
    end = state.shape.flushed_end
    assert end == state.shape.end, "a fetch would acknowledge what is not on disk"
    return FetchRequest(
        replica=state.fetch_key,
        epoch=state.epoch,
        number=state.next_number(),
        fetch_offset=end,
        last_fetched_epoch=state.shape.last_epoch,
        chain=state.shape.flushed_chain,
        high_watermark=state.known_high_watermark or 0,
        max_wait_ms=state.config.fetch_wait_ms,
        max_bytes=min(state.pieces.next(state.now_ms), state.config.fetch_bytes_max),
        read_token=read_token,
        incarnation=state.incarnation,
        applied_offset=state.applied[0],
        digest=state.applied[1],
        damaged=state.disk_trust.damaged,
        part_position=held_at(partial, end),
    )


# --- the answer to a fetch -------------------------------------------------------------------------------------------


def _follows(
    state: QuorumState,
    source: NodeId,
    request: FetchRequest | FetchSnapshotRequest,
    reply: FetchResponse | FetchSnapshotResponse,
) -> Follower | None:
    """This node as follower of `source` if `reply` is the awaited answer of its leader in this epoch; else None.

    Whatever `reply` says of epochs and leaders is taken in first; an unattached node may learn its leader from it. Errors
    and all that is not the awaited answer are followed by a back-off.
    """
    if not state.take_in_flight(source, request):
        return None
    state.back_off()
    if not state.absorb(reply.epoch, reply.leader_id):
        return None
    role = state.role
    if not isinstance(role, Follower) or role.leader_id != source:
        return None
    if request.epoch != state.epoch or reply.number != request.number:
        return None
    return role


def _heard_well(
    state: QuorumState,
    role: Follower,
    successors: tuple[NodeId, ...],
    read_token: int,
    verified: tuple[Offset | None, Offset],
    partial: PartialBatch | None = None,
) -> Follower:
    """The leader has answered: it is there, and there is no reason to suspect it.

    A leader answers all parked fetches at once, so its followers would give up on it at once too, and split the vote. The
    better successor gives up first.
    """
    state.heard_ms = state.now_ms
    state.failures = 0
    state.retry_at_ms = state.now_ms
    patience_ms = state.config.fetch_timeout_ms + wait_of_rank(state, successors)
    return Follower(
        role.leader_id,
        fetch_deadline_ms=state.now_ms + patience_ms,
        has_fetched=True,
        heard_ms=state.now_ms,
        campaign_at_ms=None,
        successors=successors,
        read_token=read_token,
        verified=verified,
        download=role.download,
        partial=partial,
    )


def on_fetch_response(state: QuorumState, source: NodeId, request: FetchRequest, response: FetchResponse) -> None:
    role = _follows(state, source, request, response)
    if role is None:
        return None
    if response.error is ErrorCode.CHAIN_MISMATCH:
        return disputes.on_mismatch(state, role, request)
    if response.error is ErrorCode.INVALID_VOTER_KEY:
        raise SafetyViolated(
            f"leader {source} says that several processes fetch as {request.replica}: this node's directory was copied, and both "
            "run. Stop the copy for good, then start this one again"
        )
    if response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and response.leader_id is None:
        # It led this epoch and does not any more; a leader never comes back in the same epoch.
        return suspect(state, replace(role, successors=response.successors or role.successors))
    if response.error is not ErrorCode.NONE:
        return None
    batches, partial = response.batches, None
    if response.part is not None:
        batches, partial = _put_together(role.partial, request.fetch_offset, response.part)
        if not batches and partial is None:
            state.role = replace(role, partial=None)  # from the batch's beginning, then
            return None
    if not _continues(state, batches):
        return None
    disputes.close(state, state.me)
    state.disk_trust = state.disk_trust.bounded_by(response.log_end)
    verified = role.verified
    if response.snapshot is None and response.diverging is None:
        verified = response.high_watermark, batches[-1].end_offset if batches else state.shape.end
    state.role = role = _heard_well(state, role, response.successors, response.read_token, verified, partial)
    if partial is not None or (batches and batches[-1].end_offset < response.log_end):
        state.piece_came(content_bytes(response.batches, response.part))
    if response.snapshot is not None:
        return download.begin(state, role, response.snapshot)
    if response.diverging is not None:
        return _truncate(state, request, response.diverging)
    if batches:
        state.awaiting_log = True
        state.effects.append(AppendBatches(batches))
        return None
    return on_log_grown(state)


def _put_together(
    held: PartialBatch | None, offset: Offset, part: BatchPart
) -> tuple[tuple[Batch, ...], PartialBatch | None]:
    """The batch of which `part` is the last part, or what is held of it; neither, where the parts do not fit together."""
    partial = joined(held, offset, part)
    if partial is None or not partial.is_whole:
        return (), partial
    try:
        return (partial.decode(),), None
    except LogFormatError:
        return (), None


def _continues(state: QuorumState, batches: tuple[Batch, ...]) -> bool:
    """Whether `batches` continue this log; what does not is left alone, and the leader sees no progress."""
    end, last_epoch = state.shape.end, state.shape.last_epoch
    for batch in batches:
        if batch.base_offset != end or not last_epoch <= batch.epoch <= state.epoch:
            return False
        end, last_epoch = batch.end_offset, batch.epoch
    return True


def on_log_replaced(state: QuorumState) -> None:
    """The snapshot is installed: the leader has as much time to answer the next fetch as if it had just answered one."""
    role = state.role
    if isinstance(role, Follower):
        state.role = replace(role, fetch_deadline_ms=state.now_ms + state.config.fetch_timeout_ms)


def on_log_grown(state: QuorumState) -> None:
    """A follower's high watermark: the leader's, but only up to what its last reply has shown to be the leader's log.

    Called when what a good reply brought is in the log, also when that is nothing. The end may not be flushed yet:
    nothing is applied before it is, which is the node's to see to.
    """
    role = state.role
    if isinstance(role, Follower):
        high_watermark, verified_end = role.verified
        if high_watermark is not None:
            state.raise_high_watermark(
                min(high_watermark, verified_end, state.shape.end)
            )  # a full disk keeps less than was fetched


def _truncate(state: QuorumState, request: FetchRequest, diverging: OffsetAndEpoch) -> None:
    end = truncation_point(state.shape, diverging)
    if end >= request.fetch_offset:
        # Nothing would be cut: a reply that makes no sense. Ask again, later.
        return state.back_off()
    if state.known_high_watermark is not None and end < state.known_high_watermark:
        raise SafetyViolated(f"told to truncate to {end}, below the high watermark {state.known_high_watermark}")
    state.awaiting_log = True
    state.effects.append(TruncateLog(end))
    return None


# --- snapshots -------------------------------------------------------------------------------------------------------


def on_snapshot_response(
    state: QuorumState, source: NodeId, request: FetchSnapshotRequest, response: FetchSnapshotResponse
) -> None:
    role = _follows(state, source, request, response)
    if role is None:
        return
    if state.installing is not None:
        if response.error in (ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            download.on_still_there(state, _heard_well(state, role, role.successors, role.read_token, role.verified))
        return
    wanted = role.download
    if wanted is None or wanted.snapshot != request.snapshot or wanted.position != request.position:
        return
    match response.error:
        case ErrorCode.NONE:
            role = _heard_well(state, role, role.successors, role.read_token, role.verified)
            download.take_chunk(state, role, wanted, response)
        case ErrorCode.SNAPSHOT_NOT_FOUND | ErrorCode.POSITION_OUT_OF_RANGE:
            download.drop(state, role)
        case ErrorCode.NOT_LEADER_OR_FOLLOWER if response.leader_id is None:
            suspect(state, role)
        case _:
            pass


# --- giving up on the leader -----------------------------------------------------------------------------------------


def on_fetch_failed(
    state: QuorumState, destination: NodeId, request: FetchRequest | FetchSnapshotRequest, failure: Failure
) -> None:
    if not state.take_in_flight(destination, request):
        return
    state.back_off()
    if failure is Failure.TIMED_OUT:
        state.pieces.start_small()
    if failure is Failure.REFUSED:
        on_peer_refused(state, destination)


def on_peer_refused(state: QuorumState, node_id: NodeId) -> None:
    role = state.role
    if isinstance(role, Follower) and role.leader_id == node_id:
        suspect(state, role)


def deadline_ms(state: QuorumState, role: Follower) -> int:
    """When a follower gives up on its leader. Whoever may not run has no turn to wait for."""
    if role.campaign_at_ms is None or not state.may_campaign:
        return role.fetch_deadline_ms
    return min(role.fetch_deadline_ms, role.campaign_at_ms)


def on_timer(state: QuorumState, role: Follower) -> None:
    if deadline_ms(state, role) > state.now_ms:
        return
    if state.awaiting_log:
        # A snapshot is being installed, which may take long. Its log is about to be another: let it finish, then judge.
        state.role = replace(role, fetch_deadline_ms=state.now_ms + state.config.fetch_timeout_ms, campaign_at_ms=None)
    elif not state.may_campaign:
        state.become_unattached(state.epoch, Why.LEADER_SILENT)
    elif role.suspicious:
        election.become_prospective(state, Why.LEADER_GONE, suspicious=True)
    else:
        election.become_prospective(state, Why.LEADER_SILENT)


def on_unattached_timer(state: QuorumState, role: Unattached) -> None:
    if not state.may_campaign or role.election_deadline_ms > state.now_ms:
        return
    if state.awaiting_log:
        state.role = Unattached(state.election_deadline_ms())
    else:
        election.become_prospective(state, Why.ELECTION_TIMEOUT)
