"""Fold one topic with its partitions, and decode a change only when its bytes are new to the state that it changes.

A partition goes through few states, again and again: a broker leaves the ISR, and comes back. Each state has a table: the bytes
of a change, and the next state. Example, with the replicas (1, 2, 3):

    1. state A has the ISR (1, 2, 3). The bytes `isr=(1, 3)` are new: they are decoded, merged and checked, and lead to state B
    2. at B, `isr=(1, 2, 3)` is new, and leads to A again, which is found by its ISR and leader
    3. the next restart of broker 2 costs two lookups by bytes, and nothing is decoded

The epochs are not part of these states, because they grow with each change: they are counted beside them. The states that differ
in ISR and leader only are *siblings*, and know each other.

The rules are those of the delta: `merge` and `misfit` make each new step. If a record is anything else than a new topic, its next
partition or a change that fits, a delta takes over with all partitions so far, and judges this and all later records.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Final, cast

from metadata_log.format.codec import UnknownRecord, decode_record
from metadata_log.format.ids import EPOCH_MAX, ZERO_UUID, NodeId, Offset
from metadata_log.format.partition_bytes import CHANGE_MARK, NUMBER_AT, NUMBER_BYTES
from metadata_log.format.partition_state import (
    DIRECTORIES,
    ISR,
    LEADER,
    LEADER_EPOCH,
    PARTITION_EPOCH,
    RECOVERY_STATE,
    REMOVING,
    REPLICAS,
    NodeIds,
    PartitionState,
    merge,
    misfit,
    partition_of,
)
from metadata_log.format.records import MetadataRecord, Partition, PartitionChange, Record, Topic
from metadata_log.image.canonical_order import OrderKey
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.entities import with_order_keys
from metadata_log.image.image_editor import DeltaKind
from metadata_log.image.metadata_image import EMPTY_IMAGE, NOWHERE

STATES_MAX: Final = 50_000
"""Maximum number of states, and of changes, that one task remembers."""
_CHANGE_TYPE: Final = CHANGE_MARK[0]
_ID_HEAD: Final = CHANGE_MARK[2]
"""The head of the bytes of an id: the third byte after the array's head, if type and version take one byte each."""
_BEHIND_LEADER: Final = PartitionChange._fields.index("leader") + 1
_NOTHING_ELSE: Final = (None,) * (len(PartitionChange._fields) - _BEHIND_LEADER)
_LARGE: Final = 0x80
"""MessagePack's heads of numbers from here on have more bytes behind."""
_EPOCH_NEAR_MAX: Final = EPOCH_MAX >> 1
"""Above this epoch the delta counts, which refuses the change after the last epoch. No log is long enough to come from here to
there."""


class _State:
    """A state of partitions without epochs, and the steps from it that were seen: the bytes of a change behind the partition's
    number -> the next state, and by how much the leader epoch grows.
    """

    __slots__ = ("fields", "siblings", "steps")

    def __init__(self, fields: PartitionState, siblings: "dict[tuple[NodeIds, NodeId], _State]") -> None:
        self.fields = fields
        self.siblings = siblings
        self.steps: dict[bytes, tuple[_State, int]] = {}


class States:
    """The states and the changes that one task has seen."""

    def __init__(self) -> None:
        self._families: dict[PartitionState, dict[tuple[NodeIds, NodeId], _State]] = {}
        """By the fields of a state without ISR, leader and epochs: the state with each ISR and leader."""
        self._count = 0
        self._changes: dict[bytes, tuple[PartitionChange, bool]] = {}

    def change_of(self, tail: bytes, packed: bytes) -> tuple[PartitionChange, bool]:
        """Return a change with the bytes `tail` behind the partition's number, of any partition, and True if nothing but ISR and
        leader changes. `packed` is the record.

        Raises:
            LogFormatError: the record cannot be decoded.
        """
        known = self._changes.get(tail)
        if known is None:
            change = decode_record(packed)
            assert isinstance(change, PartitionChange), "the type and the version are those of a change"
            if len(self._changes) >= STATES_MAX:
                self._changes.clear()
            known = self._changes[tail] = change, change[_BEHIND_LEADER:] == _NOTHING_ELSE
        return known

    def of(self, fields: PartitionState) -> _State:
        """Return the state with these fields, which can be those of a partition."""
        if self._count >= STATES_MAX:
            self._forget()
        alone = cast(
            PartitionState,
            (fields[REPLICAS], (), *fields[REMOVING:LEADER], 0, fields[RECOVERY_STATE], 0, 0, *fields[DIRECTORIES:]),
        )
        siblings = self._families.setdefault(alone, {})
        key = fields[ISR], fields[LEADER]
        state = siblings.get(key)
        if state is None:
            state = siblings[key] = _State(_with_epochs(fields, 0, 0), siblings)
            self._count += 1
        return state

    def sibling(self, state: _State, isr: NodeIds | None, leader: NodeId | None) -> _State | None:
        """Return the state with this ISR and leader, and else as `state`; None if no partition can be in it.

        An ISR or leader of None is that of `state`. This is `merge` and `of` for the most frequent changes, in half the time.
        """
        old = state.fields
        key = old[ISR] if isr is None else isr, old[LEADER] if leader is None else leader
        found = state.siblings.get(key)
        if found is None:
            new = (old[REPLICAS], key[0], *old[REMOVING:LEADER], key[1], *old[RECOVERY_STATE:])
            if misfit(new) is not None:
                return None
            found = state.siblings[key] = _State(new, state.siblings)
            self._count += 1
        return found

    def _forget(self) -> None:
        for siblings in self._families.values():
            for state in siblings.values():
                state.steps.clear()  # steps go round in circles, which would keep all states in memory
        self._families.clear()
        self._count = 0


