"""Translates between protobuf and the commands, replies and views of entities and sessions. Decides nothing.

All names are checked here, because an answer repeats them. Example: a GetEntities with 128 names of 32 KiB is refused, and no
answer of
4 MiB is made.
"""

from typing import Final

from quorum_rpc.v1 import entity_pb2

from metadata_log.format.entity_names import EntityName, entity_name_problem, kind_problem
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ZERO_UUID
from metadata_log.format.records import KIND_SCHEMA_BYTES_MAX, Entity, EntityKind, Owner
from quorum.controller.entities.entity_views import DescribedKind, DescribedSession, Filter
from quorum.controller.protocol.entity_commands import (
    KIND_CHANGES_MAX,
    OPERATIONS_MAX,
    AlterKinds,
    AlterKindsReply,
    CloseSession,
    CloseSessionReply,
    Condition,
    DeleteEntity,
    DeleteTopic,
    OpenSession,
    OpenSessionReply,
    Operation,
    OperationResult,
    PutEntity,
    Transact,
    TransactReply,
    operation_place,
)
from quorum.runtime.protocol.requests import KeptSession, SessionName, SessionsKept
from quorum.wire.convert.convert_admin import alteration_of, check_new_topic, new_topic_of
from quorum.wire.convert.errors import BadMessage, error
from quorum.wire.convert.parts import UUID_BYTES, at_most, uuid

SESSION_ID_BYTES: Final = UUID_BYTES
SESSION_TIMEOUT_DEFAULT_MS: Final = 9_000
"""The timeout of a session whose request does not say it: that of brokers."""
KEPT_SESSIONS_MAX: Final = 1_000
"""Maximum number of sessions in one message."""


def from_name(message: entity_pb2.EntityName, where: str) -> EntityName:
    """Returns kind and name. Raises BadMessage for a kind or a name that no entity can have; `where` is the begin of its text."""
    problem = kind_problem(message.kind) or entity_name_problem(message.name)
    if problem is not None:
        raise BadMessage(f"{where}{problem}; nothing was done")
    return message.kind, message.name


def _owner(message: entity_pb2.Owner, where: str) -> Owner:
    if message.epoch < 0:
        raise BadMessage(f"{where}the epoch {message.epoch} is negative; nothing was done")
    if message.session_id:
        return Owner(uuid(message.session_id, f"{where}session_id"), None, message.epoch)
    return Owner(None, message.broker_id, message.epoch)


# --- transactions --------------------------------------------------------------------------------------------------


def from_transact(message: entity_pb2.TransactRequest) -> Transact:
    at_most(OPERATIONS_MAX, len(message.operations), "operations")
    at_most(OPERATIONS_MAX, len(message.conditions), "conditions")
    count = len(message.operations)
    return Transact(
        tuple([_condition(each, f"condition {i}: ") for i, each in enumerate(message.conditions)]),
        tuple([_operation(each, operation_place(i, count)) for i, each in enumerate(message.operations)]),
    )


def _condition(message: entity_pb2.Condition, where: str) -> Condition:
    name = from_name(message.entity, where)
    match message.WhichOneof("test"):
        case "exists":
            return Condition(name, exists=message.exists)
        case "version":
            return Condition(name, version=message.version)
        case "version_at_most":
            return Condition(name, version_at_most=message.version_at_most)
        case "value":
            return Condition(name, value=message.value)
        case _:
            raise BadMessage(f"{where}it tests nothing that this release knows; nothing was done")


def _operation(message: entity_pb2.Operation, where: str) -> Operation:
    match message.WhichOneof("operation"):
        case "put":
            return _put(message.put, where)
        case "delete":
            return DeleteEntity(from_name(message.delete, where))
        case "create_topic":
            check_new_topic(message.create_topic)
            return new_topic_of(message.create_topic)
        case "delete_topic":
            return DeleteTopic(message.delete_topic)
        case "alter_configs":
            return alteration_of(message.alter_configs)
        case _:
            raise BadMessage(f"{where}the operation is of a kind that this release does not know; nothing was done")


def _put(message: entity_pb2.PutEntity, where: str) -> PutEntity:
    return PutEntity(
        from_name(message.entity, where),
        message.value,
        _owner(message.owner, where) if message.HasField("owner") else None,
        message.ttl_ms,
        message.keep_owner,
    )


def to_transact_response(reply: TransactReply) -> entity_pb2.TransactResponse:
    response = entity_pb2.TransactResponse(offset=reply.offset, succeeded=reply.failed is None)
    if reply.failed is None:
        response.results.extend([_result(each) for each in reply.operations])
        return response
    response.failed.index = reply.failed.number
    if reply.failed.entity is not None:
        response.failed.entity.CopyFrom(to_entity(reply.failed.entity, names_only=True))
    return response


