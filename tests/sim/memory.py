"""A memory for pure functions while a simulation runs: the next node need not compute what a node has computed.

Every batch is decoded by each controller, each broker and the observer, and each of them hashes the same records. Answers
are kept by all that they depend on: by the bytes themselves, so that a flipped bit is another question.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from metadata_log.format import codec
from metadata_log.format.batch import Batch
from metadata_log.format.codec import UnknownRecord
from metadata_log.format.ids import Uuid
from metadata_log.format.records import MetadataRecord, Record
from metadata_log.image import digest, image_editor, replay, topic_image
from metadata_log.image import metadata_image as image
from metadata_log.store import log_memory
from snapshots import reader

_DECODERS = (log_memory, replay, reader)
_RECORD_HASHERS = (image, image_editor, topic_image)


@contextmanager
def remembered() -> Iterator[None]:
    """For as long as the context lasts; then all is forgotten."""
    decoded: dict[bytes, tuple[Record | UnknownRecord, ...]] = {}
    records: dict[tuple[type, MetadataRecord], int] = {}
    partitions: dict[tuple[Any, ...], int] = {}
    decode, hash_record, hash_partition = codec.decode_batch, digest.record_hash, digest.partition_hash

    def decode_batch(batch: Batch) -> list[Record | UnknownRecord]:
        known = decoded.get(batch.data)
        if known is None:
            known = decoded[batch.data] = tuple(decode(batch))
        return list(known)

    def record_hash(record: MetadataRecord) -> int:
        question = type(record), record  # records of two types with equal fields are equal tuples
        known = records.get(question)
        if known is None:
            known = records[question] = hash_record(record)
        return known

    def partition_hash(topic_id: Uuid, partition: int, state: tuple[Any, ...]) -> int:
        question = topic_id, partition, state
        known = partitions.get(question)
        if known is None:
            known = partitions[question] = hash_partition(*question)
        return known

    def partitions_hash(topic_id: Uuid, first: int, states: Iterable[tuple[Any, ...]]) -> int:
        return sum(partition_hash(topic_id, number, state) for number, state in enumerate(states, first))

    with ExitStack() as stack:
        for module in _DECODERS:
            stack.enter_context(mock.patch.object(module, "decode_batch", decode_batch))
        for module in _RECORD_HASHERS:
            stack.enter_context(mock.patch.object(module, "record_hash", record_hash))
        stack.enter_context(mock.patch.object(topic_image, "partition_hash", partition_hash))
        stack.enter_context(mock.patch.object(topic_image, "partitions_hash", partitions_hash))
        yield
