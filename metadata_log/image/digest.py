"""The digest of an image: one number that two nodes compare to check that they have the same state.

The digest is the sum, modulo 2**256, of the SHA-256 of every canonical record as the log would encode it. A sum does
not depend on the order, so a change costs one subtraction and one addition in an image of any size, and Spark computes
the same number with a plain aggregate. Example: partition 7 gets a new leader. The digest becomes: digest - hash(old
record) + hash(new record).

The digest finds a bug, a bit flip or a lost record. The digest does not stop an attacker who can choose thousands of
records freely (generalized-birthday search on sums of hashes, Wagner 2002). For that case the chain of the log, an
ordinary hash chain, is the proof.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from metadata_log.format.codec import encode_valid
from metadata_log.format.ids import Uuid
from metadata_log.format.partition_bytes import encode_changed_partition, encode_partitions
from metadata_log.format.records import MetadataRecord

DIGEST_BYTES: Final = 32
MODULUS: Final = 1 << 256

_sha256 = hashlib.sha256
_from_bytes = int.from_bytes


def record_hash(record: MetadataRecord) -> int:
    """Return the summand of one canonical record in the digest."""
    return _from_bytes(_sha256(encode_valid(record)).digest(), "big")


def partition_hash(topic_id: Uuid, partition: int, state: tuple[Any, ...]) -> int:
    """Return `record_hash` of the `Partition` with these fields; `state` has all fields from the third on."""
    return _from_bytes(_sha256(encode_changed_partition(topic_id, partition, state)).digest(), "big")


def partitions_hash(topic_id: Uuid, first: int, states: Sequence[tuple[Any, ...]]) -> int:
    """Return the sum of `partition_hash` over `states`, numbered from `first` on."""
    return sum([_from_bytes(_sha256(data).digest(), "big") for data in encode_partitions(topic_id, first, states)])


def digest_to_bytes(digest: int) -> bytes:
    """Convert the digest to its form in snapshot footers and answers: 32 bytes, big-endian."""
    return digest.to_bytes(DIGEST_BYTES, "big")
