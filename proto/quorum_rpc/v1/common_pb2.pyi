from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NONE: _ClassVar[ErrorCode]
    UNKNOWN_SERVER_ERROR: _ClassVar[ErrorCode]
    REQUEST_TIMED_OUT: _ClassVar[ErrorCode]
    INVALID_REQUEST: _ClassVar[ErrorCode]
    NOT_CONTROLLER: _ClassVar[ErrorCode]
    NOT_LEADER_OR_FOLLOWER: _ClassVar[ErrorCode]
    FENCED_LEADER_EPOCH: _ClassVar[ErrorCode]
    UNKNOWN_LEADER_EPOCH: _ClassVar[ErrorCode]
    BROKER_NOT_AVAILABLE: _ClassVar[ErrorCode]
    NOT_READY: _ClassVar[ErrorCode]
    INCONSISTENT_CLUSTER_ID: _ClassVar[ErrorCode]
    INVALID_VOTER_KEY: _ClassVar[ErrorCode]
    DUPLICATE_VOTER: _ClassVar[ErrorCode]
    VOTER_NOT_FOUND: _ClassVar[ErrorCode]
    UNSUPPORTED_VERSION: _ClassVar[ErrorCode]
    CLUSTER_AUTHORIZATION_FAILED: _ClassVar[ErrorCode]
    INVALID_CONTROL_GENERATION: _ClassVar[ErrorCode]
    TOPIC_AUTHORIZATION_FAILED: _ClassVar[ErrorCode]
    DIVERGING_EPOCH: _ClassVar[ErrorCode]
    OFFSET_OUT_OF_RANGE: _ClassVar[ErrorCode]
    SNAPSHOT_NOT_FOUND: _ClassVar[ErrorCode]
    POSITION_OUT_OF_RANGE: _ClassVar[ErrorCode]
    CHAIN_MISMATCH: _ClassVar[ErrorCode]
    RECORD_BATCH_TOO_LARGE: _ClassVar[ErrorCode]
    STALE_BROKER_EPOCH: _ClassVar[ErrorCode]
    BROKER_ID_NOT_REGISTERED: _ClassVar[ErrorCode]
    DUPLICATE_BROKER_REGISTRATION: _ClassVar[ErrorCode]
    INVALID_REGISTRATION: _ClassVar[ErrorCode]
    FENCED_BROKER: _ClassVar[ErrorCode]
    INVALID_TOPIC_EXCEPTION: _ClassVar[ErrorCode]
    TOPIC_ALREADY_EXISTS: _ClassVar[ErrorCode]
    UNKNOWN_TOPIC_OR_PARTITION: _ClassVar[ErrorCode]
    UNKNOWN_TOPIC_ID: _ClassVar[ErrorCode]
    INVALID_PARTITIONS: _ClassVar[ErrorCode]
    INVALID_REPLICATION_FACTOR: _ClassVar[ErrorCode]
    INVALID_REPLICA_ASSIGNMENT: _ClassVar[ErrorCode]
    INVALID_CONFIG: _ClassVar[ErrorCode]
    POLICY_VIOLATION: _ClassVar[ErrorCode]
    INVALID_UPDATE_VERSION: _ClassVar[ErrorCode]
    INELIGIBLE_REPLICA: _ClassVar[ErrorCode]
    TOPIC_DELETION_DISABLED: _ClassVar[ErrorCode]
    LOG_DIR_NOT_FOUND: _ClassVar[ErrorCode]
    ELECTION_NOT_NEEDED: _ClassVar[ErrorCode]
    PREFERRED_LEADER_NOT_AVAILABLE: _ClassVar[ErrorCode]
    ELIGIBLE_LEADERS_NOT_AVAILABLE: _ClassVar[ErrorCode]
    NO_REASSIGNMENT_IN_PROGRESS: _ClassVar[ErrorCode]
    NEW_LEADER_ELECTED: _ClassVar[ErrorCode]
    THROTTLING_QUOTA_EXCEEDED: _ClassVar[ErrorCode]
    REQUEST_ID_EXPIRED: _ClassVar[ErrorCode]
    FEATURE_UPDATE_FAILED: _ClassVar[ErrorCode]
    LISTENER_NOT_FOUND: _ClassVar[ErrorCode]
    LEADER_NOT_AVAILABLE: _ClassVar[ErrorCode]
    STORAGE_ERROR: _ClassVar[ErrorCode]
    RESOURCE_NOT_FOUND: _ClassVar[ErrorCode]
    NOT_ENOUGH_REPLICAS: _ClassVar[ErrorCode]
    NOT_ENOUGH_REPLICAS_AFTER_APPEND: _ClassVar[ErrorCode]
    FETCH_SESSION_ID_NOT_FOUND: _ClassVar[ErrorCode]
    INVALID_FETCH_SESSION_EPOCH: _ClassVar[ErrorCode]
    OUT_OF_ORDER_SEQUENCE_NUMBER: _ClassVar[ErrorCode]
    INVALID_PRODUCER_EPOCH: _ClassVar[ErrorCode]
    INVALID_TIMESTAMP: _ClassVar[ErrorCode]
    INVALID_ENTITY: _ClassVar[ErrorCode]
    UNKNOWN_SESSION: _ClassVar[ErrorCode]
