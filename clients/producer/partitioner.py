"""The partition of a record: by its key, or without a key the partition of the present batch.

*With a key*: `murmur2(key)` without its sign bit, modulo the number of partitions. It is the hash of Kafka's Java client, so both
clients send a key to the same partition. The same key goes to the same partition as long as the number of partitions stays.

*Without a key* (KIP-480): all records go to one partition until its batch ends; then to another one, by the dice. Example:

    1. orders has 12 partitions. A producer sends 100 small records per linger time.
    2. Round robin would make 12 batches of 8 records, and 12 appends. The sticky partition has one batch of 100 records.
    3. Over many batches each partition gets its share. Partitions without a leader are left out while others have leaders.
"""

import random
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF
_CACHED_KEY_BYTES_MAX: Final = 64
_CACHED_KEYS_MAX: Final = 16_384


def murmur2(data: bytes) -> int:
    """Returns the 32-bit hash of Kafka's Java client, without sign."""
    length = len(data)
    h = _SEED ^ length
    whole = length // 4
    for k in struct.unpack_from(f"<{whole}I", data):
        k = (k * _M) & _WORD
        k ^= k >> 24
        h = ((h * _M) & _WORD) ^ ((k * _M) & _WORD)
    rest = data[whole * 4 :]
    if rest:
        h ^= int.from_bytes(rest, "little")
        h = (h * _M) & _WORD
    h ^= h >> 13
    h = (h * _M) & _WORD
    return h ^ (h >> 15)


_cached_murmur2 = lru_cache(maxsize=_CACHED_KEYS_MAX)(murmur2)


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Returns the partition of a key."""
    found = _cached_murmur2(key) if len(key) <= _CACHED_KEY_BYTES_MAX else murmur2(key)
    return (found & 0x7FFFFFFF) % partition_count


class StickyPartitions:
    """The present partition of each topic for records without a key."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._present: dict[str, tuple[int, Sequence[int]]] = {}
        """For each topic its partition, and the partitions with a leader when the partition was last checked."""

    def present(self, topic: str, partition_count: int, available: Sequence[int]) -> int:
        """Returns the topic's present partition. `available`: the partitions with a leader."""
        found = self._present.get(topic)
        if found is not None and found[1] is available:
            return found[0]
        if found is None or found[0] not in (available or range(partition_count)):
            return self.move(topic, partition_count, available)
        self._present[topic] = (found[0], available)
        return found[0]

    def move(self, topic: str, partition_count: int, available: Sequence[int]) -> int:
        """Chooses another partition, because the batch of the present one has ended, and returns the new one."""
        choices = available or range(partition_count)
        place = self._dice.randrange(len(choices))
        found = self._present.get(topic)
        if found is not None and choices[place] == found[0]:
            place = (place + 1) % len(choices)
        self._present[topic] = (choices[place], available)
        return choices[place]
