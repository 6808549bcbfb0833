from quorum_rpc.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TopicIdPartition(_message.Message):
    __slots__ = ("topic_id", "partition")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ...) -> None: ...

class CurrentLeader(_message.Message):
    __slots__ = ("leader_id", "leader_epoch")
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    leader_id: int
    leader_epoch: int
    def __init__(self, leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("acks", "timeout_ms", "batches")
    ACKS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    acks: int
    timeout_ms: int
    batches: _containers.RepeatedCompositeFieldContainer[PartitionBatch]
    def __init__(self, acks: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[PartitionBatch, _Mapping]]] = ...) -> None: ...

class PartitionBatch(_message.Message):
    __slots__ = ("partition", "leader_epoch", "producer_id", "producer_epoch", "base_sequence", "record_count", "records")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    partition: TopicIdPartition
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    records: bytes
    def __init__(self, partition: _Optional[_Union[TopicIdPartition, _Mapping]] = ..., leader_epoch: _Optional[int] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., base_sequence: _Optional[int] = ..., record_count: _Optional[int] = ..., records: _Optional[bytes] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[AppendResult]
    def __init__(self, results: _Optional[_Iterable[_Union[AppendResult, _Mapping]]] = ...) -> None: ...

class AppendResult(_message.Message):
    __slots__ = ("partition", "error", "base_offset", "log_start_offset", "current_leader")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    partition: TopicIdPartition
    error: _common_pb2.Error
    base_offset: int
    log_start_offset: int
    current_leader: CurrentLeader
    def __init__(self, partition: _Optional[_Union[TopicIdPartition, _Mapping]] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., base_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., current_leader: _Optional[_Union[CurrentLeader, _Mapping]] = ...) -> None: ...

class FetchRecordsRequest(_message.Message):
    __slots__ = ("replica_id", "broker_epoch", "session_id", "session_epoch", "partitions", "forgotten", "max_wait_ms", "min_bytes", "max_bytes")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    replica_id: int
    broker_epoch: int
    session_id: int
    session_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionFetch]
    forgotten: _containers.RepeatedCompositeFieldContainer[TopicIdPartition]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    def __init__(self, replica_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., session_id: _Optional[int] = ..., session_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionFetch, _Mapping]]] = ..., forgotten: _Optional[_Iterable[_Union[TopicIdPartition, _Mapping]]] = ..., max_wait_ms: _Optional[int] = ..., min_bytes: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class PartitionFetch(_message.Message):
    __slots__ = ("partition", "offset", "leader_epoch", "last_fetched_epoch", "max_bytes")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCHED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    partition: TopicIdPartition
    offset: int
    leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int
    def __init__(self, partition: _Optional[_Union[TopicIdPartition, _Mapping]] = ..., offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., last_fetched_epoch: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class FetchRecordsResponse(_message.Message):
    __slots__ = ("session_id", "partitions")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    partitions: _containers.RepeatedCompositeFieldContainer[FetchedPartition]
    def __init__(self, session_id: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[FetchedPartition, _Mapping]]] = ...) -> None: ...

class FetchedPartition(_message.Message):
    __slots__ = ("partition", "error", "high_watermark", "log_start_offset", "batches", "diverged", "begin_at", "current_leader")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    DIVERGED_FIELD_NUMBER: _ClassVar[int]
    BEGIN_AT_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    partition: TopicIdPartition
    error: _common_pb2.Error
    high_watermark: int
    log_start_offset: int
    batches: bytes
    diverged: _common_pb2.OffsetAndEpoch
    begin_at: LogStart
    current_leader: CurrentLeader
    def __init__(self, partition: _Optional[_Union[TopicIdPartition, _Mapping]] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., high_watermark: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., batches: _Optional[bytes] = ..., diverged: _Optional[_Union[_common_pb2.OffsetAndEpoch, _Mapping]] = ..., begin_at: _Optional[_Union[LogStart, _Mapping]] = ..., current_leader: _Optional[_Union[CurrentLeader, _Mapping]] = ...) -> None: ...

class LogStart(_message.Message):
    __slots__ = ("offset", "epoch", "chain")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    offset: int
    epoch: int
    chain: bytes
    def __init__(self, offset: _Optional[int] = ..., epoch: _Optional[int] = ..., chain: _Optional[bytes] = ...) -> None: ...

class ListOffsetsRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[OffsetQuestion]
    def __init__(self, partitions: _Optional[_Iterable[_Union[OffsetQuestion, _Mapping]]] = ...) -> None: ...

class OffsetQuestion(_message.Message):
    __slots__ = ("partition", "leader_epoch", "earliest", "latest", "timestamp_ms")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    partition: TopicIdPartition
    leader_epoch: int
    earliest: bool
    latest: bool
    timestamp_ms: int
    def __init__(self, partition: _Optional[_Union[TopicIdPartition, _Mapping]] = ..., leader_epoch: _Optional[int] = ..., earliest: bool = ..., latest: bool = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class ListOffsetsResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[FoundOffset]
    def __init__(self, partitions: _Optional[_Iterable[_Union[FoundOffset, _Mapping]]] = ...) -> None: ...

class FoundOffset(_message.Message):
    __slots__ = ("partition", "error", "offset", "timestamp_ms", "leader_epoch", "current_leader")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    partition: TopicIdPartition
    error: _common_pb2.Error
    offset: int
    timestamp_ms: int
    leader_epoch: int
    current_leader: CurrentLeader
    def __init__(self, partition: _Optional[_Union[TopicIdPartition, _Mapping]] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., current_leader: _Optional[_Union[CurrentLeader, _Mapping]] = ...) -> None: ...

class OffsetForLeaderEpochRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[EpochQuestion]
    def __init__(self, partitions: _Optional[_Iterable[_Union[EpochQuestion, _Mapping]]] = ...) -> None: ...

class EpochQuestion(_message.Message):
    __slots__ = ("partition", "current_leader_epoch", "leader_epoch")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    partition: TopicIdPartition
    current_leader_epoch: int
    leader_epoch: int
    def __init__(self, partition: _Optional[_Union[TopicIdPartition, _Mapping]] = ..., current_leader_epoch: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class OffsetForLeaderEpochResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[EpochEnd]
    def __init__(self, partitions: _Optional[_Iterable[_Union[EpochEnd, _Mapping]]] = ...) -> None: ...

class EpochEnd(_message.Message):
    __slots__ = ("partition", "error", "leader_epoch", "end_offset", "current_leader")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_FIELD_NUMBER: _ClassVar[int]
    partition: TopicIdPartition
    error: _common_pb2.Error
    leader_epoch: int
    end_offset: int
    current_leader: CurrentLeader
    def __init__(self, partition: _Optional[_Union[TopicIdPartition, _Mapping]] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader_epoch: _Optional[int] = ..., end_offset: _Optional[int] = ..., current_leader: _Optional[_Union[CurrentLeader, _Mapping]] = ...) -> None: ...

class AllocateProducerIdRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AllocateProducerIdResponse(_message.Message):
    __slots__ = ("producer_id",)
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    def __init__(self, producer_id: _Optional[int] = ...) -> None: ...
