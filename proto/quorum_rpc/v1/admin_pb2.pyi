from quorum_rpc.v1 import broker_pb2 as _broker_pb2
from quorum_rpc.v1 import common_pb2 as _common_pb2
from quorum_rpc.v1 import voter_pb2 as _voter_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ScramMechanism(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCRAM_MECHANISM_UNSPECIFIED: _ClassVar[ScramMechanism]
    SCRAM_SHA_256: _ClassVar[ScramMechanism]
    SCRAM_SHA_512: _ClassVar[ScramMechanism]

class PartitionCondition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PARTITION_CONDITION_UNSPECIFIED: _ClassVar[PartitionCondition]
    UNDER_REPLICATED: _ClassVar[PartitionCondition]
    UNAVAILABLE: _ClassVar[PartitionCondition]
    UNDER_MIN_ISR: _ClassVar[PartitionCondition]
    AT_MIN_ISR: _ClassVar[PartitionCondition]
    NOT_PREFERRED_LEADER: _ClassVar[PartitionCondition]
    OFFLINE_REPLICAS: _ClassVar[PartitionCondition]
SCRAM_MECHANISM_UNSPECIFIED: ScramMechanism
SCRAM_SHA_256: ScramMechanism
SCRAM_SHA_512: ScramMechanism
PARTITION_CONDITION_UNSPECIFIED: PartitionCondition
UNDER_REPLICATED: PartitionCondition
UNAVAILABLE: PartitionCondition
UNDER_MIN_ISR: PartitionCondition
AT_MIN_ISR: PartitionCondition
NOT_PREFERRED_LEADER: PartitionCondition
OFFLINE_REPLICAS: PartitionCondition

class RequestContext(_message.Message):
    __slots__ = ("cluster_id", "timeout_ms", "request_id", "client_high_watermark", "consistency", "at_offset", "at_time_ms")
    class Consistency(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LINEARIZABLE: _ClassVar[RequestContext.Consistency]
        LOCAL: _ClassVar[RequestContext.Consistency]
    LINEARIZABLE: RequestContext.Consistency
    LOCAL: RequestContext.Consistency
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    AT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    AT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    timeout_ms: int
    request_id: bytes
    client_high_watermark: int
    consistency: RequestContext.Consistency
    at_offset: int
    at_time_ms: int
    def __init__(self, cluster_id: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., request_id: _Optional[bytes] = ..., client_high_watermark: _Optional[int] = ..., consistency: _Optional[_Union[RequestContext.Consistency, str]] = ..., at_offset: _Optional[int] = ..., at_time_ms: _Optional[int] = ...) -> None: ...

class LocalView(_message.Message):
    __slots__ = ("node_id", "leader_heard_age_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_HEARD_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    leader_heard_age_ms: int
    def __init__(self, node_id: _Optional[int] = ..., leader_heard_age_ms: _Optional[int] = ...) -> None: ...

class MutationResponse(_message.Message):
    __slots__ = ("error", "leader", "offset")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    offset: int
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class ConfigEntry(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class ReplicaList(_message.Message):
    __slots__ = ("broker_ids",)
    BROKER_IDS_FIELD_NUMBER: _ClassVar[int]
    broker_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, broker_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class NewTopic(_message.Message):
    __slots__ = ("name", "partitions", "replication_factor", "assignment", "configs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    replication_factor: int
    assignment: _containers.RepeatedCompositeFieldContainer[ReplicaList]
    configs: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., assignment: _Optional[_Iterable[_Union[ReplicaList, _Mapping]]] = ..., configs: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ...) -> None: ...

class CreateTopicsRequest(_message.Message):
    __slots__ = ("context", "topics", "validate_only")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    topics: _containers.RepeatedCompositeFieldContainer[NewTopic]
    validate_only: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[NewTopic, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class TopicResult(_message.Message):
    __slots__ = ("name", "error", "topic_id", "partitions", "replication_factor")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    error: _common_pb2.Error
    topic_id: bytes
    partitions: int
    replication_factor: int
    def __init__(self, name: _Optional[str] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ...) -> None: ...

class CreateTopicsResponse(_message.Message):
    __slots__ = ("error", "leader", "offset", "results")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    offset: int
    results: _containers.RepeatedCompositeFieldContainer[TopicResult]
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., offset: _Optional[int] = ..., results: _Optional[_Iterable[_Union[TopicResult, _Mapping]]] = ...) -> None: ...

class NewPartitions(_message.Message):
    __slots__ = ("name", "total_count", "assignment")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    total_count: int
    assignment: _containers.RepeatedCompositeFieldContainer[ReplicaList]
    def __init__(self, name: _Optional[str] = ..., total_count: _Optional[int] = ..., assignment: _Optional[_Iterable[_Union[ReplicaList, _Mapping]]] = ...) -> None: ...

class CreatePartitionsRequest(_message.Message):
    __slots__ = ("context", "topics", "validate_only")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    topics: _containers.RepeatedCompositeFieldContainer[NewPartitions]
    validate_only: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[NewPartitions, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class CreatePartitionsResponse(_message.Message):
    __slots__ = ("error", "leader", "offset", "results")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    offset: int
    results: _containers.RepeatedCompositeFieldContainer[TopicResult]
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., offset: _Optional[int] = ..., results: _Optional[_Iterable[_Union[TopicResult, _Mapping]]] = ...) -> None: ...

class DeleteTopicsRequest(_message.Message):
    __slots__ = ("context", "names")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteTopicsResponse(_message.Message):
    __slots__ = ("error", "leader", "offset", "results")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    offset: int
    results: _containers.RepeatedCompositeFieldContainer[TopicResult]
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., offset: _Optional[int] = ..., results: _Optional[_Iterable[_Union[TopicResult, _Mapping]]] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("context", "page_token", "page_size", "label")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    page_token: bytes
    page_size: int
    label: str
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., page_token: _Optional[bytes] = ..., page_size: _Optional[int] = ..., label: _Optional[str] = ...) -> None: ...

class TopicListing(_message.Message):
    __slots__ = ("name", "topic_id", "partitions", "replication_factor")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("error", "leader", "as_of_offset", "topics", "more", "next_page_token", "local")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    as_of_offset: int
    topics: _containers.RepeatedCompositeFieldContainer[TopicListing]
    more: bool
    next_page_token: bytes
    local: LocalView
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., as_of_offset: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[TopicListing, _Mapping]]] = ..., more: bool = ..., next_page_token: _Optional[bytes] = ..., local: _Optional[_Union[LocalView, _Mapping]] = ...) -> None: ...

class DescribeTopicsRequest(_message.Message):
    __slots__ = ("context", "names", "first_partition", "page_size", "page_token")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    FIRST_PARTITION_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    names: _containers.RepeatedScalarFieldContainer[str]
    first_partition: int
    page_size: int
    page_token: bytes
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., names: _Optional[_Iterable[str]] = ..., first_partition: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class PartitionDescription(_message.Message):
    __slots__ = ("partition", "leader_id", "leader_epoch", "partition_epoch", "replicas", "isr", "adding_replicas", "removing_replicas", "elr", "offline_replicas", "last_known_elr", "leader_recovery_state", "labels")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    ADDING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REMOVING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ELR_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LAST_KNOWN_ELR_FIELD_NUMBER: _ClassVar[int]
    LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    adding_replicas: _containers.RepeatedScalarFieldContainer[int]
    removing_replicas: _containers.RepeatedScalarFieldContainer[int]
    elr: _containers.RepeatedScalarFieldContainer[int]
    offline_replicas: _containers.RepeatedScalarFieldContainer[int]
    last_known_elr: _containers.RepeatedScalarFieldContainer[int]
    leader_recovery_state: int
    labels: _containers.RepeatedCompositeFieldContainer[Label]
    def __init__(self, partition: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ..., adding_replicas: _Optional[_Iterable[int]] = ..., removing_replicas: _Optional[_Iterable[int]] = ..., elr: _Optional[_Iterable[int]] = ..., offline_replicas: _Optional[_Iterable[int]] = ..., last_known_elr: _Optional[_Iterable[int]] = ..., leader_recovery_state: _Optional[int] = ..., labels: _Optional[_Iterable[_Union[Label, _Mapping]]] = ...) -> None: ...

