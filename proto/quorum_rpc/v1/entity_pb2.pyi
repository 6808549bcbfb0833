from quorum_rpc.v1 import admin_pb2 as _admin_pb2
from quorum_rpc.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Owner(_message.Message):
    __slots__ = ("session_id", "broker_id", "epoch")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    broker_id: int
    epoch: int
    def __init__(self, session_id: _Optional[bytes] = ..., broker_id: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class Entity(_message.Message):
    __slots__ = ("kind", "name", "value", "version", "created", "owner")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    value: bytes
    version: int
    created: int
    owner: Owner
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., value: _Optional[bytes] = ..., version: _Optional[int] = ..., created: _Optional[int] = ..., owner: _Optional[_Union[Owner, _Mapping]] = ...) -> None: ...

class EntityName(_message.Message):
    __slots__ = ("kind", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("entity", "exists", "version", "version_at_most", "value")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_AT_MOST_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    entity: EntityName
    exists: bool
    version: int
    version_at_most: int
    value: bytes
    def __init__(self, entity: _Optional[_Union[EntityName, _Mapping]] = ..., exists: bool = ..., version: _Optional[int] = ..., version_at_most: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...

class PutEntity(_message.Message):
    __slots__ = ("entity", "value", "owner", "ttl_ms", "keep_owner")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    KEEP_OWNER_FIELD_NUMBER: _ClassVar[int]
    entity: EntityName
    value: bytes
    owner: Owner
    ttl_ms: int
    keep_owner: bool
    def __init__(self, entity: _Optional[_Union[EntityName, _Mapping]] = ..., value: _Optional[bytes] = ..., owner: _Optional[_Union[Owner, _Mapping]] = ..., ttl_ms: _Optional[int] = ..., keep_owner: bool = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("put", "delete", "create_topic", "delete_topic", "alter_configs")
    PUT_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    put: PutEntity
    delete: EntityName
    create_topic: _admin_pb2.NewTopic
    delete_topic: str
    alter_configs: _admin_pb2.ConfigAlteration
    def __init__(self, put: _Optional[_Union[PutEntity, _Mapping]] = ..., delete: _Optional[_Union[EntityName, _Mapping]] = ..., create_topic: _Optional[_Union[_admin_pb2.NewTopic, _Mapping]] = ..., delete_topic: _Optional[str] = ..., alter_configs: _Optional[_Union[_admin_pb2.ConfigAlteration, _Mapping]] = ...) -> None: ...

class TransactRequest(_message.Message):
    __slots__ = ("context", "conditions", "operations")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    context: _admin_pb2.RequestContext
    conditions: _containers.RepeatedCompositeFieldContainer[Condition]
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    def __init__(self, context: _Optional[_Union[_admin_pb2.RequestContext, _Mapping]] = ..., conditions: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ..., operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ...) -> None: ...

class OperationResult(_message.Message):
    __slots__ = ("version", "topic_id")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    version: int
    topic_id: bytes
    def __init__(self, version: _Optional[int] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class FailedCondition(_message.Message):
    __slots__ = ("index", "entity")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    index: int
    entity: Entity
    def __init__(self, index: _Optional[int] = ..., entity: _Optional[_Union[Entity, _Mapping]] = ...) -> None: ...

class TransactResponse(_message.Message):
    __slots__ = ("offset", "succeeded", "failed", "results", "generation")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    offset: int
    succeeded: bool
    failed: FailedCondition
    results: _containers.RepeatedCompositeFieldContainer[OperationResult]
    generation: int
    def __init__(self, offset: _Optional[int] = ..., succeeded: bool = ..., failed: _Optional[_Union[FailedCondition, _Mapping]] = ..., results: _Optional[_Iterable[_Union[OperationResult, _Mapping]]] = ..., generation: _Optional[int] = ...) -> None: ...

class GetEntitiesRequest(_message.Message):
    __slots__ = ("context", "entities")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    context: _admin_pb2.RequestContext
    entities: _containers.RepeatedCompositeFieldContainer[EntityName]
    def __init__(self, context: _Optional[_Union[_admin_pb2.RequestContext, _Mapping]] = ..., entities: _Optional[_Iterable[_Union[EntityName, _Mapping]]] = ...) -> None: ...

class GetEntitiesResponse(_message.Message):
    __slots__ = ("as_of_offset", "entities", "missing", "generation", "local")
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    as_of_offset: int
    entities: _containers.RepeatedCompositeFieldContainer[Entity]
    missing: _containers.RepeatedScalarFieldContainer[int]
    generation: int
    local: _admin_pb2.LocalView
    def __init__(self, as_of_offset: _Optional[int] = ..., entities: _Optional[_Iterable[_Union[Entity, _Mapping]]] = ..., missing: _Optional[_Iterable[int]] = ..., generation: _Optional[int] = ..., local: _Optional[_Union[_admin_pb2.LocalView, _Mapping]] = ...) -> None: ...

class ListEntitiesRequest(_message.Message):
    __slots__ = ("context", "kind", "prefix", "from_name", "to_name", "names_only", "count_only", "page_size", "page_token")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    FROM_NAME_FIELD_NUMBER: _ClassVar[int]
    TO_NAME_FIELD_NUMBER: _ClassVar[int]
    NAMES_ONLY_FIELD_NUMBER: _ClassVar[int]
    COUNT_ONLY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    context: _admin_pb2.RequestContext
    kind: str
    prefix: str
    from_name: str
    to_name: str
    names_only: bool
    count_only: bool
    page_size: int
    page_token: bytes
    def __init__(self, context: _Optional[_Union[_admin_pb2.RequestContext, _Mapping]] = ..., kind: _Optional[str] = ..., prefix: _Optional[str] = ..., from_name: _Optional[str] = ..., to_name: _Optional[str] = ..., names_only: bool = ..., count_only: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class ListEntitiesResponse(_message.Message):
    __slots__ = ("as_of_offset", "entities", "count", "next_page_token", "generation", "local")
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    as_of_offset: int
    entities: _containers.RepeatedCompositeFieldContainer[Entity]
    count: int
    next_page_token: bytes
    generation: int
    local: _admin_pb2.LocalView
    def __init__(self, as_of_offset: _Optional[int] = ..., entities: _Optional[_Iterable[_Union[Entity, _Mapping]]] = ..., count: _Optional[int] = ..., next_page_token: _Optional[bytes] = ..., generation: _Optional[int] = ..., local: _Optional[_Union[_admin_pb2.LocalView, _Mapping]] = ...) -> None: ...

class Kind(_message.Message):
    __slots__ = ("kind", "schema", "entities_max", "bytes_max", "value_bytes_max")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    ENTITIES_MAX_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    kind: str
    schema: str
    entities_max: int
    bytes_max: int
    value_bytes_max: int
    def __init__(self, kind: _Optional[str] = ..., schema: _Optional[str] = ..., entities_max: _Optional[int] = ..., bytes_max: _Optional[int] = ..., value_bytes_max: _Optional[int] = ...) -> None: ...

class AlterKindsRequest(_message.Message):
    __slots__ = ("context", "declare", "remove")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    DECLARE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    context: _admin_pb2.RequestContext
    declare: _containers.RepeatedCompositeFieldContainer[Kind]
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, context: _Optional[_Union[_admin_pb2.RequestContext, _Mapping]] = ..., declare: _Optional[_Iterable[_Union[Kind, _Mapping]]] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class AlterKindsResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class DescribeKindsRequest(_message.Message):
    __slots__ = ("context", "page_size", "page_token")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    context: _admin_pb2.RequestContext
    page_size: int
    page_token: bytes
    def __init__(self, context: _Optional[_Union[_admin_pb2.RequestContext, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class DescribedKind(_message.Message):
    __slots__ = ("kind", "is_declared", "entity_count", "byte_count")
    KIND_FIELD_NUMBER: _ClassVar[int]
    IS_DECLARED_FIELD_NUMBER: _ClassVar[int]
    ENTITY_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    kind: Kind
    is_declared: bool
    entity_count: int
    byte_count: int
    def __init__(self, kind: _Optional[_Union[Kind, _Mapping]] = ..., is_declared: bool = ..., entity_count: _Optional[int] = ..., byte_count: _Optional[int] = ...) -> None: ...

class DescribeKindsResponse(_message.Message):
    __slots__ = ("as_of_offset", "kinds", "next_page_token", "local")
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    as_of_offset: int
    kinds: _containers.RepeatedCompositeFieldContainer[DescribedKind]
    next_page_token: bytes
    local: _admin_pb2.LocalView
    def __init__(self, as_of_offset: _Optional[int] = ..., kinds: _Optional[_Iterable[_Union[DescribedKind, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ..., local: _Optional[_Union[_admin_pb2.LocalView, _Mapping]] = ...) -> None: ...

class OpenSessionRequest(_message.Message):
    __slots__ = ("context", "session_id", "name", "timeout_ms")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    context: _admin_pb2.RequestContext
    session_id: bytes
    name: str
    timeout_ms: int
    def __init__(self, context: _Optional[_Union[_admin_pb2.RequestContext, _Mapping]] = ..., session_id: _Optional[bytes] = ..., name: _Optional[str] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class OpenSessionResponse(_message.Message):
    __slots__ = ("offset", "epoch", "timeout_ms", "generation")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    offset: int
    epoch: int
    timeout_ms: int
    generation: int
    def __init__(self, offset: _Optional[int] = ..., epoch: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class CloseSessionRequest(_message.Message):
    __slots__ = ("context", "session_id", "epoch")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    context: _admin_pb2.RequestContext
    session_id: bytes
    epoch: int
    def __init__(self, context: _Optional[_Union[_admin_pb2.RequestContext, _Mapping]] = ..., session_id: _Optional[bytes] = ..., epoch: _Optional[int] = ...) -> None: ...

class CloseSessionResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ("context", "page_size", "page_token")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    context: _admin_pb2.RequestContext
    page_size: int
    page_token: bytes
    def __init__(self, context: _Optional[_Union[_admin_pb2.RequestContext, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ("session_id", "name", "principal", "timeout_ms", "epoch", "entity_count")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENTITY_COUNT_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    name: str
    principal: str
    timeout_ms: int
    epoch: int
    entity_count: int
    def __init__(self, session_id: _Optional[bytes] = ..., name: _Optional[str] = ..., principal: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., epoch: _Optional[int] = ..., entity_count: _Optional[int] = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("as_of_offset", "sessions", "next_page_token", "local")
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    as_of_offset: int
    sessions: _containers.RepeatedCompositeFieldContainer[Session]
    next_page_token: bytes
    local: _admin_pb2.LocalView
    def __init__(self, as_of_offset: _Optional[int] = ..., sessions: _Optional[_Iterable[_Union[Session, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ..., local: _Optional[_Union[_admin_pb2.LocalView, _Mapping]] = ...) -> None: ...

class SessionName(_message.Message):
    __slots__ = ("session_id", "epoch")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    epoch: int
    def __init__(self, session_id: _Optional[bytes] = ..., epoch: _Optional[int] = ...) -> None: ...

class KeepAliveRequest(_message.Message):
    __slots__ = ("cluster_id", "id", "sessions")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    id: int
    sessions: _containers.RepeatedCompositeFieldContainer[SessionName]
    def __init__(self, cluster_id: _Optional[str] = ..., id: _Optional[int] = ..., sessions: _Optional[_Iterable[_Union[SessionName, _Mapping]]] = ...) -> None: ...

class KeptSession(_message.Message):
    __slots__ = ("session", "error", "lease_ms")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    session: SessionName
    error: _common_pb2.Error
    lease_ms: int
    def __init__(self, session: _Optional[_Union[SessionName, _Mapping]] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class KeepAliveResponse(_message.Message):
    __slots__ = ("id", "error", "leader", "sessions")
    ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    id: int
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    sessions: _containers.RepeatedCompositeFieldContainer[KeptSession]
    def __init__(self, id: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., sessions: _Optional[_Iterable[_Union[KeptSession, _Mapping]]] = ...) -> None: ...
