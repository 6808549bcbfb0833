"""Requests with ids take effect exactly once: the log remembers each request beside its effect (Raft 6.3).

A client that gets no answer does not know the fate of its request, and may send the request again with the same id. The last
batch of the decision ends with a `RequestOutcome`. So the effect of one batch or one transaction and its memory are committed
together or not at all, and both survive a new leader, a restart and a snapshot. If a leader dies between two batches of another
decision (`elections`), the next leader decides the repetition as a new request.

    known id, same payload and principal    the first answer again, with its first offset
    known id, other payload or principal    INVALID_REQUEST: two requests share one id
    unknown id                              the request was never done, or it was done and forgotten

The number of outcomes is bounded: outcomes are in a ring of slots, and a new outcome replaces the oldest. Every outcome at or
above the *horizon* is remembered. A request takes effect above every offset that its client had seen when it first sent the
request. So if the client had seen the horizon, a request with an unknown id was never done. If not, the controller cannot know:
REQUEST_ID_EXPIRED.

A request is remembered even if it found nothing to do. For example client A sets x to 1, which x is already, and misses the
answer. Client B sets x to 2. If A's repetition were decided anew, it would undo B's change. A request that was refused in all
its parts, or that only validated, had no effect. It is not remembered, and its repetition is decided anew.
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
    Command,
    CommandReply,
    FenceBroker,
    FenceBrokerReply,
    UnregisterBroker,
    UnregisterBrokerReply,
)
from quorum.controller.protocol.config_commands import (
    AlterConfigKeys,
    AlterConfigKeysReply,
    AlterConfigs,
    AlterConfigsReply,
    ConfigResult,
    ContinueConfigs,
)
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.election_commands import (
    ElectionResult,
    ElectLeaders,
    ElectLeadersReply,
)
from quorum.controller.protocol.entity_commands import (
    AlterKinds,
    AlterKindsReply,
    CloseSession,
    CloseSessionReply,
    OpenSession,
    OpenSessionReply,
    Transact,
    TransactReply,
    packed_session,
    packed_transaction,
    unpacked_session,
    unpacked_transaction,
)
from quorum.controller.protocol.feature_commands import FeatureResult, UpdateFeatures, UpdateFeaturesReply
from quorum.controller.protocol.label_commands import AlterLabels, AlterLabelsReply
from quorum.controller.protocol.mode_commands import BrokerModeReply, DrainBroker, EndBrokerMode
from quorum.controller.protocol.reassignment_commands import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    ContinueReassignments,
    ReassignmentResult,
)
from quorum.controller.protocol.rights.acl_commands import (
    AclFilterResult,
    AclResult,
    CreateAcls,
    CreateAclsReply,
    DeleteAcls,
    DeleteAclsReply,
)
from quorum.controller.protocol.rights.quota_commands import AlterClientQuotas, AlterClientQuotasReply, QuotaResult
from quorum.controller.protocol.rights.scram_commands import (
    AlterUserScramCredentials,
    AlterUserScramCredentialsReply,
    ScramResult,
)
from quorum.controller.protocol.topic_commands import (
    ContinueTopics,
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    DeleteTopicsReply,
    TopicResult,
)

R = TypeVar("R")


class RequestIdentity(NamedTuple):
    """The identity of a request, and the newest offset that its client had seen."""

    request_id: Uuid
    payload_hash: bytes
    """SHA-256 of the request's content. The same id with another payload is a mistake of the client."""
    principal: str
    client_high_watermark: Offset
    """The highest offset that the client had seen when it sent the request for the first time."""


_REST: Final = (ContinueTopics, ContinueConfigs, ContinueReassignments)
_ROWS: Final = {
    result: attrgetter(*(each.name for each in fields(result)))
    for result in (
        TopicResult,
        ConfigResult,
        ElectionResult,
        ReassignmentResult,
        FeatureResult,
        QuotaResult,
        AclResult,
        AclFilterResult,
        ScramResult,
    )
}
"""Functions that make plain rows of the results inside a reply."""
_ROW_BYTES_MIN: Final = 3
"""How many bytes a packed row has at least: the row itself, and two fields or more."""


