"""Fold a log to the canonical records of a snapshot, entity by entity, in parallel.

    packed --repartition(entity), sort(entity, generation, offset)--> one pass per task, entity after entity --> sorted

The rules are in `metadata_log.image.entities`, and topics have a fold of their own (`topic_fold`). A task keeps the state of one
entity, and not its records. Example: a topic has changed a million times; its task reads them row by row, and holds one row.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from metadata_log.format.codec import decode_record, encode_valid
from metadata_log.format.ids import Offset
from metadata_log.format.records import MetadataRecord
from metadata_log.image.entities import OrderKey, fold
from metadata_log.image.entity_key import EVERY_TOPIC
from snapshots.offline.packed.entities import numbers_of
from snapshots.offline.packed.topic_fold import States, TopicFold
from snapshots.offline.punctuation import Placed, read_table
from snapshots.offline.rows import FROM_SNAPSHOT, entity_of
from snapshots.offline.schema import Column, arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CANONICAL: Final = (Column("order_key", "binary"), Column("payload", "binary"))
_OUTPUT_ROWS: Final = 10_000


class _Piece(NamedTuple):
    """One row of `packed`."""

    entity: str
    generation: int
    offset: Offset
    sizes: bytes
    offsets: bytes
    payload: bytes

    def records(self) -> Iterator[tuple[Offset, bytes]]:
        begin = 0
        for size, offset in zip(*numbers_of(self.sizes, self.offsets), strict=True):
            yield offset, self.payload[begin : begin + size]
            begin += size


def read_packed(
    spark: "SparkSession",
    path: str,
    *,
    until: Offset,
    since: Offset = 0,
    base: str | None = None,
    invisible: Iterable[tuple[Offset, Offset]] = (),
) -> "DataFrame":
    """Return the records of [since, until), packed by entity, preceded by those of the snapshot `base`."""
    options: dict[str, object] = {"until": until, "since": since, "invisible": [list(each) for each in invisible]}
    if base is not None:
        options["base"] = base
    packed = read_table(spark, [path], "packed", **options)
    return packed.repartition("entity").sortWithinPartitions("entity", "generation", "offset")


def fold_records(packed: "DataFrame", every_topic: Iterable[Placed]) -> "DataFrame":
    """Return the canonical records, in one partition, in canonical order. `every_topic` has the records that concern all topics,
    by offset.
    """
    folded = packed.mapInArrow(FoldTask([(each.offset, each.payload) for each in every_topic]), spark_schema(CANONICAL))
    return folded.repartition(1).sortWithinPartitions("order_key")


class FoldTask:
    """The fold of one task. A class instead of a closure, so that workers find it by name."""

    def __init__(self, every_topic: Sequence[tuple[Offset, bytes]]) -> None:
        self._every_topic = every_topic

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        states = States()
        keys: list[bytes] = []
        payloads: list[bytes] = []
        for entity, pieces in groupby(_pieces(batches), key=lambda piece: piece.entity):
            for order_key, record in self._fold(entity, pieces, states):
                keys.append(order_key)
                payloads.append(encode_valid(record))
                if len(keys) >= _OUTPUT_ROWS:
                    yield _record_batch(keys, payloads)
                    keys, payloads = [], []
        yield _record_batch(keys, payloads)

    def _fold(self, entity: str, pieces: Iterator[_Piece], states: States) -> Iterable[tuple[OrderKey, MetadataRecord]]:
        key = entity_of(entity)
        if key == EVERY_TOPIC:
            return ()
        if key[0] == EVERY_TOPIC[0]:
            return self._fold_topic(TopicFold(states), pieces)
        return fold(key, _decoded(pieces))

    def _fold_topic(self, topic: TopicFold, pieces: Iterator[_Piece]) -> Iterable[tuple[OrderKey, MetadataRecord]]:
        if not self._every_topic:
            for piece in pieces:
                topic.take(*numbers_of(piece.sizes, piece.offsets), piece.payload)
            return topic.records()
        first = next(pieces)
        is_older = first.generation == FROM_SNAPSHOT
        waiting = [each for each in reversed(self._every_topic) if is_older or each[0] > first.offset]
        for piece in (first, *pieces):
            for offset, packed in piece.records():
                while waiting and waiting[-1][0] < offset and piece.generation != FROM_SNAPSHOT:
                    _clear(topic, *waiting.pop())
                topic.take((len(packed),), (offset,), packed)
        while waiting:
            _clear(topic, *waiting.pop())
        return topic.records()


def _clear(topic: TopicFold, offset: Offset, packed: bytes) -> None:
    topic.clear(_decode(packed), offset)


def _decode(packed: bytes) -> Any:
    return decode_record(packed)


def _decoded(pieces: Iterator[_Piece]) -> Iterator[tuple[Offset, MetadataRecord]]:
    return ((offset, _decode(packed)) for piece in pieces for offset, packed in piece.records())


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[_Piece]:
    for batch in batches:
        columns = [batch.column(number).to_pylist() for number in range(len(_Piece._fields))]
        yield from map(_Piece, *columns)


def _record_batch(keys: list[bytes], payloads: list[bytes]) -> pa.RecordBatch:
    schema = arrow_schema(CANONICAL)
    arrays = [pa.array(values, type=field.type) for values, field in zip((keys, payloads), schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
