"""A node's state as one line of text, as rows of DescribeQuorum, and the invariants of a single node."""

from metadata_log.format.ids import Offset, ReplicaKey, uuid_text
from quorum.core.long_poll import high_watermark_told
from quorum.core.protocol.progress import FOREVER_MS, ReplicaProgress, ReplicaStatus
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached


def line(state: QuorumState, stopped: str | None = None) -> str:
    """Node, role, epoch, vote, leader, log and high watermark in fixed columns, so that lines of several nodes form a
    table.

    1  leader       e5    vote 1  lead 1  log [0,12)@5        disk 12     hw 12
    """

    def show(value: int | None) -> str:
        return "-" if value is None else str(value)

    vote = state.election.voted_for
    shape = state.shape
    log = f"[{shape.start.offset},{shape.end})@{shape.last_epoch}"
    role = "STOPPED" if stopped is not None else state.role.role.value
    observer = "" if state.is_voter else "  observer"
    remark = observer + (f"  {state.disk.trust}" if str(state.disk.trust) else "")
    return (
        f"{state.me.node_id:<2} {role:<12} e{state.epoch:<4} vote {show(vote.node_id if vote else None):<2} "
        f"lead {show(state.leader_id):<2} log {log:<14} disk {shape.flushed_end:<6} hw {show(_high_watermark(state)):<6}{remark}"
    ).rstrip()


def _high_watermark(state: QuorumState) -> Offset | None:
    return high_watermark_told(state, state.role) if isinstance(state.role, Leader) else state.known_high_watermark


def replicas(state: QuorumState) -> tuple[ReplicaStatus, ...]:
    """All replicas known to a leader, itself first; empty on any other node."""
    if not isinstance(state.role, Leader):
        return ()
    leadership, voters, end = state.role, state.latest_voters, state.shape.end
    mine = ReplicaStatus(
        *state.me, end, state.now_ms, state.now_ms, voters.contains(state.me), 0, state.now_ms, FOREVER_MS
    )
    others = sorted(leadership.replicas.items(), key=lambda item: (not voters.contains(item[0]), item[0]))
    return (mine, *(_replica(state, leadership, key, p) for key, p in others))


def _replica(state: QuorumState, leadership: Leader, key: ReplicaKey, p: ReplicaProgress) -> ReplicaStatus:
    heard_ms = leadership.elected_ms if p.last_fetch_ms is None else p.last_fetch_ms
    return ReplicaStatus(
        *key,
        p.end_offset,
        p.last_fetch_ms,
        p.last_caught_up_ms,
        state.latest_voters.contains(key),
        lag=state.shape.end - (p.end_offset or 0),
        behind_since_ms=leadership.elected_ms if p.last_caught_up_ms is None else p.last_caught_up_ms,
        silent_at_ms=heard_ms + state.config.check_quorum_ms,
    )


def check_invariants(state: QuorumState) -> None:
    """Checks the laws of a single node. The simulator checks the laws between nodes."""

    def story() -> str:
        return f"{line(state)} role {state.role} directory {uuid_text(state.me.directory_id)}"

    state.shape.check_invariants()
    assert state.shape.last_epoch <= state.epoch, f"a record of an epoch that is not on disk yet (R4): {story()}"
    known = state.known_high_watermark
    assert known is None or state.shape.start.offset <= known <= state.shape.end, (
        f"high watermark {known} outside the log: {story()}"
    )
    assert state.shape.start.offset == 0 or state.shape.snapshot is not None, (
        f"a log start without a snapshot (S2): {story()}"
    )
    match state.role:
        case Leader() as leadership:
            assert state.election.leader_id == state.me.node_id, story()
            assert state.election.voted_for == state.me, f"leads without its own vote: {story()}"
            assert state.disk.trust.may_campaign, f"leads with a damaged log: {story()}"
            assert leadership.epoch_start_offset <= state.shape.end, story()
            assert state.fetch.in_flight is None and not state.awaiting_log, f"a leader that fetches: {story()}"
            leadership.reads.check_invariants()
            change = leadership.changes.pending
            if change is not None and change.offset is not None:
                assert change.offset == state.voters.latest_offset, (
                    f"a change with its record elsewhere: {change} {story()}"
                )
        case Follower(leader_id=leader_id):
            assert state.election.leader_id == leader_id != state.me.node_id, story()
        case Candidate():
            assert state.election.voted_for == state.me and state.election.leader_id is None, story()
            assert state.may_campaign or not state.has_next_epoch, (
                f"an observer, or a node with a damaged log, campaigns (R14): {story()}"
            )
        case Prospective():
            assert state.may_campaign, f"an observer, or a node with a damaged log, campaigns (R14): {story()}"
        case Resigned():
            assert state.election.leader_id == state.me.node_id, f"resigned from an epoch it did not lead: {story()}"
        case Unattached():
            pass
