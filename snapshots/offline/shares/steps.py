"""Changes of partitions, remembered: the bulk of a log is the same few changes, thousands of times.

    shape    the state of a partition without its two epochs
    step     (shape, packed fields of a PartitionChange) -> the next shape, and by how much the leader epoch grows

The delta alone knows what a change does, and which change does not fit. It does each change once for each shape; every later
partition in this shape takes the same step by looking at the bytes. Example:
  1. orders-0 has the replicas and the ISR (1, 2, 3) and leader 1; the bytes of `isr=(1, 2)` come: the record is decoded, the
     delta replays it, and the step from this shape to the shape with the ISR (1, 2) is remembered;
  2. orders-7 is in the first shape, and the same bytes come: its shape is the second one now, its partition epoch one higher.
Two things besides shape and bytes decide whether a change fits. The level of `metadata.version`: when a level changes, all steps
are forgotten. The registered brokers, for a change that names replicas: such a step is never remembered. No epoch reaches its
maximum by steps of one.

States that have changed since the last `flush` are here, and not in the delta: flush before the delta is asked for them.
"""

from typing import Any, Final

from metadata_log.format.ids import Offset, Uuid
from metadata_log.format.partition_bytes import NUMBER_SIZES, number_of, pack
from metadata_log.format.partition_state import (
    DIRECTORIES,
    LEADER,
    LEADER_EPOCH,
    PARTITION_EPOCH,
    PartitionState,
)
from metadata_log.format.records import PartitionChange
from metadata_log.format.shapes import UUID_BYTES
from metadata_log.image.delta import MetadataDelta

_KEY_BYTES_MAX: Final = UUID_BYTES + max(NUMBER_SIZES.values())
_SHAPES_MAX: Final = 1 << 16
_STEPS_MAX: Final = 1 << 19
_STATES_MAX: Final = 1 << 17


class Shape:
    """The state of partitions, apart from their epochs."""

    __slots__ = ("leader", "state", "steps")

    def __init__(self, state: PartitionState) -> None:
        self.state = state
        """A state with some epochs."""
        self.leader = state[LEADER]
        self.steps: dict[bytes, tuple[Shape, int]] = {}


class Steps:
    """The remembered steps, and the states of the partitions that took them."""

    def __init__(self) -> None:
        self.now: dict[bytes, list[Any]] = {}
        """Topic id and packed number -> shape, leader epoch and partition epoch of each partition under change."""
        self._shapes: dict[tuple[Any, ...], Shape] = {}
        self._step_count = 0

    def replay(
        self, delta: MetadataDelta, record: PartitionChange, key: bytes, fields: bytes, topic: str, offset: Offset
    ) -> Shape:
        """Replay a change for which there is no step yet, and remember the step. Return the shape before it.

        Raises:
            InvalidRecord: the record does not fit, and has changed nothing.
        """
        if len(self._shapes) >= _SHAPES_MAX or self._step_count >= _STEPS_MAX:
            self.forget(delta)
        entry = self.now.get(key) or self.open(delta, key)
        if entry is None:
            delta.replay(record, offset)
            raise AssertionError(f"{record} fits, and there is no such partition")
        old: Shape = entry[0]
        after = delta.state_after(_state(entry), record, topic, offset)
        new = self.shape_of(after)
        if record.replicas is None:
            self._step_count += 1
            old.steps[fields] = new, after[LEADER_EPOCH] - entry[1]
        entry[:] = new, after[LEADER_EPOCH], after[PARTITION_EPOCH]
        return old

    def open(self, delta: MetadataDelta, key: bytes) -> list[Any] | None:
        """Return the entry in `now` of a partition that has none yet; None if there is no such partition."""
        if len(key) > _KEY_BYTES_MAX:
            return None  # a negative number, or none at all: no partition has it
        topic_id, number = place_of(key)
        if pack(number) != key[UUID_BYTES:]:
            return None  # a number in a longer form than needed: two keys for one partition
        state = delta.partition_state(topic_id, number)
        if state is None:
            return None
        if len(self.now) >= _STATES_MAX:
            self.flush(delta)
        entry = self.now[key] = [self.shape_of(state), state[LEADER_EPOCH], state[PARTITION_EPOCH]]
        return entry

    def shape_of(self, state: PartitionState) -> Shape:
        """Return the shape of a state."""
        fields = (*state[:LEADER_EPOCH], *state[DIRECTORIES:])
        shape = self._shapes.get(fields)
        if shape is None:
            shape = self._shapes[fields] = Shape(state)
        return shape

    def flush(self, delta: MetadataDelta) -> None:
        """Give all changed states to the delta."""
        for key, entry in self.now.items():
            delta.put_state(*place_of(key), _state(entry))
        self.now.clear()

    def flush_topic(self, delta: MetadataDelta, topic_id: Uuid) -> None:
        """Give the changed states of one topic to the delta."""
        for number in range(delta.partition_count(topic_id)):
            entry = self.now.pop(topic_id + pack(number), None)
            if entry is not None:
                delta.put_state(topic_id, number, _state(entry))

    def forget(self, delta: MetadataDelta) -> None:
        """Forget all steps and shapes. The states go to the delta: no shape without a future stays in use."""
        self.flush(delta)
        self._shapes.clear()
        self._step_count = 0


def place_of(key: bytes) -> tuple[Uuid, int]:
    """Return the topic id and the number of a partition, by its key in `now`."""
    return key[:UUID_BYTES], number_of(key[UUID_BYTES:])


def _state(entry: list[Any]) -> PartitionState:
    shape, leader_epoch, partition_epoch = entry
    state: PartitionState = shape.state
    return (*state[:LEADER_EPOCH], leader_epoch, partition_epoch, *state[DIRECTORIES:])