def _with_epochs(fields: PartitionState, leader_epoch: int, partition_epoch: int) -> PartitionState:
    return cast(PartitionState, (*fields[:LEADER_EPOCH], leader_epoch, partition_epoch, *fields[PARTITION_EPOCH + 1 :]))


def _large_number(payload: bytes, at: int) -> tuple[int, int]:
    """Return the number whose head of a byte or more is at `at`, and the place behind it; a number that no partition has, if the
    head is not that of an unsigned number.
    """
    size = NUMBER_BYTES.get(payload[at])
    begin = at + 1
    return (
        (sys.maxsize, begin) if size is None else (int.from_bytes(payload[begin : begin + size], "big"), begin + size)
    )


class TopicFold:
    """The fold of one topic."""

    def __init__(self, states: States) -> None:
        self._states = states
        self._topic: Topic | None = None
        self._partitions: list[_State] = []
        self._leader_epochs: list[int] = []
        self._partition_epochs: list[int] = []
        self._delta: MetadataDelta | None = None

    def take(self, sizes: Sequence[int], offsets: Sequence[Offset], payload: bytes) -> None:
        """Apply the records of one row.

        Raises:
            InvalidRecord: a record does not fit the earlier ones.
            LogFormatError: a record cannot be decoded.
        """
        partitions, leader_epochs, partition_epochs = self._partitions, self._leader_epochs, self._partition_epochs
        begin = 0
        for size, offset in zip(sizes, offsets, strict=True):
            end = begin + size
            step = None
            # The packer has checked the array's head, the version and the id, so two bytes tell an ordinary change.
            if payload[begin + 1] == _CHANGE_TYPE and payload[begin + 3] == _ID_HEAD:
                number, behind = payload[begin + NUMBER_AT], begin + NUMBER_AT + 1
                if number >= _LARGE:
                    number, behind = _large_number(payload, behind - 1)
                if number < len(partitions):
                    tail = payload[behind:end]
                    step = partitions[number].steps.get(tail) or self._new_step(number, tail, payload[begin:end])
            if step is None:
                self._take_new(payload[begin:end], offset)
            else:
                partitions[number], grown = step
                leader_epochs[number] += grown
                partition_epochs[number] += 1
            begin = end

    def clear(self, record: MetadataRecord, offset: Offset) -> None:
        """Apply a record that concerns every topic."""
        self._by_delta().replay(record, offset)

    def records(self) -> Iterator[tuple[OrderKey, MetadataRecord]]:
        """Return the canonical records of the topic, each with its order key, in canonical order."""
        if self._delta is not None:
            return with_order_keys(self._delta.finish(NOWHERE).canonical_records())
        return with_order_keys(self._so_far())

    # --- records whose bytes are new ----------------------------------------------------------------------------------

    def _new_step(self, number: int, tail: bytes, packed: bytes) -> "tuple[_State, int] | None":
        """Return the step that an ordinary change makes, and remember the step; None if the change does not fit."""
        change, is_small = self._states.change_of(tail, packed)
        state = self._partitions[number]
        if is_small:
            known = self._states.sibling(state, change.isr, change.leader)
        else:
            new = merge(state.fields, change)
            known = None if misfit(new) is not None else self._states.of(new)
        if known is None:
            return None
        step = state.steps[tail] = (known, 0 if change.leader is None else 1)
        return step

    def _take_new(self, packed: bytes, offset: Offset) -> None:
        """Apply a record that is no ordinary change."""
        record = decode_record(packed)
        assert not isinstance(record, UnknownRecord), "the packer lets no unknown record through"
        if self._delta is not None or not self._is_birth(record):
            self._by_delta().replay(cast(MetadataRecord, record), offset)

    def _is_birth(self, record: Record) -> bool:
        """Apply the record, and return True, if it is the topic or its next partition. Otherwise do nothing, and return False."""
        if isinstance(record, Topic):
            if self._topic is not None or not record.name or record.topic_id == ZERO_UUID:
                return False
            self._topic = record
            return True
        is_next = (
            self._topic is not None and isinstance(record, Partition) and record.partition == len(self._partitions)
        )
        return is_next and self._add(cast(Partition, record))

    def _add(self, record: Partition) -> bool:
        fields: PartitionState = record[2:]
        if misfit(fields) is not None or max(record.leader_epoch, record.partition_epoch) > _EPOCH_NEAR_MAX:
            return False
        self._partitions.append(self._states.of(fields))
        self._leader_epochs.append(record.leader_epoch)
        self._partition_epochs.append(record.partition_epoch)
        return True

    def _by_delta(self) -> MetadataDelta:
        """Return the delta, which has all records so far. The first call makes the delta, and forgets the states."""
        if self._delta is None:
            self._delta = MetadataDelta(EMPTY_IMAGE, kind=DeltaKind.FOLDING)
            for record in [*self._so_far()]:
                self._delta.replay(record, 0)
            self._partitions.clear()  # in place: `take` sees the empty list
        return self._delta

    def _so_far(self) -> Iterator[MetadataRecord]:
        if self._topic is None:
            return
        yield self._topic
        columns = zip(self._partitions, self._leader_epochs, self._partition_epochs, strict=True)
        for number, (state, leader_epoch, partition_epoch) in enumerate(columns):
            fields = _with_epochs(state.fields, leader_epoch, partition_epoch)
            yield partition_of(self._topic.topic_id, number, fields)
