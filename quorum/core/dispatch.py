"""The way of each message to the file deciding on it: requests, answers, and missing answers.

Example: voter 2's fetch arrives at leader 1. `on_request` calls `fetch_service.on_fetch`, which answers or parks the fetch.

The deciding files check the numbers of a request. The numbers of an answer are checked here. No node means a negative
offset, epoch or id, so an answer with one of these counts as missing. Example: a fault makes voter 3 answer "leader -7,
epoch 6". Node 1 would save -7 in `quorum-state`, and no later start could read the file.
"""

from typing import assert_never

from quorum.core import disputes, election, fetch_service, follower, leader, votes
from quorum.core.membership import auto_join, membership
from quorum.core.protocol.inputs import Failure, RequestFailed, RequestReceived, ResponseReceived
from quorum.core.protocol.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    ChainRequest,
    ChainResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumChangeResponse,
    RemoveVoterRequest,
    Response,
    TransferLeadershipRequest,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from quorum.core.quorum_state import QuorumState


def on_request(state: QuorumState, received: RequestReceived) -> None:
    """Decides on another node's request, or on an operator's."""
    reply_to = received.reply_to
    match received.request:
        case VoteRequest() as request:
            votes.on_vote_request(state, request, reply_to)
        case BeginQuorumEpochRequest() as request:
            votes.on_begin_quorum_epoch(state, request, reply_to)
        case EndQuorumEpochRequest() as request:
            votes.on_end_quorum_epoch(state, request, reply_to)
        case FetchRequest() as request:
            fetch_service.on_fetch(state, request, reply_to, received.chain_at_offset)
        case FetchSnapshotRequest() as request:
            fetch_service.on_fetch_snapshot(state, request, reply_to)
        case ChainRequest() as request:
            disputes.on_chain_request(state, request, reply_to, received.chain_at_offset)
        case AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest() | TransferLeadershipRequest() as request:
            membership.on_request(state, request, reply_to)
        case _ as request:
            assert_never(request)


def on_response(state: QuorumState, received: ResponseReceived) -> None:
    """Decides on the answer to one of this node's requests."""
    source = received.source
    if not _is_possible(received.response):
        on_failure(state, RequestFailed(source, received.request, Failure.BROKEN))
        return
    match received.request, received.response:
        case VoteRequest() as request, VoteResponse() as response:
            election.on_vote_response(state, source, request, response)
        case BeginQuorumEpochRequest(), BeginQuorumEpochResponse() as response:
            leader.on_begin_response(state, response)
        case EndQuorumEpochRequest() as request, EndQuorumEpochResponse() as response:
            leader.on_end_response(state, source, request, response)
        case FetchRequest() as request, FetchResponse() as response:
            follower.on_fetch_response(state, source, request, response)
        case FetchSnapshotRequest() as request, FetchSnapshotResponse() as response:
            follower.on_snapshot_response(state, source, request, response)
        case ChainRequest() as request, ChainResponse() as response:
            disputes.on_chain_response(state, source, request, response)
        case (
            AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest() | TransferLeadershipRequest() as request,
            QuorumChangeResponse() as response,
        ):
            auto_join.on_response(state, request, response)
        case _:
            raise AssertionError(f"an answer of the wrong kind: {received}")


def _is_possible(response: Response) -> bool:
    """False if the answer has a negative number. (A negative epoch is an old epoch, and ignored as such.)"""
    if response.leader_id is not None and response.leader_id < 0:
        return False
    if not isinstance(response, FetchResponse):
        return True
    places = (*(response.diverging or ()), *(response.snapshot or ()))
    return all(number >= 0 for number in (response.log_end, response.high_watermark or 0, *places))


def on_failure(state: QuorumState, failed: RequestFailed) -> None:
    """Decides on the missing answer to one of this node's requests."""
    match failed.request:
        case VoteRequest() as request:
            election.on_vote_failed(state, request)
        case BeginQuorumEpochRequest():
            pass  # the leader's timer repeats the request to silent voters
        case EndQuorumEpochRequest() as request:
            leader.on_end_failed(state, failed.destination, request)
        case FetchRequest() | FetchSnapshotRequest() as request:
            follower.on_fetch_failed(state, failed.destination, request, failed.failure)
        case ChainRequest() as request:
            disputes.on_chain_failed(state, failed.destination, request)
        case AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest() | TransferLeadershipRequest() as request:
            auto_join.on_failed(state, request)
        case _ as request:
            assert_never(request)
