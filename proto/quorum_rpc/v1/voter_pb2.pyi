from quorum_rpc.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Sender(_message.Message):
    __slots__ = ("cluster_id", "replica", "generation")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica: _common_pb2.ReplicaKey
    generation: int
    def __init__(self, cluster_id: _Optional[str] = ..., replica: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., generation: _Optional[int] = ...) -> None: ...

class Standing(_message.Message):
    __slots__ = ("error", "epoch", "leader_id", "leader_endpoint")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.ErrorCode
    epoch: int
    leader_id: int
    leader_endpoint: _common_pb2.Endpoint
    def __init__(self, error: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_endpoint: _Optional[_Union[_common_pb2.Endpoint, _Mapping]] = ...) -> None: ...

class Voter(_message.Message):
    __slots__ = ("replica", "endpoints", "kraft_version_min", "kraft_version_max")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    KRAFT_VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    KRAFT_VERSION_MAX_FIELD_NUMBER: _ClassVar[int]
    replica: _common_pb2.ReplicaKey
    endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    kraft_version_min: int
    kraft_version_max: int
    def __init__(self, replica: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ..., kraft_version_min: _Optional[int] = ..., kraft_version_max: _Optional[int] = ...) -> None: ...

class VoteRequest(_message.Message):
    __slots__ = ("sender", "receiver", "epoch", "last_epoch", "end_offset", "pre_vote")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    sender: Sender
    receiver: _common_pb2.ReplicaKey
    epoch: int
    last_epoch: int
    end_offset: int
    pre_vote: bool
    def __init__(self, sender: _Optional[_Union[Sender, _Mapping]] = ..., receiver: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., epoch: _Optional[int] = ..., last_epoch: _Optional[int] = ..., end_offset: _Optional[int] = ..., pre_vote: bool = ...) -> None: ...

class VoteResponse(_message.Message):
    __slots__ = ("standing", "vote_granted")
    STANDING_FIELD_NUMBER: _ClassVar[int]
    VOTE_GRANTED_FIELD_NUMBER: _ClassVar[int]
    standing: Standing
    vote_granted: bool
    def __init__(self, standing: _Optional[_Union[Standing, _Mapping]] = ..., vote_granted: bool = ...) -> None: ...

class BeginQuorumEpochRequest(_message.Message):
    __slots__ = ("sender", "receiver", "epoch", "endpoint")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    sender: Sender
    receiver: _common_pb2.ReplicaKey
    epoch: int
    endpoint: _common_pb2.Endpoint
    def __init__(self, sender: _Optional[_Union[Sender, _Mapping]] = ..., receiver: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., epoch: _Optional[int] = ..., endpoint: _Optional[_Union[_common_pb2.Endpoint, _Mapping]] = ...) -> None: ...

class BeginQuorumEpochResponse(_message.Message):
    __slots__ = ("standing",)
    STANDING_FIELD_NUMBER: _ClassVar[int]
    standing: Standing
    def __init__(self, standing: _Optional[_Union[Standing, _Mapping]] = ...) -> None: ...

class EndQuorumEpochRequest(_message.Message):
    __slots__ = ("sender", "epoch", "preferred_successors")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_SUCCESSORS_FIELD_NUMBER: _ClassVar[int]
    sender: Sender
    epoch: int
    preferred_successors: _containers.RepeatedCompositeFieldContainer[_common_pb2.ReplicaKey]
    def __init__(self, sender: _Optional[_Union[Sender, _Mapping]] = ..., epoch: _Optional[int] = ..., preferred_successors: _Optional[_Iterable[_Union[_common_pb2.ReplicaKey, _Mapping]]] = ...) -> None: ...

