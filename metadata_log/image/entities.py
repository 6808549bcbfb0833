"""Folding the log by entity: how Spark computes in parallel the same image as replay.

Every record names the entities that it changes. The final state of an entity depends only on the records of that
entity, in the order of their offsets. So the log can be grouped by entity, and each group can be folded alone. The
results of all groups, sorted by their order keys, are `MetadataImage.canonical_records()` to the byte, and the sum of
their hashes is the digest.

    record        -> entity_keys -> (key, offset, record)       a RemoveTopic has two keys: the topic, and its configs
    key, records  -> fold        -> (order key, canonical record)
    sort by order key            -> the snapshot

Example: the log has, at 10, topic A with one partition, at 20, a config of broker 7, and at 30, a new leader for the
partition. One group has the records of 10 and 30 and gives A and its partition with the new leader. The other group has
the config. No group needs the other.

A `ClearElr` that names no topic by id has the key `EVERY_TOPIC`: add it to the records of every topic. Records of a
transaction that was aborted, or is still open at the end, must be removed first: `invisible_ranges` returns their
offsets. Control records belong to no entity.

The fold is the delta itself, on the empty image, so the effect of each record is defined once.
"""

from collections.abc import Iterable, Iterator

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
from metadata_log.format.records.transactions import TRANSACTION_MARKERS
from metadata_log.image.canonical_order import OrderKey
from metadata_log.image.delta import REPLAYS, MetadataDelta
from metadata_log.image.entity_key import EVERY_TOPIC, EntityKey
from metadata_log.image.image_editor import DeltaKind
from metadata_log.image.metadata_image import EMPTY_IMAGE, NOWHERE

__all__ = [
    "EVERY_TOPIC",
    "TRANSACTION_MARKERS",
    "EntityKey",
    "OrderKey",
    "entity_keys",
    "fold",
    "invisible_ranges",
    "with_order_keys",
]


def entity_keys(record: Record) -> tuple[EntityKey, ...]:
    """Return the entities that the record changes, as tuples of text; none for control records, markers and no-ops."""
    row = REPLAYS.get(type(record))
    return () if row is None else row.entities(record)


def fold(key: EntityKey, records: Iterable[tuple[Offset, MetadataRecord]]) -> list[tuple[OrderKey, MetadataRecord]]:
    """Return the canonical records of the entity `key`, each with its order key, in canonical order.

    `records` has all records with `key` among their entity keys (for a topic also those of `EVERY_TOPIC`), by offset.

    Raises:
        InvalidRecord: a record does not fit the state that the earlier ones made.
    """
    delta = MetadataDelta(EMPTY_IMAGE, kind=DeltaKind.FOLDING)
    for offset, record in records:
        delta.replay(record, offset)
    return [*with_order_keys(delta.finish(NOWHERE).canonical_records())]


def with_order_keys(records: Iterable[MetadataRecord]) -> Iterator[tuple[OrderKey, MetadataRecord]]:
    """Return canonical records, each with its order key. Every topic must come directly before its partitions.

    A `Partition` has only its topic's id, but is sorted by its topic's name, so its key needs the topic before.

    Raises:
        LogFormatError: a record is not canonical.
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
    """Return the offset ranges [from, to) of transactions that had no effect below `end`: aborted and open ones.

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
