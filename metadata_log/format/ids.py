"""The words that every room counts with: offsets, epochs, node ids and directory ids.

Offsets are positions in the `@metadata` log. An *end* offset is exclusive: a log with `end == 5` holds the records
0..4, and a high watermark of 5 says that 0..4 are committed. An epoch is one term of leadership; within one epoch there
is at most one leader, ever. Epochs count from 1 to `EPOCH_MAX`, in 64 bits with a sign, as Java, protobuf and Spark have them.
A node is known by its id *and* by the directory that it keeps its log in (KIP-853): a node
that comes back with an empty disk has the same id and another directory id, so its old promises are not mistaken for
its own.
"""

import base64
import binascii
import uuid
from typing import Annotated, Final, NamedTuple, TypeAlias

Offset: TypeAlias = int
Epoch: TypeAlias = int
NodeId: TypeAlias = int
Uuid: TypeAlias = Annotated[bytes, "uuid"]
"""Sixteen bytes; shown to people as 22 characters of URL-safe base64, as Kafka shows them. The codec checks the length of a
record's field that is annotated so."""

NODE_ID_MAX: Final = (1 << 31) - 1
"""The largest node id: on the wire and in Spark ids are 32 bits with a sign, as in Kafka."""
EPOCH_MAX: Final = (1 << 63) - 1
"""The last epoch that there is. A sender who moved a node a million epochs on with every request, a hundred times a second,
would need 2,900 years."""

NO_LEADER: NodeId = -1
"""In a partition: nobody leads it. (JSON shows null.)"""

ZERO_UUID: Uuid = bytes(16)


class OffsetAndEpoch(NamedTuple):
    """A place in the log: `offset` is exclusive, `epoch` is the epoch of the record just below it (0 where there is none)."""

    offset: Offset
    epoch: Epoch

    def __str__(self) -> str:
        return f"{self.offset}@{self.epoch}"


class ReplicaKey(NamedTuple):
    """Who votes: a node id together with the directory id of its disk (KIP-853)."""

    node_id: NodeId
    directory_id: Uuid

    def __str__(self) -> str:
        return f"{self.node_id}/{uuid_text(self.directory_id)}"


def uuid_text(value: Uuid) -> str:
    """Sixteen bytes as 22 characters, as people type and read them."""
    assert len(value) == 16
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def id_shown(value: bytes) -> str:
    """What should be an id, for a message: as `uuid_text`, or as it is where it has another length."""
    return uuid_text(value) if len(value) == 16 else repr(value[:16])


def parse_uuid(text: str) -> Uuid:
    """The sixteen bytes behind `text`: 22 base64 characters, or the 36 of the dashed hexadecimal form.

    Raises:
        ValueError: if `text` is neither.
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
