"""Following: a follower fetches from its leader, appends the records, and gives up a silent leader. Finding a leader to
follow.

The next fetch leaves once the log is flushed to its end, and asks from the flushed end: a fetch *is* the
acknowledgement, so a fetch must not claim more than the disk holds. One fetch is in flight at a time, and only its own
answer is accepted. A late or repeated answer could append records twice, or acknowledge records which were cut away.

Kinds of answers:

* batches, or nothing: both logs agree up to the answer's end. The follower's high watermark becomes the leader's,
  limited to the same end;
* a part of a large batch: the follower keeps the part until the batch is complete. The part also proves that the leader
  is alive;
* a point of divergence: the follower truncates its log and fetches again, but never truncates below its own high
  watermark, because committed records must stay;
* a snapshot: the leader's log no longer holds the next records. The follower downloads the snapshot piece by piece, and
  its log then starts at the snapshot's end.

Example, follower 2 of leader 1:

    1. Follower 2 fetches at 7. Leader 1 answers with batch [7,9) and high watermark 7.
    2. Follower 2 appends and flushes. Its next fetch, at 9, acknowledges the batch.
    3. Leader 1 counts itself and follower 2, commits up to 9, and answers with high watermark 9.

The size of a fetch adapts to the link, so that over any link an answer arrives within the request timeout: see
`metadata_log.format.fetch_size`.

A follower which sees its leader's process gone (`PeerRefused`) does not wait for the fetch timeout. The leader's last
answer ranked the successors, and each successor campaigns on its turn, unless the leader answers first.
"""

from dataclasses import replace

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode, LogFormatError
from metadata_log.format.fetch_size import BatchPart, PartialBatch, content_bytes, held_at, joined
from metadata_log.format.ids import NodeId, Offset, OffsetAndEpoch
from quorum.core import disputes, download, election
from quorum.core.protocol.divergence import truncation_point
from quorum.core.protocol.download import Download
from quorum.core.protocol.effects import AppendBatches, TruncateLog
from quorum.core.protocol.inputs import Failure
from quorum.core.protocol.messages import FetchRequest, FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse
from quorum.core.quorum_state import QuorumState, SafetyViolated
from quorum.core.roles import Follower, Resigned, Unattached, Why
from quorum.core.votes import suspect, wait_of_rank

# --- asking ----------------------------------------------------------------------------------------------------------


def may_fetch(state: QuorumState) -> bool:
    """True if a fetch may leave as soon as `retry_at_ms` has come."""
    if state.shutting_down or state.fetch.in_flight is not None:
        return False
    if state.install.installing is not None:
        return isinstance(state.role, Follower)
    if state.awaiting_log or state.shape.flushed_end != state.shape.end:
        return False
    match state.role:
        case Follower():
            return True
        case Unattached() | Resigned():
            # A resigned leader, too: usually it has only restarted, and another node leads by now.
            return bool(_may_know_a_leader(state))
        case _:
            return False


def fetch_if_due(state: QuorumState) -> None:
    """Sends the next fetch if it is due. Called at the end of every step, so that no code path can forget the fetch."""
    if state.now_ms < state.fetch.retry_at_ms or not may_fetch(state):
        return
    request: FetchRequest | FetchSnapshotRequest
    match state.role:
        case Follower(leader_id=leader_id) if state.install.installing is not None:
            destination, request = leader_id, download.request_for(state, state.install.installing)
        case Follower(leader_id=leader_id, download=Download() as wanted):
            destination, request = leader_id, download.request_for(state, wanted)
        case Follower(leader_id=leader_id, read_token=read_token, partial=partial):
            destination, request = leader_id, _fetch_request(state, read_token, partial)
        case _:
            candidates = _may_know_a_leader(state)
            claimant = state.contact.take_claimant()
            if claimant is not None:
                candidates = [claimant]
            if not candidates:
                state.fetch.back_off(state.now_ms)
                return
            destination, request = state.rng.choice(candidates), _fetch_request(state, 0, None)
    state.fetch.sent(destination, request, state.now_ms)
    state.send(destination, request)


