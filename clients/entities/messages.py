"""Entities, transactions and sessions as messages of `quorum_rpc.v1`, and back. No decision is made here."""

from collections.abc import Sequence
from typing import Any, assert_never

from quorum_rpc.v1 import admin_pb2, entity_pb2

from clients.entities.core.transactions import (
    AlterConfigs,
    Condition,
    CreateTopic,
    DeleteEntity,
    DeleteTopic,
    Exists,
    FailedCondition,
    Operation,
    OperationResult,
    PutEntity,
    Transacted,
    ValueIs,
    VersionAtMost,
    VersionIs,
)
from clients.entities.core.values import DescribedKind, Entity, EntityOwner, KindLimits, SessionListing


def name_message(kind: str, name: str) -> entity_pb2.EntityName:
    """Returns the message for a kind and a name."""
    return entity_pb2.EntityName(kind=kind, name=name)


def owner_of(message: Any) -> EntityOwner:
    """Returns the owner in a message."""
    if message.session_id:
        return EntityOwner(message.session_id, None, message.epoch)
    return EntityOwner(None, message.broker_id, message.epoch)


def owner_message(owner: EntityOwner | None) -> entity_pb2.Owner | None:
    """Returns the message for an owner."""
    if owner is None:
        return None
    return entity_pb2.Owner(session_id=owner.session_id or b"", broker_id=owner.broker_id or 0, epoch=owner.epoch)


def entity_of(message: Any, generation: int) -> Entity:
    """Returns the entity in a message that was read in this generation."""
    owner = owner_of(message.owner) if message.HasField("owner") else None
    return Entity(message.kind, message.name, message.value, message.version, message.created, owner, generation)


def condition_message(condition: Condition) -> entity_pb2.Condition:
    """Returns the message for a condition."""
    entity = name_message(condition.kind, condition.name)
    match condition:
        case Exists():
            return entity_pb2.Condition(entity=entity, exists=condition.wanted)
        case VersionIs():
            return entity_pb2.Condition(entity=entity, version=condition.version)
        case VersionAtMost():
            return entity_pb2.Condition(entity=entity, version_at_most=condition.version)
        case ValueIs():
            return entity_pb2.Condition(entity=entity, value=condition.value)
        case _:
            assert_never(condition)


def operation_message(operation: Operation) -> entity_pb2.Operation:
    """Returns the message for an operation."""
    match operation:
        case PutEntity():
            put = entity_pb2.PutEntity(
                entity=name_message(operation.kind, operation.name),
                value=memoryview(operation.value).tobytes(),  # protobuf would take None for b""
                owner=owner_message(operation.owner),
                ttl_ms=operation.ttl_ms,
                keep_owner=operation.keep_owner,
            )
            return entity_pb2.Operation(put=put)
        case DeleteEntity():
            return entity_pb2.Operation(delete=name_message(operation.kind, operation.name))
        case CreateTopic():
            topic = admin_pb2.NewTopic(
                name=operation.name,
                partitions=operation.partitions,
                replication_factor=operation.replication_factor,
                configs=[admin_pb2.ConfigEntry(key=key, value=value) for key, value in operation.configs.items()],
            )
            return entity_pb2.Operation(create_topic=topic)
        case DeleteTopic():
            return entity_pb2.Operation(delete_topic=operation.name)
        case AlterConfigs():
            return entity_pb2.Operation(alter_configs=_alteration(operation))
        case _:
            assert_never(operation)


def _alteration(operation: AlterConfigs) -> admin_pb2.ConfigAlteration:
    kinds = admin_pb2.ConfigOperation
    return admin_pb2.ConfigAlteration(
        resource=admin_pb2.ConfigResource(resource_type=operation.resource_type, name=operation.name),
        operations=[
            admin_pb2.ConfigOperation(kind=kinds.DELETE, key=key)
            if value is None
            else admin_pb2.ConfigOperation(kind=kinds.SET, key=key, value=value)
            for key, value in operation.values.items()
        ],
    )


def transact_request(conditions: Sequence[Condition], operations: Sequence[Operation]) -> entity_pb2.TransactRequest:
    """Returns the request of a transaction."""
    return entity_pb2.TransactRequest(
        conditions=[condition_message(condition) for condition in conditions],
        operations=[operation_message(operation) for operation in operations],
    )


def transacted_of(response: entity_pb2.TransactResponse) -> Transacted:
    """Returns the outcome of a transaction."""
    failed = None
    if response.HasField("failed"):
        found = entity_of(response.failed.entity, response.generation) if response.failed.HasField("entity") else None
        failed = FailedCondition(response.failed.index, found)
    results = tuple(OperationResult(result.version, result.topic_id) for result in response.results)
    return Transacted(response.succeeded, response.generation, response.offset, results, failed)


def kind_message(limits: KindLimits) -> entity_pb2.Kind:
    """Returns the message for the declaration of a kind."""
    return entity_pb2.Kind(
        kind=limits.kind,
        schema=limits.schema,
        entities_max=limits.entities_max,
        bytes_max=limits.bytes_max,
        value_bytes_max=limits.value_bytes_max,
    )


def described_kind_of(message: Any) -> DescribedKind:
    """Returns the described kind in a message."""
    kind = message.kind
    limits = KindLimits(kind.kind, kind.schema, kind.entities_max, kind.bytes_max, kind.value_bytes_max)
    return DescribedKind(limits, message.is_declared, message.entity_count, message.byte_count)


def session_listing_of(message: Any) -> SessionListing:
    """Returns the session in a message of ListSessions."""
    return SessionListing(
        message.session_id, message.name, message.principal, message.timeout_ms, message.epoch, message.entity_count
    )
