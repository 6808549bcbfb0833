"""The digest of an image: one number that two nodes compare to know that they hold the same state.

It is the sum, modulo 2**256, of the SHA-256 of every canonical record as the log would encode it. A sum has no order, so
a change costs one subtraction and one addition however large the image is, and Spark arrives at the same number with a
plain aggregate over its partitions.

What it is for, and what not: it finds divergence by bug, by bit flip and by lost record. It is no proof against someone
who may choose thousands of records freely (sums of hashes fall to generalized-birthday search, Wagner 2002); the chain
of the log, which is an ordinary hash chain, is the proof there.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from metadata_log.format.codec import encode_valid
from metadata_log.format.ids import Uuid
from metadata_log.format.partition_bytes import encode_partition, encode_partitions
from metadata_log.format.records import MetadataRecord

DIGEST_BYTES: Final = 32
MODULUS: Final = 1 << 256

_sha256 = hashlib.sha256
_from_bytes = int.from_bytes


def record_hash(record: MetadataRecord) -> int:
    """What one canonical record adds to the digest."""
    return _from_bytes(_sha256(encode_valid(record)).digest(), "big")


def partition_hash(topic_id: Uuid, partition: int, state: tuple[Any, ...]) -> int:
    """`record_hash` of the `Partition` with these fields; `state` is all of them from the third on."""
    return _from_bytes(_sha256(encode_partition(topic_id, partition, state)).digest(), "big")


def partitions_hash(topic_id: Uuid, first: int, states: Iterable[tuple[Any, ...]]) -> int:
    """The sum of `partition_hash` over `states`, numbered from `first` on."""
    return sum([_from_bytes(_sha256(data).digest(), "big") for data in encode_partitions(topic_id, first, states)])


def digest_to_bytes(digest: int) -> bytes:
    """The digest as it stands in a snapshot's footer and in answers: 32 bytes, big-endian."""
    return digest.to_bytes(DIGEST_BYTES, "big")
