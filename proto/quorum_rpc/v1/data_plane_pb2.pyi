from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReplicaRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLICA_ROLE_UNSPECIFIED: _ClassVar[ReplicaRole]
    LEAD: _ClassVar[ReplicaRole]
    FOLLOW: _ClassVar[ReplicaRole]
    STOP: _ClassVar[ReplicaRole]
    DELETE: _ClassVar[ReplicaRole]
REPLICA_ROLE_UNSPECIFIED: ReplicaRole
LEAD: ReplicaRole
FOLLOW: ReplicaRole
STOP: ReplicaRole
DELETE: ReplicaRole

class ResumePoint(_message.Message):
    __slots__ = ("generation", "offset")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    generation: int
    offset: int
    def __init__(self, generation: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class WatchAssignmentsRequest(_message.Message):
    __slots__ = ("since",)
    SINCE_FIELD_NUMBER: _ClassVar[int]
    since: ResumePoint
    def __init__(self, since: _Optional[_Union[ResumePoint, _Mapping]] = ...) -> None: ...

class WatchAssignmentsResponse(_message.Message):
    __slots__ = ("whole_set", "assignment", "resume_point")
    WHOLE_SET_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    RESUME_POINT_FIELD_NUMBER: _ClassVar[int]
    whole_set: WholeSet
    assignment: Assignment
    resume_point: ResumePoint
    def __init__(self, whole_set: _Optional[_Union[WholeSet, _Mapping]] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ..., resume_point: _Optional[_Union[ResumePoint, _Mapping]] = ...) -> None: ...

class WholeSet(_message.Message):
    __slots__ = ("replica_count", "offset")
    REPLICA_COUNT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    replica_count: int
    offset: int
    def __init__(self, replica_count: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("role", "topic_id", "topic", "partition", "leader_id", "leader_epoch", "partition_epoch", "replicas", "isr", "directory_id", "is_recovering", "offset")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    IS_RECOVERING_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    role: ReplicaRole
    topic_id: bytes
    topic: str
    partition: int
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    directory_id: bytes
    is_recovering: bool
    offset: int
    def __init__(self, role: _Optional[_Union[ReplicaRole, str]] = ..., topic_id: _Optional[bytes] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ..., directory_id: _Optional[bytes] = ..., is_recovering: bool = ..., offset: _Optional[int] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LeaseResponse(_message.Message):
    __slots__ = ("may_serve", "remaining_ms", "broker_epoch")
    MAY_SERVE_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    may_serve: bool
    remaining_ms: int
    broker_epoch: int
    def __init__(self, may_serve: bool = ..., remaining_ms: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...
