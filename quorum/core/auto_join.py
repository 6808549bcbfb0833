"""What a node asks its leader for by itself: to be let in, and to be found where it really listens (KIP-853, KIP-1186).

  * A controller that is configured to join by itself (`auto_join`), and whose replica is not in the voter set, asks to be added
    once it has caught up. If its node id votes with another directory, its own former disk, that one is removed first: two
    voters never share an id.
  * A voter that listens elsewhere than the voter set says tells the leader. A leader changes its own entry itself.

A replica that was removed does not come back by itself as long as its log tells that it has voted: somebody wanted it gone.
"""

from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import Voter
from quorum.core.protocol.messages import (
    AddVoterRequest,
    QuorumChangeRequest,
    QuorumChangeResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
)
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Follower

MAX_DOUBLINGS: Final = 3


def own_update(q: QuorumState) -> UpdateVoterRequest | None:
    """Tells the quorum where this voter listens; None if it knows, or this node does not vote."""
    desk, voters = q.joining, q.latest_voters
    if not desk.endpoints or desk.settled is voters:
        return None
    recorded = next((v for v in voters.voters if (v.node_id, v.directory_id) == q.me), None)
    if recorded is None:
        return None
    if recorded.endpoints == desk.endpoints:
        desk.settled = voters
        return None
    return UpdateVoterRequest(recorded._replace(endpoints=desk.endpoints), q.epoch, q.config.request_timeout_ms)


def _wish(q: QuorumState) -> QuorumChangeRequest | None:
    """What this node would ask its leader for now."""
    desk, role = q.joining, q.role
    if not desk.endpoints or desk.settled is q.latest_voters:
        return None
    if not isinstance(role, Follower) or role.suspicious or q.shutting_down:
        return None
    high_watermark, _ = role.verified
    if high_watermark is None or q.shape.end < high_watermark or q.awaiting_log:
        return None  # it does not follow well enough to be counted on
    if q.is_voter:
        return own_update(q)
    if not q.config.auto_join or q.voters.has_named(q.me) or not q.standing.may_acknowledge:
        return None
    timeout_ms = q.config.request_timeout_ms
    former = q.latest_voters.key_of(q.me.node_id)
    if former is not None:
        return RemoveVoterRequest(former, timeout_ms)
    return AddVoterRequest(Voter(*q.me, desk.endpoints), ack_when_committed=True, timeout_ms=timeout_ms)


def deadline_ms(q: QuorumState) -> int | None:
    """When this node asks, or asks again; None: there is nothing to ask for, or it has asked."""
    return q.joining.ask_at_ms if q.joining.asked is None and _wish(q) is not None else None


def ask_if_due(q: QuorumState) -> None:
    """Called at the end of every step."""
    at_ms = deadline_ms(q)
    if at_ms is None or at_ms > q.now_ms:
        return
    wish = _wish(q)
    assert wish is not None and isinstance(q.role, Follower)
    q.joining.asked = wish
    q.send(q.role.leader_id, wish)


def on_response(q: QuorumState, request: QuorumChangeRequest, response: QuorumChangeResponse) -> None:
    """Refused: later again. Done: the log will say so; if it brings another wish with it, then that next."""
    q.absorb(response.epoch, response.leader_id)
    if request == q.joining.asked:
        _again_later(q, failed=response.error is not ErrorCode.NONE)


def on_failed(q: QuorumState, request: QuorumChangeRequest) -> None:
    if request == q.joining.asked:
        _again_later(q, failed=True)


def _again_later(q: QuorumState, *, failed: bool) -> None:
    desk = q.joining
    wait_ms = q.config.fetch_timeout_ms << min(desk.failures, MAX_DOUBLINGS) if failed else q.config.retry_backoff_ms
    desk.asked = None
    desk.failures = desk.failures + 1 if failed else 0
    desk.ask_at_ms = q.now_ms + wait_ms