def outcome_of(
    image: MetadataImage, identity: RequestIdentity, reply: CommandReply, outcomes_max: int
) -> RequestOutcome:
    """Makes the last record of the batch that completes a request. `image` is all that was appended before."""
    newest = image.newest_request
    slot = 0 if newest is None else (newest.slot + 1) % outcomes_max
    horizon = image.request_horizon
    replaced: RequestOutcome | None = image.request_outcomes.get(slot)
    if replaced is not None:
        horizon = max(horizon, replaced.offset + 1)
    return RequestOutcome(
        slot=slot,
        request_id=identity.request_id,
        payload_hash=identity.payload_hash,
        principal=identity.principal,
        horizon=horizon,
        reply=_packed(reply),
    )


def is_done(command: Command, reply: CommandReply) -> bool:
    """True if `command`, or a part of it, was done, and not only validated or refused."""
    asked = command.command if isinstance(command, _REST) else command
    if getattr(asked, "validate_only", False):
        return False
    if isinstance(reply, TransactReply) and reply.failed is not None:
        return False
    results = getattr(reply, "results", ())
    return not results or any(result.error is ErrorCode.NONE for result in results)


def earlier_outcome(image: MetadataImage, identity: RequestIdentity) -> RequestOutcome | None:
    """Returns the outcome of the request, if the request was done before; None if it certainly was not.

    Raises:
        ControllerError: INVALID_REQUEST: another request has this id; REQUEST_ID_EXPIRED: the outcome may be forgotten.
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
    """Returns the first answer to `command`, without results if there were too many to be kept."""
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
        case AlterConfigKeys():
            return AlterConfigKeysReply(offset)
        case AlterLabels():
            return AlterLabelsReply(offset)
        case ElectLeaders():
            return ElectLeadersReply(offset, _unpacked(outcome, ElectionResult))
        case AlterPartitionReassignments():
            return AlterPartitionReassignmentsReply(offset, _unpacked(outcome, ReassignmentResult))
        case UpdateFeatures():
            return UpdateFeaturesReply(offset, _unpacked(outcome, FeatureResult))
        case AlterClientQuotas():
            return AlterClientQuotasReply(offset, _unpacked(outcome, QuotaResult))
        case CreateAcls():
            return CreateAclsReply(offset, _unpacked(outcome, AclResult))
        case DeleteAcls():
            return DeleteAclsReply(offset, _unpacked(outcome, AclFilterResult))
        case AlterUserScramCredentials():
            return AlterUserScramCredentialsReply(offset, _unpacked(outcome, ScramResult))
        case FenceBroker():
            return FenceBrokerReply(offset, command.broker_id)
        case UnregisterBroker():
            return UnregisterBrokerReply(offset)
        case DrainBroker() | EndBrokerMode():
            return BrokerModeReply(command.broker_id, offset)
        case Transact():
            assert outcome.reply is not None, "the results of every transaction are remembered"
            return TransactReply(offset, operations=unpacked_transaction(command, outcome.reply, outcome.offset))
        case OpenSession():
            assert outcome.reply is not None
            return unpacked_session(outcome.reply, outcome.offset)
        case AlterKinds():
            return AlterKindsReply(offset)
        case CloseSession():
            return CloseSessionReply(offset)
        case _:
            raise AssertionError(f"{type(command).__name__} is not a client's request")


def _packed(reply: CommandReply) -> bytes | None:
    """The results of a reply as bytes; None if they are too many to be remembered."""
    if isinstance(reply, TransactReply):
        return packed_transaction(reply)
    if isinstance(reply, OpenSessionReply):
        return packed_session(reply)
    results = getattr(reply, "results", ())
    if not results:
        return b""
    if len(results) > REMEMBERED_REPLY_BYTES_MAX // _ROW_BYTES_MIN:
        return None  # ten thousand results would take 8 ms only to be found too large
    packed = cast(bytes, msgpack.packb([_ROWS[type(result)](result) for result in results]))
    return packed if len(packed) <= REMEMBERED_REPLY_BYTES_MAX else None


def _unpacked(outcome: RequestOutcome, result_type: Callable[..., R]) -> tuple[R, ...]:
    rows = msgpack.unpackb(outcome.reply, use_list=False) if outcome.reply else ()
    results = tuple(result_type(*row) for row in rows)
    return tuple(replace(cast(Any, result), error=ErrorCode.of(cast(Any, result).error)) for result in results)
