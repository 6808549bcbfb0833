"""Records of a metadata log: what their bytes say, and their form as JSON.

The value of a metadata record is a frame version (1), the number of its type and its version as unsigned varints, then the
message. A control record has version and type in its key. Example:
  1. `01 02 00 07 6F 72 64 65 72 73 ...` is frame 1, type 2 (TopicRecord), version 0, the name "orders", and so on.
  2. Type 99 is not in `tables`: the record becomes an `UnknownRecord`, which keeps all its bytes.
  3. Type 2 at version 7 is of a later Kafka: an `UnknownRecord` too.
"""

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from metadata_log.format.ids import Offset
from snapshots.offline.kafka.batches import Batch, RawRecord, raw_records
from snapshots.offline.kafka.errors import KafkaFormatError, cut_short
from snapshots.offline.kafka.messages import UNKNOWN_TAGS, Fields, decoder
from snapshots.offline.kafka.primitives import unsigned_varint
from snapshots.offline.kafka.schema import UUID, Array, Field, Message, Struct, Type
from snapshots.offline.kafka.tables import CONTROL, METADATA

FRAME_VERSION: Final = 1
LEADER_CHANGE: Final = 2
SNAPSHOT_FOOTER: Final = 4
_CONTROL_KEY: Final = struct.Struct(">hh")
_BODY_VERSION: Final = struct.Struct(">h")


class Record(NamedTuple):
    """A record whose type and version this release knows."""

    message: Message
    version: int
    fields: Fields

    @property
    def name(self) -> str:
        return self.message.name


class UnknownRecord(NamedTuple):
    """A record of a type or version that is not in `tables`. Nothing of it is lost."""

    is_control: bool
    key: int
    version: int
    value: bytes
    """The whole value of the record."""

    @property
    def name(self) -> str:
        return f"Unknown{'Control' if self.is_control else ''}({self.key} v{self.version})"


class Placed(NamedTuple):
    """A decoded record, and where and when it was written."""

    offset: Offset
    epoch: int
    timestamp_ms: int
    record: Record | UnknownRecord


_Decoders: TypeAlias = Mapping[tuple[int, int], tuple[Message, Callable[[bytes, int], Fields]]]


def _decoders(messages: Mapping[int, Message]) -> _Decoders:
    return {
        (key, version): (message, decoder(message, version))
        for key, message in messages.items()
        for version in range(message.latest + 1)
    }


_METADATA: Final = _decoders(METADATA)
_CONTROL: Final = _decoders(CONTROL)


def decode_value(value: bytes) -> Record | UnknownRecord:
    """Decode the value of a metadata record.

    Raises:
        KafkaFormatError: the bytes are not a record; a record of an unknown type or version is no error.
    """
    try:
        frame, at = unsigned_varint(value, 0)
        key, at = unsigned_varint(value, at)
        version, at = unsigned_varint(value, at)
    except IndexError:
        raise cut_short() from None
    if frame != FRAME_VERSION:
        raise KafkaFormatError(f"the record has frame version {frame}, not {FRAME_VERSION}")
    found = _METADATA.get((key, version))
    if found is None:
        return UnknownRecord(False, key, version, value)
    return Record(found[0], version, found[1](value, at))


def decode_control(key: bytes, value: bytes) -> Record | UnknownRecord:
    """Decode a control record. Raises as `decode_value`."""
    if len(key) != _CONTROL_KEY.size:
        raise KafkaFormatError(f"the key of a control record has {len(key)} bytes, not {_CONTROL_KEY.size}")
    _, number = _CONTROL_KEY.unpack(key)
    if len(value) < _BODY_VERSION.size:
        raise cut_short()
    (version,) = _BODY_VERSION.unpack_from(value)  # every control record of the quorum begins with its version
    found = _CONTROL.get((number, version))
    if found is None:
        return UnknownRecord(True, number, version, value)
    return Record(found[0], version, found[1](value, 0))


def decode_record(batch: Batch, raw: RawRecord) -> Record | UnknownRecord:
    """Decode one record of a batch. Raises as `decode_value`."""
    if raw.value is None:
        raise KafkaFormatError("the record has no value, which Kafka's controllers never write")
    if not batch.is_control:
        return decode_value(raw.value)
    if raw.key is None:
        raise KafkaFormatError("the control record has no key")
    return decode_control(raw.key, raw.value)


def records(batch: Batch) -> Iterator[Placed]:
    """Decode the records of a batch.

    Raises:
        KafkaFormatError: a record is damaged. The records before it were returned.
    """
    for raw in raw_records(batch):
        yield Placed(raw.offset, batch.epoch, raw.timestamp_ms, decode_record(batch, raw))


def to_json(record: Record | UnknownRecord) -> dict[str, Any]:
    """Return the fields of a record as Kafka's own tools print them: tagged fields at their default are left out.

    Ids and bytes become base64. Bytes that this release does not understand stand under `_tags` or `_value`.
    """
    if isinstance(record, UnknownRecord):
        return {"_value": _base64(record.value)}
    return _struct_json(record.message.fields, record.version, record.fields)


def _struct_json(fields: tuple[Field, ...], version: int, values: Fields) -> dict[str, Any]:
    found = {
        field.name: _json(field.type, version, values[field.name])
        for field in fields
        if field.since <= version and (field.tag is None or values[field.name] != field.default_value)
    }
    if UNKNOWN_TAGS in values:
        found[UNKNOWN_TAGS] = {str(tag): _base64(data) for tag, data in values[UNKNOWN_TAGS].items()}
    return found


def _json(kind: Type, version: int, value: Any) -> Any:
    if value is None:
        return None
    match kind:
        case Struct(fields):
            return _struct_json(fields, version, value)
        case Array(element):
            return [_json(element, version, each) for each in value]
    if isinstance(value, bytes):
        return uuid_text(value) if kind is UUID else _base64(value)
    return value


def uuid_text(uuid: bytes) -> str:
    """Return an id as Kafka shows it: 22 characters of base64."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