class TopicDescription(_message.Message):
    __slots__ = ("name", "error", "topic_id", "partitions", "configs", "partition_count", "labels")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    name: str
    error: _common_pb2.Error
    topic_id: bytes
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionDescription]
    configs: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    partition_count: int
    labels: _containers.RepeatedCompositeFieldContainer[Label]
    def __init__(self, name: _Optional[str] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[_Union[PartitionDescription, _Mapping]]] = ..., configs: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ..., partition_count: _Optional[int] = ..., labels: _Optional[_Iterable[_Union[Label, _Mapping]]] = ...) -> None: ...

class DescribeTopicsResponse(_message.Message):
    __slots__ = ("error", "leader", "as_of_offset", "topics", "next_page_token", "local")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    as_of_offset: int
    topics: _containers.RepeatedCompositeFieldContainer[TopicDescription]
    next_page_token: bytes
    local: LocalView
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., as_of_offset: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[TopicDescription, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ..., local: _Optional[_Union[LocalView, _Mapping]] = ...) -> None: ...

class ConfigResource(_message.Message):
    __slots__ = ("resource_type", "name")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    name: str
    def __init__(self, resource_type: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class ConfigOperation(_message.Message):
    __slots__ = ("kind", "key", "value")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SET: _ClassVar[ConfigOperation.Kind]
        DELETE: _ClassVar[ConfigOperation.Kind]
        APPEND: _ClassVar[ConfigOperation.Kind]
        SUBTRACT: _ClassVar[ConfigOperation.Kind]
    SET: ConfigOperation.Kind
    DELETE: ConfigOperation.Kind
    APPEND: ConfigOperation.Kind
    SUBTRACT: ConfigOperation.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    kind: ConfigOperation.Kind
    key: str
    value: str
    def __init__(self, kind: _Optional[_Union[ConfigOperation.Kind, str]] = ..., key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class ConfigAlteration(_message.Message):
    __slots__ = ("resource", "operations")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    resource: ConfigResource
    operations: _containers.RepeatedCompositeFieldContainer[ConfigOperation]
    def __init__(self, resource: _Optional[_Union[ConfigResource, _Mapping]] = ..., operations: _Optional[_Iterable[_Union[ConfigOperation, _Mapping]]] = ...) -> None: ...

class IncrementalAlterConfigsRequest(_message.Message):
    __slots__ = ("context", "alterations", "validate_only")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    ALTERATIONS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    alterations: _containers.RepeatedCompositeFieldContainer[ConfigAlteration]
    validate_only: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., alterations: _Optional[_Iterable[_Union[ConfigAlteration, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class ConfigResult(_message.Message):
    __slots__ = ("resource", "error")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    resource: ConfigResource
    error: _common_pb2.Error
    def __init__(self, resource: _Optional[_Union[ConfigResource, _Mapping]] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ...) -> None: ...

class IncrementalAlterConfigsResponse(_message.Message):
    __slots__ = ("error", "leader", "offset", "results")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    offset: int
    results: _containers.RepeatedCompositeFieldContainer[ConfigResult]
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., offset: _Optional[int] = ..., results: _Optional[_Iterable[_Union[ConfigResult, _Mapping]]] = ...) -> None: ...

class DescribeConfigsRequest(_message.Message):
    __slots__ = ("context", "resources", "page_size", "page_token", "with_defaults")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    WITH_DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    resources: _containers.RepeatedCompositeFieldContainer[ConfigResource]
    page_size: int
    page_token: bytes
    with_defaults: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[ConfigResource, _Mapping]]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ..., with_defaults: bool = ...) -> None: ...

class ConfigLevel(_message.Message):
    __slots__ = ("key", "value", "source")
    class Source(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SOURCE_UNSPECIFIED: _ClassVar[ConfigLevel.Source]
        TOPIC: _ClassVar[ConfigLevel.Source]
        BROKER: _ClassVar[ConfigLevel.Source]
        CLUSTER: _ClassVar[ConfigLevel.Source]
        DEFAULT: _ClassVar[ConfigLevel.Source]
        STATIC: _ClassVar[ConfigLevel.Source]
    SOURCE_UNSPECIFIED: ConfigLevel.Source
    TOPIC: ConfigLevel.Source
    BROKER: ConfigLevel.Source
    CLUSTER: ConfigLevel.Source
    DEFAULT: ConfigLevel.Source
    STATIC: ConfigLevel.Source
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    source: ConfigLevel.Source
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[_Union[ConfigLevel.Source, str]] = ...) -> None: ...

class EffectiveConfig(_message.Message):
    __slots__ = ("key", "levels", "meaning")
    KEY_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    MEANING_FIELD_NUMBER: _ClassVar[int]
    key: str
    levels: _containers.RepeatedCompositeFieldContainer[ConfigLevel]
    meaning: str
    def __init__(self, key: _Optional[str] = ..., levels: _Optional[_Iterable[_Union[ConfigLevel, _Mapping]]] = ..., meaning: _Optional[str] = ...) -> None: ...

class DescribedResource(_message.Message):
    __slots__ = ("resource", "error", "configs", "effective_configs")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    resource: ConfigResource
    error: _common_pb2.Error
    configs: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    effective_configs: _containers.RepeatedCompositeFieldContainer[EffectiveConfig]
    def __init__(self, resource: _Optional[_Union[ConfigResource, _Mapping]] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., configs: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ..., effective_configs: _Optional[_Iterable[_Union[EffectiveConfig, _Mapping]]] = ...) -> None: ...

class DescribeConfigsResponse(_message.Message):
    __slots__ = ("error", "leader", "as_of_offset", "resources", "next_page_token", "local")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    as_of_offset: int
    resources: _containers.RepeatedCompositeFieldContainer[DescribedResource]
    next_page_token: bytes
    local: LocalView
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., as_of_offset: _Optional[int] = ..., resources: _Optional[_Iterable[_Union[DescribedResource, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ..., local: _Optional[_Union[LocalView, _Mapping]] = ...) -> None: ...

class ConfigKeyDefinition(_message.Message):
    __slots__ = ("resource_type", "name", "is_prefix", "value_type", "default_value", "minimum", "maximum", "choices", "documentation")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    IS_PREFIX_FIELD_NUMBER: _ClassVar[int]
    VALUE_TYPE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_VALUE_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTATION_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    name: str
    is_prefix: bool
    value_type: str
    default_value: str
    minimum: int
    maximum: int
    choices: _containers.RepeatedScalarFieldContainer[str]
    documentation: str
    def __init__(self, resource_type: _Optional[int] = ..., name: _Optional[str] = ..., is_prefix: bool = ..., value_type: _Optional[str] = ..., default_value: _Optional[str] = ..., minimum: _Optional[int] = ..., maximum: _Optional[int] = ..., choices: _Optional[_Iterable[str]] = ..., documentation: _Optional[str] = ...) -> None: ...

class ConfigKeyName(_message.Message):
    __slots__ = ("resource_type", "name")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    name: str
    def __init__(self, resource_type: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class AlterConfigKeysRequest(_message.Message):
    __slots__ = ("context", "definitions", "removals", "validate_only")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    DEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    REMOVALS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    definitions: _containers.RepeatedCompositeFieldContainer[ConfigKeyDefinition]
    removals: _containers.RepeatedCompositeFieldContainer[ConfigKeyName]
    validate_only: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., definitions: _Optional[_Iterable[_Union[ConfigKeyDefinition, _Mapping]]] = ..., removals: _Optional[_Iterable[_Union[ConfigKeyName, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class AlterConfigKeysResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class DescribeConfigKeysRequest(_message.Message):
    __slots__ = ("context", "page_size", "page_token")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    page_size: int
    page_token: bytes
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class DescribeConfigKeysResponse(_message.Message):
    __slots__ = ("as_of_offset", "definitions", "next_page_token", "local")
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    as_of_offset: int
    definitions: _containers.RepeatedCompositeFieldContainer[ConfigKeyDefinition]
    next_page_token: bytes
    local: LocalView
    def __init__(self, as_of_offset: _Optional[int] = ..., definitions: _Optional[_Iterable[_Union[ConfigKeyDefinition, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ..., local: _Optional[_Union[LocalView, _Mapping]] = ...) -> None: ...

class Label(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class LabelAlteration(_message.Message):
    __slots__ = ("resource", "partition", "set", "remove")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    resource: ConfigResource
    partition: int
    set: _containers.RepeatedCompositeFieldContainer[Label]
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, resource: _Optional[_Union[ConfigResource, _Mapping]] = ..., partition: _Optional[int] = ..., set: _Optional[_Iterable[_Union[Label, _Mapping]]] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class AlterLabelsRequest(_message.Message):
    __slots__ = ("context", "alterations", "validate_only")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    ALTERATIONS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    alterations: _containers.RepeatedCompositeFieldContainer[LabelAlteration]
    validate_only: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., alterations: _Optional[_Iterable[_Union[LabelAlteration, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class AlterLabelsResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class ListLabelsRequest(_message.Message):
    __slots__ = ("context", "label", "page_size", "page_token")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    label: str
    page_size: int
    page_token: bytes
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., label: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class LabelledThing(_message.Message):
    __slots__ = ("resource", "partition", "labels")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    resource: ConfigResource
    partition: int
    labels: _containers.RepeatedCompositeFieldContainer[Label]
    def __init__(self, resource: _Optional[_Union[ConfigResource, _Mapping]] = ..., partition: _Optional[int] = ..., labels: _Optional[_Iterable[_Union[Label, _Mapping]]] = ...) -> None: ...

class ListLabelsResponse(_message.Message):
    __slots__ = ("as_of_offset", "things", "next_page_token", "local")
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    THINGS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    as_of_offset: int
    things: _containers.RepeatedCompositeFieldContainer[LabelledThing]
    next_page_token: bytes
    local: LocalView
    def __init__(self, as_of_offset: _Optional[int] = ..., things: _Optional[_Iterable[_Union[LabelledThing, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ..., local: _Optional[_Union[LocalView, _Mapping]] = ...) -> None: ...

class TopicPartitions(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class ElectLeadersRequest(_message.Message):
    __slots__ = ("context", "election_type", "topics", "leader_id")
    class ElectionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PREFERRED: _ClassVar[ElectLeadersRequest.ElectionType]
        UNCLEAN: _ClassVar[ElectLeadersRequest.ElectionType]
        DESIGNATED: _ClassVar[ElectLeadersRequest.ElectionType]
    PREFERRED: ElectLeadersRequest.ElectionType
    UNCLEAN: ElectLeadersRequest.ElectionType
    DESIGNATED: ElectLeadersRequest.ElectionType
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    ELECTION_TYPE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    election_type: ElectLeadersRequest.ElectionType
    topics: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    leader_id: int
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., election_type: _Optional[_Union[ElectLeadersRequest.ElectionType, str]] = ..., topics: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ..., leader_id: _Optional[int] = ...) -> None: ...

class ElectionResult(_message.Message):
    __slots__ = ("topic", "partition", "error", "leader_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error: _common_pb2.Error
    leader_id: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader_id: _Optional[int] = ...) -> None: ...

class ElectLeadersResponse(_message.Message):
    __slots__ = ("error", "leader", "offset", "results")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    offset: int
    results: _containers.RepeatedCompositeFieldContainer[ElectionResult]
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., offset: _Optional[int] = ..., results: _Optional[_Iterable[_Union[ElectionResult, _Mapping]]] = ...) -> None: ...

class PartitionReassignment(_message.Message):
    __slots__ = ("topic", "partition", "target")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    target: ReplicaList
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., target: _Optional[_Union[ReplicaList, _Mapping]] = ...) -> None: ...

class AlterPartitionReassignmentsRequest(_message.Message):
    __slots__ = ("context", "partitions", "allow_replication_factor_change", "validate_only")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_REPLICATION_FACTOR_CHANGE_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionReassignment]
    allow_replication_factor_change: bool
    validate_only: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[PartitionReassignment, _Mapping]]] = ..., allow_replication_factor_change: bool = ..., validate_only: bool = ...) -> None: ...

class ReassignmentResult(_message.Message):
    __slots__ = ("topic", "partition", "error", "adding_replicas", "removing_replicas")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ADDING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REMOVING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error: _common_pb2.Error
    adding_replicas: _containers.RepeatedScalarFieldContainer[int]
    removing_replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., adding_replicas: _Optional[_Iterable[int]] = ..., removing_replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class AlterPartitionReassignmentsResponse(_message.Message):
    __slots__ = ("offset", "results")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    results: _containers.RepeatedCompositeFieldContainer[ReassignmentResult]
    def __init__(self, offset: _Optional[int] = ..., results: _Optional[_Iterable[_Union[ReassignmentResult, _Mapping]]] = ...) -> None: ...

class ListPartitionReassignmentsRequest(_message.Message):
    __slots__ = ("context", "page_size", "page_token")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    page_size: int
    page_token: bytes
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class OngoingReassignment(_message.Message):
    __slots__ = ("topic", "partition", "replicas", "adding_replicas", "removing_replicas", "isr")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REMOVING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    adding_replicas: _containers.RepeatedScalarFieldContainer[int]
    removing_replicas: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., adding_replicas: _Optional[_Iterable[int]] = ..., removing_replicas: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ...) -> None: ...

class ListPartitionReassignmentsResponse(_message.Message):
    __slots__ = ("as_of_offset", "reassignments", "next_page_token", "local")
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    as_of_offset: int
    reassignments: _containers.RepeatedCompositeFieldContainer[OngoingReassignment]
    next_page_token: bytes
    local: LocalView
    def __init__(self, as_of_offset: _Optional[int] = ..., reassignments: _Optional[_Iterable[_Union[OngoingReassignment, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ..., local: _Optional[_Union[LocalView, _Mapping]] = ...) -> None: ...

class DescribeFeaturesRequest(_message.Message):
    __slots__ = ("context",)
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ...) -> None: ...

class DescribedFeature(_message.Message):
    __slots__ = ("name", "supported_min_level", "supported_max_level", "finalized_level", "in_the_way")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_MAX_LEVEL_FIELD_NUMBER: _ClassVar[int]
    FINALIZED_LEVEL_FIELD_NUMBER: _ClassVar[int]
    IN_THE_WAY_FIELD_NUMBER: _ClassVar[int]
    name: str
    supported_min_level: int
    supported_max_level: int
    finalized_level: int
    in_the_way: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., supported_min_level: _Optional[int] = ..., supported_max_level: _Optional[int] = ..., finalized_level: _Optional[int] = ..., in_the_way: _Optional[_Iterable[str]] = ...) -> None: ...

class RegisteredController(_message.Message):
    __slots__ = ("controller", "endpoints", "features")
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    controller: _common_pb2.ReplicaKey
    endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    features: _containers.RepeatedCompositeFieldContainer[_common_pb2.FeatureRange]
    def __init__(self, controller: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ..., features: _Optional[_Iterable[_Union[_common_pb2.FeatureRange, _Mapping]]] = ...) -> None: ...

class DescribeFeaturesResponse(_message.Message):
    __slots__ = ("as_of_offset", "features", "controllers", "local")
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    CONTROLLERS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    as_of_offset: int
    features: _containers.RepeatedCompositeFieldContainer[DescribedFeature]
    controllers: _containers.RepeatedCompositeFieldContainer[RegisteredController]
    local: LocalView
    def __init__(self, as_of_offset: _Optional[int] = ..., features: _Optional[_Iterable[_Union[DescribedFeature, _Mapping]]] = ..., controllers: _Optional[_Iterable[_Union[RegisteredController, _Mapping]]] = ..., local: _Optional[_Union[LocalView, _Mapping]] = ...) -> None: ...

class FeatureUpdate(_message.Message):
    __slots__ = ("name", "level", "upgrade_type")
    class UpgradeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UPGRADE_TYPE_UNSPECIFIED: _ClassVar[FeatureUpdate.UpgradeType]
        UPGRADE: _ClassVar[FeatureUpdate.UpgradeType]
        SAFE_DOWNGRADE: _ClassVar[FeatureUpdate.UpgradeType]
        UNSAFE_DOWNGRADE: _ClassVar[FeatureUpdate.UpgradeType]
    UPGRADE_TYPE_UNSPECIFIED: FeatureUpdate.UpgradeType
    UPGRADE: FeatureUpdate.UpgradeType
    SAFE_DOWNGRADE: FeatureUpdate.UpgradeType
    UNSAFE_DOWNGRADE: FeatureUpdate.UpgradeType
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    UPGRADE_TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    level: int
    upgrade_type: FeatureUpdate.UpgradeType
    def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ..., upgrade_type: _Optional[_Union[FeatureUpdate.UpgradeType, str]] = ...) -> None: ...

class UpdateFeaturesRequest(_message.Message):
    __slots__ = ("context", "updates", "validate_only")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    updates: _containers.RepeatedCompositeFieldContainer[FeatureUpdate]
    validate_only: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., updates: _Optional[_Iterable[_Union[FeatureUpdate, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class FeatureResult(_message.Message):
    __slots__ = ("name", "level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    level: int
    def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ...) -> None: ...

class UpdateFeaturesResponse(_message.Message):
    __slots__ = ("offset", "results")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    results: _containers.RepeatedCompositeFieldContainer[FeatureResult]
    def __init__(self, offset: _Optional[int] = ..., results: _Optional[_Iterable[_Union[FeatureResult, _Mapping]]] = ...) -> None: ...

class ClientQuotaEntityPart(_message.Message):
    __slots__ = ("entity_type", "name")
    ENTITY_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    entity_type: str
    name: str
    def __init__(self, entity_type: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ClientQuotaEntity(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[ClientQuotaEntityPart]
    def __init__(self, parts: _Optional[_Iterable[_Union[ClientQuotaEntityPart, _Mapping]]] = ...) -> None: ...

class DescribeClientQuotasRequest(_message.Message):
    __slots__ = ("context", "page_size", "page_token", "components", "strict")
    class Match(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EXACT: _ClassVar[DescribeClientQuotasRequest.Match]
        DEFAULT: _ClassVar[DescribeClientQuotasRequest.Match]
        ANY: _ClassVar[DescribeClientQuotasRequest.Match]
    EXACT: DescribeClientQuotasRequest.Match
    DEFAULT: DescribeClientQuotasRequest.Match
    ANY: DescribeClientQuotasRequest.Match
    class Component(_message.Message):
        __slots__ = ("entity_type", "match", "name")
        ENTITY_TYPE_FIELD_NUMBER: _ClassVar[int]
        MATCH_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        entity_type: str
        match: DescribeClientQuotasRequest.Match
        name: str
        def __init__(self, entity_type: _Optional[str] = ..., match: _Optional[_Union[DescribeClientQuotasRequest.Match, str]] = ..., name: _Optional[str] = ...) -> None: ...
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    page_size: int
    page_token: bytes
    components: _containers.RepeatedCompositeFieldContainer[DescribeClientQuotasRequest.Component]
    strict: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ..., components: _Optional[_Iterable[_Union[DescribeClientQuotasRequest.Component, _Mapping]]] = ..., strict: bool = ...) -> None: ...

class ClientQuotaValue(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: float
    def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class DescribedClientQuotas(_message.Message):
    __slots__ = ("entity", "values")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    entity: ClientQuotaEntity
    values: _containers.RepeatedCompositeFieldContainer[ClientQuotaValue]
    def __init__(self, entity: _Optional[_Union[ClientQuotaEntity, _Mapping]] = ..., values: _Optional[_Iterable[_Union[ClientQuotaValue, _Mapping]]] = ...) -> None: ...

class DescribeClientQuotasResponse(_message.Message):
    __slots__ = ("as_of_offset", "entries", "next_page_token", "local")
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    as_of_offset: int
    entries: _containers.RepeatedCompositeFieldContainer[DescribedClientQuotas]
    next_page_token: bytes
    local: LocalView
    def __init__(self, as_of_offset: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[DescribedClientQuotas, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ..., local: _Optional[_Union[LocalView, _Mapping]] = ...) -> None: ...

class ClientQuotaOperation(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: float
    def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class ClientQuotaAlteration(_message.Message):
    __slots__ = ("entity", "operations")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    entity: ClientQuotaEntity
    operations: _containers.RepeatedCompositeFieldContainer[ClientQuotaOperation]
    def __init__(self, entity: _Optional[_Union[ClientQuotaEntity, _Mapping]] = ..., operations: _Optional[_Iterable[_Union[ClientQuotaOperation, _Mapping]]] = ...) -> None: ...

class AlterClientQuotasRequest(_message.Message):
    __slots__ = ("context", "alterations", "validate_only")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    ALTERATIONS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    alterations: _containers.RepeatedCompositeFieldContainer[ClientQuotaAlteration]
    validate_only: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., alterations: _Optional[_Iterable[_Union[ClientQuotaAlteration, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class ClientQuotaResult(_message.Message):
    __slots__ = ("entity", "error")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    entity: ClientQuotaEntity
    error: _common_pb2.Error
    def __init__(self, entity: _Optional[_Union[ClientQuotaEntity, _Mapping]] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ...) -> None: ...

class AlterClientQuotasResponse(_message.Message):
    __slots__ = ("offset", "results")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    results: _containers.RepeatedCompositeFieldContainer[ClientQuotaResult]
    def __init__(self, offset: _Optional[int] = ..., results: _Optional[_Iterable[_Union[ClientQuotaResult, _Mapping]]] = ...) -> None: ...

class AclBinding(_message.Message):
    __slots__ = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission_type")
    class ResourceType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RESOURCE_TYPE_UNSPECIFIED: _ClassVar[AclBinding.ResourceType]
        ANY_RESOURCE: _ClassVar[AclBinding.ResourceType]
        TOPIC: _ClassVar[AclBinding.ResourceType]
        GROUP: _ClassVar[AclBinding.ResourceType]
        CLUSTER: _ClassVar[AclBinding.ResourceType]
        TRANSACTIONAL_ID: _ClassVar[AclBinding.ResourceType]
        DELEGATION_TOKEN: _ClassVar[AclBinding.ResourceType]
        USER: _ClassVar[AclBinding.ResourceType]
    RESOURCE_TYPE_UNSPECIFIED: AclBinding.ResourceType
    ANY_RESOURCE: AclBinding.ResourceType
    TOPIC: AclBinding.ResourceType
    GROUP: AclBinding.ResourceType
    CLUSTER: AclBinding.ResourceType
    TRANSACTIONAL_ID: AclBinding.ResourceType
    DELEGATION_TOKEN: AclBinding.ResourceType
    USER: AclBinding.ResourceType
    class PatternType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PATTERN_TYPE_UNSPECIFIED: _ClassVar[AclBinding.PatternType]
        ANY_PATTERN: _ClassVar[AclBinding.PatternType]
        MATCH: _ClassVar[AclBinding.PatternType]
        LITERAL: _ClassVar[AclBinding.PatternType]
        PREFIXED: _ClassVar[AclBinding.PatternType]
    PATTERN_TYPE_UNSPECIFIED: AclBinding.PatternType
    ANY_PATTERN: AclBinding.PatternType
    MATCH: AclBinding.PatternType
    LITERAL: AclBinding.PatternType
    PREFIXED: AclBinding.PatternType
    class Operation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OPERATION_UNSPECIFIED: _ClassVar[AclBinding.Operation]
        ANY_OPERATION: _ClassVar[AclBinding.Operation]
        ALL: _ClassVar[AclBinding.Operation]
        READ: _ClassVar[AclBinding.Operation]
        WRITE: _ClassVar[AclBinding.Operation]
        CREATE: _ClassVar[AclBinding.Operation]
        DELETE: _ClassVar[AclBinding.Operation]
        ALTER: _ClassVar[AclBinding.Operation]
        DESCRIBE: _ClassVar[AclBinding.Operation]
        CLUSTER_ACTION: _ClassVar[AclBinding.Operation]
        DESCRIBE_CONFIGS: _ClassVar[AclBinding.Operation]
        ALTER_CONFIGS: _ClassVar[AclBinding.Operation]
        IDEMPOTENT_WRITE: _ClassVar[AclBinding.Operation]
        CREATE_TOKENS: _ClassVar[AclBinding.Operation]
        DESCRIBE_TOKENS: _ClassVar[AclBinding.Operation]
        TWO_PHASE_COMMIT: _ClassVar[AclBinding.Operation]
    OPERATION_UNSPECIFIED: AclBinding.Operation
    ANY_OPERATION: AclBinding.Operation
    ALL: AclBinding.Operation
    READ: AclBinding.Operation
    WRITE: AclBinding.Operation
    CREATE: AclBinding.Operation
    DELETE: AclBinding.Operation
    ALTER: AclBinding.Operation
    DESCRIBE: AclBinding.Operation
    CLUSTER_ACTION: AclBinding.Operation
    DESCRIBE_CONFIGS: AclBinding.Operation
    ALTER_CONFIGS: AclBinding.Operation
    IDEMPOTENT_WRITE: AclBinding.Operation
    CREATE_TOKENS: AclBinding.Operation
    DESCRIBE_TOKENS: AclBinding.Operation
    TWO_PHASE_COMMIT: AclBinding.Operation
    class PermissionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PERMISSION_TYPE_UNSPECIFIED: _ClassVar[AclBinding.PermissionType]
        ANY_PERMISSION: _ClassVar[AclBinding.PermissionType]
        DENY: _ClassVar[AclBinding.PermissionType]
        ALLOW: _ClassVar[AclBinding.PermissionType]
    PERMISSION_TYPE_UNSPECIFIED: AclBinding.PermissionType
    ANY_PERMISSION: AclBinding.PermissionType
    DENY: AclBinding.PermissionType
    ALLOW: AclBinding.PermissionType
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_TYPE_FIELD_NUMBER: _ClassVar[int]
    resource_type: AclBinding.ResourceType
    resource_name: str
    pattern_type: AclBinding.PatternType
    principal: str
    host: str
    operation: AclBinding.Operation
    permission_type: AclBinding.PermissionType
    def __init__(self, resource_type: _Optional[_Union[AclBinding.ResourceType, str]] = ..., resource_name: _Optional[str] = ..., pattern_type: _Optional[_Union[AclBinding.PatternType, str]] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[_Union[AclBinding.Operation, str]] = ..., permission_type: _Optional[_Union[AclBinding.PermissionType, str]] = ...) -> None: ...

class AclFilter(_message.Message):
    __slots__ = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission_type")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_TYPE_FIELD_NUMBER: _ClassVar[int]
    resource_type: AclBinding.ResourceType
    resource_name: str
    pattern_type: AclBinding.PatternType
    principal: str
    host: str
    operation: AclBinding.Operation
    permission_type: AclBinding.PermissionType
    def __init__(self, resource_type: _Optional[_Union[AclBinding.ResourceType, str]] = ..., resource_name: _Optional[str] = ..., pattern_type: _Optional[_Union[AclBinding.PatternType, str]] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[_Union[AclBinding.Operation, str]] = ..., permission_type: _Optional[_Union[AclBinding.PermissionType, str]] = ...) -> None: ...

class DescribeAclsRequest(_message.Message):
    __slots__ = ("context", "page_size", "page_token", "filter")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    page_size: int
    page_token: bytes
    filter: AclFilter
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ..., filter: _Optional[_Union[AclFilter, _Mapping]] = ...) -> None: ...

class DescribeAclsResponse(_message.Message):
    __slots__ = ("as_of_offset", "acls", "next_page_token", "local")
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ACLS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    as_of_offset: int
    acls: _containers.RepeatedCompositeFieldContainer[AclBinding]
    next_page_token: bytes
    local: LocalView
    def __init__(self, as_of_offset: _Optional[int] = ..., acls: _Optional[_Iterable[_Union[AclBinding, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ..., local: _Optional[_Union[LocalView, _Mapping]] = ...) -> None: ...

class CreateAclsRequest(_message.Message):
    __slots__ = ("context", "acls", "validate_only")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    ACLS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    acls: _containers.RepeatedCompositeFieldContainer[AclBinding]
    validate_only: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., acls: _Optional[_Iterable[_Union[AclBinding, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class CreateAclResult(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ...) -> None: ...

class CreateAclsResponse(_message.Message):
    __slots__ = ("offset", "results")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    results: _containers.RepeatedCompositeFieldContainer[CreateAclResult]
    def __init__(self, offset: _Optional[int] = ..., results: _Optional[_Iterable[_Union[CreateAclResult, _Mapping]]] = ...) -> None: ...

class DeleteAclsRequest(_message.Message):
    __slots__ = ("context", "filters", "validate_only")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    filters: _containers.RepeatedCompositeFieldContainer[AclFilter]
    validate_only: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., filters: _Optional[_Iterable[_Union[AclFilter, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class DeleteAclsResult(_message.Message):
    __slots__ = ("error", "deleted")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    deleted: _containers.RepeatedCompositeFieldContainer[AclBinding]
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., deleted: _Optional[_Iterable[_Union[AclBinding, _Mapping]]] = ...) -> None: ...

class DeleteAclsResponse(_message.Message):
    __slots__ = ("offset", "results")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    results: _containers.RepeatedCompositeFieldContainer[DeleteAclsResult]
    def __init__(self, offset: _Optional[int] = ..., results: _Optional[_Iterable[_Union[DeleteAclsResult, _Mapping]]] = ...) -> None: ...

class DescribeUserScramCredentialsRequest(_message.Message):
    __slots__ = ("context", "page_size", "page_token")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    page_size: int
    page_token: bytes
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class DescribedScramCredential(_message.Message):
    __slots__ = ("mechanism", "iterations")
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    mechanism: ScramMechanism
    iterations: int
    def __init__(self, mechanism: _Optional[_Union[ScramMechanism, str]] = ..., iterations: _Optional[int] = ...) -> None: ...

class DescribedUser(_message.Message):
    __slots__ = ("user", "credentials")
    USER_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    user: str
    credentials: _containers.RepeatedCompositeFieldContainer[DescribedScramCredential]
    def __init__(self, user: _Optional[str] = ..., credentials: _Optional[_Iterable[_Union[DescribedScramCredential, _Mapping]]] = ...) -> None: ...

class DescribeUserScramCredentialsResponse(_message.Message):
    __slots__ = ("as_of_offset", "users", "next_page_token", "local")
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    as_of_offset: int
    users: _containers.RepeatedCompositeFieldContainer[DescribedUser]
    next_page_token: bytes
    local: LocalView
    def __init__(self, as_of_offset: _Optional[int] = ..., users: _Optional[_Iterable[_Union[DescribedUser, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ..., local: _Optional[_Union[LocalView, _Mapping]] = ...) -> None: ...

class ScramCredential(_message.Message):
    __slots__ = ("iterations", "salt", "stored_key", "server_key")
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    STORED_KEY_FIELD_NUMBER: _ClassVar[int]
    SERVER_KEY_FIELD_NUMBER: _ClassVar[int]
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    def __init__(self, iterations: _Optional[int] = ..., salt: _Optional[bytes] = ..., stored_key: _Optional[bytes] = ..., server_key: _Optional[bytes] = ...) -> None: ...

class ScramAlteration(_message.Message):
    __slots__ = ("user", "mechanism", "credential")
    USER_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    user: str
    mechanism: ScramMechanism
    credential: ScramCredential
    def __init__(self, user: _Optional[str] = ..., mechanism: _Optional[_Union[ScramMechanism, str]] = ..., credential: _Optional[_Union[ScramCredential, _Mapping]] = ...) -> None: ...

class AlterUserScramCredentialsRequest(_message.Message):
    __slots__ = ("context", "alterations", "validate_only")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    ALTERATIONS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    alterations: _containers.RepeatedCompositeFieldContainer[ScramAlteration]
    validate_only: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., alterations: _Optional[_Iterable[_Union[ScramAlteration, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class ScramResult(_message.Message):
    __slots__ = ("user", "error")
    USER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    user: str
    error: _common_pb2.Error
    def __init__(self, user: _Optional[str] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ...) -> None: ...

class AlterUserScramCredentialsResponse(_message.Message):
    __slots__ = ("offset", "results")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    results: _containers.RepeatedCompositeFieldContainer[ScramResult]
    def __init__(self, offset: _Optional[int] = ..., results: _Optional[_Iterable[_Union[ScramResult, _Mapping]]] = ...) -> None: ...

class DescribePartitionHealthRequest(_message.Message):
    __slots__ = ("context", "limit")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    limit: int
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., limit: _Optional[int] = ...) -> None: ...

class DescribePartitionHealthResponse(_message.Message):
    __slots__ = ("error", "leader", "as_of_offset", "partitions", "leaderless", "under_replicated", "first_leaderless", "first_under_replicated", "local")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    LEADERLESS_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    FIRST_LEADERLESS_FIELD_NUMBER: _ClassVar[int]
    FIRST_UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    as_of_offset: int
    partitions: int
    leaderless: int
    under_replicated: int
    first_leaderless: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    first_under_replicated: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    local: LocalView
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., as_of_offset: _Optional[int] = ..., partitions: _Optional[int] = ..., leaderless: _Optional[int] = ..., under_replicated: _Optional[int] = ..., first_leaderless: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ..., first_under_replicated: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ..., local: _Optional[_Union[LocalView, _Mapping]] = ...) -> None: ...

class DescribeClusterRequest(_message.Message):
    __slots__ = ("context",)
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ...) -> None: ...

class BrokerStateCount(_message.Message):
    __slots__ = ("state", "brokers")
    STATE_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    state: _broker_pb2.BrokerState
    brokers: int
    def __init__(self, state: _Optional[_Union[_broker_pb2.BrokerState, str]] = ..., brokers: _Optional[int] = ...) -> None: ...

class DescribeClusterResponse(_message.Message):
    __slots__ = ("as_of_offset", "metadata_version", "topics", "partitions", "brokers", "local")
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    METADATA_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    as_of_offset: int
    metadata_version: int
    topics: int
    partitions: int
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerStateCount]
    local: LocalView
    def __init__(self, as_of_offset: _Optional[int] = ..., metadata_version: _Optional[int] = ..., topics: _Optional[int] = ..., partitions: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[BrokerStateCount, _Mapping]]] = ..., local: _Optional[_Union[LocalView, _Mapping]] = ...) -> None: ...

class ListPartitionsRequest(_message.Message):
    __slots__ = ("context", "page_size", "page_token", "conditions", "replica_on", "led_by", "topics")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ON_FIELD_NUMBER: _ClassVar[int]
    LED_BY_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    page_size: int
    page_token: bytes
    conditions: _containers.RepeatedScalarFieldContainer[PartitionCondition]
    replica_on: int
    led_by: int
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ..., conditions: _Optional[_Iterable[_Union[PartitionCondition, str]]] = ..., replica_on: _Optional[int] = ..., led_by: _Optional[int] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class PartitionListing(_message.Message):
    __slots__ = ("topic", "topic_id", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: PartitionDescription
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[_Union[PartitionDescription, _Mapping]] = ...) -> None: ...

class ListPartitionsResponse(_message.Message):
    __slots__ = ("as_of_offset", "partitions", "next_page_token", "local")
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    as_of_offset: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionListing]
    next_page_token: bytes
    local: LocalView
    def __init__(self, as_of_offset: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionListing, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ..., local: _Optional[_Union[LocalView, _Mapping]] = ...) -> None: ...

class ListBrokersRequest(_message.Message):
    __slots__ = ("context", "page_size", "page_token", "label")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    page_size: int
    page_token: bytes
    label: str
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ..., label: _Optional[str] = ...) -> None: ...

class BrokerListing(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "incarnation_id", "endpoints", "rack", "state", "last_contact_age_ms", "metadata_offset", "led_partitions", "replicas", "data_plane", "state_reason", "state_since_ms", "session_left_ms", "mode", "mode_reason", "mode_since_ms", "log_dirs", "labels")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_CONTACT_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LED_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    DATA_PLANE_FIELD_NUMBER: _ClassVar[int]
    STATE_REASON_FIELD_NUMBER: _ClassVar[int]
    STATE_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    SESSION_LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MODE_REASON_FIELD_NUMBER: _ClassVar[int]
    MODE_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    rack: str
    state: _broker_pb2.BrokerState
    last_contact_age_ms: int
    metadata_offset: int
    led_partitions: int
    replicas: int
    data_plane: str
    state_reason: str
    state_since_ms: int
    session_left_ms: int
    mode: str
    mode_reason: str
    mode_since_ms: int
    log_dirs: _containers.RepeatedCompositeFieldContainer[LogDirectory]
    labels: _containers.RepeatedCompositeFieldContainer[Label]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ..., rack: _Optional[str] = ..., state: _Optional[_Union[_broker_pb2.BrokerState, str]] = ..., last_contact_age_ms: _Optional[int] = ..., metadata_offset: _Optional[int] = ..., led_partitions: _Optional[int] = ..., replicas: _Optional[int] = ..., data_plane: _Optional[str] = ..., state_reason: _Optional[str] = ..., state_since_ms: _Optional[int] = ..., session_left_ms: _Optional[int] = ..., mode: _Optional[str] = ..., mode_reason: _Optional[str] = ..., mode_since_ms: _Optional[int] = ..., log_dirs: _Optional[_Iterable[_Union[LogDirectory, _Mapping]]] = ..., labels: _Optional[_Iterable[_Union[Label, _Mapping]]] = ...) -> None: ...

class LogDirectory(_message.Message):
    __slots__ = ("directory_id", "is_online", "replicas")
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    IS_ONLINE_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    directory_id: bytes
    is_online: bool
    replicas: int
    def __init__(self, directory_id: _Optional[bytes] = ..., is_online: bool = ..., replicas: _Optional[int] = ...) -> None: ...

class ListBrokersResponse(_message.Message):
    __slots__ = ("error", "leader", "as_of_offset", "brokers", "next_page_token", "local")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    as_of_offset: int
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerListing]
    next_page_token: bytes
    local: LocalView
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., as_of_offset: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[BrokerListing, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ..., local: _Optional[_Union[LocalView, _Mapping]] = ...) -> None: ...

class FenceBrokerRequest(_message.Message):
    __slots__ = ("context", "broker_id", "reason", "validate_only")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    broker_id: int
    reason: str
    validate_only: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., broker_id: _Optional[int] = ..., reason: _Optional[str] = ..., validate_only: bool = ...) -> None: ...

class UnfenceBrokerRequest(_message.Message):
    __slots__ = ("context", "broker_id", "validate_only")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    broker_id: int
    validate_only: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., broker_id: _Optional[int] = ..., validate_only: bool = ...) -> None: ...

class DrainBrokerRequest(_message.Message):
    __slots__ = ("context", "broker_id", "reason", "validate_only")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    broker_id: int
    reason: str
    validate_only: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., broker_id: _Optional[int] = ..., reason: _Optional[str] = ..., validate_only: bool = ...) -> None: ...

class UndrainBrokerRequest(_message.Message):
    __slots__ = ("context", "broker_id", "validate_only")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    broker_id: int
    validate_only: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., broker_id: _Optional[int] = ..., validate_only: bool = ...) -> None: ...

class UnregisterBrokerRequest(_message.Message):
    __slots__ = ("context", "broker_id")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    broker_id: int
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., broker_id: _Optional[int] = ...) -> None: ...

class DescribeQuorumRequest(_message.Message):
    __slots__ = ("context", "of_leader")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    OF_LEADER_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    of_leader: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., of_leader: bool = ...) -> None: ...

class ReplicaStatus(_message.Message):
    __slots__ = ("node_id", "directory_id", "log_end_offset", "last_fetch_age_ms", "last_caught_up_age_ms", "status", "endpoint", "lag", "behind_for_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCH_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_CAUGHT_UP_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_age_ms: int
    last_caught_up_age_ms: int
    status: str
    endpoint: _common_pb2.Endpoint
    lag: int
    behind_for_ms: int
    def __init__(self, node_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., log_end_offset: _Optional[int] = ..., last_fetch_age_ms: _Optional[int] = ..., last_caught_up_age_ms: _Optional[int] = ..., status: _Optional[str] = ..., endpoint: _Optional[_Union[_common_pb2.Endpoint, _Mapping]] = ..., lag: _Optional[int] = ..., behind_for_ms: _Optional[int] = ...) -> None: ...

class DescribeQuorumResponse(_message.Message):
    __slots__ = ("error", "leader", "cluster_id", "node_id", "directory_id", "role", "epoch", "high_watermark", "log_start_offset", "log_end_offset", "flushed_end_offset", "applied_offset", "chain", "digest", "snapshot", "voters", "observers", "generation", "bootstrap_voters", "concern", "no_leader_reason", "no_leader_for_ms", "problems")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    OBSERVERS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    BOOTSTRAP_VOTERS_FIELD_NUMBER: _ClassVar[int]
    CONCERN_FIELD_NUMBER: _ClassVar[int]
    NO_LEADER_REASON_FIELD_NUMBER: _ClassVar[int]
    NO_LEADER_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    cluster_id: str
    node_id: int
    directory_id: bytes
    role: str
    epoch: int
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    flushed_end_offset: int
    applied_offset: int
    chain: bytes
    digest: bytes
    snapshot: _common_pb2.SnapshotId
    voters: _containers.RepeatedCompositeFieldContainer[ReplicaStatus]
    observers: _containers.RepeatedCompositeFieldContainer[ReplicaStatus]
    generation: int
    bootstrap_voters: _containers.RepeatedCompositeFieldContainer[_voter_pb2.Voter]
    concern: str
    no_leader_reason: str
    no_leader_for_ms: int
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., cluster_id: _Optional[str] = ..., node_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., role: _Optional[str] = ..., epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., flushed_end_offset: _Optional[int] = ..., applied_offset: _Optional[int] = ..., chain: _Optional[bytes] = ..., digest: _Optional[bytes] = ..., snapshot: _Optional[_Union[_common_pb2.SnapshotId, _Mapping]] = ..., voters: _Optional[_Iterable[_Union[ReplicaStatus, _Mapping]]] = ..., observers: _Optional[_Iterable[_Union[ReplicaStatus, _Mapping]]] = ..., generation: _Optional[int] = ..., bootstrap_voters: _Optional[_Iterable[_Union[_voter_pb2.Voter, _Mapping]]] = ..., concern: _Optional[str] = ..., no_leader_reason: _Optional[str] = ..., no_leader_for_ms: _Optional[int] = ..., problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("code", "text", "blocks_ready")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_READY_FIELD_NUMBER: _ClassVar[int]
    code: str
    text: str
    blocks_ready: bool
    def __init__(self, code: _Optional[str] = ..., text: _Optional[str] = ..., blocks_ready: bool = ...) -> None: ...

class AdminAddVoterRequest(_message.Message):
    __slots__ = ("context", "voter")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    voter: _voter_pb2.Voter
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., voter: _Optional[_Union[_voter_pb2.Voter, _Mapping]] = ...) -> None: ...

class AdminRemoveVoterRequest(_message.Message):
    __slots__ = ("context", "voter")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    voter: _common_pb2.ReplicaKey
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., voter: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ...) -> None: ...

class TransferLeadershipRequest(_message.Message):
    __slots__ = ("context", "target_id")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    target_id: int
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., target_id: _Optional[int] = ...) -> None: ...

class CanRestartRequest(_message.Message):
    __slots__ = ("context", "node_id")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    node_id: int
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., node_id: _Optional[int] = ...) -> None: ...

class CanRestartResponse(_message.Message):
    __slots__ = ("error", "leader", "can_restart", "reason")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    CAN_RESTART_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    leader: _common_pb2.LeaderHint
    can_restart: bool
    reason: str
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., leader: _Optional[_Union[_common_pb2.LeaderHint, _Mapping]] = ..., can_restart: bool = ..., reason: _Optional[str] = ...) -> None: ...

class CreateSnapshotRequest(_message.Message):
    __slots__ = ("context", "reason")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    reason: str
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class SkipBatchRequest(_message.Message):
    __slots__ = ("context", "offset", "epoch", "chain", "although_applied", "validate_only")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    ALTHOUGH_APPLIED_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    offset: int
    epoch: int
    chain: bytes
    although_applied: bool
    validate_only: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., offset: _Optional[int] = ..., epoch: _Optional[int] = ..., chain: _Optional[bytes] = ..., although_applied: bool = ..., validate_only: bool = ...) -> None: ...

class SkippedRecord(_message.Message):
    __slots__ = ("offset", "type", "data")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    offset: int
    type: str
    data: str
    def __init__(self, offset: _Optional[int] = ..., type: _Optional[str] = ..., data: _Optional[str] = ...) -> None: ...

class SkipBatchResponse(_message.Message):
    __slots__ = ("offset", "dropped_start", "dropped_end", "reason", "records")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DROPPED_START_FIELD_NUMBER: _ClassVar[int]
    DROPPED_END_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    dropped_start: int
    dropped_end: int
    reason: str
    records: _containers.RepeatedCompositeFieldContainer[SkippedRecord]
    def __init__(self, offset: _Optional[int] = ..., dropped_start: _Optional[int] = ..., dropped_end: _Optional[int] = ..., reason: _Optional[str] = ..., records: _Optional[_Iterable[_Union[SkippedRecord, _Mapping]]] = ...) -> None: ...

class ListSnapshotsRequest(_message.Message):
    __slots__ = ("context",)
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ...) -> None: ...

class SnapshotListing(_message.Message):
    __slots__ = ("snapshot", "size", "timestamp_ms", "sha256")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    snapshot: _common_pb2.SnapshotId
    size: int
    timestamp_ms: int
    sha256: bytes
    def __init__(self, snapshot: _Optional[_Union[_common_pb2.SnapshotId, _Mapping]] = ..., size: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class ListSnapshotsResponse(_message.Message):
    __slots__ = ("error", "node_id", "snapshots")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    node_id: int
    snapshots: _containers.RepeatedCompositeFieldContainer[SnapshotListing]
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., node_id: _Optional[int] = ..., snapshots: _Optional[_Iterable[_Union[SnapshotListing, _Mapping]]] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("id", "create_topics", "create_partitions", "delete_topics", "alter_configs", "elect_leaders")
    ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    CREATE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    ELECT_LEADERS_FIELD_NUMBER: _ClassVar[int]
    id: int
    create_topics: CreateTopicsRequest
    create_partitions: CreatePartitionsRequest
    delete_topics: DeleteTopicsRequest
    alter_configs: IncrementalAlterConfigsRequest
    elect_leaders: ElectLeadersRequest
    def __init__(self, id: _Optional[int] = ..., create_topics: _Optional[_Union[CreateTopicsRequest, _Mapping]] = ..., create_partitions: _Optional[_Union[CreatePartitionsRequest, _Mapping]] = ..., delete_topics: _Optional[_Union[DeleteTopicsRequest, _Mapping]] = ..., alter_configs: _Optional[_Union[IncrementalAlterConfigsRequest, _Mapping]] = ..., elect_leaders: _Optional[_Union[ElectLeadersRequest, _Mapping]] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("id", "create_topics", "create_partitions", "delete_topics", "alter_configs", "error", "elect_leaders")
    ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    CREATE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ELECT_LEADERS_FIELD_NUMBER: _ClassVar[int]
    id: int
    create_topics: CreateTopicsResponse
    create_partitions: CreatePartitionsResponse
    delete_topics: DeleteTopicsResponse
    alter_configs: IncrementalAlterConfigsResponse
    error: _common_pb2.Error
    elect_leaders: ElectLeadersResponse
    def __init__(self, id: _Optional[int] = ..., create_topics: _Optional[_Union[CreateTopicsResponse, _Mapping]] = ..., create_partitions: _Optional[_Union[CreatePartitionsResponse, _Mapping]] = ..., delete_topics: _Optional[_Union[DeleteTopicsResponse, _Mapping]] = ..., alter_configs: _Optional[_Union[IncrementalAlterConfigsResponse, _Mapping]] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., elect_leaders: _Optional[_Union[ElectLeadersResponse, _Mapping]] = ...) -> None: ...

class SubmitRequests(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[SubmitRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[SubmitRequest, _Mapping]]] = ...) -> None: ...

class SubmitResponses(_message.Message):
    __slots__ = ("responses",)
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    responses: _containers.RepeatedCompositeFieldContainer[SubmitResponse]
    def __init__(self, responses: _Optional[_Iterable[_Union[SubmitResponse, _Mapping]]] = ...) -> None: ...

class ReadTreeRequest(_message.Message):
    __slots__ = ("context", "place", "names", "values", "outline", "find", "differences", "history")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    OUTLINE_FIELD_NUMBER: _ClassVar[int]
    FIND_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    place: TreePlace
    names: TreeNames
    values: TreeValues
    outline: TreeOutline
    find: TreeFind
    differences: TreeDifferences
    history: TreeHistory
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., place: _Optional[_Union[TreePlace, _Mapping]] = ..., names: _Optional[_Union[TreeNames, _Mapping]] = ..., values: _Optional[_Union[TreeValues, _Mapping]] = ..., outline: _Optional[_Union[TreeOutline, _Mapping]] = ..., find: _Optional[_Union[TreeFind, _Mapping]] = ..., differences: _Optional[_Union[TreeDifferences, _Mapping]] = ..., history: _Optional[_Union[TreeHistory, _Mapping]] = ...) -> None: ...

class TreePlace(_message.Message):
    __slots__ = ("pattern",)
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    def __init__(self, pattern: _Optional[str] = ...) -> None: ...

class TreeNames(_message.Message):
    __slots__ = ("patterns", "prefix")
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    patterns: _containers.RepeatedScalarFieldContainer[str]
    prefix: str
    def __init__(self, patterns: _Optional[_Iterable[str]] = ..., prefix: _Optional[str] = ...) -> None: ...

class TreeValues(_message.Message):
    __slots__ = ("patterns",)
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    patterns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, patterns: _Optional[_Iterable[str]] = ...) -> None: ...

class TreeOutline(_message.Message):
    __slots__ = ("pattern",)
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    def __init__(self, pattern: _Optional[str] = ...) -> None: ...

class TreeFind(_message.Message):
    __slots__ = ("name", "pattern")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    name: str
    pattern: str
    def __init__(self, name: _Optional[str] = ..., pattern: _Optional[str] = ...) -> None: ...

class TreeDifferences(_message.Message):
    __slots__ = ("path", "before_offset", "before_time_ms")
    PATH_FIELD_NUMBER: _ClassVar[int]
    BEFORE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BEFORE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    path: str
    before_offset: int
    before_time_ms: int
    def __init__(self, path: _Optional[str] = ..., before_offset: _Optional[int] = ..., before_time_ms: _Optional[int] = ...) -> None: ...

class TreeHistory(_message.Message):
    __slots__ = ("path", "since_offset")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SINCE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    path: str
    since_offset: int
    def __init__(self, path: _Optional[str] = ..., since_offset: _Optional[int] = ...) -> None: ...

class ReadTreeResponse(_message.Message):
    __slots__ = ("as_of_offset", "rows", "local")
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    as_of_offset: int
    rows: _containers.RepeatedCompositeFieldContainer[TreeRow]
    local: LocalView
    def __init__(self, as_of_offset: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[TreeRow, _Mapping]]] = ..., local: _Optional[_Union[LocalView, _Mapping]] = ...) -> None: ...

class TreeRow(_message.Message):
    __slots__ = ("named", "value", "outlined", "changed")
    NAMED_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    OUTLINED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    named: TreeNamed
    value: TreeValue
    outlined: TreeOutlined
    changed: TreeChanged
    def __init__(self, named: _Optional[_Union[TreeNamed, _Mapping]] = ..., value: _Optional[_Union[TreeValue, _Mapping]] = ..., outlined: _Optional[_Union[TreeOutlined, _Mapping]] = ..., changed: _Optional[_Union[TreeChanged, _Mapping]] = ...) -> None: ...

class TreeNamed(_message.Message):
    __slots__ = ("path", "name", "is_branch")
    PATH_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    IS_BRANCH_FIELD_NUMBER: _ClassVar[int]
    path: str
    name: str
    is_branch: bool
    def __init__(self, path: _Optional[str] = ..., name: _Optional[str] = ..., is_branch: bool = ...) -> None: ...

class TreeValue(_message.Message):
    __slots__ = ("path", "value_json", "is_only")
    PATH_FIELD_NUMBER: _ClassVar[int]
    VALUE_JSON_FIELD_NUMBER: _ClassVar[int]
    IS_ONLY_FIELD_NUMBER: _ClassVar[int]
    path: str
    value_json: str
    is_only: bool
    def __init__(self, path: _Optional[str] = ..., value_json: _Optional[str] = ..., is_only: bool = ...) -> None: ...

class TreeOutlined(_message.Message):
    __slots__ = ("path", "name", "depth")
    PATH_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    path: str
    name: str
    depth: int
    def __init__(self, path: _Optional[str] = ..., name: _Optional[str] = ..., depth: _Optional[int] = ...) -> None: ...

class TreeChanged(_message.Message):
    __slots__ = ("path", "change", "before_json", "after_json", "offset", "timestamp_ms")
    class Change(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CHANGED: _ClassVar[TreeChanged.Change]
        ADDED: _ClassVar[TreeChanged.Change]
        REMOVED: _ClassVar[TreeChanged.Change]
    CHANGED: TreeChanged.Change
    ADDED: TreeChanged.Change
    REMOVED: TreeChanged.Change
    PATH_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_JSON_FIELD_NUMBER: _ClassVar[int]
    AFTER_JSON_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    path: str
    change: TreeChanged.Change
    before_json: str
    after_json: str
    offset: int
    timestamp_ms: int
    def __init__(self, path: _Optional[str] = ..., change: _Optional[_Union[TreeChanged.Change, str]] = ..., before_json: _Optional[str] = ..., after_json: _Optional[str] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...
