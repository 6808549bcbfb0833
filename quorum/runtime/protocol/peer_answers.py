"""Sorts the answers of other controllers: answers to Raft's requests, and answers to the reads of a repair.

A node sends both kinds of request through `World.send`, so both kinds of answer arrive at one place. There they are sorted: the
core takes its own inputs only (`ResponseReceived`, `RequestFailed`), the repair its own (`BatchesReceived`, `PieceReceived`,
`ReadFailed`), and the registration the end of its request (`RegistrationEnded`). Example:
    1. node 2 sends a fetch to leader 1, and `ReadLog` for a damaged range to voter 3;
    2. the answer of leader 1 is `ResponseReceived`: the node gives the answer to the core;
    3. voter 3 is down, so the end of the read is `ReadFailed`: the repair asks the next voter, and the core learns nothing.
"""

from dataclasses import dataclass
from typing import TypeAlias

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId
from quorum.core.protocol.inputs import Failure, RequestFailed, ResponseReceived
from quorum.core.protocol.messages import (
    PeerRequest,
    PeerResponse,
    ReadLogRequest,
    ReadLogResponse,
    ReadSnapshotRequest,
    ReadSnapshotResponse,
    RegisterControllerRequest,
    RegisterControllerResponse,
)


@dataclass(frozen=True, slots=True)
class BatchesReceived:
    """`source` answered a read of its log."""

    source: NodeId
    request: ReadLogRequest
    response: ReadLogResponse


@dataclass(frozen=True, slots=True)
class PieceReceived:
    """Another controller answered a read of its snapshot."""

    request: ReadSnapshotRequest
    response: ReadSnapshotResponse


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """No answer to the read `request` will come."""

    request: ReadLogRequest | ReadSnapshotRequest


@dataclass(frozen=True, slots=True)
class RegistrationEnded:
    """The leader answered this controller's registration; no `error`: no answer will come."""

    error: ErrorCode | None


ReadEnd: TypeAlias = BatchesReceived | PieceReceived | ReadFailed


def answered(
    source: NodeId, request: PeerRequest, response: PeerResponse
) -> ResponseReceived | ReadEnd | RegistrationEnded:
    """Makes the input for the answer of `source` to `request`."""
    if isinstance(request, ReadLogRequest):
        assert isinstance(response, ReadLogResponse), f"an answer of the wrong kind: {response}"
        return BatchesReceived(source, request, response)
    if isinstance(request, ReadSnapshotRequest):
        assert isinstance(response, ReadSnapshotResponse), f"an answer of the wrong kind: {response}"
        return PieceReceived(request, response)
    if isinstance(request, RegisterControllerRequest):
        return RegistrationEnded(response.error)
    assert not isinstance(response, ReadLogResponse | ReadSnapshotResponse | RegisterControllerResponse), (
        f"an answer of the wrong kind: {response}"
    )
    return ResponseReceived(source, request, response)


def unanswered(
    destination: NodeId, request: PeerRequest, failure: Failure
) -> RequestFailed | ReadEnd | RegistrationEnded:
    """Makes the input for a `request` to which no answer of `destination` will come."""
    if isinstance(request, ReadLogRequest | ReadSnapshotRequest):
        return ReadFailed(request)
    if isinstance(request, RegisterControllerRequest):
        return RegistrationEnded(None)
    return RequestFailed(destination, request, failure)
