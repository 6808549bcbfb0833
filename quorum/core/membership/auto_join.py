"""Requests of a node to its leader on its own behalf: to become a voter, or to update its endpoints (KIP-853,
KIP-1186).

* A controller configured to join (`auto_join`), and not in the voter set, asks to be added once it has caught up. If
  the voter set has the controller's node id with another directory, its own former disk, the controller first asks to
  remove the former entry: two voters never share an id.
* A voter listening on other endpoints than the voter set says asks the leader to update them. A leader updates its own
  entry itself.

Example:

    1. The disk of controller 3 is replaced. The voter set {1,2,3} names controller 3 with its old directory id.
    2. Controller 3 starts with a new directory id, fetches as an observer, and catches up with leader 1.
    3. Controller 3 asks leader 1 to remove the old entry: {1,2}. Then it asks to be added: {1,2,3}.

A removed replica does not rejoin by itself as long as its log names it as a former voter: an operator wanted the
removal.
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
    """The request to update this voter's endpoints. None: the voter set is right, or this node is no voter."""
    own, voters = state.join, state.latest_voters
    if not own.endpoints or own.settled is voters:
        return None
    recorded = next((v for v in voters.voters if (v.node_id, v.directory_id) == state.me), None)
    if recorded is None:
        return None
    if recorded.endpoints == own.endpoints:
        own.settle(voters)
        return None
    return UpdateVoterRequest(recorded._replace(endpoints=own.endpoints), state.epoch, state.config.request_timeout_ms)


def _wish(state: QuorumState) -> QuorumChangeRequest | None:
    """The request this node would send to its leader now."""
    own, role = state.join, state.role
    if not own.endpoints or own.settled is state.latest_voters:
        return None
    if not isinstance(role, Follower) or role.suspicious or state.shutting_down:
        return None
    high_watermark, _ = role.verified
    if high_watermark is None or state.shape.end < high_watermark or state.awaiting_log:
        return None  # the node does not follow the leader closely enough yet
    if state.is_voter:
        return own_update(state)
    if not state.config.auto_join or state.voters.has_named(state.me) or not state.disk.trust.may_acknowledge:
        return None
    timeout_ms = state.config.request_timeout_ms
    former = state.latest_voters.key_of(state.me.node_id)
    if former is not None:
        return RemoveVoterRequest(former, timeout_ms)
    return AddVoterRequest(Voter(*state.me, own.endpoints), ack_when_committed=True, timeout_ms=timeout_ms)


def deadline_ms(state: QuorumState) -> int | None:
    """When to send the request, or to repeat it. None: no request, or a request in flight."""
    return state.join.ask_at_ms if state.join.asked is None and _wish(state) is not None else None


def ask_if_due(state: QuorumState) -> None:
    """Sends the request if due. Called at the end of every step."""
    if state.join.asked is not None or state.join.ask_at_ms > state.now_ms:
        return
    wish = _wish(state)
    if wish is None:
        return
    assert isinstance(state.role, Follower)
    state.join.sent(wish)
    state.send(state.role.leader_id, wish)


def on_response(state: QuorumState, request: QuorumChangeRequest, response: QuorumChangeResponse) -> None:
    """Schedules the next request: after a refusal, the same request later; after success, the next request, if any."""
    state.absorb(response.epoch, response.leader_id)
    if request == state.join.asked:
        _again_later(state, failed=response.error is not ErrorCode.NONE)


def on_failed(state: QuorumState, request: QuorumChangeRequest) -> None:
    if request == state.join.asked:
        _again_later(state, failed=True)


def _again_later(state: QuorumState, *, failed: bool) -> None:
    if failed:
        state.join.failed(state.now_ms, state.config.fetch_timeout_ms, MAX_DOUBLINGS)
    else:
        state.join.answered(state.now_ms + state.config.retry_backoff_ms)
