"""Fast encoding and decoding of partitions. A large image consists almost only of partitions.

    [ array, type, version, id's head | topic id | number | replicas, isr, ... ]
    |-------------- head -------------|          |        |-------- tail -------|

All partitions in the same state share head and tail. Example: one request creates 1,000 partitions on three brokers,
which have three different states. The codec packs each of the three states once, and adds the topic id and the number
for each partition. When a snapshot is read, the first partition of each state is unpacked and checked; the others are
recognized by their bytes.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgpack

from metadata_log.format.records import RECORD_VERSION, TYPE_NUMBERS, Partition, PartitionChange
from metadata_log.format.shapes import UUID_BYTES, Fields, Shape

_SHORT_ARRAY: Final = 0x9
"""The upper four bits of MessagePack's head of an array of up to 15 items."""
_MISSES_MAX: Final = 64
"""Maximum number of different states in one payload; after that many, `StatesSeen` gives up."""

_SHORT_ARRAY_MAX: Final = 15
"""Maximum number of items of an array whose head is one byte."""
_TYPE: Final = TYPE_NUMBERS[Partition]
_SHAPE: Final = Shape(Partition)
assert 2 + len(_SHAPE.names) <= _SHORT_ARRAY_MAX, "type, version and all fields are a short array"

_packed_states: Final[dict[Fields, tuple[bytes, bytes]]] = {}
_PACKED_STATES_MAX: Final = 1 << 14

PARTITION_MARK: Final = bytes([_TYPE, RECORD_VERSION, 0xC4, UUID_BYTES])
"""The first bytes of a `Partition` after its array's head: type, version, and the head of the topic id."""
PARTITION_STARTS: Final = tuple(
    [bytes([_SHORT_ARRAY << 4 | 4 + fields]) + PARTITION_MARK for fields in range(len(_SHAPE.names) - 1)]
)
"""The bytes before the topic id, by the number of fields behind the partition's number."""
CHANGE_MARK: Final = bytes([TYPE_NUMBERS[PartitionChange], *PARTITION_MARK[1:]])
"""The same bytes of a `PartitionChange`."""
ID_AT: Final = 1 + len(PARTITION_MARK)
"""The place of the topic id in both records. A topic id that is the first field of another record has this place, too."""
NUMBER_AT: Final = ID_AT + UUID_BYTES
"""The place of the partition's number in both records."""
NUMBER_BYTES: Final = {**dict.fromkeys(range(0x80), 0), 0xCC: 1, 0xCD: 2, 0xCE: 4}
"""How many bytes follow MessagePack's head of an unsigned number. A number below 128 is its own head."""
NUMBER_SIZES: Final = {head: 1 + more for head, more in NUMBER_BYTES.items()}
"""How many bytes a packed number has, by the first of them."""

pack: Final[Callable[[object], bytes]] = msgpack.Packer(use_bin_type=True, strict_types=False).pack
"""One packer for all threads: `pack` does not release the interpreter lock."""


def number_of(packed: bytes) -> int:
    """Return the number of a partition from its own bytes, which are those of `NUMBER_BYTES`."""
    return packed[0] if len(packed) == 1 else int.from_bytes(packed[1:], "big")


def encode_partition(topic_id: bytes, partition: int, state: Fields) -> bytes:
    """Encode like `codec.encode_valid` a `Partition` whose fields from the third on are `state`, without making the
    record.
    """
    head, tail = _packed_states.get(state) or _pack_state(state)
    assert len(topic_id) == UUID_BYTES
    return b"".join((head, topic_id, pack(partition), tail))


def encode_changed_partition(topic_id: bytes, partition: int, state: Fields) -> bytes:
    """Encode like `encode_partition` a partition that has changed: hardly another one is in the same state, so the state is
    not looked up among those of others.
    """
    return pack((_TYPE, RECORD_VERSION, topic_id, partition, *_SHAPE.shortest(state)))


def encode_partitions(topic_id: bytes, first: int, states: Sequence[Fields]) -> list[bytes]:
    """Encode each state like `encode_partition`, numbered from `first` on. If most states are objects of their own, as in a
    cluster of a hundred brokers, no bytes are looked up.
    """
    assert len(topic_id) == UUID_BYTES
    if 2 * len({*map(id, states)}) > len(states) > 1:
        return [encode_changed_partition(topic_id, number, state) for number, state in enumerate(states, first)]
    pieces = [_packed_states.get(state) or _pack_state(state) for state in states]
    return [b"".join((head, topic_id, pack(number), tail)) for number, (head, tail) in enumerate(pieces, first)]


def _pack_state(state: Fields) -> tuple[bytes, bytes]:
    """Return the bytes of a `Partition` in this state before the topic id, and the bytes after the number."""
    if len(_packed_states) >= _PACKED_STATES_MAX:
        _packed_states.clear()
    pieces = PARTITION_STARTS[len(_SHAPE.shortest(state))], packed_tail(state)
    return _packed_states.setdefault(state, pieces)


def packed_tail(state: Fields) -> bytes:
    """Return the bytes of a `Partition` in this state after the number. A short array is a head of one byte and its items."""
    return pack(_SHAPE.shortest(state))[1:]


class StatesSeen:
    """The partition states already decoded in one payload. Partitions that are created together usually share a few
    states.

    If the bytes behind a partition's number equal those of an earlier partition, the two have the same state, so the
    second one need not be unpacked and checked. Bytes are compared, not values: True equals 1 in Python, but such a
    field must not hold True. Equal array heads mean equally many items, and no sequence of items is the beginning of
    another one; so the record ends where the equal bytes end.
    """

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._states: dict[tuple[int, bytes], Fields] = {}
        self._state_bytes = 0
        """How many bytes followed the last partition's number; a guess for the next partition."""
        self._misses_left = _MISSES_MAX
        self.is_useful = True
        """False after too many misses. In a cluster of a hundred brokers nearly all states differ, and comparing is
        useless."""

    def partition_at(self, start: int) -> Partition | None:
        """Return the record at `start`, where an array's head and `PARTITION_MARK` are, if its state was seen
        before.
        """
        payload, at = self._payload, start + NUMBER_AT
        size = NUMBER_BYTES.get(payload[at]) if at < len(payload) else None
        if size is None:
            return None
        end = at + 1 + size
        state = self._states.get((payload[start], payload[end : end + self._state_bytes]))
        if state is None:
            return None
        number = int.from_bytes(payload[at + 1 : end], "big") if size else payload[at]
        return tuple.__new__(Partition, (payload[at - UUID_BYTES : at], number, *state))

    def note(self, start: int, end: int, record: object) -> None:
        """Remember the state of `record`, which was not seen before and ends at `end`. (An array that is not short
        could be a map.)
        """
        number_at = start + NUMBER_AT
        size = NUMBER_BYTES.get(self._payload[number_at])
        self._misses_left -= 1
        self.is_useful = self._misses_left > 0
        if size is not None and self._payload[start] >> 4 == _SHORT_ARRAY and type(record) is Partition:
            begin = number_at + 1 + size
            self._state_bytes = end - begin
            self._states[self._payload[start], self._payload[begin:end]] = record[2:]
