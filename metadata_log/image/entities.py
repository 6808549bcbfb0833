"""Folding the log by entity: how Spark compacts it in parallel, and arrives at the image that replay arrives at.

Every record names the entities that it changes. The records of one entity, in the order of their offsets, are all that
its final state depends on; so the log can be grouped by entity, each group folded alone, and the union of the results
sorted by their order keys: that is `MetadataImage.canonical_records()` to the byte, and the sum of the hashes is the digest.

    record        -> entity_keys -> (key, offset, record)       a RemoveTopic goes to its topic and to the topic's configs
    key, records  -> fold        -> (order key, canonical record)
    sort by order key            -> the snapshot

A `ClearElr` that names no topic by id has the key `EVERY_TOPIC`, and must be added to the records of every topic.
Records between the markers of a transaction that was aborted, or is still open where the fold ends, must be left out
first: `invisible_ranges` says which those are. Control records belong to no entity.

The fold is the delta itself, on the empty image: what a record does is not said twice.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.format.records import (
    AbortTransaction,
    BeginTransaction,
    EndTransaction,
    MetadataRecord,
    Partition,
    Record,
    Topic,
)
from metadata_log.image.canonical_order import OrderKey
from metadata_log.image.delta import EVERY_TOPIC, REPLAYS, DeltaKind, EntityKey, MetadataDelta
from metadata_log.image.metadata_image import EMPTY_IMAGE, NOWHERE

__all__ = ["EVERY_TOPIC", "EntityKey", "OrderKey", "entity_keys", "fold", "invisible_ranges", "with_order_keys"]

TRANSACTION_MARKERS: Final = frozenset({BeginTransaction, EndTransaction, AbortTransaction})


def entity_keys(record: Record) -> tuple[EntityKey, ...]:
    """The entities that the record changes, as tuples of text; none for control records, markers and no-ops."""
    row = REPLAYS.get(type(record))
    return () if row is None else row.entities(record)


def fold(key: EntityKey, records: Iterable[tuple[Offset, MetadataRecord]]) -> list[tuple[OrderKey, MetadataRecord]]:
    """The canonical records of the entity `key`, each with its place in the canonical order, in that order.

    `records`: all records that have `key` among their entity keys (and, for a topic, those of `EVERY_TOPIC`), by offset.

    Raises:
        InvalidRecord: one of them does not fit what the others made.
    """
    delta = MetadataDelta(EMPTY_IMAGE, kind=DeltaKind.FOLDING)
    for offset, record in records:
        delta.replay(record, offset)
    return [*with_order_keys(delta.finish(NOWHERE).canonical_records())]


def with_order_keys(records: Iterable[MetadataRecord]) -> Iterator[tuple[OrderKey, MetadataRecord]]:
    """Canonical records, each with its place in the canonical order; every topic comes directly before its partitions.

    A `Partition` carries only its topic's id, but stands behind its topic, by name: so it takes that from the topic before.

    Raises:
        LogFormatError: one of them is not canonical.
    """
    topic_key = b""
    for record in records:
        row = REPLAYS.get(type(record))
        if row is None or row.order is None:
            raise LogFormatError(f"{type(record).__name__} is not canonical")
        key = row.order(record)
        if isinstance(record, Topic):
            topic_key = key
        yield (topic_key + key if isinstance(record, Partition) else key), record


def invisible_ranges(
    markers: Iterable[tuple[Offset, BeginTransaction | EndTransaction | AbortTransaction]], end: Offset
) -> list[tuple[Offset, Offset]]:
    """The offset ranges [from, to) of records that never took effect below `end`: of aborted and of open transactions.

    Raises:
        LogFormatError: the markers, by offset, do not pair.
    """
    ranges = []
    begun: Offset | None = None
    for offset, marker in markers:
        if isinstance(marker, BeginTransaction) is not (begun is None):
            raise LogFormatError(f"{type(marker).__name__} at offset {offset} does not pair")
        if begun is None:
            begun = offset
            continue
        if isinstance(marker, AbortTransaction):
            ranges.append((begun, offset + 1))
        begun = None
    return ranges if begun is None else [*ranges, (begun, end)]
