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


def may_fetch(q: QuorumState) -> bool:
    """Whether a fetch may leave as soon as `retry_at_ms` has come."""
    if q.shutting_down or q.in_flight is not None:
        return False
    if q.installing is not None:
        return isinstance(q.role, Follower)
    if q.awaiting_log or q.shape.flushed_end != q.shape.end:
        return False
    match q.role:
        case Follower():
            return True
        case Unattached() | Resigned():
            # A resigned leader too: mostly it has only restarted, and somebody else leads by now.
            return bool(_may_know_a_leader(q))
        case _:
            return False


def fetch_if_due(q: QuorumState) -> None:
    """Sends the next fetch if it is time. Called at the end of every step, so that no path can forget it."""
    if q.now_ms < q.retry_at_ms or not may_fetch(q):
        return
    request: FetchRequest | FetchSnapshotRequest
    match q.role:
        case Follower(leader_id=leader_id) if q.installing is not None:
            destination, request = leader_id, download.request_for(q, q.installing)
        case Follower(leader_id=leader_id, download=Download() as wanted):
            destination, request = leader_id, download.request_for(q, wanted)
        case Follower(leader_id=leader_id, read_token=read_token, partial=partial):
            destination, request = leader_id, _fetch_request(q, read_token, partial)
        case _:
            candidates = _may_know_a_leader(q)
            if q.heard_of is not None:
                candidates, q.heard_of = [q.heard_of], None
            if not candidates:
                q.back_off()
                return
            destination, request = q.rng.choice(candidates), _fetch_request(q, 0, None)
    q.in_flight = (destination, request)
    q.asked_ms = q.now_ms
    q.send(destination, request)


def _may_know_a_leader(q: QuorumState) -> list[NodeId]:
    """Whom to ask while nobody to follow is known: any voter may know one, and whoever the configuration names."""
    voters = [key.node_id for key in q.latest_voters.others(q.me)]
    known = dict.fromkeys([*voters, *q.config.also_ask])
    return [node_id for node_id in known if node_id != q.me.node_id]


def _fetch_request(q: QuorumState, read_token: int, partial: PartialBatch | None) -> FetchRequest:
    end = q.shape.flushed_end
    assert end == q.shape.end, "a fetch would acknowledge what is not on disk"
    return FetchRequest(
        replica=q.fetch_key,
        epoch=q.epoch,
        number=q.next_number(),
        fetch_offset=end,
        last_fetched_epoch=q.shape.last_epoch,
        chain=q.shape.flushed_chain,
        high_watermark=q.known_high_watermark or 0,
        max_wait_ms=q.config.fetch_wait_ms,
        max_bytes=min(q.pieces.next(q.now_ms), q.config.fetch_bytes_max),
        read_token=read_token,
        incarnation=q.incarnation,
        applied_offset=q.applied[0],
        digest=q.applied[1],
        damaged=q.standing.damaged,
        part_position=held_at(partial, end),
    )


# --- the answer to a fetch -------------------------------------------------------------------------------------------


def _follows(
    q: QuorumState,
    source: NodeId,
    request: FetchRequest | FetchSnapshotRequest,
    reply: FetchResponse | FetchSnapshotResponse,
) -> Follower | None:
    """This node as follower of `source` if `reply` is the awaited answer of its leader in this epoch; else None.

    Whatever `reply` says of epochs and leaders is taken in first; an unattached node may learn its leader from it. Errors
    and all that is not the awaited answer are followed by a back-off.
    """
    if not q.take_in_flight(source, request):
        return None
    q.back_off()
    if not q.absorb(reply.epoch, reply.leader_id):
        return None
    role = q.role
    if not isinstance(role, Follower) or role.leader_id != source:
        return None
    if request.epoch != q.epoch or reply.number != request.number:
        return None
    return role