def _may_know_a_leader(state: QuorumState) -> list[NodeId]:
    """The nodes to ask for a leader: all voters, and the controllers named in the configuration."""
    voters = [key.node_id for key in state.latest_voters.others(state.me)]
    known = dict.fromkeys([*voters, *state.config.also_ask])
    return [node_id for node_id in known if node_id != state.me.node_id]


def _fetch_request(state: QuorumState, read_token: int, partial: PartialBatch | None) -> FetchRequest:
    end = state.shape.flushed_end
    assert end == state.shape.end, "a fetch would acknowledge records that are not on disk"
    return FetchRequest(
        replica=state.fetch_key,
        epoch=state.epoch,
        number=state.fetch.next_number(),
        fetch_offset=end,
        last_fetched_epoch=state.shape.last_epoch,
        chain=state.shape.flushed_chain,
        high_watermark=state.known_high_watermark or 0,
        max_wait_ms=state.config.fetch_wait_ms,
        max_bytes=min(state.fetch.pieces.next(state.now_ms), state.config.fetch_bytes_max),
        read_token=read_token,
        incarnation=state.fetch.incarnation,
        applied_offset=state.applied[0],
        digest=state.applied[1],
        damaged=state.disk.trust.damaged or state.disk.trust.out_of_room,
        part_position=held_at(partial, end),
    )


# --- the answer to a fetch -------------------------------------------------------------------------------------------


def _follows(
    state: QuorumState,
    source: NodeId,
    request: FetchRequest | FetchSnapshotRequest,
    reply: FetchResponse | FetchSnapshotResponse,
) -> Follower | None:
    """Returns this node's follower role if `reply` is the awaited answer of its leader in this epoch; None otherwise.

    Epoch and leader in `reply` are adopted first; an unattached node may learn its leader from them. A back-off follows
    every error and every answer other than the awaited one.
    """
    if not state.fetch.take(source, request):
        return None
    state.fetch.back_off(state.now_ms)
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
    """Returns the role after a good answer: the leader is alive and no longer suspected.

    A leader answers all parked fetches at once, so all followers would give up the leader at the same time, and would
    split the vote. The better successor gives up first.
    """
    state.contact.heard(state.now_ms)
    state.fetch.answered(state.now_ms)
    patience_ms = state.config.fetch_timeout_ms + wait_of_rank(state, successors)
    return Follower(
        role.leader_id,
        fetch_deadline_ms=state.now_ms + patience_ms,
        trusts_leader=True,
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
            f"leader {source} reports several processes fetching as {request.replica}: this node's directory was copied, and "
            "both copies run. This node stops; stop the other copy for good, then start this node again"
        )
    if response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and response.leader_id is None:
        # The node led this epoch and leads no longer; no leader returns in the same epoch.
        return suspect(state, replace(role, successors=response.successors or role.successors))
    if response.error is not ErrorCode.NONE:
        return None
    batches, partial = response.batches, None
    if response.part is not None:
        batches, partial = _put_together(role.partial, request.fetch_offset, response.part)
        if not batches and partial is None:
            state.update_role(replace(role, partial=None))  # fetch again from the beginning of the batch
            return None
    if not _continues(state, batches):
        return None
    state.close_dispute(state.me)
    state.disk.bound_loss(response.log_end)
    verified = role.verified
    if response.snapshot is None and response.diverging is None:
        verified = response.high_watermark, batches[-1].end_offset if batches else state.shape.end
    role = _heard_well(state, role, response.successors, response.read_token, verified, partial)
    state.update_role(role)
    if partial is not None or (batches and batches[-1].end_offset < response.log_end):
        state.fetch.piece_came(content_bytes(response.batches, response.part), state.now_ms)
    if response.snapshot is not None:
        return download.begin(state, role, response.snapshot)
    if response.diverging is not None:
        return _truncate(state, request, response.diverging)
    if batches:
        state.begin_log_change()
        state.effects.append(AppendBatches(batches))
        return None
    return on_log_grown(state)


