"""The bytes of partitions, which are nearly all that a large image is made of: the hot paths there and back.

    [ array, type, version, id's head | topic id | number | replicas, isr, ... ]
    |-------------- head -------------|          |        |-------- tail -------|

Head and tail are the same for all partitions in one state, and those that are created together are in one of a few. So a state
is packed once, and what was unpacked and checked once is known again by its bytes.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgpack

from metadata_log.format.records import RECORD_VERSION, TYPE_NUMBERS, Partition
from metadata_log.format.shapes import UUID_BYTES, Fields, Shape

_SHORT_ARRAY: Final = 0x9
"""MessagePack's head of an array of up to 15 items, without their number."""
_MISSES_MAX: Final = 64
"""So many different states in one payload are looked out for."""

_TYPE: Final = TYPE_NUMBERS[Partition]
_SHAPE: Final = Shape(Partition)

_packed_states: Final[dict[Fields, tuple[bytes, bytes]]] = {}
_PACKED_STATES_MAX: Final = 1 << 14

PARTITION_MARK: Final = bytes([_TYPE, RECORD_VERSION, 0xC4, UUID_BYTES])
"""What a `Partition` begins with, behind its array's head: type, version, and the head of its topic's id."""
_NUMBER_AT: Final = 1 + len(PARTITION_MARK) + UUID_BYTES
_NUMBER_BYTES: Final = {**dict.fromkeys(range(0x80), 0), 0xCC: 1, 0xCD: 2, 0xCE: 4}
"""How many bytes follow MessagePack's head of an unsigned number; one below 128 is its own head."""

pack: Final[Callable[[object], bytes]] = msgpack.Packer(use_bin_type=True, strict_types=False).pack
"""One packer for all: `pack` runs to its end without letting another thread in."""


def encode_partition(topic_id: bytes, partition: int, state: Fields) -> bytes:
    """As `codec.encode_valid` of a `Partition` whose fields from the third on are `state`, without making one."""
    head, tail = _packed_states.get(state) or _pack_state(state)
    assert len(topic_id) == UUID_BYTES
    return b"".join((head, topic_id, pack(partition), tail))


def encode_partitions(topic_id: bytes, first: int, states: Iterable[Fields]) -> list[bytes]:
    """As `encode_partition` of each, numbered from `first` on."""
    assert len(topic_id) == UUID_BYTES
    pieces = [_packed_states.get(state) or _pack_state(state) for state in states]
    return [b"".join((head, topic_id, pack(number), tail)) for number, (head, tail) in enumerate(pieces, first)]


def _pack_state(state: Fields) -> tuple[bytes, bytes]:
    """What stands before the topic id of a `Partition` in this state, and what after its number."""
    fields = _SHAPE.shortest(state)
    whole = pack((_TYPE, RECORD_VERSION, bytes(UUID_BYTES), 0, *fields))
    number_at = len(whole) - sum([len(pack(field)) for field in fields]) - len(pack(0))
    if len(_packed_states) >= _PACKED_STATES_MAX:
        _packed_states.clear()
    pieces = whole[: number_at - UUID_BYTES], whole[number_at + len(pack(0)) :]
    return _packed_states.setdefault(state, pieces)


class StatesSeen:
    """The states of the partitions in one payload: those that are created together are in one of a few, as a rule.

    A partition whose bytes behind its number are those of an earlier one is in that one's state, so it need not be unpacked
    and checked. Bytes are compared, not values: True equals 1, and is not what such a field holds. With the array's head
    equal bytes are equally many items, and no sequence of items is another one's beginning; so where the bytes agree, the
    record ends.
    """

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._states: dict[tuple[int, bytes], Fields] = {}
        self._state_bytes = 0
        """How many bytes followed the last one's number: a guess at how many follow the next one's."""
        self._misses_left = _MISSES_MAX
        self.is_useful = True
        """Where nearly all are different, as in a cluster of a hundred brokers, looking would be for nothing."""

    def partition_at(self, start: int) -> Partition | None:
        """The record that begins at `start`, and behind its array's head with `PARTITION_MARK`, if its state was seen."""
        payload, at = self._payload, start + _NUMBER_AT
        size = _NUMBER_BYTES.get(payload[at]) if at < len(payload) else None
        if size is None:
            return None
        end = at + 1 + size
        state = self._states.get((payload[start], payload[end : end + self._state_bytes]))
        if state is None:
            return None
        number = int.from_bytes(payload[at + 1 : end], "big") if size else payload[at]
        return tuple.__new__(Partition, (payload[at - UUID_BYTES : at], number, *state))

    def note(self, start: int, end: int, record: object) -> None:
        """It was not seen, and ends at `end`. (Where it is not a short array, it cannot be told from a map.)"""
        number_at = start + _NUMBER_AT
        size = _NUMBER_BYTES.get(self._payload[number_at])
        self._misses_left -= 1
        self.is_useful = self._misses_left > 0
        if size is not None and self._payload[start] >> 4 == _SHORT_ARRAY and type(record) is Partition:
            begin = number_at + 1 + size
            self._state_bytes = end - begin
            self._states[self._payload[start], self._payload[begin:end]] = record[2:]
