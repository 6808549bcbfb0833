"""Fold a log entity by entity, in parallel, with the rules of `metadata_log.image.entities`.

    entities --repartition(entity), sort(entity, generation, offset)--> one pass per task, entity after entity

`fold_records` returns the canonical records of a snapshot. Example: two tasks fold topics A and B, and the sort of both
results by order key is the snapshot.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from metadata_log.format.codec import decode_records, encode_valid
from metadata_log.format.ids import Offset
from metadata_log.format.records import (
    MetadataRecord,
)
from metadata_log.image.entities import fold
from metadata_log.image.entity_key import EVERY_TOPIC
from snapshots.offline.rows import FROM_LOG, FROM_SNAPSHOT, entity_of
from snapshots.offline.schema import Column, arrow_schema, spark_schema
from snapshots.offline.survey import Placed, read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CANONICAL: Final = (Column("order_key", "binary"), Column("payload", "binary"))

_DECODE_RECORDS: Final = 500
_DECODE_BYTES: Final = 256 << 10

Batches = Iterator[pa.RecordBatch]


class Event(NamedTuple):
    """One record of one entity. The records of an entity are ordered by generation and offset."""

    generation: int
    offset: Offset
    payload: bytes


class EntityGroup(NamedTuple):
    entity: str
    events: list[Event]


def read_entities(
    spark: "SparkSession",
    path: str,
    *,
    until: Offset,
    since: Offset = 0,
    base: str | None = None,
    invisible: Iterable[tuple[Offset, Offset]] = (),
) -> "DataFrame":
    """Return the entities table of [since, until), preceded by the snapshot `base`."""
    options: dict[str, object] = {"until": until, "since": since, "invisible": [list(each) for each in invisible]}
    if base is not None:
        options["base"] = base
    entities = read_table(spark, [path], "entities", **options)
    return entities.repartition("entity").sortWithinPartitions("entity", "generation", "offset")


def fold_records(entities: "DataFrame", every_topic: Iterable[Placed]) -> "DataFrame":
    """Return the canonical records, in one partition, in canonical order."""
    run = _RecordsFold(_every_topic_events(every_topic))
    folded = entities.mapInArrow(run, spark_schema(CANONICAL))
    return folded.repartition(1).sortWithinPartitions("order_key")


# --- on the workers ---------------------------------------------------------------------------------------------------


def _every_topic_events(placed: Iterable[Placed]) -> tuple[Event, ...]:
    return tuple(Event(FROM_LOG, each.offset, each.payload) for each in placed)


def _groups(batches: Batches, every_topic: tuple[Event, ...]) -> Iterator[EntityGroup]:
    """Return the entities of one task, each with all its events in order. The input is sorted, and an entity is in one
    task as a whole.
    """

    def rows() -> Iterator[tuple[str, Event]]:
        for batch in batches:
            columns = [batch.column(i).to_pylist() for i in range(4)]
            for entity, generation, offset, payload in zip(*columns, strict=True):
                yield entity, Event(generation, offset, payload)

    for entity, group in groupby(rows(), key=lambda row: row[0]):
        key = entity_of(entity)
        if key == EVERY_TOPIC:
            continue
        events = [event for _, event in group]
        if every_topic and key[0] == EVERY_TOPIC[0]:
            born = events[0]
            later = [e for e in every_topic if born.generation == FROM_SNAPSHOT or e.offset > born.offset]
            events = sorted([*events, *later])
        yield EntityGroup(entity, events)


def _decoded(events: list[Event]) -> Iterator[tuple[Offset, MetadataRecord]]:
    pending: list[Event] = []
    size = 0
    for event in events:
        if pending and (len(pending) >= _DECODE_RECORDS or size + len(event.payload) > _DECODE_BYTES):
            yield from _decode(pending)
            pending, size = [], 0
        pending.append(event)
        size += len(event.payload)
    yield from _decode(pending)


def _decode(events: list[Event]) -> Iterator[tuple[Offset, Any]]:
    records = decode_records(b"".join(event.payload for event in events), len(events))
    return zip((event.offset for event in events), records, strict=True)


class _RecordsFold:
    """Folds entities into canonical records. A class instead of a closure, so that workers find it by name."""

    def __init__(self, every_topic: tuple[Event, ...]) -> None:
        self._every_topic = every_topic

    def __call__(self, batches: Batches) -> Batches:
        schema = arrow_schema(CANONICAL)
        keys: list[bytes] = []
        payloads: list[bytes] = []
        for entity, events in _groups(batches, self._every_topic):
            for order_key, record in fold(entity_of(entity), _decoded(events)):
                keys.append(order_key)
                payloads.append(encode_valid(record))
            if len(keys) >= 10_000:
                yield _record_batch(schema, keys, payloads)
                keys, payloads = [], []
        yield _record_batch(schema, keys, payloads)


def _record_batch(schema: pa.Schema, *columns: list[Any]) -> pa.RecordBatch:
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
