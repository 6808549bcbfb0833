"""Parts that messages of several services share: ids, endpoints, snapshot ids, batches. Decides nothing.

Batches stay bytes: the bytes that `encode` made on the leader lie on the follower's disk. The receiving node checks the CRC of
each batch, and never encodes a batch again. Received messages are not trusted: gRPC's receive limit and the batch format bound
all lengths, an id has 16 bytes, and any other mistake is a `BadMessage`.
"""

from collections.abc import Iterable

from quorum_rpc.v1 import common_pb2

from metadata_log.format.batch import Batch, decode_all
from metadata_log.format.errors import LogFormatError
from metadata_log.format.fetch_size import BatchPart
from metadata_log.format.ids import OffsetAndEpoch, ReplicaKey, Uuid
from metadata_log.format.records import Endpoint
from quorum.wire.convert.errors import BadMessage

UUID_BYTES = 16
BATCHES_BYTES_MAX = 4 << 20
"""Maximum size of an answer's batches: gRPC's limit for a whole message."""


def uuid(value: bytes, what: str) -> Uuid:
    """Returns the id. Raises BadMessage unless it has 16 bytes."""
    if len(value) != UUID_BYTES:
        raise BadMessage(f"{what} has {len(value)} bytes; an id has {UUID_BYTES}")
    return value


def chain(value: bytes, what: str) -> bytes:
    """Returns the chain value, empty if the sender does not know it. Raises BadMessage for any length but 0 and 32."""
    if len(value) not in (0, 32):
        raise BadMessage(f"{what} has {len(value)} bytes; a chain has 32")
    return value


def at_most(limit: int, count: int, what: str) -> None:
    """Raises BadMessage if `count` is above `limit`."""
    if count > limit:
        raise BadMessage(f"{count} {what}; at most {limit}")


def from_replica(message: common_pb2.ReplicaKey) -> ReplicaKey:
    return ReplicaKey(message.node_id, uuid(message.directory_id, "directory_id"))


def to_replica(key: ReplicaKey) -> common_pb2.ReplicaKey:
    return common_pb2.ReplicaKey(node_id=key.node_id, directory_id=key.directory_id)


def from_endpoint(message: common_pb2.Endpoint) -> Endpoint:
    return Endpoint(message.listener, message.host, message.port)


def to_endpoint(endpoint: Endpoint) -> common_pb2.Endpoint:
    return common_pb2.Endpoint(listener=endpoint.listener, host=endpoint.host, port=endpoint.port)


def from_snapshot_id(message: common_pb2.SnapshotId) -> OffsetAndEpoch:
    return OffsetAndEpoch(message.end_offset, message.epoch)


def to_snapshot_id(snapshot: OffsetAndEpoch) -> common_pb2.SnapshotId:
    return common_pb2.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)


def join(batches: Iterable[Batch]) -> bytes:
    """Returns whole batches, end to end, as the log has them."""
    return b"".join([batch.data for batch in batches])


def split(data: bytes) -> tuple[Batch, ...]:
    """Returns the batches in `data`. The CRC of each batch was checked."""
    if len(data) > BATCHES_BYTES_MAX:
        raise BadMessage(f"{len(data)} bytes of batches; at most {BATCHES_BYTES_MAX}")
    try:
        return tuple(decode_all(data))
    except LogFormatError as e:
        raise BadMessage(f"batches: {e}") from e


def to_part(part: BatchPart) -> common_pb2.BatchPart:
    return common_pb2.BatchPart(position=part.position, size=part.size, data=part.data)


def from_part(message: common_pb2.BatchPart) -> BatchPart:
    """Returns the part of a batch. Raises BadMessage if position, size and data contradict each other."""
    part = BatchPart(message.position, message.size, message.data)
    if not part.is_sound:
        raise BadMessage(
            f"a part has {len(part.data)} bytes at position {part.position} of a batch of {part.size} bytes"
        )
    return part
