from quorum_rpc.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BrokerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BROKER_STATE_UNSPECIFIED: _ClassVar[BrokerState]
    OFFLINE: _ClassVar[BrokerState]
    FENCED: _ClassVar[BrokerState]
    ONLINE: _ClassVar[BrokerState]
    STOPPING: _ClassVar[BrokerState]
BROKER_STATE_UNSPECIFIED: BrokerState
OFFLINE: BrokerState
FENCED: BrokerState
ONLINE: BrokerState
STOPPING: BrokerState

class RegisterBrokerRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "incarnation_id", "endpoints", "features", "rack", "log_dirs", "previous_incarnation_id", "generation", "data_plane", "previous_broker_epoch")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DATA_PLANE_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    incarnation_id: bytes
    endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    features: _containers.RepeatedCompositeFieldContainer[_common_pb2.FeatureRange]
    rack: str
    log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    previous_incarnation_id: bytes
    generation: int
    data_plane: str
    previous_broker_epoch: int
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ..., features: _Optional[_Iterable[_Union[_common_pb2.FeatureRange, _Mapping]]] = ..., rack: _Optional[str] = ..., log_dirs: _Optional[_Iterable[bytes]] = ..., previous_incarnation_id: _Optional[bytes] = ..., generation: _Optional[int] = ..., data_plane: _Optional[str] = ..., previous_broker_epoch: _Optional[int] = ...) -> None: ...

class RegisterBrokerResponse(_message.Message):
    __slots__ = ("error", "leader", "broker_epoch", "generation")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    broker_epoch: int
    generation: int
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., broker_epoch: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class ReportDeathRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "generation", "incarnation_ids")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_IDS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    generation: int
    incarnation_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., generation: _Optional[int] = ..., incarnation_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ReportDeathResponse(_message.Message):
    __slots__ = ("error", "leader", "offset", "broker_epoch", "generation")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    offset: int
    broker_epoch: int
    generation: int
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., offset: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class MetadataFetchRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "broker_epoch", "incarnation_id", "offset", "epoch", "chain", "wants_fence", "wants_shut_down", "offline_log_dirs", "max_wait_ms", "max_bytes", "number", "generation", "part_position")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    WANTS_FENCE_FIELD_NUMBER: _ClassVar[int]
    WANTS_SHUT_DOWN_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PART_POSITION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    offset: int
    epoch: int
    chain: bytes
    wants_fence: bool
    wants_shut_down: bool
    offline_log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    max_wait_ms: int
    max_bytes: int
    number: int
    generation: int
    part_position: int
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., offset: _Optional[int] = ..., epoch: _Optional[int] = ..., chain: _Optional[bytes] = ..., wants_fence: bool = ..., wants_shut_down: bool = ..., offline_log_dirs: _Optional[_Iterable[bytes]] = ..., max_wait_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ..., number: _Optional[int] = ..., generation: _Optional[int] = ..., part_position: _Optional[int] = ...) -> None: ...

class MetadataFetchResponse(_message.Message):
    __slots__ = ("error", "leader", "number", "result", "batches", "previous_chain", "end_offset", "snapshot", "diverging", "high_watermark", "digest", "digest_offset", "state", "is_caught_up", "should_shut_down", "lease_ms", "controller_epoch", "generation", "part", "skips")
    class Result(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RESULT_UNSPECIFIED: _ClassVar[MetadataFetchResponse.Result]
        BATCHES: _ClassVar[MetadataFetchResponse.Result]
        USE_SNAPSHOT: _ClassVar[MetadataFetchResponse.Result]
        DIVERGED: _ClassVar[MetadataFetchResponse.Result]
        NOT_READY: _ClassVar[MetadataFetchResponse.Result]
    RESULT_UNSPECIFIED: MetadataFetchResponse.Result
    BATCHES: MetadataFetchResponse.Result
    USE_SNAPSHOT: MetadataFetchResponse.Result
    DIVERGED: MetadataFetchResponse.Result
    NOT_READY: MetadataFetchResponse.Result
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_CHAIN_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    DIVERGING_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DIGEST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    IS_CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    SHOULD_SHUT_DOWN_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    SKIPS_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    number: int
    result: MetadataFetchResponse.Result
    batches: bytes
    previous_chain: bytes
    end_offset: int
    snapshot: _common_pb2.SnapshotId
    diverging: _common_pb2.OffsetAndEpoch
    high_watermark: int
    digest: bytes
    digest_offset: int
    state: BrokerState
    is_caught_up: bool
    should_shut_down: bool
    lease_ms: int
    controller_epoch: int
    generation: int
    part: _common_pb2.BatchPart
    skips: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., number: _Optional[int] = ..., result: _Optional[_Union[MetadataFetchResponse.Result, str]] = ..., batches: _Optional[bytes] = ..., previous_chain: _Optional[bytes] = ..., end_offset: _Optional[int] = ..., snapshot: _Optional[_Union[_common_pb2.SnapshotId, _Mapping]] = ..., diverging: _Optional[_Union[_common_pb2.OffsetAndEpoch, _Mapping]] = ..., high_watermark: _Optional[int] = ..., digest: _Optional[bytes] = ..., digest_offset: _Optional[int] = ..., state: _Optional[_Union[BrokerState, str]] = ..., is_caught_up: bool = ..., should_shut_down: bool = ..., lease_ms: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., generation: _Optional[int] = ..., part: _Optional[_Union[_common_pb2.BatchPart, _Mapping]] = ..., skips: _Optional[_Iterable[bytes]] = ...) -> None: ...

class FetchMetadataSnapshotRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "broker_epoch", "incarnation_id", "snapshot", "position", "generation", "max_bytes")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    snapshot: _common_pb2.SnapshotId
    position: int
    generation: int
    max_bytes: int
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., snapshot: _Optional[_Union[_common_pb2.SnapshotId, _Mapping]] = ..., position: _Optional[int] = ..., generation: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class SnapshotChunk(_message.Message):
    __slots__ = ("error", "size", "position", "data")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    size: int
    position: int
    data: bytes
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., size: _Optional[int] = ..., position: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class AlterPartitionRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "broker_epoch", "partitions", "generation")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    broker_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionAlteration]
    generation: int
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionAlteration, _Mapping]]] = ..., generation: _Optional[int] = ...) -> None: ...

class IsrMember(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class PartitionAlteration(_message.Message):
    __slots__ = ("topic_id", "partition", "leader_epoch", "partition_epoch", "new_isr", "leader_recovery_state")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEW_ISR_FIELD_NUMBER: _ClassVar[int]
    LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    new_isr: _containers.RepeatedCompositeFieldContainer[IsrMember]
    leader_recovery_state: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., new_isr: _Optional[_Iterable[_Union[IsrMember, _Mapping]]] = ..., leader_recovery_state: _Optional[int] = ...) -> None: ...

class AlterPartitionResponse(_message.Message):
    __slots__ = ("error", "leader", "offset", "results")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    offset: int
    results: _containers.RepeatedCompositeFieldContainer[PartitionAlterationResult]
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., offset: _Optional[int] = ..., results: _Optional[_Iterable[_Union[PartitionAlterationResult, _Mapping]]] = ...) -> None: ...

class PartitionAlterationResult(_message.Message):
    __slots__ = ("topic_id", "partition", "error", "leader_id", "leader_epoch", "partition_epoch", "isr", "leader_recovery_state")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    error: _common_pb2.Error
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    isr: _containers.RepeatedScalarFieldContainer[int]
    leader_recovery_state: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[int]] = ..., leader_recovery_state: _Optional[int] = ...) -> None: ...

class AssignReplicasToDirsRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "broker_epoch", "directories", "generation")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    broker_epoch: int
    directories: _containers.RepeatedCompositeFieldContainer[ReplicasInDirectory]
    generation: int
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., directories: _Optional[_Iterable[_Union[ReplicasInDirectory, _Mapping]]] = ..., generation: _Optional[int] = ...) -> None: ...

class ReplicasInDirectory(_message.Message):
    __slots__ = ("directory_id", "replicas")
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    directory_id: bytes
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaPlace]
    def __init__(self, directory_id: _Optional[bytes] = ..., replicas: _Optional[_Iterable[_Union[ReplicaPlace, _Mapping]]] = ...) -> None: ...

class ReplicaPlace(_message.Message):
    __slots__ = ("topic_id", "partition")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ...) -> None: ...

class AssignReplicasToDirsResponse(_message.Message):
    __slots__ = ("error", "leader", "offset", "results")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    offset: int
    results: _containers.RepeatedCompositeFieldContainer[AssignedReplica]
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., offset: _Optional[int] = ..., results: _Optional[_Iterable[_Union[AssignedReplica, _Mapping]]] = ...) -> None: ...

class AssignedReplica(_message.Message):
    __slots__ = ("topic_id", "partition", "error")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    error: _common_pb2.Error
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ...) -> None: ...

class AllocateProducerIdsRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "broker_epoch", "generation")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    broker_epoch: int
    generation: int
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class AllocateProducerIdsResponse(_message.Message):
    __slots__ = ("error", "leader", "offset", "first_producer_id", "count")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FIRST_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    offset: int
    first_producer_id: int
    count: int
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., offset: _Optional[int] = ..., first_producer_id: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...