def _heard_well(
    q: QuorumState,
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
    q.heard_ms = q.now_ms
    q.failures = 0
    q.retry_at_ms = q.now_ms
    patience_ms = q.config.fetch_timeout_ms + wait_of_rank(q, successors)
    return Follower(
        role.leader_id,
        fetch_deadline_ms=q.now_ms + patience_ms,
        has_fetched=True,
        heard_ms=q.now_ms,
        campaign_at_ms=None,
        successors=successors,
        read_token=read_token,
        verified=verified,
        download=role.download,
        partial=partial,
    )


def on_fetch_response(q: QuorumState, source: NodeId, request: FetchRequest, response: FetchResponse) -> None:
    role = _follows(q, source, request, response)
    if role is None:
        return None
    if response.error is ErrorCode.CHAIN_MISMATCH:
        return disputes.on_mismatch(q, role, request)
    if response.error is ErrorCode.INVALID_VOTER_KEY:
        raise SafetyViolated(
            f"leader {source} says that several processes fetch as {request.replica}: this node's directory was copied, and both "
            "run. Stop the copy for good, then start this one again"
        )
    if response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and response.leader_id is None:
        # It led this epoch and does not any more; a leader never comes back in the same epoch.
        return suspect(q, replace(role, successors=response.successors or role.successors))
    if response.error is not ErrorCode.NONE:
        return None
    batches, partial = response.batches, None
    if response.part is not None:
        batches, partial = _put_together(role.partial, request.fetch_offset, response.part)
        if not batches and partial is None:
            q.role = replace(role, partial=None)  # from the batch's beginning, then
            return None
    if not _continues(q, batches):
        return None
    disputes.close(q, q.me)
    q.standing = q.standing.bounded_by(response.log_end)
    verified = role.verified
    if response.snapshot is None and response.diverging is None:
        verified = response.high_watermark, batches[-1].end_offset if batches else q.shape.end
    q.role = role = _heard_well(q, role, response.successors, response.read_token, verified, partial)
    if partial is not None or (batches and batches[-1].end_offset < response.log_end):
        q.piece_came(content_bytes(response.batches, response.part))
    if response.snapshot is not None:
        return download.begin(q, role, response.snapshot)
    if response.diverging is not None:
        return _truncate(q, request, response.diverging)
    if batches:
        q.awaiting_log = True
        q.effects.append(AppendBatches(batches))
        return None
    return on_log_grown(q)


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


def _continues(q: QuorumState, batches: tuple[Batch, ...]) -> bool:
    """Whether `batches` continue this log; what does not is left alone, and the leader sees no progress."""
    end, last_epoch = q.shape.end, q.shape.last_epoch
    for batch in batches:
        if batch.base_offset != end or not last_epoch <= batch.epoch <= q.epoch:
            return False
        end, last_epoch = batch.end_offset, batch.epoch
    return True


def on_log_replaced(q: QuorumState) -> None:
    """The snapshot is installed: the leader has as much time to answer the next fetch as if it had just answered one."""
    role = q.role
    if isinstance(role, Follower):
        q.role = replace(role, fetch_deadline_ms=q.now_ms + q.config.fetch_timeout_ms)


def on_log_grown(q: QuorumState) -> None:
    """A follower's high watermark: the leader's, but only up to what its last reply has shown to be the leader's log.

    Called when what a good reply brought is in the log, also when that is nothing. The end may not be flushed yet:
    nothing is applied before it is, which is the node's to see to.
    """
    role = q.role
    if isinstance(role, Follower):
        high_watermark, verified_end = role.verified
        if high_watermark is not None:
            q.raise_high_watermark(
                min(high_watermark, verified_end, q.shape.end)
            )  # a full disk keeps less than was fetched


def _truncate(q: QuorumState, request: FetchRequest, diverging: OffsetAndEpoch) -> None:
    end = truncation_point(q.shape, diverging)
    if end >= request.fetch_offset:
        # Nothing would be cut: a reply that makes no sense. Ask again, later.
        return q.back_off()
    if q.known_high_watermark is not None and end < q.known_high_watermark:
        raise SafetyViolated(f"told to truncate to {end}, below the high watermark {q.known_high_watermark}")
    q.awaiting_log = True
    q.effects.append(TruncateLog(end))
    return None


# --- snapshots -------------------------------------------------------------------------------------------------------


def on_snapshot_response(
    q: QuorumState, source: NodeId, request: FetchSnapshotRequest, response: FetchSnapshotResponse
) -> None:
    role = _follows(q, source, request, response)
    if role is None:
        return
    if q.installing is not None:
        if response.error in (ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            download.on_still_there(q, _heard_well(q, role, role.successors, role.read_token, role.verified))
        return
    wanted = role.download
    if wanted is None or wanted.snapshot != request.snapshot or wanted.position != request.position:
        return
    match response.error:
        case ErrorCode.NONE:
            role = _heard_well(q, role, role.successors, role.read_token, role.verified)
            download.take_chunk(q, role, wanted, response)
        case ErrorCode.SNAPSHOT_NOT_FOUND | ErrorCode.POSITION_OUT_OF_RANGE:
            download.drop(q, role)
        case ErrorCode.NOT_LEADER_OR_FOLLOWER if response.leader_id is None:
            suspect(q, role)
        case _:
            pass


# --- giving up on the leader -----------------------------------------------------------------------------------------


def on_fetch_failed(
    q: QuorumState, destination: NodeId, request: FetchRequest | FetchSnapshotRequest, failure: Failure
) -> None:
    if not q.take_in_flight(destination, request):
        return
    q.back_off()
    if failure is Failure.TIMED_OUT:
        q.pieces.start_small()
    if failure is Failure.REFUSED:
        on_peer_refused(q, destination)


def on_peer_refused(q: QuorumState, node_id: NodeId) -> None:
    role = q.role
    if isinstance(role, Follower) and role.leader_id == node_id:
        suspect(q, role)


def deadline_ms(q: QuorumState, role: Follower) -> int:
    """When a follower gives up on its leader. Whoever may not run has no turn to wait for."""
    if role.campaign_at_ms is None or not q.may_campaign:
        return role.fetch_deadline_ms
    return min(role.fetch_deadline_ms, role.campaign_at_ms)


def on_timer(q: QuorumState, role: Follower) -> None:
    if deadline_ms(q, role) > q.now_ms:
        return
    if q.awaiting_log:
        # A snapshot is being installed, which may take long. Its log is about to be another: let it finish, then judge.
        q.role = replace(role, fetch_deadline_ms=q.now_ms + q.config.fetch_timeout_ms, campaign_at_ms=None)
    elif not q.may_campaign:
        q.become_unattached(q.epoch, Why.LEADER_SILENT)
    elif role.suspicious:
        election.become_prospective(q, Why.LEADER_GONE, suspicious=True)
    else:
        election.become_prospective(q, Why.LEADER_SILENT)


def on_unattached_timer(q: QuorumState, role: Unattached) -> None:
    if not q.may_campaign or role.election_deadline_ms > q.now_ms:
        return
    if q.awaiting_log:
        q.role = Unattached(q.election_deadline_ms())
    else:
        election.become_prospective(q, Why.ELECTION_TIMEOUT)
