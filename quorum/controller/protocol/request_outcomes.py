"""Requests with ids take effect exactly once: what was done is remembered in the log, beside what it did (Raft 6.3).

A client that gets no answer does not know what became of its request, and may ask again with the same id. The decision's last
batch carries a `RequestOutcome`, so the effect and the memory of it are committed together or not at all, and survive a new
leader, a restart and a snapshot.

    known id, same payload and principal    the first answer again, with its own offset
    known id, anything else                 INVALID_REQUEST: two requests share one id
    unknown id                              it was never done; unless it was, and is forgotten

The number of outcomes is bounded: they stand in a ring of slots, and a new one takes the place of the oldest. Everything at
or above the *horizon* is remembered. A request takes effect above whatever its client had seen when it first sent it; so
where the client had seen the horizon, an unknown id was never done. Where it had not, nobody knows: REQUEST_ID_EXPIRED.

What was done is remembered, also where there was nothing left to do: a client sets x to 1, which it is, and misses the
answer; another sets it to 2; decided anew, the first one's repetition would undo that. What was refused in all its parts,
or only tried out, is not: it had no effect, is decided anew when it comes again, and may then find another cluster.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgpack

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset, Uuid, uuid_text
from metadata_log.format.records import REMEMBERED_REPLY_BYTES_MAX, RequestOutcome
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.commands import (
    AlterConfigs,
    AlterConfigsReply,
    Command,
    CommandReply,
    ConfigResult,
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    DeleteTopicsReply,
    FenceBroker,
    FenceBrokerReply,
    TopicResult,
    UnregisterBroker,
    UnregisterBrokerReply,
)
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.election_commands import (
    ElectionResult,
    ElectPreferredLeaders,
    ElectPreferredLeadersReply,
)

R = TypeVar("R")


class RequestIdentity(NamedTuple):
    """What tells one request from all others, and what its client had seen."""

    request_id: Uuid
    payload_hash: bytes
    """SHA-256 of what is asked for: the same id with another payload is a mistake of the client's."""
    principal: str
    client_high_watermark: Offset
    """The highest offset that the client had been told of when it sent the request for the first time."""


_ROWS: Final = {
    result: attrgetter(*(each.name for each in fields(result)))
    for result in (TopicResult, ConfigResult, ElectionResult)
}
"""How the results inside a reply become plain rows."""


def outcome_of(
    image: MetadataImage, identity: RequestIdentity, reply: CommandReply, outcomes_max: int
) -> RequestOutcome:
    """The record to write last in the batch that completes a request, given that `image` is all that was appended."""
    newest = image.newest_request
    slot = 0 if newest is None else (newest.slot + 1) % outcomes_max
    horizon = image.request_horizon
    replaced: RequestOutcome | None = image.request_outcomes.get(slot)
    if replaced is not None:
        horizon = max(horizon, replaced.offset + 1)
    packed = _packed(reply)
    return RequestOutcome(
        slot=slot,
        request_id=identity.request_id,
        payload_hash=identity.payload_hash,
        principal=identity.principal,
        horizon=horizon,
        reply=packed if len(packed) <= REMEMBERED_REPLY_BYTES_MAX else None,
    )


def is_done(command: Command, reply: CommandReply) -> bool:
    """Whether `reply` tells that `command`, or a part of it, was done; and not only tried out, or refused."""
    if getattr(command, "validate_only", False):
        return False
    results = getattr(reply, "results", ())
    return not results or any(result.error is ErrorCode.NONE for result in results)


def earlier_outcome(image: MetadataImage, identity: RequestIdentity) -> RequestOutcome | None:
    """What became of the request, if it was done before; None if it certainly was not.

    Raises:
        ControllerError: INVALID_REQUEST: the id is another request's; REQUEST_ID_EXPIRED: nobody knows any more.
    """
    found = image.request_outcome(identity.request_id)
    if found is None:
        horizon = image.request_horizon
        if identity.client_high_watermark >= horizon:
            return None
        raise ControllerError(
            ErrorCode.REQUEST_ID_EXPIRED,
            f"what was done below offset {horizon} is forgotten, and this request may have been sent first when its client "
            f"had seen no more than {identity.client_high_watermark}; nothing was done now",
        )
    if (found.payload_hash, found.principal) != (identity.payload_hash, identity.principal):
        raise ControllerError(
            ErrorCode.INVALID_REQUEST,
            f"request id {uuid_text(identity.request_id)} is that of another request, done at offset {found.offset}; "
            f"nothing was done",
        )
    return found


def recalled(command: Command, outcome: RequestOutcome) -> CommandReply:
    """The answer that `command` was given when it was done; without results where those were too many to be kept."""
    offset = outcome.offset + 1
    match command:
        case CreateTopics():
            return CreateTopicsReply(offset, _unpacked(outcome, TopicResult))
        case CreatePartitions():
            return CreatePartitionsReply(offset, _unpacked(outcome, TopicResult))
        case DeleteTopics():
            return DeleteTopicsReply(offset, _unpacked(outcome, TopicResult))
        case AlterConfigs():
            return AlterConfigsReply(offset, _unpacked(outcome, ConfigResult))
        case ElectPreferredLeaders():
            return ElectPreferredLeadersReply(offset, _unpacked(outcome, ElectionResult))
        case FenceBroker():
            return FenceBrokerReply(offset, command.broker_id)
        case UnregisterBroker():
            return UnregisterBrokerReply(offset)
        case _:
            raise AssertionError(f"{type(command).__name__} is not a client's request")


def _packed(reply: CommandReply) -> bytes:
    results = getattr(reply, "results", ())
    return cast(bytes, msgpack.packb([_ROWS[type(result)](result) for result in results])) if results else b""


def _unpacked(outcome: RequestOutcome, result_type: Callable[..., R]) -> tuple[R, ...]:
    rows = msgpack.unpackb(outcome.reply, use_list=False) if outcome.reply else ()
    results = tuple(result_type(*row) for row in rows)
    return tuple(replace(cast(Any, result), error=ErrorCode.of(cast(Any, result).error)) for result in results)
