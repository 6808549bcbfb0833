"""Offsets, epochs, node ids and directory ids: the basic types of every room.

*Offsets* are positions in the `@metadata` log. An *end* offset is exclusive: a log with `end == 5` has the records
0..4, and with a high watermark of 5 the records 0..4 are committed.

*An epoch* is one term of leadership (Raft's term). One epoch has at most one leader. Epochs count from 1 to
`EPOCH_MAX`, in signed 64 bits, as in Java, protobuf and Spark.

*A voter is a node id and a directory id together* (KIP-853). Example: voter 1 with directory A votes in epoch 5, then
its disk is replaced and formatted. The node comes back as 1 with directory B. The others treat 1/B as a new replica and
do not believe that it still has the vote and the records of 1/A.
"""

import base64
import binascii
import uuid
from typing import Annotated, Final, NamedTuple, TypeAlias

Offset: TypeAlias = int
Epoch: TypeAlias = int
NodeId: TypeAlias = int
Uuid: TypeAlias = Annotated[bytes, "uuid"]
"""Sixteen bytes. People see 22 characters of URL-safe base64, as in Kafka. The codec checks the length of record fields
with this annotation."""

OFFSET_MAX: Final = (1 << 63) - 1
"""The largest offset: offsets have signed 64 bits on the wire and in Spark, as in Kafka."""
NODE_ID_MAX: Final = (1 << 31) - 1
"""The largest node id: ids have signed 32 bits on the wire and in Spark, as in Kafka."""
EPOCH_MAX: Final = (1 << 63) - 1
"""The largest epoch. If every request raised a node's epoch by a million, a hundred times a second, this number would
last for 2,900 years."""

NO_LEADER: NodeId = -1
"""The leader of a partition that has no leader. (null in JSON.)"""

ZERO_UUID: Uuid = bytes(16)

UNASSIGNED_DIRECTORY: Uuid = ZERO_UUID
"""The log directory of a replica whose broker has not said where the replica is. Such a replica counts as online."""
LOST_DIRECTORY: Uuid = bytes(15) + b"\x01"
"""The log directory of a replica that was in a failed directory before the broker could say where it was (KIP-858)."""


class OffsetAndEpoch(NamedTuple):
    """A place in the log: `offset` is exclusive, `epoch` is the epoch of the record just below (0 if no record is
    below).
    """

    offset: Offset
    epoch: Epoch

    def __str__(self) -> str:
        return f"{self.offset}@{self.epoch}"


class ReplicaKey(NamedTuple):
    """A voter's identity: a node id and the directory id of its disk (KIP-853)."""

    node_id: NodeId
    directory_id: Uuid

    def __str__(self) -> str:
        return f"{self.node_id}/{uuid_text(self.directory_id)}"


def uuid_text(value: Uuid) -> str:
    """Convert sixteen bytes to 22 characters, as people type and read them."""
    assert len(value) == 16
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def id_shown(value: bytes) -> str:
    """Convert an id of unchecked length for a message: as `uuid_text`, or as `repr` if the length is wrong."""
    return uuid_text(value) if len(value) == 16 else repr(value[:16])


def parse_uuid(text: str) -> Uuid:
    """Parse `text`: 22 base64 characters, or the 36 characters of the dashed hexadecimal form.

    Raises:
        ValueError: `text` is neither.
    """
    if len(text) == 36:
        return uuid.UUID(text).bytes
    try:
        value = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError) as e:
        raise ValueError(
            f"not an id: {text!r} (22 base64 characters, as `quorumctl storage random-uuid` prints)"
        ) from e
    if len(text) != 22 or len(value) != 16:
        raise ValueError(f"not an id: {text!r} (22 base64 characters, as `quorumctl storage random-uuid` prints)")
    return value
