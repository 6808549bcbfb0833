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


def own_update(state: QuorumState) -> UpdateVoterRequest | None:
    """Tells the quorum where this voter listens; None if it knows, or this node does not vote."""
    desk, voters = state.joining, state.latest_voters
    if not desk.endpoints or desk.settled is voters:
        return None
    recorded = next((v for v in voters.voters if (v.node_id, v.directory_id) == state.me), None)
    if recorded is None:
        return None
    if recorded.endpoints == desk.endpoints:
        desk.settled = voters
        return None
    return UpdateVoterRequest(recorded._replace(endpoints=desk.endpoints), state.epoch, state.config.request_timeout_ms)


def _wish(state: QuorumState) -> QuorumChangeRequest | None:
    """What this node would ask its leader for now."""
    desk, role = state.joining, state.role
    if not desk.endpoints or desk.settled is state.latest_voters:
        return None
    if not isinstance(role, Follower) or role.suspicious or state.shutting_down:
        return None
    high_watermark, _ = role.verified
    if high_watermark is None or state.shape.end < high_watermark or state.awaiting_log:
        return None  # it does not follow well enough to be counted on
    if state.is_voter:
        return own_update(state)
    if not state.config.auto_join or state.voters.has_named(state.me) or not state.disk_trust.may_acknowledge:
        return None
    timeout_ms = state.config.request_timeout_ms
    former = state.latest_voters.key_of(state.me.node_id)
    if former is not None:
        return RemoveVoterRequest(former, timeout_ms)
    return AddVoterRequest(Voter(*state.me, desk.endpoints), ack_when_committed=True, timeout_ms=timeout_ms)


def deadline_ms(state: QuorumState) -> int | None:
    """When this node asks, or asks again; None: there is nothing to ask for, or it has asked."""
    return state.joining.ask_at_ms if state.joining.asked is None and _wish(state) is not None else None


def ask_if_due(state: QuorumState) -> None:
    """Called at the end of every step."""
    at_ms = deadline_ms(state)
    if at_ms is None or at_ms > state.now_ms:
        return
    wish = _wish(state)
    assert wish is not None and isinstance(state.role, Follower)
    state.joining.asked = wish
    state.send(state.role.leader_id, wish)


def on_response(state: QuorumState, request: QuorumChangeRequest, response: QuorumChangeResponse) -> None:
    """Refused: later again. Done: the log will say so; if it brings another wish with it, then that next."""
    state.absorb(response.epoch, response.leader_id)
    if request == state.joining.asked:
        _again_later(state, failed=response.error is not ErrorCode.NONE)


def on_failed(state: QuorumState, request: QuorumChangeRequest) -> None:
    if request == state.joining.asked:
        _again_later(state, failed=True)


def _again_later(state: QuorumState, *, failed: bool) -> None:
    desk = state.joining
    wait_ms = (
        state.config.fetch_timeout_ms << min(desk.failures, MAX_DOUBLINGS) if failed else state.config.retry_backoff_ms
    )
    desk.asked = None
    desk.failures = desk.failures + 1 if failed else 0
    desk.ask_at_ms = state.now_ms + wait_ms
