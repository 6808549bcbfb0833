from quorum_rpc.v1 import broker_pb2 as _broker_pb2
from quorum_rpc.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MetadataRequest(_message.Message):
    __slots__ = ("topics", "listener", "min_offset", "max_wait_ms", "page_token", "page_size", "topic_ids")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_IDS_FIELD_NUMBER: _ClassVar[int]
    topics: TopicNames
    listener: str
    min_offset: int
    max_wait_ms: int
    page_token: bytes
    page_size: int
    topic_ids: TopicIds
    def __init__(self, topics: _Optional[_Union[TopicNames, _Mapping]] = ..., listener: _Optional[str] = ..., min_offset: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., page_token: _Optional[bytes] = ..., page_size: _Optional[int] = ..., topic_ids: _Optional[_Union[TopicIds, _Mapping]] = ...) -> None: ...

class MetadataCursor(_message.Message):
    __slots__ = ("topic", "partition", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    topic_id: bytes
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class TopicNames(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class TopicIds(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("broker_id", "host", "port", "rack")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    host: str
    port: int
    rack: str
    def __init__(self, broker_id: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., rack: _Optional[str] = ...) -> None: ...

class PartitionMetadata(_message.Message):
    __slots__ = ("error", "partition", "leader_id", "leader_epoch", "replicas", "isr", "offline_replicas", "elr", "last_known_elr", "partition_epoch")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ELR_FIELD_NUMBER: _ClassVar[int]
    LAST_KNOWN_ELR_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    partition: int
    leader_id: int
    leader_epoch: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    offline_replicas: _containers.RepeatedScalarFieldContainer[int]
    elr: _containers.RepeatedScalarFieldContainer[int]
    last_known_elr: _containers.RepeatedScalarFieldContainer[int]
    partition_epoch: int
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., partition: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ..., offline_replicas: _Optional[_Iterable[int]] = ..., elr: _Optional[_Iterable[int]] = ..., last_known_elr: _Optional[_Iterable[int]] = ..., partition_epoch: _Optional[int] = ...) -> None: ...

class TopicMetadata(_message.Message):
    __slots__ = ("name", "error", "topic_id", "is_internal", "partitions", "partition_count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    IS_INTERNAL_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    error: _common_pb2.Error
    topic_id: bytes
    is_internal: bool
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionMetadata]
    partition_count: int
    def __init__(self, name: _Optional[str] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., topic_id: _Optional[bytes] = ..., is_internal: bool = ..., partitions: _Optional[_Iterable[_Union[PartitionMetadata, _Mapping]]] = ..., partition_count: _Optional[int] = ...) -> None: ...

class MetadataResponse(_message.Message):
    __slots__ = ("error", "cluster_id", "as_of_offset", "controller_id", "nodes", "topics", "generation", "next_page_token")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.Error
    cluster_id: str
    as_of_offset: int
    controller_id: int
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    topics: _containers.RepeatedCompositeFieldContainer[TopicMetadata]
    generation: int
    next_page_token: bytes
    def __init__(self, error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., cluster_id: _Optional[str] = ..., as_of_offset: _Optional[int] = ..., controller_id: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[TopicMetadata, _Mapping]]] = ..., generation: _Optional[int] = ..., next_page_token: _Optional[bytes] = ...) -> None: ...

class BrokerStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BrokerStatusResponse(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "incarnation_id", "state", "lease_lapsed", "applied_offset", "high_watermark", "digest", "reason", "problems")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LEASE_LAPSED_FIELD_NUMBER: _ClassVar[int]
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    state: _broker_pb2.BrokerState
    lease_lapsed: bool
    applied_offset: int
    high_watermark: int
    digest: bytes
    reason: str
    problems: _containers.RepeatedCompositeFieldContainer[BrokerProblem]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., state: _Optional[_Union[_broker_pb2.BrokerState, str]] = ..., lease_lapsed: bool = ..., applied_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., digest: _Optional[bytes] = ..., reason: _Optional[str] = ..., problems: _Optional[_Iterable[_Union[BrokerProblem, _Mapping]]] = ...) -> None: ...

class BrokerProblem(_message.Message):
    __slots__ = ("code", "text")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    code: str
    text: str
    def __init__(self, code: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class ClusterStatusRequest(_message.Message):
    __slots__ = ("min_offset", "max_wait_ms", "page_size", "page_token")
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    min_offset: int
    max_wait_ms: int
    page_size: int
    page_token: bytes
    def __init__(self, min_offset: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class FinalizedFeature(_message.Message):
    __slots__ = ("name", "level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    level: int
    def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ...) -> None: ...

class RegisteredBroker(_message.Message):
    __slots__ = ("broker_id", "state", "endpoints", "rack", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    state: _broker_pb2.BrokerState
    endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    rack: str
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., state: _Optional[_Union[_broker_pb2.BrokerState, str]] = ..., endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ..., rack: _Optional[str] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class ClusterStatusResponse(_message.Message):
    __slots__ = ("cluster_id", "as_of_offset", "generation", "controller_id", "features", "topics", "partitions", "brokers", "next_page_token")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    as_of_offset: int
    generation: int
    controller_id: int
    features: _containers.RepeatedCompositeFieldContainer[FinalizedFeature]
    topics: int
    partitions: int
    brokers: _containers.RepeatedCompositeFieldContainer[RegisteredBroker]
    next_page_token: bytes
    def __init__(self, cluster_id: _Optional[str] = ..., as_of_offset: _Optional[int] = ..., generation: _Optional[int] = ..., controller_id: _Optional[int] = ..., features: _Optional[_Iterable[_Union[FinalizedFeature, _Mapping]]] = ..., topics: _Optional[int] = ..., partitions: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[RegisteredBroker, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ...) -> None: ...

class ConfigOwner(_message.Message):
    __slots__ = ("resource_type", "name")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    name: str
    def __init__(self, resource_type: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class ConfigsRequest(_message.Message):
    __slots__ = ("resources", "min_offset", "max_wait_ms", "page_size", "page_token")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[ConfigOwner]
    min_offset: int
    max_wait_ms: int
    page_size: int
    page_token: bytes
    def __init__(self, resources: _Optional[_Iterable[_Union[ConfigOwner, _Mapping]]] = ..., min_offset: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class ConfigValue(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class OwnConfigs(_message.Message):
    __slots__ = ("resource", "error", "configs")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    resource: ConfigOwner
    error: _common_pb2.Error
    configs: _containers.RepeatedCompositeFieldContainer[ConfigValue]
    def __init__(self, resource: _Optional[_Union[ConfigOwner, _Mapping]] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., configs: _Optional[_Iterable[_Union[ConfigValue, _Mapping]]] = ...) -> None: ...

class ConfigsResponse(_message.Message):
    __slots__ = ("as_of_offset", "generation", "resources", "next_page_token")
    AS_OF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    as_of_offset: int
    generation: int
    resources: _containers.RepeatedCompositeFieldContainer[OwnConfigs]
    next_page_token: bytes
    def __init__(self, as_of_offset: _Optional[int] = ..., generation: _Optional[int] = ..., resources: _Optional[_Iterable[_Union[OwnConfigs, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ...) -> None: ...
