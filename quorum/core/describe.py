"""How a node draws itself, and what must always be true of it."""

from metadata_log.format.ids import Offset, ReplicaKey, uuid_text
from quorum.core.long_poll import high_watermark_told
from quorum.core.protocol.progress import FOREVER_MS, ReplicaProgress, ReplicaStatus
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached


def line(q: QuorumState, stopped: str | None = None) -> str:
    """Node, role, epoch, vote, leader, log and high watermark, at fixed columns: lines of several nodes stand in a table.

    1  leader       e5    vote 1  lead 1  log [0,12)@5        disk 12     hw 12
    """

    def show(value: int | None) -> str:
        return "-" if value is None else str(value)

    vote = q.election.voted_for
    shape = q.shape
    log = f"[{shape.start.offset},{shape.end})@{shape.last_epoch}"
    role = "STOPPED" if stopped is not None else q.role.role.value
    observer = "" if q.is_voter else "  observer"
    remark = observer + (f"  {q.standing}" if str(q.standing) else "")
    return (
        f"{q.me.node_id:<2} {role:<12} e{q.epoch:<4} vote {show(vote.node_id if vote else None):<2} "
        f"lead {show(q.leader_id):<2} log {log:<14} disk {shape.flushed_end:<6} hw {show(_high_watermark(q)):<6}{remark}"
    ).rstrip()


def _high_watermark(q: QuorumState) -> Offset | None:
    return high_watermark_told(q, q.role) if isinstance(q.role, Leader) else q.known_high_watermark


def replicas(q: QuorumState) -> tuple[ReplicaStatus, ...]:
    """Every replica that a leader knows of, itself first; empty on any other node."""
    if not isinstance(q.role, Leader):
        return ()
    term, voters, end = q.role, q.latest_voters, q.shape.end
    mine = ReplicaStatus(*q.me, end, q.now_ms, q.now_ms, voters.contains(q.me), 0, q.now_ms, FOREVER_MS)
    others = sorted(term.replicas.items(), key=lambda item: (not voters.contains(item[0]), item[0]))
    return (mine, *(_replica(q, term, key, p) for key, p in others))


def _replica(q: QuorumState, term: Leader, key: ReplicaKey, p: ReplicaProgress) -> ReplicaStatus:
    heard_ms = term.elected_ms if p.last_fetch_ms is None else p.last_fetch_ms
    return ReplicaStatus(
        *key,
        p.end_offset,
        p.last_fetch_ms,
        p.last_caught_up_ms,
        q.latest_voters.contains(key),
        lag=q.shape.end - (p.end_offset or 0),
        behind_since_ms=term.elected_ms if p.last_caught_up_ms is None else p.last_caught_up_ms,
        silent_at_ms=heard_ms + q.config.check_quorum_ms,
    )


def check_invariants(q: QuorumState) -> None:
    """The laws that one node can check of itself. The ones between nodes are the simulator's."""

    def story() -> str:
        return f"{line(q)} role {q.role} directory {uuid_text(q.me.directory_id)}"

    q.shape.check_invariants()
    assert q.shape.last_epoch <= q.epoch, f"a record of an epoch that is not on disk yet (R4): {story()}"
    known = q.known_high_watermark
    assert known is None or q.shape.start.offset <= known <= q.shape.end, (
        f"high watermark {known} off the log: {story()}"
    )
    assert q.shape.start.offset == 0 or q.shape.snapshot is not None, f"a log start without a snapshot (S2): {story()}"
    match q.role:
        case Leader() as term:
            assert q.election.leader_id == q.me.node_id, story()
            assert q.election.voted_for == q.me, f"leads without its own vote: {story()}"
            assert q.standing.may_campaign, f"leads with a damaged log: {story()}"
            assert term.epoch_start_offset <= q.shape.end, story()
            assert q.in_flight is None and not q.awaiting_log, f"a leader that fetches: {story()}"
            term.reads.check_invariants()
            change = term.changes.pending
            if change is not None and change.offset is not None:
                assert change.offset == q.voters.latest_offset, f"a change that stands elsewhere: {change} {story()}"
        case Follower(leader_id=leader_id):
            assert q.election.leader_id == leader_id != q.me.node_id, story()
        case Candidate():
            assert q.election.voted_for == q.me and q.election.leader_id is None, story()
            assert q.may_campaign or not q.has_next_epoch, f"an observer, or a damaged log, runs (R14): {story()}"
        case Prospective():
            assert q.may_campaign, f"an observer, or a damaged log, runs (R14): {story()}"
        case Resigned():
            assert q.election.leader_id == q.me.node_id, f"resigned from an epoch that it did not lead: {story()}"
        case Unattached():
            pass