class EndQuorumEpochResponse(_message.Message):
    __slots__ = ("standing",)
    STANDING_FIELD_NUMBER: _ClassVar[int]
    standing: Standing
    def __init__(self, standing: _Optional[_Union[Standing, _Mapping]] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("sender", "epoch", "number", "fetch_offset", "last_fetched_epoch", "chain", "high_watermark", "max_wait_ms", "max_bytes", "read_token", "incarnation", "applied_offset", "digest", "damaged", "part_position")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FETCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCHED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    READ_TOKEN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    PART_POSITION_FIELD_NUMBER: _ClassVar[int]
    sender: Sender
    epoch: int
    number: int
    fetch_offset: int
    last_fetched_epoch: int
    chain: bytes
    high_watermark: int
    max_wait_ms: int
    max_bytes: int
    read_token: int
    incarnation: int
    applied_offset: int
    digest: bytes
    damaged: bool
    part_position: int
    def __init__(self, sender: _Optional[_Union[Sender, _Mapping]] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ..., fetch_offset: _Optional[int] = ..., last_fetched_epoch: _Optional[int] = ..., chain: _Optional[bytes] = ..., high_watermark: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ..., read_token: _Optional[int] = ..., incarnation: _Optional[int] = ..., applied_offset: _Optional[int] = ..., digest: _Optional[bytes] = ..., damaged: bool = ..., part_position: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("standing", "number", "high_watermark", "log_start", "batches", "diverging", "snapshot", "successors", "read_token", "image_differs", "log_end", "part")
    STANDING_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    DIVERGING_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SUCCESSORS_FIELD_NUMBER: _ClassVar[int]
    READ_TOKEN_FIELD_NUMBER: _ClassVar[int]
    IMAGE_DIFFERS_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    standing: Standing
    number: int
    high_watermark: int
    log_start: int
    batches: bytes
    diverging: _common_pb2.OffsetAndEpoch
    snapshot: _common_pb2.SnapshotId
    successors: _containers.RepeatedScalarFieldContainer[int]
    read_token: int
    image_differs: bool
    log_end: int
    part: _common_pb2.BatchPart
    def __init__(self, standing: _Optional[_Union[Standing, _Mapping]] = ..., number: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_start: _Optional[int] = ..., batches: _Optional[bytes] = ..., diverging: _Optional[_Union[_common_pb2.OffsetAndEpoch, _Mapping]] = ..., snapshot: _Optional[_Union[_common_pb2.SnapshotId, _Mapping]] = ..., successors: _Optional[_Iterable[int]] = ..., read_token: _Optional[int] = ..., image_differs: bool = ..., log_end: _Optional[int] = ..., part: _Optional[_Union[_common_pb2.BatchPart, _Mapping]] = ...) -> None: ...

class FetchSnapshotRequest(_message.Message):
    __slots__ = ("sender", "epoch", "number", "snapshot", "position", "max_bytes")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    sender: Sender
    epoch: int
    number: int
    snapshot: _common_pb2.SnapshotId
    position: int
    max_bytes: int
    def __init__(self, sender: _Optional[_Union[Sender, _Mapping]] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ..., snapshot: _Optional[_Union[_common_pb2.SnapshotId, _Mapping]] = ..., position: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class FetchSnapshotResponse(_message.Message):
    __slots__ = ("standing", "number", "size", "position", "data")
    STANDING_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    standing: Standing
    number: int
    size: int
    position: int
    data: bytes
    def __init__(self, standing: _Optional[_Union[Standing, _Mapping]] = ..., number: _Optional[int] = ..., size: _Optional[int] = ..., position: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class ReadLogRequest(_message.Message):
    __slots__ = ("sender", "offset", "end_offset", "max_bytes")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    sender: Sender
    offset: int
    end_offset: int
    max_bytes: int
    def __init__(self, sender: _Optional[_Union[Sender, _Mapping]] = ..., offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class ReadLogResponse(_message.Message):
    __slots__ = ("standing", "batches", "log_start", "snapshot")
    STANDING_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    standing: Standing
    batches: bytes
    log_start: int
    snapshot: _common_pb2.SnapshotId
    def __init__(self, standing: _Optional[_Union[Standing, _Mapping]] = ..., batches: _Optional[bytes] = ..., log_start: _Optional[int] = ..., snapshot: _Optional[_Union[_common_pb2.SnapshotId, _Mapping]] = ...) -> None: ...

class ReadSnapshotRequest(_message.Message):
    __slots__ = ("sender", "snapshot", "position", "max_bytes")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    sender: Sender
    snapshot: _common_pb2.SnapshotId
    position: int
    max_bytes: int
    def __init__(self, sender: _Optional[_Union[Sender, _Mapping]] = ..., snapshot: _Optional[_Union[_common_pb2.SnapshotId, _Mapping]] = ..., position: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class ReadSnapshotResponse(_message.Message):
    __slots__ = ("standing", "size", "position", "data")
    STANDING_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    standing: Standing
    size: int
    position: int
    data: bytes
    def __init__(self, standing: _Optional[_Union[Standing, _Mapping]] = ..., size: _Optional[int] = ..., position: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class DescribeChainRequest(_message.Message):
    __slots__ = ("sender", "offset", "epoch")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    sender: Sender
    offset: int
    epoch: int
    def __init__(self, sender: _Optional[_Union[Sender, _Mapping]] = ..., offset: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class DescribeChainResponse(_message.Message):
    __slots__ = ("standing", "chain", "end_offset", "last_epoch")
    STANDING_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    standing: Standing
    chain: bytes
    end_offset: int
    last_epoch: int
    def __init__(self, standing: _Optional[_Union[Standing, _Mapping]] = ..., chain: _Optional[bytes] = ..., end_offset: _Optional[int] = ..., last_epoch: _Optional[int] = ...) -> None: ...

class AddVoterRequest(_message.Message):
    __slots__ = ("sender", "voter", "ack_when_committed", "timeout_ms")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    ACK_WHEN_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    sender: Sender
    voter: Voter
    ack_when_committed: bool
    timeout_ms: int
    def __init__(self, sender: _Optional[_Union[Sender, _Mapping]] = ..., voter: _Optional[_Union[Voter, _Mapping]] = ..., ack_when_committed: bool = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class RemoveVoterRequest(_message.Message):
    __slots__ = ("sender", "voter", "timeout_ms")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    sender: Sender
    voter: _common_pb2.ReplicaKey
    timeout_ms: int
    def __init__(self, sender: _Optional[_Union[Sender, _Mapping]] = ..., voter: _Optional[_Union[_common_pb2.ReplicaKey, _Mapping]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class UpdateVoterRequest(_message.Message):
    __slots__ = ("sender", "voter", "epoch", "timeout_ms")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    sender: Sender
    voter: Voter
    epoch: int
    timeout_ms: int
    def __init__(self, sender: _Optional[_Union[Sender, _Mapping]] = ..., voter: _Optional[_Union[Voter, _Mapping]] = ..., epoch: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class QuorumChangeResponse(_message.Message):
    __slots__ = ("standing", "message", "offset")
    STANDING_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    standing: Standing
    message: str
    offset: int
    def __init__(self, standing: _Optional[_Union[Standing, _Mapping]] = ..., message: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class RegisterControllerRequest(_message.Message):
    __slots__ = ("sender", "endpoints", "features")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    sender: Sender
    endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    features: _containers.RepeatedCompositeFieldContainer[_common_pb2.FeatureRange]
    def __init__(self, sender: _Optional[_Union[Sender, _Mapping]] = ..., endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ..., features: _Optional[_Iterable[_Union[_common_pb2.FeatureRange, _Mapping]]] = ...) -> None: ...

class RegisterControllerResponse(_message.Message):
    __slots__ = ("standing",)
    STANDING_FIELD_NUMBER: _ClassVar[int]
    standing: Standing
    def __init__(self, standing: _Optional[_Union[Standing, _Mapping]] = ...) -> None: ...
