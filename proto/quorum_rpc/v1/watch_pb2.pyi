from quorum_rpc.v1 import entity_pb2 as _entity_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ResetReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NO_RESET: _ClassVar[ResetReason]
    NO_POSITION: _ClassVar[ResetReason]
    BELOW_LOG_START: _ClassVar[ResetReason]
    OTHER_GENERATION: _ClassVar[ResetReason]
    OTHER_HISTORY: _ClassVar[ResetReason]
NO_RESET: ResetReason
NO_POSITION: ResetReason
BELOW_LOG_START: ResetReason
OTHER_GENERATION: ResetReason
OTHER_HISTORY: ResetReason

class WatchPosition(_message.Message):
    __slots__ = ("generation", "offset", "epoch", "chain")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    generation: int
    offset: int
    epoch: int
    chain: bytes
    def __init__(self, generation: _Optional[int] = ..., offset: _Optional[int] = ..., epoch: _Optional[int] = ..., chain: _Optional[bytes] = ...) -> None: ...

class WatchFilter(_message.Message):
    __slots__ = ("entities", "topics", "all_topics", "brokers", "all_brokers", "sessions", "others")
    class Entities(_message.Message):
        __slots__ = ("kind", "name_prefix")
        KIND_FIELD_NUMBER: _ClassVar[int]
        NAME_PREFIX_FIELD_NUMBER: _ClassVar[int]
        kind: str
        name_prefix: str
        def __init__(self, kind: _Optional[str] = ..., name_prefix: _Optional[str] = ...) -> None: ...
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    ALL_TOPICS_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    ALL_BROKERS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    entities: _containers.RepeatedCompositeFieldContainer[WatchFilter.Entities]
    topics: _containers.RepeatedScalarFieldContainer[str]
    all_topics: bool
    brokers: _containers.RepeatedScalarFieldContainer[int]
    all_brokers: bool
    sessions: bool
    others: bool
    def __init__(self, entities: _Optional[_Iterable[_Union[WatchFilter.Entities, _Mapping]]] = ..., topics: _Optional[_Iterable[str]] = ..., all_topics: bool = ..., brokers: _Optional[_Iterable[int]] = ..., all_brokers: bool = ..., sessions: bool = ..., others: bool = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("cluster_id", "filter", "position", "from_now", "bookmark_interval_ms")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    FROM_NOW_FIELD_NUMBER: _ClassVar[int]
    BOOKMARK_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    filter: WatchFilter
    position: WatchPosition
    from_now: bool
    bookmark_interval_ms: int
    def __init__(self, cluster_id: _Optional[str] = ..., filter: _Optional[_Union[WatchFilter, _Mapping]] = ..., position: _Optional[_Union[WatchPosition, _Mapping]] = ..., from_now: bool = ..., bookmark_interval_ms: _Optional[int] = ...) -> None: ...

class EntityWritten(_message.Message):
    __slots__ = ("entity",)
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    entity: _entity_pb2.Entity
    def __init__(self, entity: _Optional[_Union[_entity_pb2.Entity, _Mapping]] = ...) -> None: ...

class EntityDeleted(_message.Message):
    __slots__ = ("entity",)
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    entity: _entity_pb2.EntityName
    def __init__(self, entity: _Optional[_Union[_entity_pb2.EntityName, _Mapping]] = ...) -> None: ...

class RecordWritten(_message.Message):
    __slots__ = ("type", "json", "topic")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    type: str
    json: str
    topic: str
    def __init__(self, type: _Optional[str] = ..., json: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class WatchEvent(_message.Message):
    __slots__ = ("offset", "entity_written", "entity_deleted", "record")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ENTITY_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    ENTITY_DELETED_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    offset: int
    entity_written: EntityWritten
    entity_deleted: EntityDeleted
    record: RecordWritten
    def __init__(self, offset: _Optional[int] = ..., entity_written: _Optional[_Union[EntityWritten, _Mapping]] = ..., entity_deleted: _Optional[_Union[EntityDeleted, _Mapping]] = ..., record: _Optional[_Union[RecordWritten, _Mapping]] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("position", "events", "is_whole", "reset", "timestamp_ms")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    IS_WHOLE_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    position: WatchPosition
    events: _containers.RepeatedCompositeFieldContainer[WatchEvent]
    is_whole: bool
    reset: ResetReason
    timestamp_ms: int
    def __init__(self, position: _Optional[_Union[WatchPosition, _Mapping]] = ..., events: _Optional[_Iterable[_Union[WatchEvent, _Mapping]]] = ..., is_whole: bool = ..., reset: _Optional[_Union[ResetReason, str]] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...
