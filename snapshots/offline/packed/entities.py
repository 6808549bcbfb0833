"""The records of each entity, packed: one row holds the records of one entity that a task has read lately.

    entity           generation   offset   sizes      offsets      payload
    ["topic","A"]             1       10   [44, 31]   [10, 70]     the bytes of both records

Most records of a log are changes of partitions, and many of them belong to one topic. If each record is a row, the rows cost more
than the fold: each record is decoded to find its entity, and Spark sorts a text, a number and some bytes for each. Here a new or
changed partition is not decoded. Its first bytes name its topic, and the fold decodes only what it has not seen before
(`topic_fold`).

All other records are decoded, because a record may belong to several entities. A batch that is unusual in any way, for example
with a record of a later release, goes through `rows.entity_rows`, which raises the errors.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from metadata_log.format.batch import FORMAT_VERSION, Batch
from metadata_log.format.codec import UnknownRecord, decode_record, split_payload
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset, Uuid, parse_uuid
from metadata_log.format.partition_bytes import CHANGE_MARK, ID_AT, NUMBER_AT, PARTITION_STARTS
from metadata_log.format.records import (
    FIRST_CONTROL_TYPE,
    TYPE_NUMBERS,
    MetadataRecord,
    PartitionChange,
    Record,
)
from metadata_log.image.entities import entity_keys
from metadata_log.image.entity_key import EVERY_TOPIC, EntityKey, topic_key
from snapshots.offline.rows import FROM_LOG, FROM_SNAPSHOT, Row, entity_text, visible_records

_CHANGE_STARTS: Final = [bytes([0x90 | 4 + fields]) + CHANGE_MARK for fields in range(len(PartitionChange._fields) - 1)]
"""The bytes before the topic id of a `PartitionChange`, by the number of fields behind the partition's number."""
PACKED_BYTES_MAX: Final = 8 << 20
"""About how many bytes of records a task collects before it gives them away as rows."""
TOPIC_STARTS: Final = frozenset((*_CHANGE_STARTS, *PARTITION_STARTS))
"""The bytes before the topic id of a new or changed partition: a record that begins so belongs to this topic, and to no other
entity."""


class Pack(NamedTuple):
    """The records of one entity, by offset: their sizes and offsets, and their bytes end to end."""

    sizes: "array[int]"
    offsets: "array[int]"
    payload: bytearray

    def add(self, offset: Offset, packed: bytes) -> None:
        self.sizes.append(len(packed))
        self.offsets.append(offset)
        self.payload.extend(packed)


def numbers_of(sizes: bytes, offsets: bytes) -> tuple["array[int]", "array[int]"]:
    """Return the sizes and the offsets of a row."""
    numbers = array("I"), array("q")
    numbers[0].frombytes(sizes)
    numbers[1].frombytes(offsets)
    return numbers


class _Packer:
    """The records that a task has read and not given away."""

    def __init__(self, generation: int) -> None:
        self._generation = generation
        self._packs: dict[str | Uuid, Pack] = {}
        """By entity; the key of a topic is the topic's id."""
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._bytes >= PACKED_BYTES_MAX

    def add(self, key: EntityKey, offset: Offset, packed: bytes) -> None:
        self._pack(parse_uuid(key[1]) if is_topic(key) else entity_text(key)).add(offset, packed)
        self._bytes += len(packed)

    def add_batch(self, batch: Batch) -> None:
        """Add all records of a batch of data.

        Raises:
            LogFormatError: the batch cannot be decoded. Some records were added.
        """
        payload, packs = batch.payload, self._packs
        for offset, piece in enumerate(split_payload(payload, batch.record_count), batch.base_offset):
            if piece[:ID_AT] in TOPIC_STARTS:
                topic_id = piece[ID_AT:NUMBER_AT]
                sizes, offsets, together = packs.get(topic_id) or self._pack(topic_id)
                sizes.append(len(piece))  # `Pack.add` would cost a third more, for each of millions of records
                offsets.append(offset)
                together += piece
            else:
                for key in entity_keys(_decode(piece)):
                    self.add(key, offset, piece)
        self._bytes += len(payload)

    def _pack(self, key: str | Uuid) -> Pack:
        pack = self._packs.get(key)
        if pack is None:
            pack = self._packs[key] = Pack(array("I"), array("q"), bytearray())
        return pack

    def take(self) -> Iterator[Row]:
        """Return everything as rows."""
        for key, pack in self._packs.items():
            entity = key if isinstance(key, str) else entity_text(topic_key(key))
            yield (
                entity, self._generation, pack.offsets[0], pack.sizes.tobytes(), pack.offsets.tobytes(), bytes(pack.payload),
            )  # fmt: skip
        self._packs.clear()
        self._bytes = 0


def is_topic(key: EntityKey) -> bool:
    """Return True for the key of one topic."""
    return key[0] == EVERY_TOPIC[0] and key != EVERY_TOPIC


def _decode(piece: bytes) -> Record:
    record = decode_record(piece)
    if isinstance(record, UnknownRecord) or TYPE_NUMBERS[type(record)] >= FIRST_CONTROL_TYPE:
        raise LogFormatError("a record that a batch of data cannot have, or of a later release")
    return record


def packed_rows(
    batches: Iterable[Batch], since: Offset, until: Offset, invisible: Sequence[tuple[Offset, Offset]]
) -> Iterator[Row]:
    """Return the rows of `packed` for these batches: records in [since, until) that are not in `invisible` ranges.

    Raises:
        LogFormatError: a batch cannot be decoded.
    """
    packer = _Packer(FROM_LOG)
    for batch in batches:
        if batch.is_control or batch.end_offset <= since or batch.base_offset >= until:
            continue
        try:
            if _is_inside(batch, since, until, invisible):
                packer.add_batch(batch)
            else:
                _add_some(packer, batch, since, until, invisible)
        except LogFormatError:
            _add_some(packer, batch, since, until, invisible)  # raises the error with its place in the batch
            raise
        if packer.is_full:
            yield from packer.take()
    yield from packer.take()


def _is_inside(batch: Batch, since: Offset, until: Offset, invisible: Sequence[tuple[Offset, Offset]]) -> bool:
    base, end = batch.base_offset, batch.end_offset
    is_visible = not any(begin < end and base < stop for begin, stop in invisible)
    return since <= base and end <= until and is_visible and batch.format_version == FORMAT_VERSION


def _add_some(
    packer: _Packer, batch: Batch, since: Offset, until: Offset, invisible: Sequence[tuple[Offset, Offset]]
) -> None:
    try:
        for key, offset, payload in visible_records(batch, since, until, invisible):
            packer.add(key, offset, payload)
    except LogFormatError as e:
        raise LogFormatError(f"batch {batch}: {e}") from e


def packed_snapshot_rows(records: Iterable[tuple[MetadataRecord, bytes]]) -> Iterator[Row]:
    """Return the rows of `packed` for the canonical records of a snapshot, each with its bytes."""
    packer = _Packer(FROM_SNAPSHOT)
    for place, (record, payload) in enumerate(records):
        for key in entity_keys(record):
            packer.add(key, place, payload)
        if packer.is_full:
            yield from packer.take()
    yield from packer.take()