NONE: ErrorCode
UNKNOWN_SERVER_ERROR: ErrorCode
REQUEST_TIMED_OUT: ErrorCode
INVALID_REQUEST: ErrorCode
NOT_CONTROLLER: ErrorCode
NOT_LEADER_OR_FOLLOWER: ErrorCode
FENCED_LEADER_EPOCH: ErrorCode
UNKNOWN_LEADER_EPOCH: ErrorCode
BROKER_NOT_AVAILABLE: ErrorCode
NOT_READY: ErrorCode
INCONSISTENT_CLUSTER_ID: ErrorCode
INVALID_VOTER_KEY: ErrorCode
DUPLICATE_VOTER: ErrorCode
VOTER_NOT_FOUND: ErrorCode
UNSUPPORTED_VERSION: ErrorCode
CLUSTER_AUTHORIZATION_FAILED: ErrorCode
INVALID_CONTROL_GENERATION: ErrorCode
TOPIC_AUTHORIZATION_FAILED: ErrorCode
DIVERGING_EPOCH: ErrorCode
OFFSET_OUT_OF_RANGE: ErrorCode
SNAPSHOT_NOT_FOUND: ErrorCode
POSITION_OUT_OF_RANGE: ErrorCode
CHAIN_MISMATCH: ErrorCode
RECORD_BATCH_TOO_LARGE: ErrorCode
STALE_BROKER_EPOCH: ErrorCode
BROKER_ID_NOT_REGISTERED: ErrorCode
DUPLICATE_BROKER_REGISTRATION: ErrorCode
INVALID_REGISTRATION: ErrorCode
FENCED_BROKER: ErrorCode
INVALID_TOPIC_EXCEPTION: ErrorCode
TOPIC_ALREADY_EXISTS: ErrorCode
UNKNOWN_TOPIC_OR_PARTITION: ErrorCode
UNKNOWN_TOPIC_ID: ErrorCode
INVALID_PARTITIONS: ErrorCode
INVALID_REPLICATION_FACTOR: ErrorCode
INVALID_REPLICA_ASSIGNMENT: ErrorCode
INVALID_CONFIG: ErrorCode
POLICY_VIOLATION: ErrorCode
INVALID_UPDATE_VERSION: ErrorCode
INELIGIBLE_REPLICA: ErrorCode
TOPIC_DELETION_DISABLED: ErrorCode
LOG_DIR_NOT_FOUND: ErrorCode
ELECTION_NOT_NEEDED: ErrorCode
PREFERRED_LEADER_NOT_AVAILABLE: ErrorCode
ELIGIBLE_LEADERS_NOT_AVAILABLE: ErrorCode
NO_REASSIGNMENT_IN_PROGRESS: ErrorCode
NEW_LEADER_ELECTED: ErrorCode
THROTTLING_QUOTA_EXCEEDED: ErrorCode
REQUEST_ID_EXPIRED: ErrorCode
FEATURE_UPDATE_FAILED: ErrorCode
LISTENER_NOT_FOUND: ErrorCode
LEADER_NOT_AVAILABLE: ErrorCode
STORAGE_ERROR: ErrorCode
RESOURCE_NOT_FOUND: ErrorCode
NOT_ENOUGH_REPLICAS: ErrorCode
NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode
FETCH_SESSION_ID_NOT_FOUND: ErrorCode
INVALID_FETCH_SESSION_EPOCH: ErrorCode
OUT_OF_ORDER_SEQUENCE_NUMBER: ErrorCode
INVALID_PRODUCER_EPOCH: ErrorCode
INVALID_TIMESTAMP: ErrorCode
INVALID_ENTITY: ErrorCode
UNKNOWN_SESSION: ErrorCode

class Error(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: ErrorCode
    message: str
    def __init__(self, code: _Optional[_Union[ErrorCode, str]] = ..., message: _Optional[str] = ...) -> None: ...

class OffsetAndEpoch(_message.Message):
    __slots__ = ("offset", "epoch")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    offset: int
    epoch: int
    def __init__(self, offset: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class ReplicaKey(_message.Message):
    __slots__ = ("node_id", "directory_id")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    directory_id: bytes
    def __init__(self, node_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("listener", "host", "port")
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    listener: str
    host: str
    port: int
    def __init__(self, listener: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class FeatureRange(_message.Message):
    __slots__ = ("name", "min_level", "max_level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MAX_LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    min_level: int
    max_level: int
    def __init__(self, name: _Optional[str] = ..., min_level: _Optional[int] = ..., max_level: _Optional[int] = ...) -> None: ...

class LeaderHint(_message.Message):
    __slots__ = ("leader_id", "epoch", "endpoint")
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    leader_id: int
    epoch: int
    endpoint: Endpoint
    def __init__(self, leader_id: _Optional[int] = ..., epoch: _Optional[int] = ..., endpoint: _Optional[_Union[Endpoint, _Mapping]] = ...) -> None: ...

class BatchPart(_message.Message):
    __slots__ = ("position", "size", "data")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    position: int
    size: int
    data: bytes
    def __init__(self, position: _Optional[int] = ..., size: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class SnapshotId(_message.Message):
    __slots__ = ("end_offset", "epoch")
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    end_offset: int
    epoch: int
    def __init__(self, end_offset: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...