def _result(result: OperationResult) -> entity_pb2.OperationResult:
    topic_id = b"" if result.topic_id == ZERO_UUID else result.topic_id
    return entity_pb2.OperationResult(version=result.version, topic_id=topic_id)


# --- entities and kinds --------------------------------------------------------------------------------------------


def to_entity(entity: Entity, *, names_only: bool = False) -> entity_pb2.Entity:
    owner = entity.owner
    return entity_pb2.Entity(
        kind=entity.kind,
        name=entity.name,
        value=b"" if names_only else entity.value,
        version=entity.version,
        created=entity.created,
        owner=None
        if owner is None
        else entity_pb2.Owner(session_id=owner.session_id or b"", broker_id=owner.broker_id or 0, epoch=owner.epoch),
    )


def from_filter(message: entity_pb2.ListEntitiesRequest) -> Filter:
    problem = kind_problem(message.kind)
    if problem is not None:
        raise BadMessage(problem)
    return Filter(message.kind, message.prefix, message.from_name, message.to_name)


def from_alter_kinds(message: entity_pb2.AlterKindsRequest) -> AlterKinds:
    at_most(KIND_CHANGES_MAX, len(message.declare) + len(message.remove), "kinds")
    return AlterKinds(tuple([_kind(each) for each in message.declare]), tuple(message.remove))


def _kind(message: entity_pb2.Kind) -> EntityKind:
    if len(message.schema) > KIND_SCHEMA_BYTES_MAX:
        raise BadMessage(f"kind {message.kind:.80}: a schema has at most {KIND_SCHEMA_BYTES_MAX:,} bytes")
    return EntityKind(message.kind, message.schema, message.entities_max, message.bytes_max, message.value_bytes_max)


def to_alter_kinds_response(reply: AlterKindsReply) -> entity_pb2.AlterKindsResponse:
    return entity_pb2.AlterKindsResponse(offset=reply.offset)


def to_kind(described: DescribedKind) -> entity_pb2.DescribedKind:
    limits = described.limits
    kind = entity_pb2.Kind(
        kind=described.kind,
        schema=described.schema,
        entities_max=limits.entities,
        bytes_max=limits.bytes,
        value_bytes_max=limits.value_bytes,
    )
    return entity_pb2.DescribedKind(
        kind=kind,
        is_declared=described.is_declared,
        entity_count=described.usage.entity_count,
        byte_count=described.usage.byte_count,
    )


# --- sessions ------------------------------------------------------------------------------------------------------


def from_open_session(message: entity_pb2.OpenSessionRequest) -> OpenSession:
    session_id = uuid(message.session_id, "session_id")
    return OpenSession(session_id, message.name, "", message.timeout_ms or SESSION_TIMEOUT_DEFAULT_MS)


def to_open_session_response(reply: OpenSessionReply) -> entity_pb2.OpenSessionResponse:
    return entity_pb2.OpenSessionResponse(offset=reply.offset, epoch=reply.epoch, timeout_ms=reply.timeout_ms)


def from_close_session(message: entity_pb2.CloseSessionRequest) -> CloseSession:
    return CloseSession(uuid(message.session_id, "session_id"), message.epoch)


def to_close_session_response(reply: CloseSessionReply) -> entity_pb2.CloseSessionResponse:
    return entity_pb2.CloseSessionResponse(offset=reply.offset)


def to_session(described: DescribedSession) -> entity_pb2.Session:
    session = described.session
    return entity_pb2.Session(
        session_id=session.session_id,
        name=session.name,
        principal=session.principal,
        timeout_ms=session.timeout_ms,
        epoch=session.epoch,
        entity_count=described.entity_count,
    )


def from_keep_alive(message: entity_pb2.KeepAliveRequest) -> tuple[SessionName, ...]:
    at_most(KEPT_SESSIONS_MAX, len(message.sessions), "sessions")
    return tuple([SessionName(uuid(each.session_id, "session_id"), each.epoch) for each in message.sessions])


def to_kept(number: int, sessions: tuple[SessionName, ...], kept: SessionsKept) -> entity_pb2.KeepAliveResponse:
    return entity_pb2.KeepAliveResponse(
        id=number, sessions=[_kept(*each) for each in zip(sessions, kept.sessions, strict=True)]
    )


def _kept(name: SessionName, kept: KeptSession) -> entity_pb2.KeptSession:
    session = entity_pb2.SessionName(session_id=name.session_id, epoch=name.epoch)
    if kept.is_open:
        return entity_pb2.KeptSession(session=session, lease_ms=kept.lease_ms)
    return entity_pb2.KeptSession(session=session, error=error(ErrorCode.UNKNOWN_SESSION, "the session has ended"))
