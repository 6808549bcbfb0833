"""Reading the payloads of a snapshot in columns: partitions of one topic that follow each other become one `PartitionRun`.

A snapshot of a large cluster consists almost only of partitions, and a node answers nothing before the last of them is loaded. So
a node that loads makes no `Partition` record for each of them. A run has the states alone, and the sum of the records' hashes.
Example, a snapshot with 2,000,000 partitions in 20,000 topics:
  1. topic A has the partitions 0 to 99, and their records follow each other;
  2. the bytes behind the number of partition 0 were not seen before: `codec` decodes and checks the record, and the reader keeps
     its state with these bytes;
  3. the bytes behind the number of partition 7 are equal, so partition 7 has the same state, and nothing is decoded;
  4. topic A becomes one run of 100 states. All other records are decoded one by one.

*The hash of a record is the hash of its bytes*, because equal records have equal bytes (`codec`). A partition with other bytes
than its encoding is decoded like any other record, and is not part of a run.
"""

import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from metadata_log.format.codec import UnknownRecord, decode_record, split_payload
from metadata_log.format.ids import Uuid
from metadata_log.format.partition_bytes import NUMBER_AT, NUMBER_BYTES, PARTITION_STARTS, packed_tail
from metadata_log.format.partition_state import PartitionState, Unsound, partition_of, sound_state
from metadata_log.format.records import Partition, Record
from metadata_log.format.shapes import UUID_BYTES

_STATES_MAX: Final = 1 << 16
"""Maximum number of states that a reader keeps. A full table is emptied: this costs time, and never gives a wrong result."""
_SMALLEST: Final = {1: 0x80, 2: 0x100, 4: 0x1_0000}
"""The smallest number whose shortest form has this many bytes behind its head."""


class PartitionRun(NamedTuple):
    """The partitions `first`, `first + 1`, ... of one topic."""

    topic_id: Uuid
    first: int
    states: list[PartitionState]
    hashes: int
    """The sum of the hashes of the records (`metadata_log.image.digest`), without the modulus."""

    def records(self) -> Iterator[Partition]:
        """Make the records."""
        for number, state in enumerate(self.states, self.first):
            yield partition_of(self.topic_id, number, state)


class PartitionRuns:
    """Reads the payloads of one snapshot, one after the other."""

    def __init__(self) -> None:
        self._states: dict[bytes, PartitionState] = {}
        """The state of a partition, by the bytes behind its number."""

    def read(self, payload: bytes, count: int) -> Iterator[Record | UnknownRecord | PartitionRun]:
        """Read the `count` records of a payload, in order. A run ends with its payload at the latest.

        Raises:
            LogFormatError: as `codec.decode_records`.
        """
        known = self._states
        topic_id, first, hashes = b"", 0, 0
        states: list[PartitionState] = []
        for packed in split_payload(payload, count):
            if packed.startswith(PARTITION_STARTS):
                number, tail = _number_and_tail(packed)
                state = known.get(tail)
                if state is None:
                    state = self._first_seen(packed, tail) if number >= 0 else None
            else:
                state = None
            of_topic = packed[NUMBER_AT - UUID_BYTES : NUMBER_AT]
            if states and (state is None or of_topic != topic_id or number != first + len(states)):
                yield PartitionRun(topic_id, first, states, hashes)
                states, hashes = [], 0
            if state is None:
                yield decode_record(packed)
                continue
            if not states:
                topic_id, first = of_topic, number
            states.append(state)
            hashes += int.from_bytes(hashlib.sha256(packed).digest(), "big")
        if states:
            yield PartitionRun(topic_id, first, states, hashes)

    def _first_seen(self, packed: bytes, tail: bytes) -> PartitionState | None:
        """Decode a partition whose state was not seen before. Return None if it cannot be a part of a run."""
        record = decode_record(packed)
        if type(record) is not Partition:
            return None
        try:
            state = sound_state(record[2:])
        except Unsound:
            return None  # replay refuses the record, and says the reason
        if packed_tail(state) != tail:
            return None
        if len(self._states) >= _STATES_MAX:
            self._states.clear()
        self._states[tail] = state
        return state


def _number_and_tail(packed: bytes) -> tuple[int, bytes]:
    """Return the number of a packed partition, and the bytes behind the number. The number is -1 if it is not packed in its
    shortest form.
    """
    head = packed[NUMBER_AT] if len(packed) > NUMBER_AT else -1
    if 0 <= head < 0x80:
        return head, packed[NUMBER_AT + 1 :]
    size = NUMBER_BYTES.get(head)
    if size is None:
        return -1, b""
    end = NUMBER_AT + 1 + size
    number = int.from_bytes(packed[NUMBER_AT + 1 : end], "big")
    return (number if number >= _SMALLEST[size] else -1), packed[end:]
