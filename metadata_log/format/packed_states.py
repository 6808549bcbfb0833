"""Packed states: the partitions of a run as the columns of a snapshot, unpacked one by one when somebody asks.

A broker with a million partitions is asked for a few thousand of them after its start, and many are never read. Example:
  1. broker 101 loads a snapshot with 1,000,000 partitions in 10,000 runs. It checks the lengths of the columns, keeps their
     bytes, and makes no state. The load takes 0.4 s instead of 4 s, and the image has 45 bytes a partition instead of 300;
  2. a client asks for partition 7 of topic A. The broker makes this one state of the columns of its run, in 5 us;
  3. the next client makes the state again: nothing is kept, so reading does not fill the memory.

*Lengths are checked at the load, meaning later.* No question fails, because the lengths and the places of all columns fit each
other. CRCs and chain have shown that the bytes are those of the writer. `check` shows that each partition can be in its state. It
costs as much as unpacking all of them, so the owner calls it in the background.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, cast, overload

from metadata_log.format.codec import ARRAY_ITEMS_MAX
from metadata_log.format.columns import (
    are_below,
    check_lists,
    check_numbers,
    list_at,
    lists_between,
    may_have,
    number_at,
    numbers_between,
)
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import NodeId, Uuid
from metadata_log.format.partition_runs import NO_IDS, PartitionRun, check_shape, run_of
from metadata_log.format.partition_state import (
    NodeIds,
    PartitionState,
    shared_directories,
    shared_ids,
    shared_lists,
    shared_uuids,
)
from metadata_log.format.records import ListColumn, PartitionColumns

PACKED_MIN: Final = 16
"""Minimum number of partitions in a packed run. The columns of a shorter run need more memory than its states."""


class PackedStates(Sequence[PartitionState]):
    """The states of one run. Immutable; each access makes the states anew."""

    __slots__ = ("_record",)

    def __init__(self, record: PartitionColumns) -> None:
        """Take the columns.

        Raises:
            LogFormatError: the columns do not fit each other.
        """
        count = record.partition_count
        check_shape(record)
        for column in record.lists[:6]:
            if column != NO_IDS:
                check_lists(column, count, ARRAY_ITEMS_MAX)
        for data in record.numbers:
            check_numbers(data, count)
        places, known = record.lists[6], len(record.directories)
        if places != NO_IDS and not are_below(places.numbers, check_lists(places, count, ARRAY_ITEMS_MAX), known):
            raise LogFormatError(f"a column of directories names a place outside the {known} directories")
        self._record = PartitionColumns(
            *record[:4],
            tuple([NO_IDS if column == NO_IDS else column for column in record.lists]),
            record.numbers,
            tuple(shared_uuids(record.directories)),
        )

    def __len__(self) -> int:
        return self._record.partition_count

    @overload
    def __getitem__(self, place: int) -> PartitionState: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[PartitionState]: ...

    def __getitem__(self, place: int | slice) -> PartitionState | Sequence[PartitionState]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        return self.state(place % len(self))

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self.between(0, len(self)))

    def state(self, place: int) -> PartitionState:
        """Return one state, in a third of the time of `between`. The place is within the run."""
        _, _, _, _, columns, (leader, recovery, leader_epoch, partition_epoch), directories = self._record
        replicas_of, isr_of, removing, adding, elr, last_elr, places = columns
        replicas, isr = list_at(replicas_of, place), None
        if isr_of is not NO_IDS:
            isr = list_at(isr_of, place)
        known = shared_lists((replicas, isr or ()))
        return (
            known[0],
            known[0] if isr is None else known[1],
            () if removing is NO_IDS else list_at(removing, place),
            () if adding is NO_IDS else list_at(adding, place),
            number_at(leader, place),
            number_at(recovery, place) if recovery else 0,
            number_at(leader_epoch, place) if leader_epoch else 0,
            number_at(partition_epoch, place) if partition_epoch else 0,
            () if places is NO_IDS else tuple([directories[each] for each in list_at(places, place)]),
            () if elr is NO_IDS else list_at(elr, place),
            () if last_elr is NO_IDS else list_at(last_elr, place),
        )

    def between(self, start: int, stop: int) -> list[PartitionState]:
        """Return the states `start` to `stop` (exclusive), both within the run."""
        record = self._record

        def lists(column: ListColumn) -> Iterable[NodeIds]:
            return repeat((), stop - start) if column is NO_IDS else lists_between(column, start, stop, shared_ids)

        replicas = shared_lists([*lists_between(record.lists[0], start, stop, shared_ids)])
        isr = replicas if record.lists[1] is NO_IDS else shared_lists([*lists(record.lists[1])])
        removing, adding, elr, last_elr = map(lists, record.lists[2:6])
        leader, *others = (numbers_between(column, start, stop) for column in record.numbers)
        columns = (replicas, isr, removing, adding, shared_ids(leader), *others)
        rest = (self._directories(start, stop), elr, last_elr)
        return cast(list[PartitionState], [*zip(*columns, *rest, strict=True)])

    def _directories(self, start: int, stop: int) -> Iterable[tuple[Uuid, ...]]:
        places = self._record.lists[6]
        if places is NO_IDS:
            return repeat((), stop - start)
        at = self._record.directories.__getitem__
        return shared_directories([tuple(map(at, each)) for each in lists_between(places, start, stop)])

    # --- without making states ---

    def may_have_replica_on(self, broker_id: NodeId) -> bool:
        """Return False if no partition of the run has a replica on the broker; True may be wrong (`may_have`)."""
        return may_have(self._record.lists[0].numbers, broker_id)

    def places_on(self, broker_id: NodeId, start: int, stop: int) -> Iterator[int]:
        """Return the places between `start` and `stop` (exclusive) with a replica on the broker, counted from `start`."""
        column = self._record.lists[0]
        sizes = column.sizes
        if not any(sizes[1:]) or not self.may_have_replica_on(broker_id):
            return iter(())
        if len(sizes) != 1 + sizes[0]:
            replicas = enumerate(lists_between(column, start, stop))
            return (place for place, each in replicas if broker_id in each)
        size = int.from_bytes(sizes[1:], "big")
        ids = numbers_between(column.numbers, start * size, stop * size)
        return iter(dict.fromkeys([place // size for place, each in enumerate(ids) if each == broker_id]))

    @property
    def may_move(self) -> bool:
        """False if no partition of the run is in reassignment."""
        return self._record.lists[2] is not NO_IDS or self._record.lists[3] is not NO_IDS

    def check(self) -> None:
        """Check that each partition can be in its state, as a load of unpacked runs does.

        Raises:
            LogFormatError: a partition cannot be in its state.
        """
        run_of(self._record)


def packed_run_of(record: PartitionColumns) -> PartitionRun:
    """Return the run in the record, packed if it is long enough.

    Raises:
        LogFormatError: the columns do not fit each other; in a short run also: a partition cannot be in its state.
    """
    if record.partition_count < PACKED_MIN:
        return run_of(record)
    states: Any = PackedStates(record)
    return PartitionRun(record.topic_id, record.first, states, int.from_bytes(record.hashes, "big"))