def _put_together(
    held: PartialBatch | None, offset: Offset, part: BatchPart
) -> tuple[tuple[Batch, ...], PartialBatch | None]:
    """Returns the batch completed by `part`, or the part held so far; neither if the parts do not fit together."""
    partial = joined(held, offset, part)
    if partial is None or not partial.is_whole:
        return (), partial
    try:
        return (partial.decode(),), None
    except LogFormatError:
        return (), None


def _continues(state: QuorumState, batches: tuple[Batch, ...]) -> bool:
    """True if `batches` continue this log. Other batches are ignored, and the leader sees no progress."""
    end, last_epoch = state.shape.end, state.shape.last_epoch
    for batch in batches:
        if batch.base_offset != end or not last_epoch <= batch.epoch <= state.epoch:
            return False
        end, last_epoch = batch.end_offset, batch.epoch
    return True


def on_log_replaced(state: QuorumState) -> None:
    """Restarts the fetch timeout after an installed snapshot, as after a good answer."""
    role = state.role
    if isinstance(role, Follower):
        state.update_role(replace(role, fetch_deadline_ms=state.now_ms + state.config.fetch_timeout_ms))


def on_log_grown(state: QuorumState) -> None:
    """Raises a follower's high watermark to the leader's, limited to the end verified by the last answer.

    Called once the batches of a good answer are in the log, even if the answer had none. The end may not be flushed
    yet; the node applies flushed records only.
    """
    role = state.role
    if isinstance(role, Follower):
        high_watermark, verified_end = role.verified
        if high_watermark is not None:
            state.raise_high_watermark(
                min(high_watermark, verified_end, state.shape.end)
            )  # a full disk keeps fewer records than were fetched


def _truncate(state: QuorumState, request: FetchRequest, diverging: OffsetAndEpoch) -> None:
    end = truncation_point(state.shape, diverging)
    if end >= request.fetch_offset:
        # The answer makes no sense, because nothing would be cut. Fetch again later.
        return state.fetch.back_off(state.now_ms)
    if state.known_high_watermark is not None and end < state.known_high_watermark:
        raise SafetyViolated(
            f"the leader asked to truncate to {end}, below the high watermark {state.known_high_watermark}; nothing was truncated"
        )
    state.begin_log_change()
    state.effects.append(TruncateLog(end))
    return None


# --- snapshots -------------------------------------------------------------------------------------------------------


def on_snapshot_response(
    state: QuorumState, source: NodeId, request: FetchSnapshotRequest, response: FetchSnapshotResponse
) -> None:
    role = _follows(state, source, request, response)
    if role is None:
        return
    if state.install.installing is not None:
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
    if not state.fetch.take(destination, request):
        return
    state.fetch.back_off(state.now_ms)
    if failure is Failure.TIMED_OUT:
        state.fetch.pieces.start_small()
    if failure is Failure.REFUSED:
        on_peer_refused(state, destination)


def on_peer_refused(state: QuorumState, node_id: NodeId) -> None:
    role = state.role
    if isinstance(role, Follower) and role.leader_id == node_id:
        suspect(state, role)


def deadline_ms(state: QuorumState, role: Follower) -> int:
    """When a follower gives up its leader. A node not allowed to campaign has no turn to wait for."""
    if role.campaign_at_ms is None or not state.may_campaign:
        return role.fetch_deadline_ms
    return min(role.fetch_deadline_ms, role.campaign_at_ms)


def on_timer(state: QuorumState, role: Follower) -> None:
    if deadline_ms(state, role) > state.now_ms:
        return
    if state.awaiting_log:
        # An installation may take long, and is about to replace the log. The node lets it finish, and then judges
        # again.
        state.update_role(
            replace(role, fetch_deadline_ms=state.now_ms + state.config.fetch_timeout_ms, campaign_at_ms=None)
        )
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
        state.update_role(Unattached(state.election_deadline_ms()))
    else:
        election.become_prospective(state, Why.ELECTION_TIMEOUT)
